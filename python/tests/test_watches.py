"""Watches: they resume, and start over only where that is visible."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake import FakeServer, Request, watch_frame, widget, widget_list

import listwatch

PATH = "/apis/example.com/v1/widgets"
JSON = "application/json"


class Versions:
    """Answers lists and watches of widgets: each watch sends the next frames, and then ends or waits."""

    def __init__(self, *connections: list[bytes] | int) -> None:
        self.connections = list(connections)
        self.watched_from: list[str | None] = []

    def __call__(self, request: Request) -> None:
        if request.query.get("watch") is None:
            request.send_json(widget_list([widget("a", 5)], 7))
            return
        self.watched_from.append(request.query.get("resourceVersion"))
        connection = self.connections.pop(0) if self.connections else []
        if isinstance(connection, int):
            request.refuse(connection, "Expired", "too old resource version")
            return
        request.begin(None, JSON)
        for frame in connection:
            request.write(frame)
        if not self.connections:
            request.until_closed()


def bookmark(version: int, ends_initial: bool = False) -> bytes:
    item = widget("", version)
    if ends_initial:
        item["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}
    return watch_frame("BOOKMARK", item)


def test_a_watch_resumes(fake: FakeServer, client: listwatch.Client) -> None:
    fake.answers[PATH] = versions = Versions(
        [watch_frame("ADDED", widget("b", 8)), watch_frame("MODIFIED", widget("b", 9)), bookmark(9)],
        [watch_frame("DELETED", widget("b", 10))],
    )
    with client.watch("widgets", resource_version="7") as events:
        found = [next(events) for _ in range(3)]
    assert [(event.type, event.object.name, event.object.resource_version) for event in found] == [
        ("ADDED", "b", "8"),
        ("MODIFIED", "b", "9"),
        ("DELETED", "b", "10"),
    ]
    assert versions.watched_from == ["7", "9"]
    kind, last = found[2]
    assert (kind, last.name) == ("DELETED", "b") and "DELETED" in repr(found[2])


def test_the_initial_state(fake: FakeServer, client: listwatch.Client) -> None:
    fake.answers[PATH] = Versions([watch_frame("ADDED", widget("a", 5)), bookmark(7, True), watch_frame("ADDED", widget("b", 8))])
    with client.watch("widgets", initial_state=True, fields=["metadata.name"]) as events:
        found = [next(events) for _ in range(3)]
    assert [(event.type, event.object, event.resource_version) for event in found] == [
        ("ADDED", ("a",), None),
        ("SYNCED", None, "7"),
        ("ADDED", ("b",), None),
    ]


def test_an_expired_version_raises(fake: FakeServer, client: listwatch.Client) -> None:
    fake.answers[PATH] = Versions(410)
    with pytest.raises(listwatch.ExpiredError), client.watch("widgets", resource_version="7") as events:
        next(events)


def test_a_forbidden_watch_fails_fast(fake: FakeServer, client: listwatch.Client) -> None:
    fake.answers[PATH] = lambda request: request.refuse(403, "Forbidden", "no")
    with pytest.raises(listwatch.ApiError) as caught:
        next(client.watch("widgets", fail_fast=True))
    assert caught.value.status == 403


def test_a_cache(fake: FakeServer, client: listwatch.Client, tmp_path: object) -> None:
    frames = [watch_frame("ADDED", widget("a", 5, node="n1")), bookmark(7, True), watch_frame("ADDED", widget("b", 8, node="n1")), watch_frame("MODIFIED", widget("a", 9, node="n2"))]
    fake.answers[PATH] = Versions(frames)
    for compressed in (False, True):
        fake.answers[PATH] = Versions(frames)
        widgets = client.cache("widgets", index={"node": "spec.node"}, compressed=compressed)
        assert widgets.wait(timeout=60)
        assert widgets.wait(timeout=60, resource_version="9") == "9"
        assert len(widgets) == 2 and [found.name for found in widgets] == ["a", "b"]
        found = widgets.get("default", "a")
        assert found is not None and found["spec"]["node"] == "n2" and found == widget("a", 9, node="n2")
        assert widgets.get("default", "none") is None
        assert ("default", "a") in widgets and ("default", "c") not in widgets and 5 not in widgets
        assert [found.name for found in widgets.by("node", "n1")] == ["b"]
        assert widgets.index_values("node") == ["n1", "n2"] and widgets.count("node", "n2") == 1
        with pytest.raises(KeyError, match="no index"):
            widgets.by("none", "x")
        assert widgets.status()["is_up_to_date"] and widgets.memory()["total"] > 0
        changes = widgets.changes()
        assert [change.type for change in (next(changes), next(changes), next(changes))] == ["ADDED", "ADDED", "SYNCED"]
        file = f"{tmp_path}/widgets"
        widgets.save(file)
        widgets.close()
        assert list(changes) == []
        with pytest.raises(listwatch.ClosedError, match="the cache is closed"):
            len(widgets)
        # Outlives the cache.
        assert found["spec"] == {"node": "n2"}


def test_a_cache_resumes_from_a_file(fake: FakeServer, client: listwatch.Client, tmp_path: Path) -> None:
    file = tmp_path / "widgets"
    fake.answers[PATH] = Versions([watch_frame("ADDED", widget("a", 5)), bookmark(7, True)])
    with client.cache("widgets", load=file) as widgets:
        widgets.wait(timeout=60)
        widgets.save(file)
    fake.answers[PATH] = versions = Versions([watch_frame("ADDED", widget("b", 8))])
    # The cache asks for an object of the file, to see that it is of this cluster.
    fake.answers["/apis/example.com/v1/namespaces/default/widgets/a"] = lambda request: request.send_json(widget("a", 5))
    with client.cache("widgets", load=str(file)) as widgets:
        assert widgets.wait(timeout=60, resource_version="8") == "8"
        assert [found.name for found in widgets] == ["a", "b"]
    assert versions.watched_from == ["7"]
    # A file that cannot be used is no obstacle.
    file.write_bytes(b"garbage" * 100)
    fake.answers[PATH] = Versions([watch_frame("ADDED", widget("c", 5)), bookmark(7, True)])
    with client.cache("widgets", load=file) as widgets:
        widgets.wait(timeout=60)
        assert [found.name for found in widgets] == ["c"]
    with client.cache("widgets", load=tmp_path) as widgets, pytest.raises(listwatch.Error):
        widgets.save(tmp_path)


def test_a_dropped_cache_ends_its_watch(fake: FakeServer, client: listwatch.Client) -> None:
    fake.answers[PATH] = Versions([bookmark(7, True)])
    widgets = client.cache("widgets")
    widgets.wait(timeout=60)
    del widgets
    assert fake.ended.acquire(timeout=20)


def test_a_cache_that_cannot_sync(fake: FakeServer, client: listwatch.Client) -> None:
    fake.answers[PATH] = lambda request: request.refuse(403, "Forbidden", "widgets are forbidden")
    widgets = client.cache("widgets")
    with pytest.raises(TimeoutError, match="widgets are forbidden"):
        widgets.wait(timeout=0.5)
    ended = client.cache("widgets", fail_fast=True)
    with pytest.raises(listwatch.ApiError, match="widgets are forbidden"):
        ended.wait(timeout=60)
    with pytest.raises(listwatch.ApiError, match="widgets are forbidden"):
        len(ended)
    assert "forbidden" in ended.status()["ended_by"]


def test_a_budget(fake: FakeServer, client: listwatch.Client) -> None:
    fake.answers[PATH] = Versions([watch_frame("ADDED", widget("a", 5, text="x" * 100_000)), bookmark(7, True)])
    widgets = client.cache("widgets", budget=50_000)
    with pytest.raises(listwatch.IncompleteError, match="1 object was skipped"):
        widgets.wait(timeout=60)
    assert widgets.status()["skipped"] == 1
