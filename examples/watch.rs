//! Prints the Pods of a cluster, and then each change: `cargo run --example watch [URL]`, with the URL that
//! `kubectl proxy` prints.

use std::env::args;
use std::error::Error;

use listwatch::client::{Client, Config, Resource, WatchEvent, WatchParams};
use listwatch_testserver::{Answer, Body, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = args().nth(1);
    let server = if url.is_none() { Some(recorded().await?) } else { None };
    let base = url.clone().or(server.as_ref().map(Server::url)).unwrap_or_default();

    let client = Client::new(Config::new(base).build()?);
    // The closure borrows each Pod, and returns what the program keeps of it.
    let mut pods = client.watch_with(&Resource::PODS, &WatchParams::with_initial_state(), |pod| {
        pod.meta().map(|meta| format!("{}/{}", meta.namespace(), meta.name()))
    });
    let mut existing = 0;
    while let Some(event) = pods.next().await {
        match event? {
            WatchEvent::Added(name) => {
                existing += 1;
                println!("added {name}");
            }
            WatchEvent::Modified(name) => println!("modified {name}"),
            WatchEvent::Deleted(name) => println!("deleted {name}"),
            WatchEvent::Synced { resource_version } => {
                println!("the {existing} Pods above existed at version {resource_version}");
                if url.is_none() {
                    break;
                }
            }
            WatchEvent::Reset => existing = 0,
            _ => {}
        }
    }
    Ok(())
}

/// Without a URL, a local server replays a recorded watch.
async fn recorded() -> Result<Server, Box<dyn Error>> {
    let recorded = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/watch-initial-events-pods.pb"))?;
    let body = Answer::ok(Body::replay(recorded)).content_type("application/vnd.kubernetes.protobuf;stream=watch");
    Ok(Server::start(body.always()).await?)
}
