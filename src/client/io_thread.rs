//! The threads that read connections.
//!
//! A connection of hyper is a task. It passes each chunk of HTTP/1.1, about 4 KiB from an API server, to the body's
//! reader, and waits until the reader has received it. If the two are on different threads, as with `#[tokio::main]`,
//! each chunk needs two wake-ups, which cost more than decoding. Here both are on one thread, which passes large pieces
//! to the consumer.
//!
//! In one run on two cores, a list of 50,000 objects of 2.4 kB took 227 ms of CPU instead of 260 ms on a caller's
//! runtime of several threads, and one of 20,000 objects of 22 kB 640 ms instead of 770 ms. On a runtime of one thread
//! the first took 165 and 177 ms, and the second the same. A change of a watch gains nothing. The guide's page about
//! performance has the figures.
//!
//! The transports of a process share these threads, at most one for each core. A transport stays on its thread, because
//! its connections cannot move.

use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock, Weak};
use std::task::{Context, Poll, ready};
use std::thread;

use bytes::Bytes;
use futures_core::Stream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio_util::task::AbortOnDropHandle;
use tracing::instrument::{Instrument, WithSubscriber};

use super::transport::{Chunks, Response, TransportError, TransportErrorKind};
use crate::sync::{Mutex, lock};

/// At this size, a piece is sent even if more can be read.
const PIECE: usize = 256 << 10;

/// A thread that sends the requests of a transport and reads its responses, so that connection and reader share it.
///
/// The transports of a process share such threads, at most as many as the process has cores
/// ([`std::thread::available_parallelism`]). The first request of a transport chooses its thread for good: a new one
/// while there are fewer than cores, otherwise the one with the fewest transports and open responses. All TLS of a
/// transport therefore runs on one core, and whatever blocks its thread delays the other transports on it.
///
/// Each piece of a body, at most about 256 KiB, crosses to the caller's thread. A body that waits for its server keeps
/// no memory for the next piece.
///
/// A thread ends, with all tasks on it, once every `IoThread` that uses it and all responses that these returned are
/// dropped. If no thread can be started, the next request tries again.
pub struct IoThread {
    pool: &'static Pool,
    running: Mutex<Option<Arc<Running>>>,
}

static POOL: LazyLock<Pool> =
    LazyLock::new(|| Pool::new(thread::available_parallelism().map_or(1, std::num::NonZero::get)));

/// Threads that run while a transport or a response uses them.
struct Pool {
    /// The number of threads that may run at the same time.
    most: usize,
    threads: Mutex<Vec<Weak<Running>>>,
}

struct Running {
    runtime: Handle,
    /// Dropping it ends the thread.
    _running: oneshot::Sender<()>,
}

impl Default for IoThread {
    fn default() -> Self {
        Self::of(&POOL)
    }
}

impl IoThread {
    fn of(pool: &'static Pool) -> Self {
        Self { pool, running: Mutex::default() }
    }

    /// Runs `get`, which sends a request, on the thread, and reads the body of the response there.
    ///
    /// Up to three pieces of a body, of about 256 KiB each, wait for a slow consumer. Dropping the future or the
    /// response ends its task on the thread.
    ///
    /// # Errors
    ///
    /// The errors of `get`, and [`TransportErrorKind::Other`] when no thread can be started, or `get` or the body
    /// panics.
    pub async fn get(
        &self,
        get: impl Future<Output = Result<Response, TransportError>> + Send + 'static,
    ) -> Result<Response, TransportError> {
        let running = self.running(start)?;
        let (head, answered) = oneshot::channel();
        let reading = async move {
            match get.await {
                Ok(Response { status, headers, body }) => {
                    let (pieces, read) = mpsc::channel(1);
                    if head.send(Ok((status, headers, read))).is_ok() {
                        hand_over(body, pieces).await;
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

    fn running(&self, start: impl FnOnce() -> io::Result<Arc<Running>>) -> Result<Arc<Running>, TransportError> {
        let mut running = lock(&self.running);
        if let Some(running) = &*running {
            return Ok(Arc::clone(running));
        }
        let chosen = self.pool.choose(start).map_err(|error| {
            TransportError::new(TransportErrorKind::Other, format!("cannot start a thread: {error}"))
        })?;
        Ok(Arc::clone(running.insert(chosen)))
    }
}

impl Pool {
    fn new(most: usize) -> Self {
        Self { most, threads: Mutex::default() }
    }

    /// Returns a new thread, or the one with the fewest users if no more are allowed or none can be started.
    fn choose(&self, start: impl FnOnce() -> io::Result<Arc<Running>>) -> io::Result<Arc<Running>> {
        let mut threads = lock(&self.threads);
        let running: Vec<_> = threads.iter().filter_map(Weak::upgrade).collect();
        *threads = running.iter().map(Arc::downgrade).collect();
        let few = running.len() < self.most;
        let idlest = running.into_iter().min_by_key(Arc::strong_count);
        match (few.then(start), idlest) {
            (None | Some(Err(_)), Some(idlest)) => Ok(idlest),
            (Some(started), _) => started.inspect(|started| threads.push(Arc::downgrade(started))),
            (None, None) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

fn start() -> io::Result<Arc<Running>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (sender, stopped) = oneshot::channel();
    let reads = move || drop(runtime.block_on(stopped));
    thread::Builder::new().name("listwatch-io".to_owned()).spawn(reads)?;
    Ok(Arc::new(Running { runtime: handle, _running: sender }))
}

/// Reads a body to its end, and sends its chunks in pieces: of [`PIECE`] bytes, or of what has arrived.
///
/// A piece takes its buffer along, so nothing is allocated while the body is silent.
async fn hand_over(mut body: Chunks, pieces: mpsc::Sender<Result<Bytes, TransportError>>) {
    let mut gathered = Vec::new();
    // The next piece is probably as long, because lists have long pieces and watches short ones, so its buffer need not
    // grow.
    let mut last_length = 0;
    loop {
        // Completes after the task of the connection had a turn to deliver more.
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
                    gathered.reserve(last_length + chunk.len());
                }
                gathered.extend_from_slice(&chunk);
                if gathered.len() < PIECE {
                    continue;
                }
                (mem::take(&mut gathered).into(), None)
            }
            Some(end) => (mem::take(&mut gathered).into(), Some(end)),
            None => (mem::take(&mut gathered).into(), None),
        };
        if !piece.is_empty() {
            last_length = piece.len().min(PIECE);
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
    use std::collections::{HashMap, VecDeque};
    use std::future::pending;
    use std::sync::mpsc as sync;
    use std::task::Waker;

    use futures::{StreamExt as _, stream};
    use http::{HeaderMap, StatusCode};

    use super::*;

    type Chunk = Result<Bytes, TransportError>;

    /// A pool of its own: other tests use the pool of the process.
    fn pool(most: usize) -> &'static Pool {
        Box::leak(Box::new(Pool::new(most)))
    }

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

    #[test]
    fn a_silent_body_keeps_no_memory() {
        for chunks in [1, 2, 3 * PIECE / 4096] {
            let (sender, mut read) = mpsc::channel(1);
            let body = stream::iter((0..chunks).map(|_| Ok(Bytes::from(vec![7; 4096])))).chain(stream::pending());
            let mut reading = Box::pin(hand_over(Box::pin(body), sender));
            let counted = allocation_counter::measure(|| {
                let mut cx = Context::from_waker(Waker::noop());
                let mut received = 0;
                while received < chunks * 4096 {
                    assert!(reading.as_mut().poll(&mut cx).is_pending());
                    received += read.try_recv().map_or(0, |piece| piece.unwrap().len());
                }
                assert!(reading.as_mut().poll(&mut cx).is_pending());
            });
            assert!(counted.bytes_current < 100, "{} bytes after {chunks} chunks", counted.bytes_current);
        }
    }

    #[tokio::test]
    async fn transports_share_a_thread_for_each_core() {
        let pool = pool(2);
        let thread_of = async |io: &IoThread| {
            let (id, found) = oneshot::channel();
            let get = async {
                id.send(thread::current().id()).unwrap();
                Ok(response(stream::empty()))
            };
            io.get(get).await.unwrap();
            found.await.unwrap()
        };
        let transports: Vec<_> = (0..200).map(|_| IoThread::of(pool)).collect();
        let mut users = HashMap::new();
        for io in &transports {
            let id = thread_of(io).await;
            *users.entry(id).or_insert(0) += 1;
            assert_eq!(thread_of(io).await, id, "a transport stays on its thread");
        }
        assert_eq!(users.into_values().collect::<Vec<_>>(), [100, 100]);
        assert_eq!(POOL.most, thread::available_parallelism().unwrap().get());
    }

    #[tokio::test]
    async fn retries_to_start_a_thread_unless_another_one_runs() {
        let pool = pool(2);
        let fail = || Err(io::ErrorKind::WouldBlock.into());
        let (first, second) = (IoThread::of(pool), IoThread::of(pool));
        assert!(first.running(fail).is_err());
        first.get(async { Ok(response(stream::empty())) }).await.unwrap();
        let shared = second.running(fail).unwrap();
        assert!(Arc::ptr_eq(&shared, &first.running(fail).unwrap()));
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
        let io = IoThread::of(pool(1));
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
