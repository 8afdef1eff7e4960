//! Prints the ten largest Pods by encoded size: `cargo run --example largest [URL]`, with the URL that
//! `kubectl proxy` prints.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::env::args;
use std::error::Error;

use listwatch::client::{Client, Config, ListParams, Resource};
use listwatch_testserver::{Answer, Body, Server, recorded_pods};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Without a URL, a local server replays recorded Pods.
    let server = Server::start(Answer::ok(Body::replay(recorded_pods())).always()).await?;
    let url = args().nth(1).unwrap_or_else(|| server.url());

    let client = Client::new(Config::new(url).build()?);
    let mut sizes = client.list_with(&Resource::PODS, &ListParams::default(), |item| {
        item.meta().map(|meta| (item.bytes().len(), meta.name().into_owned()))
    });
    let mut largest = BinaryHeap::new();
    while let Some(size) = sizes.next().await {
        let size = size?;
        largest.push(Reverse(size));
        if largest.len() > 10 {
            largest.pop();
        }
    }
    for Reverse((bytes, name)) in largest.into_sorted_vec() {
        println!("{bytes} {name}");
    }
    Ok(())
}
