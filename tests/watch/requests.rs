//! What a watch requests: version, initial events, selectors and timeout.

use futures::StreamExt;
use listwatch::client::{ErrorKind, Selection, WatchParams};

use crate::support::config_maps::added;
use crate::support::transport::{Answer, Scripted};
use crate::{SECOND, exact, list, resumed, watch, written};

#[tokio::test(start_paused = true)]
async fn requests_have_version_initial_events_and_timeout() {
    let every = "/api/v1/configmaps?";
    let initial = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let at_least = WatchParams::with_initial_state_at_least;
    for (params, expected) in [
        (
            exact(7).selection(Selection::all().labels("a=b".parse().unwrap())),
            "labelSelector=a%3Db&watch=1&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=40".to_owned(),
        ),
        (WatchParams::with_initial_state(), format!("{initial}&resourceVersion=&timeoutSeconds=40")),
        // Versions are opaque.
        (
            WatchParams::from_version("a b"),
            "watch=1&allowWatchBookmarks=true&resourceVersion=a%20b&timeoutSeconds=40".to_owned(),
        ),
        (at_least("0"), format!("{initial}&resourceVersion=0&timeoutSeconds=40")),
        (at_least("7"), format!("{initial}&resourceVersion=7&timeoutSeconds=40")),
    ] {
        let params = params.timeout(SECOND * 40);
        let server = Scripted::in_turn([Answer::default()]);
        assert!(watch(&server.client(), &params).open().await.unwrap().next().await.is_none());
        assert_eq!(server.paths(), [format!("{every}{expected}")]);
        // The first connection of a watch that resumes.
        let server = Scripted::in_turn([]);
        let _ = resumed(watch(&server.client(), &params)).await;
        assert_eq!(server.paths(), [format!("{every}{expected}")]);
    }
    // Invalid parameters: nothing is sent.
    for params in [exact(0), WatchParams::from_version(""), at_least(""), exact(7).timeout(SECOND / 2)] {
        let server = Scripted::in_turn([]);
        let error = watch(&server.client(), &params).open().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Params(_)), "{error}");
        let (_, error, _) = resumed(watch(&server.client(), &params)).await;
        assert!(matches!(error.kind(), ErrorKind::Params(_)), "{error}");
        assert_eq!(server.paths(), [""; 0]);
    }
    // The default timeout is random, from 5 to 10 minutes.
    let mut timeouts = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let server = Scripted::in_turn([Answer::default()]);
        let watch = watch(&server.client(), &exact(7)).namespace("web");
        assert!(watch.open().await.unwrap().next().await.is_none());
        let path = server.paths().remove(0);
        let (path, seconds) = path.rsplit_once('=').unwrap();
        assert_eq!(
            path,
            "/api/v1/namespaces/web/configmaps?watch=1&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds"
        );
        timeouts.insert(seconds.parse::<u64>().unwrap());
    }
    assert!(timeouts.len() > 1 && timeouts.iter().all(|seconds| (300..=600).contains(seconds)), "{timeouts:?}");
}

#[tokio::test(start_paused = true)]
async fn from_now_begins_after_the_version_of_the_collection() {
    let answers = || [list(&["a"], "7"), Answer::pieces([added("b", 8)])];
    let paths = |server: &Scripted| {
        let paths = server.paths();
        assert_eq!(paths[0], "/api/v1/namespaces/web/configmaps?limit=1");
        assert!(paths[1].contains("watch=1&allowWatchBookmarks=true&resourceVersion=7&"), "{paths:?}");
    };
    let watch = |server: &Scripted| watch(&server.client(), &WatchParams::from_now()).namespace("web");
    let server = Scripted::in_turn(answers());
    let events: Vec<_> = watch(&server).open().await.unwrap().map(|event| written(event.unwrap())).collect().await;
    assert_eq!(events, ["+b"]);
    paths(&server);

    // The request for the version is retried like any other.
    let server = Scripted::in_turn([Answer::status(503)].into_iter().chain(answers()));
    let mut events = watch(&server);
    assert_eq!(events.resource_version(), None);
    assert_eq!(written(events.next().await.unwrap().unwrap()), "+b");
    assert_eq!(events.resource_version(), Some("7"));
    assert_eq!(
        (server.paths().len(), &server.paths()[1..2]),
        (3, &["/api/v1/namespaces/web/configmaps?limit=1".to_owned()][..])
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_cannot_resume_from_version_0() {
    for version in ["0", "00"] {
        let server = Scripted::in_turn([]);
        let (_, error, _) = resumed(watch(&server.client(), &WatchParams::from_version(version))).await;
        let expected = "a watch cannot resume from version 0: watch from now, or with the initial state";
        assert_eq!((&*error.to_string(), server.requests()), (expected, 0));
    }
}
