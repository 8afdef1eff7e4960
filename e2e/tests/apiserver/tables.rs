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

fn create(server: &Server) -> Result<()> {
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "first"}});
    server.apply_widgets(&widget.to_string())?;
    let columns =
        format!(r#"[{{"op": "add", "path": "/spec/versions/0/additionalPrinterColumns", "value": {WIDGET_COLUMNS}}}]"#);
    server.kubectl(&["patch", "crd", "widgets.example.com", "--type=json", "-p", &columns])?;
    for (object, status) in objects() {
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

/// Returns the token of an account with the rights of `deploy/chart`: to read what is mirrored, and the definition of
/// the custom resource by its name.
fn account(server: &Server) -> Result<String> {
    let read = "--verb=get,list,watch";
    let mirrored = "pods,nodes,deployments.apps,replicasets.apps,services,configmaps,secrets,events,jobs.batch,namespaces,\
        widgets.example.com";
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
            assert_same(&format!("{path}{query}"), &ours.3, &theirs.3);
        }
    }
    // What people see, with ages that change.
    let all = "pods,nodes,deployments,replicasets,services,configmaps,secrets,events,jobs,namespaces,widgets";
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
