//! Three reflectors stay synced while Pods change and the server is killed. `PODS=50000` and `CHANGES=60000` set the
//! size.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use k8s_pb::api::core::v1::Pod;
use kube::ResourceExt as _;
use listwatch::client::Resource;
use listwatch_cache::{Change, Memory, Object, Reflector, StorageFormat, Store, Strategy, Subscriber};
use listwatch_e2e::{Changes, Result, Server, View, agree, annotate, listed, pod, seen, size};
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout};

const PORT: u16 = 16753;
const WRITERS: u64 = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflectors_stay_synced_through_a_restart() -> Result<()> {
    let (pods, changes) = (size("PODS", 2000), size("CHANGES", 3000));
    let mut server = Server::start(PORT, &[])?;
    server.load(pods)?;
    let client = server.client()?;

    let mut followed = Vec::new();
    for strategy in [Strategy::WatchList, Strategy::ListThenWatch, Strategy::WatchFirst] {
        let started = Instant::now();
        let reflector = Reflector::<Pod>::new(&client, &Resource::PODS).strategy(strategy);
        let reflector = reflector.store(Store::new(StorageFormat::Compressed)).prepare();
        let cache = reflector.cache();
        let view = Arc::new(Mutex::new(View::new()));
        let subscriber = cache.subscribe().with_initial_state().start();
        tokio::spawn(follow(subscriber, Arc::clone(&view)));
        tokio::spawn(reflector.run());
        let version = timeout(Duration::from_secs(300), cache.synced()).await??;
        // A list from the watch cache may be older than the last loaded Pods.
        let loaded = listed(&client, "").await?;
        agree("the loaded Pods", &loaded, || Ok(seen(&cache))).await?;
        let held = held(&cache.memory());
        println!("{strategy}: {} Pods at {version} in {:?}, {held} bytes", cache.len(), started.elapsed());
        followed.push((strategy, cache, view, held));
    }

    let writer = server.kube_client().await?;
    let names: Vec<String> = listed(&client, "").await?.into_keys().collect();
    let done = Changes::default();
    let started = Instant::now();
    let writing = join_all((0..WRITERS).map(|number| write(&writer, &names, number, &done, changes)));
    let restarting = async {
        done.reach(changes / 2).await;
        block_in_place(|| server.restart(&[]))
    };
    tokio::join!(writing, restarting).1?;
    println!("{changes} changes and a restart in {:?}", started.elapsed());

    let (pods, name) = pod(&writer, &names[0]);
    let last = annotate(&pods, name, "last").await?.resource_version().ok_or("no version")?;
    let expected = listed(&client, "").await?;
    for (strategy, cache, view, before) in followed {
        timeout(Duration::from_secs(120), cache.wait_for_resource_version(&last)).await??;
        assert_eq!(seen(&cache), expected, "{strategy}");
        // The subscriber gets the last change a moment later.
        agree("the subscriber", &expected, || Ok(view.lock().unwrap().clone())).await?;
        let (status, memory) = (cache.status(), cache.memory());
        let after = held(&memory);
        println!("{strategy}: {} events, {} syncs, {before} bytes before, {after} after", status.events, status.syncs);
        assert!(after < before + before / 20 + 100_000, "{strategy}: the store grew from {before} to {after} bytes");
        assert!(memory.zstd < 2 << 20, "{strategy}: {memory:?}");
        assert!(status.errors > 0, "{strategy}: the restart causes an error");
    }
    Ok(())
}

/// Returns the memory of a store without zstd's contexts, which changes create, and the end of a list frees.
fn held(memory: &Memory) -> usize {
    memory.total() - memory.zstd
}

fn see(object: &Object<Pod>) -> (String, String) {
    (object.key().to_string(), object.resource_version().to_owned())
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

/// Annotates random Pods until there were enough writes.
async fn write(client: &kube::Client, names: &[String], writer: u64, done: &Changes, changes: u64) {
    let mut rng = fastrand::Rng::with_seed(writer);
    let write = async || {
        let (pods, name) = pod(client, &names[rng.usize(..names.len())]);
        annotate(&pods, name, &rng.u64(..).to_string()).await.map(drop)
    };
    done.write_until(changes, write).await;
}
