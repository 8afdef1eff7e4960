//! How often requests are retried, and the waits between attempts.
//!
//! [`Tries`] counts the attempts of one request. A request is never retried after an item, because items would repeat:
//! `list/pages.rs` checks this first, and compares a repeated page by its checksum.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use super::classify::RetryAdvice;
use super::error::Error;
use super::metrics::Totals;
use super::transport::chain;

/// The shortest wait between two attempts, because a wait of zero would never grow.
const MIN_DELAY: Duration = Duration::from_millis(10);

/// How often the client retries a request after a [retryable](Error::is_retryable) error.
///
/// A request is retried only before its first item. A page that a continue token names is also retried later, and if
/// the delivered items do not arrive again in the same order, the list ends in
/// [`ErrorKind::PageChanged`](super::ErrorKind::PageChanged). Each page has its own attempts.
///
/// Waits between attempts grow exponentially, with jitter, and last at least as long as the server's `Retry-After`. If
/// that exceeds 5 minutes, a list or get ends in the error, while watches and reflectors retry after 5 minutes. The
/// time of the attempts themselves does not count: the connect timeout of the transport and
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

    /// Sends every request only once.
    #[must_use]
    pub fn never() -> Self {
        Self::default().tries(1)
    }

    /// Limits the number of attempts, including the first. The default is [`DEFAULT_TRIES`](Self::DEFAULT_TRIES).
    #[must_use]
    pub const fn tries(mut self, tries: u32) -> Self {
        self.tries = tries;
        self
    }

    /// Limits the sum of the waits between attempts. The default is [`DEFAULT_TOTAL`](Self::DEFAULT_TOTAL).
    ///
    /// If the next wait would exceed the limit, the error is returned at once.
    #[must_use]
    pub const fn total(mut self, total: Duration) -> Self {
        self.total = total;
        self
    }

    /// Sets the wait before the second attempt, at least 10 ms. The default is [`DEFAULT_DELAY`](Self::DEFAULT_DELAY).
    ///
    /// Each further wait is twice as long, and jitter at most doubles it.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Returns an unlimited number of waits, which grow exponentially to `max`. Jitter at most doubles each of them.
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
