//! A collection whose events a test chooses, and the log of reconciles.

use std::collections::{HashSet, VecDeque};
use std::error::Error as StdError;
use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::unfold;
use futures::{Stream, StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use listwatch::Json;
use listwatch::client::{
    Client, Kind, Request, Resource, Response, ResponseFuture, Transport, TransportError, TransportErrorKind,
};
use listwatch_cache::{Cache, Object, ObjectKey, Reflector, StoreType};
use listwatch_controller::{Action, Controller, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The objects that are reconciled.
#[derive(Deserialize, Serialize)]
pub struct ConfigMap(Value);

impl Kind for ConfigMap {
    fn resource() -> Resource {
        Resource::CONFIG_MAPS
    }
}

/// The objects that are owned or watched.
#[derive(Deserialize, Serialize)]
pub struct Pod(Value);

impl Kind for Pod {
    fn resource() -> Resource {
        Resource::PODS
    }
}

pub type Main = Json<ConfigMap>;

pub type Pods = Json<Pod>;

pub fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A collection of a server that sends the events which a test chooses.
pub struct Collection<T: StoreType> {
    pub cache: Cache<T>,
    pub events: Events,
    pub reflector: JoinHandle<listwatch::client::Error>,
}

/// The transport. It sends the events to the latest watch, and answers lists with the version of the last event and no
/// objects.
#[derive(Clone, Default)]
pub struct Events {
    pub state: Arc<Mutex<(VecDeque<String>, u64)>>,
    pub arrived: Arc<Notify>,
    pub refuses: bool,
    pub requests: Arc<AtomicUsize>,
    pub watches: Arc<AtomicUsize>,
}

impl Events {
    pub fn send<T: Kind>(&self, event: &str, mut object: Value) {
        let version = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        object["apiVersion"] = T::resource().api_version().into();
        object["kind"] = T::resource().kind().into();
        let (events, last) = &mut *self.state.lock().unwrap();
        *last = version;
        events.push_back(json!({"type": event, "object": object}).to_string() + "\n");
        self.arrived.notify_one();
    }

    pub async fn next(self) -> Option<(String, Self)> {
        loop {
            let event = self.state.lock().unwrap().0.pop_front();
            if let Some(event) = event {
                return Some((event, self));
            }
            self.arrived.notified().await;
        }
    }
}

impl Transport for Events {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        let events = self.clone();
        Box::pin(async move {
            if events.refuses {
                return Err(TransportError::new(TransportErrorKind::Tls, "no such luck"));
            }
            events.requests.fetch_add(1, Relaxed);
            let body = if request.path_and_query.contains("watch=") {
                events.watches.fetch_add(1, Relaxed);
                unfold(events, Events::next).boxed()
            } else {
                let metadata = json!({"resourceVersion": events.state.lock().unwrap().1.to_string()});
                let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": []});
                stream::iter([list.to_string()]).boxed()
            };
            let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, "application/json".parse().unwrap())]);
            Ok(Response::new(StatusCode::OK, headers, body.map(|text| Ok(text.into())).boxed()))
        })
    }
}

/// The API version, the kind and the name of an owner.
pub type Owner<'o> = (&'o str, &'o str, &'o str);

impl<T: StoreType + Kind> Collection<T> {
    /// A collection that is not synced.
    pub fn unsynced() -> Self {
        Self::over(Events::default())
    }

    pub fn over(events: Events) -> Self {
        let reflector = Reflector::<T>::of(&Client::new(events.clone())).prepare();
        let cache = reflector.cache();
        Self { cache, events, reflector: tokio::spawn(async { reflector.run().await.unwrap_err() }) }
    }

    /// A collection that has these objects.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let collection = Self::unsynced();
        names.into_iter().for_each(|name| collection.events.send::<T>("ADDED", object(name, 1)));
        collection.sync();
        collection
    }

    pub fn sync(&self) {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        self.events.send::<T>("BOOKMARK", json!({"metadata": {"resourceVersion": "1", "annotations": annotations}}));
    }

    pub fn put(&self, name: &str, version: u64) {
        self.put_owned(name, version, &[]);
    }

    pub fn put_owned(&self, name: &str, version: u64, owners: &[Owner<'_>]) {
        self.events.send::<T>("MODIFIED", owned(name, version, owners));
    }

    pub fn delete(&self, name: &str, version: u64, owners: &[Owner<'_>]) {
        self.events.send::<T>("DELETED", owned(name, version, owners));
    }
}

impl<T: StoreType> Drop for Collection<T> {
    fn drop(&mut self) {
        self.reflector.abort();
    }
}

pub fn owned(name: &str, version: u64, owners: &[Owner<'_>]) -> Value {
    let mut object = object(name, version);
    let owners = owners
        .iter()
        .map(|(api_version, kind, name)| json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": name}));
    object["metadata"]["ownerReferences"] = owners.collect();
    object
}

pub fn object(name: &str, version: u64) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": version.to_string()}})
}

pub fn seed() -> u64 {
    let seed = std::env::var("PROPTEST_RNG_SEED").map_or(1, |seed| seed.parse().expect("a seed is a number"));
    println!("PROPTEST_RNG_SEED={seed}");
    seed
}

pub fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: "ns".into(), name: name.into() }
}

/// Texts, each with the seconds since the start.
#[derive(Clone)]
pub struct Log {
    pub start: Instant,
    pub lines: Arc<Mutex<Vec<String>>>,
}

impl Log {
    pub fn new() -> Self {
        Self { start: Instant::now(), lines: Arc::default() }
    }

    pub fn add(&self, text: impl Display) {
        let seconds = self.start.elapsed().as_secs_f64();
        // tokio's timers have a resolution of a millisecond.
        self.lines.lock().unwrap().push(format!("{} {text}", (seconds * 100.0).floor() / 100.0));
    }

    /// Returns the texts since the last call.
    pub fn take(&self) -> String {
        std::mem::take(&mut *self.lines.lock().unwrap()).join(", ")
    }
}

pub fn written<T: StoreType>(object: &Object<T>) -> String {
    format!("{}@{}", object.name(), object.resource_version())
}

pub type Item = Result<(ObjectKey, Action), Error<io::Error>>;

/// Logs the items of a controller's stream until its end.
pub async fn logged(items: impl Stream<Item = Item>, log: Log) {
    let mut items = std::pin::pin!(items);
    while let Some(item) = items.next().await {
        match item {
            Ok((key, _)) => log.add(format_args!("done {}", key.name)),
            Err(error) => {
                let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                log.add(format_args!("error {error}{cause}"));
            }
        }
    }
    log.add("end");
}

/// Runs a controller whose reconciles are logged, take this many seconds and have this result.
pub fn run(
    controller: Controller<Main>,
    log: &Log,
    takes: f64,
    result: impl Fn(&Object<Main>) -> io::Result<Action> + Send + 'static,
) -> JoinHandle<()> {
    let (started, running) = (log.clone(), Arc::new(Mutex::new(HashSet::new())));
    let reconcile = move |object: Object<Main>, _: Arc<()>| {
        started.add(written(&object));
        assert!(running.lock().unwrap().insert(object.key()), "{} is reconciled twice at once", object.key());
        let (running, result) = (Arc::clone(&running), result(&object));
        async move {
            sleep(seconds(takes)).await;
            running.lock().unwrap().remove(&object.key());
            result
        }
    };
    let items = controller.run(reconcile, |_, _, _| Action::backoff(), Arc::new(()));
    tokio::spawn(logged(items, log.clone()))
}

#[expect(clippy::unnecessary_wraps, reason = "the type of a reconciler's result")]
pub fn await_change(_: &Object<Main>) -> io::Result<Action> {
    Ok(Action::await_change())
}
