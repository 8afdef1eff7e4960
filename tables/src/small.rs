//! `printNamespace`, `printConfigMap` and `printSecret` of the server.

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
