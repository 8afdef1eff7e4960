//! Writes the names of all Pods to a file, which appears once the list is complete: `cargo run --example names_to_file
//! [URL [FILE]]`, with the URL that `kubectl proxy` prints.

use std::env::args;
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};

use listwatch::client::{Client, Config, ListParams, Resource};
use listwatch_testserver::{Answer, Body, Server, recorded_pods};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Without a URL, a local server replays recorded Pods.
    let server = Server::start(Answer::ok(Body::replay(recorded_pods())).always()).await?;
    let url = args().nth(1).unwrap_or_else(|| server.url());
    let file = args().nth(2).unwrap_or_else(|| "target/names.txt".to_owned());

    let client = Client::new(Config::new(url).build()?);
    let mut names = client.list_with(&Resource::PODS, &ListParams::default(), |item| {
        item.meta().map(|meta| format!("{}/{}", meta.namespace(), meta.name()))
    });
    let part = format!("{file}.part");
    let mut writer = BufWriter::new(File::create(&part)?);
    while let Some(name) = names.next().await {
        let name = name?;
        writeln!(writer, "{name}")?;
    }
    writer.flush()?;
    fs::rename(part, &file)?;
    println!("{} names in {file}", names.summary().map_or(0, |summary| summary.items));
    Ok(())
}
