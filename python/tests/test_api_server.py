"""Against a real API server, beside kubernetes-client/python: every resource, object by object."""

from __future__ import annotations

import json
import threading
from typing import Any

import kubernetes
import pytest
from conftest import ApiServer
from kubernetes.dynamic import DynamicClient

import listwatch

MANIFESTS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gd]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: default}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: default, labels: {app: web}, annotations: {note: "é <&> \\u2028"}}
spec:
  nodeName: node-1
  tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 0}]
  volumes: [{name: v, configMap: {name: c, defaultMode: 420}}, {name: e, emptyDir: {sizeLimit: 1500Mi}}]
  containers:
  - name: main
    ports: [{name: http, containerPort: 80}]
    image: nginx
    resources: {requests: {cpu: 250m, memory: 64Mi}}
    readinessProbe: {httpGet: {port: http, path: /}, periodSeconds: 5}
    livenessProbe: {tcpSocket: {port: 80}}
---
apiVersion: v1
kind: Secret
metadata: {name: s, namespace: default}
data: {key: AAEC/w==, empty: ""}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: web}, ports: [{name: a, port: 80, targetPort: http}, {name: b, port: 81, targetPort: 8081}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  strategy: {rollingUpdate: {maxSurge: 25%, maxUnavailable: 1}}
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: c, namespace: default}
spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i, namespace: default}
spec: {rules: [{host: a.b, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: example.com/fast
"""

GADGET = """
apiVersion: example.com/v1
kind: Gadget
metadata: {name: g, namespace: default}
spec: {size: 3, ratio: 0.25, big: 9007199254740993, text: "é \\u2028 <", list: [1, null, {a: []}], node: n1}
"""


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> ApiServer:
    api_server.kubectl("apply", "--server-side", "-f", "-", stdin=MANIFESTS)
    api_server.kubectl("wait", "--for=condition=established", "crd/gadgets.example.com", "--timeout=60s")
    api_server.kubectl("apply", "--server-side", "-f", "-", stdin=GADGET)
    return api_server


@pytest.fixture(scope="module")
def client(server: ApiServer) -> listwatch.Client:
    return listwatch.Client(kubeconfig=server.kubeconfig)


def normalized(item: dict[str, Any]) -> dict[str, Any]:
    """Leaves out what changes by itself between two lists."""
    if item["kind"] == "Lease":
        item = {**item, "spec": None, "metadata": {**item["metadata"], "resourceVersion": None, "managedFields": None}}
    return item


@pytest.mark.filterwarnings("ignore:Unverified HTTPS")
def test_every_resource_equals_the_python_client(server: ApiServer, client: listwatch.Client) -> None:
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(server.kubeconfig, client_configuration=configuration)
    # From 3.13, Python refuses the certificate of the tests' server, which has no authority key identifier.
    configuration.verify_ssl = False
    dynamic = DynamicClient(kubernetes.client.ApiClient(configuration))
    compared, kinds = 0, set[str]()
    for resource in dynamic.resources.search():
        if "list" not in (resource.verbs or ()) or "/" in resource.name or resource.kind.endswith("List"):
            continue
        expected = {}
        for item in dynamic.get(resource).to_dict()["items"]:
            item = {"apiVersion": resource.group_version, "kind": resource.kind, **item}
            metadata = item["metadata"]
            expected[metadata.get("namespace", ""), metadata["name"]] = item
        found = {(item.namespace, item.name): item for item in client.list(f"{resource.group_version}/{resource.kind}")}
        assert found.keys() == expected.keys(), resource
        for key, item in found.items():
            assert normalized(item.to_dict()) == normalized(expected[key]), (resource, key)
            assert normalized(json.loads(item.to_json())) == normalized(expected[key])
            compared += 1
        if found:
            kinds.add(resource.kind)
    assert compared > 150 and {"Pod", "Secret", "Deployment", "CronJob", "Ingress", "Gadget", "ClusterRole"} <= kinds, (compared, kinds)


def test_names_and_words_of_kubectl(client: listwatch.Client) -> None:
    for name in ("po", "pods", "Pod", "pods.v1.", "v1/Pod"):
        assert client.resolve(name)["plural"] == "pods"
    assert client.get("gd", "g", namespace="default")["spec"]["big"] == 9007199254740993
    assert client.get("pods", "web-1")["metadata"]["annotations"]["note"] == "é <&> \u2028"
    assert client.count("clusterroles") > 50
    with pytest.raises(listwatch.UnknownResourceError, match="the server doesn't have a resource type \"nothings\""):
        client.count("nothings")
    with pytest.raises(listwatch.ApiError, match='pods "none" not found') as caught:
        client.get("pods", "none")
    assert caught.value.status == 404 and caught.value.details["name"] == "none"  # type: ignore[index]


def test_metadata_only_pages_and_selectors(client: listwatch.Client) -> None:
    pod = next(client.list("pods", metadata_only=True, namespace="default", label_selector={"app": "web"}))
    assert (pod.name, pod.kind) == ("web-1", "PartialObjectMetadata") and "spec" not in pod
    whole = [role.name for role in client.list("clusterroles")]
    pages = client.list("clusterroles", page_size=10)
    assert [role.name for role in pages] == whole and pages.meta["pages"] > 3
    assert [row for row in client.list("pods", field_selector={"spec.nodeName": "node-1"}, fields=["metadata.name"])] == [("web-1",)]


def test_forbidden(server: ApiServer) -> None:
    nobody = listwatch.Client(server=server.url, ca=server.folder / "ca.crt", token="nobody")
    with pytest.raises(listwatch.ApiError, match="forbidden") as caught:
        list(nobody.list("pods"))
    assert caught.value.status == 403 and caught.value.reason == "Forbidden"
    impersonated = listwatch.Client(kubeconfig=server.kubeconfig, impersonate="jane")
    with pytest.raises(listwatch.ApiError, match='User "jane" cannot list'):
        list(impersonated.list("pods"))


def test_from_configuration(server: ApiServer) -> None:
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(server.kubeconfig, client_configuration=configuration)
    client = listwatch.Client.from_configuration(configuration)
    assert client.get("nodes", "node-1").name == "node-1"


def test_watch_and_cache_follow_writes(server: ApiServer, client: listwatch.Client) -> None:
    gadgets = client.cache("gadgets", index={"node": "spec.node"}, compressed=True)
    gadgets.wait(timeout=60)
    events: list[tuple[str, str]] = []
    done = threading.Event()
    watch = client.watch("gadgets", namespace="default", resource_version=gadgets.resource_version)

    def read() -> None:
        for event in watch:
            events.append((event.type, event.object.name))
            if event.type == "DELETED":
                done.set()
                return

    reader = threading.Thread(target=read)
    reader.start()
    server.kubectl("apply", "--server-side", "-f", "-", stdin=GADGET.replace("name: g,", "name: h,").replace("n1", "n2"))
    version = client.get("gadgets", "h").resource_version
    gadgets.wait(timeout=60, resource_version=version)
    assert [found.name for found in gadgets.by("node", "n2")] == ["h"]
    server.kubectl("delete", "gadget", "h")
    assert done.wait(60)
    reader.join(60)
    assert events == [("ADDED", "h"), ("DELETED", "h")]
    for change in gadgets.changes():
        if change.type == "SYNCED":
            break
    gadgets.close()
