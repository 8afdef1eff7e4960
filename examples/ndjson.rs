//! Exports custom resources as JSON, one object per line: `cargo run --example ndjson [URL GROUP VERSION PLURAL KIND]`,
//! with the URL that `kubectl proxy` prints.

use std::env::args;
use std::error::Error;
use std::io::{BufWriter, Write as _, stdout};

use listwatch::client::{Client, Config, ListParams, Resource, Selection};
use listwatch_testserver::{Answer, Body, Server};

const RECORDED: &[u8] = include_bytes!("../fixtures/widgets-negotiated.json");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Without a URL, a local server replays recorded objects.
    let server = Server::start(Answer::ok(Body::replay(RECORDED)).always()).await?;
    let [url, group, version, plural, kind] = <[String; 5]>::try_from(args().skip(1).collect::<Vec<_>>())
        .unwrap_or_else(|_| [&*server.url(), "example.com", "v1", "widgets", "Widget"].map(str::to_owned));

    let client = Client::new(Config::new(url).build()?);
    let widgets = Resource::new(group, version, plural, kind);
    let mut lines = client.list_with(&widgets, &ListParams::new(Selection::all().json()), |item| {
        let mut line = Vec::new();
        item.to_json(&mut line).map(|_| line)
    });
    let mut out = BufWriter::new(stdout().lock());
    while let Some(line) = lines.next().await {
        let line = line?;
        out.write_all(&line)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
