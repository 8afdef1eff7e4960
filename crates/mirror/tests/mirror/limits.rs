//! Readers that are slow, many, or gone.

use std::time::Duration;

use futures::future::join_all;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use listwatch_mirror::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::support::{Running, Upstream, code, mirror, read_all};

const SOON: Duration = Duration::from_millis(300);

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

#[tokio::test]
async fn a_thousand_slow_connections_delay_nobody() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream).limits(limits(|limits| limits.header_timeout = SOON * 10)));
    let starts = ["", "G", "PRI * HTTP/2.0\r\n", "GET /version HTTP/1.1\r\nHost: localho"];
    let mut slow = Vec::new();
    for n in 0..1000 {
        let mut io = mirror.connect().await;
        io.write_all(starts[n % starts.len()].as_bytes()).await.unwrap();
        slow.push(io);
    }
    assert_eq!(code(&mirror.get("/version", "").await), "200");
    // The mirror disconnects all of them.
    let answers = join_all(slow.iter_mut().map(read_all)).await;
    assert!(answers.iter().all(|answer| !answer.contains(" 200 ")));
    assert_eq!(code(&mirror.get("/version", "").await), "200");
}

#[tokio::test]
async fn the_longest_time_is_no_limit() {
    let upstream = Upstream::new();
    let longest = |limits: &mut Limits| {
        limits.header_timeout = Duration::MAX;
        limits.stall_timeout = Duration::MAX;
        limits.list_timeout = Duration::MAX;
        limits.idle_timeout = Duration::MAX;
        limits.drain_timeout = Duration::MAX;
    };
    let mirror = Running::start(mirror(&upstream).limits(limits(longest)));
    for path in ["/version", "/api/v1/pods"] {
        assert_eq!(code(&mirror.get(path, "").await), "200", "{path}");
    }
}

#[tokio::test]
async fn further_connections_wait_for_a_place() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream).limits(limits(|limits| limits.connections = 1)));
    let mut first = mirror.connect().await;
    let watch = format!("GET /api/v1/nodes?watch=1 HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", mirror.address.port());
    first.write_all(watch.as_bytes()).await.unwrap();
    upstream.wait_for_open(1).await;
    let request = mirror.get("/version", "");
    let mut request = Box::pin(request);
    assert!(timeout(SOON, &mut request).await.is_err());
    drop(first);
    assert_eq!(code(&request.await), "200");
}

/// Neither connections without a request, nor those of a reader that keeps them open.
#[tokio::test]
async fn idle_connections_make_room() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream).limits(limits(|limits| limits.connections = 8)));
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut io = mirror.connect().await;
        io.write_all(b"GET /version HT").await.unwrap();
        idle.push(io);
    }
    assert_eq!(code(&mirror.get("/version", "").await), "200");
    assert_eq!(read_all(&mut idle[0]).await, "", "the oldest made room");
}

#[tokio::test]
async fn disconnects_a_reader_that_stalls_over_http_1() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream).limits(limits(|limits| limits.stall_timeout = SOON)));
    let mut io = mirror.connect().await;
    let request = format!("GET /openapi/endless HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", mirror.address.port());
    io.write_all(request.as_bytes()).await.unwrap();
    upstream.wait_for_open(1).await;
    upstream.wait_for_open(0).await;
}

/// The reader accepts the frames of the connection, and none of the body.
#[tokio::test]
async fn resets_a_response_that_stalls_over_http_2() {
    let upstream = Upstream::new();
    let limits = limits(|limits| (limits.stall_timeout, limits.header_timeout) = (SOON, SOON));
    let mirror = Running::start(mirror(&upstream).limits(limits));
    let io = TokioIo::new(mirror.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    let uri = format!("http://{}/openapi/endless", mirror.address);
    let response = sender.send_request(Request::get(uri).body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    upstream.wait_for_open(1).await;
    upstream.wait_for_open(0).await;
    let mut body = response.into_body();
    let ended = loop {
        match body.frame().await {
            Some(Ok(_)) => {}
            ended => break ended,
        }
    };
    assert!(ended.unwrap().is_err(), "it is reset");
    assert!(!connection.is_finished(), "other responses go on");
}

#[tokio::test]
async fn closes_idle_connections() {
    let upstream = Upstream::new();
    let limits = limits(|limits| (limits.idle_timeout, limits.header_timeout) = (SOON, SOON));
    let mirror = Running::start(mirror(&upstream).limits(limits));
    let io = TokioIo::new(mirror.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    let uri = format!("http://{}/version", mirror.address);
    let response = sender.send_request(Request::get(uri).body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "/version");
    assert!(connection.await.is_ok());
}

#[tokio::test]
async fn refuses_large_headers() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream));
    let response = mirror.get("/version", &format!("X: {}\r\n", "a".repeat(100 << 10))).await;
    assert_eq!(code(&response), "431", "{response}");
    assert!(upstream.paths().is_empty());
}

#[tokio::test]
async fn drains_on_shutdown() {
    let upstream = Upstream::new();
    let mut mirror = Running::start(mirror(&upstream));
    let mut idle = mirror.connect().await;
    let mut watching = mirror.connect().await;
    let head = format!("HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", mirror.address.port());
    watching.write_all(format!("GET /api/v1/nodes?watch=1 {head}").as_bytes()).await.unwrap();
    let mut started = [0; 12];
    watching.read_exact(&mut started).await.unwrap();
    assert_eq!(&started, b"HTTP/1.1 200");
    mirror.stop();
    // The body ends as a watch does, and the connection is closed.
    assert!(read_all(&mut watching).await.ends_with("event\n\r\n0\r\n\r\n"));
    assert_eq!(read_all(&mut idle).await, "");
    let address = mirror.address;
    mirror.stopped().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn ends_readers_that_do_not_end_themselves() {
    let upstream = Upstream::new();
    let mut mirror = Running::start(mirror(&upstream).limits(limits(|limits| limits.drain_timeout = SOON)));
    let mut reader = mirror.connect().await;
    let request = format!("GET /openapi/endless HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", mirror.address.port());
    reader.write_all(request.as_bytes()).await.unwrap();
    upstream.wait_for_open(1).await;
    mirror.stop();
    mirror.stopped().await;
    // Without the end of the body, the reader sees that it is not complete.
    assert!(!read_all(&mut reader).await.ends_with("0\r\n\r\n"));
    upstream.wait_for_open(0).await;
}
