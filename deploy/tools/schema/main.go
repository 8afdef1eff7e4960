// Schema reads manifests from standard input, and decodes each strictly as its Go type: an unknown, repeated or mistyped
// field is an error. It needs no server, and knows the kinds of Kubernetes, the Prometheus operator and cert-manager.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, monitoring.AddToScheme, certmanager.AddToScheme} {
		if err := add(kinds); err != nil {
			fail(err)
		}
	}
	decoder := serializer.NewCodecFactory(kinds, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	count := 0
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fail(err)
		}
		var fields map[string]any
		if err := yaml.Unmarshal(document, &fields); err != nil {
			fail(err)
		}
		if len(fields) == 0 {
			continue
		}
		if _, _, err := decoder.Decode(document, (*schema.GroupVersionKind)(nil), nil); err != nil {
			fail(fmt.Errorf("%v %v: %w", fields["kind"], fields["metadata"], err))
		}
		count++
	}
	if count == 0 {
		fail(errors.New("no manifests on standard input"))
	}
	fmt.Println(count, "manifests have known fields only")
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
