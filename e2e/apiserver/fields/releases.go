package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

const testdata = "/testdata/HEAD/"

// writeReleases writes the test objects of all releases, which have a value in every field: as protobuf, and as lines of the
// JSON that Go printed. An object that a release did not change is not repeated.
func writeReleases(releases []*sources, t table) {
	names := map[string]bool{}
	for _, release := range releases {
		paths, err := filepath.Glob(release.dirs["k8s.io/api"] + testdata + "*.pb")
		must(err)
		for _, path := range paths {
			names[strings.TrimSuffix(filepath.Base(path), ".pb")] = true
		}
	}
	var bodies, lines bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var last []byte
		for _, release := range releases {
			file := release.dirs["k8s.io/api"] + testdata + name
			encoded, err := os.ReadFile(file + ".pb")
			if os.IsNotExist(err) || bytes.Equal(encoded, last) {
				continue
			}
			must(err)
			last = encoded
			var unknown runtime.Unknown
			must(unknown.Unmarshal(bytes.TrimPrefix(encoded, magic)))
			if !t.hasKind(unknown.APIVersion, unknown.Kind) {
				continue
			}
			text, err := os.ReadFile(file + ".json")
			must(err)
			writeList(&bodies, unknown.TypeMeta, unknown.Raw)
			must(json.Compact(&lines, text))
			lines.WriteByte('\n')
		}
	}
	writeGzip("releases.pb.gz", bodies.Bytes())
	writeGzip("releases.ndjson.gz", lines.Bytes())
}

func (t table) hasKind(apiVersion, kind string) bool {
	for key, m := range t {
		if nameOf(key) == kind && slices.Contains(m.apiVersions, apiVersion) {
			return true
		}
	}
	return false
}
