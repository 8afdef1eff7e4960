//! Reads fields of Pods by views, by paths and by decoding, and builds an index over stored Pods in each way.
//!
//! `cargo bench -p listwatch-benches --bench views` prints the ratios of this run at the end. Times are of the
//! processor, not of the clock, so that other programs disturb them less. `crates/views/tests/allocations.rs` counts
//! allocations.

#[path = "views/full_walk.rs"]
mod full_walk;

use std::hint::black_box;

use criterion::measurement::Measurement as _;
use criterion::{Criterion, Throughput};
use k8s_pb::api::core::v1::Pod;
use listwatch::path::pod;
use listwatch::{Encoding, Event, ItemError, ItemRef, ListDecoder};
use listwatch_benches::{CpuTime, median};
use listwatch_cache::{StorageFormat, Store};
use listwatch_testserver::{Synthesizer, recorded_pods};
use listwatch_views::core_v1::PodView;
use prost::Message as _;

const GROUP: &str = "views";
const STORED: u32 = 50_000;
const LABEL: &str = "app.kubernetes.io/name";

fn main() {
    let mut criterion = Criterion::default().with_measurement(CpuTime).configure_from_args();
    reads(&mut criterion);
    criterion.final_summary();
    let decode = median(GROUP, "decode, six reads");
    for name in ["six reads", "check", "check, six reads", "all fields", "six reads by paths"] {
        if let (Some(decode), Some(view)) = (decode, median(GROUP, name)) {
            println!("{name}: {:.0} ns a Pod, 1/{:.0} of decoding", view / 120.0, decode / view);
        }
    }
    if std::env::args().any(|arg| arg == "--bench") {
        indexes("encoded", StorageFormat::Encoded);
        indexes("compressed", StorageFormat::Compressed);
    }
}

fn reads(criterion: &mut Criterion<CpuTime>) {
    let body = recorded_pods();
    let mut pods: Vec<Box<[u8]>> = Vec::new();
    each_item(&body, |item| pods.push(item.to_box()));
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    for pod in &pods {
        drop(store.apply(Encoding::Protobuf, pod).expect("a Pod"));
    }
    let objects: Vec<_> = store.snapshot().iter().collect();
    assert_eq!((objects.len(), pods.len()), (120, 120));
    let mut group = criterion.benchmark_group(GROUP);
    group.throughput(Throughput::Elements(pods.len() as u64));
    group.bench_function("six reads", |bencher| {
        bencher.iter(|| objects.iter().for_each(|object| six_reads(black_box(object).view().expect("a Pod"))));
    });
    group.bench_function("all fields", |bencher| {
        bencher.iter(|| {
            for object in &objects {
                black_box(full_walk::walk(black_box(object).view::<PodView<'_>>().expect("a Pod")));
            }
        });
    });
    let mut bench = |name: &str, look: &dyn Fn(&[u8])| {
        group.bench_function(name, |bencher| bencher.iter(|| pods.iter().for_each(|pod| look(black_box(pod)))));
    };
    bench("check", &|pod| _ = black_box(item(pod).view::<PodView<'_>>().expect("a Pod")));
    bench("check, six reads", &|pod| six_reads(item(pod).view().expect("a Pod")));
    bench("six reads by paths", &|pod| {
        let item = item(pod);
        let meta = item.meta().expect("metadata");
        black_box((meta.name(), meta.namespace(), meta.label(LABEL).expect("labels")));
        black_box((pod::NODE_NAME.str(item).expect("a Pod"), pod::PHASE.str(item).expect("a Pod")));
        pod::IMAGES.strs(item).for_each(|image| _ = black_box(image.expect("a Pod")));
    });
    bench("decode, six reads", &|pod| {
        let pod = Pod::decode(pod).expect("a Pod");
        let metadata = pod.metadata.as_ref().expect("metadata");
        black_box((&metadata.name, &metadata.namespace, metadata.labels.get(LABEL)));
        let (spec, status) = (pod.spec.as_ref().expect("a spec"), pod.status.as_ref().expect("a status"));
        black_box((&spec.node_name, &status.phase));
        spec.containers.iter().for_each(|container| _ = black_box(&container.image));
    });
    group.finish();
}

fn six_reads(pod: PodView<'_>) {
    let (metadata, spec) = (pod.metadata(), pod.spec());
    black_box((metadata.name(), metadata.namespace(), metadata.labels().get(LABEL)));
    black_box((spec.node_name(), pod.status().phase()));
    spec.containers().iter().for_each(|container| _ = black_box(container.image()));
}

/// Builds the same index over stored Pods in each way, the first one over Pods that were not checked.
fn indexes(name: &str, format: StorageFormat) {
    let mut rows: [(&str, Vec<f64>); 4] =
        [("view, first touch", vec![]), ("view, checked", vec![]), ("path", vec![]), ("decode", vec![])];
    for _ in 0..3 {
        let store = Store::<Pod>::new(format);
        let mut relist = store.begin_relist();
        let body = Synthesizer::new(&recorded_pods(), STORED).expect("a list").to_vec();
        each_item(&body, |item| drop(relist.apply(item.encoding(), item.bytes()).expect("a Pod")));
        relist.commit("1").expect("no other replace");
        drop(body);
        let mut measure = |row: usize, build: &dyn Fn() -> usize| {
            let start = CpuTime.start();
            assert!(black_box(build()) > 0);
            rows[row].1.push(CpuTime.to_f64(&CpuTime.end(start)));
        };
        let by_view = || {
            let index = store.index("image", |object| {
                let containers = object.view::<PodView<'_>>()?.spec().containers();
                Ok::<Vec<_>, ItemError>(containers.iter().map(|container| container.image().to_owned()).collect())
            });
            assert!(index.errors().is_empty());
            index.values().len()
        };
        measure(0, &by_view);
        measure(1, &by_view);
        measure(2, &|| {
            let index = store.index("image", |object| {
                pod::IMAGES
                    .strs(object.item()?)
                    .map(|image| image.map(String::from))
                    .collect::<Result<Vec<_>, ItemError>>()
            });
            index.values().len()
        });
        measure(3, &|| {
            let index = store.index("image", |object| {
                let pod = object.decode()?;
                let containers = pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
                Ok::<Vec<_>, ItemError>(containers.iter().filter_map(|container| container.image.clone()).collect())
            });
            index.values().len()
        });
    }
    let medians = rows.map(|(name, mut times)| {
        times.sort_by(f64::total_cmp);
        (name, times[times.len() / 2])
    });
    let [.., (_, decode)] = medians;
    for (row, time) in medians {
        println!("index over {STORED} {name} Pods, {row}: {:.1} ms, 1/{:.1} of decoding", time / 1e6, decode / time);
    }
}

fn item(pod: &[u8]) -> ItemRef<'_> {
    ItemRef::new(Encoding::Protobuf, pod)
}

fn each_item(mut body: &[u8], mut on_item: impl FnMut(ItemRef<'_>)) {
    let mut decoder = ListDecoder::new();
    while let Some(event) = decoder.decode(black_box(&mut body)).expect("a list") {
        if let Event::Item(item) = event {
            on_item(item);
        }
    }
}
