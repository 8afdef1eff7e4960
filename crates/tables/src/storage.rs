//! `printPersistentVolume` and `printPersistentVolumeClaim` of the server.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::age::age_at;
use crate::cell::Row;
use crate::fields::{Metadata, UNSET, null_is_default};

/// The annotation that precedes `storageClassName`.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// The access modes, in the order in which they are printed.
const ACCESS_MODES: [(&str, &str); 4] =
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct PersistentVolume {
    metadata: Metadata,
    spec: VolumeSpec,
    status: VolumeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VolumeSpec {
    #[serde(deserialize_with = "null_is_default")]
    access_modes: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    capacity: BTreeMap<String, String>,
    claim_ref: Option<ClaimRef>,
    persistent_volume_reclaim_policy: String,
    storage_class_name: String,
    volume_attributes_class_name: Option<String>,
    volume_mode: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClaimRef {
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct VolumeStatus {
    phase: String,
    reason: String,
}

impl PersistentVolume {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        Row::texts([
            metadata.name.clone(),
            storage_of(&spec.capacity),
            modes_text(&spec.access_modes),
            spec.persistent_volume_reclaim_policy.clone(),
            phase_of(metadata, &status.phase),
            spec.claim_ref.as_ref().map(|claim| format!("{}/{}", claim.namespace, claim.name)).unwrap_or_default(),
            class_of(metadata, &spec.storage_class_name),
            or_unset(spec.volume_attributes_class_name.as_ref()),
            status.reason.clone(),
            age_at(now, metadata.creation_timestamp),
            or_unset(spec.volume_mode.as_ref()),
        ])
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct PersistentVolumeClaim {
    metadata: Metadata,
    spec: ClaimSpec,
    status: ClaimStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSpec {
    storage_class_name: String,
    volume_attributes_class_name: Option<String>,
    volume_mode: Option<String>,
    volume_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimStatus {
    #[serde(deserialize_with = "null_is_default")]
    access_modes: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    capacity: BTreeMap<String, String>,
    phase: String,
}

impl PersistentVolumeClaim {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        let (capacity, modes) = match &*spec.volume_name {
            "" => (String::new(), String::new()),
            _ => (storage_of(&status.capacity), modes_text(&status.access_modes)),
        };
        Row::texts([
            metadata.name.clone(),
            phase_of(metadata, &status.phase),
            spec.volume_name.clone(),
            capacity,
            modes,
            class_of(metadata, &spec.storage_class_name),
            or_unset(spec.volume_attributes_class_name.as_ref()),
            age_at(now, metadata.creation_timestamp),
            or_unset(spec.volume_mode.as_ref()),
        ])
    }
}

fn storage_of(capacity: &BTreeMap<String, String>) -> String {
    // As Go prints an absent quantity.
    capacity.get("storage").map_or("0", String::as_str).to_owned()
}

fn modes_text(modes: &[String]) -> String {
    let printed = ACCESS_MODES.iter().filter(|(mode, _)| modes.iter().any(|found| found == mode));
    printed.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

fn phase_of(metadata: &Metadata, phase: &str) -> String {
    if metadata.deletion_timestamp.is_some() { "Terminating".to_owned() } else { phase.to_owned() }
}

fn class_of(metadata: &Metadata, name: &str) -> String {
    metadata.annotations.get(CLASS_ANNOTATION).map_or(name, String::as_str).to_owned()
}

fn or_unset(text: Option<&String>) -> String {
    text.map_or(UNSET, String::as_str).to_owned()
}
