//! Three reflectors stay synced while Pods change and the server is killed. `PODS=50000` and `CHANGES=60000` set the size.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use k8s_pb::api::core::v1::Pod;
use listwatch::ItemError;
use listwatch::cache::{Change, Object, StorageFormat, Store, Subscriber};
use listwatch::client::{Client, ListParams, Resource};
use listwatch::reflector::{Cache, Reflector, Strategy};
use listwatch_e2e::{Result, Server, size};
use tokio::time::{Instant, sleep, timeout};

const PORT: u16 = 16753;
const WRITERS: u64 = 16;

/// Versions by name.
type View = BTreeMap<String, String>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflectors_stay_synced_through_a_restart() -> Result<()> {
    let state = std::env::temp_dir().join(format!("listwatch-reflector-{}", std::process::id()));
    let done = run(&state).await;
    fs::remove_dir_all(&state)?;
    done
}

async fn run(state: &Path) -> Result<()> {
    let (pods, changes) = (size("PODS", 2000), size("CHANGES", 3000));
    let server = Server::start(state, PORT, &[])?;
    server.load(pods)?;
    let client = Client::new(server.http("admin")?.build()?);

    let mut followed = Vec::new();
    for strategy in [Strategy::WatchList, Strategy::ListThenWatch, Strategy::WatchFirst] {
        let started = Instant::now();
        let reflector = Reflector::<Pod>::new(&client, &Resource::PODS).strategy(strategy);
        let reflector = reflector.store(Store::new(StorageFormat::Compressed));
        let cache = reflector.cache();
        let view = Arc::new(Mutex::new(View::new()));
        let subscriber = cache.subscribe().with_initial_state().start();
        tokio::spawn(follow(subscriber, Arc::clone(&view)));
        tokio::spawn(reflector.run());
        let version = timeout(Duration::from_secs(300), cache.synced()).await??;
        // A list from the watch cache may be older than the last loaded Pods.
        let loaded = listed(&client).await?;
        let is_loaded = async {
            while seen(&cache) != loaded {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let is_loaded = timeout(Duration::from_secs(60), is_loaded).await;
        assert!(is_loaded.is_ok(), "{strategy}: {} of {} Pods, {pods} were loaded", cache.len(), loaded.len());
        let memory = cache.memory();
        println!("{strategy}: {} Pods at {version} in {:?}, {} bytes", cache.len(), started.elapsed(), memory.total());
        followed.push((strategy, cache, view, memory.total()));
    }

    let writer = kube::Client::try_from(server.kube(|user| user.token = Some("admin".into())).await?)?;
    let names: Vec<String> = listed(&client).await?.into_keys().collect();
    let done = AtomicU64::new(0);
    let started = Instant::now();
    let writing = join_all((0..WRITERS).map(|number| write(&writer, &names, number, &done, changes)));
    let restarting = async {
        while done.load(Relaxed) < changes / 2 {
            sleep(Duration::from_millis(10)).await;
        }
        drop(server);
        tokio::task::block_in_place(|| Server::start(state, PORT, &[]))
    };
    let (_, server) = tokio::join!(writing, restarting);
    let _server = server?;
    println!("{changes} changes and a restart in {:?}", started.elapsed());

    let last = annotate(&writer, &names[0], "last").await?;
    let expected = listed(&client).await?;
    for (strategy, cache, view, before) in followed {
        timeout(Duration::from_secs(120), cache.wait_for_resource_version(&last)).await??;
        assert_eq!(seen(&cache), expected, "{strategy}");
        // The subscriber gets the last change a moment later.
        let is_received = async {
            while *view.lock().unwrap() != expected {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), is_received).await?;
        let (status, after) = (cache.status(), cache.memory().total());
        println!("{strategy}: {} events, {} syncs, {before} bytes before, {after} after", status.events, status.syncs);
        assert!(after < before + before / 20 + 100_000, "{strategy}: the store grew from {before} to {after} bytes");
        assert!(status.errors > 0, "{strategy}: the restart causes an error");
    }
    Ok(())
}

fn key((namespace, name): (&str, &str)) -> String {
    format!("{namespace}/{name}")
}

async fn listed(client: &Client) -> Result<View> {
    let pods = client.list_with(&Resource::PODS, &ListParams::default(), |pod| {
        let meta = pod.meta()?;
        Ok::<_, ItemError>((key((&meta.namespace(), &meta.name())), meta.resource_version().into_owned()))
    });
    Ok(pods.into_vec().await?.0.into_iter().collect())
}

fn see(object: &Object<Pod>) -> (String, String) {
    (key((object.namespace(), object.name())), object.resource_version().to_owned())
}

fn seen(cache: &Cache<Pod>) -> View {
    cache.snapshot().iter().map(|object| see(&object)).collect()
}

async fn follow(mut subscriber: Subscriber<Pod>, view: Arc<Mutex<View>>) {
    while let Some(change) = subscriber.next().await {
        let mut view = view.lock().unwrap();
        match change {
            Change::Applied { new, .. } => {
                let (key, version) = see(&new);
                view.insert(key, version);
            }
            Change::Deleted { last, .. } => drop(view.remove(&see(&last).0)),
            _ => {}
        }
    }
}

/// Annotates random Pods until there were enough writes, and pauses after an error while the server is down.
async fn write(client: &kube::Client, names: &[String], writer: u64, done: &AtomicU64, changes: u64) {
    let mut rng = fastrand::Rng::with_seed(writer);
    while done.load(Relaxed) < changes {
        match annotate(client, &names[rng.usize(..names.len())], &rng.u64(..).to_string()).await {
            Ok(_) => drop(done.fetch_add(1, Relaxed)),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Sets an annotation of the Pod, and returns its new version.
async fn annotate(client: &kube::Client, pod: &str, value: &str) -> Result<String> {
    let (namespace, name) = pod.split_once('/').ok_or("no name")?;
    let body = format!(r#"{{"metadata":{{"annotations":{{"example.com/changed":"{value}"}}}}}}"#);
    let request = http::Request::builder()
        .method("PATCH")
        .uri(format!("/api/v1/namespaces/{namespace}/pods/{name}"))
        .header("content-type", "application/merge-patch+json");
    let pod: serde_json::Value = serde_json::from_str(&client.request_text(request.body(body.into_bytes())?).await?)?;
    Ok(pod["metadata"]["resourceVersion"].as_str().ok_or("no version")?.to_owned())
}
