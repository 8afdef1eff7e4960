// Split sends reads to a mirror, and all other requests to the API server: so programs that also write read through a
// mirror.
//
//	split [-listen 127.0.0.1:8443] [-mirror https://127.0.0.1:8002] [-server https://127.0.0.1:16443] -cert FILE -key FILE
//
// It writes how many reads the mirror answered from memory when it gets SIGINT or SIGTERM. -direct sends all requests to
// the server.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	listen = flag.String("listen", "127.0.0.1:8443", "")
	mirror = flag.String("mirror", "https://127.0.0.1:8002", "")
	server = flag.String("server", "https://127.0.0.1:16443", "")
	cert   = flag.String("cert", "", "")
	key    = flag.String("key", "", "")
	direct = flag.Bool("direct", false, "")
)

var fromMemory, forwarded, others atomic.Int64

func proxy(address string) *httputil.ReverseProxy {
	target, err := url.Parse(address)
	if err != nil {
		log.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		ErrorLog:      log.New(discard{}, "", 0),
		Transport: &http.Transport{
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 100,
		},
		ModifyResponse: func(r *http.Response) error {
			switch {
			case r.Request.URL.Host != target.Host || address == *server:
			case r.Header.Get("Listwatch-Lag-Seconds") != "":
				fromMemory.Add(1)
			default:
				forwarded.Add(1)
			}
			return nil
		},
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// isRead leaves out the server's own checks and metrics, and what a mirror refuses because it has effects.
func isRead(r *http.Request) bool {
	path := r.URL.Path
	if r.Method != http.MethodGet || strings.HasPrefix(path, "/metrics") {
		return false
	}
	for _, own := range []string{"/healthz", "/livez", "/readyz", "/logs", "/debug"} {
		if strings.HasPrefix(path, own) {
			return false
		}
	}
	for _, effect := range []string{"/proxy", "/exec", "/attach", "/portforward"} {
		if strings.HasSuffix(path, effect) || strings.Contains(path, effect+"/") {
			return false
		}
	}
	return true
}

func main() {
	flag.Parse()
	toMirror, toServer := proxy(*mirror), proxy(*server)
	go func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
		<-signals
		fmt.Printf("reads: %d from memory, %d forwarded; %d requests to the server\n", fromMemory.Load(), forwarded.Load(), others.Load())
		os.Exit(0)
	}()
	log.Fatal(http.ListenAndServeTLS(*listen, *cert, *key, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !*direct && isRead(r) {
			toMirror.ServeHTTP(w, r)
			return
		}
		others.Add(1)
		toServer.ServeHTTP(w, r)
	})))
}
