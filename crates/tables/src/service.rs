//! `printService` of the server.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::age::{UNKNOWN, age_at};
use crate::cell::Row;
use crate::fields::{LoadBalancer, Metadata, labels_or_none, null_is_default, or_none};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Service {
    metadata: Metadata,
    spec: ServiceSpec,
    status: ServiceStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServiceSpec {
    r#type: String,
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs")]
    external_ips: Vec<String>,
    external_name: String,
    ports: Vec<Port>,
    #[serde(deserialize_with = "null_is_default")]
    selector: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Port {
    port: i32,
    node_port: i32,
    protocol: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServiceStatus {
    load_balancer: LoadBalancer,
}

impl Service {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, .. } = self;
        let ports = spec.ports.iter().map(|port| match port {
            Port { port, node_port, protocol } if *node_port > 0 => format!("{port}:{node_port}/{protocol}"),
            Port { port, protocol, .. } => format!("{port}/{protocol}"),
        });
        Row::texts([
            metadata.name.clone(),
            spec.r#type.clone(),
            or_none(spec.cluster_ips.first().unwrap_or(&spec.cluster_ip)),
            self.external_ips(),
            or_none(&ports.collect::<Vec<_>>().join(",")),
            age_at(now, metadata.creation_timestamp),
            labels_or_none(&spec.selector),
        ])
    }

    fn external_ips(&self) -> String {
        let ServiceSpec { r#type, external_ips, external_name, .. } = &self.spec;
        match &**r#type {
            "ClusterIP" | "NodePort" => or_none(&external_ips.join(",")),
            "LoadBalancer" => {
                let mut all = self.status.load_balancer.addresses();
                all.extend(external_ips.iter().map(String::as_str));
                if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
            }
            "ExternalName" => external_name.clone(),
            _ => UNKNOWN.to_owned(),
        }
    }
}
