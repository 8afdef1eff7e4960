//! What to do after an error, and the waits between attempts.
//!
//! Read this before a change.
//!
//! - [`classify`] is the only classification. Lists, gets, watches and reflectors map its answer to their next step.
//! - Its match of `ErrorKind` has no `_`: a new kind does not compile until its advice is decided.
//! - [`DecodeError::is_incomplete`](crate::DecodeError::is_incomplete) decides what a truncation is, also for this
//!   file.
//! - An expired version or token comes first, whatever the status code is. No retry of the same request helps.
//! - Only a Status of Kubernetes says that a version has expired. A proxy's error says nothing about the version,
//!   however often it returns.
//! - A TLS error is final until a server was reached. Later it may be the rotation of a certificate.
//! - 401, 403 and 404 may end when a role or a resource is created. So a watch retries them, and a list does not.
//! - A list that the server's request timeout interrupted would be interrupted again. A reflector relists it in pages.
//! - The caller's own error ([`ItemError`](crate::ItemError) of an item) would return for the same item.
//! - [`Tries`] counts the attempts of one request. It never retries after an item, because items would repeat:
//!   `list/pages.rs` checks that first, and compares a repeated page by its checksum.
//! - [`most_fruitless`] exists because some servers end a watch of an expired version without an error.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use super::error::{Error, ErrorKind};
use super::metrics::Totals;
use super::transport::{TransportErrorKind, chain};
use crate::error::DecodeErrorKind;
use crate::wire::BodyFormat;

/// The longest `Retry-After` that is obeyed. client-go obeys each (`rest/with_retry.go`); API servers send seconds, and
/// a proxy may send anything. After a longer one a list or get ends in the error, and a watch or a reflector retries
/// after this time.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// The shortest wait between two attempts. Without it a wait of zero would never grow.
const MIN_DELAY: Duration = Duration::from_millis(10);

/// What to do after an error. It alone decides what lists, gets, watches and reflectors do next.
///
/// | advice | list, get | watch that resumes | reflector |
/// |---|---|---|---|
/// | `Retry` | retried within [`Retry`] | retried | retried |
/// | `RetryAfterRepair` | ends | retried, unless it fails fast | retried, unless it fails fast |
/// | `StartOver` | ends, unless it starts over | starts over before `Synced`, later if the caller chose so | relists |
/// | `Relist` | ends | ends | relists, unless it fails fast |
/// | `GiveUp` | ends | ends | ends before the first sync |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryAdvice {
    /// The same request may succeed soon.
    Retry,
    /// The same request may succeed once a role is granted, the resource is created, or credentials or a proxy are
    /// repaired.
    RetryAfterRepair,
    /// The server has forgotten the resource version or the continue token: only a request without it can succeed.
    StartOver,
    /// The response cannot be used, and the same request may return the same response. A list in another form may not.
    Relist,
    /// The caller has to change something.
    GiveUp,
}

/// Returns what to do after an error. A TLS error is retried if the server `was_reached` before, because a certificate
/// was rotated.
pub(crate) fn classify(error: &Error, was_reached: bool) -> RetryAdvice {
    let of_transport = |kind| match kind {
        TransportErrorKind::Connect | TransportErrorKind::Broken | TransportErrorKind::ReadIdle => RetryAdvice::Retry,
        TransportErrorKind::Tls if was_reached => RetryAdvice::Retry,
        TransportErrorKind::Credentials
        | TransportErrorKind::Redirect
        | TransportErrorKind::Compression
        | TransportErrorKind::Other => RetryAdvice::RetryAfterRepair,
        TransportErrorKind::Setup | TransportErrorKind::Tls | TransportErrorKind::Deadline => RetryAdvice::GiveUp,
    };
    match error.kind() {
        _ if error.is_expired() => RetryAdvice::StartOver,
        ErrorKind::Api { code, retry_after, is_status, .. } => match code {
            408 | 429 | 500..=599 if *retry_after > Some(MAX_RETRY_AFTER) => RetryAdvice::RetryAfterRepair,
            408 | 429 | 500..=599 => RetryAdvice::Retry,
            401 | 403 | 404 => RetryAdvice::RetryAfterRepair,
            410 if !is_status => RetryAdvice::RetryAfterRepair,
            _ => RetryAdvice::GiveUp,
        },
        ErrorKind::Transport(error) => of_transport(error.kind()),
        ErrorKind::Incomplete { request_timeout: Some(_), .. } => RetryAdvice::Relist,
        ErrorKind::Incomplete { cause, .. } => match cause {
            Some(cause) => of_transport(cause.kind()),
            None => RetryAdvice::Retry,
        },
        ErrorKind::Decode(error) if error.is_incomplete() => RetryAdvice::Retry,
        ErrorKind::Decode(error) if matches!(error.kind(), DecodeErrorKind::Item(_)) => RetryAdvice::GiveUp,
        // A body of text is a proxy's page.
        ErrorKind::Redirect { .. } | ErrorKind::UnexpectedBody { format: BodyFormat::Html | BodyFormat::Text, .. } => {
            RetryAdvice::RetryAfterRepair
        }
        ErrorKind::Decode(_)
        | ErrorKind::UnexpectedBody { .. }
        | ErrorKind::OtherKind { .. }
        | ErrorKind::Discovery(_)
        | ErrorKind::PageChanged
        | ErrorKind::SeveralVersions { .. }
        | ErrorKind::RepeatedToken => RetryAdvice::Relist,
        ErrorKind::Params(_) | ErrorKind::NoProgress { .. } => RetryAdvice::GiveUp,
        ErrorKind::Unresolved(_) => RetryAdvice::RetryAfterRepair,
    }
}

/// Returns what to do after an error of one group's discovery document.
///
/// While the server of a group is down, the API server responds with 503 at once (kube-aggregator `handler_proxy.go`),
/// and a retry would delay the other groups. A retry helps if the server asked for it, or the connection broke:
/// client-go retries only these (`rest/with_retry.go`).
pub(super) fn classify_version(error: &Error, was_reached: bool) -> RetryAdvice {
    match error.kind() {
        ErrorKind::Api { retry_after: None, .. } => RetryAdvice::RetryAfterRepair,
        _ => classify(error, was_reached),
    }
}

/// Returns the number of connections from one version after which the version counts as expired, if each of them ends
/// like this one, without an event; `None` if the end is no sign of an expired version, like 429 or a refused
/// connection.
///
/// `at_once` is true if the server accepted the watch and it ended at once. client-go lists again after one such end,
/// and after each error but 429 and refused connections (`tools/cache/reflector.go`, `handleWatch`).
pub(crate) fn most_fruitless(error: Option<&Error>, at_once: bool) -> Option<u32> {
    let breaks = || at_once.then_some(MOST_FAILED);
    match error.map(Error::kind) {
        None => at_once.then_some(MOST_ENDED),
        Some(ErrorKind::Api { code: 500 | 504, is_status: true, .. }) => Some(MOST_FAILED),
        Some(ErrorKind::Transport(error)) if error.kind() == TransportErrorKind::Broken => breaks(),
        Some(ErrorKind::Decode(error)) if error.is_incomplete() => breaks(),
        Some(_) => None,
    }
}

/// The number of watches that the server may end at once before their version counts as expired.
const MOST_ENDED: u32 = 3;

/// The number of watches that may fail before their version counts as expired. With the default backoff, they take a
/// minute or two.
const MOST_FAILED: u32 = 8;

impl Error {
    /// Returns true if the same call may succeed soon: after 408, 429, any 5xx, and a failed, broken or stalled
    /// connection.
    ///
    /// The client has then already retried, within its [`Retry`](super::Retry), unless items were delivered. Returns
    /// false if the server's request timeout interrupted a list: it would interrupt the next list too.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        classify(self, false) == RetryAdvice::Retry
    }
}

/// How often the client retries a request after a [retryable](Error::is_retryable) error.
///
/// A request is retried before its first item. A page that a continue token names is retried after that too: if the
/// delivered items do not arrive again in the same order, the list ends in [`ErrorKind::PageChanged`]. Each page has
/// its own attempts.
///
/// Waits between attempts grow exponentially, with jitter, and are at least the server's `Retry-After`. A `Retry-After`
/// of more than 5 minutes ends a list or get in the error; watches and reflectors then retry after 5 minutes. The
/// attempts themselves do not count: the connect timeout of the transport and
/// [`Client::read_idle_timeout`](super::Client::read_idle_timeout) limit each of them, and
/// [`List::deadline`](super::List::deadline) limits all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    tries: u32,
    total: Duration,
    delay: Duration,
}

impl Retry {
    /// The default of [`tries`](Self::tries).
    pub const DEFAULT_TRIES: u32 = 5;
    /// The default of [`total`](Self::total).
    pub const DEFAULT_TOTAL: Duration = Duration::from_secs(30);
    /// The default of [`delay`](Self::delay).
    pub const DEFAULT_DELAY: Duration = Duration::from_millis(200);

    /// Sends every request once.
    #[must_use]
    pub fn never() -> Self {
        Self::default().tries(1)
    }

    /// Limits the number of attempts, the first one included: [`DEFAULT_TRIES`](Self::DEFAULT_TRIES) unless set.
    #[must_use]
    pub const fn tries(mut self, tries: u32) -> Self {
        self.tries = tries;
        self
    }

    /// Limits the sum of the waits between attempts: [`DEFAULT_TOTAL`](Self::DEFAULT_TOTAL) unless set. Where the next
    /// wait would exceed it, the error is returned at once.
    #[must_use]
    pub const fn total(mut self, total: Duration) -> Self {
        self.total = total;
        self
    }

    /// Sets the wait before the second attempt: [`DEFAULT_DELAY`](Self::DEFAULT_DELAY) unless set, and at least 10 ms.
    /// Each further wait is twice as long. Jitter at most doubles each of them.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Returns unlimited waits, which grow exponentially to `max`. Jitter at most doubles each of them.
    pub(super) fn backoff(self, max: Duration) -> ExponentialBackoff {
        exponential(self.delay.max(MIN_DELAY), max.max(MIN_DELAY))
    }
}

/// Returns waits that grow from `min` to `max`. Jitter at most doubles each of them.
pub(super) fn exponential(min: Duration, max: Duration) -> ExponentialBackoff {
    let builder = ExponentialBuilder::new().with_min_delay(min).with_max_delay(max);
    builder.without_max_times().with_jitter().build()
}

impl Default for Retry {
    fn default() -> Self {
        Self { tries: Self::DEFAULT_TRIES, total: Self::DEFAULT_TOTAL, delay: Self::DEFAULT_DELAY }
    }
}

/// The attempts of one request.
pub(super) struct Tries {
    retry: Retry,
    totals: Arc<Totals>,
    sent: u32,
    waited: Duration,
    backoff: ExponentialBackoff,
}

impl Tries {
    pub(super) fn new(retry: Retry, totals: &Arc<Totals>) -> Self {
        let backoff = retry.backoff(retry.total);
        Self { retry, totals: Arc::clone(totals), sent: 1, waited: Duration::ZERO, backoff }
    }

    /// Returns the wait before the next attempt, or `None` after the last.
    pub(super) fn again(&mut self, error: &Error, advice: RetryAdvice) -> Option<Duration> {
        if advice != RetryAdvice::Retry || self.sent >= self.retry.tries {
            return None;
        }
        let wait = self.backoff.next()?.max(error.retry_after().unwrap_or_default());
        self.waited = self.waited.saturating_add(wait);
        if self.waited > self.retry.total {
            return None;
        }
        self.sent += 1;
        self.totals.retry();
        let seconds = wait.as_secs_f64();
        tracing::warn!(name: "listwatch.retry", error = %chain(error), attempt = self.sent, seconds, "retrying in {seconds:.1} s");
        Some(wait)
    }
}
