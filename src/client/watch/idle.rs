//! Decides when a silent watch counts as dead.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::decode::WatchEvent;

/// The shortest timeout of a connection with bookmarks.
const MIN_IDLE: Duration = Duration::from_secs(90);

/// The delay that the server is allowed.
const SLACK: Duration = Duration::from_secs(30);

/// The clock of one connection, which runs while no bytes can be read.
pub(super) struct Idle {
    /// The timeout that the caller set.
    fixed: Option<Duration>,
    /// The timeout for each initial event, until they have ended.
    initial_events: Option<Duration>,
    /// The time at which the server should have ended the watch.
    end: Instant,
    last_bookmark: Option<Instant>,
    /// The longest time between two bookmarks.
    gap: Option<Duration>,
    /// The start of the wait, while the clock runs.
    waiting: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Idle {
    pub(super) fn new(fixed: Option<Duration>, timeout: Duration, gap: Option<Duration>) -> Self {
        let now = Instant::now();
        let timer = Box::pin(sleep_until(now));
        Self { fixed, initial_events: None, end: now + timeout, last_bookmark: None, gap, waiting: None, timer }
    }

    /// From now on only an added object stops the clock; without a timeout, every byte does.
    pub(super) fn expect_initial_events(&mut self, timeout: Option<Duration>) {
        self.initial_events = timeout;
        self.waiting = None;
    }

    pub(super) fn gap(&self) -> Option<Duration> {
        self.gap
    }

    pub(super) fn byte(&mut self) {
        if self.initial_events.is_none() {
            self.waiting = None;
        }
    }

    pub(super) fn event(&mut self, event: &WatchEvent<'_>) {
        match event {
            WatchEvent::Added { .. } => self.waiting = None,
            WatchEvent::Bookmark { .. } => {
                let now = Instant::now();
                if let Some(last) = self.last_bookmark.replace(now) {
                    self.gap = self.gap.max(Some(now - last));
                }
            }
            _ => {}
        }
    }

    /// Polls the clock while no bytes can be read. Ready after the limit, with the time waited.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        let since = self.waiting.unwrap_or_else(Instant::now);
        if self.waiting.replace(since).is_none() {
            let limit = self.limit(since);
            self.timer.as_mut().reset(limit);
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(since.elapsed())
    }

    fn limit(&self, now: Instant) -> Instant {
        let at_the_latest = (self.end + SLACK).max(now + SLACK);
        match (self.initial_events, self.fixed, self.gap) {
            (Some(timeout), ..) | (None, Some(timeout), _) => now + timeout,
            (None, None, Some(gap)) => (now + (gap * 5 / 2).max(MIN_IDLE)).min(at_the_latest),
            (None, None, None) => at_the_latest,
        }
    }
}
