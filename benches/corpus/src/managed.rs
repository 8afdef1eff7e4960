//! `metadata.managedFields`: the fields that each manager owns, as the API server records them.

use std::collections::BTreeMap;

use k8s_pb::api::core::v1::{Container, Pod, PodCondition, Probe, Volume};
use k8s_pb::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time};

/// A set of fields: `f:` for a field, `k:` for an element by its keys, `.` for the element itself.
#[derive(Default)]
struct Tree(BTreeMap<String, Tree>);

impl Tree {
    fn at(&mut self, name: impl Into<String>) -> &mut Self {
        self.0.entry(name.into()).or_default()
    }

    fn field(&mut self, name: &str) -> &mut Self {
        self.at(format!("f:{name}"))
    }

    fn fields(&mut self, names: &[&str]) {
        for name in names {
            self.field(name);
        }
    }

    /// The element of a list that has these keys, in JSON.
    fn element(&mut self, keys: &str) -> &mut Self {
        let element = self.at(format!("k:{keys}"));
        element.at(".");
        element
    }

    fn map<'a>(&mut self, name: &str, keys: impl Iterator<Item = &'a String>) {
        for key in keys {
            let map = self.field(name);
            map.at(".");
            map.field(key);
        }
    }

    fn write(&self, out: &mut String) {
        out.push('{');
        for (name, inner) in &self.0 {
            if !out.ends_with('{') {
                out.push(',');
            }
            *out += &format!("\"{}\":", name.replace('"', "\\\""));
            inner.write(out);
        }
        out.push('}');
    }
}

/// Returns the fields that the manager that created the Pod owns.
pub fn creator(pod: &Pod) -> Vec<u8> {
    let mut tree = Tree::default();
    if let Some(meta) = &pod.metadata {
        let fields = tree.field("metadata");
        fields.map("annotations", meta.annotations.keys());
        fields.map("labels", meta.labels.keys());
        if meta.generate_name.is_some() {
            fields.field("generateName");
        }
        for owner in &meta.owner_references {
            let owners = fields.field("ownerReferences");
            owners.at(".");
            owners.element(&format!(r#"{{"uid":"{}"}}"#, owner.uid()));
        }
    }
    if let Some(spec) = &pod.spec {
        let fields = tree.field("spec");
        fields.fields(&["dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName", "securityContext"]);
        fields.fields(&["terminationGracePeriodSeconds"]);
        if let Some(affinity) = &spec.affinity {
            let affinity_fields = fields.field("affinity");
            affinity_fields.at(".");
            if affinity.node_affinity.is_some() {
                let node = affinity_fields.field("nodeAffinity");
                node.at(".");
                node.field("requiredDuringSchedulingIgnoredDuringExecution");
            }
            if affinity.pod_anti_affinity.is_some() {
                affinity_fields.field("podAntiAffinity").field("preferredDuringSchedulingIgnoredDuringExecution");
            }
        }
        for (name, is_set) in [
            ("serviceAccount", spec.service_account_name.is_some()),
            ("serviceAccountName", spec.service_account_name.is_some()),
            ("priorityClassName", spec.priority_class_name.is_some()),
            ("hostNetwork", spec.host_network.is_some()),
            ("nodeSelector", !spec.node_selector.is_empty()),
            ("tolerations", !spec.tolerations.is_empty()),
            ("imagePullSecrets", !spec.image_pull_secrets.is_empty()),
            ("topologySpreadConstraints", !spec.topology_spread_constraints.is_empty()),
        ] {
            if is_set {
                fields.field(name);
            }
        }
        for (name, containers) in [("containers", &spec.containers), ("initContainers", &spec.init_containers)] {
            for of in containers {
                let element = fields.field(name).element(&format!(r#"{{"name":"{}"}}"#, of.name()));
                container(of, element);
            }
        }
        for volume in &spec.volumes {
            let volumes = fields.field("volumes");
            volumes.at(".");
            let element = volumes.element(&format!(r#"{{"name":"{}"}}"#, volume.name()));
            element.field("name");
            source(volume, element);
        }
    }
    finish(&tree)
}

fn container(container: &Container, fields: &mut Tree) {
    fields.fields(&[
        "image",
        "imagePullPolicy",
        "name",
        "resources",
        "terminationMessagePath",
        "terminationMessagePolicy",
    ]);
    for (name, is_set) in [("args", !container.args.is_empty()), ("command", !container.command.is_empty())] {
        if is_set {
            fields.field(name);
        }
    }
    for variable in &container.env {
        let env = fields.field("env");
        env.at(".");
        let element = env.element(&format!(r#"{{"name":"{}"}}"#, variable.name()));
        element.field("name");
        if variable.value_from.is_some() {
            let from = element.field("valueFrom");
            from.at(".");
            from.field("secretKeyRef");
        } else {
            element.field("value");
        }
    }
    for port in &container.ports {
        let ports = fields.field("ports");
        ports.at(".");
        let keys = format!(r#"{{"containerPort":{},"protocol":"TCP"}}"#, port.container_port());
        ports.element(&keys).fields(&["containerPort", "name", "protocol"]);
    }
    if let Some(resources) = &container.resources {
        for (name, set) in [("limits", &resources.limits), ("requests", &resources.requests)] {
            if !set.is_empty() {
                let fields = fields.field("resources");
                fields.at(".");
                fields.map(name, set.keys());
            }
        }
    }
    if container.security_context.is_some() {
        let security = fields.field("securityContext");
        security.at(".");
        security.fields(&["allowPrivilegeEscalation", "readOnlyRootFilesystem", "runAsNonRoot", "runAsUser"]);
        let capabilities = security.field("capabilities");
        capabilities.at(".");
        capabilities.field("drop");
    }
    for mount in &container.volume_mounts {
        let mounts = fields.field("volumeMounts");
        mounts.at(".");
        let element = mounts.element(&format!(r#"{{"mountPath":"{}"}}"#, mount.mount_path()));
        element.fields(&["mountPath", "name"]);
        if mount.read_only.is_some() {
            element.field("readOnly");
        }
    }
    probe("livenessProbe", container.liveness_probe.as_ref(), fields);
    probe("readinessProbe", container.readiness_probe.as_ref(), fields);
    probe("startupProbe", container.startup_probe.as_ref(), fields);
}

fn probe(name: &str, probe: Option<&Probe>, fields: &mut Tree) {
    let Some(handler) = probe.and_then(|probe| probe.handler.as_ref()) else { return };
    let fields = fields.field(name);
    fields.at(".");
    fields.fields(&["failureThreshold", "periodSeconds", "successThreshold", "timeoutSeconds"]);
    if handler.http_get.is_some() {
        let get = fields.field("httpGet");
        get.at(".");
        get.fields(&["path", "port", "scheme"]);
    } else {
        let exec = fields.field("exec");
        exec.at(".");
        exec.field("command");
    }
}

fn source(volume: &Volume, fields: &mut Tree) {
    let Some(source) = &volume.volume_source else { return };
    let (name, inner): (_, &[&str]) = if source.config_map.is_some() {
        ("configMap", &["defaultMode", "name"])
    } else if source.secret.is_some() {
        ("secret", &["defaultMode", "secretName"])
    } else if source.host_path.is_some() {
        ("hostPath", &["path", "type"])
    } else if source.persistent_volume_claim.is_some() {
        ("persistentVolumeClaim", &["claimName"])
    } else if source.projected.is_some() {
        ("projected", &["defaultMode", "sources"])
    } else {
        ("emptyDir", &[])
    };
    let source = fields.field(name);
    if !inner.is_empty() {
        source.at(".");
    }
    source.fields(inner);
}

/// Returns the fields of the status that the kubelet owns.
pub fn kubelet(pod: &Pod) -> Vec<u8> {
    let mut tree = Tree::default();
    if let Some(status) = &pod.status {
        let fields = tree.field("status");
        fields.fields(&["hostIP", "hostIPs", "phase", "startTime"]);
        fields.at("f:conditions");
        for PodCondition { r#type, reason, .. } in &status.conditions {
            if r#type.as_deref() == Some("PodScheduled") {
                continue;
            }
            let keys = format!(r#"{{"type":"{}"}}"#, r#type.as_deref().unwrap_or_default());
            let condition = fields.field("conditions").element(&keys);
            condition.fields(&["lastProbeTime", "lastTransitionTime", "status", "type"]);
            if reason.is_some() {
                condition.fields(&["message", "reason"]);
            }
        }
        if !status.container_statuses.is_empty() {
            fields.field("containerStatuses");
        }
        if !status.init_container_statuses.is_empty() {
            fields.field("initContainerStatuses");
        }
        for ip in &status.pod_ips {
            fields.field("podIP");
            let ips = fields.field("podIPs");
            ips.at(".");
            ips.element(&format!(r#"{{"ip":"{}"}}"#, ip.ip())).field("ip");
        }
    }
    finish(&tree)
}

/// Returns the fields that a network plugin owns: the annotations that it added.
pub fn annotations<'a>(names: impl Iterator<Item = &'a String>) -> Vec<u8> {
    let mut tree = Tree::default();
    for name in names {
        tree.field("metadata").field("annotations").field(name);
    }
    finish(&tree)
}

fn finish(tree: &Tree) -> Vec<u8> {
    let mut out = String::new();
    tree.write(&mut out);
    out.into_bytes()
}

pub fn entry(manager: &str, subresource: Option<&str>, seconds: i64, fields: Vec<u8>) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some("Update".to_owned()),
        api_version: Some("v1".to_owned()),
        time: Some(Time { seconds: Some(seconds), nanos: Some(0) }),
        fields_type: Some("FieldsV1".to_owned()),
        fields_v1: Some(FieldsV1 { raw: Some(fields) }),
        subresource: subresource.map(str::to_owned),
    }
}
