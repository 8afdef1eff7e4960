// Lists Pods with client-go in one of the ways, measured by the runner beside: see ../src/process.rs for what they say to
// each other.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var parent = bufio.NewReader(os.Stdin)

// pageSize is that of client-go's own pager.
const pageSize = 500

// seen is what the runner compares.
type seen struct {
	Items     uint64 `json:"items"`
	Hash      uint64 `json:"hash"`
	FirstItem int64  `json:"first_item"`
	start     time.Time
	once      sync.Once
}

// begin waits until the runner says so: the client is there by then, its connection is not.
func (s *seen) begin() {
	tell("ready")
	wait()
	s.start = time.Now()
}

func (s *seen) first() {
	s.once.Do(func() { s.FirstItem = time.Since(s.start).Nanoseconds() })
}

func (s *seen) item(object metav1.Object) {
	s.first()
	hash := fnv.New64a()
	for _, part := range []string{object.GetNamespace(), "/", object.GetName(), "/", object.GetResourceVersion()} {
		hash.Write([]byte(part))
	}
	s.Items++
	s.Hash += hash.Sum64()
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: clientgo WAY URL")
	}
	way, isJSON := strings.CutSuffix(os.Args[1], "-json")
	list, ok := map[string]func(*rest.Config, *seen) (any, error){
		"list":     listAll,
		"paged":    listPages,
		"metadata": listMetadata,
		"informer": runInformer,
	}[way]
	if !ok {
		log.Fatalf("no way is called %s", way)
	}
	config := &rest.Config{Host: os.Args[2], QPS: -1}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if isJSON {
		config.ContentType = "application/json"
		config.AcceptContentTypes = "application/json"
	}

	seen := &seen{}
	kept, err := list(config, seen)
	if err != nil {
		log.Fatal(err)
	}
	tell(seen)
	wait()
	// What is held is not to depend on when the last collection happened to be.
	debug.FreeOSMemory()
	tell("idle")
	wait()
	runtime.KeepAlive(kept)
}

func listAll(config *rest.Config, seen *seen) (any, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	seen.begin()
	pods, err := client.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		seen.item(&pods.Items[i])
	}
	return pods, nil
}

// listPages drops each page when it has seen its Pods.
func listPages(config *rest.Config, seen *seen) (any, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	seen.begin()
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := client.CoreV1().Pods("").List(context.Background(), options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			seen.item(&page.Items[i])
		}
		if page.Continue == "" {
			return nil, nil
		}
		options.Continue = page.Continue
	}
}

func listMetadata(config *rest.Config, seen *seen) (any, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	seen.begin()
	pods, err := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		seen.item(&pods.Items[i])
	}
	return pods, nil
}

// runInformer lists by a watch, or by a list where KUBE_FEATURE_WatchListClient is false.
func runInformer(config *rest.Config, seen *seen) (any, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	seen.begin()
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	handler := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen.first() }}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, err
	}
	go informer.Run(make(chan struct{}))
	<-registration.HasSyncedChecker().Done()
	for _, object := range informer.GetStore().List() {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return nil, errors.New("not a Pod in the store")
		}
		seen.item(pod)
	}
	return informer, nil
}

func tell(message any) {
	line, err := json.Marshal(message)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

// wait also ends this process when the parent is gone.
func wait() {
	if _, err := parent.ReadString('\n'); err != nil {
		os.Exit(0)
	}
}
