//! Injected faults: on the connection between client and server, and in the body that a transport returns.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use listwatch::client::{Request, Response, ResponseFuture};
use listwatch::client::{Transport, TransportError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::sleep;

const SLOW: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection ends without `close_notify`.
    Cut,
    Reset,
    /// The connection stays open, but no more bytes arrive.
    Stall,
    /// A bit of the TLS stream is flipped.
    Corrupt,
    /// A bit of the body is flipped.
    Flip,
    /// A chunk of the body is missing.
    Drop,
    /// The body is truncated without an error.
    End,
    /// The list has a short deadline.
    Deadline,
    /// The body is truncated without an error, and the next watch gets 410: its version is too old.
    Expired,
    /// No bytes arrive for a while.
    Slow,
}

impl Fault {
    pub const ALL: [Self; 8] =
        [Self::Cut, Self::Reset, Self::Stall, Self::Corrupt, Self::Flip, Self::Drop, Self::End, Self::Deadline];

    /// Without `Flip` and `Drop`: a watch cannot detect them, because its body has no checksum and no end.
    pub const OF_WATCHES: [Self; 7] =
        [Self::Cut, Self::Reset, Self::Stall, Self::Corrupt, Self::End, Self::Expired, Self::Slow];

    pub fn is_on_the_way(self) -> bool {
        matches!(self, Self::Cut | Self::Reset | Self::Stall | Self::Corrupt | Self::Slow)
    }

    fn is_in_the_body(self) -> bool {
        matches!(self, Self::Flip | Self::Drop | Self::End | Self::Expired)
    }
}

/// The fault of a worker's next list, and whether it has happened.
#[derive(Default)]
pub struct Trouble {
    /// The fault, and how many bytes precede it.
    armed: Mutex<Option<(Fault, u64)>>,
    happened: AtomicBool,
    /// Whether the next watch is refused.
    expired: AtomicBool,
    over: Notify,
}

impl Trouble {
    pub fn arm(&self, fault: Fault, after: u64) {
        self.happened.store(false, Ordering::SeqCst);
        *self.armed.lock().unwrap() = Some((fault, after));
    }

    /// Removes the fault, and returns whether it happened. If it did, the proxy ends its connections.
    pub fn disarm(&self) -> bool {
        *self.armed.lock().unwrap() = None;
        let happened = self.happened.swap(false, Ordering::SeqCst);
        if happened {
            self.over.notify_waiters();
        }
        happened
    }

    /// Counts these bytes, and returns the fault and its offset if it is among them.
    fn meet(&self, bytes: usize, layer: fn(Fault) -> bool) -> Option<(Fault, usize)> {
        let mut armed = self.armed.lock().unwrap();
        let (fault, after) = armed.as_mut().filter(|(fault, _)| layer(*fault))?;
        if let Some(rest) = after.checked_sub(bytes as u64) {
            *after = rest;
            return None;
        }
        let met = (*fault, usize::try_from(*after).expect("less than bytes"));
        *armed = None;
        self.happened.store(true, Ordering::SeqCst);
        Some(met)
    }
}

/// Starts a proxy on the current runtime, and returns its address.
pub async fn proxy(upstream: SocketAddr, trouble: Arc<Trouble>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Handle::current().spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, upstream, Arc::clone(&trouble)));
        }
    });
    Ok(address)
}

/// Forwards bytes until one side ends or the fault is removed.
async fn carry(client: TcpStream, upstream: SocketAddr, trouble: Arc<Trouble>) {
    let over = trouble.over.notified();
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = over => {}
        () = up(from_client, to_server) => {}
        _ = down(from_server, to_client, &trouble) => {}
    }
}

async fn up(mut from_client: OwnedReadHalf, mut to_server: OwnedWriteHalf) {
    let _ = copy(&mut from_client, &mut to_server).await;
}

async fn down(mut from_server: OwnedReadHalf, mut to_client: OwnedWriteHalf, trouble: &Trouble) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from_server.read(&mut buffer).await?;
        let bytes = &mut buffer[..read];
        match trouble.meet(read, Fault::is_on_the_way) {
            None => {}
            Some((Fault::Corrupt, at)) => bytes[at] ^= 1 << (at % 8),
            Some((Fault::Slow, _)) => sleep(SLOW).await,
            Some((fault, at)) => {
                to_client.write_all(&bytes[..at]).await?;
                match fault {
                    Fault::Stall => std::future::pending().await,
                    Fault::Reset => return to_client.as_ref().set_zero_linger(),
                    _ => return Ok(()),
                }
            }
        }
        if read == 0 {
            return Ok(());
        }
        to_client.write_all(bytes).await?;
    }
}

/// A transport that adds faults to the bodies of another transport.
pub struct Troubled<T> {
    pub inner: T,
    pub trouble: Arc<Trouble>,
}

impl<T: Transport> Transport for Troubled<T> {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            if request.path_and_query.contains("watch=") && self.trouble.expired.swap(false, Ordering::SeqCst) {
                return Ok(too_old());
            }
            let mut response = self.inner.get(request).await?;
            let trouble = Arc::clone(&self.trouble);
            response.body = Box::pin(TroubledBody { inner: response.body, trouble, ended: false });
            Ok(response)
        })
    }

    fn is_near(&self) -> bool {
        self.inner.is_near()
    }

    fn renews_credentials(&self) -> bool {
        self.inner.renews_credentials()
    }

    fn redact(&self, text: String) -> String {
        self.inner.redact(text)
    }
}

/// Returns the response of an API server whose watch cache begins at a later version.
fn too_old() -> Response {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}"#;
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let body = Box::pin(stream::iter([Ok(Bytes::from_static(status.as_bytes()))]));
    Response::new(StatusCode::GONE, headers, body)
}

struct TroubledBody {
    inner: BoxStream<'static, Result<Bytes, TransportError>>,
    trouble: Arc<Trouble>,
    ended: bool,
}

impl Stream for TroubledBody {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            let Some(chunk) = ready!(self.inner.as_mut().poll_next(cx)?) else { return Poll::Ready(None) };
            let Some((fault, at)) = self.trouble.meet(chunk.len(), Fault::is_in_the_body) else {
                return Poll::Ready(Some(Ok(chunk)));
            };
            match fault {
                Fault::Drop => {}
                Fault::Flip => {
                    let mut bytes = Vec::from(chunk);
                    bytes[at] ^= 1 << (at % 8);
                    return Poll::Ready(Some(Ok(bytes.into())));
                }
                _ => {
                    self.trouble.expired.store(fault == Fault::Expired, Ordering::SeqCst);
                    self.ended = true;
                    return Poll::Ready(Some(Ok(chunk.slice(..at))));
                }
            }
        }
    }
}
