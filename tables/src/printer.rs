//! The printer of a kind.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use listwatch::path::meta;
use listwatch::{Encoding, ItemError, ItemRef, Projection, TypeMeta};
use serde::de::DeserializeOwned;

use crate::cell::{Column, Row};
use crate::columns;
use crate::custom::{CustomColumns, CustomPrinterError};
use crate::event::Event;
use crate::node::Node;
use crate::pod::Pod;
use crate::service::Service;
use crate::small::{ConfigMap, Namespace, Secret};
use crate::workload::{Job, Replicated};

static WITHOUT_MANAGED_FIELDS: LazyLock<Projection> = LazyLock::new(|| Projection::new().drop(&meta::MANAGED_FIELDS));

/// Prints the rows of one kind. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Printer(Kind);

#[derive(Clone, Debug)]
enum Kind {
    ConfigMap,
    Deployment,
    Event,
    Job,
    Namespace,
    Node,
    Pod,
    ReplicaSet,
    Secret,
    Service,
    Custom(Arc<CustomColumns>),
}

impl Printer {
    /// Returns the printer of a built-in kind: `ConfigMap`, `Deployment`, `Event`, `Job`, `Namespace`, `Node`, `Pod`,
    /// `ReplicaSet`, `Secret` or `Service`. `None` for any other.
    #[must_use]
    pub fn for_kind(type_meta: &TypeMeta) -> Option<Self> {
        Some(Self(match (&*type_meta.api_version, &*type_meta.kind) {
            ("v1", "ConfigMap") => Kind::ConfigMap,
            ("apps/v1", "Deployment") => Kind::Deployment,
            ("v1" | "events.k8s.io/v1", "Event") => Kind::Event,
            ("batch/v1", "Job") => Kind::Job,
            ("v1", "Namespace") => Kind::Namespace,
            ("v1", "Node") => Kind::Node,
            ("v1", "Pod") => Kind::Pod,
            ("apps/v1", "ReplicaSet") => Kind::ReplicaSet,
            ("v1", "Secret") => Kind::Secret,
            ("v1", "Service") => Kind::Service,
            _ => return None,
        }))
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
            Kind::ConfigMap => columns::CONFIG_MAP,
            Kind::Deployment => columns::DEPLOYMENT,
            Kind::Event => columns::EVENT,
            Kind::Job => columns::JOB,
            Kind::Namespace => columns::NAMESPACE,
            Kind::Node => columns::NODE,
            Kind::Pod => columns::POD,
            Kind::ReplicaSet => columns::REPLICA_SET,
            Kind::Secret => columns::SECRET,
            Kind::Service => columns::SERVICE,
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
            Kind::ConfigMap => read::<ConfigMap>(&json).map(|object| object.row(now)),
            Kind::Deployment => read::<Replicated>(&json).map(|object| object.deployment_row(now)),
            Kind::Event => read::<Event>(&json).map(|object| object.row(now)),
            Kind::Job => read::<Job>(&json).map(|object| object.row(now)),
            Kind::Namespace => read::<Namespace>(&json).map(|object| object.row(now)),
            Kind::Node => read::<Node>(&json).map(|object| object.row(now)),
            Kind::Pod => read::<Pod>(&json).map(|object| object.row(now)),
            Kind::ReplicaSet => read::<Replicated>(&json).map(|object| object.replica_set_row(now)),
            Kind::Secret => read::<Secret>(&json).map(|object| object.row(now)),
            Kind::Service => read::<Service>(&json).map(|object| object.row(now)),
            Kind::Custom(custom) => custom.row(&json, now),
        }
    }
}

/// Returns the object in JSON; one in protobuf without its `managedFields`, which no printer reads.
fn json_of<'a>(item: &ItemRef<'a>) -> Result<Cow<'a, [u8]>, ItemError> {
    if item.encoding() == Encoding::Json {
        return Ok(Cow::Borrowed(item.bytes()));
    }
    let without = item.project(&WITHOUT_MANAGED_FIELDS)?;
    let mut json = Vec::new();
    item.with_bytes(&without).to_json(&mut json)?;
    Ok(Cow::Owned(json))
}

fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, ItemError> {
    serde_json::from_slice(json).map_err(ItemError::other)
}
