//! Prints, as Markdown tables, how much memory a compressed store takes for objects of each kind.
//!
//! `cargo run --release -p listwatch-benches --example kinds`
//!
//! For each kind, the program makes objects (`objects.rs` and `listwatch_corpus`) and writes them in the order of their
//! keys to an empty store, as a list does. The generators are seeded, so each run makes the same objects. A process of
//! its own has the store, and reads one object at a time.
//!
//! | column | meaning |
//! |---|---|
//! | encoded | the length of an object in bytes, on average |
//! | zstd | the concatenated objects, compressed by `zstd -19 --long=27` |
//! | objects | the parts `compressed` and `encoded` of the store's `Memory` |
//! | tables | the other parts, with the dictionary and the contexts of zstd |
//! | resident | the growth of anonymous resident memory: objects, tables, and what the allocator rounds up and keeps |
//! | ratio | resident to zstd |
//! | write | user CPU of writing an object, with its share of the training |
//! | read | user CPU of decompressing an object, at random places and in the order of keys |
//!
//! All sizes are in bytes for each object. The second table has stores of few objects, at most [`FEW`].

mod held;
mod objects;

use std::collections::BTreeMap;
use std::error::Error;

use fastrand::Rng;
use k8s_pb::Metadata;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use listwatch::{Encoding, Event, ListDecoder};
use listwatch_corpus::custom::CustomKind;
use listwatch_testserver::Synthesizer;
use prost::Message;
use serde_json::Value;
use zstd_safe::{CCtx, CParameter, compress_bound};

use crate::held::Held;

const OBJECTS: usize = 20_000;
const FEW: [usize; 3] = [50, 500, 2_000];

/// Objects in the order of their keys.
type Objects = Vec<(Encoding, Vec<u8>)>;

type MakeObjects = fn() -> Result<Objects, Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let only = args.next();
    if only.as_deref() == Some(held::COMMAND) {
        return held::measure();
    }
    let kinds: [(&str, MakeObjects); 13] = [
        ("Pod, 500 workloads by Zipf's law", || pods(&listwatch_corpus::pods_by_zipf(20_000, 500))),
        ("Pod, 5 of a workload", || pods(&listwatch_corpus::pods(20_000))),
        ("Pod, 120 recorded ones repeated", || pods(&uniform()?)),
        ("Node, no owner", || Ok(of_owners(objects::node))),
        ("EndpointSlice, mostly one for each Service", || Ok(of_owners(objects::endpoint_slices))),
        ("ConfigMap, no owner", || Ok(of_owners(objects::config_map))),
        ("Lease of a node, no controlling owner", || Ok(of_owners(objects::lease))),
        ("ReplicaSet, 1 to 11 of a Deployment", || Ok(of_owners(objects::replica_sets))),
        ("Event, no owner", || Ok(of_owners(objects::event))),
        ("custom resource of 1 kB, 10 of an owner", || Ok(of_owners(objects::revisions))),
        ("Certificate, an owner each or none", || Ok(custom(CustomKind::Certificate, 20_000))),
        ("Revision, 1 to 20 of an owner", || Ok(custom(CustomKind::Revision, 20_000))),
        ("Application, 4 to 60 of an owner", || Ok(custom(CustomKind::Application, 20_000))),
    ];
    let mut few = Vec::new();
    println!("| kind | encoded | zstd | objects | tables | resident | ratio | write | read at random | in order |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (kind, make) in kinds {
        if only.as_ref().is_some_and(|only| !kind.contains(&**only)) {
            continue;
        }
        let objects = make()?;
        let (sizes, held) = (Sizes::of(&objects), Held::of(&objects)?);
        println!("| {kind} | {} |", row(&sizes, &held, true));
        let few_held = FEW
            .map(|count| objects.get(..count).unwrap_or(&objects))
            .map(|objects| Held::of(objects).map(|held| row(&Sizes::of(objects), &held, false)));
        few.extend(
            few_held.into_iter().zip(FEW).map(|(row, count)| row.map(|row| format!("| {kind} | {count} | {row} |"))),
        );
    }
    println!(
        "\n| kind | objects | encoded | zstd | objects | tables | resident | ratio |\n|---|---:|---:|---:|---:|---:|---:|---:|"
    );
    for row in few {
        println!("{}", row?);
    }
    Ok(())
}

/// The bytes of all objects of a kind.
struct Sizes {
    objects: usize,
    encoded: usize,
    zstd: usize,
}

impl Sizes {
    fn of(objects: &[(Encoding, Vec<u8>)]) -> Self {
        let mut all = Vec::new();
        for (_, bytes) in objects {
            all.extend_from_slice(bytes);
        }
        let mut context = CCtx::create();
        for parameter in
            [CParameter::CompressionLevel(19), CParameter::EnableLongDistanceMatching(true), CParameter::WindowLog(27)]
        {
            context.set_parameter(parameter).expect("zstd has this parameter");
        }
        let mut compressed = Vec::with_capacity(compress_bound(all.len()));
        let zstd = context.compress2(&mut compressed, &all).expect("zstd compresses");
        Self { objects: objects.len(), encoded: all.len(), zstd }
    }
}

/// Returns the columns of a row.
fn row(sizes: &Sizes, held: &Held, with_time: bool) -> String {
    let Sizes { objects: count, encoded, zstd } = sizes;
    let Held { objects, tables, resident, write, read, read_in_order } = held;
    let ratio = (100 * resident * count + zstd / 2) / zstd;
    let (encoded, zstd) = (encoded / count, zstd / count);
    let sizes = format!("{encoded} | {zstd} | {objects} | {tables} | {resident} | {}.{:02}", ratio / 100, ratio % 100);
    let micros = |nanos: &usize| format!("{}.{} µs", nanos / 1000, nanos / 100 % 10);
    if with_time {
        format!("{sizes} | {} | {} | {}", micros(write), micros(read), micros(read_in_order))
    } else {
        sizes
    }
}

fn pods(mut body: &[u8]) -> Result<Objects, Box<dyn Error>> {
    let (mut decoder, mut objects) = (ListDecoder::new(), Vec::new());
    while let Some(event) = decoder.decode(&mut body)? {
        if let Event::Item(item) = event {
            objects.push((item.encoding(), item.bytes().to_vec()));
        }
    }
    decoder.finish()?;
    Ok(objects)
}

fn uniform() -> Result<Vec<u8>, Box<dyn Error>> {
    Ok(Synthesizer::new(&listwatch_testserver::recorded_pods(), 20_000)?.to_vec())
}

fn custom(kind: CustomKind, count: u32) -> Objects {
    kind.objects(count).into_iter().map(|object| (Encoding::Json, object.json.into_bytes())).collect()
}

/// Makes the objects of a kind. Each call of `of_owner` makes the objects of another owner.
fn of_owners(of_owner: fn(&mut Rng) -> Vec<Object>) -> Objects {
    let (mut rng, mut objects) = (Rng::with_seed(40), BTreeMap::new());
    while objects.len() < OBJECTS {
        objects.extend(of_owner(&mut rng).into_iter().map(|object| (object.key.clone(), object)));
    }
    objects.into_values().take(OBJECTS).map(|object| (object.encoding, object.bytes)).collect()
}

struct Object {
    encoding: Encoding,
    /// The namespace and the name, by which lists are ordered.
    key: String,
    bytes: Vec<u8>,
}

impl Object {
    fn protobuf(mut object: impl Message + Metadata<Ty = ObjectMeta>) -> Self {
        let bytes = object.encode_to_vec();
        let key = object.metadata_mut().map(|meta| format!("{}/{}", meta.namespace(), meta.name()));
        Self { encoding: Encoding::Protobuf, key: key.unwrap_or_default(), bytes }
    }

    fn json(object: &Value) -> Self {
        let [namespace, name] = ["namespace", "name"].map(|key| object["metadata"][key].as_str().unwrap_or_default());
        let (key, bytes) = (format!("{namespace}/{name}"), object.to_string().into_bytes());
        Self { encoding: Encoding::Json, key, bytes }
    }
}
