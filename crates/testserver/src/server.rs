//! The HTTP server.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{future, io, mem};

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::Answer;
use crate::lossless::Lossless;
use crate::request::RecordedRequest;
use crate::tasks::Tasks;
#[cfg(feature = "tls")]
use crate::tls::Tls;

/// An HTTP/1.1 and HTTP/2 server on its own port of 127.0.0.1.
///
/// Without TLS a client uses HTTP/2 by prior knowledge; with TLS, ALPN selects the version. Dropping the server aborts
/// its tasks, which closes every connection.
pub struct Server {
    addr: SocketAddr,
    state: Arc<State>,
    tasks: Tasks,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// The protocols that the server offers in TLS.
#[cfg(feature = "tls")]
const ALPN: &[&[u8]] = &[b"h2", b"http/1.1"];

impl Server {
    /// Starts a server on the current tokio runtime, which must have IO enabled. `handler` gets every request and the
    /// number of requests before it; [`Answer::always`] and [`Answer::in_turn`] make simple handlers. If the handler
    /// panics, the connection is closed.
    ///
    /// # Errors
    /// When the server cannot listen on a port of 127.0.0.1.
    pub async fn start(
        handler: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start_with(handler, |stream| future::ready(Ok(stream))).await
    }

    /// Starts a server as [`start`](Self::start) does, with TLS 1.3. Its certificate is for `127.0.0.1` and
    /// `localhost`, from an authority made for this server, see [`ca_pem`](Self::ca_pem). A connection whose handshake
    /// fails counts as accepted.
    ///
    /// # Errors
    /// When the server cannot make its certificates, or cannot listen on a port of 127.0.0.1.
    #[cfg(feature = "tls")]
    pub async fn start_tls(
        handler: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start_with_tls(handler, Tls::new(ALPN)?).await
    }

    /// Starts a server as [`start_tls`](Self::start_tls) does, for clients that present a certificate of the server's
    /// authority, such as [`client_identity`](Self::client_identity). In TLS 1.3 the handshake of the client ends
    /// before the server has seen the certificate: a client that the server refuses gets the error when it reads.
    ///
    /// # Errors
    /// When the server cannot make its certificates, or cannot listen on a port of 127.0.0.1.
    #[cfg(feature = "tls")]
    pub async fn start_mtls(
        handler: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start_with_tls(handler, Tls::mutual(ALPN)?).await
    }

    /// Returns `http://127.0.0.1:PORT`, or `https://127.0.0.1:PORT` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return format!("https://{}", self.addr);
        }
        format!("http://{}", self.addr)
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the certificate, in PEM, of the authority that clients of a TLS server must trust; `None` without TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn ca_pem(&self) -> Option<&str> {
        self.tls.as_ref().map(|tls| &*tls.ca_pem)
    }

    /// Returns a certificate and its key, both in PEM, that the server accepts from clients; `None` if it requests
    /// none.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn client_identity(&self) -> Option<(&str, &str)> {
        let (certificate, key) = self.tls.as_ref()?.client_identity.as_ref()?;
        Some((certificate, key))
    }

    /// Returns how many bytes of bodies, after compression, were handed to connections so far. It includes bytes that
    /// the client has not read, with or without TLS: over HTTP/2 about the client's window; over HTTP/1.1 less than 200
    /// KiB, in chunks of the default size, and the content of the sockets of both sides, some megabytes on loopback.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.state.bytes_sent.load(Ordering::Relaxed)
    }

    /// Returns how many connections are open now. A connection that the server ends stays open until the client closes
    /// its side too, or the connection is reset.
    #[must_use]
    pub fn connections(&self) -> usize {
        *self.state.open.borrow()
    }

    /// Returns how many connections were accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::Relaxed)
    }

    /// Waits until no connection is open. A client closes its connections when it is dropped.
    pub async fn no_connections(&self) {
        let mut open = self.state.open.subscribe();
        // The state holds the sender, so this cannot fail.
        let _ = open.wait_for(|open| *open == 0).await;
    }

    /// Returns all requests so far, in the order of their arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.requests().clone()
    }

    /// Stops accepting requests on the connections that are open now, as an API server does when it shuts down. The
    /// server still serves new connections.
    ///
    /// Over HTTP/2 the server sends a graceful GOAWAY, finishes the open streams and streams that the client opens
    /// before it gets the GOAWAY, then closes the connection. Over HTTP/1.1 it closes the connection after the current
    /// response, which does not announce it, or at once if there is none. It also closes connections on which the
    /// client has not sent anything yet.
    pub fn goaway(&self) {
        let open = mem::take(&mut *self.state.goaway());
        self.tasks.spawn(open.shutdown());
    }

    #[cfg(feature = "tls")]
    async fn start_with_tls(
        handler: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static,
        tls: Tls,
    ) -> io::Result<Self> {
        let acceptor = tls.acceptor.clone();
        let mut server = Self::start_with(handler, move |stream| acceptor.accept(stream)).await?;
        server.tls = Some(tls);
        Ok(server)
    }

    /// `handshake` converts a TCP stream into the stream that carries HTTP.
    async fn start_with<IO, H>(
        handler: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static,
        handshake: impl Fn(TcpStream) -> H + Send + 'static,
    ) -> io::Result<Self>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        H: Future<Output = io::Result<IO>> + Send + 'static,
    {
        #[cfg(feature = "trace")]
        crate::watch_logs();
        let (listener, addr) = listen().await?;
        let server = Self {
            addr,
            state: Arc::new(State::new(handler)),
            tasks: Tasks::new(),
            #[cfg(feature = "tls")]
            tls: None,
        };
        let (state, tasks) = (Arc::clone(&server.state), server.tasks.clone());
        server.tasks.spawn(async move {
            loop {
                let stream = accept(&listener).await;
                let (connection, handshake, executor) = (state.open(), handshake(stream), tasks.clone());
                tasks.spawn(async move {
                    if let Ok(io) = handshake.await {
                        connection.serve(io, executor).await;
                    }
                });
            }
        });
        Ok(server)
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

/// Returns the next connection. Skips a connection that was reset before it could be accepted.
pub(crate) async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            // Each chunk is sent at once, as by an API server. The call fails only for a closed socket.
            let _ = stream.set_nodelay(true);
            return stream;
        }
        tokio::task::yield_now().await;
    }
}

type Handler = dyn Fn(&RecordedRequest, usize) -> Answer + Send + Sync;

/// The state that the tasks and the owner of a server share.
struct State {
    handler: Box<Handler>,
    requests: Mutex<Vec<RecordedRequest>>,
    bytes_sent: Arc<AtomicU64>,
    accepted: AtomicU64,
    open: watch::Sender<usize>,
    /// Shuts down the connections opened since the last GOAWAY.
    goaway: Mutex<GracefulShutdown>,
}

impl State {
    fn new(handler: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            handler: Box::new(handler),
            requests: Mutex::default(),
            bytes_sent: Arc::default(),
            accepted: AtomicU64::new(0),
            open: watch::Sender::new(0),
            goaway: Mutex::default(),
        }
    }

    fn open(self: &Arc<Self>) -> Connection {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Connection { open: Open::new(Arc::clone(self)), goaway: self.goaway().watcher() }
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

    fn goaway(&self) -> MutexGuard<'_, GracefulShutdown> {
        self.goaway.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An accepted connection, before its handshake and after it.
struct Connection {
    open: Open,
    goaway: Watcher,
}

impl Connection {
    async fn serve(self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, executor: Tasks) {
        let Self { open, goaway } = self;
        let state = &open.0;
        let service = service_fn(|request| {
            let response = state.answer(&request).into_response(Arc::clone(&state.bytes_sent));
            async { Ok::<_, Infallible>(response) }
        });
        let mut builder = auto::Builder::new(executor);
        // Makes hyper drop a chunk when it is written, not when it is copied to a buffer: cuts and resets wait for
        // that.
        builder.http1().writev(true);
        // A connection may fail, on purpose or because of its client; no caller waits for the result.
        let _ = goaway.watch(builder.serve_connection(TokioIo::new(Lossless::new(io)), service)).await;
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
    use hyper::Version;
    use hyper_util::rt::TokioExecutor;

    use super::*;
    use crate::{Body, Synthesizer, recorded_pods};

    /// How many bytes a pipe holds, which replaces the sockets.
    const PIPE: usize = 64 << 10;
    /// How much of an unread body a connection may take: hyper's buffer of HTTP/1.1 (400 KiB), or the window of an
    /// HTTP/2 client (2 MiB for hyper's), and a little.
    const BUFFERED: u64 = 3 << 20;

    trait Io: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
    impl<IO: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io for IO {}

    /// A name, the client's end and the server's end.
    type Pipe = (&'static str, Box<dyn Io>, Box<dyn Io>);

    /// Waits until every task waits: only then does the paused clock advance.
    async fn idle() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_for_a_client_that_does_not_read() {
        let pods = Synthesizer::new(&recorded_pods(), 5000).unwrap();
        let whole = pods.to_vec();
        let length = whole.len();
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let pipes = [
                plain_pipe(),
                #[cfg(feature = "tls")]
                tls_pipe().await,
            ];
            for (name, client, server) in pipes {
                let (state, mut body) = get(version, client, server, Body::synthesize(pods.clone())).await;
                let sent = || state.bytes_sent.load(Ordering::Relaxed);
                let mut received = Vec::new();
                for until in [1, length / 2] {
                    while received.len() < until {
                        received.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
                    }
                    idle().await;
                    let ahead = sent() - received.len() as u64;
                    assert!(ahead < BUFFERED, "{version:?}, {name}: {ahead} at {until}");
                    idle().await;
                    assert_eq!(sent() - received.len() as u64, ahead, "{version:?}, {name}");
                }
                received.extend_from_slice(&body.collect().await.unwrap().to_bytes());
                assert!(received == whole, "{version:?}, {name}");
                assert_eq!(sent(), length as u64, "{version:?}, {name}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_late_gets_all_bytes_before_a_reset() {
        // The pipe holds a part of the body, the buffer of TLS could hold the rest.
        let length = PIPE * 3 / 2;
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let pipes = [
                plain_pipe(),
                #[cfg(feature = "tls")]
                tls_pipe().await,
            ];
            for (name, client, server) in pipes {
                let body = Body::replay(vec![7; 2 * length]).reset_at(length as u64);
                let (_state, mut body) = get(version, client, server, body).await;
                idle().await;
                let mut read = 0;
                while let Ok(frame) = body.frame().await.unwrap() {
                    read += frame.into_data().unwrap().len();
                }
                assert_eq!(read, length, "{version:?}, {name}");
            }
        }
    }

    fn plain_pipe() -> Pipe {
        let (client, server) = tokio::io::duplex(PIPE);
        ("plain", Box::new(client), Box::new(server))
    }

    #[cfg(feature = "tls")]
    async fn tls_pipe() -> Pipe {
        use tokio_rustls::TlsConnector;
        use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
        use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

        let tls = Tls::new(&[]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(tls.ca_pem.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (client, server) = tokio::io::duplex(PIPE);
        let client = TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), client);
        let (client, server) = tokio::join!(client, tls.acceptor.accept(server));
        ("TLS", Box::new(client.unwrap()), Box::new(server.unwrap()))
    }

    /// Requests this body over this pipe, and returns the server's state and the response.
    async fn get(version: Version, client: impl Io, server: impl Io, body: Body) -> (Arc<State>, Incoming) {
        let state = Arc::new(State::new(Answer::ok(body).always()));
        tokio::spawn(state.open().serve(server, Tasks::new()));
        let io = TokioIo::new(client);
        let request = Request::get("http://testserver/").body(Empty::<Bytes>::new()).unwrap();
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
        (state, response.unwrap().into_body())
    }
}
