//! The watcher of listwatch-kube and kube's own watcher fill equal stores. `PODS=5000` and `CHANGES=20000` set the
//! size; each Pod takes about a megabyte of memory, in eight stores of decoded Pods and four of metadata.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures::future::join_all;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PartialObjectMeta};
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher as theirs;
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client, Resource};
use listwatch_e2e::{Changes, Result, Server, View, agree, annotate, of_kube, pod, size};
use listwatch_kube::runtime::watcher as ours;
use listwatch_kube::runtime::watcher::{self, Config, Event};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::task::block_in_place;
use tokio::time::Instant;

const PORT: u16 = 16853;
const WRITERS: u64 = 8;

/// A kube store that a watcher fills.
struct Followed {
    name: String,
    see: Box<dyn Fn() -> View + Send>,
    errors: Arc<AtomicU64>,
}

fn follow<K>(name: String, events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static) -> Followed
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default + Send + Sync,
{
    let writer = Writer::<K>::new(K::DynamicType::default());
    follow_into(name, events, writer)
}

fn follow_into<K>(
    name: String,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    writer: Writer<K>,
) -> Followed
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    let (store, errors) = (writer.as_reader(), Arc::new(AtomicU64::new(0)));
    let mut events = Box::pin(reflector(writer, events.default_backoff()));
    let counted = Arc::clone(&errors);
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            counted.fetch_add(u64::from(event.is_err()), Relaxed);
        }
    });
    Followed { name, see: Box::new(move || store.state().iter().map(|object| of_kube(&**object)).collect()), errors }
}

async fn listed<K: Resource + Clone + Debug + DeserializeOwned>(api: &Api<K>) -> Result<View> {
    Ok(api.list(&ListParams::default()).await?.items.iter().map(of_kube).collect())
}

/// Waits until every store has the expected objects.
async fn agreed(followed: &[Followed], expected: &View) -> Result<()> {
    for Followed { name, see, .. } in followed {
        agree(name, expected, || Ok(see())).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_watchers_fill_equal_stores_through_restarts() -> Result<()> {
    let (pods, changes) = (size("PODS", 1000), size("CHANGES", 2000));
    let mut server = Server::start(PORT, &[])?;
    server.load(pods)?;
    let widgets: Vec<_> = (0..50).map(widget).collect();
    server.apply_widgets(&json!({"apiVersion": "v1", "kind": "List", "items": widgets}).to_string())?;
    let client = server.kube_client().await?;
    let (all, metadata) = (Api::<Pod>::all(client.clone()), Api::<PartialObjectMeta<Pod>>::all(client.clone()));

    let started = Instant::now();
    let mut followed = Vec::new();
    for (name, config) in [
        ("pages", Config::default()),
        ("one response", Config { page_size: None, ..Config::default() }),
        ("any version", Config::default().any_semantic()),
        ("streamed", Config::default().streaming_lists()),
    ] {
        followed.push(follow(format!("kube, {name}"), theirs(all.clone(), config.clone())));
        followed.push(follow(format!("listwatch, {name}"), ours(all.clone(), config.clone())));
        followed.push(follow(format!("listwatch, {name}, metadata"), ours(metadata.clone(), config)));
    }
    agreed(&followed, &listed(&all).await?).await?;
    println!("{} stores of {pods} Pods in {:?}", followed.len(), started.elapsed());

    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets = Api::<DynamicObject>::namespaced_with(client.clone(), "default", &kind);
    let of_widgets: Vec<_> = [Config::default(), Config::default().streaming_lists()]
        .into_iter()
        .flat_map(|config| {
            let (kubes, this) = (Writer::new(kind.clone()), Writer::new(kind.clone()));
            let name = format!("{:?}", config.initial_list_strategy);
            let kubes = follow_into(format!("kube, widgets, {name}"), theirs(widgets.clone(), config.clone()), kubes);
            [kubes, follow_into(format!("listwatch, widgets, {name}"), ours(widgets.clone(), config), this)]
        })
        .collect();
    agreed(&of_widgets, &listed(&widgets).await?).await?;

    let names: Vec<String> = listed(&all).await?.into_keys().collect();
    let done = Changes::default();
    for restart in 1..=2 {
        let writing = join_all((0..WRITERS).map(|number| write(&client, &names, number, &done, restart * changes / 2)));
        let restarting = async {
            done.reach(restart * changes / 2 - changes / 4).await;
            block_in_place(|| server.restart(&[]))
        };
        tokio::join!(writing, restarting).1?;
        agreed(&followed, &listed(&all).await?).await?;
        agreed(&of_widgets, &listed(&widgets).await?).await?;
        println!("{} changes and {restart} restarts in {:?}", done.count(), started.elapsed());
    }
    for Followed { name, errors, .. } in followed.iter().chain(&of_widgets) {
        println!("{name}: {} errors", errors.load(Relaxed));
    }
    Ok(())
}

fn widget(number: u32) -> serde_json::Value {
    let metadata = json!({"name": format!("w-{number}"), "namespace": "default"});
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"n": number}})
}

/// Changes and deletes Pods until there were enough writes.
async fn write(client: &Client, names: &[String], writer: u64, done: &Changes, changes: u64) {
    let mut rng = fastrand::Rng::with_seed(writer);
    let write = async || {
        let (pods, name) = pod(client, &names[rng.usize(..names.len())]);
        match rng.u8(..) {
            ..8 => pods.delete(name, &DeleteParams::default().grace_period(0)).await.map(drop),
            _ => annotate(&pods, name, &rng.u64(..).to_string()).await.map(drop),
        }
    };
    done.write_until(changes, write).await;
}
