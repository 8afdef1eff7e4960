//! Keeps a cache of Pods with an index by node, and prints the Pods of each change:
//! `cargo run -p listwatch-cache --example reflector [URL]`, with the URL that `kubectl proxy` prints.

use std::env::args;
use std::error::Error;

use k8s_pb::api::core::v1::Pod;
use listwatch::ItemError;
use listwatch::client::{Client, Config};
use listwatch::path::pod;
use listwatch_cache::{Change, Reflector};
use listwatch_testserver::{Answer, Body, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = args().nth(1);
    let server = if url.is_none() { Some(recorded().await?) } else { None };
    let base = url.clone().or(server.as_ref().map(Server::url)).unwrap_or_default();

    let client = Client::new(Config::new(base).build()?);
    let pods = Reflector::<Pod>::of(&client).spawn();
    // An index function reads fields off the bytes of an object.
    let by_node =
        pods.index("node", |object| Ok::<_, ItemError>(pod::NODE_NAME.str(object.item()?)?.map(String::from)));
    let version = pods.synced().await?;
    println!("{} Pods at version {version}, {} nodes have Pods", pods.len(), by_node.values().len());

    if url.is_none() {
        return Ok(());
    }
    let mut changes = pods.subscribe().start();
    while let Some(change) = changes.next().await {
        match change {
            Change::Applied { new, .. } => println!("applied {}/{}", new.namespace(), new.name()),
            Change::Deleted { last, .. } => println!("deleted {}/{}", last.namespace(), last.name()),
            Change::Synced => println!("synced"),
            Change::Ended(reason) => return Err(reason.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Without a URL, a local server replays a recorded watch.
async fn recorded() -> Result<Server, Box<dyn Error>> {
    let recorded = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/watch-initial-events-pods.pb"))?;
    let body = Answer::ok(Body::replay(recorded)).content_type("application/vnd.kubernetes.protobuf;stream=watch");
    Ok(Server::start(body.always()).await?)
}
