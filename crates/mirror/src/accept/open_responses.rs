//! The open responses of a connection: which of them make no progress, and since when there is none.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use crate::response::{BodyError, ResponseBody};

/// The largest frame that a connection gets from a body. A reader has the stall timeout for each frame, and the
/// connection drops a body once it has the last frame: an object of megabytes in one frame would need a fast reader,
/// and would not count as an open response.
const MAX_FRAME: usize = 64 << 10;

/// The open responses of a connection. Over HTTP/2, a reader can accept the frames of a connection and no byte of a
/// body.
pub(crate) struct OpenResponses {
    list: Mutex<ResponseList>,
    created: Instant,
    last_use: Arc<LastUse>,
}

struct ResponseList {
    responses: Vec<Weak<BodyProgress>>,
    /// The length of `responses` at which closed ones are removed.
    prune_at: usize,
}

/// The time at which a response was last open; `None` before the first. A response can begin and end between two
/// checks.
#[derive(Default)]
struct LastUse(Mutex<Option<Instant>>);

impl LastUse {
    fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

impl Default for OpenResponses {
    fn default() -> Self {
        let list = ResponseList { responses: Vec::new(), prune_at: 16 };
        Self { list: Mutex::new(list), created: Instant::now(), last_use: Arc::default() }
    }
}

/// How far a body is.
#[derive(Default)]
struct BodyProgress {
    /// The number of times that the connection has polled for a frame.
    polls: AtomicU32,
    /// True after the body has returned a frame: until the next poll the reader has not accepted it.
    is_unread: AtomicBool,
    /// What [`OpenResponses::check_activity`] found last: its number of polls.
    seen: AtomicU32,
    /// The time at which the reader must have all of it.
    due: OnceLock<Instant>,
    _use: UseGuard,
}

/// The use of a connection by a response, which ends when it is dropped.
#[derive(Default)]
struct UseGuard(Arc<LastUse>);

impl Drop for UseGuard {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// What a connection does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionActivity {
    /// It has open responses.
    Busy,
    /// A body made no progress since the previous check, because the reader accepts no byte; or a body is overdue.
    Stalled,
    /// It has no open response since this time.
    Idle { since: Instant, is_new: bool },
}

impl OpenResponses {
    /// Registers a request, until its body is dropped.
    pub(crate) fn start_response(&self) -> StartedResponse {
        let progress = Arc::new(BodyProgress { _use: UseGuard(Arc::clone(&self.last_use)), ..BodyProgress::default() });
        self.last_use.set();
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.responses.len() >= list.prune_at {
            list.responses.retain(|response| response.strong_count() > 0);
            list.prune_at = 16.max(list.responses.len() * 2);
        }
        list.responses.push(Arc::downgrade(&progress));
        StartedResponse(progress)
    }

    /// Returns what the connection does. Two checks must be the stall timeout apart.
    pub(crate) fn check_activity(&self) -> ConnectionActivity {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_stalled = false;
        list.responses.retain(|response| {
            let Some(response) = response.upgrade() else { return false };
            let polls = response.polls.load(Ordering::Relaxed);
            let is_same = response.seen.swap(polls, Ordering::Relaxed) == polls;
            is_stalled |= is_same && response.is_unread.load(Ordering::Relaxed);
            is_stalled |= response.due.get().is_some_and(|due| *due <= Instant::now());
            true
        });
        if is_stalled {
            return ConnectionActivity::Stalled;
        }
        if !list.responses.is_empty() {
            return ConnectionActivity::Busy;
        }
        let last_use = self.last_use.get();
        ConnectionActivity::Idle { since: last_use.unwrap_or(self.created), is_new: last_use.is_none() }
    }
}

/// A request whose response is not complete.
pub(crate) struct StartedResponse(Arc<BodyProgress>);

impl StartedResponse {
    /// Starts the response. A body that ends has this time.
    pub(crate) fn track_body(self, body: ResponseBody, bytes: Counter, time: Duration) -> TrackedBody {
        if !body.is_endless() {
            // It is set once.
            _ = self.0.due.set(Instant::now() + time);
        }
        TrackedBody { body, rest: Bytes::new(), progress: self.0, bytes }
    }
}

/// The body of a response in short frames, with its bytes counted.
pub(crate) struct TrackedBody {
    body: ResponseBody,
    /// The rest of the last frame of the body.
    rest: Bytes,
    progress: Arc<BodyProgress>,
    bytes: Counter,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let mut polled = Poll::Pending;
        if this.rest.is_empty() {
            polled = Pin::new(&mut this.body).poll_frame(cx);
            if let Poll::Ready(Some(Ok(frame))) = &polled {
                this.rest = frame.data_ref().cloned().unwrap_or_default();
            }
        }
        if !this.rest.is_empty() {
            let chunk = this.rest.split_to(this.rest.len().min(MAX_FRAME));
            this.bytes.inc_by(chunk.len() as u64);
            polled = Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        this.progress.polls.fetch_add(1, Ordering::Relaxed);
        let has_frame = matches!(&polled, Poll::Ready(Some(Ok(frame))) if frame.is_data());
        this.progress.is_unread.store(has_frame, Ordering::Relaxed);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use http_body_util::BodyExt as _;
    use tokio::time::advance;

    use super::*;

    const AFTER: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn finds_bodies_that_are_not_read() {
        let responses = OpenResponses::default();
        assert!(matches!(responses.check_activity(), ConnectionActivity::Idle { is_new: true, .. }));
        let (bytes, waiting) = (Counter::default(), futures::stream::pending::<Result<Bytes, BodyError>>());
        let mut waits = responses.start_response().track_body(ResponseBody::endless(waiting), bytes.clone(), AFTER);
        let mut unread = responses.start_response().track_body(ResponseBody::from("frame"), bytes.clone(), AFTER);
        assert!(waits.frame().now_or_never().is_none());
        assert_eq!([responses.check_activity(), responses.check_activity()], [ConnectionActivity::Busy; 2]);
        unread.frame().await.unwrap().unwrap();
        assert_eq!(
            [responses.check_activity(), responses.check_activity()],
            [ConnectionActivity::Busy, ConnectionActivity::Stalled]
        );
        assert!(unread.frame().await.is_none());
        assert_eq!([responses.check_activity(), responses.check_activity()], [ConnectionActivity::Busy; 2]);
        drop((waits, unread));
        assert!(matches!(responses.check_activity(), ConnectionActivity::Idle { is_new: false, .. }));
        assert_eq!(bytes.get(), 5);
    }

    #[tokio::test]
    async fn splits_large_frames() {
        let bytes: Bytes = (0..=250).cycle().take(3 * MAX_FRAME + 7).collect();
        let counter = Counter::default();
        let mut body = OpenResponses::default().start_response().track_body(
            ResponseBody::from(bytes.clone()),
            counter.clone(),
            AFTER,
        );
        let (mut sent, mut lens) = (Vec::new(), Vec::new());
        while !body.is_end_stream() {
            assert_eq!(body.size_hint().exact(), Some((bytes.len() - sent.len()) as u64));
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            lens.push(frame.len());
            sent.extend_from_slice(&frame);
        }
        assert!(body.frame().await.is_none());
        assert_eq!((lens, counter.get()), (vec![MAX_FRAME, MAX_FRAME, MAX_FRAME, 7], bytes.len() as u64));
        assert_eq!(sent, bytes);
    }

    /// Most requests of a connection begin and end between two checks.
    #[tokio::test(start_paused = true)]
    async fn a_response_between_two_checks_is_a_use() {
        let responses = OpenResponses::default();
        for _ in 0..3 {
            advance(AFTER / 3).await;
            let mut body = responses.start_response().track_body(ResponseBody::from("list"), Counter::default(), AFTER);
            body.frame().await.unwrap().unwrap();
            advance(AFTER / 3).await;
            drop(body);
            let ended = Instant::now();
            advance(AFTER / 3).await;
            assert_eq!(responses.check_activity(), ConnectionActivity::Idle { since: ended, is_new: false });
        }
    }

    /// A reader that accepts a few bytes now and then must not hold the objects of a list for hours.
    #[tokio::test(start_paused = true)]
    async fn finds_bodies_that_take_too_long() {
        let responses = OpenResponses::default();
        let endless =
            || ResponseBody::endless(futures::stream::repeat_with(|| Ok::<_, BodyError>(Bytes::from_static(b"x"))));
        let list =
            ResponseBody::from_stream(futures::stream::repeat_with(|| Ok::<_, BodyError>(Bytes::from_static(b"x"))));
        let mut watch = responses.start_response().track_body(endless(), Counter::default(), 3 * AFTER);
        let mut list = responses.start_response().track_body(list, Counter::default(), 3 * AFTER);
        for expected in [ConnectionActivity::Busy, ConnectionActivity::Busy, ConnectionActivity::Stalled] {
            for body in [&mut watch, &mut list] {
                body.frame().await.unwrap().unwrap();
            }
            advance(AFTER).await;
            assert_eq!(responses.check_activity(), expected);
        }
        drop(list);
        watch.frame().await.unwrap().unwrap();
        assert_eq!(responses.check_activity(), ConnectionActivity::Busy);
    }
}
