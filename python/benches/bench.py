"""Measures listwatch beside json.loads, orjson, ijson and kubernetes-client/python: user CPU and peak memory.

    cargo run --release -p listwatch-corpus -- 14000 >pods.pb      # diverse Pods
    cargo run --release -p listwatch-corpus -- 14000 certificate >certificates.json
    python benches/bench.py diverse=pods.pb certificates=certificates.json

Without arguments it measures uniform Pods, a recorded list that is repeated, and `uniform=` does so beside others. Each
row is a process of its own, whose server is another process, on loopback. The times of listwatch include receiving and
decoding the body on other threads; those of the others begin with a file, except the official client's. The rows take
turns, and a figure is the median of `RUNS` runs; the rows of the official client run once.
"""

from __future__ import annotations

import gc
import json
import os
import re
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).parents[2] / "fixtures" / "pods.pb"
PROTOBUF = "application/vnd.kubernetes.protobuf"
PODS = int(os.environ.get("PODS", "14000"))
RUNS = int(os.environ.get("RUNS", "3"))

Figures = dict[str, float]


# The server, in a process of its own.


def serve(folder: str) -> None:
    bodies = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    plural, kind, group = json.loads(bodies["resource"])
    verbs = ["list", "watch", "get"]
    found = {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": verbs}
    prefix = f"/apis/{group}" if "/" in group else "/api/v1"
    version = {"groupVersion": group, "version": group.rpartition("/")[2]}
    groups = [{"name": group.partition("/")[0], "versions": [version], "preferredVersion": version}] if "/" in group else []
    documents: dict[str, Any] = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
        "/apis": {"kind": "APIGroupList", "groups": groups},
    }
    documents[prefix] = {"kind": "APIResourceList", "groupVersion": group, "resources": [found]}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path in documents:
                return self.reply(json.dumps(documents[path]).encode(), "application/json")
            if "watch=" in query:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Connection", "close")
                self.end_headers()
                if "sendInitialEvents" in query:
                    # The client then lists the collection.
                    self.close_connection = True
                    return
                self.wfile.flush()
                time.sleep(3600)
                return
            if "body.pb" in bodies and PROTOBUF in self.headers.get("Accept", ""):
                return self.reply(bodies["body.pb"], PROTOBUF)
            self.reply(bodies["body.json"], "application/json")

        def reply(self, body: bytes, content_type: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


# The rows. Each returns what must stay alive until the memory is measured.


def body(folder: str) -> bytes:
    return Path(folder, "body.json").read_bytes()


def listed(url: str, **options: Any) -> Any:
    import listwatch

    plural = os.environ["BENCH_RESOURCE"]
    return listwatch.Client(server=url, token="t").list(plural, **options)


def names(folder: str, url: str) -> None:
    for found in listed(url):
        found.name


def three_fields(folder: str, url: str) -> None:
    fields = ["metadata.name", "spec.nodeName", "status.phase"]
    if os.environ["BENCH_RESOURCE"] != "pods":
        fields = ["metadata.name", "spec.secretName", "status.notAfter"]
    for _ in listed(url, fields=fields):
        pass


def to_dict(folder: str, url: str) -> None:
    for found in listed(url):
        found.to_dict()


def json_items(folder: str, url: str) -> None:
    with open(Path(folder, "items"), "rb") as lines:
        for line in lines:
            json.loads(line)


def json_body(folder: str, url: str) -> None:
    json.loads(body(folder))


def json_body_without_gc(folder: str, url: str) -> None:
    gc.disable()
    json.loads(body(folder))


def orjson_items(folder: str, url: str) -> None:
    import orjson

    with open(Path(folder, "items"), "rb") as lines:
        for line in lines:
            orjson.loads(line)


def ijson_items(folder: str, url: str) -> None:
    import ijson

    with open(Path(folder, "body.json"), "rb") as file:
        for _ in ijson.items(file, "items.item"):
            pass


def typed_client(folder: str, url: str) -> Any:
    import kubernetes

    configuration = kubernetes.client.Configuration()
    configuration.host = url
    return lister(folder, kubernetes.client.ApiClient(configuration))()


def lister(folder: str, api: Any) -> Any:
    """Returns the function of the official client that lists: typed Pods, or custom resources as dicts."""
    from functools import partial

    from kubernetes import client

    plural, _, group = json.loads(Path(folder, "resource").read_text())
    if plural == "pods":
        return client.CoreV1Api(api).list_pod_for_all_namespaces
    return partial(client.CustomObjectsApi(api).list_cluster_custom_object, *group.split("/"), plural)


def shared_informer(folder: str, url: str) -> Any:
    from kubernetes import client
    from kubernetes.informer import SharedInformer

    configuration = client.Configuration()
    configuration.host = url
    informer = SharedInformer(lister(folder, client.ApiClient(configuration)))
    informer.start()
    count = int(Path(folder, "count").read_text())
    while len(informer.cache.list()) < count:
        time.sleep(0.2)
    return informer


def cache_encoded(folder: str, url: str, compressed: bool = False) -> Any:
    import listwatch

    found = listwatch.Client(server=url, token="t").cache(os.environ["BENCH_RESOURCE"], compressed=compressed)
    found.wait(timeout=300)
    gc.collect()
    figures = {"cpu": cpu(), "peak": memory("VmHWM"), "held": memory("VmRSS"), "store": found.memory()["total"] / 1e6}
    keys = [(item.namespace, item.name) for item in found.list()]
    field = "nodeName" if os.environ["BENCH_RESOURCE"] == "pods" else "secretName"
    # The same number of reads, of all objects and of few, whose bytes the caches of the CPU have.
    for name, some in (("all", keys), ("few", keys[:200] * (len(keys) // 200))):
        figures[f"look-up, {name}"] = timed(some, lambda key: found.get(*key))
        figures[f"field, {name}"] = timed(some, lambda key: found.get(*key)["spec"].get(field))
    report(figures)


def timed(keys: list[tuple[str, str]], read: Any) -> float:
    """Returns the microseconds of one read, the median of five rounds."""
    rounds = []
    for _ in range(5):
        began = time.thread_time()
        for key in keys:
            read(key)
        rounds.append((time.thread_time() - began) / len(keys) * 1e6)
    return statistics.median(rounds)


def cache_compressed(folder: str, url: str) -> Any:
    return cache_encoded(folder, url, True)


def nothing(folder: str, url: str) -> None:
    import listwatch

    listwatch.Client(server=url, token="t")


ROWS = {
    "listwatch: import and client": nothing,
    "listwatch: names": names,
    "listwatch: three fields": three_fields,
    "listwatch: to_dict() of everything": to_dict,
    "json.loads, item by item": json_items,
    "json.loads, the body": json_body,
    "json.loads, the body, gc.disable()": json_body_without_gc,
    "orjson.loads, item by item": orjson_items,
    "ijson": ijson_items,
    "kubernetes-client/python": typed_client,
    "kubernetes-client/python, SharedInformer": shared_informer,
    "listwatch: cache": cache_encoded,
    "listwatch: cache, compressed": cache_compressed,
}


def memory(name: str) -> float:
    """Returns a figure of this process in MB. `ru_maxrss` would include the parent's memory before exec."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024 / 1e6


def cpu() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def report(figures: Figures) -> None:
    print(json.dumps(figures), flush=True)
    os._exit(0)


def measure(row: str, folder: str, url: str) -> None:
    before = cpu()
    kept = ROWS[row](folder, url)
    spent = cpu() - before
    gc.collect()
    report({"cpu": spent, "peak": memory("VmHWM"), "held": memory("VmRSS")})
    del kept


def prepare(name: str, source: Path | None, folder: Path) -> str:
    """Writes the bodies that the server sends, and the items in JSON; returns the plural."""
    import listwatch

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from fake import FakeServer

    server = FakeServer()
    data = (source or FIXTURE).read_bytes()
    if data.startswith(b"{"):
        first = json.loads(data)
        kind, group = first["items"][0]["kind"], first["items"][0]["apiVersion"]
        plural = kind.lower() + "s"
        objects = [json.dumps(item, separators=(",", ":")).encode() for item in first["items"]]
    else:
        plural, kind, group = "pods", "Pod", "v1"
        server.serve("/api/v1/pods", data)
        client = listwatch.Client(server=server.url, token="t")
        # Those that `numbered` can give a name of their own.
        found = [pod for pod in client.list("pods") if source or re.search("-[0-9]{5}$", pod.name)]
        objects = [pod.to_json().encode() for pod in found]
        raw = [pod.__reduce__()[1][0] for pod in found]
        if source is None:
            repeat = -(-PODS // len(objects))
            objects, raw = numbered(objects * repeat), numbered(raw * repeat)
        (folder / "body.pb").write_bytes(protobuf_list(raw))
    (folder / "items").write_bytes(b"".join(item + b"\n" for item in objects))
    listed = b'{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"9"},"items":[' % (kind.encode(), group.encode())
    (folder / "body.json").write_bytes(listed + b",".join(objects) + b"]}")
    (folder / "resource").write_text(json.dumps([plural, kind, group]))
    (folder / "count").write_text(str(len(objects)))
    server.close()
    size = (folder / "body.json").stat().st_size / 1e6
    print(f"\n{name}: {len(objects)} {plural}, {size:.0f} MB of JSON", flush=True)
    return plural


def numbered(objects: list[bytes]) -> list[bytes]:
    """Gives the objects that are repeated names of their own, of the same length."""
    return [re.sub(rb"-[0-9]{5}\b", b"-%05d" % at, item, count=1) for at, item in enumerate(objects[:PODS])]


def protobuf_list(objects: list[bytes]) -> bytes:
    def field(number: int, value: bytes) -> bytes:
        length, size = len(value), bytearray()
        while length > 0x7F:
            size.append(length & 0x7F | 0x80)
            length >>= 7
        return bytes([number << 3 | 2]) + bytes([*size, length]) + value

    items = b"".join(field(2, item) for item in objects)
    kind = field(1, field(1, b"v1") + field(2, b"PodList"))
    return b"k8s\0" + kind + field(2, field(1, field(2, b"9")) + items)


def run(row: str, folder: str, url: str, plural: str) -> Figures | None:
    command = [sys.executable, __file__, "--row", row, folder, url]
    environment = {**os.environ, "BENCH_RESOURCE": plural}
    try:
        done = subprocess.run(command, env=environment, timeout=600, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return None
    figures: Figures | None = json.loads(done.stdout) if done.returncode == 0 else None
    return figures


def table(found: dict[str, list[Figures]]) -> None:
    print("| | user CPU | peak | held at the end |\n|---|---:|---:|---:|")
    for row, runs in found.items():
        if not runs:
            print(f"| {row} | no result | | |")
            continue
        middle = {name: statistics.median(figures[name] for figures in runs) for name in runs[0]}
        print(f"| {row} | {middle['cpu']:.2f} s | {middle['peak']:.0f} MB | {middle['held']:.0f} MB |")
        more = [f"{name} {value:.2f} µs" for name, value in middle.items() if "," in name]
        if more:
            print(f"<!-- {row}: store {middle['store']:.1f} MB, {', '.join(more)} -->")
    baseline = "json.loads, item by item"
    for row in found:
        if row.startswith("listwatch") and "cache" not in row and found.get(baseline) and found[row]:
            ratios = [own["cpu"] / other["cpu"] for own, other in zip(found[row], found[baseline])]
            print(f"<!-- {row} / {baseline}: {', '.join(f'{ratio:.2f}' for ratio in ratios)} -->")


def machine() -> str:
    cpus = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    from importlib.metadata import version

    packages = ", ".join(f"{name} {version(name)}" for name in ("listwatch", "kubernetes", "orjson", "ijson"))
    load = os.getloadavg()[0]
    return f"{time.strftime('%Y-%m-%d')}, {len(cpus)} × {cpus[0]}, load {load:.0f}, Python {platform.python_version()}, {packages}"


def main() -> None:
    sources = [argument.split("=", 1) for argument in sys.argv[1:]] or [["uniform", ""]]
    print(machine())
    for name, file in sources:
        with tempfile.TemporaryDirectory() as folder:
            plural = prepare(name, Path(file) if file else None, Path(folder))
            command = [sys.executable, __file__, "--serve", folder]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            rows = [row for row in ROWS if os.environ.get("ROWS", "") in row]
            # The informer keeps only typed objects.
            rows = [row for row in rows if "Informer" not in row or plural == "pods"]
            found: dict[str, list[Figures]] = {row: [] for row in rows}
            for turn in range(RUNS):
                for row, runs in found.items():
                    if turn == 0 or "kubernetes-client" not in row:
                        figures = run(row, folder, url, plural)
                        runs.extend([figures] if figures else [])
            table(found)
            sys.stdout.flush()
            server.kill()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    elif sys.argv[1:2] == ["--row"]:
        measure(*sys.argv[2:])
    else:
        main()
