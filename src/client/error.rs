//! The errors of the client.

use std::time::Duration;
use std::{fmt, mem};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use http::StatusCode;

use super::redact::redact;
use super::transport::{Transport, TransportError, TransportErrorKind};
use crate::error::{DecodeError, DecodeErrorKind, LimitExceeded};
use crate::meta::{Status, StatusCause, StatusDetails, TypeMeta};
use crate::wire::BodyFormat;

/// The failure of a call, with the number of items delivered before.
///
/// The delivered items are exact, but the list may have more. The error is displayed on one line, without credentials.
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

    /// Sets the number of delivered items, for an error of a page whose items were not all delivered.
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

    /// Removes credentials from all text that a server or a proxy sent, except for text of items.
    pub(super) fn redacted(mut self, transport: &dyn Transport) -> Self {
        let clean = |text: &mut String| *text = redact(transport, mem::take(text));
        match &mut self.0.kind {
            ErrorKind::Api(error) => {
                let Status { metadata, status, message, reason, details, code: _ } = &mut error.status;
                [status, message, reason].into_iter().for_each(clean);
                if let Some(meta) = metadata {
                    clean(&mut meta.resource_version);
                    meta.shard_info.iter_mut().map(|shard| &mut shard.selector).for_each(clean);
                    // Parts of a continue token may look like parts of a bearer token.
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
            ErrorKind::Params(_) | ErrorKind::PageChanged => {}
        }
        self
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the number of items that the call delivered before, over all its pages and namespaces.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.0.items
    }

    /// Returns the id of the request in the server's audit log, if the server sent it.
    #[must_use]
    pub fn audit_id(&self) -> Option<&str> {
        self.0.audit_id.as_deref()
    }

    /// Returns the error that the API server, or a proxy, sent.
    #[must_use]
    pub fn api(&self) -> Option<&ApiError> {
        match self.kind() {
            ErrorKind::Api(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the limit that the body or one of its items exceeds, with its size.
    #[must_use]
    pub fn limit(&self) -> Option<LimitExceeded> {
        match self.kind() {
            ErrorKind::Decode(error) => error.limit(),
            _ => None,
        }
    }

    /// Returns the HTTP status code of the server's error; `None` for any other error.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        self.api().map(|error| error.code)
    }

    /// Returns the server's `Retry-After`.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.api()?.retry_after
    }

    /// Returns true if the version or the continue token has expired (410): list from the start.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// Returns true if the watch cache has not seen the requested version yet: retry in a second.
    #[must_use]
    pub fn is_too_large_version(&self) -> bool {
        let details = self.api().and_then(|error| error.status.details.as_ref());
        details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge"))
    }

    /// Returns true for HTTP 401 (Unauthorized).
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.code() == Some(401)
    }

    /// Returns true for HTTP 403 (Forbidden).
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Returns true for HTTP 404 (Not Found).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Returns true if the body ended before the list did.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        matches!(self.kind(), ErrorKind::Incomplete(_))
    }
}

/// Returns true if the text is JSON in base64, as the API server writes a continue token
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
        match kind {
            // A decode error counts the items of its own page.
            ErrorKind::Decode(error) if error.items() == *items => {}
            ErrorKind::Decode(_) => write!(f, ", {items} in all")?,
            _ if *items == 0 => {}
            _ => write!(f, ", {items} item{} delivered", if *items == 1 { "" } else { "s" })?,
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

/// The kind of an [`Error`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The parameters, or the resource, namespace or name, are invalid. Nothing was sent.
    #[error("parameters: {0}")]
    Params(InvalidParams),

    /// The server's error.
    #[error("API error: {0}")]
    Api(Box<ApiError>),

    /// The transport failed before or while it received the response. An interrupted list is [`Incomplete`](Self::Incomplete).
    #[error("transport: {0}")]
    Transport(TransportError),

    /// The body ended before the list did.
    #[error("incomplete: {0}")]
    Incomplete(Box<Incomplete>),

    /// The body is not a list, exceeds a limit, or has an item that cannot be decoded.
    #[error("{0}")]
    Decode(DecodeError),

    /// The response is neither protobuf nor JSON of the API: a proxy's page, CBOR.
    #[error("unexpected encoding: {0}")]
    UnexpectedBody(Box<UnexpectedBody>),

    /// The response is a list of another kind.
    #[error("another kind: expected {}, got {}", type_meta(.expected), type_meta(.found))]
    OtherKind {
        /// The requested type.
        expected: TypeMeta,
        /// The type in the response.
        found: TypeMeta,
    },

    /// A retried page does not begin with the items that were already delivered.
    #[error("the retried page has other items than before")]
    PageChanged,

    /// A redirect. The client does not follow it, because that could send the credentials to another server.
    #[error("redirect: {status} to {}, which is not followed", .to.as_deref().unwrap_or("a relative location"))]
    Redirect {
        /// The status.
        status: StatusCode,
        /// Scheme, host and port of the target, without path and query; `None` if one of them is missing.
        to: Option<String>,
    },

    /// The server's discovery documents cannot be read.
    #[error("discovery: {0}")]
    Discovery(String),
}

/// A response with an error status, or a `Status` in place of a list or an object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiError {
    /// The code of the Status, else of HTTP.
    pub code: u16,
    /// The server's error. If the body is not a Status, it has only the code, and the beginning of the body as its message.
    pub status: Status,
    /// The `Retry-After` of the headers, else of the Status.
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
            write!(f, ", retry after {} s", after.as_secs())?;
        }
        Ok(())
    }
}

/// How a list was interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incomplete {
    /// The error of the transport; `None` if the body ended without one.
    pub cause: Option<TransportError>,
    /// The bytes of the body that were received, after decompression.
    pub bytes: u64,
    /// The time from the request to the interruption.
    pub elapsed: Duration,
    /// The request timeout of the server, if `elapsed` is at least 90 % of it: then the server probably interrupted the list.
    /// [`ListParams::page_size`](super::ListParams::page_size) or a faster consumer avoids that.
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
            write!(f, ", about or past the server's request timeout of {} s", timeout.as_secs())?;
        }
        Ok(())
    }
}

/// A response that is not a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnexpectedBody {
    /// The format of the body, by its first byte.
    pub format: BodyFormat,
    /// The `Content-Type` header.
    pub content_type: Option<String>,
    /// The beginning of a text, on one line and without credentials.
    pub snippet: Option<String>,
}

impl fmt::Display for UnexpectedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the body looks like {}, not like a list", self.format)?;
        if let Some(content_type) = &self.content_type {
            write!(f, " (content type {})", content_type.escape_debug())?;
        }
        match &self.snippet {
            Some(snippet) => write!(f, ": {}", snippet.escape_debug()),
            None => Ok(()),
        }
    }
}

/// The largest timeout: the server parses it as Go's `time.Duration`.
pub(super) const MAX_TIMEOUT_SECONDS: u64 = 9_223_372_036;

/// Parameters that the server would refuse or interpret in another way, or that do not form a path. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidParams {
    /// The server would return the first page again.
    #[error("an empty continue token: there is no next page")]
    EmptyContinue,
    /// The server returns 422 for a list, and starts a watch at any version.
    #[error("exact version 0: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")]
    ExactZero,
    /// The server returns 400 or 422.
    #[error("invalid resource version {0:?}: it must be digits, as a server sent it")]
    Version(String),
    /// The server would send all items.
    #[error("page size 0")]
    PageSize,
    /// The server uses its own timeout for 0, and returns 400 for a timeout that is too long. `timeoutSeconds` has no fractions.
    #[error("timeout {0:?}: it must be whole seconds, from 1 to {MAX_TIMEOUT_SECONDS}")]
    Timeout(Duration),
    /// The server would parse it as another label selector.
    #[error("label selector: {0}")]
    LabelSelector(&'static str),
    /// The server would parse it as another field selector.
    #[error("field selector: {0}")]
    FieldSelector(&'static str),
    /// A namespace was given for a resource that is not namespaced.
    #[error("{resource} is not namespaced, but a namespace was given")]
    NotNamespaced {
        /// The resource, as typed.
        resource: String,
    },
    /// An object of a namespaced resource was requested without its namespace.
    #[error("{resource} is namespaced, but no namespace was given")]
    NamespaceNeeded {
        /// The resource, as typed.
        resource: String,
    },
    /// A part of the path is empty, or would change the path.
    #[error("{what} {value:?} {reason}")]
    Path {
        /// The part.
        what: &'static str,
        /// Its value.
        value: String,
        /// The reason for the refusal.
        reason: &'static str,
    },
}

impl From<ApiError> for ErrorKind {
    fn from(error: ApiError) -> Self {
        Self::Api(Box::new(error))
    }
}

impl From<InvalidParams> for ErrorKind {
    fn from(error: InvalidParams) -> Self {
        Self::Params(error)
    }
}

impl From<TransportError> for ErrorKind {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}

impl TransportErrorKind {
    /// Returns true if an error of this kind interrupts a list; false if the response itself is wrong.
    pub(crate) fn is_break(self) -> bool {
        matches!(self, Self::Broken | Self::ReadIdle | Self::Deadline | Self::Connect | Self::Other)
    }
}

fn type_meta(type_meta: &TypeMeta) -> String {
    format!("{} of {:?}", type_meta.kind.escape_debug(), type_meta.api_version)
}
