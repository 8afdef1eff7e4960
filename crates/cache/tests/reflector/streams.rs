//! Reflectors over a transport that queues requests, as HTTP clients do over HTTP/2 with few streams.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use listwatch::client::{Client, Request, Resource, Response, ResponseFuture, Transport};
use listwatch_cache::{Cache, Reflector, Strategy};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::script::{idle_watch, list, modified, objects, watch};
use crate::support::log::subscribe;
use crate::support::transport::{Asked, Scripted};

/// A watch waits until another one has ended, body included. Lists have streams of their own, so that all caches sync.
struct FewStreams {
    server: Scripted,
    streams: Arc<Semaphore>,
}

impl Transport for FewStreams {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            let is_watch = request.path_and_query.contains("watch=");
            let streams = Arc::clone(&self.streams);
            let stream = if is_watch { Some(streams.acquire_owned().await.unwrap()) } else { None };
            let Response { status, headers, body, .. } = self.server.get(request).await?;
            let body = body.map(move |chunk| {
                let _held = &stream;
                chunk
            });
            Ok(Response::new(status, headers, body.boxed()))
        })
    }
}

/// Lists `a@1` at version 10 to each of the five reflectors, and then changes it to `a@11`. The change is in each watch
/// from version 10, which ends as requested, and in later lists.
fn server() -> Scripted {
    let mut lists = 0;
    Scripted::by(move |asked: &Asked, _| {
        let Some(seconds) = asked.parameter("timeoutSeconds") else {
            lists += 1;
            return if lists <= 5 { list("10", "a@1") } else { list("11", "a@11") };
        };
        let end = Duration::from_secs(seconds.parse().unwrap());
        let is_old = asked.parameter("resourceVersion") == Some("10");
        if is_old { watch([modified("a@11")]) } else { idle_watch() }.then_ends(end)
    })
}

#[tokio::test(start_paused = true)]
async fn five_reflectors_over_two_streams_are_late_and_say_so() {
    let (log, _guard) = subscribe();
    let transport = FewStreams { server: server(), streams: Arc::new(Semaphore::new(2)) };
    let client = Client::new(transport);
    let start = |namespace: &str| {
        let reflector = Reflector::<[u8]>::new(&client, &Resource::CONFIG_MAPS).namespace(namespace);
        reflector.strategy(Strategy::ListThenWatch).spawn()
    };
    let caches = ["n0", "n1", "n2", "n3", "n4"].map(start);
    for cache in &caches {
        cache.synced().await.unwrap();
    }
    let started = Instant::now();
    let is_late = |cache: &&Cache<[u8]>| objects(cache) != "a@11";
    sleep(Duration::from_secs(12)).await;
    // Two watches have the streams.
    assert_eq!((caches.iter().filter(is_late).count(), client.metrics().waiting_requests), (3, 3));
    let logged = log.take();
    let waiting =
        |line: &&str| line.contains(" WARN ") && line.contains("no response for 10 s") && line.contains("watch=");
    assert_eq!(logged.lines().filter(waiting).count(), 3, "{logged}");
    sleep(Duration::from_secs(90)).await;
    for cache in caches.iter().filter(is_late) {
        let error = cache.status().last_error.expect("the watch fails");
        assert_eq!(error.to_string(), "the server has not responded for 90 s");
    }
    // Watches end after 5 to 10 minutes, and others get their streams.
    while caches.iter().any(|cache| is_late(&cache)) {
        sleep(Duration::from_secs(10)).await;
        assert!(started.elapsed() < Duration::from_secs(3 * 3600), "a cache is frozen");
    }
}
