"""asyncio: the same answers, and cancellation."""

from __future__ import annotations

import asyncio
import json

import pytest
from fake import FakeServer, Request, fixture, watch_frame, widget, widget_list
from test_watches import JSON, PATH, Versions, bookmark

import listwatch
import listwatch.aio


@pytest.fixture
def aclient(fake: FakeServer) -> listwatch.aio.Client:
    return listwatch.aio.Client(server=fake.url, token="s3cret-token")


def test_lists(fake: FakeServer, aclient: listwatch.aio.Client, client: listwatch.Client) -> None:
    fake.serve("/api/v1/pods", fixture("pods.pb"))

    async def main() -> None:
        pods = aclient.list("pods")
        names = [pod.name async for pod in pods]
        assert names == [pod.name for pod in client.list("pods")] and pods.meta["items"] == len(names)
        rows = aclient.list("pods", fields=["metadata.name"])
        assert await anext(rows) == (names[0],)
        assert [row async for row in rows] == [(name,) for name in names[1:]]
        assert await aclient.resolve("po") == await aclient.resolve("pods")
        results = await asyncio.gather(*(collect() for _ in range(20)))
        assert all(result == names for result in results)

    async def collect() -> list[str]:
        return [pod.name async for pod in aclient.list("pods")]

    asyncio.run(main())
    asyncio.run(main())


def test_errors(fake: FakeServer, aclient: listwatch.aio.Client) -> None:
    fake.answers[PATH] = lambda request: request.refuse(403, "Forbidden", "no")

    async def main() -> None:
        with pytest.raises(listwatch.ApiError):
            async for _ in aclient.list("widgets"):
                pass
        with pytest.raises(listwatch.ApiError):
            await aclient.get("widgets", "a")

    asyncio.run(main())


def test_cancellation_ends_the_request(fake: FakeServer, aclient: listwatch.aio.Client) -> None:
    body = json.dumps(widget_list([widget("a", 1)], 7)).encode()

    def answer(request: Request) -> None:
        request.begin(len(body) + 1, JSON)
        request.write(body)
        request.until_closed()

    fake.answers[PATH] = answer
    fake.answers["/apis/example.com/v1/namespaces/default/widgets/stalled"] = lambda request: request.until_closed()

    async def read(began: asyncio.Event) -> None:
        async for _ in aclient.list("widgets"):
            began.set()

    async def main() -> None:
        began = asyncio.Event()
        task = asyncio.create_task(read(began))
        await asyncio.wait_for(began.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(fake.ended.acquire, timeout=20)
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.2):
                await aclient.get("widgets", "stalled")

    asyncio.run(main())


def test_watches_and_caches(fake: FakeServer, aclient: listwatch.aio.Client) -> None:
    frames = [watch_frame("ADDED", widget("a", 5)), bookmark(7, True), watch_frame("ADDED", widget("b", 8))]
    fake.answers[PATH] = Versions(frames)

    async def main() -> None:
        async with aclient.watch("widgets", initial_state=True) as events:
            found = [await anext(events) for _ in range(3)]
        assert [event.type for event in found] == ["ADDED", "SYNCED", "ADDED"]
        fake.answers[PATH] = Versions(frames)
        async with await aclient.cache("widgets") as widgets:
            assert await widgets.wait(timeout=60, resource_version="8") == "8"
            assert len(widgets) == 2 and widgets.get("default", "a") == widget("a", 5)
            changes = widgets.changes()
            assert [(await anext(changes)).type for _ in range(3)] == ["ADDED", "ADDED", "SYNCED"]
        with pytest.raises(listwatch.ClosedError):
            len(widgets)

    asyncio.run(main())
