"""The rows of a list as columns of Arrow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake import FakeServer, fixture, widget, widget_list

import listwatch

PATH = "/apis/example.com/v1/widgets"
SPECS: list[dict[str, Any]] = [
    {"text": "é", "int": 1, "double": 1.5, "flag": True, "mixed": "a", "cpu": "250m", "many": [{"x": "1Ki"}, {"x": None}]},
    {"text": None, "int": -(2**63), "double": 2, "flag": False, "mixed": 1, "cpu": 2, "many": []},
    {"map": {"a": [1, "b"]}},
]
FIELDS = {name: f"spec.{name}" for name in ("text", "int", "double", "flag", "mixed", "cpu", "map", "none")}


@pytest.fixture
def widgets(fake: FakeServer, client: listwatch.Client) -> listwatch.Client:
    items = [widget(f"w{at}", at + 1, **spec) for at, spec in enumerate(SPECS)]
    fake.serve(PATH, json.dumps(widget_list(items, 9)).encode(), "application/json")
    return client


def test_each_type(widgets: listwatch.Client) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    fields = {**FIELDS, "many": "spec.many[*].x"}
    columns = widgets.list("widgets", fields=fields).columns(quantities=["cpu", "many"])
    assert len(columns) == 3 and columns.names == list(fields)
    table = pyarrow.table(columns)
    assert table.to_pydict() == {
        "text": ["é", None, None],
        "int": [1, -(2**63), None],
        "double": [1.5, 2.0, None],
        "flag": [True, False, None],
        "mixed": ['"a"', "1", None],
        "cpu": [0.25, 2.0, None],
        "map": [None, None, '{"a":[1,"b"]}'],
        "none": [None, None, None],
        "many": [[1024.0, None], [], []],
    }
    assert pyarrow.table(columns) == table, "the columns can be taken again"
    assert "cpu: Float64" in repr(columns)


def test_columns_need_no_other_package(widgets: listwatch.Client) -> None:
    columns = widgets.list("widgets", fields=["metadata.name"]).columns()
    assert columns.names == ["metadata.name"] and "arrow_array_stream" in repr(columns.__arrow_c_stream__())


def test_an_empty_list(fake: FakeServer, client: listwatch.Client) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    fake.serve(PATH, json.dumps(widget_list([], 9)).encode(), "application/json")
    assert pyarrow.table(client.list("widgets", fields=["metadata.name"]).columns()).num_rows == 0
    assert len(client.list("widgets", fields=[]).columns()) == 0


def test_a_large_list_in_protobuf(fake: FakeServer, client: listwatch.Client) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    fake.serve("/api/v1/pods", fixture("pods.pb"))
    fields = ["metadata.name", "spec.containers[*].image", "metadata.labels", "spec.terminationGracePeriodSeconds"]
    rows = list(client.list("pods", fields=fields))
    columns = pyarrow.table(client.list("pods", fields=fields).columns()).to_pydict()
    assert columns["spec.containers[*].image"] == [row[1] for row in rows] and len(rows) > 40
    assert [json.loads(labels) for labels in columns["metadata.labels"]] == [row[2] for row in rows]
    assert columns["spec.terminationGracePeriodSeconds"] == [row[3] for row in rows]


def test_errors(fake: FakeServer, widgets: listwatch.Client) -> None:
    with pytest.raises(TypeError, match="fields="):
        widgets.list("widgets").columns()
    with pytest.raises(ValueError, match="no column"):
        widgets.list("widgets", fields=FIELDS).columns(quantities=["memory"])
    with pytest.raises(TypeError, match="quantities must be"):
        widgets.list("widgets", fields=FIELDS).columns(quantities=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="invalid quantity"):
        widgets.list("widgets", fields=FIELDS).columns(quantities=["text"])
    with pytest.raises(ValueError, match="no quantity"):
        widgets.list("widgets", fields=FIELDS).columns(quantities=["flag"])
    body = json.dumps(widget_list([widget("a", 1), widget("b", 2)], 9)).encode()
    fake.serve(PATH, body[:-30], "application/json")
    with pytest.raises(listwatch.Error):
        widgets.list("widgets", fields=["metadata.name"]).columns()
