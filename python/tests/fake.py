"""An API server for faults: it replays recorded bodies, and breaks off, refuses and stalls on demand."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

FIXTURES = Path(__file__).parents[2] / "fixtures"
PROTOBUF = "application/vnd.kubernetes.protobuf"

WIDGETS = {"name": "widgets", "singularName": "widget", "namespaced": True, "kind": "Widget", "verbs": ["list", "watch", "get"]}
DISCOVERY: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "pods", "singularName": "pod", "shortNames": ["po"], "namespaced": True, "kind": "Pod", "verbs": ["list", "watch", "get"]},
            {"name": "nodes", "singularName": "node", "shortNames": ["no"], "namespaced": False, "kind": "Node", "verbs": ["list", "watch", "get"]},
            {"name": "configmaps", "singularName": "configmap", "shortNames": ["cm"], "namespaced": True, "kind": "ConfigMap", "verbs": ["list", "watch", "get"]},
        ],
    },
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": "example.com",
                "versions": [{"groupVersion": "example.com/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "example.com/v1", "version": "v1"},
            }
        ],
    },
    "/apis/example.com/v1": {"kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": [WIDGETS]},
}


class Request:
    """One request, and what answers it."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        self.path = parts.path
        self.query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.headers = {name.title(): value for name, value in handler.headers.items()}
        self._handler = handler

    def send(self, body: bytes, content_type: str = PROTOBUF, status: int = 200) -> None:
        self.begin(len(body), content_type, status)
        self._handler.wfile.write(body)

    def begin(self, length: int | None, content_type: str = PROTOBUF, status: int = 200) -> None:
        handler = self._handler
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        if length is None:
            handler.send_header("Connection", "close")
            handler.close_connection = True
        else:
            handler.send_header("Content-Length", str(length))
        handler.end_headers()

    def write(self, body: bytes) -> None:
        self._handler.wfile.write(body)
        self._handler.wfile.flush()

    def send_json(self, value: Any, status: int = 200) -> None:
        self.send(json.dumps(value).encode(), "application/json", status)

    def refuse(self, status: int, reason: str, message: str, **details: Any) -> None:
        self.send_json(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "code": status,
                "reason": reason,
                "message": message,
                "details": details or None,
            },
            status,
        )

    def until_closed(self) -> None:
        """Waits until the client closes the connection."""
        connection: socket.socket = self._handler.connection
        while connection.recv(1024):
            pass


Answer = Callable[[Request], None]


class FakeServer:
    """Answers paths with functions; the discovery documents are there."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[Request] = []
        self.ended = threading.Semaphore(0)
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                request = Request(self)
                fake.requests.append(request)
                try:
                    if request.path in fake.answers:
                        fake.answers[request.path](request)
                        fake.ended.release()
                    elif request.path in DISCOVERY:
                        request.send_json(DISCOVERY[request.path])
                    else:
                        request.refuse(404, "NotFound", "the server could not find the requested resource")
                except OSError:
                    fake.ended.release()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def serve(self, path: str, body: bytes, content_type: str = PROTOBUF) -> None:
        self.answers[path] = lambda request: request.send(body, content_type)


def fixture(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def watch_frame(kind: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def widget(name: str, version: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": spec,
    }


def widget_list(items: list[dict[str, Any]], version: int) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "WidgetList",
        "metadata": {"resourceVersion": str(version)},
        "items": items,
    }
