//! Lists a million Pods, 8 GB, over loopback and fails if the client's memory reaches 32 MB: `cargo run --release -p
//! listwatch-e2e --bin million`. It takes a minute and needs no API server.

#[path = "../../../tests/support/memory.rs"]
mod memory;

use std::io::Read;
use std::process::{Command, Stdio};

use futures::TryStreamExt as _;
use listwatch::client::{Client, HttpTransport, ListParams, Resource};
use listwatch_testserver::{Answer, Body, Server, Synthesizer, recorded_pods};
use memory::memory;

const PODS: u32 = 1_000_000;
const MOST: u64 = 32 << 20;

/// The process is the server, and starts itself as the client, with the URL as the argument.
#[tokio::main]
async fn main() {
    match std::env::args().nth(1).filter(|argument| argument.starts_with("http://")) {
        Some(url) => list(&url).await,
        None => serve().await,
    }
}

async fn serve() {
    let pods = Synthesizer::new(&recorded_pods(), PODS).unwrap();
    let bytes = pods.len();
    let server = Server::start(Answer::ok(Body::synthesize(pods)).always()).await.unwrap();
    let mut client = Command::new(std::env::current_exe().unwrap());
    let mut client = client.arg(server.url()).stdout(Stdio::piped()).spawn().unwrap();
    let output = tokio::task::spawn_blocking(move || {
        let mut output = String::new();
        client.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        assert!(client.wait().unwrap().success(), "the client failed");
        output
    });
    let output = output.await.unwrap();
    let [items, received, peak] = output.split_whitespace().map(|n| n.parse().unwrap()).collect::<Vec<u64>>()[..]
    else {
        panic!("unexpected output of the client: {output:?}");
    };
    println!("{items} items, {received} bytes, at most {peak} bytes resident");
    assert_eq!((items, received), (u64::from(PODS), bytes));
    assert!(peak < MOST, "{peak} bytes is over {MOST}");
}

async fn list(url: &str) {
    let client = Client::new(HttpTransport::builder(url).build().unwrap());
    let mut list = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
    let mut items = 0_u64;
    while list.try_next().await.unwrap().is_some() {
        items += 1;
    }
    let summary = list.summary().unwrap();
    assert_eq!(summary.items, items);
    println!("{items} {} {}", summary.bytes, memory("VmHWM"));
}
