//! Counts Pods per node with messages of only the two fields that it needs: `cargo run --example two_fields [FILE]`.
//!
//! prost skips the other fields, so this is much cheaper than decoding whole Pods. The field numbers are from
//! `k8s.io/api/core/v1/generated.proto`.

use std::collections::BTreeMap;
use std::env::args;
use std::error::Error;
use std::fs::File;

use listwatch::ListReader;

#[derive(Clone, PartialEq, prost::Message)]
struct Pod {
    #[prost(message, optional, tag = "2")]
    spec: Option<PodSpec>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PodSpec {
    #[prost(string, tag = "10")]
    node_name: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = File::open(args().nth(1).unwrap_or_else(|| "fixtures/pods.pb".to_owned()))?;
    let mut per_node = BTreeMap::<String, u32>::new();
    for pod in ListReader::new::<Pod>(file) {
        *per_node.entry(pod?.spec.unwrap_or_default().node_name).or_default() += 1;
    }
    for (node, pods) in per_node {
        println!("{pods:5} {node}");
    }
    Ok(())
}
