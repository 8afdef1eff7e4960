// Lists Pods with client-go in one of several ways. The runner in .. measures this process; ../src/process.rs describes their
// messages.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log"
	"math/rand/v2"
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

// pageSize is the default of client-go's pager.
const pageSize = 500

// seen is the result that the runner checks.
type seen struct {
	Items     uint64 `json:"items"`
	Hash      uint64 `json:"hash"`
	FirstItem int64  `json:"first_item"`
	start     time.Time
	once      sync.Once
}

// begin waits for the runner's signal. The client exists before it, the connection does not.
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
	if len(os.Args) < 3 {
		log.Fatal("usage: clientgo WAY URL, or clientgo follow URL [DIRECTORY]")
	}
	if os.Args[1] == "follow" {
		log.Fatal(follow(os.Args[2], strings.Join(os.Args[3:], "")))
	}
	if strings.HasPrefix(os.Args[1], "custom-") {
		if len(os.Args) != 4 {
			log.Fatal("usage: clientgo custom-WAY KIND URL")
		}
		run := runCustom
		if strings.HasPrefix(os.Args[1], "custom-follow-") {
			run = followCustom
		}
		if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
			log.Fatal(err)
		}
		return
	}
	way, isJSON := strings.CutSuffix(os.Args[1], "-json")
	list, ok := map[string]func(*rest.Config, *seen) (any, error){
		"list":     listAll,
		"paged":    listPages,
		"metadata": listMetadata,
		"informer": runInformer,
		"informer-slim": func(config *rest.Config, seen *seen) (any, error) {
			return syncInformer(config, seen, slim)
		},
	}[way]
	if !ok {
		log.Fatalf("unknown way %q", way)
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
	if err := answer(seen, kept, func() (*storeTimes, error) { return useStore(kept, seen) }); err != nil {
		log.Fatal(err)
	}
}

// answer sends what was read, comes to rest and sends the times of the store, while it keeps the result of the list.
func answer(seen *seen, kept any, use func() (*storeTimes, error)) error {
	tell(seen)
	wait()
	// Held memory must not depend on the time of the last collection.
	debug.FreeOSMemory()
	tell("idle")
	wait()
	times, err := use()
	if err != nil {
		return err
	}
	tell(times)
	wait()
	runtime.KeepAlive(kept)
	return nil
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

// listPages drops each page after reading its Pods.
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

// runInformer gets the Pods by a watch, or by a list if KUBE_FEATURE_WatchListClient is false.
func runInformer(config *rest.Config, seen *seen) (any, error) {
	return syncInformer(config, seen, nil)
}

// slim keeps the few fields of a Pod that a program reads.
func slim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp,
			Labels:            pod.Labels,
			OwnerReferences:   pod.OwnerReferences,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}, nil
}

func syncInformer(config *rest.Config, seen *seen, transform cache.TransformFunc) (any, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	seen.begin()
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	if transform != nil {
		if err := informer.SetTransform(transform); err != nil {
			return nil, err
		}
	}
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
			return nil, errors.New("the store has an object that is not a Pod")
		}
		seen.item(pod)
	}
	return informer, nil
}

// storeTimes has the times of calls to a full store, in seconds per call: see StoreTimes in ../src/lib.rs.
type storeTimes struct {
	LookUp float64 `json:"look_up"`
	// Equal to LookUp, because the store keeps Pods decoded.
	LookUpDecoded float64 `json:"look_up_decoded"`
	LookUpSix     float64 `json:"look_up_six"`
	Iterate       float64 `json:"iterate"`
	AddIndex      float64 `json:"add_index"`
	LookUpNode    float64 `json:"look_up_node"`
}

// The numbers of look-ups, as in ../src/client.rs.
const keyLookUps, nodeLookUps = 200_000, 10_000

// useStore measures the calls of a store. It returns nil if kept is not a store.
func useStore(kept any, listed *seen) (*storeTimes, error) {
	informer, ok := kept.(cache.SharedIndexInformer)
	if !ok {
		return nil, nil
	}
	indexer, times := informer.GetIndexer(), &storeTimes{}
	start := time.Now()
	for _, pod := range indexer.List() {
		touch(pod)
	}
	times.Iterate = per(int(listed.Items), start)

	start = time.Now()
	nodeOf := func(pod any) ([]string, error) { return []string{pod.(*corev1.Pod).Spec.NodeName}, nil }
	if err := informer.AddIndexers(cache.Indexers{"node": nodeOf}); err != nil {
		return nil, err
	}
	times.AddIndex = per(int(listed.Items), start)

	var err error
	times.LookUp, err = lookUp(keyLookUps, indexer.ListKeys(), func(key string) error {
		pod, exists, err := indexer.GetByKey(key)
		if err != nil || !exists {
			return fmt.Errorf("the store does not find its key %s: %v", key, err)
		}
		touch(pod)
		return nil
	})
	if err != nil {
		return nil, err
	}
	times.LookUpDecoded = times.LookUp
	times.LookUpSix, err = lookUp(keyLookUps, indexer.ListKeys(), func(key string) error {
		pod, exists, err := indexer.GetByKey(key)
		if err != nil || !exists {
			return fmt.Errorf("the store does not find its key %s: %v", key, err)
		}
		readSix(pod.(*corev1.Pod))
		return nil
	})
	if err != nil {
		return nil, err
	}

	indexed := &seen{}
	nodes := indexer.ListIndexFuncValues("node")
	for _, node := range nodes {
		pods, err := indexer.ByIndex("node", node)
		if err != nil {
			return nil, err
		}
		for _, pod := range pods {
			indexed.item(pod.(*corev1.Pod))
		}
	}
	if indexed.Items != listed.Items || indexed.Hash != listed.Hash {
		return nil, errors.New("the Pods in the index differ from the Pods in the store")
	}
	times.LookUpNode, err = lookUp(nodeLookUps, nodes, func(node string) error {
		pods, err := indexer.ByIndex("node", node)
		for _, pod := range pods {
			touch(pod)
		}
		return err
	})
	return times, err
}

// lookUp returns the mean time of looking up random keys. It clones the keys before it measures.
func lookUp(times int, all []string, get func(string) error) (float64, error) {
	random := rand.New(rand.NewPCG(1, 1))
	keys := make([]string, times)
	for i := range keys {
		keys[i] = strings.Clone(all[random.IntN(len(all))])
	}
	start := time.Now()
	for _, key := range keys {
		if err := get(key); err != nil {
			return 0, err
		}
	}
	return per(times, start), nil
}

// per returns the seconds since the start, divided by times.
func per(times int, start time.Time) float64 {
	return time.Since(start).Seconds() / float64(times)
}

// touched keeps the compiler from removing reads.
var touched uint64

// touch reads one byte each of a Pod's namespace, name and version.
func touch(object any) {
	pod := object.(*corev1.Pod)
	for _, text := range [...]string{pod.Namespace, pod.Name, pod.ResourceVersion} {
		touched += last(text)
	}
}

// readSix reads one byte each of a Pod's name, namespace, label, node, phase and images.
func readSix(pod *corev1.Pod) {
	label := pod.Labels["app.kubernetes.io/name"]
	for _, text := range [...]string{pod.Name, pod.Namespace, label, pod.Spec.NodeName, string(pod.Status.Phase)} {
		touched += last(text)
	}
	for i := range pod.Spec.Containers {
		touched += last(pod.Spec.Containers[i].Image)
	}
}

func last(text string) uint64 {
	if text == "" {
		return 0
	}
	return uint64(text[len(text)-1])
}

func tell(message any) {
	line, err := json.Marshal(message)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

// wait blocks until the runner sends a line. It ends this process when the runner is gone.
func wait() {
	if _, err := parent.ReadString('\n'); err != nil {
		os.Exit(0)
	}
}
