//! When a request is sent again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use super::error::Error;

/// How often a request is sent again, before its first item, on errors that [may pass](Error::is_retryable).
///
/// Every page has tries of its own. Between two of them is a random time that grows exponentially, or what the server
/// asks for, whichever is longer.
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

    /// Every request is sent once.
    #[must_use]
    pub fn never() -> Self {
        Self::default().tries(1)
    }

    /// At most so many requests, the first one included: [`DEFAULT_TRIES`](Self::DEFAULT_TRIES) unless set.
    #[must_use]
    pub const fn tries(mut self, tries: u32) -> Self {
        self.tries = tries;
        self
    }

    /// None is sent later than this after the first: [`DEFAULT_TOTAL`](Self::DEFAULT_TOTAL) unless set. Where a server asks
    /// for more patience, its error is returned at once.
    #[must_use]
    pub const fn total(mut self, total: Duration) -> Self {
        self.total = total;
        self
    }

    /// The time before the second, doubled for each further one, each time with up to as much again at random:
    /// [`DEFAULT_DELAY`](Self::DEFAULT_DELAY) unless set.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The times between tries without end, each of which grows to this, with up to as much again at random.
    pub(super) fn backoff(self, max: Duration) -> ExponentialBackoff {
        let builder = ExponentialBuilder::new().with_min_delay(self.delay).with_max_delay(max);
        builder.without_max_times().with_jitter().build()
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { tries: Self::DEFAULT_TRIES, total: Self::DEFAULT_TOTAL, delay: Self::DEFAULT_DELAY }
    }
}

/// The tries of one request.
pub(super) struct Tries {
    retry: Retry,
    started: Instant,
    sent: u32,
    backoff: ExponentialBackoff,
    /// Whether a 401 was answered with fresh credentials already.
    renewed: bool,
}

impl Tries {
    pub(super) fn new(retry: Retry) -> Self {
        let backoff = retry.backoff(retry.total);
        Self { retry, started: Instant::now(), sent: 1, backoff, renewed: false }
    }

    /// After what time to send it again, if at all.
    pub(super) fn again(&mut self, error: &Error, renews_credentials: bool) -> Option<Duration> {
        let wait = if error.is_unauthorized() && renews_credentials && !self.renewed {
            self.renewed = true;
            Duration::ZERO
        } else {
            if !error.is_retryable() || self.sent >= self.retry.tries {
                return None;
            }
            self.backoff.next()?.max(error.retry_after().unwrap_or_default())
        };
        if self.started.elapsed() + wait > self.retry.total {
            return None;
        }
        self.sent += 1;
        tracing::warn!(%error, attempt = self.sent, wait_ms = wait.as_secs_f64() * 1000.0, "asking again");
        Some(wait)
    }
}
