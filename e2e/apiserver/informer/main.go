// Informer keeps an informer of client-go synced, and writes what it has.
//
//	informer [-host http://127.0.0.1:8002] [-resource pods.v1.] [-metadata]
//
// It writes "synced", and then for each line of stdin one line: a JSON object with the resource version of each object by
// namespace/name. KUBE_FEATURE_WatchListClient=false makes it list before it watches.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func main() {
	host := flag.String("host", "http://127.0.0.1:8002", "the address of the API server or mirror")
	resource := flag.String("resource", "pods.v1.", "resource, version and group, separated by dots")
	onlyMetadata := flag.Bool("metadata", false, "follow only the metadata")
	flag.Parse()
	config := &rest.Config{
		Host: *host, BearerToken: "admin", QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: len(*host) > 5 && (*host)[:5] == "https"},
		ContentConfig:   rest.ContentConfig{AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json", ContentType: "application/json"},
	}
	kind, _ := schema.ParseResourceArg(*resource)
	if kind == nil {
		panic("not a resource: " + *resource)
	}
	informer := followed(config, *kind, *onlyMetadata)
	go informer.Run(context.Background().Done())
	if !cache.WaitForCacheSync(context.Background().Done(), informer.HasSynced) {
		panic("not synced")
	}
	fmt.Println("synced")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		versions := map[string]string{}
		for _, object := range informer.GetStore().List() {
			object := object.(metav1.Object)
			versions[object.GetNamespace()+"/"+object.GetName()] = object.GetResourceVersion()
		}
		line, err := json.Marshal(versions)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}

func followed(config *rest.Config, kind schema.GroupVersionResource, onlyMetadata bool) cache.SharedIndexInformer {
	if onlyMetadata {
		client := metadata.NewForConfigOrDie(config)
		return metadatainformer.NewSharedInformerFactory(client, 0).ForResource(kind).Informer()
	}
	informer, err := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0).ForResource(kind)
	if err != nil {
		panic(err)
	}
	return informer.Informer()
}
