#!/usr/bin/env python3
"""What other readers of a mirror notice of one reader that takes what it can: fairness.py PATH-OF-LISTWATCH...

Each command is started against a fake API server on loopback, over TLS and with reviews. The flood and the others have
users of their own, and the same address. For each case, 40 reads of the others are timed while the flood goes on.
Needs openssl.
"""

import http.server
import json
import resource
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

READS = 40
PAD = "x" * 4000
PODS = [{"metadata": {"name": f"p{n:04}", "namespace": "a", "uid": str(n), "resourceVersion": "5", "annotations": {"pad": PAD}}} for n in range(500)]
LIST = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": PODS}).encode()


# As API Priority and Fairness, which gives the account of the mirror a part of the API server.
SEATS = threading.Semaphore(100)


class Api(http.server.BaseHTTPRequestHandler):
    """Answers at once, but reviews of `secret*` and forwarded requests for `slow*` after 3 s, and at most 100 at a time."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, body, code=200):
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if "watch=" in self.path and "/pods" in self.path:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            time.sleep(3600)
        elif "/pods" in self.path:
            self.send(LIST)
        else:
            with SEATS:
                time.sleep(3 if "slow" in self.path else 0)
            self.send(b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}')

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/tokenreviews"):
            user = review["spec"]["token"].split("-")[0]
            self.send(json.dumps({"status": {"authenticated": True, "user": {"username": user}}}).encode(), 201)
            return
        is_secret = review["spec"].get("resourceAttributes", {}).get("namespace", "").startswith("secret")
        with SEATS:
            time.sleep(3 if is_secret else 0)
        self.send(json.dumps({"status": {"allowed": not is_secret}}).encode(), 201)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 4096

    def handle_error(self, *_):
        """Requests that the mirror has given up are no news."""


class Mirror:
    """A running mirror."""

    def __init__(self, command, folder, has_tls=True):
        self.api = Server(("127.0.0.1", 0), Api)
        threading.Thread(target=self.api.serve_forever, daemon=True).start()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        args = ["mirror", "pods", "--strategy", "list-then-watch", "--stale-reads", "--format", "encoded"]
        args += ["--server", f"http://127.0.0.1:{self.api.server_port}", "--listen", f"127.0.0.1:{self.port}"]
        self.has_tls = has_tls
        if has_tls:
            args += ["--tls-cert", f"{folder}/tls.crt", "--tls-key", f"{folder}/tls.key"]
        self.process = subprocess.Popen([command, *args], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while self.get("/readyz", "")[0] != 200:
            time.sleep(0.1)

    def connect(self, protocols=("http/1.1",)):
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        if not self.has_tls:
            return raw
        context = ssl._create_unverified_context()
        context.set_alpn_protocols(list(protocols))
        return context.wrap_socket(raw)

    def get(self, path, token):
        """Returns the code, 0 for none, and the seconds until the whole response."""
        started = time.monotonic()
        try:
            with self.connect() as io:
                io.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{self.port}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode())
                head = b""
                while chunk := io.recv(1 << 16):
                    head = head or chunk
            return int(head.split(b" ")[1]), time.monotonic() - started
        except (OSError, IndexError):
            return 0, time.monotonic() - started

    def resident(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.api.shutdown()


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A header without an index and without Huffman (RFC 7541, 6.2.2), of less than 127 bytes each."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def closed_windows(mirror, streams):
    """Opens an HTTP/2 connection with lists that it does not accept a byte of."""
    io = mirror.connect(["h2"])
    io.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)))
    head = b"\x82\x87" + literal(":path", "/api/v1/pods?resourceVersion=0") + literal(":authority", "mirror")
    head += literal("authorization", "Bearer flood-1")
    for n in range(streams):
        io.sendall(frame(1, 5, 2 * n + 1, head))
    return io


def measure(mirror, path):
    """Sends the reads of the others, four at a time, each by a user of its own."""
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: mirror.get(path, f"reader{n}-1"), range(READS)))
    times = sorted(seconds for code, seconds in answers if code == 200)
    codes = {code: sum(1 for other, _ in answers if other == code) for code, _ in answers if code != 200}
    text = f"{len(times)} of {READS} reads answered"
    if times:
        text += f", in {times[len(times) // 2] * 1000:.0f} ms at the median and {times[-1] * 1000:.0f} ms at most"
    return text + (f"; others: {codes}" if codes else "")


def flood(mirror, count, path):
    """Keeps this many requests of one user open."""
    ended = threading.Event()

    def run(n):
        while not ended.is_set():
            if mirror.get(path(n), "flood-1")[0] in (0, 429):
                time.sleep(1)

    for n in range(count):
        threading.Thread(target=run, args=(n,), daemon=True).start()
    time.sleep(6)
    return ended


def lists(mirror):
    held = [closed_windows(mirror, 250) for _ in range(5)]
    time.sleep(2)
    text = measure(mirror, "/api/v1/pods?resourceVersion=0")
    del held
    return text


def forbidden(mirror):
    ended = flood(mirror, 1500, lambda n: f"/api/v1/namespaces/secret-{n}-{time.monotonic()}/configmaps")
    text = measure(mirror, "/api/v1/pods?resourceVersion=0")
    ended.set()
    return text


def forwards(mirror):
    ended = flood(mirror, 600, lambda n: f"/api/v1/namespaces/slow-{n}/configmaps")
    text = measure(mirror, "/api/v1/namespaces/web/configmaps")
    ended.set()
    return text


def heads(mirror):
    before, peak = mirror.resident(), 0
    head = b"GET /version HTTP/1.1\r\nX: " + b"x" * 60000
    io = [[mirror.connect(), head] for _ in range(9900)]
    for _ in range(4):
        for unsent in io:
            unsent[0].setblocking(False)
            try:
                unsent[1] = unsent[1][unsent[0].send(unsent[1]):] if unsent[1] else b""
            except OSError:
                pass
        peak = max(peak, mirror.resident())
    peak = max(peak, *(mirror.resident() for _ in range(10) if not time.sleep(0.1)))
    return f"{before:.0f} MB, then {peak:.0f} MB; {measure(mirror, '/api/v1/pods?resourceVersion=0')}"


CASES = [
    ("one reader holds 1,250 lists with a closed window", lists),
    ("1,500 forbidden requests wait for reviews of 3 s", forbidden),
    ("600 forwarded requests take 3 s each", forwards),
    ("9,900 connections without TLS send 60 kB of headers, and no more", heads),
]


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    threading.stack_size(256 << 10)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=mirror",
             "-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.crt"], check=True, capture_output=True)
        for command in sys.argv[1:]:
            print(command)
            for name, case in CASES:
                mirror = Mirror(command, folder, case is not heads)
                try:
                    print(f"  {name}: {case(mirror)}", flush=True)
                finally:
                    mirror.stop()


main()
