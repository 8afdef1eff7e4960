#!/usr/bin/env python3
"""Three replicas of a mirror before readers, with a real kube-apiserver: replicas.py PATH-OF-LISTWATCH [FIRST-PORT].

One replica loses its API server, one gets SIGTERM, and a CRD is deleted. Readers of Pods go through a balancer that looks
at /readyz: informers of client-go, and lists at version 0 that are retried as client-go retries them. Then the API server
ends, and new informers must sync from each replica and have all Pods. `e2e/apiserver/build.sh` builds the server.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

LISTWATCH = sys.argv[1]
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 21000
BIN = Path(__file__).resolve().parent / "apiserver/bin"
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {plural: widgets, singular: widget, kind: Widget}
  scope: Namespaced
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
"""
WIDGET = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a, namespace: default}\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default}\nspec: {containers: [{name: a, image: a}]}\n---\n"


class Forwarder:
    """Forwards connections to what `choose` returns: an address, or None to close them."""

    def __init__(self, port, choose, rewrites=False):
        self.port, self.choose, self.rewrites = port, choose, rewrites
        self.listener = socket.create_server(("127.0.0.1", port), backlog=256)
        self.open = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            reader, _ = self.listener.accept()
            threading.Thread(target=self.forward, args=(reader,), daemon=True).start()

    def forward(self, reader):
        port = self.choose()
        try:
            server = socket.create_connection(("127.0.0.1", port), timeout=2) if port else None
        except OSError:
            server = None
        if server is None:
            reader.close()
            return
        server.settimeout(None)
        self.open.append((reader, server))
        while True:
            for ready in select.select([reader, server], [], [])[0]:
                try:
                    chunk = ready.recv(1 << 16)
                except OSError:
                    chunk = b""
                if not chunk:
                    for io in (reader, server):
                        io.close()
                    return
                if ready is reader and self.rewrites:
                    # A mirror on loopback answers only requests for its own port.
                    chunk = chunk.replace(b":%d" % self.port, b":%d" % port)
                try:
                    (server if ready is reader else reader).sendall(chunk)
                except OSError:
                    pass

    def cut(self):
        for pair in self.open:
            for io in pair:
                try:
                    io.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.open.clear()


def get(port, path, timeout=5):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except (OSError, ValueError) as error:
        return 0, str(error).encode()


class Replica:
    def __init__(self, number, folder):
        self.number, self.folder = number, folder
        self.port, self.probes = PORT + 30 + number, PORT + 40 + number
        self.has_upstream = True
        self.upstream = Forwarder(PORT + 20 + number, lambda: PORT if self.has_upstream else None)
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [LISTWATCH, "mirror", "pods", "widgets.example.com", "--server", f"https://127.0.0.1:{self.upstream.port}",
             "--certificate-authority", f"{self.folder}/ca.crt", "--token", "admin", "--dir", f"{self.folder}/caches{self.number}",
             "--listen", f"127.0.0.1:{self.port}", "--probe-listen", f"127.0.0.1:{self.probes}", "--shutdown-delay", "3s"],
            stderr=open(f"{self.folder}/log{self.number}", "a"), env={**os.environ, "KUBECONFIG": "/dev/null"})

    def is_ready(self):
        return get(self.probes, "/readyz", 1)[0] == 200


class Informer:
    """An informer of client-go."""

    def __init__(self, port, watch_list):
        env = {**os.environ, "KUBE_FEATURE_WatchListClient": "true" if watch_list else "false"}
        self.process = subprocess.Popen([BIN / "informer", "-host", f"http://127.0.0.1:{port}"], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.synced = threading.Event()
        threading.Thread(target=lambda: (self.process.stdout.readline(), self.synced.set()), daemon=True).start()

    def view(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def stop(self):
        self.process.kill()


class Lists(threading.Thread):
    """Lists Pods at version 0 again and again, with client-go's retries: up to 10 after a Retry-After or a closed
    connection."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.count, self.retries, self.failures = port, 0, 0, []

    def run(self):
        while True:
            for attempt in range(11):
                code, body = get(self.port, "/api/v1/pods?resourceVersion=0")
                if code == 200:
                    break
                self.retries += 1
                if code not in (0, 429, 503):
                    break
                time.sleep(0.1 if code == 0 else 1)
            self.count += 1
            if code != 200:
                self.failures.append((code, body[:200]))
            time.sleep(0.02)


def wait(what, condition, seconds=60):
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > seconds:
            sys.exit(f"error: {what}: not after {seconds} s")
        time.sleep(0.1)
    print(f"{what}: after {time.monotonic() - started:.1f} s", flush=True)


def main():
    folder = tempfile.mkdtemp(prefix="replicas")
    server = subprocess.Popen([BIN / "server", "-dir", folder, "-port", str(PORT), "-etcd-port", str(PORT + 10)],
                              stdout=subprocess.PIPE, stderr=open(f"{folder}/server.log", "w"), text=True)
    processes = [server]
    try:
        assert server.stdout.readline().startswith("ready"), "the server did not start"

        def kubectl(*args, text=None):
            return subprocess.run([BIN / "kubectl", "--kubeconfig", f"{folder}/kubeconfig", *args], input=text, check=True,
                                  capture_output=True, text=True).stdout

        kubectl("apply", "-f", "-", text=CRD)
        kubectl("wait", "--for=condition=Established", "crd/widgets.example.com")
        kubectl("apply", "-f", "-", text=WIDGET)
        wait("the service account exists", lambda: subprocess.run(
            [BIN / "kubectl", "--kubeconfig", f"{folder}/kubeconfig", "apply", "-f", "-"], input="".join(POD % f"p{n}" for n in range(50)),
            capture_output=True, text=True).returncode == 0)
        replicas = [Replica(n, folder) for n in (1, 2, 3)]
        processes += [replica.process for replica in replicas]
        wait("three replicas are ready", lambda: all(replica.is_ready() for replica in replicas))
        turn, ready = [0], [True] * 3

        def probe():
            while True:
                ready[:] = [replica.is_ready() for replica in replicas]
                time.sleep(0.3)

        threading.Thread(target=probe, daemon=True).start()

        def choose():
            for _ in replicas:
                turn[0] += 1
                if ready[turn[0] % 3]:
                    return replicas[turn[0] % 3].port
            return None

        balancer = Forwarder(PORT + 50, choose, rewrites=True)
        informers = [Informer(balancer.port, watch_list) for watch_list in (True, False)]
        lists = Lists(balancer.port)
        lists.start()
        wait("the informers are synced", lambda: all(informer.synced.is_set() for informer in informers))

        def pods():
            items = json.loads(kubectl("get", "pods", "-A", "-o", "json"))["items"]
            return {f"{item['metadata']['namespace']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items}

        def agree():
            return all(informer.view() == pods() for informer in informers)

        wait("the informers have all Pods", agree)

        replicas[0].has_upstream = False
        replicas[0].upstream.cut()
        time.sleep(5)
        assert replicas[0].is_ready(), "a replica without an API server stays ready"
        assert b"upstream connection" in get(replicas[0].probes, "/readyz?verbose")[1], get(replicas[0].probes, "/readyz?verbose")
        print(f"one replica has lost its API server: {lists.count} lists, {lists.retries} retries, {lists.failures}")
        replicas[0].has_upstream = True
        wait("it is up to date again", lambda: b"upstream connection" not in get(replicas[0].probes, "/readyz?verbose")[1])

        kubectl("delete", "crd", "widgets.example.com")
        widgets = "/apis/example.com/v1/namespaces/default/widgets?resourceVersion=0"
        wait("reads of the deleted resource get 404", lambda: all(get(replica.port, widgets)[0] == 404 for replica in replicas))
        assert all(replica.is_ready() for replica in replicas), "the replicas stay ready"
        codes = [get(replica.probes, "/readyz/widgets.example.com")[0] for replica in replicas]
        assert codes == [503] * 3, codes

        started = time.monotonic()
        replicas[1].process.send_signal(signal.SIGTERM)
        wait("a replica that gets SIGTERM is not ready", lambda: not replicas[1].is_ready(), 3)
        assert get(replicas[1].port, "/api/v1/pods?resourceVersion=0")[0] == 200, "it still answers"
        wait("it ends", lambda: replicas[1].process.poll() is not None)
        print(f"its exit code is {replicas[1].process.returncode}, {time.monotonic() - started:.1f} s after SIGTERM")
        replicas[1].start()
        processes.append(replicas[1].process)
        wait("it starts without the CRD", replicas[1].is_ready)

        kubectl("apply", "-f", "-", text=CRD)
        kubectl("wait", "--for=condition=Established", "crd/widgets.example.com")
        wait("the resource that is back is mirrored", lambda: all(
            get(replica.probes, "/readyz/widgets.example.com")[0] == 200 for replica in replicas), 120)
        kubectl("annotate", "pod", "-n", "default", "p1", "at=1")
        wait("the informers have all Pods", agree)
        print(f"{lists.count} lists through the balancer, {lists.retries} retries, failures: {lists.failures}", flush=True)
        assert not lists.failures

        expected = pods()
        server.terminate()
        server.wait()
        time.sleep(2)
        assert all(replica.is_ready() for replica in replicas), "the replicas stay ready without an API server"
        for replica in replicas:
            for watch_list in (True, False):
                informer = Informer(replica.port, watch_list)
                wait(f"a new informer syncs from replica {replica.number}, WatchList {watch_list}", informer.synced.is_set)
                assert informer.view() == expected
                informer.stop()
        assert all(informer.view() == expected for informer in informers), "the informers keep their objects"
        for informer in informers:
            informer.stop()
        print("ok")
    finally:
        for process in processes:
            process.kill()


main()
