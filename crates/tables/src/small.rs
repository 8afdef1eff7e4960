//! Printers of kinds with few columns: `printNamespace`, `printConfigMap`, `printSecret`, `printServiceAccount`,
//! `printLease` and `printPodDisruptionBudget` of the server.

use jiff::Timestamp;
use serde::Deserialize;

use crate::age::age_at;
use crate::cell::{Cell, Row};
use crate::fields::{EntryCount, Metadata};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Namespace {
    metadata: Metadata,
    status: NamespaceStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamespaceStatus {
    phase: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ConfigMap {
    metadata: Metadata,
    data: EntryCount,
    binary_data: EntryCount,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Secret {
    metadata: Metadata,
    r#type: String,
    data: EntryCount,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceAccount {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Lease {
    metadata: Metadata,
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodDisruptionBudget {
    metadata: Metadata,
    spec: DisruptionSpec,
    status: DisruptionStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DisruptionSpec {
    max_unavailable: Option<IntOrString>,
    min_available: Option<IntOrString>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DisruptionStatus {
    disruptions_allowed: i64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum IntOrString {
    Int(i32),
    String(String),
}

fn row(metadata: &Metadata, cells: impl IntoIterator<Item = Cell>, now: Timestamp) -> Row {
    let mut all = vec![Cell::text(&metadata.name)];
    all.extend(cells);
    all.push(Cell::Text(age_at(now, metadata.creation_timestamp)));
    Row { cells: all, conditions: &[] }
}

impl Namespace {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        row(&self.metadata, [Cell::text(&self.status.phase)], now)
    }
}

impl ConfigMap {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        row(&self.metadata, [Cell::Integer(self.data.0 + self.binary_data.0)], now)
    }
}

impl Secret {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        row(&self.metadata, [Cell::text(&self.r#type), Cell::Integer(self.data.0)], now)
    }
}

impl ServiceAccount {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        row(&self.metadata, [], now)
    }
}

impl Lease {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        row(&self.metadata, [Cell::text(&self.spec.holder_identity)], now)
    }
}

impl PodDisruptionBudget {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let text = |value: &Option<IntOrString>| match value {
            None => "N/A".to_owned(),
            Some(IntOrString::Int(number)) => number.to_string(),
            Some(IntOrString::String(text)) => text.clone(),
        };
        let [min, max] = [&self.spec.min_available, &self.spec.max_unavailable].map(text);
        row(&self.metadata, [Cell::Text(min), Cell::Text(max), Cell::Integer(self.status.disruptions_allowed)], now)
    }
}
