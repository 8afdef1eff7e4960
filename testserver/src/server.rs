//! The HTTP server.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Version};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::Answer;
use crate::tasks::Tasks;
#[cfg(feature = "tls")]
use crate::tls::Tls;

/// A request, as it arrived. (Its body is not read.)
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// `GET` for lists and watches.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// All headers; the names are in lower case.
    pub headers: HeaderMap,
    /// HTTP/1.1 or HTTP/2.
    pub version: Version,
}

/// An HTTP/1.1 and HTTP/2 server on a port of its own on 127.0.0.1, which lives as long as this value.
///
/// Without TLS a client speaks HTTP/2 by prior knowledge; with TLS, ALPN decides. Dropping the server aborts its tasks, which
/// closes every connection.
pub struct Server {
    addr: SocketAddr,
    state: Arc<State>,
    tasks: Tasks,
    #[cfg(feature = "tls")]
    ca_pem: Option<String>,
}

impl Server {
    /// Starts a server on the current tokio runtime, with IO enabled. `handler` is called with every request and the number of
    /// requests before it; [`Answer::always`] and [`Answer::in_turn`] make simple ones. A handler that panics closes the
    /// connection.
    ///
    /// # Errors
    /// When no port on 127.0.0.1 can be had.
    pub async fn start(
        handler: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (listener, addr) = listen().await?;
        let server = Self::new(addr, handler);
        let (state, tasks) = (Arc::clone(&server.state), server.tasks.clone());
        server.tasks.spawn(async move {
            loop {
                let connection = state.open(accept(&listener).await);
                tasks.spawn(connection.serve(tasks.clone()));
            }
        });
        Ok(server)
    }

    /// [`start`](Self::start) with TLS 1.3, under a certificate for `127.0.0.1` and `localhost` of an authority made for this
    /// server, see [`ca_pem`](Self::ca_pem). A connection that fails its handshake counts as accepted.
    ///
    /// # Errors
    /// When no port on 127.0.0.1 can be had.
    #[cfg(feature = "tls")]
    pub async fn start_tls(
        handler: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let tls = Tls::new(&[b"h2", b"http/1.1"])?;
        let (listener, addr) = listen().await?;
        let mut server = Self::new(addr, handler);
        server.ca_pem = Some(tls.ca_pem.clone());
        let (state, tasks) = (Arc::clone(&server.state), server.tasks.clone());
        server.tasks.spawn(async move {
            loop {
                let connection = state.open(accept(&listener).await);
                let (acceptor, executor) = (tls.acceptor.clone(), tasks.clone());
                tasks.spawn(async move {
                    let Connection { io, state, open } = connection;
                    if let Ok(io) = acceptor.accept(io).await {
                        Connection { io, state, open }.serve(executor).await;
                    }
                });
            }
        });
        Ok(server)
    }

    /// `http://127.0.0.1:PORT` or `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        #[cfg(feature = "tls")]
        if self.ca_pem.is_some() {
            return format!("https://{}", self.addr);
        }
        format!("http://{}", self.addr)
    }

    /// Where the server listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The certificate of the authority that clients of a TLS server must trust; `None` without TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// How many bytes of bodies, behind compression, were handed to connections so far. A connection holds some hundreds of
    /// kilobytes, and the sockets of both sides some more, that the client has not read yet.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.state.bytes_sent.load(Ordering::Relaxed)
    }

    /// How many connections are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        *self.state.open.borrow()
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::Relaxed)
    }

    /// Waits until no connection is open; clients close theirs when they are dropped.
    pub async fn no_connections(&self) {
        let mut open = self.state.open.subscribe();
        // The sender lives in the state, so that this cannot fail.
        let _ = open.wait_for(|open| *open == 0).await;
    }

    /// All requests so far, in the order of their arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.requests().clone()
    }

    fn new(addr: SocketAddr, handler: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            addr,
            state: Arc::new(State::new(handler)),
            tasks: Tasks::new(),
            #[cfg(feature = "tls")]
            ca_pem: None,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

/// Listens on a free port.
pub(crate) async fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

/// The next connection; one that was reset before it could be accepted is passed over.
pub(crate) async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            // Chunks go out as they come, as from an API server. Only a closed socket refuses.
            let _ = stream.set_nodelay(true);
            return stream;
        }
        tokio::task::yield_now().await;
    }
}

type Handler = dyn Fn(&RecordedRequest, usize) -> Answer + Send + Sync;

/// What the tasks and the owner of a server share.
struct State {
    handler: Box<Handler>,
    requests: Mutex<Vec<RecordedRequest>>,
    bytes_sent: Arc<AtomicU64>,
    accepted: AtomicU64,
    open: watch::Sender<usize>,
}

impl State {
    fn new(handler: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            handler: Box::new(handler),
            requests: Mutex::default(),
            bytes_sent: Arc::default(),
            accepted: AtomicU64::new(0),
            open: watch::Sender::new(0),
        }
    }

    fn open<IO>(self: &Arc<Self>, io: IO) -> Connection<IO> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Connection { io, state: Arc::clone(self), open: Open::new(Arc::clone(self)) }
    }

    fn answer(&self, request: &Request<Incoming>) -> Answer {
        let request = RecordedRequest {
            method: request.method().clone(),
            path: request.uri().path_and_query().map_or_else(String::new, ToString::to_string),
            headers: request.headers().clone(),
            version: request.version(),
        };
        let n = {
            let mut requests = self.requests();
            requests.push(request.clone());
            requests.len() - 1
        };
        (self.handler)(&request, n)
    }

    fn requests(&self) -> MutexGuard<'_, Vec<RecordedRequest>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Connection<IO> {
    io: IO,
    state: Arc<State>,
    open: Open,
}

impl<IO: AsyncRead + AsyncWrite + Unpin + Send + 'static> Connection<IO> {
    async fn serve(self, executor: Tasks) {
        let Self { io, state, open: _open } = self;
        let service = service_fn(|request| {
            let response = state.answer(&request).into_response(Arc::clone(&state.bytes_sent));
            async { Ok::<_, Infallible>(response) }
        });
        let mut builder = auto::Builder::new(executor);
        // Hyper then drops a chunk when it is written, not when it is copied to a buffer: what cuts and resets wait for.
        builder.http1().writev(true);
        // A connection that fails, on purpose or by its client, has nobody to tell.
        let _ = builder.serve_connection(TokioIo::new(io), service).await;
    }
}

/// Counts a connection as open until it is dropped.
struct Open(Arc<State>);

impl Open {
    fn new(state: Arc<State>) -> Self {
        state.open.send_modify(|open| *open += 1);
        Self(state)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Empty};
    use hyper_util::rt::TokioExecutor;
    use tokio::io::DuplexStream;

    use super::*;
    use crate::{Amplifier, Body, recorded_pods};

    /// What a connection, with a pipe of 64 KiB in place of sockets, may take from a body that nobody reads: hyper's
    /// buffer of HTTP/1.1 (400 KiB), or the window of an HTTP/2 client (2 MiB for hyper's), and a little.
    const BUFFERED: u64 = 3 << 20;

    /// The clock is paused: time passes once nothing is left to do.
    async fn idle() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_for_a_client_that_does_not_read() {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let pods = Amplifier::new(&recorded_pods(), 5000).unwrap();
            let length = pods.len();
            let state = Arc::new(State::new(Answer::ok(Body::amplify(pods)).always()));
            let sent = || state.bytes_sent.load(Ordering::Relaxed);
            let (client, server) = tokio::io::duplex(64 << 10);
            let tasks = Tasks::new();
            tasks.spawn(state.open(server).serve(tasks.clone()));

            let mut body = get(client, version).await;
            let mut read = 0;
            for until in [1, length / 2] {
                while read < until {
                    read += body.frame().await.unwrap().unwrap().into_data().unwrap().len() as u64;
                }
                idle().await;
                let stopped_at = sent();
                assert!(stopped_at >= read && stopped_at - read < BUFFERED, "{version:?}: {stopped_at} at {read}");
                idle().await;
                assert_eq!(sent(), stopped_at, "{version:?}");
            }
            while let Some(frame) = body.frame().await {
                read += frame.unwrap().into_data().unwrap().len() as u64;
            }
            assert_eq!((read, sent()), (length, length), "{version:?}");
        }
    }

    async fn get(io: DuplexStream, version: Version) -> Incoming {
        let (io, request) = (TokioIo::new(io), Request::get("http://testserver/").body(Empty::<Bytes>::new()).unwrap());
        let response = if version == Version::HTTP_2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        response.unwrap().into_body()
    }
}
