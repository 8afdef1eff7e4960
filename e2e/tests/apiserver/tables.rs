//! A mirror answers Tables from memory, as the API server does: the same cells, of objects in many states.

use std::net::TcpListener;
use std::sync::Arc;

use listwatch::client::{Client, Resource, Transport};
use listwatch_cache::StorageFormat;
use listwatch_e2e::{Result, Server};
use listwatch_mirror::Mirror;
use serde_json::{Value, json};

use crate::mirror::{Running, TABLE, assert_same, collection, get_both};

const PORT: u16 = 16993;

/// Columns of all types. One widget has a value for each column, and another one has none.
const WIDGET_COLUMNS: &str = r#"[
    {"name": "N", "type": "integer", "jsonPath": ".spec.n", "description": "how many"},
    {"name": "Text", "type": "string", "jsonPath": ".spec.text", "priority": 1},
    {"name": "Map", "type": "string", "jsonPath": ".spec"},
    {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]"#;

/// Objects, and the status that each of them gets.
fn objects() -> Vec<(Value, Value)> {
    let container = |name: &str| json!({"name": name, "image": format!("{name}:1")});
    let pod = |name: &str, spec: Value| {
        let mut all = json!({"containers": [container("x"), container("y")]});
        if let (Some(all), Some(more)) = (all.as_object_mut(), spec.as_object()) {
            all.extend(more.clone());
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": all})
    };
    let template =
        json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [container("x"), container("y")]}});
    let selector = json!({"matchLabels": {"a": "1"}, "matchExpressions": [
        {"key": "b", "operator": "NotIn", "values": ["z", "y"]}, {"key": "c", "operator": "DoesNotExist"}]});
    let replicated = |kind: &str| {
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "r"},
            "spec": {"replicas": 3, "selector": selector, "template": template}})
    };
    let mut job_template = template.clone();
    job_template["spec"]["restartPolicy"] = "Never".into();
    let job = |name: &str, mut spec: Value| {
        spec["template"] = job_template.clone();
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
    };
    let service = |name: &str, spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    let node = |name: &str, labels: Value, spec: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec});
    let event = |name: &str, more: Value| {
        let mut event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
        if let (Some(event), Some(more)) = (event.as_object_mut(), more.as_object()) {
            event.extend(more.clone());
        }
        event
    };
    let old = "2024-01-02T03:04:05Z";
    let init = json!({"initContainers": [{"name": "s", "image": "s", "restartPolicy": "Always"}, container("i")],
        "readinessGates": [{"conditionType": "g"}]});
    let port = json!([{"name": "a", "port": 80}, {"name": "b", "port": 53, "protocol": "UDP"}]);
    vec![
        (pod("pending", json!({})), json!({})),
        (
            pod("crashing", json!({})),
            json!({"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}], "containerStatuses": [
                {"name": "x", "ready": true, "restartCount": 0, "image": "", "imageID": "", "state": {"running": {}}},
                {"name": "y", "ready": false, "restartCount": 7, "image": "", "imageID": "",
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 1, "finishedAt": old}}}]}),
        ),
        (
            pod("initializing", init),
            json!({"phase": "Pending", "conditions": [{"type": "g", "status": "True"}], "initContainerStatuses": [
                {"name": "s", "ready": true, "started": true, "restartCount": 1, "image": "", "imageID": "",
                    "state": {"running": {}}},
                {"name": "i", "ready": false, "restartCount": 2, "image": "", "imageID": "",
                    "state": {"terminated": {"exitCode": 1, "signal": 9}}}]}),
        ),
        (
            pod("done", json!({"restartPolicy": "Never"})),
            json!({"phase": "Succeeded", "containerStatuses": [{"name": "x", "ready": false, "restartCount": 0,
                "image": "", "imageID": "", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}),
        ),
        (pod("evicted", json!({})), json!({"phase": "Failed", "reason": "Evicted", "message": "<disk> & memory"})),
        (
            replicated("Deployment"),
            json!({"replicas": 3, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1}),
        ),
        (replicated("ReplicaSet"), json!({"replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 2})),
        (
            job("running", json!({"completions": 5, "parallelism": 2})),
            json!({"startTime": old, "succeeded": 2, "active": 2,
            "ready": 0, "uncountedTerminatedPods": {}}),
        ),
        (job("suspended", json!({"suspend": true})), json!({})),
        (service("plain", json!({"ports": port, "selector": {"b": "1", "a": "2"}})), json!({})),
        (service("node", json!({"type": "NodePort", "ports": port, "externalIPs": ["192.0.2.7"]})), json!({})),
        (
            service("balanced", json!({"type": "LoadBalancer", "ports": port})),
            json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}, {"hostname": "lb.example.com"}]}}),
        ),
        (service("waiting", json!({"type": "LoadBalancer", "ports": port})), json!({})),
        (service("headless", json!({"clusterIP": "None"})), json!({})),
        (service("outside", json!({"type": "ExternalName", "externalName": "db.example.com"})), json!({})),
        (
            node("master", json!({"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "x"}), json!({})),
            json!({"conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "192.0.2.1"}],
                "nodeInfo": {"kubeletVersion": "v1.37.2", "osImage": "Debian", "kernelVersion": "6.1", "architecture":
                    "amd64", "containerRuntimeVersion": "containerd://2"}}),
        ),
        (
            node("cordoned", json!({}), json!({"unschedulable": true})),
            json!({"conditions": [{"type": "Ready", "status": "Unknown"}]}),
        ),
        (
            event(
                "old",
                json!({"type": "Normal", "reason": "Pulled", "message": " a <b>\nc ", "count": 3,
            "source": {"component": "kubelet", "host": "n"}, "firstTimestamp": old, "lastTimestamp": old}),
            ),
            json!({}),
        ),
        (
            event(
                "new",
                json!({"type": "Warning", "reason": "X", "eventTime": "2024-01-02T03:04:05.000001Z", "action": "a",
            "reportingComponent": "example.com/c", "reportingInstance": "i",
            "series": {"count": 9, "lastObservedTime": "2025-01-02T03:04:05.000001Z"}}),
            ),
            json!({}),
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "1", "b": "2"}}),
            json!({}),
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"},
                "binaryData": {"b": "AAAA"}}),
            json!({}),
        ),
        (
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "full"},
            "spec": {"n": 7, "text": "<é> & \"x\""}}),
            json!({}),
        ),
        (json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "empty"}}), json!({})),
    ]
}

/// Objects of the kinds with few states, and their status.
fn objects_of_other_kinds() -> Vec<(Value, Value)> {
    let object = |api_version: &str, kind: &str, name: &str, more: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        if let (Some(object), Some(more)) = (object.as_object_mut(), more.as_object()) {
            object.extend(more.clone());
        }
        object
    };
    let template = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"nodeSelector": {"z": "1", "b": "2"},
        "containers": [{"name": "x", "image": "x:1"}, {"name": "y", "image": "y:1"}]}});
    let selector = json!({"matchLabels": {"a": "1"}});
    let mut job = json!({"spec": {"template": template}});
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    let claim = |more: Value| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
            spec.extend(more.clone());
        }
        json!({ "spec": spec })
    };
    let rules = |count: usize| -> Vec<_> { (0..count).map(|n| json!({"host": format!("{n}.example.com")})).collect() };
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let metric = |r#type: &str, field: &str, value: Value| json!({"type": r#type, field: value});
    let scaler = |metrics: Value| {
        json!({"spec": {"maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "r"},
            "metrics": metrics}})
    };
    let cpu = |target: Value| json!({"name": "cpu", "target": target});
    let none = json!({});
    vec![
        (
            object(
                "apps/v1",
                "StatefulSet",
                "s",
                json!({"spec": {"replicas": 2, "serviceName": "s",
                "selector": selector, "template": template}}),
            ),
            json!({"replicas": 2, "readyReplicas": 1}),
        ),
        (
            object("apps/v1", "DaemonSet", "d", json!({"spec": {"selector": selector, "template": template}})),
            json!({"currentNumberScheduled": 2, "desiredNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 1,
                "updatedNumberScheduled": 2, "numberAvailable": 1}),
        ),
        (
            object(
                "batch/v1",
                "CronJob",
                "never",
                json!({"spec": {"schedule": "*/5 * * * *", "suspend": true,
                "jobTemplate": job}}),
            ),
            none.clone(),
        ),
        (
            object(
                "batch/v1",
                "CronJob",
                "zoned",
                json!({"spec": {"schedule": "@daily", "timeZone": "Etc/UTC",
                "jobTemplate": job}}),
            ),
            json!({"lastScheduleTime": "2024-01-02T03:04:05Z", "active": [{"name": "j"}]}),
        ),
        (
            object(
                "v1",
                "PersistentVolume",
                "bound",
                json!({"spec": {"capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "hostPath": {"path": "/x"},
                "storageClassName": "fast", "claimRef": {"namespace": "default", "name": "claim"}}}),
            ),
            json!({"phase": "Bound", "reason": "why"}),
        ),
        (
            object(
                "v1",
                "PersistentVolume",
                "block",
                json!({"spec": {"capacity": {"storage": "1000Mi"},
                "accessModes": ["ReadWriteOncePod"], "hostPath": {"path": "/x"}, "volumeMode": "Block",
                "persistentVolumeReclaimPolicy": "Delete"}}),
            ),
            none.clone(),
        ),
        (
            object(
                "v1",
                "PersistentVolumeClaim",
                "claim",
                claim(json!({"volumeName": "bound",
                "storageClassName": "fast"})),
            ),
            json!({"phase": "Bound", "accessModes": ["ReadOnlyMany"], "capacity": {"storage": "2Gi"}}),
        ),
        (object("v1", "PersistentVolumeClaim", "waiting", claim(json!({}))), none.clone()),
        (
            object(
                "networking.k8s.io/v1",
                "Ingress",
                "many",
                json!({"spec": {"ingressClassName": "nginx",
                "rules": rules(5), "tls": [{"hosts": ["0.example.com"]}]}}),
            ),
            json!({"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}, {"ip": "192.0.2.9"}]}}),
        ),
        (object("networking.k8s.io/v1", "Ingress", "three", json!({"spec": {"rules": rules(3)}})), none.clone()),
        (
            object("networking.k8s.io/v1", "Ingress", "default", json!({"spec": {"defaultBackend": backend}})),
            none.clone(),
        ),
        (
            object("networking.k8s.io/v1", "NetworkPolicy", "some", json!({"spec": {"podSelector": selector}})),
            none.clone(),
        ),
        (object("networking.k8s.io/v1", "NetworkPolicy", "all", json!({"spec": {"podSelector": {}}})), none.clone()),
        (
            object(
                "v1",
                "Endpoints",
                "e",
                json!({"subsets": [
                {"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]},
                {"addresses": [{"ip": "10.0.0.3"}]}]}),
            ),
            none.clone(),
        ),
        (
            object(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                "full",
                json!({"addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}, {"addresses": ["10.0.0.3"]},
                    {"addresses": ["10.0.0.4"]}],
                "ports": [{"name": "a", "port": 80}, {"name": "b"}]}),
            ),
            none.clone(),
        ),
        (
            object("discovery.k8s.io/v1", "EndpointSlice", "empty", json!({"addressType": "FQDN", "endpoints": []})),
            none.clone(),
        ),
        (
            object("coordination.k8s.io/v1", "Lease", "held", json!({"spec": {"holderIdentity": "node-a"}})),
            none.clone(),
        ),
        (object("coordination.k8s.io/v1", "Lease", "free", json!({})), none.clone()),
        (
            object(
                "policy/v1",
                "PodDisruptionBudget",
                "min",
                json!({"spec": {"minAvailable": "50%",
                "selector": selector}}),
            ),
            json!({"disruptionsAllowed": 2, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 3}),
        ),
        (
            object(
                "policy/v1",
                "PodDisruptionBudget",
                "max",
                json!({"spec": {"maxUnavailable": 1,
                "selector": selector}}),
            ),
            none.clone(),
        ),
        (object("v1", "ServiceAccount", "account", json!({})), none.clone()),
        (
            object(
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                "cpu",
                scaler(json!([
                    metric("Resource", "resource", cpu(json!({"type": "Utilization", "averageUtilization": 80}))),
                    metric(
                        "Resource",
                        "resource",
                        json!({"name": "memory", "target":
                    {"type": "AverageValue", "averageValue": "1500M"}})
                    )
                ])),
            ),
            json!({"currentReplicas": 3, "desiredReplicas": 3, "conditions": [], "currentMetrics": [
                metric("Resource", "resource", json!({"name": "cpu", "current":
                    {"averageUtilization": 7, "averageValue": "70m"}})),
                metric("Resource", "resource", json!({"name": "memory", "current": {"averageValue": "1.5G"}}))]}),
        ),
        (
            object(
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                "many",
                scaler(json!([
                    metric(
                        "Pods",
                        "pods",
                        json!({"metric": {"name": "p"}, "target":
                    {"type": "AverageValue", "averageValue": "3"}})
                    ),
                    metric(
                        "Object",
                        "object",
                        json!({"metric": {"name": "o"}, "target": {"type": "Value", "value": "5k"},
                    "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"}})
                    ),
                    metric(
                        "External",
                        "external",
                        json!({"metric": {"name": "e"}, "target":
                    {"type": "AverageValue", "averageValue": "7"}})
                    )
                ])),
            ),
            json!({"currentReplicas": 1, "desiredReplicas": 1, "conditions": [], "currentMetrics": [
                metric("Pods", "pods", json!({"metric": {"name": "p"}, "current": {"averageValue": "1"}}))]}),
        ),
        (
            object(
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                "external",
                scaler(json!([
                    metric(
                        "External",
                        "external",
                        json!({"metric": {"name": "e"}, "target":
                    {"type": "AverageValue", "averageValue": "7"}})
                    ),
                    metric(
                        "ContainerResource",
                        "containerResource",
                        json!({"container": "x", "name": "cpu", "target":
                    {"type": "AverageValue", "averageValue": "250m"}})
                    )
                ])),
            ),
            json!({"currentReplicas": 1, "desiredReplicas": 1, "conditions": [], "currentMetrics": [
                metric("External", "external", json!({"metric": {"name": "e"}, "current":
                    {"value": "4", "averageValue": "2"}})),
                metric("ContainerResource", "containerResource", json!({"container": "x", "name": "cpu", "current":
                    {"averageValue": "100m"}}))]}),
        ),
    ]
}

fn create(server: &Server) -> Result<()> {
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "first"}});
    server.apply_widgets(&widget.to_string())?;
    let columns =
        format!(r#"[{{"op": "add", "path": "/spec/versions/0/additionalPrinterColumns", "value": {WIDGET_COLUMNS}}}]"#);
    server.kubectl(&["patch", "crd", "widgets.example.com", "--type=json", "-p", &columns])?;
    for (object, status) in objects().into_iter().chain(objects_of_other_kinds()) {
        server.apply(&object.to_string())?;
        if status.as_object().is_some_and(|status| !status.is_empty()) {
            let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let patch = json!({ "status": status }).to_string();
            server.kubectl(&["patch", &kind, name, "--subresource=status", "--type=merge", "-p", &patch])?;
        }
    }
    Ok(())
}

/// Removes the annotation that every DaemonSet in `apps/v1` has. A Table of the server without whole objects has the
/// metadata of its internal version, which lacks it.
fn without_generation(table: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(table).replace("\"deprecated.daemonset.template.generation\":\"1\",", "").into()
}

/// Returns the token of an account with the rights of `deploy/chart`: to read what is mirrored, and the definition of
/// the custom resource by its name.
fn account(server: &Server) -> Result<String> {
    let read = "--verb=get,list,watch";
    let mirrored = "pods,nodes,deployments.apps,replicasets.apps,services,configmaps,secrets,events,jobs.batch,namespaces,\
        statefulsets.apps,daemonsets.apps,cronjobs.batch,persistentvolumes,persistentvolumeclaims,\
        ingresses.networking.k8s.io,networkpolicies.networking.k8s.io,endpoints,endpointslices.discovery.k8s.io,\
        leases.coordination.k8s.io,poddisruptionbudgets.policy,serviceaccounts,\
        horizontalpodautoscalers.autoscaling,widgets.example.com";
    let definitions =
        ["--resource=customresourcedefinitions.apiextensions.k8s.io", "--resource-name=widgets.example.com"];
    server.kubectl(&["create", "serviceaccount", "mirror", "-n", "default"])?;
    for (role, rule) in [("mirrored", &[&*format!("--resource={mirrored}")][..]), ("definitions", &definitions)] {
        server.kubectl(&[&["create", "clusterrole", role, read], rule].concat())?;
        let [of, to] = [format!("--clusterrole={role}"), "--serviceaccount=default:mirror".to_owned()];
        server.kubectl(&["create", "clusterrolebinding", role, &of, &to])?;
    }
    Ok(server.kubectl(&["create", "token", "mirror", "-n", "default"])?.trim().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_writes_the_tables_of_the_server() -> Result<()> {
    let server = Server::start(PORT, &[])?;
    create(&server)?;
    let widgets = Resource::new("example.com", "v1", "widgets", "Widget");
    let transport: Arc<dyn Transport> = Arc::new(server.http(&account(&server)?)?.build()?);
    let client = Client::new(Arc::clone(&transport));
    let resources = [
        Resource::PODS,
        Resource::NODES,
        Resource::DEPLOYMENTS,
        Resource::REPLICA_SETS,
        Resource::SERVICES,
        Resource::CONFIG_MAPS,
        Resource::SECRETS,
        Resource::EVENTS,
        Resource::JOBS,
        Resource::NAMESPACES,
        Resource::STATEFUL_SETS,
        Resource::DAEMON_SETS,
        Resource::CRON_JOBS,
        Resource::PERSISTENT_VOLUMES,
        Resource::PERSISTENT_VOLUME_CLAIMS,
        Resource::INGRESSES,
        Resource::NETWORK_POLICIES,
        Resource::ENDPOINTS,
        Resource::ENDPOINT_SLICES,
        Resource::LEASES,
        Resource::POD_DISRUPTION_BUDGETS,
        Resource::SERVICE_ACCOUNTS,
        Resource::HORIZONTAL_POD_AUTOSCALERS,
        widgets,
    ];
    let paths = resources.clone().map(|resource| {
        let group = if resource.group().is_empty() { "api".to_owned() } else { format!("apis/{}", resource.group()) };
        format!("{group}/{}/{}", resource.version(), resource.plural())
    });
    let collections = resources.map(|resource| collection(&client, resource, StorageFormat::Compressed)).into();
    let mirror = Mirror::new(transport).stale_reads(true);
    let mut mirror = Running::start(mirror, collections, TcpListener::bind("127.0.0.1:0")?, "http").await?;
    let http = reqwest::Client::builder().danger_accept_invalid_certs(true).build()?;
    // The definition arrives after the mirror began to serve.
    let table_of_widgets = [&mirror.url, &server.url].map(|url| format!("{url}/apis/example.com/v1/widgets"));
    while !get_both(&http, table_of_widgets.clone(), TABLE).await?[0].2 {
        tokio::task::yield_now().await;
    }
    for path in &paths {
        for query in ["", "?limit=2", "?includeObject=Object", "?includeObject=None"] {
            let urls = [&mirror.url, &server.url].map(|url| format!("{url}/{path}{query}"));
            let [ours, theirs] = get_both(&http, urls, TABLE).await?;
            assert!(ours.2, "{path}{query} was forwarded");
            assert_eq!((ours.0, &ours.1), (theirs.0, &theirs.1), "{path}{query}");
            let [ours, theirs] = [ours.3, theirs.3].map(|table| without_generation(&table));
            assert_same(&format!("{path}{query}"), &ours, &theirs);
        }
    }
    // What people see, with ages that change.
    let all = "pods,nodes,deployments,replicasets,services,configmaps,secrets,events,jobs,namespaces,statefulsets,\
               daemonsets,cronjobs,persistentvolumes,persistentvolumeclaims,ingresses,networkpolicies,endpoints,\
               endpointslices,leases,poddisruptionbudgets,serviceaccounts,horizontalpodautoscalers,widgets";
    for args in
        [&["get", all, "-A"][..], &["get", all, "-A", "-o", "wide"], &["get", "pod", "crashing", "--show-labels"]]
    {
        let mut before = server.kubectl(args)?;
        loop {
            let ours = mirror.kubectl(args)?;
            let after = server.kubectl(args)?;
            if before == after {
                assert_eq!(ours, after, "{args:?}");
                break;
            }
            before = after;
        }
    }
    mirror.stop().await
}
