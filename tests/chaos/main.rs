//! Whatever the network does, a list ends in time, complete or in an error that counts the items delivered before it,
//! and leaves no task and no socket; over real TCP.
//!
//! Each case compares every item with the whole list, searches the error for the token, and waits until the tasks and
//! sockets of the client are gone.

#![cfg(feature = "http")]

mod http1;
mod http2;
mod limits;
#[cfg(target_os = "linux")]
mod processes;
mod proxies;
mod stalls;
#[path = "../support/client.rs"]
mod support;
#[cfg(target_os = "linux")]
mod threads;
mod tls;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use listwatch::Limits;
use listwatch::client::{Client, ErrorKind, ListParams, Resource, Retry};
use listwatch_testserver::{Answer, RawAnswer, RawEnd, RawServer, Server, Synthesizer, leak, recorded_pods};
use support::opening::Opening;
use support::{body_of, decode, len_field, server};
use tokio::runtime::{Handle, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;

/// The time limit of a case, and of the client's timeouts that it does not test: sufficient for a slow machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// The client's timeouts that a case tests.
const SOON: Duration = Duration::from_millis(60);

/// A list that is sent, and its items.
struct Whole {
    body: Vec<u8>,
    items: Vec<Vec<u8>>,
}

impl Whole {
    fn new(body: Vec<u8>) -> Self {
        let items = decode(Limits::default(), [&body[..]]).unwrap().0.items;
        Self { body, items }
    }

    /// Three items, one of them empty, in a few bytes.
    fn small() -> Self {
        Self::new(body_of("v1", "PodList", &small_raw()))
    }

    fn small_json() -> Self {
        let body = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"a":"}"},{"b":[]},{}]}"#;
        Self::new(body.into())
    }

    /// A list of 3.4 MB.
    fn large() -> Self {
        Self::new(Synthesizer::new(&recorded_pods(), 400).unwrap().to_vec())
    }
}

fn small_raw() -> Vec<u8> {
    [len_field(1, &len_field(2, b"7")), len_field(2, b"first"), len_field(2, b""), len_field(2, b"last")].concat()
}

/// The runtime of the servers: the runtime of a case has only the tasks of its client.
static ELSEWHERE: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());

async fn elsewhere<T: Send + 'static>(future: impl Future<Output = std::io::Result<T>> + Send + 'static) -> T {
    ELSEWHERE.spawn(future).await.unwrap().unwrap()
}

async fn serve(answer: Answer) -> Server {
    elsewhere(Server::start(answer.always())).await
}

async fn raw(bytes: impl Into<Vec<u8>>, end: RawEnd) -> RawServer {
    elsewhere(RawServer::start([RawAnswer::new(bytes.into(), end)])).await
}

/// Runs a part of the suite on its own runtime, while no other part runs: sockets and memory are counted for the
/// process.
fn alone(part: impl Future<Output = ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    /// The memory after the first part, which loads everything that is loaded once.
    static RESIDENT: Mutex<Option<u64>> = Mutex::new(None);

    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // These open their own sockets.
    LazyLock::force(&ELSEWHERE);
    server::authority();
    let here = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = AssertUnwindSafe(|| {
        here.block_on(async {
            let before = sockets();
            part.await;
            settle(before).await;
        });
    });
    let result = catch_unwind(run);
    drop(here);
    let mut first = RESIDENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(panic) = result {
        // A backtrace takes memory, so the next part measures anew.
        *first = None;
        resume_unwind(panic);
    }
    if let Some(now) = resident() {
        let first = *first.get_or_insert(now);
        assert!(now < first + (48 << 20), "{first} bytes were resident after the first part, and now {now}");
    }
}

/// Waits until this runtime has no tasks, and the process no more sockets than before.
async fn settle(sockets_before: usize) {
    let metrics = Handle::current().metrics();
    let settled = timeout(DEADLINE, async {
        while metrics.num_alive_tasks() > 0 || sockets() > sockets_before {
            yield_now().await;
        }
    });
    let left = || format!("{} tasks, {} sockets, expected {sockets_before}", metrics.num_alive_tasks(), sockets());
    assert!(settled.await.is_ok(), "still open: {}", left());
}

/// The number of open sockets of the process; 0 where the system has no `/proc`.
fn sockets() -> usize {
    if cfg!(not(target_os = "linux")) {
        return 0;
    }
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// The bytes of memory of the process, where the system has `/proc`.
#[cfg_attr(target_os = "linux", expect(clippy::unnecessary_wraps, reason = "other systems return `None`"))]
fn resident() -> Option<u64> {
    #[cfg(target_os = "linux")]
    return Some(support::memory::memory("VmRSS"));
    #[cfg(not(target_os = "linux"))]
    None
}

/// A transport whose connect timeout no case reaches, unless it sets a shorter one.
fn builder(url: &str, http2: bool) -> Opening {
    server::builder(url, http2).connect_timeout(DEADLINE)
}

fn client(url: &str, http2: bool) -> Client {
    client_of(builder(url, http2))
}

/// A client that does not retry.
fn client_of(opening: impl Into<Opening>) -> Client {
    Client::new(opening.into().open()).retry(Retry::never()).read_idle_timeout(DEADLINE)
}

/// How a list ended.
#[derive(Debug)]
struct Ending {
    /// `complete`, or the error as it is displayed.
    text: String,
    delivered: usize,
    /// The number of bytes of the body that arrived, where it is incomplete.
    bytes: Option<u64>,
}

impl Ending {
    /// Checks that the text begins with one of these.
    #[track_caller]
    fn expect(&self, case: &str, expected: &[&str]) {
        assert!(expected.iter().any(|expected| self.text.starts_with(expected)), "{case}: {self:?}");
    }
}

const BROKEN: &str = "the connection was interrupted";
const CONNECT: &str = "cannot connect to ";
const NOTHING: &str = "the server has ";
const INCOMPLETE: &str = "incomplete: the body ended before the list did";
const STALLED: &str = "incomplete: the body ended before the list did (the server has sent no byte for ";

/// Lists within the deadline; checks that the delivered items are exact and counted, and that no task or socket
/// remains.
async fn list(case: &str, client: Client, whole: &Whole) -> Ending {
    list_within(case, client, whole, Limits::default()).await
}

async fn list_within(case: &str, client: Client, whole: &Whole, limits: Limits) -> Ending {
    let before = sockets();
    let ending = timeout(DEADLINE, async {
        let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default()).limits(limits);
        let mut items = list;
        let mut delivered = 0;
        let error = loop {
            match items.next().await {
                Some(Ok(item)) => {
                    assert!(whole.items.get(delivered).is_some_and(|exact| **exact == *item), "{case}: {delivered}");
                    delivered += 1;
                }
                Some(Err(error)) => break error,
                None => {
                    let summary = items.summary().unwrap();
                    assert_eq!((delivered, summary.items), (whole.items.len(), delivered as u64), "{case}");
                    return Ending { text: "complete".to_owned(), delivered, bytes: None };
                }
            }
        };
        assert_eq!(error.items(), delivered as u64, "{case}: {error}");
        assert!(items.next().await.is_none() && items.summary().is_none(), "{case}: after {error}");
        let shown = format!("{error}\n{error:?}\n{items:?}\n{client:?}");
        assert_eq!(leak(shown.as_bytes()), None, "{case}");
        let bytes = match error.kind() {
            ErrorKind::Incomplete { bytes, .. } => Some(*bytes),
            _ => None,
        };
        Ending { text: error.to_string(), delivered, bytes }
    });
    let ending = ending.await.unwrap_or_else(|_| panic!("{case}: no end within {DEADLINE:?}"));
    drop(client);
    settle(before).await;
    ending
}

/// Lists from a server that sends a part and then nothing more, and expects the client to time out.
///
/// On a busy machine a short timeout may end before that part arrives. The case is then repeated with a longer timeout,
/// so that only the last attempt can fail, and a fast machine waits no longer than it must.
async fn list_until_stalled(case: &str, url: &str, http2: bool, whole: &Whole, expected: &[&str]) -> Ending {
    let mut patience = SOON;
    loop {
        let ending = list(case, client(url, http2).read_idle_timeout(patience), whole).await;
        if patience > SOON * 200 || expected.iter().any(|expected| ending.text.starts_with(expected)) {
            ending.expect(case, expected);
            return ending;
        }
        patience *= 4;
    }
}

/// Returns the head of an HTTP/1.1 answer with this framing, and the bytes after the head.
fn framed(framing: &str, body: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let head = |header: &str| format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\n").into_bytes();
    match framing {
        "length" => (head(&format!("content-length: {}", body.len())), body.to_vec()),
        "chunked" => {
            let mut chunks = Vec::new();
            for chunk in body.chunks(10) {
                chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                chunks.extend_from_slice(&[chunk, b"\r\n"].concat());
            }
            (head("transfer-encoding: chunked"), [&chunks[..], b"0\r\n\r\n"].concat())
        }
        _ => (head("connection: close"), body.to_vec()),
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;

/// The settings, and the head of a 200 on the first stream.
fn http2_head() -> Vec<u8> {
    [frame(SETTINGS, 0, 0, b""), frame(HEADERS, 4, 1, b"\x88")].concat()
}

fn data(body: &[u8]) -> Vec<u8> {
    body.chunks(16_000).flat_map(|chunk| frame(DATA, 0, 1, chunk)).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut gzip = Vec::new();
    flate2::read::GzEncoder::new(bytes, flate2::Compression::fast()).read_to_end(&mut gzip).unwrap();
    gzip
}
