//! A server with three kinds of custom resources, in place of a cluster.

use std::error::Error;

use listwatch_testserver::{Answer, Body, Server};
use serde_json::json;

/// Group, version, plural and kind.
const KINDS: [[&str; 4]; 3] = [
    ["cert-manager.io", "v1", "certificates", "Certificate"],
    ["serving.knative.dev", "v1", "revisions", "Revision"],
    ["argoproj.io", "v1alpha1", "applications", "Application"],
];

/// Starts a server with this many objects of each kind.
pub async fn cluster(count: u32) -> Result<Server, Box<dyn Error>> {
    let mut collections = vec![("customresourcedefinitions".to_owned(), definitions())];
    for [group, version, plural, kind] in KINDS {
        let api_version = format!("{group}/{version}");
        let objects = (0..count).map(|n| object(&api_version, kind, n));
        collections.push((plural.to_owned(), initial_events(&api_version, kind, objects)));
    }
    let server = Server::start(move |request, _| {
        let path = request.path.split('?').next().unwrap_or_default();
        let found = collections.iter().find(|(plural, _)| path.ends_with(&format!("/{plural}")));
        match found {
            // The watch stays open after its initial events.
            Some((_, events)) => {
                Answer::ok(Body::replay(events.clone()).stall_at(events.len() as u64)).content_type("application/json")
            }
            None => Answer::ok(Body::replay("")).status(404),
        }
    });
    Ok(server.await?)
}

fn definitions() -> String {
    let definitions = KINDS.map(|[group, version, plural, kind]| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"), "uid": plural, "resourceVersion": "1"},
            "spec": {
                "group": group,
                "names": {"plural": plural, "kind": kind},
                "scope": "Namespaced",
                "versions": [
                    {"name": "v1beta1", "served": false, "storage": false},
                    {"name": "v0", "served": true, "storage": false},
                    {"name": version, "served": true, "storage": true},
                ],
            },
        })
        .to_string()
    });
    initial_events("apiextensions.k8s.io/v1", "CustomResourceDefinition", definitions)
}

fn object(api_version: &str, kind: &str, n: u32) -> String {
    let random = u64::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (name, host) = (format!("app-{n:05}"), format!("app-{n:05}.example.com"));
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": format!("team-{}", n % 20),
            "uid": format!("{:08x}-5bd1-4e0c-9a6d-{:012x}", random >> 32, random >> 16),
            "resourceVersion": (1000 + n).to_string(),
            "creationTimestamp": format!("2026-{:02}-{:02}T08:00:00Z", n % 12 + 1, n % 28 + 1),
            "labels": {"app": name, "app.kubernetes.io/managed-by": "example"},
        },
        "spec": {"secretName": format!("{name}-tls"), "dnsNames": [host], "replicas": random % 7},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "Ready", "message": "The object is up to date"},
        ]},
    })
    .to_string()
}

/// Returns the events of a watch that begins with the collection.
fn initial_events(api_version: &str, kind: &str, objects: impl IntoIterator<Item = String>) -> String {
    let mut events = String::new();
    for object in objects {
        events.extend([r#"{"type":"ADDED","object":"#, &object, "}\n"]);
    }
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let metadata = json!({"resourceVersion": "1000000", "annotations": annotations});
    let end = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    events + &json!({"type": "BOOKMARK", "object": end}).to_string() + "\n"
}
