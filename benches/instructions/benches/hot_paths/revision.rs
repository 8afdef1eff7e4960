//! A Knative revision as Rust types: whole, and with the six fields of [`six`].

use std::collections::BTreeMap;

use listwatch::FieldPath;
use serde::Deserialize;
use serde_json::Value;

/// Returns the paths of the six fields.
pub fn six() -> [FieldPath; 6] {
    [
        FieldPath::new("metadata.name", &[]),
        FieldPath::new("metadata.namespace", &[]),
        FieldPath::new("metadata.labels", &[]).key("serving.knative.dev/service"),
        FieldPath::new("spec.serviceAccountName", &[]),
        FieldPath::new("status.desiredReplicas", &[]),
        FieldPath::new("status.conditions.status", &[]),
    ]
}

/// Makes structs of optional fields, in camel case.
macro_rules! structs {
    ($($name:ident { $($(#[$meta:meta])* $field:ident: $type:ty),* $(,)? })*) => { $(
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name { $($(#[$meta])* $field: $type,)* }
    )* };
}

structs! {
    SlimRevision { metadata: SlimMeta, spec: SlimSpec, status: SlimStatus }
    SlimMeta { name: String, namespace: String, labels: BTreeMap<String, String> }
    SlimSpec { service_account_name: String }
    SlimStatus { desired_replicas: i32, conditions: Vec<SlimCondition> }
    SlimCondition { status: String }

    Revision { metadata: Meta, spec: Spec, status: Status }
    Meta {
        annotations: BTreeMap<String, String>, creation_timestamp: String, finalizers: Vec<String>, generation: i64,
        labels: BTreeMap<String, String>, managed_fields: Vec<Manager>, name: String, namespace: String,
        owner_references: Vec<Owner>, resource_version: String, uid: String,
    }
    Manager {
        api_version: String, fields_type: String, fields_v1: Value, manager: String, operation: String,
        subresource: String, time: String,
    }
    Owner {
        api_version: String, block_owner_deletion: bool, controller: bool, kind: String, name: String, uid: String,
    }
    Spec {
        container_concurrency: i64, containers: Vec<Container>, enable_service_links: bool, service_account_name: String,
        timeout_seconds: i64,
    }
    Container {
        env: Vec<EnvVar>, image: String, name: String, ports: Vec<Port>, readiness_probe: Option<Probe>,
        resources: Resources, security_context: SecurityContext,
    }
    EnvVar { name: String, value: String }
    Port { container_port: i32, name: String, protocol: String }
    Probe {
        failure_threshold: i32, http_get: Option<HttpGet>, period_seconds: i32, success_threshold: i32,
        timeout_seconds: i32,
    }
    HttpGet { path: String, port: i32, scheme: String }
    Resources { limits: BTreeMap<String, String>, requests: BTreeMap<String, String> }
    SecurityContext {
        allow_privilege_escalation: bool, capabilities: Capabilities, run_as_non_root: bool,
        seccomp_profile: SeccompProfile,
    }
    Capabilities { drop: Vec<String> }
    SeccompProfile { r#type: String }
    Status {
        actual_replicas: i32, conditions: Vec<Condition>, container_statuses: Vec<ContainerStatus>,
        desired_replicas: i32, observed_generation: i64,
    }
    Condition {
        last_transition_time: String, message: String, observed_generation: i64, reason: String, severity: String,
        status: String, r#type: String,
    }
    ContainerStatus { image_digest: String, name: String }
}
