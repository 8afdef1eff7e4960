//! One connection: TLS, HTTP/1.1 and HTTP/2, and the limits on its reader.
//!
//! A reader may be slow, gone or hostile. Each of these detects another case:
//!
//! | detection | reader |
//! |---|---|
//! | [`StallTimeout`] | accepts no byte of the connection |
//! | [`StreamExecutor`] | accepts frames of the connection, but no byte of one HTTP/2 stream, which then ends alone |
//! | the due time of a body | accepts a few bytes now and then, so that a list is held for hours |
//! | [`ConnectionActivity::Idle`] | sends no request |
//! | HTTP/2 pings, TCP keepalive | is gone |
//!
//! # Before you change this file
//!
//! - hyper's `header_read_timeout` starts before the first byte of a request, so it also ends idle connections. It is
//!   the longer of both limits. The first check of a connection, after `header_timeout`, limits its first request.
//! - A request may begin and end between two checks. [`OpenResponses`] therefore keeps the time of the last use.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use listwatch::internal::WarningLimit;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use super::connections::{Connection, Connections};
use super::heads::{HeadMeter, UNIT, UnfinishedHead};
use super::open_responses::ConnectionActivity;
use super::reader::Reader;
use super::stall::StallTimeout;
use super::streams::{StreamExecutor, set_response};
use crate::fairness::{FairPool, Peer};
use crate::metrics::MirrorMetrics;
use crate::response::ResponseBody;
use crate::settings::Limits;
use crate::shutdown::Shutdown;

/// HTTP/2 pings, and how long their answer may take: they detect readers that are gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The idle time before the first keepalive probe of TCP, and between probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The bytes of one HTTP/2 response that wait for the reader's window.
const STREAM_BUFFER: usize = 64 << 10;

/// The bytes of an HTTP/1.1 connection that wait for the reader. With larger headers allowed, it is their limit.
const CONNECTION_BUFFER: usize = 64 << 10;

/// Answers requests: all steps after this one.
pub(crate) trait RequestHandler: Send + Sync + 'static {
    /// Answers a request. Errors are responses too.
    fn handle_request(
        &self,
        request: Request<Incoming>,
        reader: Reader,
    ) -> impl Future<Output = Response<ResponseBody>> + Send;
}

/// Serves the connections of readers.
pub(crate) struct HttpServer<H> {
    pub(super) limits: Limits,
    pub(super) shutdown: Shutdown,
    pub(super) metrics: MirrorMetrics,
    connections: Connections,
    /// Of the bytes of unfinished heads.
    heads: FairPool,
    warnings: WarningLimit,
    handler: Arc<H>,
}

impl<H: RequestHandler> HttpServer<H> {
    pub(crate) fn new(
        limits: Limits,
        connections: Connections,
        metrics: MirrorMetrics,
        shutdown: Shutdown,
        handler: Arc<H>,
    ) -> Arc<Self> {
        let units = limits.unfinished_header_bytes / UNIT;
        let heads = FairPool::new(units, 0, metrics.pool("unfinished_headers_kib", units));
        Arc::new(Self { limits, shutdown, metrics, connections, heads, warnings: WarningLimit::default(), handler })
    }

    /// Serves a connection once it has a place, until it ends or makes room for another one.
    pub(super) async fn open_connection(self: Arc<Self>, stream: TcpStream, peer: Peer, tls: Option<TlsAcceptor>) {
        let opened = {
            let shutdown = self.shutdown.started();
            tokio::select! {
                biased;
                opened = self.connections.open(peer) => opened,
                () = shutdown => return,
            }
        };
        let Ok(opened) = opened else {
            if let Some(left_out) = self.warnings.admit("connections") {
                let limit = self.limits.connections;
                tracing::warn!(name: "listwatch.mirror.connections", limit, left_out, "too many connections");
            }
            return;
        };
        let connection = opened.connection.clone();
        tokio::select! {
            biased;
            () = opened.connection.evicted() => {}
            () = self.serve_connection(stream, tls, connection) => {}
        }
    }

    /// Serves a connection until it ends.
    async fn serve_connection(self: Arc<Self>, stream: TcpStream, tls: Option<TlsAcceptor>, connection: Connection) {
        let _open = self.metrics.open_connection();
        // Both fail only for a closed socket.
        _ = stream.set_nodelay(true);
        _ = SockRef::from(&stream)
            .set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE));
        // Without addresses, the connection is closed already.
        let (Ok(remote), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
        let reader = Reader::new(remote, local, connection);
        let io = StallTimeout::new(stream, self.limits.stall_timeout);
        let Some(tls) = tls else { return self.serve_http(io, reader).await };
        let shutdown = self.shutdown.started();
        tokio::select! {
            biased;
            () = shutdown => {}
            shaken = timeout(self.limits.header_timeout, tls.accept(io)) => {
                // The handshake fails, for example, for a client that does not trust the certificate.
                if let Ok(Ok(io)) = shaken {
                    self.serve_http(io, reader).await;
                }
            }
        }
    }

    /// Serves HTTP/1.1 or HTTP/2, whichever the reader speaks, and disconnects readers that stall.
    pub(super) async fn serve_http(
        self: Arc<Self>,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        reader: Reader,
    ) {
        let (connection, head) = (reader.connection.clone(), UnfinishedHead::default());
        let responses = connection.responses();
        let io = HeadMeter::new(io, connection.clone(), self.heads.clone(), head.clone());
        let service = service_fn(|request: Request<Incoming>| {
            head.finish();
            let is_stream = request.version() == Version::HTTP_2;
            let (server, started, reader) = (Arc::clone(&self), responses.start_response(is_stream), reader.clone());
            async move {
                // Here, because this is polled by the task of the stream.
                set_response(started.progress());
                let mut response = server.handler.handle_request(request, reader).await;
                // The counter of the resource that the body is of.
                let bytes = response.extensions_mut().remove().unwrap_or_else(|| server.metrics.sent_bytes(None));
                let permit = response.extensions_mut().remove();
                let track = |body| started.track_body(body, bytes, server.limits.list_timeout).permit(permit);
                Ok::<_, Infallible>(response.map(track))
            }
        });
        let limits = &self.limits;
        let builder = connection_builder(limits);
        let mut serving = pin!(builder.serve_connection(TokioIo::new(io), service));
        let mut shutdown = pin!(self.shutdown.started());
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
                    match responses.check_activity() {
                        ConnectionActivity::Overdue | ConnectionActivity::Idle { is_new: true, .. } => return,
                        ConnectionActivity::Busy => {}
                        ConnectionActivity::Idle { since, .. } if now < since + limits.idle_timeout => {
                            next_check = next_check.min(since + limits.idle_timeout);
                        }
                        ConnectionActivity::Idle { .. } if closing => return,
                        ConnectionActivity::Idle { .. } => {
                            closing = true;
                            serving.as_mut().graceful_shutdown();
                        }
                    }
                }
            }
        }
    }
}

fn connection_builder(limits: &Limits) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor { stall_timeout: limits.stall_timeout });
    builder
        .http1()
        .timer(TokioTimer::new())
        // It begins before the first byte of the headers, so it also ends idle connections. `serve_http` limits the
        // first request.
        .header_read_timeout(limits.header_timeout.max(limits.idle_timeout))
        .max_buf_size(limits.header_bytes.max(CONNECTION_BUFFER));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
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
    use hyper_util::rt::TokioExecutor;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::sleep;

    use super::*;
    use crate::testing::{FakeApiServer, http_server, local_reader};

    fn get() -> Request<Empty<bytes::Bytes>> {
        Request::get("http://localhost/livez").header(http::header::HOST, "localhost").body(Empty::new()).unwrap()
    }

    /// Idle connections of a reader that sends a request now and then, over both versions of HTTP.
    #[tokio::test(start_paused = true)]
    async fn closes_only_connections_without_requests() {
        let server = http_server(FakeApiServer::new(1, 10).mirror(Limits::default()).await);
        let idle = server.limits.idle_timeout;
        for every in [Duration::from_secs(1), Duration::from_secs(7), idle * 99 / 100] {
            let [first, second] = [(); 2].map(|()| {
                let (reader, own) = duplex(1 << 16);
                tokio::spawn(Arc::clone(&server).serve_http(own, local_reader()));
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
            assert!((idle..=idle + server.limits.stall_timeout).contains(&last.elapsed()), "{every:?}");
        }
    }

    /// A response is a use of its connection until the reader has it, whether it is a list or one object.
    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_has_the_time_of_a_list() {
        let server = http_server(FakeApiServer::new(1, 1_000_000).mirror(Limits::default()).await);
        for path in ["/api/v1/namespaces/web/configmaps/000000", "/api/v1/configmaps?resourceVersion=0"] {
            for (every, is_complete) in [(4, true), (10, false)] {
                let (mut reader, own) = duplex(1 << 14);
                tokio::spawn(Arc::clone(&server).serve_http(own, local_reader()));
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
                assert!(started.elapsed() < server.limits.list_timeout + Duration::from_secs(30), "{path}");
            }
        }
    }

    /// The requests of all informers of a client share a connection.
    #[tokio::test(start_paused = true)]
    async fn a_paused_response_ends_alone() {
        let server = http_server(FakeApiServer::new(1, 1_000_000).mirror(Limits::default()).await);
        let uri = |path: &str| format!("http://localhost/api/v1{path}");
        let request = |path: &str| Request::get(uri(path)).body(Empty::<bytes::Bytes>::new()).unwrap();
        for path in ["/namespaces/web/configmaps/000000", "/configmaps?resourceVersion=0", "/configmaps?watch=1"] {
            // With a window of 0, the mirror cannot send one byte.
            for window in [0, 1000] {
                let (reader, own) = duplex(1 << 16);
                tokio::spawn(Arc::clone(&server).serve_http(own, local_reader()));
                let handshake = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(window)
                    .handshake(TokioIo::new(reader));
                let (mut sender, connection) = handshake.await.unwrap();
                let ended = tokio::spawn(connection);
                let (started, paused) = (Instant::now(), sender.send_request(request(path)).await.unwrap());
                let head = sender.send_request(Request::head("http://localhost/livez").body(Empty::new()).unwrap());
                assert!(head.await.unwrap().status().is_success());
                sleep(server.limits.stall_timeout).await;
                // What was received before is read first.
                let mut body = paused.into_body();
                while let Some(Ok(_)) = body.frame().await {}
                assert_eq!(started.elapsed().as_secs(), 5, "{path} {window}");
                assert!(!ended.is_finished());
                if window > 0 {
                    let response = sender.send_request(get()).await.unwrap();
                    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn closes_connections_whose_first_request_does_not_come() {
        let server = http_server(FakeApiServer::new(1, 10).mirror(Limits::default()).await);
        for start in ["", "GET /livez HT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
            let (mut reader, own) = duplex(1 << 16);
            tokio::spawn(Arc::clone(&server).serve_http(own, local_reader()));
            reader.write_all(start.as_bytes()).await.unwrap();
            let started = Instant::now();
            _ = reader.read_to_end(&mut Vec::new()).await;
            assert_eq!(started.elapsed().as_secs(), server.limits.header_timeout.as_secs(), "{start}");
        }
    }
}
