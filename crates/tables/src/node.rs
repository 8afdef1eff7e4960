//! `printNode` of the server.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Deserialize;

use crate::age::{UNKNOWN, age_at};
use crate::cell::{Cell, Row};
use crate::fields::{Condition, Metadata, NONE, null_is_default, or_none};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    metadata: Metadata,
    spec: NodeSpec,
    status: NodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatus {
    #[serde(deserialize_with = "null_is_default")]
    conditions: Vec<Condition>,
    addresses: Vec<Address>,
    node_info: NodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    r#type: String,
    address: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeInfo {
    kubelet_version: String,
    os_image: String,
    kernel_version: String,
    container_runtime_version: String,
    architecture: String,
}

impl Node {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        let info = &status.node_info;
        let or_unknown = |text: &str| if text.is_empty() { UNKNOWN.to_owned() } else { text.to_owned() };
        let mut kernel = or_unknown(&info.kernel_version);
        if !info.architecture.is_empty() {
            kernel = format!("{kernel} ({})", info.architecture);
        }
        // The last condition of a type counts, as in a map.
        let mut state = match status.conditions.iter().rfind(|condition| condition.r#type == "Ready") {
            Some(ready) if ready.status == "True" => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        }
        .to_owned();
        if spec.unschedulable {
            state.push_str(",SchedulingDisabled");
        }
        let cells = [
            metadata.name.clone(),
            state,
            self.roles(),
            age_at(now, metadata.creation_timestamp),
            info.kubelet_version.clone(),
            self.address("InternalIP"),
            self.address("ExternalIP"),
            or_unknown(&info.os_image),
            kernel,
            or_unknown(&info.container_runtime_version),
        ];
        Row { cells: cells.into_iter().map(Cell::Text).collect(), conditions: &[] }
    }

    fn roles(&self) -> String {
        let roles = self.metadata.labels.iter().filter_map(|(key, value)| {
            let role = key.strip_prefix("node-role.kubernetes.io/");
            role.or_else(|| (key == "kubernetes.io/role").then_some(value)).filter(|role| !role.is_empty())
        });
        or_none(&roles.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(","))
    }

    fn address(&self, r#type: &str) -> String {
        let found = self.status.addresses.iter().find(|address| address.r#type == r#type);
        found.map_or(NONE, |address| &address.address).to_owned()
    }
}
