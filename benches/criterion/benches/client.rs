//! Counts the items of a list over loopback. The reference drains the same body with reqwest alone.
//!
//! `cargo bench -p listwatch-benches --bench client` prints the ratio of this run's medians at the end.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use futures::StreamExt;
use listwatch::ItemError;
use listwatch::client::{Client, Config, ListParams, Resource};
use listwatch_benches::median;
use listwatch_testserver::{Answer, Body, Server, Synthesizer, recorded_pods};
use tokio::runtime::{Builder, Runtime};

const PODS: u32 = 20_000;
const GROUP: &str = "client";

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    client(&mut criterion);
    criterion.final_summary();
    if let (Some(count), Some(drain)) = (median(GROUP, "count"), median(GROUP, "drain")) {
        println!("counting takes {:.2} times as long as draining", count / drain);
    }
}

fn client(criterion: &mut Criterion) {
    let body = Synthesizer::new(&recorded_pods(), PODS).expect("recorded Pods synthesize").to_vec();
    let bytes = body.len() as u64;
    // The server runs in its own runtime and does nothing but write.
    let server_runtime = Runtime::new().expect("a runtime");
    let answer = Answer::ok(Body::replay(body)).always();
    let server = server_runtime.block_on(Server::start(answer)).expect("a server");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");

    let url = format!("{}/api/v1/pods", server.url());
    let http = reqwest::Client::builder().no_proxy().http1_only().build().expect("a client");
    let drain = || async {
        let mut chunks = http.get(&url).send().await.expect("a response").bytes_stream();
        let mut drained = 0;
        while let Some(chunk) = chunks.next().await {
            drained += black_box(chunk.expect("a chunk")).len() as u64;
        }
        assert_eq!(drained, bytes);
    };
    let client = Client::new(Config::new(server.url()).build().expect("a transport"));
    let count = || async {
        let list = client.list_with(&Resource::PODS, &ListParams::default(), |item| {
            Ok::<_, ItemError>(black_box(item.bytes()).len())
        });
        let mut items = list;
        while let Some(item) = items.next().await {
            item.expect("a complete list");
        }
        assert_eq!(items.summary().map(|summary| summary.items), Some(u64::from(PODS)));
    };

    let mut group = criterion.benchmark_group(GROUP);
    group.throughput(Throughput::Bytes(bytes)).sample_size(30);
    group.bench_function("drain", |bencher| bencher.iter(|| runtime.block_on(drain())));
    group.bench_function("count", |bencher| bencher.iter(|| runtime.block_on(count())));
    group.finish();
}
