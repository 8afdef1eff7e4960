#!/usr/bin/env python3
"""Runs Kubernetes' own conformance tests with their reads through a mirror: run.py PATH-OF-LISTWATCH [FIRST-PORT].

A real kube-apiserver and kube-controller-manager run without a kubelet, so only tests without running Pods are chosen. Each
passes or fails first directly at the API server, and then with all reads sent to a mirror over TLS, which reviews them;
`split` sends the rest to the API server. It fails if a test passes directly only. Needs bin/server and bin/kubectl of
e2e/apiserver; the first build of the tests takes a quarter of an hour of CPU.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LISTWATCH = str(Path(sys.argv[1]).resolve())
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 21800
HERE = Path(__file__).resolve().parent
APISERVER = HERE.parent / "apiserver/bin"
RESOURCES = """pods configmaps secrets services endpoints endpointslices namespaces serviceaccounts nodes events
replicationcontrollers podtemplates resourcequotas limitranges persistentvolumes persistentvolumeclaims deployments replicasets
statefulsets daemonsets controllerrevisions jobs cronjobs ingresses networkpolicies leases.coordination.k8s.io roles rolebindings
clusterroles clusterrolebindings storageclasses poddisruptionbudgets customresourcedefinitions validatingwebhookconfigurations
mutatingwebhookconfigurations certificatesigningrequests horizontalpodautoscalers ingressclasses csidrivers csinodes
csistoragecapacities volumeattachments priorityclasses runtimeclasses apiservices""".split()
FOCUS = "|".join(r"""API priority and fairness
AggregatedDiscovery
CustomResourceDefinition (Watch|resources)
\] Discovery should
FieldValidation
Garbage collector
MutatingAdmissionPolicy
Namespaces should (apply|patch)
Namespaces should ensure that all services
should return chunks
Table transformation
StorageVersionMigration
ValidatingAdmissionPolicy
Watchers should
server version
Certificates API
PodCertificateRequest API
ServiceAccounts should (create|guarantee|run|update)
SubjectReview
sig-instrumentation\]
EndpointSlice should (create and delete|support creating)
EndpointSliceMirroring
Endpoints should test
EndpointsController should create and delete
Ingress API
IngressClass API
ServiceCIDR
Services should (complete|delete|find)
ConfigMap should (fail|run through|update ConfigMap|be immutable)
lease API
Node Lifecycle
PodTemplates
Pods Set QOS
support RuntimeClasses
Secrets should (fail|patch|be immutable)
CRUD Tests resource
LimitRange should list
CSIInlineVolumes
CSINodes
CSIStorageCapacity
PersistentVolumes CSI
StorageClasses CSI
VolumeAttachment
VolumeAttributesClass
Kubectl (api-versions|cluster-info|version)
CustomResourcePublishOpenAPI""".split("\n"))
# They wait for running Pods.
SKIP = r"conversion|Garbage collector.*(rc|RS|dependents)|validate against a Deployment|should mutate a Deployment|allow expressions"
NODE = """{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fake", "labels": {"kubernetes.io/os": "linux"}}, "status": {
"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "no kubelet"}],
"capacity": {"cpu": "32", "memory": "64Gi", "pods": "1000"}, "allocatable": {"cpu": "32", "memory": "64Gi", "pods": "1000"}}}"""


def build(folder):
    go = ["go", "-C", str(HERE)]
    subprocess.run([*go, "test", "-c", "-o", f"{folder}/e2e.test", "k8s.io/kubernetes/test/e2e"], check=True)
    subprocess.run([*go, "build", "-o", f"{folder}/kcm", "k8s.io/kubernetes/cmd/kube-controller-manager"], check=True)
    subprocess.run([*go, "build", "-o", f"{folder}/split", "./split"], check=True)


def results(output):
    """Returns `ok` or `failed` by the name of a test."""
    found = {}
    for block in output.split("-" * 30):
        name = re.search(r"^\[sig-[^\n]*Conformance\][^\n]*", block, re.M)
        outcome = re.search(r"^• \[(FAILED\])?", block, re.M)
        if name and outcome:
            found[re.sub(r" *\[[^\]]*Conformance\]", "", name.group())] = "failed" if outcome.group(1) else "ok"
    return found


def run_tests(folder, kubeconfig):
    command = [f"{folder}/e2e.test", f"-kubeconfig={kubeconfig}", "-provider=skeleton", f"-kubectl-path={APISERVER}/kubectl",
               f"-ginkgo.focus=({FOCUS}).*\\[Conformance\\]", f"-ginkgo.skip={SKIP}", "-ginkgo.no-color", "-ginkgo.v",
               "-allowed-not-ready-nodes=-1", "-minStartupPods=0", "-system-daemonsets-startup-timeout=1s",
               "-disable-log-dump", "-dump-logs-on-failure=false"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    Path(f"{kubeconfig}.log").write_text(done.stdout)
    return results(done.stdout)


def main():
    folder = tempfile.mkdtemp(prefix="conformance")
    binaries = os.environ.get("CONFORMANCE_BINARIES", folder)
    if binaries == folder:
        build(folder)
    processes = []

    def start(name, *command, **options):
        log = open(f"{folder}/{name}.log", "w")
        processes.append(subprocess.Popen(command, stdout=options.pop("stdout", log), stderr=log, **options))
        return processes[-1]

    try:
        server = start("server", f"{APISERVER}/server", "-dir", folder, "-port", str(PORT), "-etcd-port", str(PORT + 1),
                       stdout=subprocess.PIPE, text=True)
        assert server.stdout.readline().startswith("ready"), f"the server did not start: {folder}/server.log"
        direct, split = f"{folder}/direct", f"{folder}/split-kubeconfig"
        text = Path(f"{folder}/kubeconfig").read_text().replace("ca.crt", f"{folder}/ca.crt")
        Path(direct).write_text(text)
        Path(split).write_text(text.replace(f":{PORT}", f":{PORT + 5}"))
        kubectl = [f"{APISERVER}/kubectl", f"--kubeconfig={direct}"]
        start("kcm", f"{binaries}/kcm", f"--kubeconfig={direct}", f"--authentication-kubeconfig={direct}",
              f"--authorization-kubeconfig={direct}", f"--service-account-private-key-file={folder}/service-account.key",
              f"--root-ca-file={folder}/ca.crt", f"--secure-port={PORT + 3}", "--bind-address=127.0.0.1", "--leader-elect=false",
              "--controllers=*,-node-lifecycle-controller,-node-ipam-controller", f"--cert-dir={folder}/kcm")
        for options in ["apply"], ["apply", "--server-side", "--force-conflicts", "--subresource=status"]:
            subprocess.run([*kubectl, *options, "-f", "-"], input=NODE, text=True, check=True, stdout=subprocess.DEVNULL)
        tls = [f"{folder}/server.crt", f"{folder}/server.key"]
        start("mirror", LISTWATCH, "mirror", *RESOURCES, "--listen", f"127.0.0.1:{PORT + 4}", "--tls-cert", tls[0], "--tls-key", tls[1],
              env={**os.environ, "KUBECONFIG": direct})
        splitter = start("split", f"{binaries}/split", "-listen", f"127.0.0.1:{PORT + 5}", "-mirror", f"https://127.0.0.1:{PORT + 4}",
                         "-server", f"https://127.0.0.1:{PORT}", "-cert", tls[0], "-key", tls[1])
        while subprocess.run([*kubectl[:1], f"--kubeconfig={split}", "get", "namespaces"], capture_output=True).returncode:
            time.sleep(1)
        theirs = run_tests(binaries, direct)
        ours = run_tests(binaries, split)
        splitter.send_signal(signal.SIGTERM)
        splitter.wait()
        print(Path(f"{folder}/split.log").read_text().strip())
        passed = [sum(result == "ok" for result in of.values()) for of in (theirs, ours)]
        print(f"{passed[0]} of {len(theirs)} tests pass directly, {passed[1]} of {len(ours)} through the mirror: {folder}")
        lost = [name for name, result in theirs.items() if result == "ok" and ours.get(name) != "ok"]
        if lost or not theirs:
            sys.exit("error: these pass directly only:\n" + "\n".join(lost))
    finally:
        for process in processes:
            process.kill()


main()
