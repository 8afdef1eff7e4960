//! The query string of a request, and the values that lists and watches share: timeouts and versions.

use std::fmt::Write;
use std::time::Duration;

use crate::client::resource::encode;
use crate::error::InvalidInput;
use crate::object::version::is_resumable;

/// kube-apiserver `--request-timeout`.
pub(in crate::client) const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Query(pub(super) String);

impl Query {
    pub(super) fn add(&mut self, key: &str, value: &str) {
        let and = if self.0.is_empty() { "" } else { "&" };
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{and}{key}={}", encode(value));
    }
}

/// The largest timeout, because the server parses it as Go's `time.Duration`.
pub(super) const MAX_TIMEOUT_SECONDS: u64 = 9_223_372_036;

/// Checks a timeout. The server takes 0 for its own timeout and returns 400 for one that is too long, and
/// `timeoutSeconds` cannot contain fractions.
pub(super) fn check_timeout(timeout: Option<Duration>) -> Result<(), InvalidInput> {
    match timeout {
        Some(timeout) if timeout.subsec_nanos() != 0 || !(1..=MAX_TIMEOUT_SECONDS).contains(&timeout.as_secs()) => {
            let reason = format!("timeout {timeout:?}: it must be whole seconds, from 1 to {MAX_TIMEOUT_SECONDS}");
            Err(InvalidInput::new(reason, ""))
        }
        _ => Ok(()),
    }
}

/// How new a list must be, which also decides whether etcd or the server's watch cache serves it.
///
/// | version | before 1.31 | 1.31 to 1.33 | since 1.34 |
/// |---|---|---|---|
/// | `MostRecent` | etcd | watch cache, caught up with etcd | watch cache, caught up with etcd |
/// | `Any` | watch cache, of any age | watch cache, of any age | watch cache, of any age |
/// | `AtLeast` | watch cache at that version; etcd with a page size | watch cache at that version | watch cache at that version |
/// | `Exact`, and all pages but the first | etcd | etcd | snapshot in the watch cache, else etcd |
///
/// For a list from etcd, the objects are read and decoded for this one request, which costs etcd and the server memory
/// and time in proportion to the collection. A list from the watch cache costs the server only the encoding.
///
/// - Catching up with etcd takes up to 3 s. After that, etcd serves the list, as it always does before etcd 3.4.31 and
///   3.5.13.
/// - `AtLeast("0")` is the same as `Any`.
/// - A resource without a watch cache always comes from etcd. These are events by default (`--watch-cache-sizes` of 0),
///   and all resources with `--watch-cache=false`.
/// - While a cache is being filled (1.31 and later), lists with a page size and no selector come from etcd, and other
///   lists get 429.
///
/// Source: apiserver `cacher/delegator` (`ShouldDelegateList`) with default feature gates, `ConsistentListFromCache`
/// from 1.31 and `ListFromCacheSnapshot` from 1.34.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ResourceVersion {
    /// Everything that was written before the request (`resourceVersion` is left out).
    ///
    /// This is the default, because any other list may lack objects that the caller has just written (KEP-2340).
    #[default]
    MostRecent,
    /// Whatever the watch cache contains, of any age (`resourceVersion=0`).
    ///
    /// This is the cheapest list, but it may be older than an earlier list from another server, and page sizes are
    /// ignored.
    Any,
    /// This version or a newer one (`resourceVersionMatch=NotOlderThan`).
    ///
    /// If the server does not reach the version within 3 s, it returns 504 with the cause `ResourceVersionTooLarge`.
    AtLeast(String),
    /// Exactly this version (`resourceVersionMatch=Exact`). If etcd has compacted it, the server returns 410.
    Exact(String),
}

impl ResourceVersion {
    pub(in crate::client) fn is_any(&self) -> bool {
        match self {
            Self::Any => true,
            Self::AtLeast(version) => version == "0",
            Self::MostRecent | Self::Exact(_) => false,
        }
    }
}

/// Refuses only an empty version, because versions are opaque (KEP-5504) and a server may send any text.
pub(in crate::client) fn check_version(version: &str) -> Result<(), InvalidInput> {
    if version.is_empty() {
        return Err(InvalidInput::of("resource version", version, "it must not be empty"));
    }
    Ok(())
}

/// A watch from version 0 would begin with the objects of any version, as if they had been added.
pub(super) fn check_watched(version: &str) -> Result<(), InvalidInput> {
    check_version(version)?;
    if !is_resumable(version) {
        let reason = "a watch cannot resume from version 0: watch from now, or with the initial state";
        return Err(InvalidInput::new(reason, version));
    }
    Ok(())
}

/// Refuses version 0, which the server takes for "no version" and answers with 422.
pub(super) fn check_exact(version: &str) -> Result<(), InvalidInput> {
    check_version(version)?;
    if !is_resumable(version) {
        let reason = r#"exact version 0: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
        return Err(InvalidInput::new(reason, version));
    }
    Ok(())
}
