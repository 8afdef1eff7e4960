"""Signals, forks, threads, the end of the interpreter, and the log: each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import textwrap

import pytest
from fake import FakeServer, fixture
from test_watches import PATH, Versions, bookmark

import listwatch

TIMEOUT = 60


def start(code: str, *args: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", "import sys, listwatch\n" + textwrap.dedent(code), *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def run(code: str, *args: str) -> str:
    process = start(code, *args)
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("module", ["list(client.watch('widgets'))", "client.cache('widgets').wait()", "client.get('widgets', 'x')"])
def test_ctrl_c_ends_a_blocked_call(fake: FakeServer, module: str) -> None:
    fake.answers[PATH] = lambda request: request.until_closed()
    fake.answers["/apis/example.com/v1/namespaces/default/widgets/x"] = lambda request: request.until_closed()
    process = start(
        f"""
        client = listwatch.Client(server=sys.argv[1], token="t")
        print("ready")
        try:
            {module}
        except KeyboardInterrupt:
            print("interrupted")
        """,
        fake.url,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    while not any(request.path.startswith("/apis/example.com/v1/") for request in fake.requests):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (out, process.returncode) == ("interrupted\n", 0), err


def test_a_fork(fake: FakeServer) -> None:
    fake.serve("/api/v1/pods", fixture("pods.pb"))
    fake.answers[PATH] = Versions([bookmark(7, True)])
    out = run(
        """
        import os
        client = listwatch.Client(server=sys.argv[1], token="t")
        pods = client.list("pods")
        first = next(pods)
        widgets = client.cache("widgets")
        widgets.wait(timeout=60)
        def child():
            for use in (lambda: next(pods), lambda: len(widgets), lambda: pods.close()):
                try:
                    use()
                except listwatch.ForkError as error:
                    print("error:", error, flush=True)
            # A client makes connections of its own, and a grandchild too.
            print(len(list(client.list("pods"))), first.name, flush=True)
        pid = os.fork()
        if pid == 0:
            child()
            pid = os.fork()
            if pid == 0:
                print(len(list(client.list("pods"))), flush=True)
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(1 + len(list(pods)), len(widgets), status)
        """,
        fake.url,
    )
    lines = out.splitlines()
    assert [line[:6] for line in lines[:3]] == ["error:"] * 3 and "before a fork" in lines[0], out
    count = lines[3].split()[0]
    assert int(count) > 40 and lines[4] == count and lines[5] == f"{count} 0 0", out


def test_multiprocessing(fake: FakeServer) -> None:
    fake.serve("/api/v1/pods", fixture("pods.pb"))
    out = run(
        """
        import multiprocessing
        client = listwatch.Client(server=sys.argv[1], token="t")
        pods = list(client.list("pods"))
        def names(_):
            return [pod.name for pod in client.list("pods")]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.map(names, range(4))
            objects = pool.map(dict, pods[:3])
        print(all(each == [pod.name for pod in pods] for each in found), objects == pods[:3])
        """,
        fake.url,
    )
    assert out == "True True\n"


def test_the_interpreter_ends_with_open_watches(fake: FakeServer) -> None:
    fake.answers[PATH] = lambda request: request.until_closed()
    out = run(
        """
        import threading, asyncio
        client = listwatch.Client(server=sys.argv[1], token="t")
        watches = [client.watch("widgets") for _ in range(3)]
        cache = client.cache("widgets")
        threading.Thread(target=lambda: next(watches[0]), daemon=True).start()
        threading.Thread(target=lambda: cache.wait(), daemon=True).start()
        async def main():
            task = asyncio.create_task(anext(listwatch.aio.Client(server=sys.argv[1], token="t").watch("widgets")))
            await asyncio.sleep(0)
        asyncio.run(main())
        print("end")
        """,
        fake.url,
    )
    assert out == "end\n"


def test_warnings_reach_logging(fake: FakeServer) -> None:
    fake.answers[PATH] = lambda request: request.refuse(403, "Forbidden", "widgets are forbidden")
    out = run(
        """
        import logging, threading
        seen = threading.Event()
        class Handler(logging.Handler):
            def emit(self, record):
                print(record.name, record.levelname, "forbidden" in record.getMessage(), "s3cret" in record.getMessage())
                seen.set()
        logging.getLogger().addHandler(Handler())
        client = listwatch.Client(server=sys.argv[1], token="s3cret-token")
        cache = client.cache("widgets")
        assert seen.wait(60)
        """,
        fake.url,
    )
    assert out.splitlines()[0] == "listwatch WARNING True False"


def test_threads_share_a_client_and_an_iterator(fake: FakeServer, client: listwatch.Client) -> None:
    fake.serve("/api/v1/pods", fixture("pods.pb"))
    expected = sorted(pod.name for pod in client.list("pods"))
    shared, found = client.list("pods"), list[str]()
    threads = [threading.Thread(target=lambda: found.extend(pod.name for pod in shared)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert sorted(found) == expected


def test_a_blocked_thread_leaves_others_running_and_close_wakes_it(fake: FakeServer, client: listwatch.Client) -> None:
    fake.answers[PATH] = lambda request: request.until_closed()
    fake.serve("/api/v1/pods", fixture("pods.pb"))
    watch, caught = client.watch("widgets"), list[BaseException]()

    def read() -> None:
        try:
            next(watch)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    while not any(request.path == PATH for request in fake.requests):
        assert thread.is_alive()
    assert len(list(client.list("pods"))) == 120 and thread.is_alive()
    watch.close()
    thread.join(TIMEOUT)
    assert [type(error) for error in caught] == [listwatch.ClosedError]
