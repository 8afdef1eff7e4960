//! The memory of objects that wait in a controller, counted by the allocator. There is only one test, because the
//! allocator counts for the whole process.

use std::alloc::System;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use cap::Cap;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use listwatch::client::{Client, Request, Resource, Response, ResponseFuture, Transport};
use listwatch_cache::{Reflector, Strategy};
use listwatch_controller::{Action, Controller};
use tokio::time::sleep;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const OBJECTS: usize = 50_000;

/// Answers lists with all objects, and watches with nothing.
struct Server;

impl Transport for Server {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, "application/json".parse().unwrap())]);
        let body = if request.path_and_query.contains("watch=") {
            stream::pending().boxed()
        } else {
            let head =
                r#"{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"1"},"items":["#.to_owned();
            let items = (0..OBJECTS).map(|n| {
                let comma = if n == 0 { "" } else { "," };
                let name = format!("a-deployment-5d4f8c7b9-{n:05}");
                format!(r#"{comma}{{"metadata":{{"name":"{name}","namespace":"a-namespace","uid":"{n}","resourceVersion":"1"}}}}"#)
            });
            stream::iter([head].into_iter().chain(items).chain(["]}".to_owned()]).collect::<Vec<_>>()).boxed()
        };
        Box::pin(async { Ok(Response::new(StatusCode::OK, headers, body.map(|text| Ok(text.into())).boxed())) })
    }
}

/// Returns the bytes per object that a controller has allocated after 10 seconds in which each reconcile takes `takes`
/// and ends with a requeue after an hour, and the number of objects that were reconciled.
async fn measured(build: fn(Controller<[u8]>) -> Controller<[u8]>, takes: Duration) -> (usize, usize) {
    let reflector = Reflector::<[u8]>::new(&Client::new(Server), &Resource::CONFIG_MAPS)
        .strategy(Strategy::ListThenWatch)
        .prepare();
    let cache = reflector.cache();
    let reflector = tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let before = ALLOCATOR.allocated();
    let done = Arc::new(AtomicUsize::new(0));
    let reconcile = move |_, _| async move {
        sleep(takes).await;
        Ok::<_, io::Error>(Action::requeue(Duration::from_secs(3600)))
    };
    let items = build(Controller::new(cache.clone())).run(reconcile, |_, _, _| Action::backoff(), Arc::new(()));
    let counted = Arc::clone(&done);
    let running = tokio::spawn(items.for_each(move |_| {
        counted.fetch_add(1, SeqCst);
        std::future::ready(())
    }));
    sleep(Duration::from_secs(10)).await;
    let per_object = ALLOCATOR.allocated().saturating_sub(before) / OBJECTS;
    running.abort();
    reflector.abort();
    (per_object, done.load(SeqCst))
}

#[tokio::test(start_paused = true)]
async fn a_waiting_object_takes_a_few_hundred_bytes() {
    let (instant, slow) = (Duration::from_millis(1), Duration::from_secs(100));
    // Each object is requeued.
    let (requeued, done) = measured(|controller| controller, instant).await;
    assert_eq!(done, OBJECTS);
    // Each object is debounced.
    let (debounced, done) = measured(|controller| controller.debounce(Duration::from_secs(60)), instant).await;
    assert_eq!(done, 0);
    // The first reconciles have not ended: the others wait in the subscriber.
    let (waiting, done) = measured(|controller| controller, slow).await;
    assert_eq!(done, 0);
    println!("bytes per object: {requeued} requeued, {debounced} debounced, {waiting} waiting");
    assert!(requeued < 320 && debounced < 320, "{requeued} {debounced}");
    assert!(waiting < 8, "{waiting}");
}
