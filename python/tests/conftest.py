from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake import FakeServer

import listwatch

API_SERVER = Path(__file__).parents[2] / "e2e" / "apiserver" / "bin"


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.close()


@pytest.fixture
def client(fake: FakeServer) -> listwatch.Client:
    return listwatch.Client(server=fake.url, token="s3cret-token")


class ApiServer:
    """A real API server, with its kubectl."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        command = [str(API_SERVER / "kubectl"), "--kubeconfig", self.kubeconfig, *args]
        done = subprocess.run(command, input=stdin, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def kubeconfig(self) -> str:
        return str(self.folder / "kubeconfig")


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """Starts the API server of the end-to-end tests; without it, the tests that need it are skipped."""
    if not (API_SERVER / "server").exists():
        if os.environ.get("LISTWATCH_NEEDS_API_SERVER"):
            pytest.fail("e2e/apiserver/build.sh has not built the API server")
        pytest.skip("e2e/apiserver/build.sh has not built the API server")
    with tempfile.TemporaryDirectory(prefix="listwatch-python-") as folder:
        port = int(os.environ.get("LISTWATCH_API_SERVER_PORT", "21900"))
        command = [str(API_SERVER / "server"), "-port", str(port), "-etcd-port", str(port + 1), "-dir", folder, "--"]
        with open(Path(folder) / "server.log", "wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready "), (line, (Path(folder) / "server.log").read_text()[-2000:])
            url = line.removeprefix("ready ").strip()
            server = ApiServer(url, Path(folder))
            yield server
        finally:
            process.kill()
            process.wait()
