//! Why a call of the client did not give what was asked for.

use std::time::Duration;
use std::{fmt, mem};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use http::StatusCode;

use super::body;
use super::options::InvalidOptions;
use super::resource::PathError;
use super::retry::{Class, classify};
use super::transport::{Transport, TransportError, TransportErrorKind};
use crate::error::{DecodeError, DecodeErrorKind};
use crate::meta::{Status, StatusCause, StatusDetails, TypeMeta};
use crate::wire::BodyFormat;

/// What went wrong, and how many items were delivered before.
///
/// Those items are exact; nothing says that they were all. It is displayed on one line, and no credentials are in it.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    items: u64,
    audit_id: Option<String>,
}

impl Error {
    pub(super) fn new(kind: impl Into<ErrorKind>) -> Self {
        Self(Box::new(Inner { kind: kind.into(), items: 0, audit_id: None }))
    }

    pub(super) fn with_items(mut self, items: u64) -> Self {
        self.0.items = items;
        self
    }

    /// For an error behind which items of its page were left out.
    pub(super) fn with_delivered(mut self, items: u64) -> Self {
        if let ErrorKind::Decode(error) = &mut self.0.kind {
            error.set_items(items);
        }
        self.with_items(items)
    }

    pub(super) fn with_audit_id(mut self, audit_id: Option<String>) -> Self {
        self.0.audit_id = audit_id;
        self
    }

    /// Takes credentials out of all that a server or a proxy had a say in, but for what was said of an item.
    pub(super) fn redacted(mut self, transport: &dyn Transport) -> Self {
        let clean = |text: &mut String| *text = body::redact(transport, mem::take(text));
        match &mut self.0.kind {
            ErrorKind::Api(error) => {
                let Status { metadata, status, message, reason, details, code: _ } = &mut error.status;
                [status, message, reason].into_iter().for_each(clean);
                if let Some(meta) = metadata {
                    clean(&mut meta.resource_version);
                    meta.shard_info.iter_mut().map(|shard| &mut shard.selector).for_each(clean);
                    // Parts of it may look like parts of a token.
                    if !is_continue_token(&meta.continue_token) {
                        meta.continue_token = transport.redact(mem::take(&mut meta.continue_token));
                    }
                }
                if let Some(StatusDetails { name, group, kind, causes, uid, retry_after_seconds: _ }) = details {
                    [name, group, kind, uid].into_iter().for_each(clean);
                    for StatusCause { reason, message, field } in causes {
                        [reason, message, field].into_iter().for_each(clean);
                    }
                }
            }
            ErrorKind::Transport(error) => clean(error.message_mut()),
            ErrorKind::Incomplete(incomplete) => {
                incomplete.cause.iter_mut().map(TransportError::message_mut).for_each(clean);
            }
            ErrorKind::Decode(error) => {
                if let DecodeErrorKind::NotAList { api_version, kind } = error.kind_mut() {
                    [api_version, kind].into_iter().for_each(clean);
                }
            }
            ErrorKind::UnexpectedBody(body) => body.content_type.iter_mut().for_each(clean),
            ErrorKind::OtherKind { expected: _, found } => {
                [&mut found.api_version, &mut found.kind].into_iter().for_each(clean);
            }
            ErrorKind::Redirect { status: _, to } => to.iter_mut().for_each(clean),
            ErrorKind::Discovery(reason) => clean(reason),
            ErrorKind::Options(_) | ErrorKind::Path(_) | ErrorKind::PageChanged => {}
        }
        self
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// How many items the whole call delivered before, over all its pages and namespaces.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.0.items
    }

    /// The id under which the server's audit log has the request, if it named one.
    #[must_use]
    pub fn audit_id(&self) -> Option<&str> {
        self.0.audit_id.as_deref()
    }

    /// What the API server, or something before it, answered in place of what was asked for.
    #[must_use]
    pub fn api(&self) -> Option<&ApiError> {
        match self.kind() {
            ErrorKind::Api(error) => Some(error),
            _ => None,
        }
    }

    /// The HTTP status code of the server's error, 0 for any other error.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.api().map_or(0, |error| error.code)
    }

    /// After what time the server asks to be asked again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.api()?.retry_after
    }

    /// Whether the version or the continue token is too old: list from the start.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.code() == 410
    }

    /// Whether the watch cache has not seen the version that was asked for yet: ask again in a second.
    #[must_use]
    pub fn is_too_large_version(&self) -> bool {
        let details = self.api().and_then(|error| error.status.details.as_ref());
        details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge"))
    }

    /// Whether the server does not know who asks.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.code() == 401
    }

    /// Whether the one who asks may not.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.code() == 403
    }

    /// Whether there is no such resource or object.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// Whether the body ended before the list did.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        matches!(self.kind(), ErrorKind::Incomplete(_))
    }

    /// Returns true if the same call may succeed soon: 408, 429, any 5xx, no connection, or one that broke or stalled.
    ///
    /// The client has then retried by itself, within its [`Retry`](super::Retry), unless items were delivered. A list that the
    /// server's request timeout interrupted is not among these: it would interrupt the next one too.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        classify(self, false) == Class::Transient
    }
}

/// Whether the text is JSON in base64, as the API server writes a continue token
/// (`k8s.io/apiserver/pkg/storage/continue.go`).
fn is_continue_token(text: &str) -> bool {
    BASE64_URL_SAFE_NO_PAD.decode(text).is_ok_and(|json| json.starts_with(b"{"))
}

impl<K: Into<ErrorKind>> From<K> for Error {
    fn from(kind: K) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, items, audit_id } = &*self.0;
        write!(f, "{kind}")?;
        // A decode error counts the items of its own page.
        if *items > 0 && !matches!(kind, ErrorKind::Decode(error) if error.items() == *items) {
            write!(f, ", {items} item{} delivered", if *items == 1 { "" } else { "s" })?;
        }
        match audit_id {
            Some(id) => write!(f, " (audit id {})", id.escape_debug()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.kind() {
            ErrorKind::Decode(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

/// What can be wrong with a call of the client.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The options are refused; nothing was sent.
    #[error("options: {0}")]
    Options(#[from] InvalidOptions),

    /// There is no path for that; nothing was sent.
    #[error("path: {0}")]
    Path(#[from] PathError),

    /// The server's own error.
    #[error("API error: {0}")]
    Api(Box<ApiError>),

    /// There is no answer.
    #[error("transport: {0}")]
    Transport(#[from] TransportError),

    /// The body ended before the list did.
    #[error("incomplete: {0}")]
    Incomplete(Box<Incomplete>),

    /// The body is not the protobuf of a list, or over a limit; or an item of it cannot become what was asked for.
    #[error("{0}")]
    Decode(DecodeError),

    /// The answer is no error, and is no list either: a proxy's page, a Table, CBOR.
    #[error("unexpected encoding: {0}")]
    UnexpectedBody(Box<UnexpectedBody>),

    /// A list of something else than was asked for.
    #[error("another kind: asked for {}, got {}", type_meta(.expected), type_meta(.found))]
    OtherKind {
        /// What was asked for.
        expected: TypeMeta,
        /// What came.
        found: TypeMeta,
    },

    /// An interrupted page was requested again, and does not begin with the items that were delivered of it.
    #[error("the page that was requested again has other items than before")]
    PageChanged,

    /// A redirect. It is not followed, for the credentials would travel with it.
    #[error("redirect: {status} to {}, which is not followed", .to.as_deref().unwrap_or("a relative place"))]
    Redirect {
        /// Which one.
        status: StatusCode,
        /// Where to: scheme, host and port, without path and query; `None` where the server did not say all three.
        to: Option<String>,
    },

    /// The server's discovery documents cannot be read.
    #[error("discovery: {0}")]
    Discovery(String),
}

/// An answer with an error status, or a `Status` in place of what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiError {
    /// The code of the Status, else that of HTTP.
    pub code: u16,
    /// The server's error. Where the body was none, it has the code only, and in its message what the body began with.
    pub status: Status,
    /// From the header, else from the Status.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        let causes = self.status.details.iter().flat_map(|details| &details.causes);
        for cause in causes.filter(|cause| !cause.reason.is_empty()) {
            write!(f, " [{}]", cause.reason.escape_debug())?;
        }
        if let Some(after) = self.retry_after {
            write!(f, ", asks to be asked again after {} s", after.as_secs())?;
        }
        Ok(())
    }
}

/// How a list broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incomplete {
    /// What the transport says; `None` when the body ended as if it were whole.
    pub cause: Option<TransportError>,
    /// How much of the body came, after decompression.
    pub bytes: u64,
    /// How long that took.
    pub elapsed: Duration,
    /// The request timeout of the server, where it took about as long or longer: then it was probably the server who broke
    /// off.
    pub request_timeout: Option<Duration>,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, bytes, elapsed, request_timeout } = self;
        f.write_str("the body ended before the list did")?;
        if let Some(cause) = cause {
            write!(f, " ({cause})")?;
        }
        write!(f, ", at byte {bytes}, after {:.1} s", elapsed.as_secs_f64())?;
        if let Some(timeout) = request_timeout {
            write!(
                f,
                ", about or past the server's request timeout of {} s, which covers writing the body: list in pages \
                 (.pages), or read faster",
                timeout.as_secs()
            )?;
        }
        Ok(())
    }
}

/// What came in place of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnexpectedBody {
    /// What it looks like.
    pub sniffed: BodyFormat,
    /// What it says that it is.
    pub content_type: Option<String>,
    /// How it begins, where it is text: on one line, without credentials.
    pub snippet: Option<String>,
}

impl fmt::Display for UnexpectedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the body looks like {}, not like a list", self.sniffed)?;
        if let Some(content_type) = &self.content_type {
            write!(f, " (content type {})", content_type.escape_debug())?;
        }
        match &self.snippet {
            Some(snippet) => write!(f, ": {}", snippet.escape_debug()),
            None => Ok(()),
        }
    }
}

impl From<ApiError> for ErrorKind {
    fn from(error: ApiError) -> Self {
        Self::Api(Box::new(error))
    }
}

impl TransportErrorKind {
    /// Whether a body that ends so is a list that broke off, and not one that was sent wrongly.
    pub(crate) fn is_break(self) -> bool {
        matches!(self, Self::Broken | Self::ReadIdle | Self::Deadline | Self::Connect | Self::Other)
    }
}

fn type_meta(type_meta: &TypeMeta) -> String {
    format!("{} of {:?}", type_meta.kind.escape_debug(), type_meta.api_version)
}
