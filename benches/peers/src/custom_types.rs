//! The custom resources of `listwatch_corpus::custom` as Rust types: whole, with all their fields, and slim, with few
//! of them.
//!
//! They are the types that kube's derive macro makes. Times are parsed, as in Go's types. `../clientgo/types.go` has
//! the same fields.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{NamespaceResourceScope, ObjectMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A custom resource that kube and listwatch decode as this type.
pub trait Custom:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// The JSON path of the indexed field.
    const INDEXED: &'static str;

    /// Returns the indexed field.
    fn indexed(&self) -> &str;
}

/// Makes a type of a custom resource: its kind, its spec and its status, and the indexed field.
macro_rules! custom {
    ($name:ident, $group:literal, $version:literal, $plural:literal, $kind:literal, $spec:ty, $status:ty, $field:ident, $path:literal) => {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub struct $name {
            metadata: ObjectMeta,
            spec: $spec,
            #[serde(skip_serializing_if = "Option::is_none")]
            status: Option<$status>,
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind(&(): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group(&(): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version(&(): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural(&(): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }

        impl Custom for $name {
            const INDEXED: &'static str = $path;

            fn indexed(&self) -> &str {
                &self.spec.$field
            }
        }
    };
}

/// Makes structs of optional fields, in camel case.
macro_rules! structs {
    ($($name:ident { $($(#[$meta:meta])* $field:ident: $type:ty),* $(,)? })*) => { $(
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $(#[serde(default)] $(#[$meta])* $field: $type,)*
        }
    )* };
}

custom!(
    Certificate,
    "cert-manager.io",
    "v1",
    "certificates",
    "Certificate",
    CertificateSpec,
    CertificateStatus,
    secret_name,
    "spec.secretName"
);
custom!(
    SlimCertificate,
    "cert-manager.io",
    "v1",
    "certificates",
    "Certificate",
    SlimCertificateSpec,
    SlimStatus,
    secret_name,
    "spec.secretName"
);
custom!(
    Revision,
    "serving.knative.dev",
    "v1",
    "revisions",
    "Revision",
    RevisionSpec,
    RevisionStatus,
    service_account_name,
    "spec.serviceAccountName"
);
custom!(
    SlimRevision,
    "serving.knative.dev",
    "v1",
    "revisions",
    "Revision",
    SlimRevisionSpec,
    SlimStatus,
    service_account_name,
    "spec.serviceAccountName"
);
custom!(
    Application,
    "argoproj.io",
    "v1alpha1",
    "applications",
    "Application",
    ApplicationSpec,
    ApplicationStatus,
    project,
    "spec.project"
);
custom!(
    SlimApplication,
    "argoproj.io",
    "v1alpha1",
    "applications",
    "Application",
    SlimApplicationSpec,
    SlimApplicationStatus,
    project,
    "spec.project"
);

structs! {
    CertificateSpec { dns_names: Vec<String>, issuer_ref: IssuerRef, secret_name: String, usages: Vec<String> }
    CertificateStatus {
        conditions: Vec<Condition>, not_after: Option<Time>, not_before: Option<Time>, renewal_time: Option<Time>,
        revision: Option<i64>,
    }
    SlimCertificateSpec { dns_names: Vec<String>, secret_name: String }
    SlimStatus { conditions: Vec<SlimCondition> }
    SlimCondition { r#type: String, status: String }

    RevisionSpec {
        container_concurrency: Option<i64>, containers: Vec<Container>, enable_service_links: Option<bool>,
        service_account_name: String, timeout_seconds: Option<i64>,
    }
    Container {
        env: Vec<EnvVar>, image: String, name: String, ports: Vec<Port>, readiness_probe: Option<Probe>,
        resources: Option<Resources>, security_context: Option<SecurityContext>,
    }
    EnvVar { name: String, value: String }
    Port { container_port: i32, name: String, protocol: String }
    Probe {
        failure_threshold: Option<i32>, http_get: Option<HttpGet>, period_seconds: Option<i32>,
        success_threshold: Option<i32>, timeout_seconds: Option<i32>,
    }
    HttpGet { path: String, port: i32, scheme: String }
    Resources { limits: BTreeMap<String, String>, requests: BTreeMap<String, String> }
    SecurityContext {
        allow_privilege_escalation: Option<bool>, capabilities: Option<Capabilities>, run_as_non_root: Option<bool>,
        seccomp_profile: Option<SeccompProfile>,
    }
    Capabilities { drop: Vec<String> }
    SeccompProfile { r#type: String }
    RevisionStatus {
        actual_replicas: Option<i32>, conditions: Vec<Condition>, container_statuses: Vec<ContainerStatus>,
        desired_replicas: Option<i32>, observed_generation: Option<i64>,
    }
    ContainerStatus { image_digest: String, name: String }
    SlimRevisionSpec { service_account_name: String }

    ApplicationSpec {
        destination: Destination, ignore_differences: Vec<IgnoreDifferences>, project: String, source: Source,
        sync_policy: Option<SyncPolicy>,
    }
    Destination { namespace: String, server: String }
    IgnoreDifferences { group: String, json_pointers: Vec<String>, kind: String }
    Source { helm: Option<Helm>, path: String, #[serde(rename = "repoURL")] repo_url: String, target_revision: String }
    Helm {
        parameters: Vec<EnvVar>, release_name: String, value_files: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")] values_object: Option<Value>,
    }
    SyncPolicy { automated: Option<Automated>, retry: Option<Retry>, sync_options: Vec<String> }
    Automated { prune: bool, self_heal: bool }
    Retry { backoff: Option<Backoff>, limit: i64 }
    Backoff { duration: String, factor: Option<i64>, max_duration: String }
    ApplicationStatus {
        controller_namespace: String, health: Option<Health>, history: Vec<History>, operation_state: Option<OperationState>,
        reconciled_at: Option<Time>, resources: Vec<Deployed>, source_hydrator: Hydrator, source_type: String,
        summary: Option<Summary>, sync: Option<SyncStatus>,
    }
    Health { last_transition_time: Option<Time>, status: String }
    History {
        deploy_started_at: Option<Time>, deployed_at: Option<Time>, id: i64, initiated_by: InitiatedBy, revision: String,
        source: Option<Source>,
    }
    InitiatedBy { automated: bool }
    OperationState {
        finished_at: Option<Time>, message: String, operation: Option<Operation>, phase: String, started_at: Option<Time>,
        sync_result: Option<SyncResult>,
    }
    Operation { initiated_by: InitiatedBy, retry: Option<Retry>, sync: Option<SyncOperation> }
    SyncOperation { prune: bool, revision: String, sync_options: Vec<String> }
    SyncResult { resources: Vec<ResourceResult>, revision: String, source: Option<Source> }
    ResourceResult {
        group: String, hook_phase: String, kind: String, message: String, name: String, namespace: String, status: String,
        sync_phase: String, version: String,
    }
    Deployed {
        group: String, health: Option<Health>, kind: String, name: String, namespace: String, status: String,
        sync_wave: Option<i64>, version: String,
    }
    Hydrator {}
    Summary { images: Vec<String> }
    SyncStatus { compared_to: Option<ComparedTo>, revision: String, status: String }
    ComparedTo { destination: Option<Destination>, source: Option<Source> }
    SlimApplicationSpec { destination: Destination, project: String }
    SlimApplicationStatus { health: Option<SlimHealth>, sync: Option<SlimSync> }
    SlimHealth { status: String }
    SlimSync { revision: String, status: String }

    Condition {
        last_transition_time: Option<Time>, message: Option<String>, observed_generation: Option<i64>, reason: Option<String>,
        severity: Option<String>, status: String, r#type: String,
    }
    IssuerRef { group: String, kind: String, name: String }
}

#[cfg(test)]
mod tests {
    use listwatch_corpus::custom::CustomKind;

    use super::*;

    /// Removes what the types do not tell from an absent field, and the type meta, which kube adds.
    fn prune(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.values_mut().for_each(prune);
                fields.retain(|_, field| {
                    !matches!(field, Value::Null) && *field != Value::from("") && *field != Value::Array(Vec::new())
                });
                fields.remove("apiVersion");
                fields.remove("kind");
            }
            Value::Array(elements) => elements.iter_mut().for_each(prune),
            _ => {}
        }
    }

    fn whole<T: Custom>(kind: CustomKind) {
        for object in kind.objects(300) {
            let mut expected: Value = serde_json::from_str(&object.json).unwrap();
            let mut kept = serde_json::to_value(serde_json::from_str::<T>(&object.json).unwrap()).unwrap();
            prune(&mut expected);
            prune(&mut kept);
            assert_eq!(kept, expected);
        }
    }

    #[test]
    fn whole_types_have_all_fields() {
        whole::<Certificate>(CustomKind::Certificate);
        whole::<Revision>(CustomKind::Revision);
        whole::<Application>(CustomKind::Application);
    }

    #[test]
    fn slim_types_decode_all_objects() {
        for object in CustomKind::Application.objects(300) {
            assert!(object.json.contains(serde_json::from_str::<SlimApplication>(&object.json).unwrap().indexed()));
        }
        for object in CustomKind::Revision.objects(300) {
            assert!(object.json.contains(serde_json::from_str::<SlimRevision>(&object.json).unwrap().indexed()));
        }
        for object in CustomKind::Certificate.objects(300) {
            assert!(object.json.contains(serde_json::from_str::<SlimCertificate>(&object.json).unwrap().indexed()));
        }
    }
}
