//! Prints, as a Markdown table, how much memory a compressed store takes for objects of seven kinds.
//!
//! `cargo run --release -p listwatch-benches --example kinds`
//!
//! For each kind, the program makes 20,000 objects (`objects.rs`) and writes them in the order of their keys to an
//! empty store, as a list does. The generator is seeded, so each run makes the same objects.
//!
//! | column | meaning |
//! |---|---|
//! | encoded | the length of an object in bytes, on average |
//! | without groups | compressed, after controlling owners and `metadata.generateName` were removed from the same objects |
//! | with groups | compressed, with them |
//!
//! Compressed sizes are the parts `compressed` and `encoded` of the store's `Memory`, divided by the number of objects.
//! They include the references of delta groups, but not the tables of the store and of zstd. The removed owner also
//! makes an object shorter, for which the column "without groups" does not correct. `metadata.managedFields` stays
//! unchanged.

mod objects;

use std::collections::BTreeMap;
use std::error::Error;

use fastrand::Rng;
use k8s_pb::Metadata;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use listwatch::Encoding;
use listwatch_cache::{StorageFormat, Store};
use prost::Message;
use serde_json::Value;

const OBJECTS: usize = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    println!("| kind | encoded | compressed without groups | compressed with groups |");
    println!("|---|---:|---:|---:|");
    measure("Node, no owner", objects::node)?;
    measure("EndpointSlice, mostly one for each Service", objects::endpoint_slices)?;
    measure("ConfigMap, no owner", objects::config_map)?;
    measure("Lease of a node, no controlling owner", objects::lease)?;
    measure("ReplicaSet, 1 to 11 of a Deployment", objects::replica_sets)?;
    measure("Event, no owner", objects::event)?;
    measure("custom resource in JSON, 10 of an owner", objects::revisions)
}

/// Prints the row of a kind. Each call of `of_owner` makes the objects of another owner.
fn measure(kind: &str, of_owner: fn(&mut Rng) -> Vec<Object>) -> Result<(), Box<dyn Error>> {
    let (mut rng, mut objects) = (Rng::with_seed(40), BTreeMap::new());
    while objects.len() < OBJECTS {
        objects.extend(of_owner(&mut rng).into_iter().map(|object| (object.key.clone(), object)));
    }
    let objects: Vec<_> = objects.into_values().take(OBJECTS).collect();
    let encoded: usize = objects.iter().map(|object| object.bytes.len()).sum();
    let without_groups = compressed(objects.iter().map(|object| (object.encoding, &object.without_group)))?;
    let with_groups = compressed(objects.iter().map(|object| (object.encoding, &object.bytes)))?;
    println!("| {kind} | {} | {without_groups} | {with_groups} |", encoded / OBJECTS);
    Ok(())
}

/// Returns the bytes that a compressed store takes for each of the objects.
fn compressed<'a>(objects: impl Iterator<Item = (Encoding, &'a Vec<u8>)>) -> Result<usize, Box<dyn Error>> {
    let store = Store::<[u8]>::new(StorageFormat::Compressed);
    let mut relist = store.begin_relist();
    for (encoding, bytes) in objects {
        drop(relist.apply(encoding, bytes)?);
    }
    drop(relist.commit("1900000000")?);
    let memory = store.memory();
    Ok((memory.compressed + memory.encoded) / OBJECTS)
}

struct Object {
    encoding: Encoding,
    /// The namespace and the name, by which lists are ordered.
    key: String,
    bytes: Vec<u8>,
    /// The bytes without what makes the object a member of a delta group: its controlling owner and
    /// `metadata.generateName`.
    without_group: Vec<u8>,
}

impl Object {
    fn protobuf(mut object: impl Message + Metadata<Ty = ObjectMeta>) -> Self {
        let (mut key, bytes) = (String::new(), object.encode_to_vec());
        if let Some(meta) = object.metadata_mut() {
            key = format!("{}/{}", meta.namespace(), meta.name());
            meta.owner_references.retain(|owner| !owner.controller());
            meta.generate_name = None;
        }
        Self { encoding: Encoding::Protobuf, key, bytes, without_group: object.encode_to_vec() }
    }

    fn json(mut object: Value) -> Self {
        let [namespace, name] = ["namespace", "name"].map(|key| object["metadata"][key].as_str().unwrap_or_default());
        let (key, bytes) = (format!("{namespace}/{name}"), object.to_string().into_bytes());
        object["metadata"].as_object_mut().and_then(|meta| meta.remove("ownerReferences"));
        Self { encoding: Encoding::Json, key, bytes, without_group: object.to_string().into_bytes() }
    }
}
