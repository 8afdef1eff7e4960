//! Inspects recorded Pods without decoding them, and copies them without some fields. The reference decodes them with
//! k8s-pb.
//!
//! `cargo bench -p listwatch-benches --bench look` prints the ratios of this run's medians at the end.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use k8s_pb::api::core::v1::Pod;
use listwatch::path::{meta, pod};
use listwatch::{Encoding, Event, ItemRef, ListDecoder, MetaView, Projection};
use listwatch_benches::median;
use listwatch_testserver::recorded_pods;
use prost::Message as _;

const GROUP: &str = "look";
const DECODE: &str = "decode with k8s-pb";
const LOOKS: [&str; 8] = [
    "frame",
    "name, namespace, uid, version",
    "those four and all labels",
    "one label",
    "spec.nodeName",
    "copy",
    "copy without managedFields",
    "copy without managedFields, last-applied, status",
];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    look(&mut criterion);
    criterion.final_summary();
    for name in LOOKS {
        if let (Some(decode), Some(look)) = (median(GROUP, DECODE), median(GROUP, name)) {
            println!("{name}: 1/{:.0} of the time of decoding", decode / look);
        }
    }
}

fn look(criterion: &mut Criterion) {
    let body = recorded_pods();
    let mut pods: Vec<Box<[u8]>> = Vec::new();
    each_item(&body, |item| pods.push(item.to_box()));
    let mut group = criterion.benchmark_group(GROUP);
    group.throughput(Throughput::Elements(pods.len() as u64));
    let mut bench = |name: &str, look: &dyn Fn(&[u8])| {
        group.bench_function(name, |bencher| bencher.iter(|| pods.iter().for_each(|pod| look(black_box(pod)))));
    };
    let managed_fields = Projection::new().drop(&meta::MANAGED_FIELDS);
    let much = managed_fields.clone().drop(&meta::LAST_APPLIED).drop(&pod::STATUS);

    bench(DECODE, &|pod| drop(black_box(Pod::decode(pod).expect("a Pod"))));
    bench("name, namespace, uid, version", &|pod| {
        let view = view(pod);
        black_box((view.name(), view.namespace(), view.uid(), view.resource_version()));
    });
    bench("those four and all labels", &|pod| {
        let view = view(pod);
        black_box((view.name(), view.namespace(), view.uid(), view.resource_version()));
        view.labels().expect("labels").for_each(|label| _ = black_box(label));
    });
    bench("one label", &|pod| _ = black_box(view(pod).label("app.kubernetes.io/name")));
    bench("spec.nodeName", &|pod| _ = black_box(pod::NODE_NAME.str(item(pod)).expect("a Pod")));
    bench("copy", &|pod| drop(black_box(Box::<[u8]>::from(pod))));
    bench("copy without managedFields", &|pod| drop(black_box(item(pod).project(&managed_fields).expect("a Pod"))));
    bench("copy without managedFields, last-applied, status", &|pod| {
        drop(black_box(item(pod).project(&much).expect("a Pod")));
    });

    group.bench_function("frame", |bencher| bencher.iter(|| each_item(&body, |item| _ = black_box(item.bytes()))));
    group.finish();
}

fn item(pod: &[u8]) -> ItemRef<'_> {
    ItemRef::new(Encoding::Protobuf, pod)
}

fn view(pod: &[u8]) -> MetaView<'_> {
    item(pod).meta().expect("metadata")
}

fn each_item(mut body: &[u8], mut on_item: impl FnMut(ItemRef<'_>)) {
    let mut decoder = ListDecoder::new();
    while let Some(event) = decoder.decode(black_box(&mut body)).expect("a list") {
        if let Event::Item(item) = event {
            on_item(item);
        }
    }
}
