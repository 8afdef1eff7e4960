"""The recipes of the docs run against a real API server."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import ApiServer

import listwatch
import listwatch.aio

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "docs" / "recipes.md").read_text(), re.DOTALL)
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: recipes, labels: {{app: recipes}}}}
spec:
  nodeName: node-{name}
  containers:
  - {{name: a, image: a, resources: {{requests: {{cpu: 250m, memory: 64Mi}}}}}}
  - {{name: b, image: b, resources: {{requests: {{cpu: "1"}}}}}}
"""


@pytest.fixture(scope="module")
def client(api_server: ApiServer) -> listwatch.Client:
    account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: recipes}\n"
    api_server.kubectl("create", "namespace", "recipes")
    api_server.kubectl("apply", "-f", "-", stdin=account)
    for name in ("one", "two"):
        api_server.kubectl("apply", "-f", "-", stdin=POD.format(name=name))
    return listwatch.Client(kubeconfig=api_server.kubeconfig)


class OfRecipes:
    """A client that lists the Pods of the recipes' namespace only."""

    def __init__(self, client: listwatch.Client) -> None:
        self.client = client

    def list(self, resource: str, **options: Any) -> Any:
        return self.client.list(resource, namespace="recipes", **options)


def run(at: int, **known: Any) -> dict[str, Any]:
    exec(compile(BLOCKS[at], f"recipe {at}", "exec"), known)
    return known


def test_all_recipes_have_a_test() -> None:
    assert len(BLOCKS) == 5


def test_kubespawners_reflector(client: listwatch.Client, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", api_server.kubeconfig)
    reflector_of = run(0, listwatch=listwatch)["PodReflector"]

    async def main() -> None:
        reflector = reflector_of("recipes", {"app": "recipes"})
        await reflector.start()
        assert reflector["recipes/one"]["status"]["phase"] == "Pending"
        with pytest.raises(KeyError):
            reflector["recipes/none"]
        await reflector.stop()

    asyncio.run(main())


def test_a_stream_in_place_of_ijson(client: listwatch.Client) -> None:
    used = run(1, client=OfRecipes(client), used=Counter(), listwatch=listwatch)["used"]
    assert used == {"node-one": 1.25, "node-two": 1.25}


def test_shared_informer(client: listwatch.Client, api_server: ApiServer) -> None:
    seen: list[tuple[str, str]] = []
    added, deleted = threading.Event(), threading.Event()

    def on_add(pod: listwatch.Object) -> None:
        seen.append(("add", pod.name))
        if pod.name == "three":
            added.set()

    def on_delete(pod: listwatch.Object) -> None:
        seen.append(("delete", pod.name))
        deleted.set()

    with client.cache("pods", namespace="recipes", compressed=True) as pods:
        pods.wait(timeout=60)
        run(2, pods=pods, threading=threading, on_add=on_add, on_update=lambda old, new: None, on_delete=on_delete)
        api_server.kubectl("apply", "-f", "-", stdin=POD.format(name="three"))
        assert added.wait(60)
        api_server.kubectl("delete", "pod", "three", "-n", "recipes", "--grace-period=0", "--force")
        assert deleted.wait(60)
    assert seen == [("add", "one"), ("add", "two"), ("add", "three"), ("delete", "three")]


def test_pandas_and_polars(client: listwatch.Client) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    found = run(3, client=OfRecipes(client), pandas=pandas, polars=polars)
    by_node = {row["node"]: (row["cpu"], row["memory"]) for row in found["by_node"].to_dicts()}
    assert by_node == {"node-one": (1.25, 67108864.0), "node-two": (1.25, 67108864.0)}
    frame = found["frame"].set_index("name")
    assert frame["cpu"].to_dict() == {"one": 1.25, "two": 1.25} and frame["node"]["two"] == "node-two"
    found = run(4, client=OfRecipes(client), pandas=pandas, polars=polars)
    expected = [("one", "node-one", "Pending"), ("two", "node-two", "Pending")]
    assert found["of_polars"].rows() == expected
    assert list(found["of_pandas"].itertuples(index=False, name=None)) == expected
