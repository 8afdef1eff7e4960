//! The accept loop, connections and their limits.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use crate::answer;
use crate::mirror::Limits;
use crate::review::Peer;
use crate::shared::Shared;
use crate::stall::{Activity, Responses, StallTimeout};
use crate::tls::Tls;

/// The interval at which the files of the certificate are read.
const RELOAD: Duration = Duration::from_secs(60);

/// The delay after a failed accept, for example with too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// HTTP/2 pings, and how long their answer may take: they detect readers that are gone.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The idle time before the first keepalive probe of TCP, and between probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The bytes of one HTTP/2 response that wait for the reader's window.
const STREAM_BUFFER: usize = 64 << 10;

/// The bytes of an HTTP/1.1 connection that wait for the reader. With larger headers allowed, it is their limit.
const CONNECTION_BUFFER: usize = 64 << 10;

pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    mut tls: Option<Tls>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let permits = Arc::new(Semaphore::new(shared.limits.connections));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut reload = interval(RELOAD);
    reload.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = async {
            // Further connections wait in the backlog.
            let permit = Arc::clone(&permits).acquire_owned().await;
            (listener.accept().await, permit)
        };
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            _ = reload.tick() => if let Some(tls) = &mut tls {
                tls.reload();
            },
            (accepted, permit) = accepted => match accepted {
                Ok((stream, _)) => {
                    let (shared, tls) = (Arc::clone(&shared), tls.as_ref().map(|tls| tls.acceptor().clone()));
                    connections.spawn(async move {
                        let _permit = permit;
                        connection(shared, stream, tls).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(name: "listwatch.mirror.accept", %error, "cannot accept a connection");
                    sleep(ACCEPT_AGAIN).await;
                }
            },
        }
    }
    drop(listener);
    shared.start_shutdown();
    let drained = async { while connections.join_next().await.is_some() {} };
    if timeout(shared.limits.drain_timeout, drained).await.is_err() {
        connections.shutdown().await;
    }
    Ok(())
}

async fn connection(shared: Arc<Shared>, stream: TcpStream, tls: Option<TlsAcceptor>) {
    let _open = shared.metrics.connection();
    // Both fail only for a closed socket.
    _ = stream.set_nodelay(true);
    _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE));
    // Without addresses, the connection is closed already.
    let (Ok(reader), Ok(own)) = (stream.peer_addr(), stream.local_addr()) else { return };
    let from = From { is_this_host: is_same_host(reader, own), peer: Peer::new(reader.ip()) };
    let io = StallTimeout::new(stream, shared.limits.stall_timeout);
    let Some(tls) = tls else { return http(shared, io, from).await };
    let shutdown = shared.shutdown();
    tokio::select! {
        biased;
        () = shutdown => {}
        shaken = timeout(shared.limits.header_timeout, tls.accept(io)) => {
            // The handshake fails, for example, for a client that does not trust the certificate.
            if let Ok(Ok(io)) = shaken {
                http(shared, io, from).await;
            }
        }
    }
}

/// Where a connection comes from.
#[derive(Clone, Copy)]
struct From {
    is_this_host: bool,
    peer: Peer,
}

/// Returns true if the reader is on the host of the mirror, given the two addresses of its connection.
fn is_same_host(reader: SocketAddr, own: SocketAddr) -> bool {
    let [reader, own] = [reader, own].map(|address| address.ip().to_canonical());
    reader.is_loopback() || reader == own
}

/// Serves HTTP/1.1 or HTTP/2, whichever the reader speaks, and disconnects readers that stall.
async fn http(shared: Arc<Shared>, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, from: From) {
    let responses = Arc::new(Responses::default());
    let service = service_fn(|mut request: Request<Incoming>| {
        let (shared, started) = (Arc::clone(&shared), responses.start());
        request.extensions_mut().insert(from.peer);
        async move {
            let mut response = answer::answer(&shared, request, from.is_this_host).await;
            let bytes = response.extensions_mut().remove().unwrap_or_else(|| shared.metrics.bytes(None));
            Ok::<_, Infallible>(response.map(|body| started.body(body, bytes, shared.limits.list_timeout)))
        }
    });
    let limits = &shared.limits;
    let builder = builder(limits);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(io), service));
    let mut shutdown = pin!(shared.shutdown());
    let mut closing = false;
    let mut next_check = Instant::now() + limits.header_timeout;
    loop {
        tokio::select! {
            biased;
            // It fails if the reader disconnects or breaks the protocol.
            _ = serving.as_mut() => return,
            () = shutdown.as_mut(), if !closing => {
                closing = true;
                serving.as_mut().graceful_shutdown();
            }
            () = sleep_until(next_check) => {
                let now = Instant::now();
                next_check = now + limits.stall_timeout;
                match responses.check() {
                    Activity::Stalled | Activity::Idle { is_new: true, .. } => return,
                    Activity::Busy => {}
                    Activity::Idle { since, .. } if now < since + limits.idle_timeout => {
                        next_check = next_check.min(since + limits.idle_timeout);
                    }
                    Activity::Idle { .. } if closing => return,
                    Activity::Idle { .. } => {
                        closing = true;
                        serving.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    }
}

fn builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // It begins before the first byte of the headers, so it also ends idle connections. `http` limits the first
        // request.
        .header_read_timeout(limits.header_timeout.max(limits.idle_timeout))
        .max_buf_size(limits.header_bytes.max(CONNECTION_BUFFER));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(limits.streams_per_connection)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(STREAM_BUFFER);
    builder
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Empty};
    use hyper::client::conn::{http1, http2};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;
    use crate::testing::Api;

    fn get() -> Request<Empty<bytes::Bytes>> {
        Request::get("http://localhost/livez").header(http::header::HOST, "localhost").body(Empty::new()).unwrap()
    }

    /// Idle connections of a reader that sends a request now and then, over both versions of HTTP.
    #[tokio::test(start_paused = true)]
    async fn closes_only_connections_without_requests() {
        let shared = Api::new(1, 10).mirror(Limits::default()).await;
        let from = From { is_this_host: true, peer: Peer::new([127, 0, 0, 1].into()) };
        let idle = shared.limits.idle_timeout;
        for every in [Duration::from_secs(1), Duration::from_secs(7), idle * 99 / 100] {
            let [first, second] = [(); 2].map(|()| {
                let (reader, own) = duplex(1 << 16);
                tokio::spawn(http(Arc::clone(&shared), own, from));
                TokioIo::new(reader)
            });
            let (mut one, connection) = http1::handshake(first).await.unwrap();
            let one_ended = tokio::spawn(connection);
            let (mut two, connection) = http2::handshake(TokioExecutor::new(), second).await.unwrap();
            let two_ended = tokio::spawn(connection);
            let started = Instant::now();
            while started.elapsed() < 5 * idle {
                for response in [one.send_request(get()).await.unwrap(), two.send_request(get()).await.unwrap()] {
                    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
                }
                sleep(every).await;
            }
            let last = Instant::now() - every;
            one_ended.await.unwrap().unwrap();
            assert!((idle..=idle + Duration::from_secs(1)).contains(&last.elapsed()), "{every:?}");
            two_ended.await.unwrap().unwrap();
            assert!((idle..=idle + shared.limits.stall_timeout).contains(&last.elapsed()), "{every:?}");
        }
    }

    /// A response is a use of its connection until the reader has it, whether it is a list or one object.
    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_has_the_time_of_a_list() {
        let shared = Api::new(1, 1_000_000).mirror(Limits::default()).await;
        let from = From { is_this_host: true, peer: Peer::new([127, 0, 0, 1].into()) };
        for path in ["/api/v1/namespaces/web/configmaps/000000", "/api/v1/configmaps?resourceVersion=0"] {
            for (every, is_complete) in [(4, true), (10, false)] {
                let (mut reader, own) = duplex(1 << 14);
                tokio::spawn(http(Arc::clone(&shared), own, from));
                let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
                reader.write_all(request.as_bytes()).await.unwrap();
                let (started, mut received) = (Instant::now(), vec![0; 1 << 14]);
                let mut len = 0;
                loop {
                    sleep(Duration::from_secs(every)).await;
                    match reader.read_exact(&mut received).await {
                        Ok(read) => len += read,
                        Err(_) => break,
                    }
                }
                assert_eq!(len > 980_000, is_complete, "{path}: {len} bytes in {:?}", started.elapsed());
                assert!(started.elapsed() < shared.limits.list_timeout + 2 * shared.limits.stall_timeout, "{path}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn closes_connections_whose_first_request_does_not_come() {
        let shared = Api::new(1, 10).mirror(Limits::default()).await;
        let from = From { is_this_host: true, peer: Peer::new([127, 0, 0, 1].into()) };
        for start in ["", "GET /livez HT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
            let (mut reader, own) = duplex(1 << 16);
            tokio::spawn(http(Arc::clone(&shared), own, from));
            reader.write_all(start.as_bytes()).await.unwrap();
            let started = Instant::now();
            _ = reader.read_to_end(&mut Vec::new()).await;
            assert_eq!(started.elapsed().as_secs(), shared.limits.header_timeout.as_secs(), "{start}");
        }
    }

    #[test]
    fn distinguishes_readers_on_this_host() {
        for (reader, own, expected) in [
            ("127.0.0.2:5", "127.0.0.1:1", true),
            ("[::1]:5", "[::1]:1", true),
            ("[::ffff:127.0.0.1]:5", "[::ffff:127.0.0.1]:1", true),
            ("10.0.0.1:5", "10.0.0.1:1", true),
            ("[::ffff:10.0.0.1]:5", "10.0.0.1:1", true),
            ("10.0.0.2:5", "10.0.0.1:5", false),
            ("[2001:db8::2]:5", "[2001:db8::1]:5", false),
            ("0.0.0.0:5", "10.0.0.1:5", false),
        ] {
            assert_eq!(is_same_host(reader.parse().unwrap(), own.parse().unwrap()), expected, "{reader} {own}");
        }
    }
}
