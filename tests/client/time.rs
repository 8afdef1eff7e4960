//! Timeouts, deadlines and waits, over a transport without sockets, in paused time.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use http::{HeaderMap, StatusCode};
use listwatch::client::transport::{Request, Response, ResponseFuture};
use listwatch::client::{Client, ErrorKind, List, ListOptions, Resource, Retry, Transport, TransportErrorKind};
use listwatch_testserver::recorded_pods;
use tokio::time::{Instant, Sleep, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// What a request meets: a time before the head, and a body in pieces with a time before each.
#[derive(Clone)]
struct Scripted {
    head: Duration,
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    piece: usize,
    pause: Duration,
    requests: Arc<AtomicU32>,
    bytes_sent: Arc<AtomicU64>,
}

impl Scripted {
    fn new() -> Self {
        Self {
            head: Duration::ZERO,
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: recorded_pods(),
            piece: 100_000,
            pause: Duration::ZERO,
            requests: Arc::default(),
            bytes_sent: Arc::default(),
        }
    }
}

impl Transport for Scripted {
    fn get(&self, _: Request) -> ResponseFuture<'_> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            sleep(self.head).await;
            let left = self.body.chunks(self.piece).map(Bytes::copy_from_slice).collect();
            let timer = Box::pin(sleep(self.pause));
            let body = Pieces { left, pause: self.pause, timer, bytes_sent: Arc::clone(&self.bytes_sent) };
            Ok(Response { status: self.status, headers: self.headers.clone(), body: Box::pin(body) })
        })
    }
}

struct Pieces {
    left: std::collections::VecDeque<Bytes>,
    pause: Duration,
    timer: Pin<Box<Sleep>>,
    bytes_sent: Arc<AtomicU64>,
}

impl Stream for Pieces {
    type Item = Result<Bytes, listwatch::client::TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        std::task::ready!(self.timer.as_mut().poll(cx));
        let next = Instant::now() + self.pause;
        self.timer.as_mut().reset(next);
        let piece = self.left.pop_front();
        self.bytes_sent.fetch_add(piece.as_ref().map_or(0, Bytes::len) as u64, Ordering::Relaxed);
        Poll::Ready(piece.map(Ok))
    }
}

fn pods(transport: &Scripted) -> List<[u8]> {
    let client = Client::new(transport.clone()).retry(Retry::never());
    client.list(&Resource::PODS, &ListOptions::default())
}

#[tokio::test(start_paused = true)]
async fn stalls_end_in_the_read_idle_timeout() {
    // Before the head, before the first byte, in mid-list.
    for (head, pause) in [(91, 0), (0, 91)] {
        let transport = Scripted { head: SECOND * head, pause: SECOND * pause, ..Scripted::new() };
        let started = Instant::now();
        let error = pods(&transport).into_vec().await.unwrap_err();
        assert_eq!(started.elapsed().as_secs(), 90);
        let ErrorKind::Transport(transport) = error.kind() else { panic!("{error}") };
        assert_eq!(transport.kind(), TransportErrorKind::ReadIdle);
    }
    let transport = Scripted { pause: SECOND * 20, ..Scripted::new() };
    let client = Client::new(transport.clone()).read_idle_timeout(SECOND * 21);
    client.list::<[u8]>(&Resource::PODS, &ListOptions::default()).into_vec().await.unwrap();

    let mut body = recorded_pods();
    body.truncate(150_000);
    let stalling = Scripted { body, pause: SECOND * 5, piece: 100_000, ..Scripted::new() };
    let transport = Stalling(stalling);
    let client = Client::new(transport).read_idle_timeout(SECOND * 30);
    let error = client.list::<[u8]>(&Resource::PODS, &ListOptions::default()).into_vec().await.unwrap_err();
    assert!(error.is_incomplete() && !error.is_retryable() && error.items() > 0, "{error}");
    assert!(error.to_string().contains("(stalled: no byte for 30 s)"), "{error}");
}

/// Never ends.
struct Stalling(Scripted);

impl Transport for Stalling {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async {
            let mut response = self.0.get(request).await?;
            response.body = Box::pin(response.body.chain(futures::stream::pending()));
            Ok(response)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_list() {
    for (transport, items) in [
        (Scripted { head: SECOND * 50, ..Scripted::new() }, false),
        (Scripted { pause: SECOND * 4, ..Scripted::new() }, true),
    ] {
        let started = Instant::now();
        let error = pods(&transport).deadline(SECOND * 10).into_vec().await.unwrap_err();
        assert_eq!(started.elapsed().as_secs(), 10);
        assert_eq!(error.items() > 0, items, "{error}");
        assert!(error.to_string().contains("deadline"), "{error}");
        assert!(!error.is_retryable());
    }
}

/// It takes as long as it takes: our own timeouts count the server's time only, and nothing piles up meanwhile.
#[tokio::test(start_paused = true)]
async fn a_slow_consumer_is_not_disconnected() {
    const PIECE: usize = 5000;
    let transport = Scripted { piece: PIECE, pause: SECOND, ..Scripted::new() };
    let mut items = pods(&transport).stream();
    let progress = items.progress();
    let mut seen = 0;
    while let Some(item) = items.next().await {
        item.unwrap();
        seen += 1;
        let ahead = transport.bytes_sent.load(Ordering::Relaxed) - progress.bytes();
        assert!(ahead < PIECE as u64, "{ahead} bytes were read ahead");
        // Longer than the read-idle timeout, with a poll that found nothing just before.
        if let Some(item) = items.next().now_or_never() {
            item.unwrap().unwrap();
            seen += 1;
        }
        sleep(SECOND * 100).await;
    }
    assert_eq!((seen, items.summary().unwrap().items), (120, 120));
}

/// A list that the server breaks off when its request timeout is over says what to do.
#[tokio::test(start_paused = true)]
async fn the_servers_request_timeout_is_named() {
    for (pause, said) in [(10, false), (26, false), (28, true), (80, true)] {
        let mut transport = Scripted { pause: SECOND * pause, ..Scripted::new() };
        transport.body.truncate(100_000);
        let error = pods(&transport).into_vec().await.unwrap_err();
        assert!(error.is_incomplete(), "{error}");
        let text = error.to_string();
        assert_eq!(text.contains("about or past the server's request timeout of 60 s"), said, "{text}");
        assert_eq!(text.contains(".pages"), said, "{text}");
        assert_eq!(error.is_retryable(), !said);
    }
    // The timeout that was asked for.
    let mut transport = Scripted { pause: SECOND * 5, ..Scripted::new() };
    transport.body.truncate(100_000);
    let options = ListOptions::default().timeout(SECOND * 10);
    let error = Client::new(transport).list::<[u8]>(&Resource::PODS, &options).into_vec().await.unwrap_err();
    assert!(error.to_string().contains("about or past the server's request timeout of 10 s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn retries_wait_as_long_as_asked() {
    let busy = |after: Option<&str>| {
        let mut transport = Scripted { status: StatusCode::TOO_MANY_REQUESTS, body: Vec::new(), ..Scripted::new() };
        if let Some(after) = after {
            transport.headers.insert("retry-after", after.parse().unwrap());
        }
        transport
    };
    let default = Retry::default();
    for (after, retry, requests, seconds) in [
        // With jitter, 0.2 + 0.4 + 0.8 + 1.6 s become up to twice as much.
        (None, default, 5, 3..7),
        (Some("5"), default, 5, 20..21),
        // Three times 9 is 27; one more would be over 30 s in all.
        (Some("9"), default, 4, 27..28),
        (Some("31"), default, 1, 0..1),
        (Some("31"), default.total(SECOND * 200), 5, 124..125),
        (None, Retry::never(), 1, 0..1),
        (None, default.tries(3).delay(SECOND), 3, 3..6),
    ] {
        let transport = busy(after);
        let started = Instant::now();
        let client = Client::new(transport.clone()).retry(retry);
        let list = client.list::<[u8]>(&Resource::PODS, &ListOptions::default());
        assert_eq!(list.into_vec().await.unwrap_err().code(), 429);
        assert_eq!(transport.requests.load(Ordering::Relaxed), requests, "{after:?} {retry:?}");
        assert!(seconds.contains(&started.elapsed().as_secs()), "{after:?} {retry:?}: {:?}", started.elapsed());
    }
    // A deadline ends a wait too.
    let client = Client::new(busy(Some("20")));
    let list = client.list::<[u8]>(&Resource::PODS, &ListOptions::default()).deadline(SECOND * 7);
    let started = Instant::now();
    assert!(list.into_vec().await.unwrap_err().to_string().contains("deadline"));
    assert_eq!(started.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn waits_differ() {
    let waits = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    for _ in 0..10 {
        let transport = Scripted { status: StatusCode::SERVICE_UNAVAILABLE, ..Scripted::new() };
        let started = Instant::now();
        let client = Client::new(transport).retry(Retry::default().tries(2).delay(SECOND));
        client.list::<[u8]>(&Resource::PODS, &ListOptions::default()).into_vec().await.unwrap_err();
        waits.lock().unwrap().insert(started.elapsed());
    }
    assert!(waits.lock().unwrap().len() > 1, "no jitter");
}
