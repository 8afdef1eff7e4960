//! Finds the items of a list in memory. The reference is memcpy of the same body in the same chunks.
//!
//! `cargo bench -p listwatch-benches --bench framing` prints the ratios of this run's medians at the end.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use listwatch::{Event, ListDecoder};
use listwatch_benches::{median, memcpy};
use listwatch_testserver::{Synthesizer, recorded_pods};

/// About 170 MB, far more than the processor's caches hold.
const PODS: u32 = 20_000;
const CHUNKS: [usize; 2] = [64 << 10, 4 << 10];
const GROUP: &str = "framing";

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    framing(&mut criterion);
    criterion.final_summary();
    for chunk in CHUNKS {
        let [framing, memcpy] = ["framing", "memcpy"].map(|name| median(GROUP, &format!("{name}-{chunk}")));
        if let (Some(framing), Some(memcpy)) = (framing, memcpy) {
            println!("chunks of {:2} KiB: {:.2} times the bandwidth of memcpy", chunk >> 10, memcpy / framing);
        }
    }
}

fn framing(criterion: &mut Criterion) {
    let body = Synthesizer::new(&recorded_pods(), PODS).expect("recorded Pods synthesize").to_vec();
    let mut group = criterion.benchmark_group(GROUP);
    group.throughput(Throughput::Bytes(body.len() as u64)).sample_size(20);
    for chunk in CHUNKS {
        memcpy(&mut group, &body, chunk);
        group.bench_function(format!("framing-{chunk}"), |bencher| {
            bencher.iter(|| {
                let mut decoder = ListDecoder::new();
                for mut chunk in black_box(&body).chunks(chunk) {
                    while let Some(event) = decoder.decode(&mut chunk).expect("a list") {
                        if let Event::Item(item) = event {
                            black_box(item.bytes());
                        }
                    }
                }
                assert_eq!(decoder.finish().expect("a complete list").items, u64::from(PODS));
            });
        });
    }
    group.finish();
}
