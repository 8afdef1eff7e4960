"""Lists: complete or an error, whatever the server does."""

from __future__ import annotations

import json

import pytest
from fake import FakeServer, Request, fixture, widget, widget_list

import listwatch

PODS = fixture("pods.pb")


def test_a_list_is_complete(fake: FakeServer, client: listwatch.Client) -> None:
    fake.serve("/api/v1/pods", PODS)
    pods = client.list("po", label_selector={"app": "web", "tier": "db"}, field_selector="spec.nodeName=a", resource_version="0")
    with pytest.raises(listwatch.Error, match="before its end"):
        pods.meta
    found = list(pods)
    assert len(found) > 40 and list(pods) == []
    assert pods.meta["items"] == len(found) and pods.meta["resource_version"]
    query = fake.requests[-1].query
    assert query["labelSelector"] == "app=web,tier=db" and query["fieldSelector"] == "spec.nodeName=a"
    assert query["resourceVersion"] == "0"
    assert fake.requests[-1].headers["Authorization"] == "Bearer s3cret-token"


def test_fields(fake: FakeServer, client: listwatch.Client) -> None:
    fake.serve("/api/v1/pods", PODS)
    pods = list(client.list("pods"))
    fields = ["metadata.name", "{.spec.nodeName}", "$.spec.containers[*].image", "spec.containers[0].name", "metadata.labels['app']", "status.conditions.type", "spec.priority", "spec.containers[-1].resources"]
    rows = list(client.list("pods", fields=fields))
    assert len(rows) == len(pods)
    for pod, row in zip(pods, rows):
        plain = pod.to_dict()
        containers = plain["spec"]["containers"]
        assert row == (
            pod.name,
            plain["spec"].get("nodeName"),
            [container["image"] for container in containers],
            containers[0]["name"],
            pod.labels.get("app"),
            [condition["type"] for condition in plain["status"].get("conditions", [])],
            plain["spec"].get("priority"),
            containers[-1]["resources"],
        )
    for path in ("spec.nodename", "metadata.nmae"):
        with pytest.raises(listwatch.InputError, match=f"Pod has no field '?\"?{path}"):
            list(client.list("pods", fields=[path]))
    for path in ("", "a.", "a[", "a[x]", "{a", "a['b"):
        with pytest.raises(listwatch.InputError, match="invalid field path"):
            client.list("pods", fields=[path])


def test_json_paths(fake: FakeServer, client: listwatch.Client) -> None:
    fake.serve("/api/v1/pods", PODS)
    pods = [pod.to_dict() for pod in client.list("pods")]
    fields = ["metadata.name", '{.status.conditions[?(@.type=="Ready")].status}', "spec.containers[0:2].name", "$..image"]
    rows = list(client.list("pods", fields=fields))
    for pod, (name, ready, names, images) in zip(pods, rows, strict=True):
        assert name == pod["metadata"]["name"]
        conditions = pod["status"].get("conditions", [])
        assert ready == [found["status"] for found in conditions if found["type"] == "Ready"]
        assert names == [found["name"] for found in pod["spec"]["containers"][:2]]
        assert len(images) >= len(pod["spec"]["containers"])
    with pytest.raises(listwatch.InputError, match="invalid field path"):
        client.list("pods", fields=["a[?(@.b==]"])


def test_fields_of_custom_resources(fake: FakeServer, client: listwatch.Client) -> None:
    items = [widget("a", 1, size=3, big=2**60, ratio=0.5, tags=["x"]), widget("b", 2)]
    fake.serve("/apis/example.com/v1/widgets", json.dumps(widget_list(items, 7)).encode(), "application/json")
    rows = list(client.list("widgets", fields=["metadata.name", "spec.size", "spec.big", "spec.ratio", "spec.tags", "spec"]))
    assert rows == [("a", 3, 2**60, 0.5, ["x"], items[0]["spec"]), ("b", None, None, None, None, {})]


def test_pages_and_limit(fake: FakeServer, client: listwatch.Client) -> None:
    def answer(request: Request) -> None:
        start = int(request.query.get("continue", "0"))
        count = int(request.query.get("limit", "10"))
        body = widget_list([widget(f"w{n}", n) for n in range(start, min(start + count, 10))], 7)
        if start + count < 10:
            body["metadata"] |= {"continue": str(start + count), "remainingItemCount": 10 - start - count}
        request.send_json(body)

    fake.answers["/apis/example.com/v1/widgets"] = answer
    assert [found.name for found in client.list("widgets", page_size=3)] == [f"w{n}" for n in range(10)]
    some = client.list("widgets", limit=4)
    assert [found.name for found in some] == ["w0", "w1", "w2", "w3"]
    assert (some.meta["continue_token"], some.meta["remaining_item_count"]) == ("4", 6)
    rest = client.list("widgets", limit=20, continue_token=some.meta["continue_token"])
    assert [found.name for found in rest] == [f"w{n}" for n in range(4, 10)]


def test_a_list_that_breaks_raises_with_the_number_of_items(fake: FakeServer, client: listwatch.Client) -> None:
    def answer(request: Request) -> None:
        request.begin(len(PODS))
        request.write(PODS[: len(PODS) // 2])
        request._handler.close_connection = True  # pyright: ignore[reportPrivateUsage]

    fake.answers["/api/v1/pods"] = answer
    received = 0
    with pytest.raises(listwatch.IncompleteError) as caught:
        for _ in client.list("pods", timeout=60):
            received += 1
    assert caught.value.items == received > 5
    assert "s3cret" not in str(caught.value)


def test_a_body_that_is_no_list_raises(fake: FakeServer, client: listwatch.Client) -> None:
    for body, content_type in [(b"<html>proxy</html>", "text/html"), (b"k8s\0\xff\xff", "application/vnd.kubernetes.protobuf"), (b'{"kind":"PodList","items":[{"a"', "application/json"), (b"", "application/json")]:
        fake.serve("/api/v1/pods", body, content_type)
        with pytest.raises(listwatch.Error):
            list(client.list("pods", timeout=20))


def test_errors_of_the_server(fake: FakeServer, client: listwatch.Client) -> None:
    path = "/api/v1/pods"
    fake.answers[path] = lambda request: request.refuse(403, "Forbidden", "pods is forbidden", kind="pods")
    with pytest.raises(listwatch.ApiError) as caught:
        list(client.list("pods"))
    error = caught.value
    assert (error.status, error.reason, error.message) == (403, "Forbidden", "pods is forbidden")
    assert error.details is not None and error.details["kind"] == "pods"
    fake.answers[path] = lambda request: request.refuse(410, "Expired", "too old")
    with pytest.raises(listwatch.ExpiredError):
        list(client.list("pods"))
    with pytest.raises(listwatch.UnknownResourceError, match="the server doesn't have a resource type \"podz\""):
        list(client.list("podz"))
    with pytest.raises(listwatch.ApiError) as missing:
        client.get("pods", "none")
    assert missing.value.status == 404


def test_errors_of_the_connection() -> None:
    client = listwatch.Client(server="http://127.0.0.1:1", token="s3cret-token")
    with pytest.raises(ConnectionError, match="cannot connect") as caught:
        list(client.list("nodes", timeout=30))
    assert isinstance(caught.value, listwatch.Error) and "s3cret" not in str(caught.value)


def test_a_deadline(fake: FakeServer, client: listwatch.Client) -> None:
    def answer(request: Request) -> None:
        request.begin(len(PODS))
        request.until_closed()

    fake.answers["/api/v1/pods"] = answer
    with pytest.raises(TimeoutError):
        list(client.list("pods", timeout=0.3))


def test_the_end_of_a_block_ends_the_request(fake: FakeServer, client: listwatch.Client) -> None:
    def answer(request: Request) -> None:
        request.begin(len(PODS) + 1)
        request.write(PODS)
        request.until_closed()

    fake.answers["/api/v1/pods"] = answer
    with client.list("pods") as pods:
        next(pods)
    assert fake.ended.acquire(timeout=20)
    with pytest.raises(listwatch.ClosedError, match="the list is closed"):
        next(pods)
    pods = client.list("pods")
    next(pods)
    del pods
    assert fake.ended.acquire(timeout=20)


def test_namespaces(fake: FakeServer, client: listwatch.Client) -> None:
    for namespace in ("a", "b"):
        item = widget("w", 1)
        item["metadata"]["namespace"] = namespace
        body = json.dumps(widget_list([item], 7)).encode()
        fake.serve(f"/apis/example.com/v1/namespaces/{namespace}/widgets", body, "application/json")
    assert [found.namespace for found in client.list("widgets", namespace=["a", "b"])] == ["a", "b"]
    assert [found.namespace for found in client.list("widgets", namespace="b")] == ["b"]
    assert list(client.list("widgets", namespace=[])) == []


def test_get(fake: FakeServer, client: listwatch.Client) -> None:
    fake.answers["/apis/example.com/v1/namespaces/default/widgets/a"] = lambda request: request.send_json(widget("a", 1, x=1))
    assert client.get("widget", "a") == widget("a", 1, x=1)
    assert client.resolve("widgets.example.com")["group"] == "example.com"


def test_configurations(fake: FakeServer) -> None:
    class Configuration:
        host = fake.url
        api_key = {"authorization": "Bearer of-configuration"}
        api_key_prefix: dict[str, str] = {}
        verify_ssl = True

    fake.serve("/api/v1/pods", fixture("pods-empty.pb"))
    client = listwatch.Client.from_configuration(Configuration())
    assert list(client.list("pods")) == []
    assert fake.requests[-1].headers["Authorization"] == "Bearer of-configuration"
    client = listwatch.Client(server=fake.url, token="t", impersonate=("jane", ["devs", "ops"]))
    assert list(client.list("pods")) == []
    assert fake.requests[-1].headers["Impersonate-User"] == "jane"
    with pytest.raises(listwatch.ConfigError):
        listwatch.Client(kubeconfig="/none/at/all")
    with pytest.raises(TypeError, match="configuration"):
        listwatch.Client.from_configuration(5)
