//! Passes over the recorded Pods once in each hot path, so that valgrind can count the instructions.
//!
//! The count excludes making the input and freeing the output. `../../src/main.rs` runs this.
//!
//! The benchmarks of custom resources read six fields of 100 revisions of 4.9 kB, or decode them.

#![expect(missing_docs, reason = "gungraun's macros make modules")]

mod revision;

use std::hint::black_box;

use gungraun::prelude::*;
use k8s_pb::api::core::v1::Pod;
use listwatch::path::{meta, pod};
use listwatch::{Encoding, Event, FieldPath, Item, ItemRef, ListDecoder, Projection, WatchDecoder};
use listwatch_corpus::custom::CustomKind;
use listwatch_testserver::recorded_pods;
use serde::de::DeserializeOwned;

use self::revision::{Revision, SlimRevision, six};

const KIB: usize = 1 << 10;

/// A body and its chunk length.
type Chunks = (&'static [u8], usize);

// The benchmarks contain no closures. A closure's name contains its function's name, and is part of the names of the
// generic functions that call it; gungraun stops counting where such a function begins.

#[library_benchmark(setup = list)]
#[bench::in_64_kib(64 * KIB)]
#[bench::in_4_kib(4 * KIB)]
fn frame(list: Chunks) {
    each_item(list, read_bytes);
}

#[library_benchmark(setup = json_list)]
#[bench::in_64_kib(64 * KIB)]
#[bench::in_4_kib(4 * KIB)]
fn frame_json(list: Chunks) {
    each_item(list, read_bytes);
}

#[library_benchmark(setup = watch)]
#[bench::in_64_kib(64 * KIB)]
#[bench::in_4_kib(4 * KIB)]
fn watch_frame((body, len): Chunks) {
    let mut decoder = WatchDecoder::new();
    for mut chunk in black_box(body).chunks(len) {
        while let Some(event) = decoder.decode(&mut chunk).expect("a watch") {
            black_box(event);
        }
    }
}

#[library_benchmark(setup = list)]
#[bench::in_64_kib(64 * KIB)]
fn decode_and_drop(list: Chunks) {
    each_item(list, decode);
}

#[library_benchmark(setup = list)]
#[bench::in_64_kib(64 * KIB)]
fn keep_bytes(list: Chunks) -> Vec<Box<[u8]>> {
    keep(list)
}

#[library_benchmark(setup = pods)]
#[bench::name_namespace_uid_version()]
fn meta_view(pods: &[Box<[u8]>]) {
    for pod in black_box(pods) {
        let view = ItemRef::new(Encoding::Protobuf, pod).meta().expect("metadata");
        black_box((view.name(), view.namespace(), view.uid(), view.resource_version()));
    }
}

#[library_benchmark(setup = projection)]
#[bench::without_managed_fields()]
fn project((projection, pods): (Projection, &[Box<[u8]>])) -> Projection {
    for pod in black_box(pods) {
        drop(black_box(ItemRef::new(Encoding::Protobuf, pod).project(&projection).expect("a Pod")));
    }
    projection
}

#[library_benchmark(setup = pods)]
#[bench::node_name()]
fn field_path(pods: &[Box<[u8]>]) {
    for pod in black_box(pods) {
        black_box(pod::NODE_NAME.str(ItemRef::new(Encoding::Protobuf, pod)).expect("a Pod"));
    }
}

#[library_benchmark(setup = paths)]
#[bench::by_field_path()]
fn six_fields((paths, revisions): ([FieldPath; 6], &[Box<[u8]>])) -> [FieldPath; 6] {
    for revision in black_box(revisions) {
        for path in &paths {
            black_box(path.bytes(ItemRef::new(Encoding::Json, revision)).expect("a revision"));
        }
    }
    paths
}

#[library_benchmark(setup = projected_paths)]
#[bench::by_projection()]
fn six_projected_fields(
    (projection, paths, revisions): (Projection, [FieldPath; 6], &[Box<[u8]>]),
) -> (Projection, [FieldPath; 6]) {
    let mut copy = Vec::new();
    for revision in black_box(revisions) {
        copy.clear();
        ItemRef::new(Encoding::Json, revision).project_into(&projection, &mut copy).expect("a revision");
        for path in &paths {
            black_box(path.bytes(ItemRef::new(Encoding::Json, &copy)).expect("a revision"));
        }
    }
    (projection, paths)
}

#[library_benchmark(setup = revisions)]
#[bench::six_fields()]
fn slim_struct(revisions: &[Box<[u8]>]) {
    decode_json::<SlimRevision>(revisions);
}

#[library_benchmark(setup = revisions)]
#[bench::all_fields()]
fn whole_struct(revisions: &[Box<[u8]>]) {
    decode_json::<Revision>(revisions);
}

library_benchmark_group!(
    name = hot_paths,
    benchmarks = [
        frame,
        frame_json,
        watch_frame,
        decode_and_drop,
        keep_bytes,
        meta_view,
        project,
        field_path,
        six_fields,
        six_projected_fields,
        slim_struct,
        whole_struct
    ]
);
main!(
    // glibc copies large blocks with `rep movsb`, which valgrind counts once per byte: that would dominate the counts.
    config = LibraryBenchmarkConfig::default().env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-ERMS"),
    library_benchmark_groups = hot_paths
);

fn watch(len: usize) -> Chunks {
    (include_bytes!("../../../../fixtures/watch-initial-events-pods.pb"), len)
}

fn list(chunk: usize) -> Chunks {
    (recorded_pods().leak(), chunk)
}

fn json_list(chunk: usize) -> Chunks {
    (include_bytes!("../../../../fixtures/pods.json"), chunk)
}

fn pods() -> &'static [Box<[u8]>] {
    keep(list(usize::MAX)).leak()
}

fn revisions() -> &'static [Box<[u8]>] {
    let revisions = CustomKind::Revision.objects(100);
    revisions.into_iter().map(|revision| revision.json.into_bytes().into()).collect::<Vec<_>>().leak()
}

fn paths() -> ([FieldPath; 6], &'static [Box<[u8]>]) {
    (six(), revisions())
}

fn projected_paths() -> (Projection, [FieldPath; 6], &'static [Box<[u8]>]) {
    let projection = six().iter().fold(Projection::new(), Projection::keep);
    (projection, six(), revisions())
}

fn projection() -> (Projection, &'static [Box<[u8]>]) {
    (Projection::new().drop(&meta::MANAGED_FIELDS), pods())
}

fn read_bytes(item: ItemRef<'_>) {
    black_box(item.bytes());
}

fn decode_json<T: DeserializeOwned>(objects: &[Box<[u8]>]) {
    for object in black_box(objects) {
        drop(black_box(ItemRef::new(Encoding::Json, object).decode_json::<T>().expect("a revision")));
    }
}

fn decode(item: ItemRef<'_>) {
    drop(black_box(Pod::from_ref(item).expect("a Pod")));
}

fn keep(list: Chunks) -> Vec<Box<[u8]>> {
    let mut kept = Vec::new();
    each_item(list, |item| kept.push(item.to_box()));
    kept
}

fn each_item((body, chunk): Chunks, mut on_item: impl FnMut(ItemRef<'_>)) {
    let mut decoder = ListDecoder::new().accept_json();
    for mut chunk in black_box(body).chunks(chunk) {
        while let Some(event) = decoder.decode(&mut chunk).expect("a list") {
            if let Event::Item(item) = event {
                on_item(item);
            }
        }
    }
    decoder.finish().expect("a complete list");
}
