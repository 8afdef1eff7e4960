// Fields writes the table of Kubernetes field names and numbers, and test data for the JSON form:
//
//	go run ./fields
//
// in the directory of this module writes src/schema/table.rs from the Go sources of all releases below, and
// src/client/builtin.rs with the resources of the last two, and the views of the crate listwatch-views. It also writes the JSON that Go prints for the recorded bodies, for
// objects with random values and for Kubernetes' own test objects; tests/core/json_form.rs compares the JSON form of this crate with it.
package main

import (
	"log"
	"maps"
	"os"
	"strings"
)

const root = "../.."

// The versions of the Go modules k8s.io/* whose types the table has, oldest first: one line for each minor release of
// Kubernetes. API types do not change in patch releases.
var releases = []string{
	"v0.31.0",
	"v0.32.0",
	"v0.33.0",
	"v0.34.0",
	"v0.35.0",
	"v0.36.3",
	"v0.37.2", // as in go.mod
}

func main() {
	log.SetFlags(0)
	union := table{}
	var sources []*sources
	for _, version := range releases {
		source := download(version)
		newer := source.table()
		if contradictions := newer.merge(union); contradictions != nil {
			log.Fatalf("%s contradicts earlier releases:\n%s", version, strings.Join(contradictions, "\n"))
		}
		sources, union = append(sources, source), newer
	}
	must(os.WriteFile(root+"/src/schema/table.rs", union.rust(), 0o644))
	all, byDefault := map[served]bool{}, map[served]bool{}
	for i, source := range sources {
		found := source.resources()
		maps.Copy(all, found)
		if i >= len(sources)-2 {
			maps.Copy(byDefault, found)
		}
	}
	maps.DeleteFunc(byDefault, func(r served, _ bool) bool { return !r.isDefault() })
	must(os.WriteFile(root+"/src/client/builtin.rs", rustResources(byDefault), 0o644))
	writeColumns()
	writeQuantitySums()
	writeViews(union.servedBy(all))
	must(os.MkdirAll(root+"/tests/core/json_form", 0o755))
	scheme := newScheme()
	writeRecorded(scheme)
	writeFilled(kinds(scheme), union)
	writeReleases(sources, union)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
