//! When a watch that has gone quiet is given up.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::decode::WatchEvent;

/// No connection with bookmarks is given up sooner.
const MIN_IDLE: Duration = Duration::from_secs(90);

/// What the server may be late.
const SLACK: Duration = Duration::from_secs(30);

/// The clock of one connection, which runs while nothing is there to be read.
pub(super) struct Idle {
    /// The caller's choice.
    fixed: Option<Duration>,
    /// How long each initial event is waited for, while there are to be some.
    initial_events: Option<Duration>,
    /// When the server should have ended the watch itself.
    end: Instant,
    last_bookmark: Option<Instant>,
    /// Between two bookmarks, the longest.
    gap: Option<Duration>,
    /// Since the last thing that counts, if it runs.
    waiting: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Idle {
    pub(super) fn new(fixed: Option<Duration>, timeout: Duration, gap: Option<Duration>) -> Self {
        let now = Instant::now();
        let timer = Box::pin(sleep_until(now));
        Self { fixed, initial_events: None, end: now + timeout, last_bookmark: None, gap, waiting: None, timer }
    }

    /// From now on, only an object that is added counts; or, without a timeout, every byte.
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

    /// Nothing is there to be read. Ready when that has been so for too long: with how long.
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
