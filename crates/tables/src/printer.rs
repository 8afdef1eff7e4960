//! The printer of a kind.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use listwatch::path::meta;
use listwatch::{ItemError, ItemRef, Projection, TypeMeta};
use serde::de::DeserializeOwned;

use crate::autoscaling::HorizontalPodAutoscaler;
use crate::cell::{Column, Row};
use crate::columns;
use crate::custom::{CustomColumns, CustomPrinterError};
use crate::event::Event;
use crate::network::{EndpointSlice, Endpoints, Ingress, NetworkPolicy};
use crate::node::Node;
use crate::pod::Pod;
use crate::service::Service;
use crate::small::{ConfigMap, Lease, Namespace, PodDisruptionBudget, Secret, ServiceAccount};
use crate::storage::{PersistentVolume, PersistentVolumeClaim};
use crate::workload::{CronJob, DaemonSet, Job, Replicated};

static WITHOUT_MANAGED_FIELDS: LazyLock<Projection> = LazyLock::new(|| Projection::new().drop(&meta::MANAGED_FIELDS));

/// Prints the rows of one kind. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Printer(Kind);

#[derive(Clone)]
enum Kind {
    BuiltIn(&'static BuiltIn),
    Custom(Arc<CustomColumns>),
}

/// A built-in kind: its API versions, its name, its columns, and the function that reads an object and prints its row.
struct BuiltIn(
    &'static [&'static str],
    &'static str,
    &'static [Column],
    fn(&[u8], Timestamp) -> Result<Row, ItemError>,
);

/// Every built-in kind that has a printer.
static BUILT_IN: &[BuiltIn] = &[
    BuiltIn(&["v1"], "ConfigMap", columns::CONFIG_MAP, |json, now| Ok(read::<ConfigMap>(json)?.row(now))),
    BuiltIn(&["batch/v1"], "CronJob", columns::CRON_JOB, |json, now| Ok(read::<CronJob>(json)?.row(now))),
    BuiltIn(&["apps/v1"], "DaemonSet", columns::DAEMON_SET, |json, now| Ok(read::<DaemonSet>(json)?.row(now))),
    BuiltIn(&["apps/v1"], "Deployment", columns::DEPLOYMENT, |json, now| {
        Ok(read::<Replicated>(json)?.deployment_row(now))
    }),
    BuiltIn(&["v1"], "Endpoints", columns::ENDPOINTS, |json, now| Ok(read::<Endpoints>(json)?.row(now))),
    BuiltIn(&["discovery.k8s.io/v1"], "EndpointSlice", columns::ENDPOINT_SLICE, |json, now| {
        Ok(read::<EndpointSlice>(json)?.row(now))
    }),
    BuiltIn(&["v1", "events.k8s.io/v1"], "Event", columns::EVENT, |json, now| Ok(read::<Event>(json)?.row(now))),
    BuiltIn(&["autoscaling/v2"], "HorizontalPodAutoscaler", columns::HORIZONTAL_POD_AUTOSCALER, |json, now| {
        Ok(read::<HorizontalPodAutoscaler>(json)?.row(now))
    }),
    BuiltIn(&["networking.k8s.io/v1"], "Ingress", columns::INGRESS, |json, now| Ok(read::<Ingress>(json)?.row(now))),
    BuiltIn(&["batch/v1"], "Job", columns::JOB, |json, now| Ok(read::<Job>(json)?.row(now))),
    BuiltIn(&["coordination.k8s.io/v1"], "Lease", columns::LEASE, |json, now| Ok(read::<Lease>(json)?.row(now))),
    BuiltIn(&["v1"], "Namespace", columns::NAMESPACE, |json, now| Ok(read::<Namespace>(json)?.row(now))),
    BuiltIn(&["networking.k8s.io/v1"], "NetworkPolicy", columns::NETWORK_POLICY, |json, now| {
        Ok(read::<NetworkPolicy>(json)?.row(now))
    }),
    BuiltIn(&["v1"], "Node", columns::NODE, |json, now| Ok(read::<Node>(json)?.row(now))),
    BuiltIn(&["v1"], "PersistentVolume", columns::PERSISTENT_VOLUME, |json, now| {
        Ok(read::<PersistentVolume>(json)?.row(now))
    }),
    BuiltIn(&["v1"], "PersistentVolumeClaim", columns::PERSISTENT_VOLUME_CLAIM, |json, now| {
        Ok(read::<PersistentVolumeClaim>(json)?.row(now))
    }),
    BuiltIn(&["v1"], "Pod", columns::POD, |json, now| Ok(read::<Pod>(json)?.row(now))),
    BuiltIn(&["policy/v1"], "PodDisruptionBudget", columns::POD_DISRUPTION_BUDGET, |json, now| {
        Ok(read::<PodDisruptionBudget>(json)?.row(now))
    }),
    BuiltIn(&["apps/v1"], "ReplicaSet", columns::REPLICA_SET, |json, now| {
        Ok(read::<Replicated>(json)?.replica_set_row(now))
    }),
    BuiltIn(&["v1"], "Secret", columns::SECRET, |json, now| Ok(read::<Secret>(json)?.row(now))),
    BuiltIn(&["v1"], "Service", columns::SERVICE, |json, now| Ok(read::<Service>(json)?.row(now))),
    BuiltIn(
        &["v1"],
        "ServiceAccount",
        columns::SERVICE_ACCOUNT,
        |json, now| Ok(read::<ServiceAccount>(json)?.row(now)),
    ),
    BuiltIn(&["apps/v1"], "StatefulSet", columns::STATEFUL_SET, |json, now| {
        Ok(read::<Replicated>(json)?.stateful_set_row(now))
    }),
];

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(BuiltIn(_, kind, ..)) => f.write_str(kind),
            Self::Custom(custom) => custom.fmt(f),
        }
    }
}

impl Printer {
    /// Returns the printer of a built-in kind: `ConfigMap`, `CronJob`, `DaemonSet`, `Deployment`, `Endpoints`,
    /// `EndpointSlice`, `Event`, `HorizontalPodAutoscaler` of `autoscaling/v2`, `Ingress`, `Job`, `Lease`, `Namespace`,
    /// `NetworkPolicy`, `Node`, `PersistentVolume`, `PersistentVolumeClaim`, `Pod`, `PodDisruptionBudget`,
    /// `ReplicaSet`, `Secret`, `Service`, `ServiceAccount` or `StatefulSet`. `None` for any other.
    #[must_use]
    pub fn for_kind(type_meta: &TypeMeta) -> Option<Self> {
        let TypeMeta { api_version, kind, .. } = type_meta;
        let is_kind = |BuiltIn(versions, name, ..): &&BuiltIn| name == kind && versions.contains(&&**api_version);
        BUILT_IN.iter().find(is_kind).map(|found| Self(Kind::BuiltIn(found)))
    }

    /// Returns the printer of a custom resource, by the `additionalPrinterColumns` of a version in its
    /// `CustomResourceDefinition` of `apiextensions.k8s.io/v1`, as JSON.
    ///
    /// # Errors
    ///
    /// The definition is invalid or lacks the version, or the path of a column is invalid.
    pub fn for_custom_resource(definition: &[u8], version: &str) -> Result<Self, CustomPrinterError> {
        CustomColumns::from_definition(definition, version).map(|columns| Self(Kind::Custom(Arc::new(columns))))
    }

    /// Returns the columns, as the API server sends them.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        match &self.0 {
            Kind::BuiltIn(BuiltIn(_, _, columns, _)) => columns,
            Kind::Custom(custom) => &custom.columns,
        }
    }

    /// Returns the row of an object, with a cell for each column and ages at `now`.
    ///
    /// An object in protobuf is converted to JSON without its `managedFields`.
    ///
    /// # Errors
    ///
    /// The object is malformed, or a field has another type than in Kubernetes.
    pub fn row(&self, item: &ItemRef<'_>, now: Timestamp) -> Result<Row, ItemError> {
        let json = json_of(item)?;
        match &self.0 {
            Kind::BuiltIn(BuiltIn(.., row)) => row(&json, now),
            Kind::Custom(custom) => custom.row(&json, now),
        }
    }
}

/// Returns the object in JSON; one that is converted without its `managedFields`, which no printer reads.
fn json_of<'a>(item: &ItemRef<'a>) -> Result<Cow<'a, [u8]>, ItemError> {
    if let Some(json) = item.as_json() {
        return Ok(Cow::Borrowed(json));
    }
    let without = item.project(&WITHOUT_MANAGED_FIELDS)?;
    let mut json = Vec::new();
    item.with_bytes(&without).to_json(&mut json)?;
    Ok(Cow::Owned(json))
}

fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, ItemError> {
    serde_json::from_slice(json).map_err(ItemError::other)
}
