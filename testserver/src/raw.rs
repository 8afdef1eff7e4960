//! Answers that no HTTP library would write.

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

/// A server that answers one request per connection with given bytes, right or wrong; it lives as long as this value.
///
/// The request is of HTTP/1.1 or, without TLS, of HTTP/2 by prior knowledge; the bytes have to be what it takes.
///
/// Dropping it aborts its tasks, which closes every connection.
pub struct RawServer {
    addr: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    tasks: Tasks,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// What a connection of a [`RawServer`] gets: bytes, status line and headers or frames among them, and then an end.
#[derive(Clone, Debug)]
pub struct RawAnswer {
    bytes: Bytes,
    end: RawEnd,
}

impl RawAnswer {
    /// Writes `bytes` as they are, then ends as `end` says.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>, end: RawEnd) -> Self {
        Self { bytes: bytes.into(), end }
    }
}

/// What happens when the bytes of a [`RawAnswer`] are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawEnd {
    /// The server closes its side: with `close_notify` in TLS, then FIN.
    Close,
    /// The server closes its side without `close_notify`, which in TLS is a truncation. Without TLS the same as `Close`.
    CloseWithoutNotify,
    /// RST. What the client has not read by then is lost to it.
    Reset,
    /// Nothing, until the client closes the connection.
    Hold,
}

impl RawServer {
    /// Starts a server on the current tokio runtime, with IO enabled. The n-th connection gets the n-th answer, all further
    /// ones the last.
    ///
    /// # Errors
    /// When no port on 127.0.0.1 can be had.
    ///
    /// # Panics
    /// When there are no answers.
    pub async fn start(answers: impl IntoIterator<Item = RawAnswer>) -> io::Result<Self> {
        Self::start_with(answers, |stream| future::ready(Ok(stream))).await
    }

    /// [`start`](Self::start) with TLS 1.3, under a certificate for `127.0.0.1` and `localhost` of an authority made for this
    /// server, see [`ca_pem`](Self::ca_pem).
    ///
    /// # Errors
    /// When no port on 127.0.0.1 can be had.
    ///
    /// # Panics
    /// When there are no answers.
    #[cfg(feature = "tls")]
    pub async fn start_tls(answers: impl IntoIterator<Item = RawAnswer>) -> io::Result<Self> {
        let tls = Tls::new(&[b"http/1.1"])?;
        let acceptor = tls.acceptor.clone();
        let mut server = Self::start_with(answers, move |stream| acceptor.accept(stream)).await?;
        server.tls = Some(tls);
        Ok(server)
    }

    /// `http://127.0.0.1:PORT` or `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
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
        self.tls.as_ref().map(|tls| &*tls.ca_pem)
    }

    /// The heads of all requests so far, each with the empty line at its end; of HTTP/2 the first line of its preface.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `handshake` makes the stream of HTTP out of that of TCP.
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
                        // An error here means that the client left, and nobody waits for the rest.
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

/// Answers in turn, the last one for ever.
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
    // To drop a socket with unread bytes would be a reset.
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

/// Reads the rest of the preface of HTTP/2, and the frames up to that which opens the first stream.
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
