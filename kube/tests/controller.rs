//! When a [`Controller`] reconciles which object, under paused time.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::error::Error as StdError;
use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::unfold;
use futures::{Stream, StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, PartialObjectMeta};
use kube::client::Body;
use listwatch::cache::{Object, ObjectKey, Stored};
use listwatch::client::{
    Client, Kind, Request, Response, ResponseFuture, Transport, TransportError, TransportErrorKind,
};
use listwatch::reflector::{Cache, Reflector, SyncError};
use listwatch_kube::Kube;
use listwatch_kube::controller::finalizer::{Event, finalizer};
use listwatch_kube::controller::{Action, Controller, Error};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

type Main = Kube<ConfigMap>;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A collection of a server that sends the events which a test chooses.
struct Collection<T: Stored> {
    cache: Cache<T>,
    events: Events,
    reflector: JoinHandle<listwatch::client::Error>,
}

/// The transport. It sends the events to the latest watch, and answers lists with the version of the last event and no
/// objects.
#[derive(Clone, Default)]
struct Events {
    state: Arc<Mutex<(VecDeque<String>, u64)>>,
    arrived: Arc<Notify>,
    refuses: bool,
}

impl Events {
    fn send<T: Kind>(&self, event: &str, mut object: Value) {
        let version = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        object["apiVersion"] = T::resource().api_version().into();
        object["kind"] = T::resource().kind().into();
        let (events, last) = &mut *self.state.lock().unwrap();
        *last = version;
        events.push_back(json!({"type": event, "object": object}).to_string() + "\n");
        self.arrived.notify_one();
    }

    async fn next(self) -> Option<(String, Self)> {
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
            let body = if request.path_and_query.contains("watch=") {
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
type Owner<'o> = (&'o str, &'o str, &'o str);

impl<T: Stored + Kind> Collection<T> {
    /// A collection that is not synced.
    fn unsynced() -> Self {
        Self::over(Events::default())
    }

    fn over(events: Events) -> Self {
        let reflector = Reflector::<T>::of(&Client::new(events.clone()));
        let cache = reflector.cache();
        Self { cache, events, reflector: tokio::spawn(async { reflector.run().await.unwrap_err() }) }
    }

    /// A collection that has these objects.
    fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let collection = Self::unsynced();
        names.into_iter().for_each(|name| collection.events.send::<T>("ADDED", object(name, 1)));
        collection.sync();
        collection
    }

    fn sync(&self) {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        self.events.send::<T>("BOOKMARK", json!({"metadata": {"resourceVersion": "1", "annotations": annotations}}));
    }

    fn put(&self, name: &str, version: u64) {
        self.put_owned(name, version, &[]);
    }

    fn put_owned(&self, name: &str, version: u64, owners: &[Owner<'_>]) {
        self.events.send::<T>("MODIFIED", owned(name, version, owners));
    }

    fn delete(&self, name: &str, version: u64, owners: &[Owner<'_>]) {
        self.events.send::<T>("DELETED", owned(name, version, owners));
    }
}

impl<T: Stored> Drop for Collection<T> {
    fn drop(&mut self) {
        self.reflector.abort();
    }
}

fn owned(name: &str, version: u64, owners: &[Owner<'_>]) -> Value {
    let mut object = object(name, version);
    let owners = owners
        .iter()
        .map(|(api_version, kind, name)| json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": name}));
    object["metadata"]["ownerReferences"] = owners.collect();
    object
}

fn object(name: &str, version: u64) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": version.to_string()}})
}

fn seed() -> u64 {
    let seed = std::env::var("PROPTEST_RNG_SEED").map_or(1, |seed| seed.parse().expect("a seed is a number"));
    println!("PROPTEST_RNG_SEED={seed}");
    seed
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: "ns".into(), name: name.into() }
}

/// Texts, each with the seconds since the start.
#[derive(Clone)]
struct Log {
    start: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Log {
    fn new() -> Self {
        Self { start: Instant::now(), lines: Arc::default() }
    }

    fn add(&self, text: impl Display) {
        let seconds = self.start.elapsed().as_secs_f64();
        // tokio's timers have a resolution of a millisecond.
        self.lines.lock().unwrap().push(format!("{} {text}", (seconds * 100.0).floor() / 100.0));
    }

    /// Returns the texts since the last call.
    fn take(&self) -> String {
        std::mem::take(&mut *self.lines.lock().unwrap()).join(", ")
    }
}

fn written<T: Stored>(object: &Object<T>) -> String {
    format!("{}@{}", object.name(), object.resource_version())
}

type Item = Result<(ObjectKey, Action), Error<io::Error>>;

/// Logs the items of a controller's stream until its end.
async fn logged(items: impl Stream<Item = Item>, log: Log) {
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
fn run(
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
fn await_change(_: &Object<Main>) -> io::Result<Action> {
    Ok(Action::await_change())
}

#[tokio::test(start_paused = true)]
async fn reconciles_all_objects_once_all_caches_are_synced() {
    let main = Collection::<Main>::of(["a", "b"]);
    let (owned, mapped) = (Collection::<Kube<Pod>>::unsynced(), Collection::<Kube<Pod>>::unsynced());
    let log = Log::new();
    let controller = Controller::new(main.cache.clone()).owns(owned.cache.clone());
    run(controller.watches(mapped.cache.clone(), |_| [key("a")]), &log, 0.0, await_change);
    sleep(seconds(1.0)).await;
    owned.events.send::<Kube<Pod>>("ADDED", self::owned("pod", 1, &[("v1", "ConfigMap", "a")]));
    owned.sync();
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "");
    mapped.events.send::<Kube<Pod>>("ADDED", object("pod", 1));
    mapped.sync();
    sleep(seconds(1.0)).await;
    // The initial state of the other caches requests no more reconciles.
    assert_eq!(log.take(), "2 a@1, 2 b@1, 2 done a, 2 done b");
}

#[tokio::test(start_paused = true)]
async fn requests_of_an_object_are_deduplicated_and_none_is_lost() {
    let main = Collection::<Main>::of(["a", "b"]);
    let log = Log::new();
    run(Controller::new(main.cache.clone()).concurrency(1), &log, 10.0, await_change);
    sleep(seconds(1.0)).await;
    // b waits while a runs.
    for version in 2..=4 {
        main.put("b", version);
        sleep(seconds(1.0)).await;
    }
    // a changes while it runs, so it is reconciled again; not twice at once, as `run` asserts.
    main.put("a", 5);
    sleep(seconds(1.0)).await;
    main.put("a", 6);
    sleep(seconds(100.0)).await;
    assert_eq!(log.take(), "0 a@1, 10 b@4, 10 done a, 20 a@6, 20 done b, 30 done a");
}

#[tokio::test(start_paused = true)]
async fn debounce_waits_after_the_first_change() {
    let main = Collection::<Main>::of(["a"]);
    let log = Log::new();
    run(Controller::new(main.cache.clone()).debounce(seconds(5.0)), &log, 0.0, await_change);
    sleep(seconds(9.0)).await;
    for version in 10..=20 {
        sleep(seconds(1.0)).await;
        main.put("a", version);
    }
    sleep(seconds(100.0)).await;
    assert_eq!(log.take(), "5 a@1, 5 done a, 15 a@14, 15 done a, 20 a@19, 20 done a, 25 a@20, 25 done a");
}

#[tokio::test(start_paused = true)]
async fn an_action_requeues_unless_a_change_comes_first() {
    for (action, expected) in [
        (Action::await_change(), "0 a@1, 25 a@2"),
        (Action::requeue(seconds(10.0)), "0 a@1, 10 a@1, 20 a@1, 25 a@2, 35 a@2"),
        (Action::requeue(Duration::MAX), "0 a@1, 25 a@2"),
    ] {
        let main = Collection::<Main>::of(["a"]);
        let log = Log::new();
        let controller = run(Controller::new(main.cache.clone()), &log, 0.0, move |_| Ok(action));
        sleep(seconds(25.0)).await;
        main.put("a", 2);
        sleep(seconds(11.0)).await;
        controller.abort();
        let starts: Vec<_> = log.take().split(", ").filter(|line| !line.contains("done")).map(String::from).collect();
        assert_eq!(starts.join(", "), expected, "{action:?}");
    }
}

/// Errors back off per object: the delays double up to 5 minutes, plus jitter of up to a half, and a success resets
/// them.
#[tokio::test(start_paused = true)]
async fn errors_back_off_per_object() {
    let main = Collection::<Main>::of(["fails", "works"]);
    let log = Log::new();
    run(Controller::new(main.cache.clone()), &log, 0.0, |object| match (object.name(), object.resource_version()) {
        ("fails", "1") => Err(io::Error::other("no such luck")),
        // The result of a reconciler counts too.
        ("fails", "3") => Ok(Action::backoff()),
        _ => Ok(Action::await_change()),
    });
    let delays = |expected: Vec<f64>| {
        let lines = log.take();
        let starts: Vec<f64> = lines
            .split(", ")
            .filter(|line| line.contains(" fails@"))
            .map(|line| line.split_once(' ').unwrap().0.parse().unwrap())
            .collect();
        let delays: Vec<_> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(delays.len(), expected.len(), "{delays:?}");
        for (delay, expected) in delays.iter().zip(expected) {
            assert!((expected - 0.02..expected * 1.5 + 0.02).contains(delay), "{delay} for {expected} of {delays:?}");
        }
        assert!(delays.windows(2).all(|pair| (pair[0] - pair[1]).abs() > 1e-3), "jitter: {delays:?}");
        assert!(lines.matches("works@").count() <= 1, "{lines}");
        lines
    };
    let all = || (0..15).map(|n| f64::from(1 << n) * 0.1).map(|delay: f64| delay.min(300.0)).collect::<Vec<_>>();
    sleep(seconds(0.1 * 1.25 + 1e-3)).await;
    while log.lines.lock().unwrap().iter().filter(|line| line.contains(" fails@")).count() < 16 {
        sleep(seconds(1.0)).await;
    }
    let lines = delays(all());
    let error = "error the reconciler failed for ns/fails: no such luck";
    assert_eq!(lines.matches(error).count(), 16, "{lines}");
    // A change is reconciled at once; its success resets the delay.
    main.put("fails", 2);
    sleep(seconds(400.0)).await;
    assert!(log.take().ends_with("done fails"));
    main.put("fails", 3);
    // Three delays take at most 1.05 s, four at least 1.5 s.
    sleep(seconds(1.4)).await;
    let lines = delays(vec![0.1, 0.2, 0.4].into_iter().take(3).collect());
    assert!(!lines.contains("error"), "{lines}");
}

#[tokio::test(start_paused = true)]
async fn reconciles_the_owners_of_changed_objects() {
    const MINE: &str = "ConfigMap";
    let main = Collection::<Main>::of(["a", "b"]);
    let pods = Collection::<Kube<Pod>>::of(["p"]);
    let log = Log::new();
    run(Controller::new(main.cache.clone()).owns(pods.cache.clone()), &log, 0.0, await_change);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "0 a@1, 0 b@1, 0 done a, 0 done b");
    let owners = [("v1", MINE, "a"), ("v1", MINE, "absent"), ("apps/v1", MINE, "b"), ("v1", "Secret", "b")];
    pods.put_owned("p", 2, &owners);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "1 a@1, 1 done a", "only owners of this kind and group that exist");
    pods.put_owned("p", 3, &[("v2", MINE, "b")]);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "2 a@1, 2 b@1, 2 done a, 2 done b", "the old and the new owner, of any version");
    pods.delete("p", 4, &[("v2", MINE, "b")]);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "3 b@1, 3 done b");
    pods.put_owned("p", 5, &[("v1", MINE, "b")]);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "4 b@1, 4 done b");
    pods.put_owned("p", 6, &[("v1", MINE, "a")]);
    pods.delete("p", 7, &[("v1", MINE, "a")]);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "5 a@1, 5 b@1, 5 done a, 5 done b", "the former owner, too");
}

#[tokio::test(start_paused = true)]
async fn owners_in_states_that_were_coalesced_are_reconciled() {
    for (late, expected) in [
        // A Pod that exists only while the stream is not polled: b is reconciled between its creation and its deletion.
        ("DELETED", "10 b@1"),
        // The Pod belonged to b for a moment.
        ("MODIFIED", "10 b@1, 10 c@1"),
    ] {
        let main = Collection::<Main>::of(["a", "b", "c"]);
        let pods = Collection::<Kube<Pod>>::of([]);
        let log = Log::new();
        let reconciled = log.clone();
        let items = Controller::new(main.cache.clone()).owns(pods.cache.clone()).run(
            move |object: Object<Main>, _| {
                reconciled.add(written(&object));
                async { Ok::<_, io::Error>(Action::await_change()) }
            },
            |_, _, _| Action::backoff(),
            Arc::new(()),
        );
        // The consumer of the stream sleeps after the first three items.
        tokio::spawn(async move {
            let mut items = std::pin::pin!(items);
            for _ in 0..3 {
                items.next().await;
            }
            sleep(seconds(10.0)).await;
            items.for_each(async |_| {}).await;
        });
        sleep(seconds(1.0)).await;
        assert_eq!(log.take(), "0 a@1, 0 b@1, 0 c@1");
        pods.put_owned("p", 2, &[("v1", "ConfigMap", "b")]);
        sleep(seconds(1.0)).await;
        assert!(pods.cache.get(&key("p")).is_some());
        let owners: &[Owner<'_>] =
            if late == "DELETED" { &[("v1", "ConfigMap", "b")] } else { &[("v1", "ConfigMap", "c")] };
        pods.events.send::<Kube<Pod>>(late, owned("p", 3, owners));
        sleep(seconds(20.0)).await;
        assert_eq!(log.take(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn reconciles_the_objects_that_a_mapper_or_a_stream_names() {
    let main = Collection::<Main>::of(["a", "b", "c"]);
    let pods = Collection::<Kube<Pod>>::of(["p"]);
    let log = Log::new();
    // A Pod named p is mapped to the object that its version names.
    let mapper = |pod: &Object<Kube<Pod>>| match pod.resource_version() {
        "1" => vec![key("a")],
        _ => vec![key("b"), key("b")],
    };
    let requests = stream::iter(["c", "absent", "c"]).then(async |name| {
        sleep(seconds(5.0)).await;
        key(name)
    });
    let controller = Controller::new(main.cache.clone()).watches(pods.cache.clone(), mapper);
    run(controller.reconcile_on(requests), &log, 0.0, await_change);
    sleep(seconds(1.0)).await;
    log.take();
    pods.put("p", 2);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "1 a@1, 1 b@1, 1 done a, 1 done b", "for the old and the new state");
    pods.delete("p", 3, &[]);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "2 b@1, 2 done b", "for the last state");
    sleep(seconds(100.0)).await;
    assert_eq!(log.take(), "5 c@1, 5 done c, 15 c@1, 15 done c");
}

#[tokio::test(start_paused = true)]
async fn runs_as_many_reconciles_at_once_as_allowed() {
    let names: Vec<_> = (0..2000).map(|n| format!("o-{n}")).collect();
    let all = names.len();
    for (limit, expected) in [(None, 64), (Some(1), 1), (Some(3), 3), (Some(0), all), (Some(1000), 1000)] {
        let main = Collection::<Main>::of(names.iter().map(String::as_str));
        let mut controller = Controller::new(main.cache.clone());
        if let Some(limit) = limit {
            controller = controller.concurrency(limit);
        }
        let [running, most, ended] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let reconcile = {
            let [running, most, ended] = [&running, &most, &ended].map(Arc::clone);
            move |_, _| {
                let [running, most, ended] = [&running, &most, &ended].map(Arc::clone);
                async move {
                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    sleep(seconds(10.0)).await;
                    running.fetch_sub(1, SeqCst);
                    ended.fetch_add(1, SeqCst);
                    Ok::<_, io::Error>(Action::await_change())
                }
            }
        };
        let items = controller.run(reconcile, |_, _, _| Action::backoff(), Arc::new(()));
        let task = tokio::spawn(items.for_each(async |_| {}));
        sleep(seconds(5.0)).await;
        assert_eq!(running.load(SeqCst), expected, "{limit:?}");
        sleep(Duration::from_secs((10 * all / expected + 20) as u64)).await;
        assert_eq!((most.load(SeqCst), ended.load(SeqCst)), (expected, all), "{limit:?}");
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_waits_for_running_reconciles_only() {
    let main = Collection::<Main>::of(["a", "b", "c"]);
    let log = Log::new();
    let controller = Controller::new(main.cache.clone()).concurrency(2).graceful_shutdown_on(sleep(seconds(15.0)));
    // After 10 s, c runs, and a and b are requeued.
    let done = run(controller, &log, 10.0, |_| Ok(Action::requeue(seconds(6.0))));
    sleep(seconds(12.0)).await;
    main.put("c", 2);
    done.await.unwrap();
    assert_eq!(log.take(), "0 a@1, 0 b@1, 10 c@1, 10 done a, 10 done b, 20 done c, 20 end");
    // Objects that wait do not keep the task busy while the running reconciles end.
    for ends_cache in [false, true] {
        let names: Vec<_> = (0..2000).map(|n| format!("o-{n}")).collect();
        let main = Collection::<Main>::of(names.iter().map(String::as_str));
        let pods = Collection::<Kube<Pod>>::of([]);
        let mut controller = Controller::new(main.cache.clone()).owns(pods.cache.clone()).concurrency(4);
        if !ends_cache {
            controller = controller.graceful_shutdown_on(sleep(seconds(5.0)));
        }
        let reconcile = async |_, _| {
            sleep(seconds(10.0)).await;
            Ok::<_, io::Error>(Action::await_change())
        };
        let mut items = Box::pin(controller.run(reconcile, |_, _, _| Action::backoff(), Arc::new(())));
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polls);
        let items = stream::poll_fn(move |cx| {
            counted.fetch_add(1, SeqCst);
            items.poll_next_unpin(cx)
        });
        let done = tokio::spawn(items.count());
        sleep(seconds(4.0)).await;
        if ends_cache {
            pods.reflector.abort();
        }
        sleep(seconds(2.0)).await;
        polls.store(0, SeqCst);
        let items = done.await.unwrap();
        assert_eq!(items, 4 + usize::from(ends_cache));
        assert!(polls.load(SeqCst) <= 10, "{polls:?}");
    }
    // Before the caches are synced.
    let unsynced = Collection::<Main>::unsynced();
    let log = Log::new();
    let controller = Controller::new(unsynced.cache.clone()).graceful_shutdown_on(sleep(seconds(1.0)));
    run(controller, &log, 0.0, await_change).await.unwrap();
    assert_eq!(log.take(), "1 end");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_aborts_running_reconciles() {
    let main = Collection::<Main>::of(["a"]);
    let log = Log::new();
    let task = run(Controller::new(main.cache.clone()), &log, 10.0, await_change);
    sleep(seconds(1.0)).await;
    let is_running = Arc::downgrade(&log.lines);
    assert_eq!(log.take(), "0 a@1");
    task.abort();
    drop(log);
    sleep(seconds(1.0)).await;
    assert!(is_running.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_cache_ends_the_controller() {
    for ends_main in [true, false] {
        let (main, pods) = (Collection::<Main>::of(["a", "b"]), Collection::<Kube<Pod>>::of([]));
        let log = Log::new();
        let controller = Controller::new(main.cache.clone()).owns(pods.cache.clone()).concurrency(1);
        let done = run(controller, &log, 10.0, await_change);
        sleep(seconds(5.0)).await;
        if ends_main {
            main.reflector.abort();
        } else {
            pods.reflector.abort();
        }
        done.await.unwrap();
        let error = "5 error the controller has ended: the reflector of the cache was dropped";
        assert_eq!(log.take(), format!("0 a@1, {error}, 10 done a, 10 end"), "{ends_main}");
    }
    // With an error, before it is synced.
    let refused = Collection::<Main>::over(Events { refuses: true, ..Events::default() });
    let mut items = std::pin::pin!(Controller::new(refused.cache.clone()).run(
        async |_, _| Ok::<_, io::Error>(Action::await_change()),
        |_, _, _| Action::backoff(),
        Arc::new(())
    ));
    let Some(Err(Error::Cache(SyncError::Ended { cause: Some(cause) }))) = items.next().await else { panic!() };
    assert!(format!("{cause:?}").contains("no such luck"), "{cause:?}");
    assert!(items.next().await.is_none());
    // The stream stays at its end.
    assert!(items.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn deleted_objects_are_not_reconciled() {
    let main = Collection::<Main>::of(["a", "b", "c"]);
    let log = Log::new();
    run(Controller::new(main.cache.clone()).concurrency(1), &log, 10.0, |_| Ok(Action::requeue(seconds(100.0))));
    sleep(seconds(5.0)).await;
    // a runs, b and c wait; c is created again.
    ["a", "b", "c"].iter().zip(2..).for_each(|(name, version)| main.delete(name, version, &[]));
    sleep(seconds(1.0)).await;
    main.put("c", 5);
    sleep(seconds(300.0)).await;
    assert_eq!(log.take(), "0 a@1, 10 c@5, 10 done a, 20 done c, 120 c@5, 130 done c, 230 c@5, 240 done c");
    // c is requeued.
    main.delete("c", 6, &[]);
    sleep(seconds(300.0)).await;
    assert_eq!(log.take(), "");
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_never_sees_a_state_older_than_its_own_write() {
    #[derive(Clone, Copy, Debug)]
    enum Way {
        Apply,
        Wait,
    }
    struct Context {
        cache: Cache<Main>,
        events: Events,
        written: Mutex<BTreeMap<String, u64>>,
        way: Way,
    }
    /// Writes a new version, which the watch delivers 5 seconds later.
    async fn reconcile(object: Object<Main>, context: Arc<Context>) -> io::Result<Action> {
        let version = object.resource_version().parse::<u64>().unwrap();
        let last = *context.written.lock().unwrap().entry(object.name().into()).or_default();
        assert!(version >= last, "{} after {last} by {:?}", written(&object), context.way);
        if version >= 20 {
            return Ok(Action::await_change());
        }
        let version = version.max(last) + 2;
        context.written.lock().unwrap().insert(object.name().into(), version);
        let answer = self::object(object.name(), version);
        let events = context.events.clone();
        let event = answer.clone();
        tokio::spawn(async move {
            sleep(seconds(5.0)).await;
            events.send::<Main>("MODIFIED", event);
        });
        match context.way {
            Way::Apply => {
                let answer: ConfigMap = serde_json::from_value(answer).unwrap();
                assert!(context.cache.apply_decoded(&answer).unwrap().is_some());
            }
            Way::Wait => context.cache.wait_for_resource_version(&version.to_string()).await.unwrap(),
        }
        Ok(Action::requeue(seconds(1.0)))
    }
    for way in [Way::Apply, Way::Wait] {
        let main = Collection::<Main>::of(["a"]);
        let (cache, events) = (main.cache.clone(), main.events.clone());
        let context = Arc::new(Context { cache, events, written: Mutex::default(), way });
        let items = Controller::new(main.cache.clone()).run(reconcile, |_, _, _| Action::backoff(), context);
        let task = tokio::spawn(items.for_each(async |item| drop(item.unwrap())));
        sleep(seconds(100.0)).await;
        assert!(!task.is_finished(), "the controller has panicked");
        assert_eq!(main.cache.get(("ns", "a")).unwrap().resource_version(), "21", "{way:?}");
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_reconciler_ends_the_stream_with_it() {
    let main = Collection::<Main>::of(["a"]);
    let reconcile = async |object: Object<Main>, _| -> io::Result<Action> { panic!("no {}", object.name()) };
    let items = Controller::new(main.cache.clone()).run(reconcile, |_, _, _| Action::backoff(), Arc::new(()));
    let panic = tokio::spawn(items.for_each(async |_| {})).await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), "no a");
}

/// After random changes of 20 objects and their owned objects, each object was reconciled after its last change.
#[tokio::test(start_paused = true)]
async fn no_change_is_lost() {
    let mut random = fastrand::Rng::with_seed(seed());
    for case in 0..50 {
        let names: Vec<_> = (0..20).map(|n| format!("o-{n}")).collect();
        let main = Collection::<Main>::of(names.iter().map(String::as_str));
        let pods = Collection::<Kube<Pod>>::of([]);
        let (debounce, limit, takes) = (random.f64() * random.f64() * 3.0, random.u16(..8), random.f64() * 3.0);
        let controller = Controller::new(main.cache.clone()).owns(pods.cache.clone());
        let log = Log::new();
        // The version of the latest Pod that the last reconcile of each object saw.
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let result = {
            let (seen, pods, results) = (Arc::clone(&seen), pods.cache.clone(), Mutex::new(random.fork()));
            move |object: &Object<Main>| {
                let pod = pods.get(("ns", object.name())).map(|pod| pod.resource_version().to_owned());
                seen.lock().unwrap().insert(object.name().to_owned(), (object.resource_version().to_owned(), pod));
                match results.lock().unwrap().u8(..6) {
                    0 => Err(io::Error::other("no such luck")),
                    1 => Ok(Action::requeue(seconds(2.0))),
                    2 => Ok(Action::requeue(seconds(1000.0))),
                    _ => Ok(Action::await_change()),
                }
            }
        };
        let task = run(controller.debounce(seconds(debounce)).concurrency(limit), &log, takes, result);
        for version in 2..200 {
            let name = random.choice(&names).unwrap();
            match random.u8(..5) {
                0 => main.delete(name, version, &[]),
                1 => pods.delete(name, version, &[("v1", "ConfigMap", name)]),
                2 | 3 => pods.put_owned(name, version, &[("v1", "ConfigMap", name)]),
                _ => main.put(name, version),
            }
            sleep(seconds(random.f64() * 0.5)).await;
        }
        sleep(seconds(300.0)).await;
        assert!(!task.is_finished());
        let seen = seen.lock().unwrap();
        for object in main.cache.snapshot().iter() {
            let pod = pods.cache.get((object.namespace(), object.name())).map(|pod| pod.resource_version().to_owned());
            let current = (object.resource_version().to_owned(), pod);
            assert_eq!(seen.get(object.name()), Some(&current), "{}, case {case}", object.name());
        }
        task.abort();
    }
}

#[tokio::test]
async fn a_finalizer_is_added_before_and_removed_after_the_reconciler() {
    for (finalizers, is_deleting, fails, expected) in [
        (json!([]), false, false, "add, Ok(await_change)"),
        (json!(["other"]), false, false, "add, Ok(await_change)"),
        (json!(["other", "mine"]), false, false, "apply, Ok(requeue)"),
        (json!(["mine"]), false, true, "apply, Err(failed to apply object: no such luck)"),
        (json!(["other", "mine"]), true, false, "cleanup, remove 1, Ok(requeue)"),
        (json!(["mine"]), true, true, "cleanup, Err(failed to clean up object: no such luck)"),
        (json!(["other"]), true, false, "Ok(await_change)"),
    ] {
        let main = Collection::<Main>::unsynced();
        let mut object = object("a", 1);
        object["metadata"]["finalizers"] = finalizers;
        if is_deleting {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        main.events.send::<Main>("ADDED", object.clone());
        main.sync();
        main.cache.synced().await.unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let patched = Arc::clone(&lines);
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let (patched, answer) = (Arc::clone(&patched), object.clone());
            async move {
                assert_eq!(request.uri().path(), "/api/v1/namespaces/ns/configmaps/a");
                let patch: Value = serde_json::from_slice(&request.into_body().collect_bytes().await?)?;
                let last = patch.as_array().unwrap().last().unwrap();
                let (operation, at) = (last["op"].as_str().unwrap(), last["path"].as_str().unwrap());
                let index = at.strip_prefix("/metadata/finalizers").unwrap().trim_start_matches(['/', '-']);
                patched.lock().unwrap().push(format!("{operation} {index}").trim().to_owned());
                Ok::<_, Box<dyn StdError + Send + Sync>>(http::Response::new(Body::from(
                    answer.to_string().into_bytes(),
                )))
            }
        });
        let client = kube::Client::new(server, "default");
        let api = Api::<PartialObjectMeta<ConfigMap>>::namespaced(client, "ns");
        let called = Arc::clone(&lines);
        let reconcile = async |event| {
            let (event, object): (_, Arc<Object<Main>>) = match event {
                Event::Apply(object) => ("apply", object),
                Event::Cleanup(object) => ("cleanup", object),
            };
            assert_eq!(written(&object), "a@1");
            called.lock().unwrap().push(event.to_owned());
            if fails { Err(io::Error::other("no such luck")) } else { Ok(Action::requeue(seconds(1.0))) }
        };
        let result = finalizer(&api, "mine", main.cache.get(("ns", "a")).unwrap(), reconcile).await;
        lines.lock().unwrap().push(match result {
            Ok(action) if action == Action::requeue(seconds(1.0)) => "Ok(requeue)".to_owned(),
            Ok(action) if action == Action::await_change() => "Ok(await_change)".to_owned(),
            Ok(action) => panic!("{action:?}"),
            Err(error) => format!("Err({error})"),
        });
        assert_eq!(lines.lock().unwrap().join(", "), expected);
    }
}
