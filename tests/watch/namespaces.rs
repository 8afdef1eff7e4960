//! A watch of several namespaces delivers the changes of all as one stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_pb::api::core::v1::Secret;
use listwatch::Limits;
use listwatch::client::{Resource, WatchParams};

use crate::support::config_maps::{added, bookmark, error, event, initial_end};
use crate::support::transport::{Answer, Scripted};
use crate::{Name, SECOND, Watch, between, exact, resumed, watch, written};

/// A server that answers each namespace by a closure, which gets the number of earlier requests for the namespace.
fn server(answer: impl Fn(&str, usize) -> Answer + Send + 'static) -> Scripted {
    let mut counts = HashMap::<String, usize>::new();
    Scripted::by(move |asked, _| {
        let namespace = between(&asked.path_and_query, "/namespaces/", "/");
        let count = counts.entry(namespace.to_owned()).or_default();
        *count += 1;
        answer(namespace, *count - 1)
    })
}

/// Returns the start of each request for a namespace: `initial` or a version.
fn starts(server: &Scripted, namespace: &str) -> String {
    let paths = server.paths();
    let of_namespace = paths.iter().filter(|path| path.contains(&format!("/namespaces/{namespace}/")));
    let start = |path: &String| {
        let is_initial = path.contains("sendInitialEvents");
        if is_initial { "initial" } else { between(path, "resourceVersion=", "&") }.to_owned()
    };
    of_namespace.map(start).collect::<Vec<_>>().join(" ")
}

/// Returns the next events, which must arrive.
async fn take(watch: &mut Watch<Name>, count: usize) -> String {
    let mut events = Vec::new();
    while events.len() < count {
        events.push(written(watch.next().await.unwrap().unwrap()));
    }
    events.join(" ")
}

#[tokio::test(start_paused = true)]
async fn synced_follows_the_last_namespace_at_the_oldest_version() {
    let server = server(|namespace, _| match namespace {
        "a" => Answer::pieces([added("a1", 5), initial_end(20)])
            .then(SECOND / 2, event("MODIFIED", "a1", 25))
            .then(SECOND * 4, bookmark(50))
            .then(SECOND, added("a2", 60))
            .then_stalls(),
        _ => Answer::default()
            .then(SECOND, added("b1", 6))
            .then(Duration::ZERO, initial_end(30))
            .then(SECOND, added("b2", 31))
            .then_stalls(),
    });
    let mut watch = watch(&server.client(), &WatchParams::with_initial_state()).namespaces(["a", "b", "a"]);
    assert_eq!(take(&mut watch, 2).await, "+a1 ~a1");
    assert_eq!(watch.resource_version(), None, "b has no version yet");
    // Further events may have version 25.
    assert_eq!(take(&mut watch, 2).await, "+b1 synced 20");
    assert_eq!(take(&mut watch, 1).await, "+b2");
    assert_eq!(watch.resource_version(), Some("20"));
    assert_eq!(take(&mut watch, 1).await, "+a2");
    assert_eq!(watch.resource_version(), Some("30"));
    assert_eq!(server.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn each_namespace_resumes_from_its_own_version() {
    let server = server(|namespace, n| match (namespace, n) {
        ("a", 0) => Answer::pieces([bookmark(20)]),
        ("a", _) => Answer::pieces([added("a1", 21)]).then_stalls(),
        _ => Answer::default().then(SECOND * 5, added("b1", 9)).then_stalls(),
    });
    let mut watch = watch(&server.client(), &exact(7)).namespaces(["a", "b"]);
    assert_eq!(take(&mut watch, 2).await, "+a1 +b1");
    assert_eq!((&*starts(&server, "a"), &*starts(&server, "b")), ("7 20", "7"));
    assert_eq!(watch.resource_version(), Some("7"));
}

/// The first request for `a` breaks in the initial state, or a later one of a synced watch gets 410.
#[tokio::test(start_paused = true)]
async fn a_reset_of_one_namespace_starts_all_over() {
    for expires in [false, true] {
        let server = server(move |namespace, n| match (namespace, n) {
            ("a", 0) if expires => Answer::pieces([added("a1", 5), initial_end(20)]).then(SECOND, error(410)),
            ("a", 0) => Answer::pieces([added("a1", 5)]).then(SECOND, added("a2", 6)).then_reset(),
            ("a", _) => Answer::pieces([added("a1", 5), initial_end(40)]).then_stalls(),
            (_, 0) => Answer::pieces([added("b1", 6), initial_end(30)]).then_stalls(),
            _ => Answer::pieces([added("b2", 7), initial_end(41)]).then_stalls(),
        });
        let watch = watch(&server.client(), &WatchParams::with_initial_state()).namespaces(["a", "b"]);
        let mut watch = watch.start_over();
        let before = if expires { "+a1 +b1 synced 20" } else { "+a1 +b1 +a2" };
        assert_eq!(take(&mut watch, 3).await, before);
        assert_eq!(take(&mut watch, 4).await, "reset +b2 +a1 synced 40");
        assert_eq!((&*starts(&server, "a"), &*starts(&server, "b")), ("initial initial", "initial initial"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_names_its_namespace_and_ends_the_stream() {
    let server = server(|namespace, _| match namespace {
        "b" => Answer::pieces([added("b1", 8)]).then(SECOND, error(410)),
        _ => Answer::pieces([added("a1", 8)]).then_stalls(),
    });
    let (events, error, version) = resumed(watch(&server.client(), &exact(7)).namespaces(["a", "b"])).await;
    assert_eq!(events.join(" "), "+a1 +b1");
    assert!(error.is_expired());
    assert_eq!((error.namespace(), error.items(), version.as_deref()), (Some("b"), 2, Some("7")));
    assert!(error.to_string().ends_with(r#", 2 items delivered, in namespace "b""#), "{error}");
    // The connections of the others are closed, even if the stream is kept.
    let client = server.client();
    let mut events = watch(&client, &exact(7)).namespaces(["a", "b"]);
    while events.next().await.unwrap().is_ok() {}
    assert_eq!(client.metrics().open_watches, 0);
    // With one namespace there is nothing to name.
    let (_, error, _) = resumed(watch(&server.client(), &exact(7)).namespaces(["b", "b"])).await;
    assert_eq!(error.namespace(), None);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_namespace_is_retried_and_holds_up_no_other() {
    let server = server(|namespace, n| match (namespace, n) {
        ("b", 0..3) => Answer::status(403),
        ("b", _) => Answer::pieces([initial_end(30)]).then_stalls(),
        _ => Answer::pieces([added("a1", 5), initial_end(20)]).then_stalls(),
    });
    let ends = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&ends);
    let from_start = WatchParams::with_initial_state();
    let watch_both = || watch(&server.client(), &from_start).namespaces(["a", "b"]);
    let mut watch = watch_both().on_disconnect(move |end| {
        seen.lock().unwrap().push((end.namespace.clone().unwrap(), end.error.as_ref().unwrap().code() == Some(403)));
    });
    assert_eq!(take(&mut watch, 2).await, "+a1 synced 20");
    assert_eq!(*ends.lock().unwrap(), vec![("b".to_owned(), true); 3]);

    let server = self::server(|_, _| Answer::status(403));
    let (_, error, _) = resumed(self::watch(&server.client(), &from_start).namespaces(["a", "b"]).fail_fast()).await;
    assert!(error.code() == Some(403) && error.namespace() == Some("a"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_busy_namespace_does_not_hold_up_others() {
    let server = server(|namespace, _| match namespace {
        "a" => Answer::ok((0..100).map(|n| added(&format!("a{n}"), 8 + n)).collect::<Vec<_>>().concat()).then_stalls(),
        _ => Answer::pieces([added("b", 8)]).then_stalls(),
    });
    let mut watch = watch(&server.client(), &exact(7)).namespaces(["a", "b"]);
    let first = take(&mut watch, 10).await;
    assert!(first.contains("+b"), "{first}");
}

#[tokio::test(start_paused = true)]
async fn no_namespaces_and_one_connection_of_several_are_refused() {
    let server = server(|_, _| Answer::pieces([added("a", 8)]).then_stalls());
    let client = server.client();
    let (_, error, _) = resumed(watch(&client, &exact(7)).namespaces([""; 0])).await;
    assert_eq!(error.to_string(), "no namespaces: a watch of none would never deliver an event");
    for (namespaces, expected) in [
        (vec![], "0 namespaces: one connection watches one namespace, or all"),
        (vec!["a", "b"], "2 namespaces: one connection watches one namespace, or all"),
    ] {
        let error = watch(&client, &exact(7)).namespaces(namespaces).open().await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(server.requests(), 0);
    let mut one = watch(&client, &exact(7)).namespaces(["a", "b"]).namespaces(["c"]);
    assert_eq!(take(&mut one, 1).await, "+a");
    assert_eq!(server.asked()[0].path(), "/api/v1/namespaces/c/configmaps");
    let of_nodes = client.watch::<[u8]>(&Resource::NODES, &exact(7)).namespaces(["a", "b"]).next().await;
    let error = of_nodes.unwrap().unwrap_err();
    assert!(error.to_string().contains("nodes is not namespaced"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_settings_of_a_watch_hold_in_each_namespace() {
    let both = ["a", "b"];
    let large = server(|_, _| Answer::pieces([added(&"x".repeat(100), 8)]).then_stalls());
    let (_, error, _) =
        resumed(watch(&large.client(), &exact(7)).limits(Limits::default().item_size(50)).namespaces(both)).await;
    assert!(error.to_string().contains("over the limit of 50 bytes"), "{error}");

    let quiet = || server(|_, _| Answer::default().then_stalls());
    let reconnects = async |watch: Watch<Name>| {
        let (disconnects, mut disconnected) = tokio::sync::mpsc::unbounded_channel();
        let mut watch = watch.on_disconnect(move |at| drop(disconnects.send(at.clone()))).namespaces(both);
        assert!(tokio::time::timeout(SECOND * 25, watch.next()).await.is_err());
        disconnected.try_recv().ok().map(|disconnect| disconnect.error.unwrap().to_string())
    };
    let server = quiet();
    let error = reconnects(watch(&server.client(), &exact(7)).bookmarks(false).idle_timeout(SECOND * 20)).await;
    assert_eq!(error.as_deref(), Some("the server has sent no byte for 20 s"));
    assert!(server.paths().iter().all(|path| !path.contains("allowWatchBookmarks")), "{:?}", server.paths());
    let server = quiet();
    let initial = watch(&server.client(), &WatchParams::with_initial_state()).initial_events_timeout(SECOND * 20);
    let error = reconnects(initial).await;
    assert_eq!(error.as_deref(), Some("the server has not ended the initial events: 0 bytes in 20 s"));

    let server = quiet();
    let other_kind = server.client().watch::<Secret>(&Resource::CONFIG_MAPS, &exact(7));
    let error = other_kind.namespaces(both).next().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("Secret") && server.paths().is_empty(), "{error}");
}
