//! A thread that reads connections.
//!
//! A connection of hyper is a task. It passes each chunk of HTTP/1.1, about 4 KiB from an API server, to the body's
//! reader, and waits until the reader has received it. If the two are on different threads, as with `#[tokio::main]`,
//! each chunk needs two wake-ups, which cost more than decoding. Here both are on one thread, which passes large pieces
//! to the consumer. Before it waits for more, it may rest: see [`pace`](super::pace).

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::{self, Thread};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio_util::task::AbortOnDropHandle;
use tracing::instrument::{Instrument, WithSubscriber};

use super::pace::{Pace, REST};
use super::transport::{Chunks, Response, TransportError, TransportErrorKind};
use crate::sync::{Mutex, lock};

/// The size in bytes at which a piece is sent, even if more can be read.
const PIECE: usize = 256 << 10;

/// A thread that sends the requests of a transport and reads its responses, so that a connection and its reader share
/// one thread.
///
/// All TLS of the transport runs on that thread, and each piece of a body (about 256 KiB) crosses to the caller's
/// thread. The thread starts with the first request. It ends, with all tasks on it, once the `IoThread` and all
/// responses that it returned are dropped. If it cannot be started, the next request tries again.
///
/// A thread that is woken more than 100 times a second, and reads less than 5 MB/s, rests for up to 10 ms before
/// it waits again. So the changes of a busy watch arrive together, up to 10 ms later. It does not rest while a request
/// waits for its response.
#[derive(Default)]
pub struct IoThread(Mutex<Option<Arc<Running>>>);

struct Running {
    runtime: Handle,
    thread: Thread,
    pace: Arc<Pace>,
    /// Dropping it ends the thread.
    _running: oneshot::Sender<()>,
}

impl IoThread {
    /// Runs `get`, which sends a request, on the thread, and reads the body of its response there.
    ///
    /// Up to three pieces of a body, of about 256 KiB each, wait for a slow consumer. Dropping the future or the
    /// response ends its task on the thread.
    ///
    /// # Errors
    ///
    /// The errors of `get`; [`TransportErrorKind::Other`] if the thread cannot be started, or if `get` or the body
    /// panics.
    pub async fn get(
        &self,
        get: impl Future<Output = Result<Response, TransportError>> + Send + 'static,
    ) -> Result<Response, TransportError> {
        let running = self.running(|| start(REST))?;
        let (head, answered) = oneshot::channel();
        let pace = Arc::clone(&running.pace);
        let awake = running.pace.keep_awake(&running.thread);
        let reading = async move {
            match get.await {
                Ok(Response { status, headers, body }) => {
                    let (pieces, read) = mpsc::channel(1);
                    if head.send(Ok((status, headers, read))).is_ok() {
                        // From now on the thread may rest.
                        drop(awake);
                        hand_over(body, pieces, &pace).await;
                    }
                }
                // The caller may have dropped the request.
                Err(error) => drop(head.send(Err(error))),
            }
        };
        let task = running.runtime.spawn(reading.in_current_span().with_current_subscriber());
        let task = AbortOnDropHandle::new(task);
        let (status, headers, read) = answered.await.map_err(|_| died())??;
        Ok(Response { status, headers, body: Box::pin(Pieces { read, task: Some(task), _running: running }) })
    }
}

impl IoThread {
    fn running(&self, start: impl FnOnce() -> io::Result<Arc<Running>>) -> Result<Arc<Running>, TransportError> {
        let mut running = lock(&self.0);
        if let Some(running) = &*running {
            return Ok(Arc::clone(running));
        }
        let started = start().map_err(|error| {
            TransportError::new(TransportErrorKind::Other, format!("cannot start a thread: {error}"))
        })?;
        Ok(Arc::clone(running.insert(started)))
    }
}

fn start(rest: Duration) -> io::Result<Arc<Running>> {
    let pace = Arc::new(Pace::new(rest));
    let resting = Arc::clone(&pace);
    let runtime = Builder::new_current_thread().enable_all().on_thread_park(move || resting.rest()).build()?;
    let handle = runtime.handle().clone();
    let (sender, stopped) = oneshot::channel();
    let reads = move || drop(runtime.block_on(stopped));
    let thread = thread::Builder::new().name("listwatch-io".to_owned()).spawn(reads)?.thread().clone();
    Ok(Arc::new(Running { runtime: handle, thread, pace, _running: sender }))
}

/// Reads a body to its end. Sends chunks in pieces: of [`PIECE`] bytes, or of the chunks that have arrived.
async fn hand_over(mut body: Chunks, pieces: mpsc::Sender<Result<Bytes, TransportError>>, pace: &Pace) {
    let mut gathered = BytesMut::new();
    loop {
        // Completes after the connection's task had a turn to deliver more.
        let mut turn = pin!(yield_now());
        let next = poll_fn(|cx| match body.as_mut().poll_next(cx) {
            Poll::Ready(next) => Poll::Ready(Some(next)),
            Poll::Pending if gathered.is_empty() => Poll::Pending,
            Poll::Pending => turn.as_mut().poll(cx).map(|()| None),
        });
        let (piece, end) = match next.await {
            Some(Some(Ok(chunk))) if gathered.is_empty() && chunk.len() >= PIECE => (chunk, None),
            Some(Some(Ok(chunk))) => {
                if gathered.is_empty() {
                    gathered.reserve(PIECE + chunk.len());
                }
                gathered.extend_from_slice(&chunk);
                if gathered.len() < PIECE {
                    continue;
                }
                (gathered.split().freeze(), None)
            }
            Some(end) => (gathered.split().freeze(), Some(end)),
            None => (gathered.split().freeze(), None),
        };
        if !piece.is_empty() {
            pace.add_bytes(piece.len());
            if pieces.send(Ok(piece)).await.is_err() {
                return;
            }
        }
        if let Some(end) = end {
            if let Some(error) = end {
                // The reader may have dropped the response.
                drop(pieces.send(error).await);
            }
            return;
        }
    }
}

struct Pieces {
    read: mpsc::Receiver<Result<Bytes, TransportError>>,
    /// `None` after it has ended.
    task: Option<AbortOnDropHandle<()>>,
    _running: Arc<Running>,
}

impl Stream for Pieces {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(piece) = ready!(self.read.poll_recv(cx)) {
            return Poll::Ready(Some(piece));
        }
        let Some(task) = &mut self.task else { return Poll::Ready(None) };
        let ended = ready!(Pin::new(task).poll(cx));
        self.task = None;
        // A panic of the task is not the end of the body.
        Poll::Ready(ended.err().map(|_| Err(died())))
    }
}

fn died() -> TransportError {
    TransportError::new(TransportErrorKind::Other, "the task that reads the response panicked")
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::pending;
    use std::sync::mpsc as sync;

    use futures::{StreamExt as _, stream};
    use http::{HeaderMap, StatusCode};

    use super::*;

    type Chunk = Result<Bytes, TransportError>;

    fn response(body: impl Stream<Item = Chunk> + Send + 'static) -> Response {
        Response { status: StatusCode::OK, headers: HeaderMap::new(), body: Box::pin(body) }
    }

    async fn pieces(body: impl Stream<Item = Chunk> + Send + 'static) -> Vec<Chunk> {
        let io = IoThread::default();
        let response = io.get(async { Ok(response(body)) }).await.unwrap();
        drop(io);
        response.body.collect().await
    }

    #[tokio::test]
    async fn gathers_small_chunks_and_forwards_large_chunks() {
        let chunk = |byte, length| Bytes::from(vec![byte; length]);
        for (chunks, expected) in [
            (vec![], vec![]),
            (vec![chunk(1, 4096); 136], vec![PIECE, PIECE, 8 * 4096]),
            (vec![chunk(1, PIECE), chunk(2, PIECE + 1)], vec![PIECE, PIECE + 1]),
            (vec![chunk(1, 10), chunk(2, 2 * PIECE), chunk(3, 10)], vec![2 * PIECE + 10, 10]),
            (vec![chunk(1, 0), chunk(2, 1)], vec![1]),
        ] {
            let all = chunks.concat();
            let found: Vec<_> = pieces(stream::iter(chunks.into_iter().map(Ok))).await.into_iter().flatten().collect();
            assert_eq!(found.iter().map(Bytes::len).collect::<Vec<_>>(), expected);
            assert_eq!(found.concat(), all);
        }
    }

    #[tokio::test]
    async fn forwards_a_chunk_while_the_body_is_silent() {
        let io = IoThread::default();
        let silent = stream::iter([Ok(Bytes::from_static(b"event"))]).chain(stream::pending());
        let mut response = io.get(async { Ok(response(silent)) }).await.unwrap();
        assert_eq!(response.body.next().await.unwrap().unwrap(), "event");
    }

    /// A rest of an hour, so a request that does not end it never returns.
    #[tokio::test]
    async fn a_request_ends_the_rest_of_the_thread() {
        let io = IoThread::default();
        io.running(|| start(Duration::from_secs(3600))).unwrap();
        for _ in 0..100 {
            io.get(async { Ok(response(stream::empty())) }).await.unwrap();
        }
        // While a request waits, other bodies are read.
        let mut unanswered = Box::pin(io.get(pending()));
        assert!(poll_fn(|cx| Poll::Ready(unanswered.as_mut().poll(cx).is_pending())).await);
        let (chunks, body) = mpsc::unbounded_channel();
        let body = stream::unfold(body, |mut body| async move { Some((body.recv().await?, body)) });
        let mut response = io.get(async { Ok(response(body)) }).await.unwrap();
        for _ in 0..100 {
            chunks.send(Ok(Bytes::from_static(b"event"))).unwrap();
            assert_eq!(response.body.next().await.unwrap().unwrap(), "event");
        }
    }

    #[tokio::test]
    async fn retries_to_start_the_thread() {
        let io = IoThread::default();
        assert!(io.running(|| Err(io::ErrorKind::WouldBlock.into())).is_err());
        io.get(async { Ok(response(stream::empty())) }).await.unwrap();
    }

    #[tokio::test]
    async fn an_error_follows_the_bytes_before_it() {
        let error = TransportError::new(TransportErrorKind::Broken, "reset");
        let found = pieces(stream::iter([Ok(Bytes::from_static(b"half")), Err(error.clone())])).await;
        assert_eq!(found, [Ok(Bytes::from_static(b"half")), Err(error)]);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_not_the_end() {
        let mut chunks = VecDeque::from([Bytes::from(vec![0; PIECE])]);
        let body =
            stream::poll_fn(move |_| Poll::Ready(Some(Ok(chunks.pop_front().expect("panics at the second chunk")))));
        let found = pieces(body).await;
        assert_eq!((found.len(), &found[1]), (2, &Err(died())));
        let io = IoThread::default();
        assert_eq!(io.get(async { panic!("before the head") }).await.unwrap_err(), died());
    }

    /// Returns a value, and a function that waits until the value is dropped.
    fn guard() -> (sync::Sender<()>, impl Fn()) {
        let (guard, gone) = sync::channel();
        (guard, move || assert_eq!(gone.recv(), Err(sync::RecvError)))
    }

    #[tokio::test]
    async fn dropping_ends_requests_bodies_and_the_thread() {
        let io = IoThread::default();
        // A request without a response.
        let (held, is_gone) = guard();
        let mut unanswered = Box::pin(io.get(async move {
            let _held = held;
            pending().await
        }));
        assert!(poll_fn(|cx| Poll::Ready(unanswered.as_mut().poll(cx).is_pending())).await);
        drop(unanswered);
        is_gone();
        // A body that is not read.
        let (held, is_gone) = guard();
        let endless = stream::repeat_with(move || {
            let _held = &held;
            Ok(Bytes::from_static(b"more"))
        });
        drop(io.get(async { Ok(response(endless)) }).await.unwrap());
        is_gone();
        // A task that a connection left on the thread.
        let (held, is_gone) = guard();
        let leave = async move {
            tokio::spawn(async move {
                let _held = held;
                pending::<()>().await;
            });
            Ok(response(stream::empty()))
        };
        let response = io.get(leave).await.unwrap();
        drop((io, response));
        is_gone();
    }
}
