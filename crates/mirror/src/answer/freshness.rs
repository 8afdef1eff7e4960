//! Waits until a cache is as new as a read requires.
//!
//! The rules for `resourceVersion` are the API server's; docs/mirror.md has them in two tables.
//!
//! # Before you change this file
//!
//! - A cache learns versions from events and bookmarks only. The API server's version grows with writes to any
//!   resource. So the cache of a quiet collection is mostly older than the newest version, although it lacks nothing.
//! - The newest version comes from a request that starts after the read has arrived. Reads share the next request,
//!   never the open one, whose version may be older than the read (`resource/current_version.rs`).
//! - A read waits [`FORWARD_AFTER`] for a version that the API server has. A bookmark may take a minute, so forwarding
//!   is faster.
//! - A read waits [`BLOCK_TIMEOUT`] for a version that the API server does not have, and then gets its 504. Until
//!   then, the API server could not answer either.
//! - [`FreshnessGate::wait_for_version`] waits before it requests the newest version. A reader that comes from another
//!   replica may be slightly ahead, and then costs no request.
//! - A failed request of the version is not retried: the read is forwarded, and the reader gets the API server's error.
//! - Text that is no version, and versions without an order, are forwarded. The API server reads or refuses them.
//!
//! # What was tried and left out
//!
//! - A watch without a version at the version of the cache. An informer that restarts could go back in time.
//! - Forwarding such a watch. Most watches of a quiet collection would be forwarded, and the mirror would save nothing.
//!   It waits for [`BLOCK_TIMEOUT`], and then begins [`Freshness::Unconfirmed`].

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use listwatch::client::{Client, Retry, Transport};
use listwatch::compare_resource_versions;
use tokio::time::timeout;

use crate::metrics::MirrorMetrics;
use crate::request::ListOptions;
use crate::resource::Mirrored;
use crate::response::{Refusal, status};

/// How long a read waits for a version that the API server has before it is forwarded.
const FORWARD_AFTER: Duration = Duration::from_millis(100);

/// How long a read waits for a version that the API server does not have, and a watch for the newest version. As in the
/// API server (`blockTimeout` in apiserver `cacher/watch_cache.go`).
const BLOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether an answer is as new as its read requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Yes, or the mirror answers at the version of the cache anyway, by `--stale-reads`.
    Confirmed,
    /// The cache may lack changes that the API server had before the read.
    Unconfirmed,
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

    /// Waits until the cache is new enough for a GET or a list of this version: `""` is the newest, `"0"` any.
    pub(super) async fn wait_for_read(&self, mirrored: &Mirrored, resource_version: &str) -> Result<(), Refusal> {
        match resource_version {
            "0" => Ok(()),
            "" if self.stale_reads => Ok(()),
            "" => {
                let newest = self.request_version(mirrored).await?;
                if has_version(mirrored, &newest, FORWARD_AFTER).await { Ok(()) } else { Err(Refusal::Forward) }
            }
            version => self.wait_for_version(mirrored, version).await,
        }
    }

    /// Waits until the cache is new enough for a watch. Without a version, the watch begins with the newest state as a
    /// list does (`getWatchCacheResourceVersion` in apiserver `pkg/storage/cacher/cacher.go`).
    ///
    /// The mirror does not forward a watch without a version: it would forward most watches of a collection that does
    /// not change, because its cache learns the newest version only from the next bookmark.
    pub(super) async fn wait_for_watch(
        &self,
        mirrored: &Mirrored,
        options: &ListOptions,
    ) -> Result<Freshness, Refusal> {
        match &*options.resource_version {
            "" if !self.stale_reads => {
                let newest = async {
                    let newest = mirrored.current_version.request_version(&self.client).await.ok()?;
                    mirrored.cache.wait_for_resource_version(&newest).await.ok()
                };
                if let Ok(Some(())) = timeout(BLOCK_TIMEOUT, newest).await {
                    return Ok(Freshness::Confirmed);
                }
                self.metrics.count_unconfirmed(&mirrored.resource);
                Ok(Freshness::Unconfirmed)
            }
            "" | "0" => Ok(Freshness::Confirmed),
            version if options.send_initial_events == Some(true) => {
                self.wait_for_version(mirrored, version).await.map(|()| Freshness::Confirmed)
            }
            version if is_version(version) => Ok(Freshness::Confirmed),
            _ => Err(Refusal::Forward),
        }
    }

    /// Waits until the cache has a version that the reader names. If the API server has it already, and the cache
    /// learns it only from the next bookmark, the API server answers. It also answers a version that has no order, with
    /// its own error.
    pub(super) async fn wait_for_version(&self, mirrored: &Mirrored, resource_version: &str) -> Result<(), Refusal> {
        if !is_version(resource_version) {
            return Err(Refusal::Forward);
        }
        if has_version(mirrored, resource_version, FORWARD_AFTER).await {
            return Ok(());
        }
        let newest = self.request_version(mirrored).await?;
        if compare_resource_versions(resource_version, &newest).is_some_and(Ordering::is_le) {
            return Err(Refusal::Forward);
        }
        if has_version(mirrored, resource_version, BLOCK_TIMEOUT).await {
            return Ok(());
        }
        Err(status::version_too_large(resource_version, &mirrored.cache.resource_version()).into())
    }

    /// Requests the version of the API server. If it does not send it, the read is forwarded, and gets its error.
    async fn request_version(&self, mirrored: &Mirrored) -> Result<String, Refusal> {
        mirrored.current_version.request_version(&self.client).await.map_err(|_| Refusal::Forward)
    }
}

/// Waits for this time until the cache has the version.
async fn has_version(mirrored: &Mirrored, resource_version: &str, time: Duration) -> bool {
    matches!(timeout(time, mirrored.cache.wait_for_resource_version(resource_version)).await, Ok(Ok(())))
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
    use crate::settings::{Limits, MirrorSettings};
    use crate::testing::{FakeApiServer, LAG, UNCONFIRMED, get};

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
        for (version, is_from_memory) in [("1000", true), ("1003", false), ("1006", true), ("x", false)] {
            let query = "watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents";
            let response = get(&mirror, &format!("{PATH}?{query}=1&resourceVersion={version}"), "*/*").await;
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
            let response = get(&mirror, &watch, "*/*").now_or_never().unwrap();
            assert_eq!(response.headers().contains_key(LAG), version != "x", "{version}");
        }
    }

    /// Sends a watch, and a change after the mirror has requested the version of the API server.
    async fn watch_during_a_change(stale_reads: bool, query: &str) -> (bool, String) {
        let api = FakeApiServer::new(1, 100);
        let settings = MirrorSettings { stale_reads, ..MirrorSettings::default() };
        let mirror = api.mirror_with(settings, ChangeLogLimits::default(), |own| own).await;
        api.advance(1005);
        let path = format!("{PATH}?watch=1{query}");
        let answered = async {
            let mut response = get(&mirror, &path, "*/*").await;
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
        let api = FakeApiServer::new(1, 100);
        let mirror = api.mirror_with(MirrorSettings::default(), ChangeLogLimits::default(), |own| own).await;
        let unconfirmed = async |query: &str| {
            let response = get(&mirror, &format!("{PATH}?watch=1{query}"), "*/*").await;
            assert!(response.status().is_success() && response.headers().contains_key(LAG));
            response.headers().contains_key(UNCONFIRMED)
        };
        assert!(!unconfirmed("").await);
        // The collection does not change, so its watch does not learn of the version.
        api.advance(1005);
        let start = tokio::time::Instant::now();
        assert!(unconfirmed("").await);
        assert_eq!(start.elapsed(), BLOCK_TIMEOUT);
        assert!(!unconfirmed("&resourceVersion=0").await);
        let metrics = mirror.metrics.encode_text([mirror.first_resource().metrics()], None).unwrap();
        assert!(metrics.contains("listwatch_mirror_unconfirmed_total{resource=\"configmaps\"} 1\n"), "{metrics}");
    }
}
