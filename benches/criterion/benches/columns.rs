//! Reads three columns of recorded Pods by JSONPath, as `-o custom-columns` does, from protobuf and from JSON. The
//! reference builds a value of the whole object first.
//!
//! `cargo bench -p listwatch-benches --bench columns` prints the ratios of this run's medians at the end.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use listwatch::{Event, ItemRef, ListDecoder};
use listwatch_benches::median;
use listwatch_tables::json_path::{JsonPath, ObjectReader};
use serde_json::Value;

const LISTS: [(&str, &[u8]); 2] = [
    ("columns of protobuf", include_bytes!("../../../fixtures/pods.pb")),
    ("columns of JSON", include_bytes!("../../../fixtures/pods.json")),
];
const WHOLE: &str = "of the whole object";
const NEEDED: &str = "of what they need";

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for (name, list) in LISTS {
        columns(&mut criterion, name, list);
    }
    criterion.final_summary();
    for (name, _) in LISTS {
        if let (Some(whole), Some(needed)) = (median(name, WHOLE), median(name, NEEDED)) {
            println!("{name}: 1/{:.0} of the time with the whole object", whole / needed);
        }
    }
}

fn columns(criterion: &mut Criterion, name: &str, list: &[u8]) {
    let paths =
        [".metadata.name", ".spec.nodeName", ".status.phase"].map(|path| JsonPath::parse(path).expect("a path"));
    let mut items = 0;
    each_item(list, |_| items += 1);
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(items));
    group.bench_function(WHOLE, |bencher| {
        bencher.iter(|| {
            each_item(black_box(list), |item| {
                let mut json = Vec::new();
                item.to_json(&mut json).expect("a Pod");
                print(&paths, &serde_json::from_slice(&json).expect("JSON"));
            });
        });
    });
    group.bench_function(NEEDED, |bencher| {
        let mut reader = ObjectReader::of_paths(&paths);
        bencher.iter(|| each_item(black_box(list), |item| print(&paths, &reader.read(item).expect("a Pod").0)));
    });
    group.finish();
}

fn print(paths: &[JsonPath], object: &Value) {
    for path in paths {
        let mut cell = Vec::new();
        for value in path.find(object).expect("a value") {
            listwatch_tables::json_path::print(value, &mut cell);
        }
        black_box(cell);
    }
}

fn each_item(mut list: &[u8], mut each: impl FnMut(&ItemRef<'_>)) {
    let mut decoder = ListDecoder::new().accept_json();
    while let Some(event) = decoder.decode(&mut list).expect("a list") {
        if let Event::Item(item) = event {
            each(&item);
        }
    }
}
