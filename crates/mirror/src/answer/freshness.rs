//! Waits until a cache is as new as a read requires.
//!
//! The rules for `resourceVersion` are the API server's; docs/mirror.md has them in a table.
//!
//! # Before you change this file
//!
//! - A cache learns versions from events and bookmarks only. The API server's version grows with writes to any
//!   resource. So the cache of a quiet collection is mostly older than the newest version, although it lacks nothing.
//!   `resource/confirmations.rs` requests bookmarks for it while reads wait.
//! - The newest version comes from a request that starts after the read has arrived. Reads share the next request,
//!   never the open one, whose version may be older than the read (`resource/current_version.rs`).
//! - A bookmark takes up to two seconds. So a read that costs the API server little is forwarded at once.
//! - A read waits [`BLOCK_TIMEOUT`] for a version that the API server does not have, and then gets its 504. Until
//!   then, the API server could not answer either.
//! - [`FreshnessGate::wait_for_version`] waits before it requests the newest version. A reader that comes from another
//!   replica may be slightly ahead, and then costs no request.
//! - A failed request of the version is not retried: the read is forwarded, and the reader gets the API server's error.
//! - Text that is no version, and versions without an order, are forwarded. The API server reads or refuses them.
//! - A watch with the initial state is never forwarded. The first one of client-go has no version, and each informer
//!   would keep its watch at the API server for life. It gets a 504 without a cause, after which client-go lists.
//!
//! # What was tried and left out
//!
//! - A watch without a version at the version of the cache. An informer that restarts could go back in time.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use listwatch::client::{Client, Retry, Transport};
use listwatch::compare_resource_versions;
use tokio::time::{Instant, timeout, timeout_at};

use crate::metrics::MirrorMetrics;
use crate::request::ListOptions;
use crate::resource::Mirrored;
use crate::response::{ForwardReason, Refusal, status};

/// How long a read waits for the watch of the cache to deliver a version that the API server has.
const DELIVERY_TIME: Duration = Duration::from_millis(100);

/// A cache that has learned nothing for this long is unlikely to receive a change in a moment. It needs a bookmark.
const QUIET: Duration = Duration::from_millis(500);

/// How long a read waits for a version in all. As in the API server (`blockTimeout` in apiserver
/// `cacher/watch_cache.go`).
const BLOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Who answers a GET or a list if the cache is older than its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfOlder {
    /// The API server at once, because the read costs it little.
    Forward,
    /// The cache, once it has reached the version. If it does not in time, the API server.
    Wait,
}

/// Makes reads wait until the cache is new enough.
pub(super) struct FreshnessGate {
    /// Requests the versions of the API server, without retries.
    client: Client,
    /// True if reads without a version are answered at the version of the cache.
    stale_reads: bool,
    metrics: MirrorMetrics,
}

impl FreshnessGate {
    pub(super) fn new(transport: Arc<dyn Transport>, stale_reads: bool, metrics: MirrorMetrics) -> Self {
        Self { client: Client::new(transport).retry(Retry::never()), stale_reads, metrics }
    }

    /// Returns true if a read of this version never waits.
    pub(super) fn needs_no_wait(&self, resource_version: &str) -> bool {
        resource_version == "0" || resource_version.is_empty() && self.stale_reads
    }

    /// Waits until the cache is new enough for a GET or a list of this version: `""` is the newest, `"0"` any.
    pub(super) async fn wait_for_read(
        &self,
        mirrored: &Mirrored,
        resource_version: &str,
        if_older: IfOlder,
    ) -> Result<(), Refusal> {
        if !resource_version.is_empty() {
            return if resource_version == "0" {
                Ok(())
            } else {
                self.wait_for_version(mirrored, resource_version, if_older).await
            };
        }
        let unconfirmed = Err(Refusal::Forward(ForwardReason::Unconfirmed));
        let (answer, waited) = match if_older {
            _ if self.stale_reads => ("memory", Ok(())),
            IfOlder::Forward => ("forwarded_small", Err(Refusal::Forward(ForwardReason::Small))),
            IfOlder::Wait if mirrored.confirmations.has_failed() => ("forwarded", unconfirmed),
            IfOlder::Wait if self.reach_newest(mirrored).await => ("memory", Ok(())),
            IfOlder::Wait => ("forwarded", unconfirmed),
        };
        self.metrics.count_default_read(&mirrored.resource, answer);
        waited
    }

    /// Waits until the cache is new enough for a watch. Without a version, the watch begins with the newest state as a
    /// list does (`getWatchCacheResourceVersion` in apiserver `pkg/storage/cacher/cacher.go`).
    pub(super) async fn wait_for_watch(&self, mirrored: &Mirrored, options: &ListOptions) -> Result<(), Refusal> {
        match &*options.resource_version {
            "" => {
                let is_newest = self.stale_reads || self.reach_newest(mirrored).await;
                self.metrics.count_default_read(&mirrored.resource, if is_newest { "memory" } else { "timeout" });
                if is_newest { Ok(()) } else { Err(not_confirmed()) }
            }
            "0" => Ok(()),
            version if options.send_initial_events == Some(true) => {
                match self.wait_for_version(mirrored, version, IfOlder::Wait).await {
                    Err(Refusal::Forward(_)) if is_version(version) => Err(not_confirmed()),
                    waited => waited,
                }
            }
            version if is_version(version) => Ok(()),
            _ => Err(Refusal::Forward(ForwardReason::Version)),
        }
    }

    /// Waits until the cache has a version that the reader names. It also leaves to the API server a version that has
    /// no order, which it answers with its own error.
    async fn wait_for_version(
        &self,
        mirrored: &Mirrored,
        resource_version: &str,
        if_older: IfOlder,
    ) -> Result<(), Refusal> {
        if !is_version(resource_version) {
            return Err(Refusal::Forward(ForwardReason::Version));
        }
        if has_version(mirrored, resource_version).await {
            return Ok(());
        }
        let newest = self.request_version(mirrored).await;
        let newest = newest.ok_or(Refusal::Forward(ForwardReason::Unconfirmed))?;
        let is_known = compare_resource_versions(resource_version, &newest).is_some_and(Ordering::is_le);
        if is_known && if_older == IfOlder::Forward {
            return Err(Refusal::Forward(ForwardReason::Version));
        }
        if is_known {
            mirrored.confirmations.request(&self.client);
        }
        let reached = timeout(BLOCK_TIMEOUT, mirrored.cache.wait_for_resource_version(resource_version)).await;
        match reached {
            Ok(Ok(())) => Ok(()),
            _ if is_known => Err(Refusal::Forward(ForwardReason::Unconfirmed)),
            _ => Err(status::version_too_large(resource_version, &mirrored.cache.resource_version()).into()),
        }
    }

    /// Waits until the cache has the version that the API server has now. Returns false if it does not in time.
    async fn reach_newest(&self, mirrored: &Mirrored) -> bool {
        let reached = timeout_at(Instant::now() + BLOCK_TIMEOUT, async {
            // The request of the version and the wait for a change take up to 0.2 s.
            if mirrored.status().lag.is_none_or(|lag| lag > QUIET) {
                mirrored.confirmations.request(&self.client);
            }
            let newest = self.request_version(mirrored).await?;
            if !has_version(mirrored, &newest).await {
                mirrored.confirmations.request(&self.client);
                mirrored.cache.wait_for_resource_version(&newest).await.ok()?;
            }
            Some(())
        });
        let is_newest = matches!(reached.await, Ok(Some(())));
        mirrored.confirmations.record_result(is_newest);
        is_newest
    }

    /// Requests the version of the API server; `None` if it does not send it.
    async fn request_version(&self, mirrored: &Mirrored) -> Option<String> {
        mirrored.current_version.request_version(&self.client).await.ok()
    }
}

/// Returns the 504 of a watch with the initial state. It has no cause: with `ResourceVersionTooLarge`, client-go would
/// send the watch again, and now it lists.
fn not_confirmed() -> Refusal {
    status::timeout("the mirror could not confirm in time that it has the newest state").into()
}

/// Waits for a short time until the cache has the version.
async fn has_version(mirrored: &Mirrored, resource_version: &str) -> bool {
    matches!(timeout(DELIVERY_TIME, mirrored.cache.wait_for_resource_version(resource_version)).await, Ok(Ok(())))
}

/// Returns true if the text is a version that compares with others. An API server refuses versions over a u64.
fn is_version(text: &str) -> bool {
    compare_resource_versions(text, "1").is_some() && text.parse::<u64>().is_ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use http_body_util::BodyExt as _;
    use listwatch_cache::ChangeLogLimits;

    use super::*;
    use crate::metrics::ShownResources;
    use crate::settings::{Limits, MirrorSettings};
    use crate::testing::{FakeApiServer, LAG, Pipeline, RequestedBookmark, get};

    const PATH: &str = "/api/v1/configmaps";

    /// A write to another resource advances the version of the API server, and the cache does not learn of it before a
    /// bookmark.
    #[tokio::test(start_paused = true)]
    async fn forwards_reads_at_versions_that_only_the_api_server_has() {
        let api = FakeApiServer::new(2, 100);
        let mirror = api.mirror(Limits::default()).await;
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
                let response = get(&mirror, &format!("{PATH}?resourceVersion={version}{rest}"), "*/*").await;
                let found = (response.status().as_u16(), response.headers().contains_key(LAG));
                assert_eq!(found, expected, "{version}{rest}");
            }
        }
        let object = "/api/v1/namespaces/web/configmaps/000000?resourceVersion=";
        for (version, is_from_memory) in [("1000", true), ("1005", false), ("x", false)] {
            let response = get(&mirror, &format!("{object}{version}"), "*/*").await;
            assert_eq!(response.headers().contains_key(LAG), is_from_memory, "{version}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_list_waits_for_its_version() {
        let api = FakeApiServer::new(2, 100);
        let mirror = api.mirror(Limits::default()).await;
        api.advance(1005);
        for (version, requested, expected) in [
            ("1000", RequestedBookmark::Nothing, (200, true)),
            ("1003", RequestedBookmark::Nothing, (504, false)),
            ("1003", RequestedBookmark::Newest, (200, true)),
            ("1006", RequestedBookmark::Newest, (200, true)),
            ("x", RequestedBookmark::Newest, (200, false)),
        ] {
            api.answer_requested(requested);
            let query = "watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents";
            let response = get(&mirror, &format!("{PATH}?{query}=1&resourceVersion={version}"), "*/*").await;
            let found = (response.status().as_u16(), response.headers().contains_key(LAG));
            assert_eq!(found, expected, "{version} {requested:?}");
            if version == "1006" {
                let error = response.into_body().collect().await.unwrap().to_bytes();
                let error: serde_json::Value = serde_json::from_slice(&error).unwrap();
                assert_eq!(error["type"], "ERROR");
                assert_eq!(error["object"]["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
            }
            // Without initial events, a watch begins at once, and skips the changes up to its version.
            let watch = format!("{PATH}?{query}=0&resourceVersion={version}");
            let response = get(&mirror, &watch, "*/*").now_or_never().unwrap();
            assert_eq!(response.headers().contains_key(LAG), version != "x", "{version}");
        }
    }

    /// Sends a watch, and a change after the mirror has requested the version of the API server.
    async fn watch_during_a_change(stale_reads: bool, query: &str) -> String {
        let api = FakeApiServer::new(1, 100);
        let settings = MirrorSettings { stale_reads, ..MirrorSettings::default() };
        let mirror = api.mirror_with(settings, ChangeLogLimits::default(), |own| own).await;
        api.advance(1005);
        let path = format!("{PATH}?watch=1{query}");
        let answered = async {
            let mut response = get(&mirror, &path, "*/*").await;
            let event = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
            let event: serde_json::Value = serde_json::from_slice(&event).unwrap();
            let version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap();
            format!("{} {version}", event["type"].as_str().unwrap())
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
            assert_eq!(answer, version, "{stale_reads} {query}");
        }
    }

    /// Returns a mirror without `--stale-reads`, whose API server is at a version that the cache does not learn from
    /// its watch.
    async fn quiet_mirror(objects: usize, requested: RequestedBookmark) -> (Arc<FakeApiServer>, Arc<Pipeline>) {
        let api = FakeApiServer::new(objects, 10_000);
        let mirror = api.mirror_with(MirrorSettings::default(), ChangeLogLimits::default(), |own| own).await;
        api.advance(1005);
        api.answer_requested(requested);
        (api, mirror)
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_a_version_is_confirmed_or_ends_in_a_timeout() {
        for (requested, is_confirmed) in [
            (RequestedBookmark::Newest, true),
            (RequestedBookmark::Nothing, false),
            // Another API server, which lags.
            (RequestedBookmark::Version(1004), false),
            // The watch of the cache stalls.
            (RequestedBookmark::AfterChange(1003), false),
        ] {
            let (api, mirror) = quiet_mirror(1, requested).await;
            let start = Instant::now();
            for query in ["", "&sendInitialEvents=1&resourceVersionMatch=NotOlderThan"] {
                let response = get(&mirror, &format!("{PATH}?watch=1&allowWatchBookmarks=1{query}"), "*/*").await;
                assert_eq!(response.headers().contains_key(LAG), is_confirmed, "{requested:?}");
                if is_confirmed {
                    assert!(start.elapsed() < Duration::from_secs(2));
                    continue;
                }
                let error = response.into_body().collect().await.unwrap().to_bytes();
                let error: serde_json::Value = serde_json::from_slice(&error).unwrap();
                assert_eq!((&error["code"], &error["reason"]), (&504.into(), &"Timeout".into()));
                assert!(error["details"]["causes"].is_null(), "client-go lists: {error}");
            }
            assert!(is_confirmed || start.elapsed() == 2 * BLOCK_TIMEOUT, "{:?}", start.elapsed());
            assert_eq!(api.asked("watch=1"), 1 + api.requested_bookmarks(), "no watch is forwarded");
            let response = get(&mirror, &format!("{PATH}?watch=1&resourceVersion=0"), "*/*").await;
            assert!(response.headers().contains_key(LAG));
        }
    }

    /// Returns whether a read is answered from memory, and after how many milliseconds.
    async fn read(mirror: &Pipeline, query: &str) -> (bool, u128) {
        let start = Instant::now();
        let response = get(mirror, &format!("/api/v1/{query}"), "*/*").await;
        assert_eq!(response.status(), 200, "{query}");
        (response.headers().contains_key(LAG), start.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn large_lists_are_confirmed_and_small_reads_forwarded() {
        for (requested, query, expected) in [
            (RequestedBookmark::Newest, "configmaps", (true, 1100)),
            (RequestedBookmark::Newest, "configmaps?limit=5", (true, 1100)),
            (RequestedBookmark::Newest, "configmaps?resourceVersion=1003", (true, 1100)),
            (RequestedBookmark::Newest, "namespaces/web/configmaps?labelSelector=!x", (true, 1100)),
            (RequestedBookmark::Newest, "namespaces/other/configmaps", (false, 0)),
            (RequestedBookmark::Newest, "configmaps?fieldSelector=metadata.namespace%3Dother", (false, 0)),
            (RequestedBookmark::Newest, "namespaces/web/configmaps/000003", (false, 0)),
            (RequestedBookmark::Newest, "namespaces/web/configmaps?fieldSelector=metadata.name%3D000003", (false, 0)),
            (RequestedBookmark::Nothing, "configmaps", (false, 3000)),
            (RequestedBookmark::Version(1004), "configmaps", (false, 3000)),
            (RequestedBookmark::AfterChange(1003), "configmaps", (false, 3000)),
        ] {
            let (_api, mirror) = quiet_mirror(100, requested).await;
            assert_eq!(read(&mirror, query).await, expected, "{requested:?} {query}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn readers_share_confirmations_and_a_failure() {
        let (api, mirror) = quiet_mirror(100, RequestedBookmark::Newest).await;
        let readers: Vec<_> = (0..50).map(|_| read(&mirror, "configmaps")).collect();
        assert_eq!(futures::future::join_all(readers).await, [(true, 1100); 50]);
        assert_eq!(api.requested_bookmarks(), 2);
        // The collection has not changed, and its cache has the version of the server.
        assert_eq!(read(&mirror, "configmaps").await, (true, 0));
        // The watches go on, so that a bookmark comes sooner, and then end.
        api.advance(1010);
        assert_eq!(read(&mirror, "configmaps").await, (true, 900));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let opened = api.requested_bookmarks();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(api.requested_bookmarks(), opened);

        api.answer_requested(RequestedBookmark::Nothing);
        api.advance(1020);
        for waited in [3000, 0, 0] {
            assert_eq!(read(&mirror, "configmaps").await, (false, waited));
        }
        api.answer_requested(RequestedBookmark::Newest);
        tokio::time::sleep(Duration::from_secs(60)).await;
        api.advance(1030);
        // The cache has been quiet, so the first watch opens at once.
        assert_eq!(read(&mirror, "configmaps").await, (true, 1000));
        assert_eq!(read(&mirror, "namespaces/web/configmaps/000003").await, (false, 0));
        let metrics =
            mirror.metrics.encode_text(ShownResources::of_one(mirror.first_resource().metrics()), None).unwrap();
        for (answer, count) in [("memory", 53), ("forwarded", 3), ("forwarded_small", 1)] {
            let sample = format!(
                "listwatch_mirror_default_reads_total{{resource=\"configmaps\",answer=\"{answer}\"}} {count}\n"
            );
            assert!(metrics.contains(&sample), "{sample} {metrics}");
        }
    }
}
