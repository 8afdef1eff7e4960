//! Finds the frames of a watch in memory, and reads the metadata of their objects. The reference is memcpy of the same
//! body in the same chunks.
//!
//! `cargo bench -p listwatch-benches --bench watch` prints events per second at the end, from the last medians of
//! criterion.

use std::fs;
use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput};
use listwatch::{WatchDecoder, WatchEventRef};
use listwatch_benches::{median, memcpy};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Fits into a cache of the processor, like bytes that just arrived. A larger body would measure memory.
const BYTES: usize = 2 << 20;
const CHUNKS: [usize; 2] = [64 << 10, 4 << 10];
const NAMES: [&str; 6] = ["bookmark.pb", "configmap.pb", "pod.pb", "bookmark.json", "configmap.json", "pod.json"];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut bodies = Vec::new();
    for name in NAMES {
        let frames = frames(name);
        let body: Vec<u8> = frames.concat().repeat(BYTES / frames.concat().len());
        let events = body.len() / frames.concat().len() * frames.len();
        bench(&mut criterion, name, &body, events);
        bodies.push((name, body.len(), events));
    }
    criterion.final_summary();
    for (name, bytes, events) in bodies {
        report(name, bytes, events);
    }
}

fn bench(criterion: &mut Criterion, name: &str, body: &[u8], events: usize) {
    let mut group = criterion.benchmark_group(group(name));
    group.throughput(Throughput::Elements(events as u64)).sample_size(20);
    for chunk in CHUNKS {
        memcpy(&mut group, body, chunk);
        group.bench_function(format!("frames-{chunk}"), |bencher| {
            bencher.iter(|| assert_eq!(decode(body, chunk, |event| _ = black_box(event)), events));
        });
        group.bench_function(format!("metadata-{chunk}"), |bencher| {
            bencher.iter(|| {
                decode(body, chunk, |event| {
                    if let WatchEventRef::Added { object, .. } | WatchEventRef::Modified { object, .. } = event {
                        let meta = object.meta().expect("metadata");
                        black_box([meta.namespace(), meta.name(), meta.uid(), meta.resource_version()]);
                    }
                })
            });
        });
    }
    if name == "pod.json" {
        // A view of metadata must read its JSON to the end, so it cannot be faster than this.
        let lines: Vec<&str> = str::from_utf8(body).expect("JSON").lines().collect();
        group.bench_function("ignored", |bencher| {
            bencher.iter(|| {
                for line in black_box(&lines) {
                    serde_json::from_str::<IgnoredAny>(line).expect("JSON");
                }
            });
        });
    }
    group.finish();
}

fn decode(body: &[u8], chunk: usize, mut on_event: impl FnMut(WatchEventRef<'_>)) -> usize {
    let (mut decoder, mut events) = (WatchDecoder::new().accept_json(), 0);
    for mut chunk in black_box(body).chunks(chunk) {
        while let Some(event) = decoder.decode(&mut chunk).expect("a watch") {
            on_event(event);
            events += 1;
        }
    }
    decoder.finish().expect("complete frames");
    events
}

fn group(name: &str) -> String {
    format!("watch-{name}")
}

/// Prints events per second, from the last medians of criterion.
#[expect(clippy::cast_precision_loss, reason = "megabytes")]
fn report(name: &str, bytes: usize, events: usize) {
    let group = group(name);
    for chunk in CHUNKS {
        let Some(memcpy) = median(&group, &format!("memcpy-{chunk}")) else { continue };
        print!("{name}, {} bytes an event, chunks of {:2} KiB", bytes / events, chunk >> 10);
        for what in ["frames", "metadata"] {
            if let Some(time) = median(&group, &format!("{what}-{chunk}")) {
                print!(", {what}: {:.2} million/s, {:.1} times memcpy", events as f64 / time * 1e3, time / memcpy);
            }
        }
        println!();
    }
    if let Some(time) = median(&group, "ignored") {
        println!("{name}: serde_json parses and drops {:.2} million/s", events as f64 / time * 1e3);
    }
}

/// Returns recorded events of one type. The bookmark was recorded from a quiet watch.
fn frames(name: &str) -> Vec<Vec<u8>> {
    match name {
        "bookmark.pb" => protobuf("watch-quiet-bookmarks.pb")[1..2].to_vec(),
        "configmap.pb" => protobuf("watch-configmaps.pb")[1..2].to_vec(),
        "pod.pb" => {
            let mut frames = protobuf("watch-initial-events-pods.pb");
            frames.pop();
            frames
        }
        "bookmark.json" => vec![
            br#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"610"},"spec":{"containers":null},"status":{}}}"#
                .iter()
                .chain(b"\n")
                .copied()
                .collect(),
        ],
        "configmap.json" => {
            let body = read("watch-configmaps.json");
            let lines: Vec<_> = body.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            lines[15..16].to_vec()
        }
        _ => {
            #[derive(serde::Deserialize)]
            struct List {
                items: Vec<Box<RawValue>>,
            }

            let list: List = serde_json::from_slice(&read("pods.json")).expect("a list");
            let event = |pod: &RawValue| {
                let pod = pod.get().replacen('{', r#"{"kind":"Pod","apiVersion":"v1","#, 1);
                format!("{{\"type\":\"ADDED\",\"object\":{pod}}}\n").into_bytes()
            };
            list.items.iter().map(|pod| event(pod)).collect()
        }
    }
}

fn protobuf(name: &str) -> Vec<Vec<u8>> {
    let (body, mut frames, mut at) = (read(name), Vec::new(), 0);
    while let Some(length) = body[at..].first_chunk() {
        let end = at + 4 + u32::from_be_bytes(*length) as usize;
        frames.push(body[at..end].to_vec());
        at = end;
    }
    frames
}

fn read(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)).expect("a fixture")
}
