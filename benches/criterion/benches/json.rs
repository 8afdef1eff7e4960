//! Splits JSON lists into items. The references are memcpy of the same body in the same chunks, and `serde_json`, which
//! parses the whole body.
//!
//! `cargo bench -p listwatch-benches --bench json` prints the ratios of this run's medians at the end.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use listwatch::{Event, ListDecoder};
use listwatch_benches::{median, memcpy};
use serde::de::IgnoredAny;
use serde_json::Value;

/// Far more than the processor's caches hold.
const BYTES: usize = 100 << 20;
/// A shorter body for the parsers, whose speed does not depend on the length.
const PARSED: usize = 4 << 20;
const CHUNKS: [usize; 2] = [64 << 10, 4 << 10];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for name in ["pods", "widgets-page-1"] {
        bench(&mut criterion, name);
    }
    criterion.final_summary();
    for name in ["pods", "widgets-page-1"] {
        let group = format!("json-{name}");
        for chunk in CHUNKS {
            let Some(split) = bandwidth(&group, &format!("split-{chunk}"), BYTES) else { continue };
            print!("{name}, chunks of {:2} KiB: {:.2} GB/s", chunk >> 10, split / 1e9);
            for (other, bytes) in
                [(format!("memcpy-{chunk}"), BYTES), ("value".into(), PARSED), ("ignored".into(), PARSED)]
            {
                if let Some(other_bandwidth) = bandwidth(&group, &other, bytes) {
                    print!(", {:.2} times {other}", split / other_bandwidth);
                }
            }
            println!();
        }
    }
}

fn bench(criterion: &mut Criterion, name: &str) {
    let body = synthesize(name, BYTES);
    let mut group = criterion.benchmark_group(format!("json-{name}"));
    group.throughput(Throughput::Bytes(body.len() as u64)).sample_size(20);
    for chunk in CHUNKS {
        memcpy(&mut group, &body, chunk);
        group.bench_function(format!("split-{chunk}"), |bencher| {
            bencher.iter(|| {
                let mut decoder = ListDecoder::new().accept_json();
                for mut chunk in black_box(&body).chunks(chunk) {
                    while let Some(event) = decoder.decode(&mut chunk).expect("a list") {
                        if let Event::Item(item) = event {
                            black_box(item.bytes());
                        }
                    }
                }
                decoder.finish().expect("a complete list")
            });
        });
    }
    let body = synthesize(name, PARSED);
    group.throughput(Throughput::Bytes(body.len() as u64));
    // Item by item: a tree of the whole list would also cost page faults for fresh memory.
    let list: Value = serde_json::from_slice(&body).expect("JSON");
    let items: Vec<_> = list["items"].as_array().expect("a list").iter().map(ToString::to_string).collect();
    group.bench_function("value", |bencher| {
        bencher.iter(|| {
            for item in black_box(&items) {
                black_box(serde_json::from_str::<Value>(item).expect("JSON"));
            }
        });
    });
    group.bench_function("ignored", |bencher| {
        bencher.iter(|| serde_json::from_slice::<IgnoredAny>(black_box(&body)).expect("JSON"));
    });
    group.finish();
}

/// Repeats the items of a recorded list, in the compact form that servers write.
fn synthesize(name: &str, bytes: usize) -> Vec<u8> {
    let path = format!("{}/../../fixtures/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let list: Value = serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("JSON");
    let items = list["items"].as_array().expect("a list").iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut body = format!(r#"{{"kind":{},"apiVersion":{},"items":["#, list["kind"], list["apiVersion"]);
    while body.len() < bytes {
        body += &items;
        body.push(',');
    }
    body.pop();
    body += "]}";
    body.into_bytes()
}

/// Returns bytes per second, from the median that criterion wrote; `None` if the benchmark was filtered out.
#[expect(clippy::cast_precision_loss, reason = "megabytes")]
fn bandwidth(group: &str, name: &str, bytes: usize) -> Option<f64> {
    Some(bytes as f64 / median(group, name)? * 1e9)
}
