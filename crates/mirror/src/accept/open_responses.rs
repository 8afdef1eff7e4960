//! The open responses of a connection: which of them must end, and since when there is none.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use crate::fairness::PoolPermit;
use crate::response::{BodyError, ResponseBody};

/// The largest frame that a connection gets from a body. A reader has the stall timeout for each frame: an object of
/// megabytes in one frame would need a fast reader.
const MAX_FRAME: usize = 16 << 10;

/// The open responses of a connection.
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
pub(super) struct BodyProgress {
    /// The time since which the reader has not accepted the last frame, or not asked for the first; `None` while the
    /// body is asked for its next frame.
    unread_since: Mutex<Option<Instant>>,
    /// The time at which the reader must have all of it.
    due: OnceLock<Instant>,
    /// True for a stream of HTTP/2, which ends alone: see [`StreamExecutor`](super::streams::StreamExecutor).
    is_stream: bool,
    _use: UseGuard,
}

impl BodyProgress {
    /// Returns the time at which the response must end, if the reader accepts nothing until then.
    pub(super) fn ends_at(&self, stall_timeout: Duration) -> Option<Instant> {
        let unread_since = *self.unread_since.lock().unwrap_or_else(PoisonError::into_inner);
        let stalled = unread_since.map(|since| since + stall_timeout);
        [stalled, self.due.get().copied()].into_iter().flatten().min()
    }

    fn set_unread(&self, is_unread: bool) {
        *self.unread_since.lock().unwrap_or_else(PoisonError::into_inner) = is_unread.then(Instant::now);
    }
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
    /// The body of its only response is overdue.
    Overdue,
    /// It has no open response since this time.
    Idle { since: Instant, is_new: bool },
}

impl OpenResponses {
    /// Registers a request, until its body is dropped.
    pub(crate) fn start_response(&self, is_stream: bool) -> StartedResponse {
        let guard = UseGuard(Arc::clone(&self.last_use));
        let progress = Arc::new(BodyProgress { is_stream, _use: guard, ..BodyProgress::default() });
        self.last_use.set();
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.responses.len() >= list.prune_at {
            list.responses.retain(|response| response.strong_count() > 0);
            list.prune_at = 16.max(list.responses.len() * 2);
        }
        list.responses.push(Arc::downgrade(&progress));
        StartedResponse(progress)
    }

    /// Returns what the connection does.
    pub(crate) fn check_activity(&self) -> ConnectionActivity {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_overdue = false;
        list.responses.retain(|response| {
            let Some(response) = response.upgrade() else { return false };
            is_overdue |= !response.is_stream && response.due.get().is_some_and(|due| *due <= Instant::now());
            true
        });
        if is_overdue {
            return ConnectionActivity::Overdue;
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
    pub(super) fn progress(&self) -> &Arc<BodyProgress> {
        &self.0
    }

    /// Starts the response. A body that ends has this time.
    pub(crate) fn track_body(self, body: ResponseBody, bytes: Counter, time: Duration) -> TrackedBody {
        if !body.is_endless() {
            // It is set once.
            _ = self.0.due.set(Instant::now() + time);
        }
        // With a closed window, the connection does not even ask for the first frame.
        self.0.set_unread(true);
        let (is_started, has_ended) = (false, false);
        TrackedBody { body, rest: Bytes::new(), is_started, has_ended, progress: self.0, bytes, _permit: None }
    }
}

/// The body of a response in short frames, with its bytes counted.
pub(crate) struct TrackedBody {
    body: ResponseBody,
    /// The rest of the last frame of the body.
    rest: Bytes,
    /// True once there was a frame.
    is_started: bool,
    /// True once the connection knows that there are no more.
    has_ended: bool,
    progress: Arc<BodyProgress>,
    bytes: Counter,
    _permit: Option<Arc<PoolPermit>>,
}

impl TrackedBody {
    /// Keeps the permit of the body.
    pub(super) fn permit(self, permit: Option<Arc<PoolPermit>>) -> Self {
        Self { _permit: permit, ..self }
    }
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
        let has_frame = matches!(&polled, Poll::Ready(Some(Ok(frame))) if frame.is_data());
        this.is_started |= has_frame;
        this.has_ended |= matches!(polled, Poll::Ready(None));
        this.progress.set_unread(has_frame);
        polled
    }

    /// Returns true only after the connection has asked for a frame after the last one. It would otherwise drop the
    /// body with its last frame, and a reader with a closed window could have any number of last frames wait.
    fn is_end_stream(&self) -> bool {
        self.has_ended || !self.is_started && self.rest.is_empty() && self.body.is_end_stream()
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

    #[tokio::test(start_paused = true)]
    async fn finds_bodies_that_are_not_read() {
        const STALL: Duration = Duration::from_secs(5);

        let responses = OpenResponses::default();
        assert!(matches!(responses.check_activity(), ConnectionActivity::Idle { is_new: true, .. }));
        let (bytes, waiting) = (Counter::default(), futures::stream::pending::<Result<Bytes, BodyError>>());
        let start = || {
            let started = responses.start_response(true);
            let progress = Arc::clone(started.progress());
            (started, progress)
        };
        let ([waits, unread], now) = ([start(), start()], Instant::now());
        let mut waiting = waits.0.track_body(ResponseBody::endless(waiting), bytes.clone(), AFTER);
        let mut body = unread.0.track_body(ResponseBody::from("frame"), bytes.clone(), AFTER);
        // With a closed window, the connection does not poll.
        assert_eq!([&waits.1, &unread.1].map(|progress| progress.ends_at(STALL)), [Some(now + STALL); 2]);
        assert!(waiting.frame().now_or_never().is_none());
        assert_eq!(waits.1.ends_at(STALL), None, "the reader waits for the mirror");
        advance(STALL / 2).await;
        body.frame().await.unwrap().unwrap();
        assert_eq!(unread.1.ends_at(STALL), Some(now + STALL / 2 + STALL));
        assert!(!body.is_end_stream(), "the reader has not accepted the frame");
        assert!(body.frame().await.is_none() && body.is_end_stream());
        assert_eq!(unread.1.ends_at(STALL), Some(now + AFTER));
        assert_eq!(responses.check_activity(), ConnectionActivity::Busy);
        drop((waiting, body, waits.1, unread.1));
        assert!(matches!(responses.check_activity(), ConnectionActivity::Idle { is_new: false, .. }));
        assert_eq!(bytes.get(), 5);
    }

    #[tokio::test]
    async fn splits_large_frames() {
        let bytes: Bytes = (0..=250).cycle().take(3 * MAX_FRAME + 7).collect();
        let counter = Counter::default();
        let mut body = OpenResponses::default().start_response(true).track_body(
            ResponseBody::from(bytes.clone()),
            counter.clone(),
            AFTER,
        );
        let (mut sent, mut lens) = (Vec::new(), Vec::new());
        loop {
            assert_eq!(body.size_hint().exact(), Some((bytes.len() - sent.len()) as u64));
            assert!(!body.is_end_stream());
            let Some(frame) = body.frame().await else { break };
            let frame = frame.unwrap().into_data().unwrap();
            lens.push(frame.len());
            sent.extend_from_slice(&frame);
        }
        assert!(body.is_end_stream());
        assert_eq!((lens, counter.get()), (vec![MAX_FRAME, MAX_FRAME, MAX_FRAME, 7], bytes.len() as u64));
        assert_eq!(sent, bytes);
    }

    /// Most requests of a connection begin and end between two checks.
    #[tokio::test(start_paused = true)]
    async fn a_response_between_two_checks_is_a_use() {
        let responses = OpenResponses::default();
        for _ in 0..3 {
            advance(AFTER / 3).await;
            let mut body =
                responses.start_response(true).track_body(ResponseBody::from("list"), Counter::default(), AFTER);
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
        let mut watch = responses.start_response(false).track_body(endless(), Counter::default(), 3 * AFTER);
        let mut list = responses.start_response(false).track_body(list, Counter::default(), 3 * AFTER);
        for expected in [ConnectionActivity::Busy, ConnectionActivity::Busy, ConnectionActivity::Overdue] {
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
