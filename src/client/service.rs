//! [`ServiceTransport`]: a transport over any client that sends an `http::Request`.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use futures_core::future::BoxFuture;
use http::{Method, Uri};
use http_body::Body;
use secrecy::{ExposeSecret, SecretString};

use super::io_thread::IoThread;
use super::redact::redact_secret;
use super::transport::{Request, Response, ResponseFuture, Transport, TransportError, TransportErrorKind};

/// A [`Transport`] over a function from `http::Request` to `http::Response`.
///
/// The function calls a `kube::Client` of any version since 0.89, a tower service, or another HTTP client.
///
/// ```no_run
/// use http::{Request, Response};
/// use listwatch::client::{Client, ServiceTransport};
///
/// # fn connect(base: &'static str, http: reqwest::Client) -> Client {
/// let transport = ServiceTransport::new(move |mut request: Request<reqwest::Body>| {
///     *request.uri_mut() = format!("{base}{}", request.uri()).parse().expect("a URL");
///     let http = http.clone();
///     async move { http.execute(request.try_into()?).await.map(Response::<reqwest::Body>::from) }
/// });
/// # Client::new(transport)
/// # }
/// ```
///
/// For a tower service that is `Clone`, the function is `move |request| service.clone().oneshot(request)`, where
/// `oneshot` comes from `tower::ServiceExt`. The guide of `listwatch-kube` shows the lines for a `kube::Client`, which
/// adds its own base URL.
///
/// | what | from |
/// |---|---|
/// | base URL, `Host`, credentials, TLS, HTTP version | the function: the request has only path, query, `Accept` and `Accept-Encoding`. Prefer HTTP/1.1: over HTTP/2, requests wait while the server allows no more streams |
/// | connect timeout | the function; without one, [`Client::read_idle_timeout`] ends the request |
/// | read-idle timeout, deadline, retries | [`Client`]. A retry or a read timeout of the function adds to them |
/// | decompression | the function, if it also removes `Content-Encoding`, as kube's feature `gzip` does; else [`Client`] |
/// | redirects | [`Client`] refuses them; the function must not follow them to another origin |
/// | credentials after a 401 | the function; [`Client`] does not repeat the request at once |
///
/// The body streams, and dropping the future of a request, or the body, drops what the function returned.
///
/// With `Auto` of [`Compression`], the transport requests no compression, because tower-http, which kube uses, reads
/// only the first of several gzip members, and a watch of Kubernetes 1.37 sends several. If no layer decompresses,
/// [`Compression::Gzip`] is safe.
///
/// # Errors
///
/// The kind of an error is found as by [`TransportError::from_error`], with [`TransportErrorKind::Broken`] for
/// everything that it does not recognize. A function that knows more can return a [`TransportError`].
///
/// [`Client`]: crate::client::Client
/// [`Client::read_idle_timeout`]: crate::client::Client::read_idle_timeout
/// [`Compression`]: crate::client::Compression
/// [`Compression::Gzip`]: crate::client::Compression::Gzip
pub struct ServiceTransport {
    send: Arc<SendRequest>,
    /// `None` on the caller's runtime.
    io_thread: Option<IoThread>,
    secrets: Vec<SecretString>,
}

type SendRequest = dyn Fn(http::Request<Bytes>) -> BoxFuture<'static, Result<Response, TransportError>> + Send + Sync;

type BoxError = Box<dyn StdError + Send + Sync>;

impl ServiceTransport {
    /// Creates a transport over this function, which runs on the caller's runtime.
    pub fn new<F, Sending, Q, B, E>(send: F) -> Self
    where
        F: Fn(http::Request<Q>) -> Sending + Send + Sync + 'static,
        Sending: Future<Output = Result<http::Response<B>, E>> + Send + 'static,
        Q: From<Bytes> + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        E: Into<BoxError> + 'static,
    {
        let send = Arc::new(send);
        let send = move |request: http::Request<Bytes>| -> BoxFuture<'static, _> {
            let send = Arc::clone(&send);
            Box::pin(async move {
                // Called when polled, because a layer may need the runtime.
                let response = send(request.map(Q::from)).await.map_err(service_error)?;
                let (head, body) = response.into_parts();
                Ok(Response::new(head.status, head.headers, Box::pin(DataFrames(Box::pin(body)))))
            })
        };
        Self { send: Arc::new(send), io_thread: None, secrets: Vec::new() }
    }

    /// Calls the function, and reads the bodies, on a thread of the library: see [`IoThread`].
    ///
    /// The function must not block, because other transports share the thread. Connections that it opens live on the
    /// thread, which ends when no transport uses it any more, so the function must not share them with other code.
    #[must_use]
    pub fn on_own_thread(mut self) -> Self {
        self.io_thread = Some(IoThread::default());
        self
    }

    /// Redacts this secret from errors. JSON web tokens, and words after `Bearer` or `Basic`, are redacted anyway.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets.push(secret.into().into());
        self
    }

    async fn send(&self, method: Method, request: Request, body: Bytes) -> Result<Response, TransportError> {
        let mut sending = http::Request::new(body);
        *sending.method_mut() = method;
        *sending.uri_mut() = Uri::try_from(request.path_and_query).map_err(|error| {
            TransportError::new(TransportErrorKind::Setup, format!("the path of the request is invalid: {error}"))
        })?;
        *sending.headers_mut() = request.headers;
        let send = Arc::clone(&self.send);
        match &self.io_thread {
            Some(thread) => thread.get(async move { send(sending).await }).await,
            None => send(sending).await,
        }
    }
}

impl Transport for ServiceTransport {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(self.send(Method::GET, request, Bytes::new()))
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        Box::pin(self.send(Method::POST, request, body))
    }

    fn is_near(&self) -> bool {
        true
    }

    fn redact(&self, text: String) -> String {
        self.secrets.iter().fold(text, |text, secret| redact_secret(text, secret.expose_secret()))
    }
}

impl fmt::Debug for ServiceTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceTransport").field("on_own_thread", &self.io_thread.is_some()).finish_non_exhaustive()
    }
}

fn service_error(error: impl Into<BoxError>) -> TransportError {
    TransportError::from_error(TransportErrorKind::Broken, &*error.into())
}

/// The data of a body, with its errors converted. Trailers are ignored.
pub(super) struct DataFrames<B>(pub(super) Pin<Box<B>>);

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Stream for DataFrames<B> {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(frame) = ready!(self.0.as_mut().poll_frame(cx)) else { return Poll::Ready(None) };
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(Err(_trailers)) => {}
                Err(error) => return Poll::Ready(Some(Err(service_error(error)))),
            }
        }
    }
}
