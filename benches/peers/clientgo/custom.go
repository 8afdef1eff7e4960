package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// customKind is a kind of ../src/custom_types.rs.
type customKind struct {
	resource schema.GroupVersionResource
	// The Go types of an object and of a list.
	object, list runtime.Object
	kind         string
	// The indexed field of an object that is unstructured, and of one that is typed.
	path  []string
	field func(any) string
}

var customKinds = map[string]customKind{
	"certificate": {
		resource: schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"},
		object:   &certificate{}, list: &certificateList{}, kind: "Certificate",
		path:  []string{"spec", "secretName"},
		field: func(object any) string { return object.(*certificate).Spec.SecretName },
	},
	"revision": {
		resource: schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "revisions"},
		object:   &revision{}, list: &revisionList{}, kind: "Revision",
		path:  []string{"spec", "serviceAccountName"},
		field: func(object any) string { return object.(*revision).Spec.ServiceAccountName },
	},
	"application": {
		resource: schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"},
		object:   &application{}, list: &applicationList{}, kind: "Application",
		path:  []string{"spec", "project"},
		field: func(object any) string { return object.(*application).Spec.Project },
	},
}

// customInformer returns the informer of a way, custom-dynamic or custom-typed, and the function that reads the indexed field.
func customInformer(way, kind, url string) (cache.SharedIndexInformer, func(any) string, error) {
	custom, ok := customKinds[kind]
	if !ok {
		return nil, nil, fmt.Errorf("unknown kind %q", kind)
	}
	config := &rest.Config{Host: url, QPS: -1}
	if way == "custom-dynamic" {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(custom.resource).Informer()
		field := func(object any) string {
			text, _, _ := unstructured.NestedString(object.(*unstructured.Unstructured).Object, custom.path...)
			return text
		}
		return informer, field, nil
	}
	version, scheme := custom.resource.GroupVersion(), runtime.NewScheme()
	scheme.AddKnownTypeWithName(version.WithKind(custom.kind), custom.object)
	scheme.AddKnownTypeWithName(version.WithKind(custom.kind+"List"), custom.list)
	metav1.AddToGroupVersion(scheme, version)
	config.APIPath, config.GroupVersion = "/apis", &version
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	lists := cache.NewListWatchFromClient(client, custom.resource.Resource, "", fields.Everything())
	return cache.NewSharedIndexInformer(lists, custom.object, 0, cache.Indexers{}), custom.field, nil
}

// runCustom keeps custom resources in an informer, and measures the calls of its store.
func runCustom(way, kind, url string) error {
	informer, field, err := customInformer(way, kind, url)
	if err != nil {
		return err
	}
	found := &seen{}
	found.begin()
	handler := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { found.first() }}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return err
	}
	go informer.Run(make(chan struct{}))
	<-registration.HasSyncedChecker().Done()
	for _, object := range informer.GetStore().List() {
		found.item(object.(metav1.Object))
	}
	return answer(found, informer, func() (*storeTimes, error) { return useCustomStore(informer, found, field) })
}

func useCustomStore(informer cache.SharedIndexInformer, listed *seen, field func(any) string) (*storeTimes, error) {
	indexer, times := informer.GetIndexer(), &storeTimes{}
	start := time.Now()
	for _, object := range indexer.List() {
		touchMeta(object)
	}
	times.Iterate = per(int(listed.Items), start)

	start = time.Now()
	index := func(object any) ([]string, error) { return []string{field(object)}, nil }
	if err := informer.AddIndexers(cache.Indexers{"field": index}); err != nil {
		return nil, err
	}
	times.AddIndex = per(int(listed.Items), start)

	get := func(read func(any)) func(string) error {
		return func(key string) error {
			object, exists, err := indexer.GetByKey(key)
			if err != nil || !exists {
				return fmt.Errorf("the store does not find its key %s: %v", key, err)
			}
			read(object)
			return nil
		}
	}
	var err error
	if times.LookUp, err = lookUp(keyLookUps, indexer.ListKeys(), get(touchMeta)); err != nil {
		return nil, err
	}
	times.LookUpDecoded = times.LookUp
	few := func(object any) {
		touchMeta(object)
		touched += last(field(object))
	}
	if times.LookUpSix, err = lookUp(keyLookUps, indexer.ListKeys(), get(few)); err != nil {
		return nil, err
	}
	values, indexed := indexer.ListIndexFuncValues("field"), 0
	for _, value := range values {
		objects, err := indexer.ByIndex("field", value)
		if err != nil {
			return nil, err
		}
		indexed += len(objects)
	}
	if uint64(indexed) != listed.Items {
		return nil, errors.New("the objects in the index differ from the objects in the store")
	}
	times.LookUpNode, err = lookUp(nodeLookUps, values, func(value string) error {
		objects, err := indexer.ByIndex("field", value)
		for _, object := range objects {
			touchMeta(object)
		}
		return err
	})
	return times, err
}

// touchMeta reads one byte each of an object's namespace, name and version.
func touchMeta(object any) {
	meta := object.(metav1.Object)
	touched += last(meta.GetNamespace()) + last(meta.GetName()) + last(meta.GetResourceVersion())
}

// followCustom keeps custom resources in an informer and answers as ../src/follower.rs does.
func followCustom(way, kind, url string) error {
	h := newHandler()
	tell("ready")
	wait()
	informer, _, err := customInformer(strings.Replace(way, "custom-follow", "custom", 1), kind, url)
	if err != nil {
		return err
	}
	return followInformer(informer, h)
}
