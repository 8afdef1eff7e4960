#!/usr/bin/env python3
"""Lists a million Pods with `listwatch get` and `count`, in each form, and fails if one takes more than 64 MiB.

e2e/million.py target/release/listwatch [PODS] [FORM...]

A server in this process answers as kube-apiserver does: lists in JSON, their metadata, and Tables in pages. The Pods are
the recorded ones of fixtures/pods.json, each with a name of its own: 8 kB on average, so 8 GB in JSON. What the command
prints is counted and dropped. For --sort-by, its temporary file takes as much in $TMPDIR.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

MOST = 64 << 20
"""The most resident memory of a command, in bytes."""

COLUMNS = "custom-columns=NS:.metadata.namespace,NAME:.metadata.name,NODE:.spec.nodeName,PHASE:.status.phase"

# The arguments, and how many lines the command prints for this many Pods; None if nobody counts them.
FORMS = {
    "name": ("get pods -A -o name", lambda pods: pods),
    "keys": ("get pods -A -o keys", lambda pods: pods),
    "table": ("get pods -A", lambda pods: pods + 1),
    "wide": ("get pods -A -o wide --show-labels", lambda pods: pods + 1),
    "json": ("get pods -A -o json", None),
    "jsonl": ("get pods -A -o jsonl", lambda pods: pods),
    "yaml": ("get pods -A -o yaml", None),
    "jsonpath": ('get pods -A -o jsonpath={range.items[*]}{.metadata.name}{"\\n"}{end}', lambda pods: pods),
    "jsonpath-twice": (
        'get pods -A -o jsonpath={range.items[*]}{.metadata.name}{"\\n"}{end}{range.items[*]}{.kind}{"\\n"}{end}',
        lambda pods: 2 * pods,
    ),
    "custom-columns": (f"get pods -A -o {COLUMNS}", lambda pods: pods + 1),
    "sorted-table": ("get pods -A --sort-by .spec.nodeName", lambda pods: pods + 1),
    "sorted": (f"get pods -A -o {COLUMNS} --sort-by .spec.nodeName", lambda pods: pods + 1),
    "count": (
        "count pods -A --by .spec.nodeName --sum .spec.containers[*].resources.requests.memory --no-headers",
        None,
    ),
}

NUMBER = b"@NUMBER@"
TABLE_COLUMNS = [
    {"name": "Name", "type": "string", "format": "name", "priority": 0},
    {"name": "Ready", "type": "string", "priority": 0},
    {"name": "Status", "type": "string", "priority": 0},
    {"name": "Node", "type": "string", "priority": 1},
]


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


class Pods:
    """The Pods in each form, as pieces with a place for the number of the Pod."""

    def __init__(self, count):
        root = pathlib.Path(__file__).resolve().parent.parent
        recorded = json.loads((root / "fixtures/pods.json").read_bytes())["items"]
        for pod in recorded:
            pod["metadata"]["name"] = "pod-" + NUMBER.decode()
        self.count = count
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        self.whole = [compact(pod) for pod in recorded]
        self.metadata = [compact({**partial, "metadata": pod["metadata"]}) for pod in recorded]
        self.rows = [self.row(pod, {**partial, "metadata": pod["metadata"]}) for pod in recorded]
        self.rows_with_objects = [self.row(pod, pod) for pod in recorded]

    @staticmethod
    def row(pod, object):
        node = pod["spec"].get("nodeName", "<none>")
        return compact({"cells": [pod["metadata"]["name"], "1/1", pod["status"]["phase"], node], "object": object})

    def join(self, pieces, start, end):
        """Yields the pieces of these Pods, separated by commas, some hundred at a time."""
        for first in range(start, end, 200):
            numbers = range(first, min(first + 200, end))
            parts = (pieces[at % len(pieces)].replace(NUMBER, b"%07d" % at) for at in numbers)
            yield (b"" if first == start else b",") + b",".join(parts)


def handler(pods):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            url = urlparse(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            accept = self.headers.get("Accept", "")
            start = int(query.get("continue", 0))
            end = min(start + int(query.get("limit", pods.count)), pods.count)
            rest = {"continue": str(end), "remainingItemCount": pods.count - end} if end < pods.count else {}
            meta = compact({"resourceVersion": "7", **rest})
            if accept.split(",")[0].find("as=Table") > 0:
                pieces = pods.rows_with_objects if query.get("includeObject") == "Object" else pods.rows
                head = b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":%s,"columnDefinitions":%s,"rows":['
                head %= meta, compact(TABLE_COLUMNS)
            elif "PartialObjectMetadata" in accept:
                pieces = pods.metadata
                head = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":%s,"items":[' % meta
            else:
                pieces = pods.whole
                head = b'{"kind":"PodList","apiVersion":"v1","metadata":%s,"items":[' % meta
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.send(head)
            for chunk in pods.join(pieces, start, end):
                self.send(chunk)
            self.send(b"]}")
            self.send(b"")

        def send(self, chunk):
            """Sends a chunk, or with an empty one the end of the body."""
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))

    return Handler


class Watcher(threading.Thread):
    """Reads the peak of a process's resident memory until it ends. That of wait4 would include this process's own."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path, self.peak = pathlib.Path(f"/proc/{pid}/status"), 0
        self.start()

    def run(self):
        while True:
            try:
                found = re.search(r"VmHWM:\s+(\d+) kB", self.path.read_text())
            except OSError:
                return
            if not found:
                return
            self.peak = max(self.peak, int(found[1]) << 10)
            time.sleep(0.01)


def run(program, form, pods, url):
    """Runs a form, and returns what is wrong with it."""
    args, expected = FORMS[form]
    started = time.monotonic()
    child = subprocess.Popen([program, *args.split(" "), "--server", url], stdout=subprocess.PIPE)
    watcher = Watcher(child.pid)
    lines = size = 0
    while chunk := child.stdout.read(1 << 20):
        lines += chunk.count(b"\n")
        size += len(chunk)
    _, status, usage = os.wait4(child.pid, 0)
    watcher.join()
    code, peak = os.waitstatus_to_exitcode(status), watcher.peak
    cpu, wall = usage.ru_utime + usage.ru_stime, time.monotonic() - started
    print(f"{form:15} {peak / (1 << 20):7.1f} MiB {cpu:8.1f} s CPU {wall:8.1f} s {lines:10} lines {size:13} bytes", flush=True)
    if code != 0:
        return f"{form}: exit code {code}"
    if expected and lines != expected(pods):
        return f"{form}: {lines} lines in place of {expected(pods)}"
    return f"{form}: {peak} bytes are over {MOST}" if peak > MOST else None


def main():
    program, *more = sys.argv[1:]
    pods = int(more[0]) if more else 1_000_000
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(Pods(pods)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    faults = [run(program, form, pods, url) for form in more[1:] or FORMS]
    faults = [fault for fault in faults if fault]
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
