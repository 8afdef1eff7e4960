//! How requests reach an API server: the trait, and its requests, responses and errors.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use http::{HeaderMap, StatusCode};

use crate::error::without_os_numbers;

/// Sends requests to one API server, and manages connections, TLS and credentials.
///
/// A transport must not follow a redirect to another origin, because that would send the credentials there: see
/// [`Redirects`](super::Redirects). It neither requests compression nor decompresses, and does not retry a request that
/// got a response.
pub trait Transport: Send + Sync + 'static {
    /// Sends a GET and waits for the head of the response.
    fn get(&self, request: Request) -> ResponseFuture<'_>;

    /// Sends a POST with this body, and waits for the head of the response.
    ///
    /// The headers contain the type of the body. Only reviews of tokens and of access are sent this way, because a POST
    /// is not retried. A transport for lists and watches need not implement this method: the default returns an error.
    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        drop((request, body));
        Box::pin(async { Err(TransportError::new(TransportErrorKind::Setup, "this transport sends only GETs")) })
    }

    /// Returns true if [`Compression::Auto`](super::Compression::Auto) should request no compression.
    ///
    /// This is so if the server is in the same cluster or on the same host, where compression costs more than it saves.
    fn is_near(&self) -> bool {
        false
    }

    /// Returns true if a request after a 401 may use other credentials than the one before.
    fn renews_credentials(&self) -> bool {
        false
    }

    /// Removes the transport's secrets from a text that a server or a proxy sent.
    fn redact(&self, text: String) -> String {
        text
    }

    /// Returns the server's address for logs, such as `10.0.0.1:6443`, without credentials; `None` if unknown.
    fn server(&self) -> Option<String> {
        None
    }
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        (**self).get(request)
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        (**self).post(request, body)
    }

    fn is_near(&self) -> bool {
        (**self).is_near()
    }

    fn renews_credentials(&self) -> bool {
        (**self).renews_credentials()
    }

    fn redact(&self, text: String) -> String {
        (**self).redact(text)
    }

    fn server(&self) -> Option<String> {
        (**self).server()
    }
}

/// The most headers of a response that a transport accepts, 400 kB in total.
///
/// Gateways add hundreds of cookies, and Go limits only the bytes. hyper's own limit is 100; it allocates 64 bytes for
/// each header that is allowed, while it parses.
pub const MAX_HEADERS: usize = 2_048;

/// The future that [`Transport::get`] and [`Transport::post`] return.
pub type ResponseFuture<'a> = BoxFuture<'a, Result<Response, TransportError>>;

pub(super) type Chunks = BoxStream<'static, Result<Bytes, TransportError>>;

/// A GET, or a POST without its body. It contains no credentials, because the transport adds them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The path from `/api` or `/apis`, and the query, percent-encoded.
    pub path_and_query: String,
    /// Headers such as `Accept`.
    pub headers: HeaderMap,
}

impl Request {
    /// Creates a request, for callers and tests of a [`Transport`].
    #[must_use]
    pub fn new(path_and_query: String, headers: HeaderMap) -> Self {
        Self { path_and_query, headers }
    }
}

/// A response of the server.
#[non_exhaustive]
pub struct Response {
    /// The HTTP status, of any class.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as it was sent, still compressed if the headers say so.
    pub body: BoxStream<'static, Result<Bytes, TransportError>>,
}

impl Response {
    /// Creates a response.
    #[must_use]
    pub fn new(
        status: StatusCode,
        headers: HeaderMap,
        body: BoxStream<'static, Result<Bytes, TransportError>>,
    ) -> Self {
        Self { status, headers, body }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Why a request, or the body of its response, failed.
///
/// It consists of a text without a source, because the errors of HTTP libraries contain headers, and URLs with continue
/// tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportError {
    kind: TransportErrorKind,
    message: String,
    /// The host and port of the server, if known.
    server: Option<String>,
    io: Option<io::ErrorKind>,
}

impl TransportError {
    /// Creates an error with a message, which must not contain secrets.
    ///
    /// Control characters are escaped, and the numbers of the system's errors are removed (` (os error 2)`).
    ///
    /// The message says why, because the [kind](Self::kind) adds a beginning such as `cannot connect to 10.0.0.1:6443`.
    /// Nothing is added for [`Setup`](TransportErrorKind::Setup), [`ReadIdle`](TransportErrorKind::ReadIdle),
    /// [`Deadline`](TransportErrorKind::Deadline) and [`Other`](TransportErrorKind::Other), whose message says what
    /// happened.
    pub fn new(kind: TransportErrorKind, message: impl AsRef<str>) -> Self {
        Self { kind, message: escaped(&without_os_numbers(message.as_ref())), server: None, io: None }
    }

    /// Converts the error of an HTTP library, whose messages must not contain secrets.
    ///
    /// The new message joins the messages of the error and its sources, each once, except those that only name a layer
    /// of a library, such as `client error (Connect)`. Control characters are escaped.
    ///
    /// The kind is [`TransportErrorKind::Tls`] if rustls failed, [`TransportErrorKind::Connect`] if hyper's client or
    /// the system could not connect, and `otherwise` in all other cases. If a source is a `TransportError`, it is
    /// returned unchanged.
    #[must_use]
    pub fn from_error(otherwise: TransportErrorKind, error: &(dyn StdError + 'static)) -> Self {
        if let Some(error) = causes(error).find_map(|cause| cause.downcast_ref::<Self>()) {
            return error.clone();
        }
        let io = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).last().map(io::Error::kind);
        let said = causes(error).filter(|cause| !holds_another(*cause));
        let said = said.map(|cause| (without_library(cause), cause.source().is_some()));
        let informative = said.filter(|(said, has_source)| !has_source || !names_a_layer(said)).map(|(said, _)| said);
        Self { io, ..Self::new(kind_of(error, otherwise), joined(informative)) }
    }

    /// Returns the error of a body. After the head of the response, a failure of TLS or of the connection is an
    /// interruption.
    ///
    /// A server that fails sends a fatal alert, and a proxy on the way may damage a record. Neither says anything about
    /// the certificates, which were accepted before.
    pub(super) fn in_body(self) -> Self {
        match self.kind {
            TransportErrorKind::Tls | TransportErrorKind::Connect => Self { kind: TransportErrorKind::Broken, ..self },
            _ => self,
        }
    }

    /// Adds the host and port of the server, unless the error contains them.
    pub(super) fn at(mut self, server: Option<String>) -> Self {
        self.server = self.server.or(server);
        self
    }

    /// Returns the kind of the innermost [`io::Error`], if [`from_error`](Self::from_error) found one.
    ///
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) means that the server closed the connection in the middle of a
    /// body, as API servers do with watches that have been open for long.
    #[must_use]
    pub fn io_error_kind(&self) -> Option<io::ErrorKind> {
        self.io
    }

    /// Returns the message, which may contain text of the peer, such as a GOAWAY's.
    pub(super) fn message_mut(&mut self) -> &mut String {
        &mut self.message
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> TransportErrorKind {
        self.kind
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, message, server, io: _ } = self;
        let server = server.as_deref().unwrap_or("the server");
        match kind {
            TransportErrorKind::Connect => write!(f, "cannot connect to {server}")?,
            TransportErrorKind::Tls => write!(f, "cannot connect to {server} over TLS")?,
            TransportErrorKind::Credentials => f.write_str("no valid credentials")?,
            TransportErrorKind::Broken => f.write_str("the connection was interrupted")?,
            TransportErrorKind::Compression => f.write_str("cannot decompress the response")?,
            TransportErrorKind::Redirect if !message.is_empty() => {
                return write!(f, "the server redirects {message}");
            }
            TransportErrorKind::Redirect => f.write_str("the server redirects")?,
            _ if !message.is_empty() => return f.write_str(message),
            TransportErrorKind::Setup => f.write_str("the transport has a wrong setting")?,
            TransportErrorKind::ReadIdle => f.write_str("the server sends nothing")?,
            TransportErrorKind::Deadline => f.write_str("the deadline has passed")?,
            TransportErrorKind::Other => f.write_str("the request failed")?,
        }
        if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
    }
}

impl std::error::Error for TransportError {}

/// How a transport can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// A setting is wrong, such as a URL, a certificate, a file or a kubeconfig.
    Setup,
    /// The credentials could not be read.
    Credentials,
    /// The connection was refused or timed out, or there is no route or no such host.
    Connect,
    /// The client and the server do not accept each other's certificates.
    Tls,
    /// The connection was closed in the middle of a body, compressed or not, or the stream was reset.
    Broken,
    /// No byte arrived within the read-idle timeout.
    ReadIdle,
    /// The deadline of the whole call has passed.
    Deadline,
    /// The server redirects in a loop, or a client that the caller built followed a redirect to another origin.
    Redirect,
    /// The compressed body is malformed, or uses a method that was not requested.
    Compression,
    /// Anything else.
    Other,
}

/// Escapes control characters, and other characters that a terminal does not show as they are.
fn escaped(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '"' | '\'' | '\\') { clean.push(c) } else { clean.extend(c.escape_debug()) }
    }
    clean
}

/// Returns true if this host, as written in a URL, is `localhost` or a loopback address.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the kind that the error or one of its sources implies, or `otherwise`.
fn kind_of(error: &(dyn StdError + 'static), otherwise: TransportErrorKind) -> TransportErrorKind {
    // h2 keeps only the text of a connection's error, for example when a server refuses a client certificate after the
    // handshake.
    let alert = |cause: &dyn StdError| cause.to_string().starts_with("received fatal alert");
    if causes(error).any(|cause| cause.is::<rustls::Error>() || alert(cause)) {
        TransportErrorKind::Tls
    } else if causes(error).any(is_failed_connect) {
        TransportErrorKind::Connect
    } else {
        otherwise
    }
}

/// Returns true if hyper-util's client could not connect, and for a refused connection.
///
/// The error of hyper-util (`client/legacy/client.rs`) is also beneath the errors of kube and reqwest. Its text is
/// compared rather than its type, because the feature `client` does not depend on an HTTP client.
fn is_failed_connect(cause: &(dyn StdError + 'static)) -> bool {
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    cause.downcast_ref().is_some_and(refused) || cause.to_string() == "client error (Connect)"
}

/// Returns true for a message that only names a layer of reqwest, hyper-util or hyper, while its source says more.
fn names_a_layer(message: &str) -> bool {
    const LAYERS: [&str; 8] = [
        "error sending request",
        "tcp connect error",
        "dns error",
        "connection error",
        "error reading a body from connection",
        "request or response body error",
        "error decoding response body",
        "http2 error",
    ];
    message.starts_with("client error (") || LAYERS.contains(&message)
}

/// Returns the message of an error in the words of a user, where a library or the system uses others.
fn without_library(cause: &(dyn StdError + 'static)) -> String {
    if let Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) = cause.downcast_ref() {
        return "the server may not use TLS: try http://".to_owned();
    }
    let message = without_os_numbers(cause);
    // kube displays its source, too: `ServiceError: client error (Connect)`.
    let of_kube = ["ServiceError: ", "HyperError: ", "auth error: "];
    of_kube.iter().fold(&*message, |message, prefix| message.strip_prefix(prefix).unwrap_or(message)).to_owned()
}

/// Returns the message of an error and the messages of its sources, each once.
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    joined(causes(error).map(without_os_numbers))
}

fn joined(messages: impl Iterator<Item = String>) -> String {
    messages
        .reduce(|text, more| if text.ends_with(&more) { text } else { format!("{text}: {more}") })
        .unwrap_or_default()
}

/// Returns the error and its sources. An `io::Error` has the source of the error inside, so that error is returned
/// first. rustls has no sources, but may contain an error of a verifier.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let source = |error: &&'a (dyn StdError + 'static)| {
        let error = *error;
        if let Some(rustls::Error::Other(rustls::OtherError(held))) = error.downcast_ref() {
            return Some(&**held as &'a (dyn StdError + 'static));
        }
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner as &'a (dyn StdError + 'static)),
            None => error.source(),
        }
    };
    std::iter::successors(Some(error), source)
}

/// Returns true for an error that displays nothing but the error inside.
fn holds_another(cause: &(dyn StdError + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.get_ref().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OnlyGets;

    impl Transport for OnlyGets {
        fn get(&self, _: Request) -> ResponseFuture<'_> {
            Box::pin(async { Err(TransportError::new(TransportErrorKind::Other, "")) })
        }
    }

    #[tokio::test]
    async fn posts_fail_unless_a_transport_implements_them() {
        let request = Request::new("/apis".to_owned(), HeaderMap::new());
        let error = OnlyGets.post(request, Bytes::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "this transport sends only GETs");
    }

    #[test]
    fn recognizes_loopback_hosts() {
        for (host, expected) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("localhost", true),
            ("::1", true),
            ("[::1]", true),
            ("10.0.0.1", false),
            ("localhost.example.com", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }

    #[test]
    fn chain_shows_each_message_once() {
        let inner = io::Error::other(rustls::Error::DecryptError);
        let outer = io::Error::other(inner);
        assert_eq!(chain(&outer), "cannot decrypt peer's message");
        assert_eq!(kind_of(&outer, TransportErrorKind::Other), TransportErrorKind::Tls);
    }

    /// Wraps an error, as HTTP libraries do.
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Box<dyn StdError + Send + Sync>);

    #[test]
    fn no_message_names_the_layers_of_a_library() {
        let refused = || std::net::TcpStream::connect("127.0.0.1:1").unwrap_err();
        let plain = io::Error::other(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        for (error, expected) in [
            (
                Layer(
                    "error sending request",
                    Layer("client error (Connect)", Layer("tcp connect error", refused().into()).into()).into(),
                ),
                "cannot connect to 10.0.0.1:6443: connection refused",
            ),
            (
                Layer(
                    "ServiceError: client error (Connect)",
                    Layer("client error (Connect)", Layer("dns error", "no such host".into()).into()).into(),
                ),
                "cannot connect to 10.0.0.1:6443: no such host",
            ),
            (
                Layer("client error (Connect)", plain.into()),
                "cannot connect to 10.0.0.1:6443 over TLS: the server may not use TLS: try http://",
            ),
            (Layer("HyperError: early end", "early end".into()), "the connection was interrupted: early end"),
            (
                Layer("client error (SendRequest)", Box::from(io::Error::other("connection error"))),
                "the connection was interrupted: connection error",
            ),
        ] {
            let error = TransportError::from_error(TransportErrorKind::Broken, &error);
            assert_eq!(error.at(Some("10.0.0.1:6443".to_owned())).to_string(), expected);
        }
    }

    #[test]
    fn says_what_happened_before_why() {
        for (kind, without_message, with_message) in [
            (TransportErrorKind::Setup, "the transport has a wrong setting", "why"),
            (TransportErrorKind::Credentials, "no valid credentials", "no valid credentials: why"),
            (TransportErrorKind::Connect, "cannot connect to the server", "cannot connect to the server: why"),
            (
                TransportErrorKind::Tls,
                "cannot connect to the server over TLS",
                "cannot connect to the server over TLS: why",
            ),
            (TransportErrorKind::Broken, "the connection was interrupted", "the connection was interrupted: why"),
            (TransportErrorKind::ReadIdle, "the server sends nothing", "why"),
            (TransportErrorKind::Deadline, "the deadline has passed", "why"),
            (TransportErrorKind::Redirect, "the server redirects", "the server redirects why"),
            (TransportErrorKind::Compression, "cannot decompress the response", "cannot decompress the response: why"),
            (TransportErrorKind::Other, "the request failed", "why"),
        ] {
            let texts = ["", "why"].map(|message| TransportError::new(kind, message).to_string());
            assert_eq!(texts, [without_message, with_message]);
        }
    }

    #[test]
    fn finds_the_kind_among_the_sources() {
        let plugin = TransportError::new(TransportErrorKind::Credentials, "the plugin failed");
        for (error, expected) in [
            ("boom".into(), TransportErrorKind::Other),
            (Box::from(io::Error::from(io::ErrorKind::ConnectionReset)), TransportErrorKind::Other),
            (Box::from(io::Error::from(io::ErrorKind::ConnectionRefused)), TransportErrorKind::Connect),
            (Layer("client error (Connect)", "no such host".into()).into(), TransportErrorKind::Connect),
            (Layer("client error (SendRequest)", "reset".into()).into(), TransportErrorKind::Other),
            (Layer("client error (Connect)", rustls::Error::DecryptError.into()).into(), TransportErrorKind::Tls),
            (plugin.clone().into(), TransportErrorKind::Credentials),
        ] {
            let found = TransportError::from_error(TransportErrorKind::Other, &Layer("service error", error));
            assert_eq!(found.kind(), expected, "{found}");
        }
        let found =
            TransportError::from_error(TransportErrorKind::Other, &Layer("service error", plugin.clone().into()));
        assert_eq!(found, plugin);
    }
}
