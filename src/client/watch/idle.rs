//! Decides when a silent watch counts as dead.
//!
//! The clock runs while the reader waits for bytes. A slow reader may poll long after bytes have arrived and take its
//! time over them, which is not the server's silence. The clock therefore notes when bytes woke the reader, and leaves
//! out the time until the reader polls.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::client::body::idle_error;
use crate::client::transport::{TransportError, TransportErrorKind};
use crate::decode::WatchEventRef;

/// The shortest timeout of a connection with bookmarks, and the time for the rest of a frame that has begun.
const MIN_IDLE: Duration = Duration::from_secs(90);

/// How late the server may be.
const SLACK: Duration = Duration::from_secs(30);

/// Longer than any connection.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 86400);

/// How many bytes of initial events earn the server another timeout. A server that sends less cannot keep deferring the
/// deadline: with the default timeout it must send 35 KB/s on average.
const PROGRESS: u64 = 1 << 20;

/// The clock of a connection, which runs while no bytes can be read.
pub(super) struct Idle {
    /// The timeout that the caller set.
    fixed: Option<Duration>,
    /// The deadline of the initial events, until they have ended.
    initial: Option<Initial>,
    /// When the server should have ended the watch.
    end: Instant,
    /// When the last bookmark arrived, at the latest.
    last_bookmark: Option<Instant>,
    /// The longest time between two bookmarks.
    gap: Option<Duration>,
    /// When the wait began, while the clock runs, and when it ends. Both are shifted by the reader's own time.
    waiting: Option<Instant>,
    limit: Instant,
    /// When the last poll was, and whether it found no bytes.
    polled_at: Instant,
    found_none: bool,
    /// When the bytes of the last poll arrived; `None` if they arrived before the reader waited.
    arrived: Option<Instant>,
    woken: Option<Arc<NotingWaker>>,
    /// How many bytes of its frame had arrived when the wait began; 0 between two frames.
    frame_bytes: u64,
    /// How long that frame was waited for before further bytes arrived, in total.
    frame_waited: Duration,
    timer: Pin<Box<Sleep>>,
}

/// How many bytes of a frame earn the server that time again. Servers send a frame at once, so a frame that arrives in
/// drips would otherwise keep a dead watch open.
const FRAME_PROGRESS: u64 = 64 << 10;

/// The progress of the initial events.
struct Initial {
    timeout: Duration,
    /// How long objects were waited for, in total.
    waited: Duration,
    bytes: u64,
    /// True after the first change. The server has then sent the whole initial state, so a further object is no
    /// progress.
    has_changes: bool,
}

impl Initial {
    fn left(&self) -> Duration {
        let pieces = u32::try_from(1 + self.bytes / PROGRESS).unwrap_or(u32::MAX);
        self.timeout.min(self.timeout.saturating_mul(pieces).saturating_sub(self.waited))
    }
}

impl Idle {
    pub(super) fn new(fixed: Option<Duration>, timeout: Duration, gap: Option<Duration>) -> Self {
        let now = Instant::now();
        let timer = Box::pin(sleep_until(now));
        Self {
            fixed,
            initial: None,
            end: later(now, timeout),
            last_bookmark: None,
            gap,
            waiting: None,
            limit: now,
            polled_at: now,
            found_none: false,
            arrived: None,
            woken: None,
            frame_bytes: 0,
            frame_waited: Duration::ZERO,
            timer,
        }
    }

    /// From now on only an added object stops the clock, or every byte if there is no timeout.
    pub(super) fn expect_initial_events(&mut self, timeout: Option<Duration>) {
        self.initial = timeout.map(|timeout| Initial { timeout, waited: Duration::ZERO, bytes: 0, has_changes: false });
        self.waiting = None;
    }

    pub(super) fn gap(&self) -> Option<Duration> {
        self.gap
    }

    /// Begins a poll of the connection, which must use the returned waker.
    pub(super) fn begin_poll(&mut self, cx: &Context<'_>) -> Waker {
        let now = Instant::now();
        // The timer wakes at the limit, so until then no bytes have arrived.
        let woken = self.woken.as_ref().and_then(|woken| woken.take()).filter(|at| *at < self.limit);
        let woken = woken.map_or(now, |at| at.min(now));
        let found_none = mem::take(&mut self.found_none);
        self.arrived = found_none.then_some(woken);
        let own_time = now - if found_none { woken } else { self.polled_at };
        if let Some(since) = &mut self.waiting {
            *since += own_time;
            self.limit += own_time;
        }
        self.polled_at = now;
        let woken = match self.woken.take() {
            Some(woken) if woken.waker.will_wake(cx.waker()) => woken,
            _ => Arc::new(NotingWaker::new(cx.waker().clone())),
        };
        let waker = Waker::from(Arc::clone(&woken));
        self.woken = Some(woken);
        waker
    }

    pub(super) fn bytes(&mut self, bytes: usize) {
        match &mut self.initial {
            Some(initial) => initial.bytes += bytes as u64,
            None => {
                if let Some(since) = self.waiting.take().filter(|_| self.frame_bytes > 0) {
                    self.frame_waited += since.elapsed();
                }
            }
        }
    }

    pub(super) fn event(&mut self, event: &WatchEventRef<'_>) {
        self.frame_waited = Duration::ZERO;
        match (event, &mut self.initial) {
            (WatchEventRef::Added { .. }, Some(initial)) if !initial.has_changes => {
                if let Some(since) = self.waiting.take() {
                    initial.waited += since.elapsed();
                }
            }
            (WatchEventRef::Modified { .. } | WatchEventRef::Deleted { .. }, Some(initial)) => {
                initial.has_changes = true;
            }
            (WatchEventRef::Bookmark { .. }, _) => {
                let last = self.last_bookmark.replace(self.arrived.unwrap_or(self.polled_at));
                if let (Some(last), Some(arrived)) = (last, self.arrived) {
                    self.gap = self.gap.max(Some(arrived - last));
                }
            }
            _ => {}
        }
    }

    /// Polls the clock while no bytes can be read, after `frame_bytes` of an unfinished frame. Ready with the error
    /// once the limit is reached.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, frame_bytes: u64) -> Poll<TransportError> {
        self.found_none = true;
        let since = self.waiting.unwrap_or_else(Instant::now);
        if self.waiting.replace(since).is_none() {
            self.frame_bytes = frame_bytes;
            self.limit = self.limit(since);
        }
        if self.timer.deadline() != self.limit {
            self.timer.as_mut().reset(self.limit);
        }
        ready!(self.timer.as_mut().poll(cx));
        let waited = since.elapsed();
        Poll::Ready(match &self.initial {
            Some(initial) => {
                let (bytes, waited) = (initial.bytes, (initial.waited + waited).as_secs_f32());
                let message = format!("the server has not ended the initial events: {bytes} bytes in {waited} s");
                TransportError::new(TransportErrorKind::ReadIdle, message)
            }
            None if self.frame_waited.is_zero() => idle_error(waited),
            None => {
                let (bytes, waited) = (self.frame_bytes, (self.frame_waited + waited).as_secs_f32());
                let message = format!("the server has not sent a whole frame: {bytes} bytes in {waited} s");
                TransportError::new(TransportErrorKind::ReadIdle, message)
            }
        })
    }

    fn limit(&self, now: Instant) -> Instant {
        let mut at_the_latest = (self.end + SLACK).max(now + SLACK);
        if self.frame_bytes > 0 {
            let pieces = u32::try_from(1 + self.frame_bytes / FRAME_PROGRESS).unwrap_or(u32::MAX);
            let left = MIN_IDLE.min(MIN_IDLE.saturating_mul(pieces).saturating_sub(self.frame_waited));
            at_the_latest = at_the_latest.min(now + left);
        }
        match (&self.initial, self.fixed, self.gap) {
            (Some(initial), ..) => later(now, initial.left()),
            (None, Some(timeout), _) if self.frame_bytes > 0 => later(now, timeout).min(at_the_latest),
            (None, Some(timeout), _) => later(now, timeout),
            (None, None, Some(gap)) => (now + (gap * 5 / 2).max(MIN_IDLE)).min(at_the_latest),
            (None, None, None) => at_the_latest,
        }
    }
}

/// Returns the end of a timeout, which may be longer than the clock can hold.
fn later(now: Instant, timeout: Duration) -> Instant {
    now.checked_add(timeout).unwrap_or_else(|| now + FOREVER)
}

/// Wakes the reader and notes when.
struct NotingWaker {
    waker: Waker,
    created: Instant,
    /// The nanoseconds from `created` to the first wake since the last [`take`](Self::take); 0 without a wake.
    woken_after: AtomicU64,
}

impl NotingWaker {
    fn new(waker: Waker) -> Self {
        Self { waker, created: Instant::now(), woken_after: AtomicU64::new(0) }
    }

    /// Returns when the first wake since the last call was.
    fn take(&self) -> Option<Instant> {
        let after = self.woken_after.swap(0, Ordering::Relaxed);
        (after > 0).then(|| self.created + Duration::from_nanos(after))
    }
}

impl Wake for NotingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let after = u64::try_from(self.created.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        // The first wake counts.
        _ = self.woken_after.compare_exchange(0, after, Ordering::Relaxed, Ordering::Relaxed);
        self.waker.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_beyond_the_clock_ends_long_after_now() {
        let now = Instant::now();
        assert!(later(now, Duration::MAX) > now + 10 * 365 * Duration::from_secs(86400));
        assert_eq!(later(now, Duration::from_secs(1)), now + Duration::from_secs(1));
    }
}
