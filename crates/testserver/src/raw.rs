//! A server for answers that no HTTP library would send.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::{future, io};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{accept, listen};
use crate::tasks::Tasks;
#[cfg(feature = "tls")]
use crate::tls::Tls;

/// A server that answers one request per connection with given bytes, valid or not.
///
/// The request is HTTP/1.1 or, without TLS, HTTP/2 by prior knowledge; the caller supplies bytes of the same protocol.
///
/// Dropping the server aborts its tasks, which closes every connection.
pub struct RawServer {
    addr: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    tasks: Tasks,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// What a [`RawServer`] sends on a connection: bytes, which include the status line and headers or the frames, then an
/// end.
#[derive(Clone, Debug)]
pub struct RawAnswer {
    bytes: Bytes,
    end: RawEnd,
}

impl RawAnswer {
    /// Sends `bytes` unchanged, then ends the connection with `end`.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>, end: RawEnd) -> Self {
        Self { bytes: bytes.into(), end }
    }
}

/// What a [`RawServer`] does after it has written the bytes of a [`RawAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawEnd {
    /// The server closes its side: with `close_notify` in TLS, then FIN.
    Close,
    /// The server closes its side without `close_notify`: a truncation in TLS, and the same as `Close` without TLS.
    CloseWithoutNotify,
    /// The server sends RST. The client loses the bytes that it has not read by then.
    Reset,
    /// The server keeps the connection open until the client closes it.
    Hold,
}

impl RawServer {
    /// Starts a server on the current tokio runtime, which must have IO enabled. The n-th connection gets the n-th
    /// answer, all later connections get the last answer.
    ///
    /// # Errors
    /// When the server cannot listen on a port of 127.0.0.1.
    ///
    /// # Panics
    /// When `answers` is empty.
    pub async fn start(answers: impl IntoIterator<Item = RawAnswer>) -> io::Result<Self> {
        Self::start_with(answers, |stream| future::ready(Ok(stream))).await
    }

    /// Starts a server as [`start`](Self::start) does, with TLS 1.3. Its certificate is for `127.0.0.1` and
    /// `localhost`, from an authority made for this server, see [`ca_pem`](Self::ca_pem).
    ///
    /// # Errors
    /// When the server cannot make its certificates, or cannot listen on a port of 127.0.0.1.
    ///
    /// # Panics
    /// When `answers` is empty.
    #[cfg(feature = "tls")]
    pub async fn start_tls(answers: impl IntoIterator<Item = RawAnswer>) -> io::Result<Self> {
        let tls = Tls::new(&[b"http/1.1"])?;
        let acceptor = tls.acceptor.clone();
        let mut server = Self::start_with(answers, move |stream| acceptor.accept(stream)).await?;
        server.tls = Some(tls);
        Ok(server)
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

    /// Returns the heads of all requests so far, each with the empty line at its end; for HTTP/2 the first line of the
    /// preface.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `handshake` converts a TCP stream into the stream that carries HTTP.
    async fn start_with<S, H>(
        answers: impl IntoIterator<Item = RawAnswer>,
        handshake: impl Fn(TcpStream) -> H + Send + 'static,
    ) -> io::Result<Self>
    where
        S: Stream,
        H: Future<Output = io::Result<S>> + Send + 'static,
    {
        #[cfg(feature = "trace")]
        crate::watch_logs();
        let mut answers = Answers::new(answers);
        let (listener, addr) = listen().await?;
        let server = Self {
            addr,
            heads: Arc::default(),
            tasks: Tasks::new(),
            #[cfg(feature = "tls")]
            tls: None,
        };
        let (heads, tasks) = (Arc::clone(&server.heads), server.tasks.clone());
        server.tasks.spawn(async move {
            loop {
                let stream = accept(&listener).await;
                let (answer, heads, handshake) = (answers.next(), Arc::clone(&heads), handshake(stream));
                tasks.spawn(async move {
                    if let Ok(stream) = handshake.await {
                        // An error here means that the client has closed the connection.
                        let _ = converse(stream, answer, &heads).await;
                    }
                });
            }
        });
        Ok(server)
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

/// The answers in turn, then the last one forever.
struct Answers {
    answers: Vec<RawAnswer>,
    given: usize,
}

impl Answers {
    fn new(answers: impl IntoIterator<Item = RawAnswer>) -> Self {
        let answers: Vec<_> = answers.into_iter().collect();
        assert!(!answers.is_empty(), "at least one answer");
        Self { answers, given: 0 }
    }

    fn next(&mut self) -> RawAnswer {
        let answer = self.answers[self.given.min(self.answers.len() - 1)].clone();
        self.given += 1;
        answer
    }
}

/// A connection, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// The stream below TLS.
    fn tcp(&mut self) -> &mut TcpStream;
}

impl Stream for TcpStream {
    fn tcp(&mut self) -> &mut TcpStream {
        self
    }
}

#[cfg(feature = "tls")]
impl Stream for tokio_rustls::server::TlsStream<TcpStream> {
    fn tcp(&mut self) -> &mut TcpStream {
        self.get_mut().0
    }
}

async fn converse(mut stream: impl Stream, answer: RawAnswer, heads: &Mutex<Vec<String>>) -> io::Result<()> {
    let head = read_head(&mut stream).await?;
    heads.lock().unwrap_or_else(PoisonError::into_inner).push(head);
    stream.write_all(&answer.bytes).await?;
    stream.flush().await?;
    match answer.end {
        RawEnd::Close => stream.shutdown().await?,
        RawEnd::CloseWithoutNotify => stream.tcp().shutdown().await?,
        RawEnd::Reset => return stream.tcp().set_zero_linger(),
        RawEnd::Hold => {}
    }
    // Dropping a socket with unread bytes would reset the connection.
    tokio::io::copy(stream.tcp(), &mut tokio::io::sink()).await?;
    Ok(())
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    if head.starts_with(b"PRI ") {
        skip_to_headers(stream).await?;
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Reads the rest of the HTTP/2 preface, and all frames up to the first HEADERS frame, which opens a stream.
async fn skip_to_headers(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    const HEADERS: u8 = 1;
    stream.read_exact(&mut [0; "SM\r\n\r\n".len()]).await?;
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).await?;
        let [a, b, c, kind, ..] = header;
        let length = u64::from(u32::from_be_bytes([0, a, b, c]));
        tokio::io::copy(&mut stream.take(length), &mut tokio::io::sink()).await?;
        if kind == HEADERS {
            return Ok(());
        }
    }
}
