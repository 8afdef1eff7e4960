//! Keeps a whole list as encoded items, each in its own box, and decodes one item: `cargo run --example keep [FILE]`.

use std::collections::HashMap;
use std::env::args;
use std::error::Error;
use std::fs::File;

use k8s_pb::api::core::v1::Pod;
use listwatch::{ItemError, ListReader};
use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let file = File::open(args().nth(1).unwrap_or_else(|| "fixtures/pods.pb".to_owned()))?;
    let pods: HashMap<String, Box<[u8]>> =
        ListReader::with(file, |item| Ok::<_, ItemError>((item.meta()?.name().into_owned(), item.to_box())))
            .collect::<Result<_, _>>()?;
    let bytes: usize = pods.values().map(|pod| pod.len()).sum();
    println!("{} Pods in {bytes} bytes", pods.len());
    if let Some((name, pod)) = pods.iter().max_by_key(|(_, pod)| pod.len()) {
        let labels = Pod::decode(&pod[..])?.metadata.unwrap_or_default().labels;
        println!("the largest Pod is {name}, with the labels {labels:?}");
    }
    Ok(())
}
