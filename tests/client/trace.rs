//! The spans and events of lists and watches, and the secrets that are never in them.

use futures::StreamExt;
use listwatch::FieldSelector;
use listwatch::client::{ListParams, Metrics, Resource, ResourceVersion, Retry, Selection, WatchParams};
use listwatch_testserver::{Answer, Body, RecordedRequest, TOKEN, leak, recorded_pods};

use crate::support::log::subscribe;
use crate::support::server::{anonymous, client, client_of, serve_by};

#[track_caller]
fn find(log: &str, parts: &[&str]) {
    let found = log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(found, "{parts:?}: {log}");
}

/// Busy at the first list, and echoes what it should not.
fn answer(_: &RecordedRequest, n: usize) -> Answer {
    match n {
        0 => Answer::ok(Body::replay(format!("busy, Bearer {TOKEN}"))).status(429),
        _ => Answer::ok(Body::replay(recorded_pods())).header("warning", &format!("299 - \"{TOKEN}\"")),
    }
}

#[tokio::test]
async fn spans_and_events() {
    for http2 in [false, true] {
        let (log, _guard) = subscribe();
        let server = serve_by(answer).await;
        let client = client(&server, http2);
        let options = ListParams::default().resource_version(ResourceVersion::Any).page_size(7);
        let list = || client.list::<[u8]>(&Resource::PODS, &options).into_vec();

        let (_, summary) = list().await.unwrap();
        let first = log.take();

        let counts = format!("items=120 bytes={} first_item_ms=", summary.bytes);
        find(&first, &[" listwatch.list{resource=pods resource_version=Any page_size=7 ", &counts, "close"]);
        find(&first, &["WARN listwatch.list{", "the server ignores page sizes", "page_size=7"]);
        find(
            &first,
            &[
                "WARN listwatch.list{",
                "retrying in 0.",
                "API error: 429: busy, Bearer [redacted]",
                "attempt=2",
                "seconds=",
            ],
        );
        find(&first, &["DEBUG listwatch.list{", "requesting", "attempt=1", "/api/v1/pods?limit=7&resourceVersion=0"]);
        find(&first, &["DEBUG listwatch.list{", "complete", "pages=1 attempts=2"]);
        find(&first, &[" listwatch.list{", "attempts=2 status=200", "close"]);
        assert_eq!(leak(first.as_bytes()), None);
        let Metrics { requests, retries, wire_bytes, items, events, restarts, .. } = client.metrics();
        assert_eq!((requests, retries, items, events, restarts), (2, 1, 120, 0, 0));
        assert_eq!(wire_bytes, summary.wire_bytes);

        // The last error too.
        let server = serve_by(answer).await;
        let client = client_of(anonymous(&server.url(), false)).retry(Retry::never());
        client.list::<[u8]>(&Resource::PODS, &options).into_vec().await.unwrap_err();
        let failed = log.take();
        find(&failed, &["DEBUG listwatch.list{", "failed", "API error: 429"]);
        find(&failed, &[" listwatch.list{", "attempts=1 status=429", "close"]);
    }
}

/// Texts of callers are quoted and escaped, so that no selector or name writes lines of its own.
#[tokio::test]
async fn spans_name_the_objects() {
    let (log, _guard) = subscribe();
    let server = serve_by(|_, _| Answer::ok(Body::replay("no")).status(400)).await;
    let client = client(&server, false);
    let fields = FieldSelector::new().equal("metadata.name", "a\nERROR b");
    let selection = Selection::all().labels("app=web".parse().unwrap()).fields(fields);
    let list = client.list::<[u8]>(&Resource::PODS, &ListParams::new(selection.clone()));
    list.namespaces((0..12).map(|n| format!("n{n}"))).into_vec().await.unwrap_err();
    let params = WatchParams::from_version("7").selection(selection);
    let watch = client.watch::<[u8]>(&Resource::PODS, &params).namespace("web");
    assert!(watch.fail_fast().collect::<Vec<_>>().await.pop().unwrap().is_err());
    client.get::<[u8]>(&Resource::PODS, Some("web"), "x\n\u{1b}[31m").await.unwrap_err();
    let log = log.take();
    let selectors = r#"label_selector="app=web" field_selector="metadata.name=a\nERROR b""#;
    find(&log, &[" listwatch.list{resource=pods ", selectors, r#"namespace="n0,n1,"#, r#",n9 and 2 more""#, "close"]);
    let watch = " listwatch.watch{resource=pods ";
    find(&log, &[watch, selectors, r#"namespace="web" attempts=1 status=400"#, "close"]);
    let get = r#" listwatch.get{resource=pods namespace="web" name="x\n\u{1b}[31m" attempts=1 status=400}"#;
    find(&log, &[get, "close"]);
    assert!(!log.contains('\u{1b}') && !log.lines().any(|line| line.starts_with("ERROR b")), "{log}");
}

/// An old server, which refuses initial events. After the list, the first watch ends, and the second is forbidden.
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
        let watch = client.watch::<[u8]>(&Resource::PODS, &WatchParams::with_initial_state());
        if resumes {
            let events: Vec<_> = watch.fail_fast().collect().await;
            assert_eq!(events.last().unwrap().as_ref().unwrap_err().code(), Some(403));
        } else {
            assert!(watch.open().await.is_err());
        }
        let log = log.take();

        find(&log, &["DEBUG listwatch.watch{resource=pods}: ", "requesting", "/api/v1/pods?watch=1&"]);
        find(&log, &[" listwatch.watch{resource=pods", "close"]);
        if resumes {
            // Initial events twice, the list, and two watches.
            find(&log, &[" listwatch.watch{resource=pods attempts=5 status=403}: ", "close"]);
            find(&log, &["DEBUG listwatch.watch{resource=pods}: ", "resuming in 0.", "error=API error: 429: busy"]);
            find(
                &log,
                &["DEBUG listwatch.watch{resource=pods}:listwatch.list{", "requesting", "attempt=1", "/api/v1/pods"],
            );
            find(&log, &[" listwatch.watch{resource=pods}:listwatch.list{resource=pods ", "close"]);
            find(&log, &["WARN listwatch.watch{resource=pods}: ", "the server warns", "[redacted]"]);
        }
        let own: Vec<_> = log.lines().filter(|line| line.contains(" listwatch::client")).collect();
        assert!(own.iter().all(|line| line.contains(" listwatch.watch{resource=pods")), "{own:#?}");
        assert_eq!(leak(log.as_bytes()), None);
    }
}
