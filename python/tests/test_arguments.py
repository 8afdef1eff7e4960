"""Odd arguments: an exception of Python, never an abort or a panic."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake import FakeServer, fixture
from test_docs import answer_pods

import listwatch
import listwatch.aio

ODD: list[Any] = [None, True, 0, -1, 2**31, 2**63, 2**200, 1.5, float("nan"), float("inf"), -0.0, "", "\0", "\ud800", "a" * 70_000, "é", b"x", [], [None], ["\ud800"], (), (1, 2), {}, {"a": 1}, {1: "a"}, {"a": "b"}, object(), lambda: None, int]
EXPECTED = (TypeError, ValueError, LookupError, listwatch.Error, OverflowError, AttributeError, OSError)


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    try:
        result = function(*args, **kwargs)
        if isinstance(result, Iterator):
            close = getattr(result, "close", None)
            if close is not None:
                close()
    except EXPECTED:
        pass
    except BaseException as error:
        pytest.fail(f"{function} of {args} {kwargs}: {type(error)} {error}")


def test_each_function_with_odd_arguments(fake: FakeServer, client: listwatch.Client) -> None:
    fake.serve("/api/v1/pods", fixture("pods.pb"))
    pod = next(client.list("pods"))
    targets: list[Any] = [pod, pod["spec"], pod["spec"]["containers"]]
    for target in targets:
        for name in dir(target):
            function = getattr(target, name)
            if not callable(function) or name in ("__class__", "__init_subclass__", "__subclasshook__"):
                continue
            call(function)
            for odd in ODD:
                call(function, odd)
                call(function, odd, odd)
    for method in (client.list, client.get, client.watch, client.cache, client.count, client.resolve):
        for odd in ODD:
            if not (isinstance(odd, str) and odd):
                call(method, odd)
        parameters = [name for name in inspect.signature(method).parameters if name not in ("resource", "name")]
        for name in parameters:
            for odd in ODD:
                if name in ("namespace", "timeout", "load") and method is client.cache:
                    continue
                args = ("pods", "x") if method is client.get else ("pods",)
                call(method, *args, **{name: odd})
    for name in inspect.signature(listwatch.Client).parameters:
        for odd in ODD:
            call(listwatch.Client, **{"server": fake.url, "token": "t", name: odd})
    module = listwatch._listwatch  # pyright: ignore
    for name in ("restore_object", "restore_part", "Client", "Stream", "Cache", "LoopWaker"):
        for odd in ODD:
            for count in range(1, 5):
                call(getattr(module, name), *[odd] * count)
    for function in (listwatch.default, listwatch.quantity, listwatch.aio.Cache):
        for odd in ODD:
            call(function, odd)


def test_columns_and_caches_with_odd_arguments(
    fake: FakeServer, client: listwatch.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A cache is saved to files that the odd arguments name.
    monkeypatch.chdir(tmp_path)
    fake.answers["/api/v1/pods"] = answer_pods
    columns = client.list("pods", fields=["metadata.name"]).columns()
    for odd in ODD:
        call(client.list("pods", fields=["metadata.name"]).columns, quantities=odd)
        call(columns.__arrow_c_stream__, odd)
        call(listwatch.Columns, odd)
    with client.cache("pods", index={"node": "spec.nodeName"}) as pods:
        pods.wait(timeout=60)
        for name in ("get", "by", "index_values", "count", "select", "list", "changes", "save", "__contains__"):
            method = getattr(pods, name)
            for odd in ODD:
                call(method, odd)
                call(method, odd, odd)
                call(method, "node", odd)
                for parameter in ("initial_state", "namespace", "label_selector"):
                    call(method, **{parameter: odd})
        for odd in ODD:
            call(pods.wait, odd)
            call(pods.wait, 0.01, odd)
        assert len(pods) == 1 and pods.status()["is_running"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"page_size": "5"}, "page_size"),
        ({"limit": 1.5}, "limit"),
        ({"label_selector": 5}, "label_selector"),
        ({"label_selector": {"a": 5}}, "label_selector"),
        ({"field_selector": []}, "field_selector"),
        ({"namespace": 5}, "namespace"),
        ({"namespace": [5]}, "namespace"),
        ({"fields": "metadata.name"}, "fields"),
        ({"fields": [5]}, "fields"),
        ({"metadata_only": "yes"}, "metadata_only"),
        ({"timeout": "5"}, "timeout"),
        ({"resource_version": 5}, "resource_version"),
    ],
)
def test_a_wrong_type_names_the_argument(client: listwatch.Client, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(TypeError, match=name):
        client.list("pods", **arguments)


def test_wrong_values(client: listwatch.Client) -> None:
    for arguments in ({"page_size": 0}, {"page_size": 2**40}, {"timeout": -1.0}, {"timeout": float("nan")}, {"label_selector": "a in"}, {"field_selector": "a"}):
        with pytest.raises(ValueError):
            client.list("pods", **arguments)  # type: ignore[arg-type]
