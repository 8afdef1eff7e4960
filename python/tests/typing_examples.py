"""Typical calls, which pyright and mypy check in strict mode."""

from __future__ import annotations

import asyncio
from typing import Any

import listwatch
import listwatch.aio


def lists(client: listwatch.Client) -> list[str]:
    names: list[str] = [pod.name for pod in client.list("pods", label_selector={"app": "web"})]
    with client.list("pods", fields=["metadata.name", "spec.nodeName"]) as rows:
        for name, node in rows:
            print(name, node)
    meta: dict[str, Any] = rows.meta
    print(meta["resource_version"])
    pod: listwatch.Object = client.get("pods", "web-1", namespace="default")
    labels: dict[str, str] = pod.labels
    print(labels, pod["spec"]["containers"][0]["image"], pod.get("status"), pod.to_dict()["kind"])
    return names


def watches(client: listwatch.Client) -> None:
    for event in client.watch("deployments.apps", initial_state=True):
        kind: str = event.type
        found: listwatch.Object = event.object
        print(kind, found.name)
    for row in client.watch("pods", fields=["metadata.name"]):
        values: tuple[Any, ...] = row.object
        print(values)


def caches(client: listwatch.Client) -> None:
    with client.cache("pods", index={"node": "spec.nodeName"}, compressed=True) as pods:
        version: str = pods.wait(timeout=60)
        found: listwatch.Object | None = pods.get("default", "web-1")
        of_node: list[listwatch.Object] = pods.by("node", "node-1")
        print(version, found, of_node, len(pods), ("default", "web-1") in pods)
        for change in pods.changes():
            print(change.type, change.object, change.old)


async def asynchronous() -> None:
    client = listwatch.aio.Client()
    async for pod in client.list("pods"):
        print(pod.name)
    async with client.watch("pods", initial_state=True) as events:
        async for event in events:
            print(event.object.name)
    nodes = await client.cache("nodes")
    await nodes.wait(timeout=5)
    async for change in nodes.changes():
        print(change.type)


def errors(client: listwatch.Client) -> None:
    try:
        list(client.list("pods"))
    except listwatch.ExpiredError:
        pass
    except listwatch.ApiError as error:
        print(error.status, error.reason, error.details)
    except (listwatch.IncompleteError, ConnectionError, TimeoutError) as error:
        print(error)


if __name__ == "__main__":
    asyncio.run(asynchronous())
