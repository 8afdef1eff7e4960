//! How requests reach an API server: the trait, and its requests, responses and errors.

use std::collections::HashSet;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use http::{HeaderMap, StatusCode};

/// Sends requests to one API server.
///
/// It manages connections, TLS and credentials. It must not follow a redirect to another origin, because that would
/// send the credentials there: see [`Redirects`](super::Redirects). It neither requests compression nor decompresses,
/// and it does not retry a request that got a response.
pub trait Transport: Send + Sync + 'static {
    /// Sends a GET and waits for the head of the response.
    fn get(&self, request: Request) -> ResponseFuture<'_>;

    /// Sends a POST with this body, whose type is in the headers, and waits for the head of the response. Only reviews
    /// of tokens and of access are sent this way: a POST is not retried.
    ///
    /// The default returns an error, because a transport for lists and watches need not implement it.
    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        drop((request, body));
        Box::pin(async { Err(TransportError::new(TransportErrorKind::Setup, "this transport sends only GETs")) })
    }

    /// Returns true if [`Compression::Auto`](super::Compression::Auto) should request no compression. The server is in
    /// the same cluster or on the same host, where compression costs more than it saves; or the transport does not know.
    fn is_near(&self) -> bool {
        false
    }

    /// Returns true if a request after a 401 may use other credentials than the previous request.
    fn renews_credentials(&self) -> bool {
        false
    }

    /// Removes the secrets of this transport from a text that a server or a proxy sent.
    fn redact(&self, text: String) -> String {
        text
    }

    /// Returns the server's address for logs, such as `10.0.0.1:6443`, without credentials; `None` if it is unknown.
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

/// The most headers of a response that a transport accepts, of 400 kB in total: gateways add hundreds of cookies. Go
/// limits only the bytes.
///
/// hyper's own limit is 100. It allocates 64 bytes for each header that is allowed, while it parses.
pub const MAX_HEADERS: usize = 2_048;

/// The future that [`Transport::get`] and [`Transport::post`] return.
pub type ResponseFuture<'a> = BoxFuture<'a, Result<Response, TransportError>>;

/// The body of a response, as it arrives.
pub(super) type Chunks = BoxStream<'static, Result<Bytes, TransportError>>;

/// A GET, or a POST without its body. It carries no credentials: the transport adds them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The path from `/api` or `/apis`, and the query, percent-encoded.
    pub path_and_query: String,
    /// Headers like `Accept`.
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
    /// The status, of any class.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as sent, still compressed if the headers say so.
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

/// The failure of a request, or of the body of its response.
///
/// It has a text and no source, because the errors of HTTP libraries contain headers, and URLs with continue tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportError {
    kind: TransportErrorKind,
    message: String,
    io: Option<io::ErrorKind>,
}

impl TransportError {
    /// Creates an error with a message, which must not contain secrets. Control characters are escaped.
    pub fn new(kind: TransportErrorKind, message: impl AsRef<str>) -> Self {
        Self { kind, message: escaped(message.as_ref()), io: None }
    }

    /// Converts the error of an HTTP library. The message consists of the messages of the error and its sources, each
    /// once, without those that only name a layer of a library, such as `client error (Connect)`.
    ///
    /// The kind is [`TransportErrorKind::Tls`] if rustls failed, [`TransportErrorKind::Connect`] if hyper's client or
    /// the system could not connect, else `otherwise`. A `TransportError` among the sources is returned as it is. The
    /// messages must not contain secrets; control characters in them are escaped.
    #[must_use]
    pub fn from_error(otherwise: TransportErrorKind, error: &(dyn StdError + 'static)) -> Self {
        if let Some(error) = causes(error).find_map(|cause| cause.downcast_ref::<Self>()) {
            return error.clone();
        }
        let io = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).last().map(io::Error::kind);
        let informative = causes(error).filter(|cause| cause.source().is_none() || !names_a_layer(&cause.to_string()));
        Self { io, ..Self::new(kind_of(error, otherwise), joined(informative)) }
    }

    /// Returns the error of a body: after the head of the response, a failure of TLS or of the connection interrupts
    /// it.
    ///
    /// A server that fails sends a fatal alert, and a box between may damage a record. Neither says anything about the
    /// certificates, which were accepted before.
    pub(super) fn in_body(self) -> Self {
        match self.kind {
            TransportErrorKind::Tls | TransportErrorKind::Connect => Self { kind: TransportErrorKind::Broken, ..self },
            _ => self,
        }
    }

    /// Puts the URL of the server, if it is known, before the message.
    #[must_use]
    pub fn at(self, server: Option<&str>) -> Self {
        match server {
            Some(server) => Self { message: format!("{}: {}", escaped(server), self.message), ..self },
            None => self,
        }
    }

    /// Returns the kind of the innermost [`io::Error`] that caused this error, if [`from_error`](Self::from_error)
    /// found one.
    ///
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) means that the server closed the connection in the middle of a
    /// body, as API servers do with watches that were open for long.
    #[must_use]
    pub fn io_error_kind(&self) -> Option<io::ErrorKind> {
        self.io
    }

    /// Returns the message, which may contain text of the peer, for example of a GOAWAY.
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
        write!(f, "{}", self.kind)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for TransportError {}

/// How a transport can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// A setting is wrong: a URL, a certificate, a file, a kubeconfig.
    #[error("setup")]
    Setup,
    /// The credentials could not be read.
    #[error("credentials")]
    Credentials,
    /// The connection was refused, timed out, or has no route or no host.
    #[error("connect")]
    Connect,
    /// Client and server do not accept each other's certificates.
    #[error("TLS")]
    Tls,
    /// The connection was closed in the middle of a body, also of a compressed one, or the stream was reset.
    #[error("interrupted")]
    Broken,
    /// No byte arrived within the read-idle timeout.
    #[error("stalled")]
    ReadIdle,
    /// The deadline of the whole call has passed.
    #[error("deadline")]
    Deadline,
    /// The server redirects in a loop, or a client that the caller built followed a redirect to another origin.
    #[error("redirect")]
    Redirect,
    /// The compressed body is malformed, or uses a method that was not requested.
    #[error("compression")]
    Compression,
    /// Anything else.
    #[error("transport")]
    Other,
}

/// Escapes control characters and other characters that a terminal does not show as they are.
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

/// Replaces a secret in a text with `[redacted]`: the whole secret, its base64 form, and any part of eight bytes or
/// more of either, because a page may truncate or wrap it. A shorter secret is only found whole, and one of less than
/// four bytes only where it is no part of a longer word.
///
/// A secret of lower-case letters, `-`, `.` and `:` only may be an ordinary word, such as a user's name. It stays where
/// API servers quote the name of a user, a group, a namespace or a resource: `User "nobody" cannot list resource
/// "pods"`.
///
/// For implementations of [`Transport::redact`].
#[must_use]
pub fn redact_secret(text: String, secret: &str) -> String {
    /// The words before a quoted name, in messages of API servers (apiserver `responsewriters.ForbiddenStatus`).
    const NAMED: [&str; 4] = ["User ", "group ", "namespace ", "resource "];
    let is_word = |c: char| c.is_ascii_lowercase() || "-.:".contains(c);
    let quoted = format!("\"{secret}\"");
    if secret.is_empty() || !secret.chars().all(is_word) || !text.contains(&quoted) {
        return redact_everywhere(text, secret);
    }
    let (mut clean, mut rest) = (String::with_capacity(text.len()), &*text);
    while let Some((before, after)) = rest.split_once(&quoted) {
        let is_name = NAMED.iter().any(|noun| before.ends_with(noun));
        // A part of the secret may be in the text around it, never in the quotes.
        clean.push_str(&redact_everywhere(before.to_owned(), secret));
        clean.push_str(if is_name { &quoted } else { "\"[redacted]\"" });
        rest = after;
    }
    clean + &redact_everywhere(rest.to_owned(), secret)
}

fn redact_everywhere(text: String, secret: &str) -> String {
    const WORD: usize = 4;
    const PART: usize = 8;
    const REDACTED: &[u8] = b"[redacted]";

    if secret.is_empty() {
        return text;
    }
    if secret.len() < WORD {
        return redact_words(&text, secret);
    }
    if secret.len() < PART {
        return text.replace(secret, "[redacted]");
    }
    let encoded = |before: &[u8]| {
        let mut form = BASE64_STANDARD.encode([before, secret.as_bytes()].concat()).into_bytes();
        // Text around the secret changes the first and the last group of four.
        form.truncate(form.len().saturating_sub(4));
        form.split_off(if before.is_empty() { 0 } else { 4 })
    };
    let forms = [secret.as_bytes().to_vec(), encoded(b""), encoded(b"_"), encoded(b"__")];
    let parts: HashSet<&[u8]> = forms.iter().flat_map(|form| form.windows(PART)).collect();
    let (mut clean, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some(at) = rest.windows(PART).position(|window| parts.contains(window)) {
        let more = rest.windows(PART).skip(at).take_while(|window| parts.contains(window)).count();
        let (before, after) = (rest.get(..at), rest.get(at + more + PART - 1..));
        clean.extend_from_slice(before.unwrap_or_default());
        clean.extend_from_slice(REDACTED);
        rest = after.unwrap_or_default();
    }
    clean.extend_from_slice(rest);
    String::from_utf8_lossy(&clean).into_owned()
}

/// Replaces a secret where it is not a part of a longer word.
fn redact_words(text: &str, secret: &str) -> String {
    let (mut clean, mut from) = (String::with_capacity(text.len()), 0);
    for (at, word) in text.match_indices(secret) {
        let (before, after) = text.split_at(at);
        let inner = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        if inner(before.chars().next_back()) || inner(after.chars().nth(word.chars().count())) {
            continue;
        }
        clean.push_str(before.get(from..).unwrap_or_default());
        clean.push_str("[redacted]");
        from = at + word.len();
    }
    clean + text.get(from..).unwrap_or_default()
}

/// Returns the kind that the error or one of its sources has, else `otherwise`.
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

/// Returns true for the error of hyper-util's client that could not connect, and for a refused connection.
///
/// The error of hyper-util (`client/legacy/client.rs`) is under the errors of kube and reqwest. Its text is compared
/// instead of its type, because `listwatch` does not depend on an HTTP client.
fn is_failed_connect(cause: &(dyn StdError + 'static)) -> bool {
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    cause.downcast_ref().is_some_and(refused) || cause.to_string() == "client error (Connect)"
}

/// Returns true for the message of a layer of kube, reqwest, hyper-util or hyper that has a source, which says more.
fn names_a_layer(message: &str) -> bool {
    const LAYERS: [&str; 7] = [
        "error sending request",
        "tcp connect error",
        "connection error",
        "error reading a body from connection",
        "request or response body error",
        "error decoding response body",
        "http2 error",
    ];
    // kube displays its source, too: `ServiceError: client error (Connect)`.
    let message = ["ServiceError: ", "HyperError: "]
        .iter()
        .fold(message, |message, of_kube| message.strip_prefix(of_kube).unwrap_or(message));
    message.starts_with("client error (") || LAYERS.contains(&message)
}

/// Returns the message of an error and the messages of its sources, each once.
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    joined(causes(error))
}

fn joined<'a>(causes: impl Iterator<Item = &'a (dyn StdError + 'static)>) -> String {
    let mut text = String::new();
    for cause in causes {
        let more = cause.to_string();
        if !text.ends_with(&more) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&more);
        }
    }
    text
}

/// Returns the error and its sources. The source of an `io::Error` is the source of the error that it holds, so this
/// returns the held error first. rustls has no sources, but may hold an error of a verifier.
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
        assert_eq!(error.to_string(), "setup: this transport sends only GETs");
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
    fn redacts_secrets_whole_in_parts_and_in_base64() {
        for (text, secret, expected) in [
            ("a s3cret b", "s3cret", "a [redacted] b"),
            ("a s3cre b", "s3cret", "a s3cre b"),
            ("nothing", "", "nothing"),
            ("extended key of x, 6x: x", "x", "extended key of [redacted], 6x: [redacted]"),
            ("x-axis éx", "x", "[redacted]-axis éx"),
            ("a s3cret-t0ken, s3cret-t0ken b", "s3cret-t0ken", "a [redacted], [redacted] b"),
            ("truncated: s3cret-t", "s3cret-t0ken", "truncated: [redacted]"),
            ("wrapped: s3cret-t\n0ken-of-tests", "s3cret-t0ken-of-tests", "wrapped: [redacted]\n[redacted]"),
            ("dTpzM2NyZXQtdDBrZW4=", "s3cret-t0ken", "dTpz[redacted]ZW4="),
            ("é s3cret-töken é", "s3cret-töken", "é [redacted] é"),
            // An ordinary word is a name where an API server says so, and a credential anywhere else.
            (
                r#"pods is forbidden: User "nobody" cannot list resource "pods" in API group "" in the namespace "web""#,
                "nobody",
                r#"pods is forbidden: User "nobody" cannot list resource "pods" in API group "" in the namespace "web""#,
            ),
            (
                r#"User "kubernetes-admin" is not in "kubernetes-admin": token kubernetes-admin, kubernetes"#,
                "kubernetes-admin",
                r#"User "kubernetes-admin" is not in "[redacted]": token [redacted], [redacted]"#,
            ),
            (
                r#"{"token":"nobody"}, Bearer "nobody", nobody"#,
                "nobody",
                r#"{"token":"[redacted]"}, Bearer "[redacted]", [redacted]"#,
            ),
            (r#"User "hunter2" and User "s3cret-t0ken""#, "hunter2", r#"User "[redacted]" and User "s3cret-t0ken""#),
            (r#"User "s3cret-t0ken" cannot list"#, "s3cret-t0ken", r#"User "[redacted]" cannot list"#),
        ] {
            assert_eq!(redact_secret(text.to_owned(), secret), expected, "{text}");
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
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "Connection refused (os error 111)");
        for (error, expected) in [
            (
                Layer(
                    "error sending request",
                    Layer("client error (Connect)", Layer("tcp connect error", refused().into()).into()).into(),
                ),
                "connect: Connection refused (os error 111)",
            ),
            (
                Layer(
                    "ServiceError: client error (Connect)",
                    Layer("client error (Connect)", "no such host".into()).into(),
                ),
                "connect: no such host",
            ),
            (Layer("dns error", "no such host".into()), "interrupted: dns error: no such host"),
            (
                Layer("client error (SendRequest)", Box::from(io::Error::other("connection error"))),
                "interrupted: connection error",
            ),
        ] {
            assert_eq!(TransportError::from_error(TransportErrorKind::Broken, &error).to_string(), expected);
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
