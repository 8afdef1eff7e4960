//! Waits until a cache is as new as a read requires.

use std::cmp::Ordering;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::Shared as SharedFuture;
use listwatch::client::{Client, Error, Selection};
use listwatch::compare_resource_versions;
use tokio::time::timeout;

use crate::mirrored::Mirrored;
use crate::params::Params;
use crate::shared::Shared;
use crate::status::{self, Refusal};

/// How long a read waits for a version that the API server has before it is forwarded.
const BRIEFLY: Duration = Duration::from_millis(100);

/// How long a read waits for a version that the API server does not have, and a watch for the newest version. As in the
/// API server (`blockTimeout` in apiserver `cacher/watch_cache.go`).
const LONG: Duration = Duration::from_secs(3);

/// Whether an answer is as new as its read requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Yes, or the mirror answers at the version of the cache anyway, by `--stale-reads`.
    Confirmed,
    /// The cache may lack changes that the API server had before the read.
    Unconfirmed,
}

/// Waits until the cache is new enough for a GET or a list of this version: `""` is the newest, `"0"` any.
pub(super) async fn wait(shared: &Shared, mirrored: &Arc<Mirrored>, resource_version: &str) -> Result<(), Refusal> {
    match resource_version {
        "0" => Ok(()),
        "" if shared.stale_reads => Ok(()),
        "" => {
            let newest = mirrored.probe.newest(&shared.client, mirrored).await.map_err(|_| Refusal::Forward)?;
            let waits = mirrored.cache.wait_for_resource_version(&newest);
            match timeout(BRIEFLY, waits).await {
                Ok(Ok(())) => Ok(()),
                _ => Err(Refusal::Forward),
            }
        }
        version => at_least(shared, mirrored, version).await,
    }
}

/// Waits until the cache is new enough for a watch. Without a version, the watch begins with the newest state as a list
/// does (`getWatchCacheResourceVersion` in apiserver `pkg/storage/cacher/cacher.go`).
///
/// The mirror does not forward a watch without a version: it would forward most watches of a collection that does not
/// change, because its cache learns the newest version only from the next bookmark.
pub(super) async fn wait_of_watch(
    shared: &Shared,
    mirrored: &Arc<Mirrored>,
    params: &Params,
) -> Result<Freshness, Refusal> {
    match &*params.resource_version {
        "" if !shared.stale_reads => {
            let newest = async {
                let newest = mirrored.probe.newest(&shared.client, mirrored).await.ok()?;
                mirrored.cache.wait_for_resource_version(&newest).await.ok()
            };
            if let Ok(Some(())) = timeout(LONG, newest).await {
                return Ok(Freshness::Confirmed);
            }
            shared.metrics.unconfirmed(mirrored);
            Ok(Freshness::Unconfirmed)
        }
        "" | "0" => Ok(Freshness::Confirmed),
        version if params.send_initial_events == Some(true) => {
            at_least(shared, mirrored, version).await.map(|()| Freshness::Confirmed)
        }
        version if is_version(version) => Ok(Freshness::Confirmed),
        _ => Err(Refusal::Forward),
    }
}

/// Waits until the cache has a version that the reader names. If the API server has it already, and the cache learns it only from
/// the next bookmark, the API server answers. It also answers a version that has no order, with its own error.
pub(super) async fn at_least(shared: &Shared, mirrored: &Arc<Mirrored>, resource_version: &str) -> Result<(), Refusal> {
    if !is_version(resource_version) {
        return Err(Refusal::Forward);
    }
    let has_it = |waited| matches!(waited, Ok(Ok(())));
    let waits = || mirrored.cache.wait_for_resource_version(resource_version);
    if has_it(timeout(BRIEFLY, waits()).await) {
        return Ok(());
    }
    let newest = mirrored.probe.newest(&shared.client, mirrored).await.map_err(|_| Refusal::Forward)?;
    if compare_resource_versions(resource_version, &newest).is_some_and(Ordering::is_le) {
        return Err(Refusal::Forward);
    }
    if has_it(timeout(LONG, waits()).await) {
        return Ok(());
    }
    Err(status::version_too_large(resource_version, &mirrored.cache.resource_version()).into())
}

/// Returns true if the text is a version that compares with others. An API server refuses versions over a u64.
fn is_version(text: &str) -> bool {
    compare_resource_versions(text, "1").is_some() && text.parse::<u64>().is_ok()
}

/// Requests the version of the API server. Reads that arrive while a request is open share the next request.
#[derive(Default)]
pub(crate) struct Probe {
    next: Arc<Mutex<Option<Pending>>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

type Pending = SharedFuture<Pin<Box<dyn Future<Output = Result<String, Arc<Error>>> + Send>>>;

impl Probe {
    /// Returns a version that the API server had after this call.
    async fn newest(&self, client: &Client, mirrored: &Mirrored) -> Result<String, Arc<Error>> {
        let pending = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            next.get_or_insert_with(|| self.pending(client, mirrored)).clone()
        };
        pending.await
    }

    fn pending(&self, client: &Client, mirrored: &Mirrored) -> Pending {
        let (next, turn, client) = (Arc::clone(&self.next), Arc::clone(&self.turn), client.clone());
        let (resource, namespace) = (mirrored.resource.clone(), mirrored.namespace.clone());
        let request: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            let _turn = turn.lock().await;
            // Reads that arrive from now on need a later request.
            next.lock().unwrap_or_else(PoisonError::into_inner).take();
            let version = client.current_version(&resource, &Selection::default(), namespace.as_deref());
            version.await.map_err(Arc::new)
        });
        request.shared()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use http_body_util::BodyExt as _;
    use listwatch_cache::ChangeLogLimits;

    use super::*;
    use crate::mirror::{Access, Limits};
    use crate::reads::{LAG, UNCONFIRMED};
    use crate::testing::{Api, get};

    const PATH: &str = "/api/v1/configmaps";

    /// A write to another resource advances the version of the API server, and the cache does not learn of it before a bookmark.
    #[tokio::test(start_paused = true)]
    async fn forwards_reads_at_versions_that_only_the_api_server_has() {
        let api = Api::new(2, 100);
        let shared = api.mirror(Limits::default()).await;
        api.advance(1005);
        for (version, expected) in [
            ("1000", (200, true)),
            ("1003", (200, false)),
            ("1005", (200, false)),
            ("1006", (504, false)),
            // The API server reads or refuses versions without an order.
            ("01", (200, false)),
            ("x", (200, false)),
            ("18446744073709551616", (200, false)),
        ] {
            for rest in ["", "&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=Exact", "&limit=1"] {
                let response = get(&shared, &format!("{PATH}?resourceVersion={version}{rest}"), "*/*").await;
                let found = (response.status().as_u16(), response.headers().contains_key(LAG));
                assert_eq!(found, expected, "{version}{rest}");
            }
        }
        let object = "/api/v1/namespaces/web/configmaps/000000?resourceVersion=";
        for (version, is_from_memory) in [("1000", true), ("1005", false), ("x", false)] {
            let response = get(&shared, &format!("{object}{version}"), "*/*").await;
            assert_eq!(response.headers().contains_key(LAG), is_from_memory, "{version}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_list_waits_for_its_version() {
        let api = Api::new(2, 100);
        let shared = api.mirror(Limits::default()).await;
        api.advance(1005);
        for (version, is_from_memory) in [("1000", true), ("1003", false), ("1006", true), ("x", false)] {
            let query = "watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents";
            let response = get(&shared, &format!("{PATH}?{query}=1&resourceVersion={version}"), "*/*").await;
            assert_eq!(response.status(), 200, "{version}");
            assert_eq!(response.headers().contains_key(LAG), is_from_memory, "{version}");
            if version == "1006" {
                let error = response.into_body().collect().await.unwrap().to_bytes();
                let error: serde_json::Value = serde_json::from_slice(&error).unwrap();
                assert_eq!(error["type"], "ERROR");
                assert_eq!(error["object"]["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
            }
            // Without initial events, a watch begins at once, and skips the changes up to its version.
            let watch = format!("{PATH}?{query}=0&resourceVersion={version}");
            let response = get(&shared, &watch, "*/*").now_or_never().unwrap();
            assert_eq!(response.headers().contains_key(LAG), version != "x", "{version}");
        }
    }

    /// Sends a watch, and a change after the mirror has asked the API server for its version.
    async fn watch_during_a_change(stale_reads: bool, query: &str) -> (bool, String) {
        let api = Api::new(1, 100);
        let shared = api
            .mirror_with(Access::Loopback, Limits::default(), stale_reads, ChangeLogLimits::default(), |own| own)
            .await;
        api.advance(1005);
        let path = format!("{PATH}?watch=1{query}");
        let answered = async {
            let mut response = get(&shared, &path, "*/*").await;
            let is_unconfirmed = response.headers().contains_key(UNCONFIRMED);
            let event = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
            let event: serde_json::Value = serde_json::from_slice(&event).unwrap();
            let version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap();
            (is_unconfirmed, format!("{} {version}", event["type"].as_str().unwrap()))
        };
        let (answer, ()) = tokio::join!(answered, async { api.change(1005) });
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_a_version_begins_with_the_newest_state() {
        const INITIAL: &str = "&sendInitialEvents=1&resourceVersionMatch=NotOlderThan";
        const NONE: &str = "&sendInitialEvents=0&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
        for (stale_reads, query, version) in [
            (false, "", "ADDED 1005"),
            (false, INITIAL, "ADDED 1005"),
            (false, "&resourceVersion=0", "ADDED 0"),
            (true, "", "ADDED 0"),
            (true, INITIAL, "ADDED 0"),
            // The change was made before the watch began.
            (false, NONE, "BOOKMARK 1005"),
            (true, NONE, "MODIFIED 1005"),
        ] {
            let answer = watch_during_a_change(stale_reads, query).await;
            assert_eq!(answer, (false, version.to_owned()), "{stale_reads} {query}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn says_that_it_could_not_confirm_the_newest_state() {
        let api = Api::new(1, 100);
        let shared =
            api.mirror_with(Access::Loopback, Limits::default(), false, ChangeLogLimits::default(), |own| own).await;
        let unconfirmed = async |query: &str| {
            let response = get(&shared, &format!("{PATH}?watch=1{query}"), "*/*").await;
            assert!(response.status().is_success() && response.headers().contains_key(LAG));
            response.headers().contains_key(UNCONFIRMED)
        };
        assert!(!unconfirmed("").await);
        // The collection does not change, so its watch does not learn of the version.
        api.advance(1005);
        let start = tokio::time::Instant::now();
        assert!(unconfirmed("").await);
        assert_eq!(start.elapsed(), LONG);
        assert!(!unconfirmed("&resourceVersion=0").await);
        let metrics = shared.metrics.text(&shared.resources).unwrap();
        assert!(metrics.contains("listwatch_mirror_unconfirmed_total{resource=\"configmaps\"} 1\n"), "{metrics}");
    }
}
