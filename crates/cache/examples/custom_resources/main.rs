//! Caches every custom resource of a cluster, and prints the memory of each kind:
//! `cargo run --release -p listwatch-cache --example custom_resources [URL]`, with the URL that `kubectl proxy` prints.
//!
//! It watches the definitions of custom resources, and starts and stops a reflector with each of them.

mod definition;
mod synthetic;

use std::collections::BTreeMap;
use std::env::args;
use std::error::Error;
use std::time::Duration;

use listwatch::client::{Client, Config, Resource};
use listwatch::{FieldPath, Json};
use listwatch_cache::{Cache, Change, Object, Reflector, StorageFormat};
use listwatch_testserver::Server;
use tokio::time::interval;

use definition::Definition;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = args().nth(1);
    let server = if url.is_none() { Some(synthetic::cluster(2000).await?) } else { None };
    let base = url.clone().or(server.as_ref().map(Server::url)).unwrap_or_default();

    let client = Client::new(Config::new(base).build()?);
    let definitions = Reflector::<Json<Definition>>::new(&client, &Resource::CUSTOM_RESOURCE_DEFINITIONS).spawn();
    let mut definitions = definitions.subscribe().with_initial_state().start();
    let mut kinds = BTreeMap::new();
    let mut is_synced = false;
    let mut minute = interval(Duration::from_secs(60));
    loop {
        tokio::select! {
            change = definitions.next() => match change {
                Some(Change::Applied { new, .. }) => follow(&client, &mut kinds, &new),
                // Its reflector ends with its cache.
                Some(Change::Deleted { last, .. }) => drop(kinds.remove(last.name())),
                Some(Change::Synced) => {
                    is_synced = true;
                    print(&kinds).await?;
                    minute.reset();
                }
                Some(Change::Ended(reason)) => return Err(reason.into()),
                _ => return Ok(()),
            },
            _ = minute.tick(), if is_synced => print(&kinds).await?,
        }
        if is_synced && url.is_none() {
            return Ok(());
        }
    }
}

/// A cached kind.
struct Kind {
    resource: Resource,
    cache: Cache<[u8]>,
}

/// Starts the reflector of a definition, unless it runs. A definition may change the version of its kind.
fn follow(client: &Client, kinds: &mut BTreeMap<String, Kind>, object: &Object<Json<Definition>>) {
    let definition = match object.decode() {
        Ok(definition) => definition,
        // Other kinds are cached.
        Err(error) => return eprintln!("{}: {error}", object.name()),
    };
    let Some(resource) = definition.resource() else { return };
    if kinds.get(object.name()).is_some_and(|kind| kind.resource == resource) {
        return;
    }
    let cache = Reflector::<[u8]>::new(client, &resource).store(StorageFormat::Compressed).spawn();
    kinds.insert(object.name().to_owned(), Kind { resource, cache });
}

/// Waits until each kind is complete, for at most ten seconds, and prints a line for it.
async fn print(kinds: &BTreeMap<String, Kind>) -> Result<(), Box<dyn Error>> {
    println!("{:<40} {:>8} {:>12} {:>12} {:>8}  newest", "KIND", "OBJECTS", "JSON", "HELD", "EACH");
    for (name, Kind { resource, cache, .. }) in kinds {
        let synced = tokio::time::timeout(Duration::from_secs(10), cache.synced()).await;
        let objects = cache.snapshot();
        let (mut json, mut newest) = (0, String::new());
        for object in objects.iter() {
            json += object.encoded_len();
            // A field of a kind that is known only now: no number of a protobuf field is needed for JSON.
            let created = FieldPath::new("metadata.creationTimestamp", &[]).str(object.item()?)?.unwrap_or_default();
            newest = newest.max(created.into_owned());
        }
        let (count, held) = (objects.len(), cache.memory().total());
        let name = format!("{name}/{}", resource.version());
        let state = if matches!(synced, Ok(Ok(_))) { "" } else { " (incomplete)" };
        println!("{name:<40} {count:>8} {json:>12} {held:>12} {:>8}  {newest}{state}", held / count.max(1));
    }
    Ok(())
}
