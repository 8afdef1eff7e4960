//! The detection of readers that accept no bytes, or too few.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::body::{Body, BodyError};

/// The largest frame that a connection gets from a body. A reader has the stall timeout for each frame, and the
/// connection drops a body once it has the last frame: an object of megabytes in one frame would need a fast reader,
/// and would not count as an open response.
const FRAME: usize = 64 << 10;

/// A connection that fails if the peer accepts no byte for a time.
pub(crate) struct StallTimeout<IO> {
    io: IO,
    after: Duration,
    /// Set while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<IO> StallTimeout<IO> {
    pub(crate) fn new(io: IO, after: Duration) -> Self {
        Self { io, after, waiting: None }
    }

    fn check<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let after = self.after;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(after)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for StallTimeout<IO> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for StallTimeout<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.check(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.check(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.check(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check(shut, cx)
    }
}

/// The open responses of a connection. Over HTTP/2, a reader can accept the frames of a connection and no byte of a body.
pub(crate) struct Responses {
    open: Mutex<Open>,
    created: Instant,
    last_use: Arc<LastUse>,
}

struct Open {
    responses: Vec<Weak<Progress>>,
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

impl Default for Responses {
    fn default() -> Self {
        let open = Open { responses: Vec::new(), prune_at: 16 };
        Self { open: Mutex::new(open), created: Instant::now(), last_use: Arc::default() }
    }
}

/// How far a body is.
#[derive(Default)]
struct Progress {
    /// The number of times that the connection has asked for a frame.
    polls: AtomicU32,
    /// True after the body has returned a frame: until the next poll the reader has not accepted it.
    is_unread: AtomicBool,
    /// What [`Responses::check`] found last: its number of polls.
    seen: AtomicU32,
    /// The time at which the reader must have all of it.
    due: OnceLock<Instant>,
    _use: Use,
}

/// The use of a connection by a response, which ends when it is dropped.
#[derive(Default)]
struct Use(Arc<LastUse>);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// What a connection does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It has open responses.
    Busy,
    /// A body made no progress since the previous check, because the reader accepts no byte; or a body is overdue.
    Stalled,
    /// It has no open response since this time.
    Idle { since: Instant, is_new: bool },
}

impl Responses {
    /// Registers a request, until its body is dropped.
    pub(crate) fn start(&self) -> Started {
        let progress = Arc::new(Progress { _use: Use(Arc::clone(&self.last_use)), ..Progress::default() });
        self.last_use.set();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.responses.len() >= open.prune_at {
            open.responses.retain(|response| response.strong_count() > 0);
            open.prune_at = 16.max(open.responses.len() * 2);
        }
        open.responses.push(Arc::downgrade(&progress));
        Started(progress)
    }

    /// Returns what the connection does. Two checks must be the stall timeout apart.
    pub(crate) fn check(&self) -> Activity {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_stalled = false;
        open.responses.retain(|response| {
            let Some(response) = response.upgrade() else { return false };
            let polls = response.polls.load(Ordering::Relaxed);
            let is_same = response.seen.swap(polls, Ordering::Relaxed) == polls;
            is_stalled |= is_same && response.is_unread.load(Ordering::Relaxed);
            is_stalled |= response.due.get().is_some_and(|due| *due <= Instant::now());
            true
        });
        if is_stalled {
            return Activity::Stalled;
        }
        if !open.responses.is_empty() {
            return Activity::Busy;
        }
        let last_use = self.last_use.get();
        Activity::Idle { since: last_use.unwrap_or(self.created), is_new: last_use.is_none() }
    }
}

/// A request whose response is not complete.
pub(crate) struct Started(Arc<Progress>);

impl Started {
    /// Starts the response. A body that ends has this time.
    pub(crate) fn body(self, body: Body, bytes: Counter, time: Duration) -> Sent {
        if !body.is_endless() {
            // It is set once.
            _ = self.0.due.set(Instant::now() + time);
        }
        Sent { body, rest: Bytes::new(), progress: self.0, bytes }
    }
}

/// The body of a response in short frames, with its bytes counted.
pub(crate) struct Sent {
    body: Body,
    /// The rest of the last frame of the body.
    rest: Bytes,
    progress: Arc<Progress>,
    bytes: Counter,
}

impl HttpBody for Sent {
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
            let chunk = this.rest.split_to(this.rest.len().min(FRAME));
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::advance;

    use super::*;

    const AFTER: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_if_no_byte_is_accepted_in_time() {
        let (mut reader, writer) = duplex(2);
        let mut writer = StallTimeout::new(writer, AFTER);
        let started = Instant::now();
        let mut writing = Box::pin(writer.write_all(b"abcdef"));
        // Each accepted byte starts the time anew.
        for _ in 0..2 {
            assert!(writing.as_mut().now_or_never().is_none());
            advance(Duration::from_secs(29)).await;
            reader.read_u8().await.unwrap();
        }
        assert!(writing.as_mut().now_or_never().is_none());
        assert_eq!(writing.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), Duration::from_secs(2 * 29 + 30));
    }

    #[tokio::test]
    async fn finds_bodies_that_are_not_read() {
        let responses = Responses::default();
        assert!(matches!(responses.check(), Activity::Idle { is_new: true, .. }));
        let (bytes, waiting) = (Counter::default(), futures::stream::pending::<Result<Bytes, BodyError>>());
        let mut waits = responses.start().body(Body::endless(waiting), bytes.clone(), AFTER);
        let mut unread = responses.start().body(Body::from("frame"), bytes.clone(), AFTER);
        assert!(waits.frame().now_or_never().is_none());
        assert_eq!([responses.check(), responses.check()], [Activity::Busy; 2]);
        unread.frame().await.unwrap().unwrap();
        assert_eq!([responses.check(), responses.check()], [Activity::Busy, Activity::Stalled]);
        assert!(unread.frame().await.is_none());
        assert_eq!([responses.check(), responses.check()], [Activity::Busy; 2]);
        drop((waits, unread));
        assert!(matches!(responses.check(), Activity::Idle { is_new: false, .. }));
        assert_eq!(bytes.get(), 5);
    }

    #[tokio::test]
    async fn splits_large_frames() {
        let bytes: Bytes = (0..=250).cycle().take(3 * FRAME + 7).collect();
        let counter = Counter::default();
        let mut body = Responses::default().start().body(Body::from(bytes.clone()), counter.clone(), AFTER);
        let (mut sent, mut lens) = (Vec::new(), Vec::new());
        while !body.is_end_stream() {
            assert_eq!(body.size_hint().exact(), Some((bytes.len() - sent.len()) as u64));
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            lens.push(frame.len());
            sent.extend_from_slice(&frame);
        }
        assert!(body.frame().await.is_none());
        assert_eq!((lens, counter.get()), (vec![FRAME, FRAME, FRAME, 7], bytes.len() as u64));
        assert_eq!(sent, bytes);
    }

    /// Most requests of a connection begin and end between two checks.
    #[tokio::test(start_paused = true)]
    async fn a_response_between_two_checks_is_a_use() {
        let responses = Responses::default();
        for _ in 0..3 {
            advance(AFTER / 3).await;
            let mut body = responses.start().body(Body::from("list"), Counter::default(), AFTER);
            body.frame().await.unwrap().unwrap();
            advance(AFTER / 3).await;
            drop(body);
            let ended = Instant::now();
            advance(AFTER / 3).await;
            assert_eq!(responses.check(), Activity::Idle { since: ended, is_new: false });
        }
    }

    /// A reader that accepts a few bytes now and then must not hold the objects of a list for hours.
    #[tokio::test(start_paused = true)]
    async fn finds_bodies_that_take_too_long() {
        let responses = Responses::default();
        let endless = || Body::endless(futures::stream::repeat_with(|| Ok::<_, BodyError>(Bytes::from_static(b"x"))));
        let list = Body::from_stream(futures::stream::repeat_with(|| Ok::<_, BodyError>(Bytes::from_static(b"x"))));
        let mut watch = responses.start().body(endless(), Counter::default(), 3 * AFTER);
        let mut list = responses.start().body(list, Counter::default(), 3 * AFTER);
        for expected in [Activity::Busy, Activity::Busy, Activity::Stalled] {
            for body in [&mut watch, &mut list] {
                body.frame().await.unwrap().unwrap();
            }
            advance(AFTER).await;
            assert_eq!(responses.check(), expected);
        }
        drop(list);
        watch.frame().await.unwrap().unwrap();
        assert_eq!(responses.check(), Activity::Busy);
    }
}
