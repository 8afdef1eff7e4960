//! Watches of the client: single connections, and watches that resume.
//!
//! Most run over a scripted transport, in paused time. Events are written as `+name`, `~name` and `-name` for an object
//! that is added, modified and deleted.

#![cfg(feature = "http")]

mod backpressure;
mod connections;
mod idle;
mod initial_events;
mod model;
mod namespaces;
mod outage;
mod requests;
mod resume;
#[path = "../support/client.rs"]
mod support;
mod tolerant;
mod waits;

use std::time::Duration;

use listwatch::client::{Client, Error, Resource, Watch, WatchEvent, WatchParams};
use listwatch::{ItemError, ItemRef};
use support::config_maps;
use support::transport::{Answer, Scripted};

const SECOND: Duration = Duration::from_secs(1);

/// A list of objects with these names, each at version 5.
fn list(names: &[&str], version: &str) -> Answer {
    Answer::ok(config_maps::list(version, names.iter().map(|name| (name, 5))))
}

fn name(item: ItemRef<'_>) -> Result<String, ItemError> {
    Ok(item.meta()?.name().into_owned())
}

fn exact(version: u64) -> WatchParams {
    WatchParams::from_version(version.to_string())
}

type Name = fn(ItemRef<'_>) -> Result<String, ItemError>;

fn watch(client: &Client, params: &WatchParams) -> Watch<Name> {
    client.watch_with(&Resource::CONFIG_MAPS, params, name as Name)
}

/// Returns the events as [`written`], the error that ends them, and the version that was reached.
async fn resumed(mut watch: Watch<Name>) -> (Vec<String>, Error, Option<String>) {
    let mut events = Vec::new();
    loop {
        match watch.next().await.expect("the watch ends in an error") {
            Ok(event) => events.push(written(event)),
            Err(error) => {
                assert!(watch.next().await.is_none(), "nothing follows an error");
                return (events, error, watch.resource_version().map(str::to_owned));
            }
        }
    }
}

fn written(event: WatchEvent<String>) -> String {
    match event {
        WatchEvent::Added(name) => format!("+{name}"),
        WatchEvent::Modified(name) => format!("~{name}"),
        WatchEvent::Deleted(name) => format!("-{name}"),
        WatchEvent::Synced { resource_version } => format!("synced {resource_version}"),
        WatchEvent::Bookmark { resource_version } => format!("bookmark {resource_version}"),
        _ => "reset".to_owned(),
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.split_once(before).unwrap().1.split(after).next().unwrap()
}

/// Returns the requests: `initial` events, a `list`, or the version after which a watch begins.
fn kinds(server: &Scripted) -> String {
    let kind = |path: &String| match path {
        path if path.contains("sendInitialEvents") => "initial".to_owned(),
        path if path.contains("watch=1") => between(path, "resourceVersion=", "&").to_owned(),
        _ => "list".to_owned(),
    };
    server.paths().iter().map(kind).collect::<Vec<_>>().join(" ")
}
