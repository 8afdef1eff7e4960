//! `printIngress`, `printNetworkPolicy`, `printEndpoints` and `printEndpointSlice` of the server.

use std::net::Ipv6Addr;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::age::age_at;
use crate::cell::Row;
use crate::fields::{LoadBalancer, Metadata, NONE, Selector, UNSET, null_is_default};

/// The most texts of a list that are printed.
const MOST: usize = 3;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ingress {
    metadata: Metadata,
    spec: IngressSpec,
    status: IngressStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct IngressSpec {
    ingress_class_name: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    rules: Vec<IngressRule>,
    #[serde(deserialize_with = "null_is_default")]
    tls: Vec<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct IngressRule {
    host: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct IngressStatus {
    load_balancer: LoadBalancer,
}

impl Ingress {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        Row::texts([
            metadata.name.clone(),
            spec.ingress_class_name.clone().unwrap_or_else(|| NONE.to_owned()),
            spec.hosts(),
            status.load_balancer.addresses().join(","),
            if spec.tls.is_empty() { "80".to_owned() } else { "80, 443".to_owned() },
            age_at(now, metadata.creation_timestamp),
        ])
    }
}

impl IngressSpec {
    /// Returns the first hosts. As on the server, the rest is the number of rules after the third, with or without a
    /// host.
    fn hosts(&self) -> String {
        let mut hosts = Vec::new();
        for (at, rule) in self.rules.iter().enumerate() {
            if hosts.len() == MOST {
                let rest = self.rules.len() - MOST;
                debug_assert!(at >= MOST, "each host has a rule");
                return format!("{} + {rest} more...", hosts.join(","));
            }
            if !rule.host.is_empty() {
                hosts.push(&*rule.host);
            }
        }
        if hosts.is_empty() { "*".to_owned() } else { hosts.join(",") }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkPolicy {
    metadata: Metadata,
    spec: NetworkPolicySpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NetworkPolicySpec {
    pod_selector: Selector,
}

impl NetworkPolicy {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec } = self;
        let selector = Selector::text_or_none(Some(&spec.pod_selector));
        Row::texts([metadata.name.clone(), selector, age_at(now, metadata.creation_timestamp)])
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Endpoints {
    metadata: Metadata,
    #[serde(deserialize_with = "null_is_default")]
    subsets: Vec<EndpointSubset>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndpointSubset {
    #[serde(deserialize_with = "null_is_default")]
    addresses: Vec<EndpointAddress>,
    #[serde(deserialize_with = "null_is_default")]
    ports: Vec<EndpointPort>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndpointAddress {
    ip: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndpointPort {
    name: Option<String>,
    port: Option<i32>,
}

impl Endpoints {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let addresses = self.subsets.iter().flat_map(EndpointSubset::addresses);
        let addresses = if self.subsets.is_empty() { NONE.to_owned() } else { first_of(addresses, "") };
        Row::texts([self.metadata.name.clone(), addresses, age_at(now, self.metadata.creation_timestamp)])
    }
}

impl EndpointSubset {
    /// Returns each address with each port, or without one if the Service has none.
    fn addresses(&self) -> impl Iterator<Item = String> {
        let plain = self.addresses.iter().filter(|_| self.ports.is_empty()).map(|address| address.ip.clone());
        let with_ports = self.ports.iter().flat_map(|EndpointPort { port, .. }| {
            let port = port.unwrap_or(0);
            self.addresses.iter().map(move |EndpointAddress { ip }| match ip.parse::<Ipv6Addr>() {
                Ok(_) => format!("[{ip}]:{port}"),
                Err(_) => format!("{ip}:{port}"),
            })
        });
        plain.chain(with_ports)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EndpointSlice {
    metadata: Metadata,
    address_type: String,
    #[serde(deserialize_with = "null_is_default")]
    endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "null_is_default")]
    ports: Vec<EndpointPort>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    #[serde(deserialize_with = "null_is_default")]
    addresses: Vec<String>,
}

impl EndpointSlice {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let ports = self.ports.iter().map(|EndpointPort { name, port }| match (port, name) {
            (Some(port), _) => port.to_string(),
            (None, Some(name)) => name.clone(),
            (None, None) => "*".to_owned(),
        });
        let addresses = self.endpoints.iter().flat_map(|endpoint| endpoint.addresses.iter().cloned());
        Row::texts([
            self.metadata.name.clone(),
            self.address_type.clone(),
            first_of(ports, UNSET),
            first_of(addresses, UNSET),
            age_at(now, self.metadata.creation_timestamp),
        ])
    }
}

/// Returns the first texts and the number of the others, or `empty` if there is no text.
fn first_of(texts: impl Iterator<Item = String>, empty: &str) -> String {
    let (mut first, mut count) = (Vec::new(), 0);
    for text in texts {
        if count < MOST {
            first.push(text);
        }
        count += 1;
    }
    match first.join(",") {
        joined if count > MOST => format!("{joined} + {} more...", count - MOST),
        joined if joined.is_empty() => empty.to_owned(),
        joined => joined,
    }
}
