//! ConfigMaps as lists and watches send them, in protobuf. The uid of each is its name.

use std::fmt::Display;

use super::{body_of, event_frame, len_field, status};

/// A ConfigMap of namespace `default`, without its envelope.
pub fn config_map(name: &str, version: impl Display) -> Vec<u8> {
    super::config_map(name, name, &version.to_string())
}

/// An event of a watch: `ADDED`, `MODIFIED`, `DELETED`.
pub fn event(event: &str, name: &str, version: impl Display) -> Vec<u8> {
    event_frame(event, &body_of("v1", "ConfigMap", &config_map(name, version)))
}

pub fn added(name: &str, version: impl Display) -> Vec<u8> {
    event("ADDED", name, version)
}

pub fn bookmark(version: impl Display) -> Vec<u8> {
    event("BOOKMARK", "", version)
}

/// The bookmark after the initial events.
pub fn initial_end(version: impl Display) -> Vec<u8> {
    let entry = [len_field(1, b"k8s.io/initial-events-end"), len_field(2, b"true")].concat();
    let metadata = [len_field(6, version.to_string().as_bytes()), len_field(12, &entry)].concat();
    event_frame("BOOKMARK", &body_of("v1", "ConfigMap", &len_field(1, &metadata)))
}

/// The event that ends a watch with an error of this code.
pub fn error(code: u16) -> Vec<u8> {
    event_frame("ERROR", &body_of("v1", "Status", &status(code)))
}

/// The body of a list at a version, with objects of these names and versions.
pub fn list<N: AsRef<str>, V: Display>(version: &str, objects: impl IntoIterator<Item = (N, V)>) -> Vec<u8> {
    let mut raw = len_field(1, &len_field(2, version.as_bytes()));
    for (name, version) in objects {
        raw.extend(len_field(2, &config_map(name.as_ref(), version)));
    }
    body_of("v1", "ConfigMapList", &raw)
}
