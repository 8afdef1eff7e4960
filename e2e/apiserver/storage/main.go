// Storage is about what an API server keeps in etcd.
//
//	storage stubs NAMESPACE
//	storage snapshot http://127.0.0.1:23790 FILE
//
// Stubs prints Kubernetes' own test data of its storage (test/integration/etcd), one JSON object a line: an object of each
// resource in each version, with the key and the version in which the API server stores it. The definitions of the custom
// resources among them come first. Snapshot does what "etcdctl snapshot save" does.
package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/integration/etcd"
)

type line struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Key      string `json:"key"`
	// The version in which the object is stored, unless it is its own.
	Stored string          `json:"stored,omitempty"`
	Object json.RawMessage `json:"object"`
}

func main() {
	switch os.Args[1] {
	case "stubs":
		printStubs(os.Args[2])
	case "snapshot":
		config := clientv3.Config{Endpoints: os.Args[2:3]}
		_, err := snapshot.SaveWithVersion(context.Background(), zap.NewNop(), config, os.Args[3])
		check(err)
	}
}

func printStubs(namespace string) {
	out := json.NewEncoder(os.Stdout)
	for _, definition := range etcd.GetCustomResourceDefinitionData() {
		definition.TypeMeta = metav1.TypeMeta{Kind: "CustomResourceDefinition", APIVersion: "apiextensions.k8s.io/v1"}
		check(out.Encode(map[string]any{"definition": definition}))
	}
	var lines []line
	for resource, data := range etcd.GetEtcdStorageDataForNamespace(namespace) {
		line := line{resource.Group, resource.Version, resource.Resource, data.ExpectedEtcdPath, "", json.RawMessage(data.Stub)}
		if data.ExpectedGVK != nil {
			line.Stored = data.ExpectedGVK.GroupVersion().String()
		}
		lines = append(lines, line)
	}
	slices.SortFunc(lines, func(a, b line) int {
		return slices.Compare([]string{a.Key, a.Version}, []string{b.Key, b.Version})
	})
	for _, line := range lines {
		check(out.Encode(line))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
