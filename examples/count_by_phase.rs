//! Counts Pods by phase, without decoding them: `cargo run --example count_by_phase [URL]`, with the URL that
//! `kubectl proxy` prints.

use std::collections::BTreeMap;
use std::env::args;
use std::error::Error;

use listwatch::ItemError;
use listwatch::client::{Client, Config, ListParams, Resource};
use listwatch::path::pod;
use listwatch_testserver::{Answer, Body, Server, recorded_pods};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Without a URL, a local server replays recorded Pods.
    let server = Server::start(Answer::ok(Body::replay(recorded_pods())).always()).await?;
    let url = args().nth(1).unwrap_or_else(|| server.url());

    let client = Client::new(Config::new(url).build()?);
    let mut phases = client.list_with(&Resource::PODS, &ListParams::default(), |item| {
        Ok::<_, ItemError>(pod::PHASE.str(item)?.map_or_else(|| "none".to_owned(), String::from))
    });
    let mut counts = BTreeMap::<String, u64>::new();
    while let Some(phase) = phases.next().await {
        let phase = phase?;
        *counts.entry(phase).or_default() += 1;
    }
    for (phase, count) in counts {
        println!("{phase}: {count}");
    }
    Ok(())
}
