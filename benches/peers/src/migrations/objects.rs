//! The objects of the benchmark, and their changes.

use fastrand::Rng;
use k8s_openapi::api::core::v1::Pod;
use listwatch::{ItemError, ListReader};
use serde_json::{Value, json};

use super::Program;
use super::operator::{FINALIZER, WebApp};
use super::server::ApiServer;
use crate::follower::CHANGED_AT;

/// Fills the server with this many objects: Pods as diverse as in a real cluster, or what is made from them.
///
/// # Errors
/// If the corpus cannot be read.
pub fn fill(server: &ApiServer, program: Program, objects: u32) -> anyhow::Result<()> {
    match program {
        Program::Router => pods(objects, |mut pod, number| {
            pod["metadata"]["labels"]["role"] = "worker".into();
            let ip = format!("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255);
            pod["status"]["phase"] = "Running".into();
            pod["status"]["podIP"] = ip.into();
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
            server.put("pods", pod);
        }),
        Program::Operator => {
            let mut rng = Rng::with_seed(45);
            for number in 0..objects / 3 {
                let env: serde_json::Map<_, _> =
                    (0..10).map(|variable| (format!("VARIABLE_{variable}"), text(&mut rng, 40).into())).collect();
                let metadata = json!({
                    "namespace": format!("team-{}", number % 500), "name": format!("app-{number}"),
                    "finalizers": [FINALIZER], "managedFields": managed_fields(),
                });
                let spec = json!({"image": format!("registry.example.com/app-{number}:1"), "replicas": 3, "port": 8080, "env": env});
                server.put("webapps", json!({"metadata": metadata, "spec": spec}));
            }
            for app in server.list("webapps") {
                let app: WebApp = serde_json::from_value(app)?;
                let mut deployment = serde_json::to_value(app.deployment())?;
                deployment["metadata"]["managedFields"] = managed_fields();
                deployment["status"] = json!({"replicas": 3, "readyReplicas": 3});
                server.put("deployments", deployment);
                let mut service = serde_json::to_value(app.service())?;
                service["metadata"]["managedFields"] = managed_fields();
                server.put("services", service);
            }
            Ok(())
        }
        Program::Policies => {
            let mut rng = Rng::with_seed(46);
            for number in 0..500 {
                let labels = json!({"team": format!("team-{}", number % 50)});
                server.put("namespaces", json!({"metadata": {"name": format!("team-{number}"), "labels": labels}}));
            }
            let others = objects.saturating_sub(500) / 5;
            for number in 0..2 * others {
                let data = json!({"settings": text(&mut rng, 1500), "more": text(&mut rng, 500)});
                server.put("configmaps", json!({"metadata": metadata(number), "data": data}));
            }
            for number in 0..others {
                let mut metadata = metadata(number);
                metadata["labels"]["host"] = format!("{number}.example.com").into();
                let spec =
                    json!({"selector": {"app": text(&mut rng, 10)}, "ports": [{"port": 80, "targetPort": 8080}]});
                server.put("services", json!({"metadata": metadata, "spec": spec}));
            }
            pods(2 * others, |pod, number| {
                let labels = &pod["metadata"]["labels"];
                let template = json!({"metadata": {"labels": labels}, "spec": pod["spec"]});
                let mut metadata = metadata(number);
                metadata["managedFields"] = pod["metadata"]["managedFields"].clone();
                let spec = json!({"replicas": 3, "selector": {"matchLabels": labels}, "template": template});
                server.put("deployments", json!({"metadata": metadata, "spec": spec, "status": {"readyReplicas": 3}}));
            })
        }
    }
}

/// Changes a random object, as its controllers do: of the operator, a Deployment's status.
pub fn change(server: &ApiServer, program: Program, keys: &[(&'static str, String, String)], rng: &mut Rng) {
    let (plural, namespace, name) = &keys[rng.usize(..keys.len())];
    let (number, is_flip) = (rng.u32(..), rng.u8(..10) == 0);
    server.modify(plural, namespace, name, |object| {
        if program == Program::Operator {
            object["status"]["readyReplicas"] = (number % 4).into();
            return;
        }
        object["metadata"]["annotations"][CHANGED_AT] = number.to_string().into();
        if program == Program::Router && is_flip {
            let ready = &mut object["status"]["conditions"][0]["status"];
            *ready = if *ready == "True" { "False" } else { "True" }.into();
        }
    });
}

/// Returns the keys of the objects that change.
#[must_use]
pub fn keys(server: &ApiServer, program: Program) -> Vec<(&'static str, String, String)> {
    let plurals: &[&'static str] = match program {
        Program::Router => &["pods"],
        Program::Operator => &["deployments"],
        Program::Policies => &["configmaps", "namespaces", "services", "deployments"],
    };
    let of = |plural| server.keys(plural).into_iter().map(move |(namespace, name)| (plural, namespace, name));
    plurals.iter().copied().flat_map(of).collect()
}

/// Returns the endpoint that a router should have of this Pod.
#[must_use]
pub fn endpoint_of(pod: &Value) -> Option<String> {
    let is_ready = pod["status"]["conditions"][0]["status"] == "True";
    is_ready.then(|| format!("http://{}:8000", pod["status"]["podIP"].as_str().unwrap_or_default()))
}

fn pods(count: u32, mut each: impl FnMut(Value, u32)) -> anyhow::Result<()> {
    let list = listwatch_corpus::pods(count);
    let pods = ListReader::with(list.as_slice(), |item| {
        let mut json = Vec::new();
        item.to_json(&mut json)?;
        Ok::<_, ItemError>(json)
    });
    for (number, pod) in (0..).zip(pods) {
        // Without the fields that a Pod does not have.
        let pod: Pod = serde_json::from_slice(&pod?)?;
        each(serde_json::to_value(pod)?, number);
    }
    Ok(())
}

fn metadata(number: u32) -> Value {
    let labels = json!({"app.kubernetes.io/name": format!("app-{number}"), "app.kubernetes.io/managed-by": "Helm"});
    let namespace = format!("team-{}", number % 500);
    json!({"namespace": namespace, "name": format!("app-{number}"), "labels": labels, "managedFields": managed_fields()})
}

fn managed_fields() -> Value {
    let fields = json!({
        "f:metadata": {"f:labels": {".": {}, "f:app.kubernetes.io/name": {}, "f:app.kubernetes.io/managed-by": {}}},
        "f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": {"f:spec": {"f:containers": {}}}},
    });
    json!([{
        "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields, "manager": "helm", "operation": "Update",
        "time": "2026-01-01T00:00:00Z",
    }])
}

fn text(rng: &mut Rng, length: usize) -> String {
    (0..length).map(|_| rng.alphanumeric()).collect()
}
