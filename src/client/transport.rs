//! How requests reach an API server: the trait, and what it carries.

use std::collections::HashSet;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;

use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, StatusCode};

pub use super::io_thread::IoThread;

/// Sends requests to one API server.
///
/// Connections, TLS and credentials are its own affair, and so are redirects: it must not follow one to another origin,
/// for the credentials would travel with it. It neither asks for compression nor undoes it, and does not retry what it has
/// an answer to.
pub trait Transport: Send + Sync + 'static {
    /// Sends a GET and waits for the head of the response.
    fn get(&self, request: Request) -> ResponseFuture<'_>;

    /// Whether the server is so near that compression costs more than it saves: in the same cluster or on the same host.
    fn is_near(&self) -> bool {
        false
    }

    /// Whether a request that follows a 401 may carry other credentials than the one before.
    fn renews_credentials(&self) -> bool {
        false
    }

    /// Takes the secrets of this transport out of what a server or a proxy sent, before anybody sees it.
    fn redact(&self, text: String) -> String {
        text
    }
}

/// What [`Transport::get`] returns.
pub type ResponseFuture<'a> = Pin<Box<dyn Future<Output = Result<Response, TransportError>> + Send + 'a>>;

/// The body of a [`Response`], as it arrives.
pub type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, TransportError>> + Send>>;

/// A GET. It carries no credentials: the transport adds them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// From `/api` or `/apis` on, with the query, percent-encoded.
    pub path_and_query: String,
    /// `Accept` and the like.
    pub headers: HeaderMap,
}

impl Request {
    pub(super) fn new(path_and_query: String, headers: HeaderMap) -> Self {
        Self { path_and_query, headers }
    }
}

/// What the server answered.
pub struct Response {
    /// Of any class: an error status is an answer too.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as sent, still compressed if the headers say so.
    pub body: Chunks,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Why there is no answer, or no more of it.
///
/// It is text, not a chain of sources: those hold URLs with continue tokens, and headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportError {
    kind: TransportErrorKind,
    message: String,
    at_eof: bool,
}

impl TransportError {
    /// The message must hold no secret. Control characters in it are escaped.
    pub fn new(kind: TransportErrorKind, message: impl AsRef<str>) -> Self {
        Self { kind, message: message.as_ref().escape_debug().to_string(), at_eof: false }
    }

    /// Converts the error of an HTTP library: its message is that of the error and of its sources, each once.
    ///
    /// The kind is [`TransportErrorKind::Tls`] if rustls failed, else `otherwise`. The messages of the sources must hold no
    /// secret; control characters in them are escaped.
    #[must_use]
    pub fn from_error(otherwise: TransportErrorKind, error: &(dyn StdError + 'static)) -> Self {
        let at_eof = causes(error)
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|cause| cause.kind() == io::ErrorKind::UnexpectedEof);
        Self { at_eof, ..Self::new(kind_of(error, otherwise), chain(error)) }
    }

    /// Returns true if the peer closed the connection in the middle of a body, as API servers do with watches that were
    /// open for long. Only errors that [`from_error`](Self::from_error) made know this.
    #[must_use]
    pub fn is_unexpected_eof(&self) -> bool {
        self.at_eof
    }

    /// The peer has a say in it: a GOAWAY carries text.
    pub(super) fn message_mut(&mut self) -> &mut String {
        &mut self.message
    }

    /// What happened.
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

/// What can happen on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// How to reach the server is said wrong: a URL, a certificate, a file.
    #[error("setup")]
    Setup,
    /// The credentials could not be read.
    #[error("credentials")]
    Credentials,
    /// No connection: refused, no route, no such host, or not within the connect timeout.
    #[error("connect")]
    Connect,
    /// Client and server do not accept each other's certificates.
    #[error("TLS")]
    Tls,
    /// The connection broke, or the stream was reset.
    #[error("broken off")]
    Broken,
    /// Nothing came for longer than the read-idle timeout.
    #[error("stalled")]
    ReadIdle,
    /// The deadline of the whole call is over.
    #[error("deadline")]
    Deadline,
    /// A redirect was followed to another origin, which a client that the caller brought may do.
    #[error("redirect")]
    Redirect,
    /// The body is compressed wrongly, or in a way that nobody asked for.
    #[error("compression")]
    Compression,
    /// Anything else.
    #[error("transport")]
    Other,
}

/// Returns true if this host, as a URL writes it, is the machine that the process runs on: `localhost` or a loopback
/// address.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Replaces a secret in a text by `[redacted]`: the whole secret, its base64 form, and any part of eight characters or more of
/// either, because a page may truncate or wrap it. A secret shorter than that is only found whole.
///
/// For implementations of [`Transport::redact`].
#[must_use]
pub fn redact_secret(text: String, secret: &str) -> String {
    const PART: usize = 8;
    const REDACTED: &[u8] = b"[redacted]";

    if secret.is_empty() {
        return text;
    }
    if secret.len() < PART {
        return text.replace(secret, "[redacted]");
    }
    let encoded = |before: &[u8]| {
        let mut form = BASE64_STANDARD.encode([before, secret.as_bytes()].concat()).into_bytes();
        // What stands around the secret is in the first and the last group of four.
        form.truncate(form.len().saturating_sub(4));
        form.split_off(if before.is_empty() { 0 } else { 4 })
    };
    let forms = [secret.as_bytes().to_vec(), encoded(b""), encoded(b"_"), encoded(b"__")];
    let parts: HashSet<&[u8]> = forms.iter().flat_map(|form| form.windows(PART)).collect();
    let (mut clean, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some(at) = rest.windows(PART).position(|window| parts.contains(window)) {
        let more = rest.windows(PART).skip(at).take_while(|window| parts.contains(window)).count();
        let (before, behind) = (rest.get(..at), rest.get(at + more + PART - 1..));
        clean.extend_from_slice(before.unwrap_or_default());
        clean.extend_from_slice(REDACTED);
        rest = behind.unwrap_or_default();
    }
    clean.extend_from_slice(rest);
    String::from_utf8_lossy(&clean).into_owned()
}

/// [`TransportErrorKind::Tls`] if rustls failed, else `otherwise`.
fn kind_of(error: &(dyn StdError + 'static), otherwise: TransportErrorKind) -> TransportErrorKind {
    // Of an error of its connection, h2 keeps the text only: a server refuses a client's certificate after the handshake.
    let alert = |cause: &dyn StdError| cause.to_string().starts_with("received fatal alert");
    if causes(error).any(|cause| cause.is::<rustls::Error>() || alert(cause)) {
        TransportErrorKind::Tls
    } else {
        otherwise
    }
}

/// The message of an error and those of its sources, each once.
pub(super) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error) {
        let more = cause.to_string();
        if !text.ends_with(&more) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&more);
        }
    }
    text
}

/// The error, what caused it, and so on. An `io::Error` steps over the error that it holds: its source is that one's.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let behind = |error: &&'a (dyn StdError + 'static)| {
        let error = *error;
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner as &'a (dyn StdError + 'static)),
            None => error.source(),
        }
    };
    std::iter::successors(Some(error), behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_this_one() {
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
    fn secrets_are_taken_out_whole_in_parts_and_in_base64() {
        for (text, secret, expected) in [
            ("a s3cret b", "s3cret", "a [redacted] b"),
            ("a s3cre b", "s3cret", "a s3cre b"),
            ("nothing", "", "nothing"),
            ("a s3cret-t0ken, s3cret-t0ken b", "s3cret-t0ken", "a [redacted], [redacted] b"),
            ("cut: s3cret-t", "s3cret-t0ken", "cut: [redacted]"),
            ("wrapped: s3cret-t\n0ken-of-tests", "s3cret-t0ken-of-tests", "wrapped: [redacted]\n[redacted]"),
            ("dTpzM2NyZXQtdDBrZW4=", "s3cret-t0ken", "dTpz[redacted]ZW4="),
            ("é s3cret-töken é", "s3cret-töken", "é [redacted] é"),
        ] {
            assert_eq!(redact_secret(text.to_owned(), secret), expected, "{text}");
        }
    }

    #[test]
    fn chains_say_each_thing_once() {
        let inner = io::Error::other(rustls::Error::DecryptError);
        let outer = io::Error::other(inner);
        assert_eq!(chain(&outer), "cannot decrypt peer's message");
        assert_eq!(kind_of(&outer, TransportErrorKind::Other), TransportErrorKind::Tls);
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(kind_of(&refused, TransportErrorKind::Connect), TransportErrorKind::Connect);
    }
}
