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
    let is_from_this_host = match (stream.peer_addr(), stream.local_addr()) {
        (Ok(reader), Ok(own)) => is_same_host(reader, own),
        _ => false,
    };
    let io = StallTimeout::new(stream, shared.limits.stall_timeout);
    let Some(tls) = tls else { return http(shared, io, is_from_this_host).await };
    let shutdown = shared.shutdown();
    tokio::select! {
        biased;
        () = shutdown => {}
        shaken = timeout(shared.limits.header_timeout, tls.accept(io)) => {
            // The handshake fails, for example, for a client that does not trust the certificate.
            if let Ok(Ok(io)) = shaken {
                http(shared, io, is_from_this_host).await;
            }
        }
    }
}

/// Returns true if the reader is on the host of the mirror, given the two addresses of its connection.
fn is_same_host(reader: SocketAddr, own: SocketAddr) -> bool {
    let [reader, own] = [reader, own].map(|address| address.ip().to_canonical());
    reader.is_loopback() || reader == own
}

/// Serves HTTP/1.1 or HTTP/2, whichever the reader speaks, and disconnects readers that stall.
async fn http(shared: Arc<Shared>, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, is_from_this_host: bool) {
    let responses = Arc::new(Responses::default());
    let service = service_fn(|request: Request<Incoming>| {
        let (shared, started) = (Arc::clone(&shared), responses.start());
        async move {
            let mut response = answer::answer(&shared, request, is_from_this_host).await;
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
        .header_read_timeout(limits.header_timeout)
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
    use super::*;

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
