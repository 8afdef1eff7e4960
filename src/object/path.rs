//! Paths of fields that many programs read.

/// Fields of the metadata of every object (`ObjectMeta` in `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`).
pub mod meta {
    use std::borrow::Cow;

    use crate::object::field_path::FieldPath;

    /// `metadata.labels`
    pub const LABELS: FieldPath = FieldPath::new("metadata.labels", &[1, 11]);
    /// `metadata.annotations`
    pub const ANNOTATIONS: FieldPath = FieldPath::new("metadata.annotations", &[1, 12]);
    /// `metadata.managedFields`
    pub const MANAGED_FIELDS: FieldPath = FieldPath::new("metadata.managedFields", &[1, 17]);
    /// `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`
    pub const LAST_APPLIED: FieldPath = FieldPath {
        names: Cow::Borrowed("metadata.annotations"),
        numbers: Cow::Borrowed(&[1, 12]),
        key: Some(Cow::Borrowed("kubectl.kubernetes.io/last-applied-configuration")),
    };
}

/// Fields of Pods (`k8s.io/api/core/v1/generated.proto`).
pub mod pod {
    use crate::object::field_path::FieldPath;

    /// `spec`
    pub const SPEC: FieldPath = FieldPath::new("spec", &[2]);
    /// `spec.containers.name`: repeated
    pub const CONTAINER_NAMES: FieldPath = FieldPath::new("spec.containers.name", &[2, 2, 1]);
    /// `spec.containers.image`: repeated. Init containers and ephemeral containers have other paths.
    pub const IMAGES: FieldPath = FieldPath::new("spec.containers.image", &[2, 2, 2]);
    /// `spec.restartPolicy`
    pub const RESTART_POLICY: FieldPath = FieldPath::new("spec.restartPolicy", &[2, 3]);
    /// `spec.serviceAccountName`
    pub const SERVICE_ACCOUNT_NAME: FieldPath = FieldPath::new("spec.serviceAccountName", &[2, 8]);
    /// `spec.nodeName`
    pub const NODE_NAME: FieldPath = FieldPath::new("spec.nodeName", &[2, 10]);
    /// `spec.hostNetwork`: 0 or 1
    pub const HOST_NETWORK: FieldPath = FieldPath::new("spec.hostNetwork", &[2, 11]);
    /// `spec.schedulerName`
    pub const SCHEDULER_NAME: FieldPath = FieldPath::new("spec.schedulerName", &[2, 19]);
    /// `spec.priorityClassName`
    pub const PRIORITY_CLASS_NAME: FieldPath = FieldPath::new("spec.priorityClassName", &[2, 24]);
    /// `status`
    pub const STATUS: FieldPath = FieldPath::new("status", &[3]);
    /// `status.phase`
    pub const PHASE: FieldPath = FieldPath::new("status.phase", &[3, 1]);
    /// `status.reason`
    pub const REASON: FieldPath = FieldPath::new("status.reason", &[3, 4]);
    /// `status.hostIP`
    pub const HOST_IP: FieldPath = FieldPath::new("status.hostIP", &[3, 5]);
    /// `status.podIP`
    pub const POD_IP: FieldPath = FieldPath::new("status.podIP", &[3, 6]);
    /// `status.containerStatuses.restartCount`: repeated
    pub const RESTART_COUNTS: FieldPath = FieldPath::new("status.containerStatuses.restartCount", &[3, 8, 5]);
    /// `status.qosClass`
    pub const QOS_CLASS: FieldPath = FieldPath::new("status.qosClass", &[3, 9]);
    /// `status.nominatedNodeName`
    pub const NOMINATED_NODE_NAME: FieldPath = FieldPath::new("status.nominatedNodeName", &[3, 11]);
    /// `status.podIPs.ip`: repeated
    pub const POD_IPS: FieldPath = FieldPath::new("status.podIPs.ip", &[3, 12, 1]);
}
