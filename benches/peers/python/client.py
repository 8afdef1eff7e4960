"""Lists Pods with the official Python client, and keeps them. The runner measures this process; ../src/process.rs
describes their messages. Needs `pip install kubernetes`."""

import json
import sys
import time

from kubernetes import client


def tell(message):
    print(json.dumps(message), flush=True)


def wait():
    if not sys.stdin.readline():
        sys.exit(0)


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


configuration = client.Configuration(host=sys.argv[1])
api = client.CoreV1Api(client.ApiClient(configuration))
tell("ready")
wait()
start = time.monotonic_ns()
pods = api.list_pod_for_all_namespaces().items
first = time.monotonic_ns() - start
keys = (f"{pod.metadata.namespace}/{pod.metadata.name}/{pod.metadata.resource_version}" for pod in pods)
tell({"items": len(pods), "hash": sum(map(fnv, keys)) & 0xFFFFFFFFFFFFFFFF, "first_item": first})
wait()
tell("idle")
wait()
tell(None)
wait()
