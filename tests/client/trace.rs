//! What a subscriber of `tracing` gets to see of lists and watches, and what it never sees.

use std::io;
use std::sync::{Arc, Mutex};

use crate::support::server::{anonymous, client, client_of, serve_by};
use futures::StreamExt;
use listwatch::client::{ListOptions, Resource, ResourceVersion, Retry};
use listwatch_testserver::{Answer, Body, RecordedRequest, TOKEN, leak, recorded_pods};
use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::format::FmtSpan;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// For as long as the guard lives.
fn subscribe() -> (Log, DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}

#[track_caller]
fn find(log: &str, parts: &[&str]) {
    let found = log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(found, "{parts:?}: {log}");
}

/// Busy at the first list, and echoes what it should not.
fn answer(request: &RecordedRequest, n: usize) -> Answer {
    match &*request.path {
        "/version" => Answer::ok(Body::replay(r#"{"major":"1","minor":"36"}"#)),
        _ if n == 0 => Answer::ok(Body::replay(format!("busy, Bearer {TOKEN}"))).status(429),
        _ => Answer::ok(Body::replay(recorded_pods())).header("warning", &format!("299 - \"{TOKEN}\"")),
    }
}

#[tokio::test]
async fn spans_and_events() {
    for http2 in [false, true] {
        let (log, _guard) = subscribe();
        let server = serve_by(answer).await;
        let client = client(&server, http2);
        let options = ListOptions::default().resource_version(ResourceVersion::Any).limit(7);
        let list = || client.list::<[u8]>(&Resource::PODS, &options).into_vec();

        let (_, summary) = list().await.unwrap();
        let first = log.take();
        client.server_version().await.unwrap();
        list().await.unwrap();
        let second = log.take();

        let counts = format!("items=120 bytes={} first_item_ms=", summary.bytes);
        find(&first, &[" list{resource=pods version=Any paged=false ", &counts, "close"]);
        find(&first, &["WARN list{", "an option that the server ignores", "limit 7 is ignored"]);
        find(
            &first,
            &["WARN list{", "asking again", "API error: 429: busy, Bearer [redacted]", "attempt=2", "wait_ms="],
        );
        find(&first, &["DEBUG list{", "asking", "attempt=1", "/api/v1/pods?limit=7&resourceVersion=0"]);
        find(&first, &["DEBUG list{", "complete", "pages=1 attempts=2"]);
        find(&second, &[" list{resource=pods version=Any served_from=CacheAnyAge paged=false ", &counts, "close"]);
        assert_eq!((leak(first.as_bytes()), leak(second.as_bytes())), (None, None));

        // The last error too.
        let server = serve_by(answer).await;
        let client = client_of(anonymous(&server.url(), false)).retry(Retry::never());
        client.list::<[u8]>(&Resource::PODS, &options).into_vec().await.unwrap_err();
        find(&log.take(), &["DEBUG list{", "failed", "API error: 429"]);
    }
}

/// Old: it refuses initial events. Behind the list come a watch that ends, and one that is not allowed.
fn answer_watch(_: &RecordedRequest, n: usize) -> Answer {
    match n {
        0 => Answer::ok(Body::replay("busy")).status(429),
        1 => Answer::ok(Body::replay("no initial events")).status(422),
        2 => Answer::ok(Body::replay(recorded_pods())),
        3 => Answer::ok(Body::replay("")).header("warning", &format!("299 - \"{TOKEN}\"")),
        _ => Answer::ok(Body::replay(format!("no, Bearer {TOKEN}"))).status(403),
    }
}

#[tokio::test]
async fn a_watch_is_one_span() {
    for resumes in [false, true] {
        let (log, _guard) = subscribe();
        let server = serve_by(answer_watch).await;
        let client = client(&server, false);
        let watch = client.watch::<[u8]>(&Resource::PODS, &ListOptions::default());
        if resumes {
            assert!(
                watch
                    .resume()
                    .fail_fast()
                    .collect::<Vec<_>>()
                    .await
                    .last()
                    .unwrap()
                    .as_ref()
                    .unwrap_err()
                    .is_forbidden()
            );
        } else {
            assert!(watch.stream().next().await.unwrap().is_err());
        }
        let log = log.take();

        find(&log, &["DEBUG watch{resource=pods}: ", "watching", "/api/v1/pods?watch=1&"]);
        find(&log, &[" watch{resource=pods}: ", "close"]);
        if resumes {
            find(&log, &["DEBUG watch{resource=pods}: ", "watching again", "error=API error: 429: busy", "wait="]);
            find(&log, &["DEBUG watch{resource=pods}:list{", "asking", "attempt=1", "/api/v1/pods"]);
            find(&log, &[" watch{resource=pods}:list{resource=pods ", "close"]);
            find(&log, &["WARN watch{resource=pods}: ", "the server warns", "[redacted]"]);
        }
        let own: Vec<_> = log.lines().filter(|line| line.contains(" listwatch::")).collect();
        assert!(own.iter().all(|line| line.contains(" watch{resource=pods}:")), "{own:#?}");
        assert_eq!(leak(log.as_bytes()), None);
    }
}
