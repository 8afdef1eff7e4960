//! What a watch requests: version, initial events, selectors and timeout.

use futures::StreamExt;
use listwatch::client::{ErrorKind, ListOptions, ResourceVersion};

use crate::support::transport::{Answer, Scripted};
use crate::{SECOND, exact, options, resumed, watch};

#[tokio::test(start_paused = true)]
async fn requests_name_version_initial_events_and_timeout() {
    let every = "/api/v1/configmaps?";
    let seconds = ListOptions::default().timeout(SECOND * 40);
    for (options, initial, expected) in [
        (seconds.clone(), false, "watch=1&allowWatchBookmarks=true&resourceVersion=&timeoutSeconds=40"),
        (
            seconds.clone().resource_version(ResourceVersion::Any),
            false,
            "watch=1&allowWatchBookmarks=true&resourceVersion=0&timeoutSeconds=40",
        ),
        (
            seconds.clone().resource_version(ResourceVersion::Exact("7".into())).labels("a=b".parse().unwrap()),
            false,
            "labelSelector=a%3Db&watch=1&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=40",
        ),
        (
            seconds.clone(),
            true,
            "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=\
             &timeoutSeconds=40",
        ),
        (
            seconds.clone().resource_version(ResourceVersion::AtLeast("7".into())),
            true,
            "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7\
             &timeoutSeconds=40",
        ),
    ] {
        let server = Scripted::in_turn([Answer::default()]);
        let watch = watch(&server.client(), &options);
        let watch = if initial { watch.initial_events() } else { watch };
        assert!(watch.stream().next().await.is_none());
        assert_eq!(server.paths(), [format!("{every}{expected}")]);
    }
    // Nothing is sent.
    let at_least = options(ResourceVersion::AtLeast("7".into()));
    for (options, initial) in
        [(ListOptions::default().limit(1), false), (at_least.clone(), false), (exact(7), true), (exact(0), false)]
    {
        let server = Scripted::in_turn([]);
        let watch = watch(&server.client(), &options);
        let watch = if initial { watch.initial_events() } else { watch };
        let error = watch.stream().next().await.unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Options(_)), "{error}");
        assert_eq!(server.paths(), [""; 0]);
    }
    // Of a watch that goes on, the first.
    for (options, expected) in [
        (at_least, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7&"),
        (options(ResourceVersion::Any), "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0&"),
        (exact(7), "allowWatchBookmarks=true&resourceVersion=7&"),
        (ListOptions::default().limit(1), ""),
    ] {
        let server = Scripted::in_turn([]);
        let (_, error, _) = resumed(watch(&server.client(), &options).resume()).await;
        assert_eq!(matches!(error.kind(), ErrorKind::Options(_)), expected.is_empty(), "{error}");
        let asked = server.paths();
        assert!(asked.len() == usize::from(!expected.is_empty()) && asked.concat().contains(expected), "{asked:?}");
    }
    // 5 to 10 minutes, and not always the same.
    let mut timeouts = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let server = Scripted::in_turn([Answer::default()]);
        assert!(watch(&server.client(), &exact(7)).namespace("web").stream().next().await.is_none());
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
