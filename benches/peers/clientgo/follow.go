package main

import (
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// changedAt and longest have the same values as in ../src/follower.rs.
const (
	changedAt = "example.com/changed-at"
	longest   = 3_600_000_000
)

// state corresponds to State in ../src/lib.rs.
type state struct {
	Items   uint64  `json:"items"`
	Hash    uint64  `json:"hash"`
	Version string  `json:"version"`
	Changes int64   `json:"changes"`
	Latency latency `json:"latency"`
}

type latency struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// handler records the latency of changes.
type handler struct {
	// The start of this process. Earlier changes do not count.
	began   int64
	lock    sync.Mutex
	latency *hdrhistogram.Histogram
}

// follow keeps Pods in an informer and answers as ../src/follower.rs does. A real API server has a directory with its CA.
func follow(url, directory string) error {
	config := &rest.Config{Host: url, QPS: -1}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if directory != "" {
		config.BearerToken = "admin"
		config.CAFile = filepath.Join(directory, "ca.crt")
	}
	h := newHandler()
	tell("ready")
	wait()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	return followInformer(informer, h)
}

func newHandler() *handler {
	return &handler{began: time.Now().UnixNano(), latency: hdrhistogram.New(1, longest, 3)}
}

// followInformer runs an informer with the handler, and answers the runner.
func followInformer(informer cache.SharedIndexInformer, h *handler) error {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { h.record(object.(metav1.Object)) },
		UpdateFunc: func(old, object any) {
			if old.(metav1.Object).GetResourceVersion() != object.(metav1.Object).GetResourceVersion() {
				h.record(object.(metav1.Object))
			}
		},
	})
	if err != nil {
		return err
	}
	go informer.Run(make(chan struct{}))
	<-registration.HasSyncedChecker().Done()
	tell("synced")
	for {
		wait()
		found := &seen{}
		for _, object := range informer.GetStore().List() {
			found.item(object.(metav1.Object))
		}
		state := h.state()
		state.Items, state.Hash, state.Version = found.Items, found.Hash, informer.LastSyncResourceVersion()
		tell(state)
	}
}

// record records the latency of an object's new state.
func (h *handler) record(object metav1.Object) {
	at, err := strconv.ParseInt(object.GetAnnotations()[changedAt], 10, 64)
	if err != nil || at < h.began {
		return
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	// A latency over the longest is dropped: no run takes an hour.
	_ = h.latency.RecordValue((time.Now().UnixNano() - at) / 1000)
}

func (h *handler) state() state {
	h.lock.Lock()
	defer h.lock.Unlock()
	l := h.latency
	return state{Changes: l.TotalCount(), Latency: latency{l.ValueAtQuantile(50), l.ValueAtQuantile(99), l.Max()}}
}
