//! `--clean`: objects without what the server sets, so that they can be applied again, here or in another cluster.

use serde_json::{Map, Value};

/// What the server writes into the metadata. Owners are named by their UID: without its owner, an object would be
/// deleted as garbage.
const METADATA: [&str; 9] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
    "ownerReferences",
];

const ANNOTATIONS: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

/// The labels that bind a Job to its Pods, by its UID.
const JOB_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Removes the status, UIDs, versions, times, owners and managed fields, and of some kinds what another object of the
/// same specification would not have.
pub fn clean(object: &mut Value) {
    let Value::Object(object) = object else { return };
    object.remove("status");
    if let Some(metadata) = member(object, "metadata") {
        for name in METADATA {
            metadata.remove(name);
        }
        remove_from(metadata, "annotations", &ANNOTATIONS);
    }
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(spec) = member(object, "spec") else { return };
    match &*kind {
        // A headless Service stays one.
        "Service" if spec.get("clusterIP").and_then(Value::as_str) != Some("None") => {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        "PersistentVolume" => remove_from(spec, "claimRef", &["uid", "resourceVersion"]),
        "Job" if spec.get("manualSelector") != Some(&Value::Bool(true)) => {
            spec.remove("selector");
            if let Some(metadata) = member(spec, "template").and_then(|template| member(template, "metadata")) {
                remove_from(metadata, "labels", &JOB_LABELS);
            }
            if let Some(metadata) = member(object, "metadata") {
                remove_from(metadata, "labels", &JOB_LABELS);
            }
        }
        _ => {}
    }
}

fn member<'a>(object: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(name).and_then(Value::as_object_mut)
}

/// Removes members of a member, and that itself if nothing is left.
fn remove_from(object: &mut Map<String, Value>, name: &str, names: &[&str]) {
    if let Some(inner) = member(object, name) {
        for name in names {
            inner.remove(*name);
        }
        if inner.is_empty() {
            object.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn removes_what_the_server_sets() {
        let metadata = json!({"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "1", "generation": 2,
            "creationTimestamp": "t", "labels": {"app": "x"}, "managedFields": [], "ownerReferences": [{"uid": "v"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}});
        let cleaned = json!({"name": "a", "namespace": "b", "labels": {"app": "x"}});
        let with = |kind: &str, spec: Value| json!({"kind": kind, "metadata": metadata, "spec": spec, "status": {}});
        for (kind, spec, expected) in [
            ("Deployment", json!({"replicas": 3}), json!({"replicas": 3})),
            (
                "Service",
                json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "ClusterIP"}),
                json!({"type": "ClusterIP"}),
            ),
            (
                "Service",
                json!({"clusterIP": "None", "clusterIPs": ["None"]}),
                json!({"clusterIP": "None", "clusterIPs": ["None"]}),
            ),
            (
                "PersistentVolume",
                json!({"claimRef": {"name": "c", "uid": "u", "resourceVersion": "7"}}),
                json!({"claimRef": {"name": "c"}}),
            ),
            (
                "Job",
                json!({"selector": {}, "template": {"metadata": {"labels": {"controller-uid": "u", "app": "x"}}}}),
                json!({"template": {"metadata": {"labels": {"app": "x"}}}}),
            ),
            ("Job", json!({"selector": {}, "manualSelector": true}), json!({"selector": {}, "manualSelector": true})),
        ] {
            let mut object = with(kind, spec);
            clean(&mut object);
            assert_eq!(object, json!({"kind": kind, "metadata": cleaned, "spec": expected}), "{kind}");
        }
        let mut odd = json!({"kind": 1, "metadata": null, "spec": []});
        clean(&mut odd);
        assert_eq!(odd, json!({"kind": 1, "metadata": null, "spec": []}));
    }
}
