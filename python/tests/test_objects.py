"""Objects read as mappings and sequences, from protobuf and from JSON."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fake import FakeServer, fixture, widget, widget_list

import listwatch

WIDGETS = [widget("a", 1, size=3, parts=[{"n": 1.5}, {"n": None}], text="é\U0001f600<>"), widget("b", 2, size=-1, flags={"x": True})]


@pytest.fixture
def pods(fake: FakeServer, client: listwatch.Client) -> list[listwatch.Object]:
    fake.serve("/api/v1/pods", fixture("pods.pb"))
    return list(client.list("pods"))


@pytest.fixture
def widgets(fake: FakeServer, client: listwatch.Client) -> list[listwatch.Object]:
    fake.serve("/apis/example.com/v1/widgets", json.dumps(widget_list(WIDGETS, 7)).encode(), "application/json")
    return list(client.list("widgets"))


def same(lazy: Any, plain: Any) -> None:
    """Compares a value that is read lazily with the same value decoded, member by member."""
    if isinstance(plain, dict):
        assert isinstance(lazy, Mapping) and not isinstance(lazy, dict)
        assert list(lazy) == list(plain) and len(lazy) == len(plain)
        for key, value in plain.items():
            assert key in lazy
            same(lazy[key], value)
        assert lazy == plain and plain == lazy
    elif isinstance(plain, list):
        assert isinstance(lazy, Sequence) and not isinstance(lazy, (str, list))
        assert len(lazy) == len(plain)
        for index, value in enumerate(plain):
            same(lazy[index], value)
            same(lazy[index - len(plain)], value)
        assert lazy == plain and list(reversed(lazy)) == plain[::-1] and lazy[1:] == plain[1:]
    else:
        assert type(lazy) is type(plain) and lazy == plain


def test_each_member_reads_as_decoded(pods: list[listwatch.Object], widgets: list[listwatch.Object]) -> None:
    for found in [*pods[:5], *widgets]:
        plain = json.loads(found.to_json())
        same(found, plain)
        assert found.to_dict() == plain
        assert list(found.keys()) == list(plain) and dict(found.items()) == plain
        assert list(found.values()) == list(plain.values())
    assert [found.to_dict() for found in widgets] == WIDGETS


def test_metadata(pods: list[listwatch.Object]) -> None:
    pod = pods[0]
    metadata = pod.to_dict()["metadata"]
    assert (pod.name, pod.namespace) == (metadata["name"], metadata["namespace"])
    assert (pod.uid, pod.resource_version) == (metadata["uid"], metadata["resourceVersion"])
    assert pod.labels == metadata["labels"]
    assert (pod.kind, pod.api_version) == ("Pod", "v1") == (pod["kind"], pod["apiVersion"])
    assert repr(pod) == f"<v1 Pod {pod.namespace}/{pod.name}>"


def test_absent_members(pods: list[listwatch.Object]) -> None:
    pod = pods[0]
    assert pod.get("none") is None and pod.get("none", 5) == 5
    assert "none" not in pod and 5 not in pod and "\ud800" not in pod
    with pytest.raises(KeyError, match="none"):
        pod["none"]
    with pytest.raises(KeyError):
        pod["spec"][5]
    with pytest.raises(IndexError):
        pod["spec"]["containers"][99]
    with pytest.raises(IndexError):
        pod["spec"]["containers"][-99]
    with pytest.raises(TypeError):
        pod["spec"]["containers"]["name"]


def test_objects_are_read_only(pods: list[listwatch.Object]) -> None:
    pod: Any = pods[0]
    for part in (pod, pod["spec"]):
        with pytest.raises(TypeError, match=r"to_dict\(\)"):
            part["x"] = 1
        with pytest.raises(TypeError, match=r"to_dict\(\)"):
            del part["x"]
    with pytest.raises(TypeError, match=r"to_list\(\)"):
        pod["spec"]["containers"][0] = 1
    for part in (pod, pod["spec"], pod["spec"]["containers"]):
        with pytest.raises(TypeError, match="unhashable"):
            hash(part)


def test_json_pickle_and_copies(pods: list[listwatch.Object], widgets: list[listwatch.Object]) -> None:
    for found in (pods[0], widgets[0]):
        assert json.loads(json.dumps([found, found["spec"]], default=listwatch.default)) == [found, found["spec"]]
        for part in (found, found["spec"], found["metadata"]):
            restored = pickle.loads(pickle.dumps(part))
            assert type(restored) is type(part) and restored == part
            assert copy.copy(part) is part and copy.deepcopy(part) is part
    containers = pods[0]["spec"]["containers"]
    assert pickle.loads(pickle.dumps(containers)) == containers
    assert containers.index(containers[0]) == 0 and containers.count(containers[0]) == 1
    assert containers[0] in containers and "x" not in containers
    with pytest.raises(TypeError, match="set is not JSON serializable"):
        json.dumps({1, 2}, default=listwatch.default)


def test_equality(pods: list[listwatch.Object]) -> None:
    assert pods[0] == pods[0] and pods[0] != pods[1] and pods[0] != 5
    assert pods[0]["spec"] == pods[0].to_dict()["spec"] and not pods[0] == None  # noqa: E711


def test_a_pattern_matches(pods: list[listwatch.Object]) -> None:
    match pods[0]:
        case {"kind": "Pod", "spec": {"containers": [{"name": str(name)}, *_]}}:
            assert name == pods[0]["spec"]["containers"][0]["name"]
        case _:
            pytest.fail("the pattern does not match")


def test_malformed_objects_raise(fake: FakeServer, client: listwatch.Client) -> None:
    body = fixture("configmaps.pb")
    fake.serve("/api/v1/configmaps", body)
    maps = list(client.list("cm"))
    state = maps[0].__reduce__()
    broken = state[0](state[1][0][:-3], *state[1][1:])
    with pytest.raises(listwatch.ObjectError):
        broken.to_dict()
    with pytest.raises(listwatch.ObjectError):
        len(broken)
    deep = state[0](b'{"a":' * 3000 + b"1" + b"}" * 3000, 1, "example.com/v1", "Widget")
    with pytest.raises(listwatch.ObjectError):
        deep.to_dict()
    part = deep
    for _ in range(50):
        part = part["a"]
    with pytest.raises(listwatch.ObjectError):
        restored = state[0](b"not json", 1, "example.com/v1", "Widget")
        restored["x"]


def test_text_that_is_not_unicode_is_replaced_as_in_go(client: listwatch.Client) -> None:
    restore = listwatch._listwatch.restore_object  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    found = restore(b'{"a\xff":["\xe2\x82", "\\ud800"]}', 1, "example.com/v1", "Widget")
    expected = {"a\ufffd": ["\ufffd\ufffd", "\ufffd"]}
    assert {key: found.to_dict()[key] for key in expected} == expected
    assert found["a\ufffd"] == expected["a\ufffd"]


def test_quantities() -> None:
    for text, number in [("250m", 0.25), ("1", 1), ("64Mi", 64 << 20), ("1.5G", 1.5e9), ("-2", -2), ("1e3", 1000), ("5E", 5e18)]:
        assert listwatch.quantity(text) == number
    assert listwatch.quantity(None) is None
    for text in ("", "x", "1 Mi", "1mi", "--1"):
        with pytest.raises(ValueError, match="invalid quantity"):
            listwatch.quantity(text)
