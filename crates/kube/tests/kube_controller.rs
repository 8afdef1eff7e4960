//! kube's own `Controller` over a cache: its reconciles, and the memory of both, counted by the allocator. There is only
//! one test, because the allocator counts for the whole process.

use std::alloc::System;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::{self, Cursor, Read};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use cap::Cap;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, WatchStreamExt as _, reflector};
use kube::{Api, ResourceExt as _};
use listwatch::Projection;
use listwatch::path::meta;
use listwatch_cache::{Reflector, StorageFormat, Strategy};
use listwatch_kube::{Kube, KubeTransport};
use listwatch_testserver::{Answer, Body, RecordedRequest, Server};

include!("../compat/tests/compat/store.rs");

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const OBJECTS: usize = 2000;

const MANAGED: &str = r#"[{"manager":"m","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:x":{},"f:y":{}},"f:metadata":{"f:labels":{".":{},"f:a":{}}}}}]"#;

/// Returns the body of a list, which is generated while it is sent.
fn list() -> Body {
    const HEAD: &str = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#;
    let object = |number: usize| {
        let (data, end) = ("xyz ".repeat(500), if number + 1 < OBJECTS { "," } else { "]}" });
        format!(
            r#"{{"metadata":{{"name":"{number:08}","namespace":"ns","resourceVersion":"1","managedFields":{MANAGED}}},"data":{{"x":"{data}"}}}}{end}"#
        )
    };
    let length = HEAD.len() + (0..OBJECTS).map(|number| object(number).len()).sum::<usize>();
    Body::read(length as u64, move || Pieces { piece: Cursor::new(HEAD.to_owned()), more: (0..OBJECTS).map(object) })
}

struct Pieces<I> {
    piece: Cursor<String>,
    more: I,
}

impl<I: Iterator<Item = String>> Read for Pieces<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            match self.more.next() {
                Some(piece) => self.piece = Cursor::new(piece),
                None => return Ok(0),
            }
        }
    }
}

/// The allocated bytes per object: the most while the objects arrive, and those that are held after all reconciles.
#[derive(Debug)]
struct Bytes {
    peak: usize,
    held: usize,
}

/// Runs kube's controller on a stream of events until it has reconciled all objects.
async fn reconcile_all<S>(before: usize, events: S) -> Bytes
where
    S: Stream<Item = watcher::Result<Event<ConfigMap>>> + Send + 'static,
{
    let peak = Arc::new(AtomicUsize::new(0));
    let measured = Arc::clone(&peak);
    let events = events.inspect(move |_| _ = measured.fetch_max(ALLOCATOR.allocated(), SeqCst));
    let (store, writer) = reflector::store();
    let reconcile = async |config_map: Arc<ConfigMap>, _| {
        assert!(config_map.data.as_ref().is_some_and(|data| data.len() == 1));
        Ok::<_, Infallible>(Action::await_change())
    };
    let controller = Controller::for_stream(events.reflect(writer).applied_objects(), store);
    let mut done = controller.run(reconcile, |_, _: &Infallible, _| Action::await_change(), Arc::new(())).boxed();
    let mut names = BTreeSet::new();
    while names.len() < OBJECTS {
        names.insert(done.next().await.unwrap().unwrap().0.name);
    }
    drop(names);
    let held = ALLOCATOR.allocated();
    Bytes { peak: (peak.load(SeqCst) - before) / OBJECTS, held: (held - before) / OBJECTS }
}

#[tokio::test]
async fn kubes_own_controller_reconciles_the_objects_of_a_cache_in_less_memory_than_with_its_watcher() {
    let server = Server::start(|request: &RecordedRequest, _| {
        let body = if request.path.contains("watch=") { Body::replay("").stall_at(u64::MAX) } else { list() };
        Answer::ok(body).content_type("application/json")
    });
    let server = server.await.unwrap();
    let client = || {
        let mut config = kube::Config::new(server.url().parse().unwrap());
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    };
    let watched = || watcher::watcher(Api::<ConfigMap>::all(client()), watcher::Config::default());
    // Allocations that outlive the first run are part of every later measurement.
    reconcile_all(0, watched()).await;
    let of_kube = reconcile_all(ALLOCATOR.allocated(), watched()).await;
    let without = |object: &mut ConfigMap| object.managed_fields_mut().clear();
    let of_kube_modified = reconcile_all(ALLOCATOR.allocated(), watched().modify(without)).await;

    let before = ALLOCATOR.allocated();
    let reads = listwatch::client::Client::new(KubeTransport::new(client()));
    let config_maps = Reflector::<Kube<ConfigMap>>::of(&reads)
        .projection(Projection::new().drop(&meta::MANAGED_FIELDS))
        .store(StorageFormat::Compressed)
        .strategy(Strategy::ListThenWatch)
        .spawn();
    let events = tokio::time::timeout(Duration::from_secs(60), watcher_events(config_maps.clone())).await;
    let of_cache = reconcile_all(before, events.unwrap().unwrap()).await;
    println!("bytes per object: kube {of_kube:?}, kube with modify {of_kube_modified:?}, cache {of_cache:?}");
    assert!(of_cache.peak < of_kube_modified.peak && of_cache.held < of_kube.held, "{of_cache:?} {of_kube:?}");
    // The cache adds less than a third to the decoded objects that kube's store holds anyway.
    assert!(of_cache.held * 3 < of_kube_modified.held * 4, "{of_cache:?} {of_kube_modified:?}");
    assert_eq!(config_maps.len(), OBJECTS);
}
