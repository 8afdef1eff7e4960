"""The examples of the docstrings run. Their output depends on the cluster, so it is not compared."""

from __future__ import annotations

import doctest
import inspect
import json
from pathlib import Path
from types import ModuleType

import pytest
from fake import DISCOVERY, FakeServer, Request, fixture, watch_frame, widget, widget_list
from test_watches import bookmark

import listwatch
import listwatch.aio
from listwatch import _cache, _client, _quantity

DEPLOYMENTS = {"name": "deployments", "shortNames": ["deploy"], "namespaced": True, "kind": "Deployment", "verbs": ["list", "watch"]}
APPS = {"groupVersion": "apps/v1", "version": "v1"}


class AnyOutput(doctest.OutputChecker):
    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return True


def answer_pods(request: Request) -> None:
    if "watch" not in request.query:
        is_metadata = "PartialObjectMetadata" in request.headers["Accept"]
        request.send(fixture("pods-metadata.pb" if is_metadata else "pods.pb"))
        return
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-1", "namespace": "default", "resourceVersion": "1"}}
    pod |= {"spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}
    request.begin(None, "application/json")
    for frame in (watch_frame("ADDED", pod), bookmark_of(pod)):
        request.write(frame)
    request.until_closed()


def bookmark_of(item: dict[str, object]) -> bytes:
    frame = json.loads(bookmark(9, True))
    return watch_frame("BOOKMARK", {**frame["object"], "kind": item["kind"], "apiVersion": item["apiVersion"]})


@pytest.mark.parametrize("module", [listwatch, listwatch.aio, _client, _cache, _quantity])
def test_the_examples_run(fake: FakeServer, module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DISCOVERY, "/apis", {"kind": "APIGroupList", "groups": [{"name": "apps", "versions": [APPS], "preferredVersion": APPS}]})
    monkeypatch.setitem(DISCOVERY, "/apis/apps/v1", {"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [DEPLOYMENTS]})
    fake.answers["/api/v1/pods"] = answer_pods
    fake.serve("/api/v1/nodes", fixture("nodes.pb"))
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-1", "namespace": "default"}}
    fake.answers["/api/v1/namespaces/default/pods/web-1"] = lambda request: request.send_json(pod)

    def answer_deployments(request: Request) -> None:
        found = {**widget("web", 1), "kind": "Deployment", "apiVersion": "apps/v1"}
        if "watch" not in request.query:
            request.send_json({**widget_list([found], 7), "kind": "DeploymentList", "apiVersion": "apps/v1"})
            return
        request.begin(None, "application/json")
        request.write(watch_frame("ADDED", found) + bookmark_of(found))
        request.until_closed()

    fake.answers["/apis/apps/v1/deployments"] = answer_deployments
    config = {
        "clusters": [{"name": "c", "cluster": {"server": fake.url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "current-context": "c",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    client = listwatch.Client()
    pods = client.cache("pods", index={"node": "spec.nodeName"})
    pods.wait(timeout=60)
    known = {"client": client, "pods": pods, "pod": client.get("pods", "web-1"), "listwatch": listwatch}
    runner = doctest.DocTestRunner(checker=AnyOutput())
    ran = 0
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, globs={**vars(module), **known}):
        ran += len(test.examples)
        runner.run(test)
    pods.close()
    assert runner.failures == 0 and ran > 0


def test_help_is_enough() -> None:
    for function in (listwatch.Client.list, listwatch.Client.watch, listwatch.Client.cache, listwatch.Client.get):
        text = inspect.getdoc(function) or ""
        for name in inspect.signature(function).parameters:
            is_shared = function is not listwatch.Client.list and "parameters are those of" in text
            assert name in ("self", "resource", "name", "namespace", "timeout", "metadata_only", "label_selector", "field_selector") or f":param {name}:" in text or is_shared, name
