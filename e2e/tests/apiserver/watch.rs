//! Watches through both transports, and a watch that resumes while the server is restarted. `CHANGES=20000` sets the
//! size.

use std::cmp::Ordering;
use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt as _, TryStreamExt as _};
use listwatch::client::{Client, Error, Resource, Selection, Watch, WatchEvent, WatchParams};
use listwatch::{ItemError, ItemRef, compare_resource_versions};
use listwatch_e2e::{Changes, Result, Server, View, over_kube, size};
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

const PORT: u16 = 16653;
const RESTARTS: u64 = 5;
const WRITERS: u64 = 16;
/// The object that is written last.
const LAST: &str = "default/last";

/// Name and version.
type Seen = (String, String);
type See = fn(ItemRef<'_>) -> std::result::Result<Seen, ItemError>;

fn see(item: ItemRef<'_>) -> std::result::Result<Seen, ItemError> {
    let meta = item.meta()?;
    Ok((format!("{}/{}", meta.namespace(), meta.name()), meta.resource_version().into_owned()))
}

fn watched(client: &Client, resource: &Resource, params: &WatchParams) -> Watch<See> {
    client.watch_with(resource, params, see as See)
}

fn defaults() -> WatchParams {
    WatchParams::with_initial_state()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_resume_through_restarts() -> Result<()> {
    let mut server = Server::start(PORT, &[])?;
    server.apply_widgets(WIDGETS)?;
    let config = server.kube(|_| {}).await?;
    let http = server.client()?;
    for client in [&http, &Client::new(over_kube(config)?)] {
        single_connections(&server, client).await?;
        resumed(&server, client).await?;
    }
    // This server refuses sendInitialEvents.
    server.restart(&["--feature-gates=WatchList=false"])?;
    resumed(&server, &http).await?;
    through_restarts(server, http).await
}

async fn single_connections(server: &Server, client: &Client) -> Result<()> {
    let namespaces = Resource::NAMESPACES;
    // The initial state, and its version.
    for selection in [Selection::all(), Selection::all().metadata_only(), Selection::all().json()] {
        let options = defaults().selection(selection);
        let mut events = watched(client, &namespaces, &options).open().await?;
        let mut seen = Vec::new();
        let version = loop {
            match events.try_next().await?.ok_or("the watch ended")? {
                WatchEvent::Added((name, _)) => seen.push(name.trim_start_matches('/').to_owned()),
                WatchEvent::Synced { resource_version } => break resource_version,
                other => return Err(format!("{other:?}").into()),
            }
        };
        seen.sort();
        let expected = server.kubectl(&["get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}"])?;
        assert_eq!(seen, expected.split(' ').collect::<Vec<_>>(), "{options:?}");
        // The changes after that version.
        let mut events = watched(client, &Resource::CONFIG_MAPS, &exact(&version)).namespace("default").open().await?;
        server.kubectl(&["create", "configmap", "one", "-n", "default", "--from-literal=a=1"])?;
        server.kubectl(&["label", "configmap", "one", "-n", "default", "b=2"])?;
        server.kubectl(&["delete", "configmap", "one", "-n", "default"])?;
        let mut kinds = Vec::new();
        while kinds.last() != Some(&"-") {
            kinds.push(match events.try_next().await?.ok_or("the watch ended")? {
                WatchEvent::Added((name, _)) if name == "default/one" => "+",
                WatchEvent::Modified(_) => "~",
                WatchEvent::Deleted(_) => "-",
                _ => "",
            });
        }
        kinds.retain(|kind| !kind.is_empty());
        assert_eq!(kinds, ["+", "~", "-"]);
    }
    // The server ends the watch after its timeout.
    let options = defaults().timeout(Duration::from_secs(2));
    let ended: Vec<_> =
        timeout(Duration::from_secs(20), watched(client, &namespaces, &options).open().await?.collect()).await?;
    let ended: std::result::Result<Vec<_>, Error> = ended.into_iter().collect();
    assert!(!ended?.is_empty());
    Ok(())
}

fn exact(version: &str) -> WatchParams {
    WatchParams::from_version(version)
}

/// Watches selected custom resources, which are in JSON, over connections that last a second.
async fn resumed(server: &Server, client: &Client) -> Result<()> {
    let widgets = Resource::new("example.com", "v1", "widgets", "Widget");
    let options = defaults().timeout(Duration::from_secs(1)).selection(Selection::all().labels("keep=yes".parse()?));
    let mut events = watched(client, &widgets, &options);
    let mut next = async || -> Result<String> {
        let event = timeout(Duration::from_secs(30), events.next()).await?.ok_or("the watch ended")??;
        Ok(match event {
            WatchEvent::Added((name, _)) => format!("+{name}"),
            WatchEvent::Modified((name, _)) => format!("~{name}"),
            WatchEvent::Deleted((name, _)) => format!("-{name}"),
            WatchEvent::Synced { .. } => "synced".to_owned(),
            other => format!("{other:?}"),
        })
    };
    assert_eq!(next().await?, "+default/a");
    assert_eq!(next().await?, "synced");
    for (arguments, expected) in [
        (["label", "widget", "b", "keep=yes"], "+default/b"),
        (["annotate", "widget", "b", "x=y"], "~default/b"),
        // The object leaves the selection.
        (["label", "widget", "b", "keep-"], "-default/b"),
        (["label", "widget", "b", "keep=yes"], "+default/b"),
        (["annotate", "widget", "b", "x-"], "~default/b"),
        (["label", "widget", "b", "keep-"], "-default/b"),
    ] {
        sleep(Duration::from_millis(700)).await;
        server.kubectl(&arguments)?;
        assert_eq!(next().await?, expected);
    }
    Ok(())
}

/// Writes as fast as the server allows, while it is killed and restarted.
async fn through_restarts(mut server: Server, client: Client) -> Result<()> {
    let writer = server.kube_client().await?;
    let total = size("CHANGES", 8000);
    let changes = Changes::default();
    let writing = join_all((0..WRITERS).map(|number| write(&writer, number, &changes, total)));
    let load = async {
        writing.await;
        // A view that has the last object has all changes before it.
        while request(&writer, "POST", PATH, r#"{"metadata":{"name":"last"}}"#).await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
        Result::Ok(())
    };
    let restarting = async {
        for restart in 1..=RESTARTS {
            changes.reach(total * restart / (RESTARTS + 1)).await;
            block_in_place(|| server.restart(&["--feature-gates=WatchList=false"]))?;
        }
        Result::Ok(())
    };
    let watching = converge(&client);
    let ((), (), (view, counts)) = tokio::try_join!(load, restarting, watching)?;
    let columns = "custom-columns=NS:.metadata.namespace,N:.metadata.name,V:.metadata.resourceVersion";
    let expected: View = server
        .kubectl(&["get", "configmaps", "-A", "--chunk-size=0", "--no-headers", "-o", columns])?
        .lines()
        .filter_map(|line| {
            let mut cells = line.split_whitespace();
            Some((format!("{}/{}", cells.next()?, cells.next()?), cells.next()?.to_owned()))
        })
        .collect();
    println!("{counts:?}, {} changes written, {} objects left", changes.count(), expected.len());
    assert!(expected.len() > 100 && expected == view, "the view equals kubectl's");
    // A restarted server has no history, so earlier versions are expired.
    assert!(counts.disconnects >= RESTARTS && counts.expired > 0 && counts.events >= total / 2, "{counts:?}");
    Ok(())
}

/// What the watch reported.
#[derive(Debug, Default)]
struct Counts {
    events: u64,
    disconnects: u64,
    expired: u64,
}

/// Returns the view of a watch once it has the last object. The watch starts over when its version has expired.
async fn converge(client: &Client) -> Result<(View, Counts)> {
    let mut counts = Counts::default();
    loop {
        let (disconnects, mut disconnected) = tokio::sync::mpsc::unbounded_channel();
        let watch = watched(client, &Resource::CONFIG_MAPS, &defaults());
        let mut events = watch.on_disconnect(move |disconnect| drop(disconnects.send(disconnect.clone())));
        let (mut view, mut is_synced) = (View::new(), false);
        let error = loop {
            let next = timeout(Duration::from_secs(120), events.next()).await?.ok_or("the watch ended")?;
            while disconnected.try_recv().is_ok() {
                counts.disconnects += 1;
            }
            let event = match next {
                Ok(event) => event,
                Err(error) => break error,
            };
            match event {
                WatchEvent::Added((name, version)) | WatchEvent::Modified((name, version)) => {
                    counts.events += 1;
                    if let Some(before) = view.insert(name, version.clone())
                        && compare_resource_versions(&before, &version) != Some(Ordering::Less)
                    {
                        return Err(format!("{version} came after {before}").into());
                    }
                }
                WatchEvent::Deleted((name, version)) => {
                    counts.events += 1;
                    if view.remove(&name).is_none() {
                        return Err(format!("{name} was deleted at {version}, but was not in the view").into());
                    }
                }
                WatchEvent::Synced { .. } => is_synced = true,
                WatchEvent::Reset => view.clear(),
                _ => {}
            }
            if is_synced && view.contains_key(LAST) {
                return Ok((view, counts));
            }
        };
        if !error.is_expired() {
            return Err(error.into());
        }
        counts.expired += 1;
    }
}

/// Creates, changes and deletes its own ConfigMaps.
async fn write(client: &kube::Client, writer: u64, changes: &Changes, total: u64) {
    let mut numbers = 0..;
    let write = async || {
        let number = numbers.next().unwrap_or(0);
        let name = format!("w{writer}-{}", number / 4);
        let path = format!("{PATH}/{name}");
        let data = format!(r#"{{"data":{{"number":"{number}"}}}}"#);
        let sent = match number % 8 {
            0 | 4 => request(client, "POST", PATH, &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).await,
            3 => request(client, "DELETE", &path, "").await,
            _ => request(client, "PATCH", &path, &data).await,
        };
        sent.map(drop)
    };
    changes.write_until(total, write).await;
}

const PATH: &str = "/api/v1/namespaces/default/configmaps";

async fn request(client: &kube::Client, method: &str, path: &str, body: &str) -> kube::Result<String> {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
    client.request_text(request.body(body.as_bytes().to_vec()).map_err(kube::Error::HttpError)?).await
}

const WIDGETS: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
 {"apiVersion": "example.com/v1", "kind": "Widget",
 "metadata": {"name": "a", "namespace": "default", "labels": {"keep": "yes"}}},
 {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "b", "namespace": "default"}}]}"#;
