//! Decodes Pods chunk by chunk, and drops or keeps them. The reference buffers the body and decodes it whole with
//! prost.
//!
//! `cargo bench -p listwatch-benches --bench decode` prints the ratios of this run's medians at the end.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use k8s_pb::api::core::v1::{Pod, PodList};
use listwatch::{Event, Item, ListDecoder};
use listwatch_benches::median;
use listwatch_testserver::{Synthesizer, recorded_pods};
use prost::Message as _;
use prost::bytes::Bytes;

const PODS: u32 = 2_000;
const CHUNKS: [usize; 2] = [64 << 10, 4 << 10];
const GROUP: &str = "decode";
/// The reference of all ratios. It copies chunks of 64 KiB into one buffer.
const FULL_BUFFER: &str = "full buffer";
const WAYS: [&str; 3] = ["Pods dropped", "Pods kept", "bytes kept"];

/// `k8s.io/apimachinery/pkg/runtime/generated.proto`
#[derive(prost::Message)]
struct Unknown {
    /// A slice of the buffer, not a copy.
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    decode(&mut criterion);
    criterion.final_summary();
    for chunk in CHUNKS {
        for way in WAYS {
            let ours = median(GROUP, &format!("{way}-{chunk}"));
            if let (Some(whole), Some(ours)) = (median(GROUP, FULL_BUFFER), ours) {
                println!("{way}, chunks of {:2} KiB: {:.3} of the full buffer's time", chunk >> 10, ours / whole);
            }
        }
    }
}

fn decode(criterion: &mut Criterion) {
    let body = Synthesizer::new(&recorded_pods(), PODS).expect("recorded Pods synthesize").to_vec();
    let mut group = criterion.benchmark_group(GROUP);
    group.throughput(Throughput::Elements(PODS.into())).sample_size(20);
    group.bench_function(FULL_BUFFER, |bencher| {
        bencher.iter(|| {
            let mut buffer = Vec::new();
            black_box(&body).chunks(CHUNKS[0]).for_each(|chunk| buffer.extend_from_slice(chunk));
            let envelope = Unknown::decode(Bytes::from(buffer).slice(b"k8s\0".len()..)).expect("an envelope");
            let list = PodList::decode(envelope.raw).expect("a list");
            assert_eq!(black_box(list).items.len(), PODS as usize);
        });
    });
    for chunk in CHUNKS {
        let mut bench = |way: &str, decode: &dyn Fn(&[u8])| {
            group.bench_function(format!("{way}-{chunk}"), |bencher| bencher.iter(|| decode(black_box(&body))));
        };
        bench(WAYS[0], &|body| each::<Pod>(body, chunk, |pod| drop(black_box(pod))));
        bench(WAYS[1], &|body| keep::<Pod>(body, chunk));
        bench(WAYS[2], &|body| keep::<[u8]>(body, chunk));
    }
    group.finish();
}

fn each<T: Item + ?Sized>(body: &[u8], chunk: usize, mut on_item: impl FnMut(T::Owned)) {
    let mut decoder = ListDecoder::new();
    for mut chunk in body.chunks(chunk) {
        while let Some(event) = decoder.decode(&mut chunk).expect("a list") {
            if let Event::Item(item) = event {
                on_item(T::from_ref(item).expect("a Pod"));
            }
        }
    }
    assert_eq!(decoder.finish().expect("a complete list").items, u64::from(PODS));
}

fn keep<T: Item + ?Sized>(body: &[u8], chunk: usize) {
    let mut kept = Vec::new();
    each::<T>(body, chunk, |item| kept.push(item));
    black_box(kept);
}
