//! The errors of the client.

use std::time::Duration;
use std::{fmt, mem};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use http::StatusCode;

use super::redact::redact;
use super::transport::{Transport, TransportError, TransportErrorKind};
use crate::error::{DecodeError, DecodeErrorKind, InvalidInput, Limit};
use crate::meta::{Status, StatusCause, StatusDetails, TypeMeta};
use crate::wire::BodyFormat;

/// Why a call failed, and how many items it delivered before.
///
/// The delivered items are correct, but the list may contain more. The text is one line, with the causes and without
/// credentials.
#[derive(Clone, Debug)]
pub struct Error(Box<ErrorParts>);

#[derive(Clone, Debug)]
struct ErrorParts {
    kind: ErrorKind,
    items: u64,
    namespace: Option<String>,
    audit_id: Option<String>,
    /// True if the request had a continue token.
    of_later_page: bool,
}

impl Error {
    pub(super) fn new(kind: impl Into<ErrorKind>) -> Self {
        let (kind, namespace, audit_id) = (kind.into(), None, None);
        Self(Box::new(ErrorParts { kind, items: 0, namespace, audit_id, of_later_page: false }))
    }

    pub(super) fn of_later_page(mut self, of_later_page: bool) -> Self {
        self.0.of_later_page = of_later_page;
        self
    }

    /// Adds the namespace, if the call was for several.
    pub(super) fn with_namespace(mut self, namespace: Option<String>) -> Self {
        self.0.namespace = namespace;
        self
    }

    pub(super) fn with_items(mut self, items: u64) -> Self {
        self.0.items = items;
        self
    }

    pub(super) fn with_audit_id(mut self, audit_id: Option<String>) -> Self {
        self.0.audit_id = audit_id;
        self
    }

    /// Removes credentials from all text that a server or a proxy sent, except from text of items.
    pub(super) fn redacted(mut self, transport: &dyn Transport) -> Self {
        let clean = |text: &mut String| *text = redact(transport, mem::take(text));
        match &mut self.0.kind {
            ErrorKind::Api { status, .. } => {
                let Status { metadata, status, message, reason, details, code: _ } = &mut **status;
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
            ErrorKind::Incomplete { cause, .. } => {
                cause.iter_mut().map(TransportError::message_mut).for_each(clean);
            }
            ErrorKind::Decode(error) => {
                if let DecodeErrorKind::UnexpectedKind { api_version, kind } = error.kind_mut() {
                    [api_version, kind].into_iter().for_each(clean);
                }
            }
            ErrorKind::UnexpectedBody { content_type, .. } => content_type.iter_mut().for_each(clean),
            ErrorKind::OtherKind { expected: _, found } => {
                [&mut found.api_version, &mut found.kind].into_iter().for_each(clean);
            }
            ErrorKind::SeveralVersions { first, found } => [first, found].into_iter().for_each(clean),
            ErrorKind::Redirect { status: _, to } => to.iter_mut().for_each(clean),
            ErrorKind::Discovery(reason) | ErrorKind::Unresolved(reason) => clean(reason),
            // `last` was redacted when it was created.
            ErrorKind::NoProgress { .. } | ErrorKind::Params(_) | ErrorKind::PageChanged | ErrorKind::RepeatedToken => {
            }
        }
        self
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns how many items the call delivered before the error, over all pages and namespaces.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.0.items
    }

    /// Returns the namespace whose list or watch failed, if the call was for several.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.0.namespace.as_deref()
    }

    /// Returns the id of the request in the server's audit log, if the server sent one.
    #[must_use]
    pub fn audit_id(&self) -> Option<&str> {
        self.0.audit_id.as_deref()
    }

    /// Returns the error that the API server or a proxy sent.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match self.kind() {
            ErrorKind::Api { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Returns the limit that the body or one of its items exceeds.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        match self.kind() {
            ErrorKind::Decode(error) => error.limit(),
            _ => None,
        }
    }

    /// Returns the HTTP status code of the server's error, such as 404 (Not Found); `None` for any other error.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self.kind() {
            ErrorKind::Api { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns the server's `Retry-After`.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind() {
            ErrorKind::Api { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns true if the version or the continue token has expired, or [may have](ErrorKind::NoProgress).
    ///
    /// The caller should then list from the start. Servers report expiry in a Status with code 410, with the reason
    /// `Expired` or `Gone`, or with the text of etcd or kine that the revision was compacted. A continue token that the
    /// server refuses with 400 counts as expired too, but a 410 without a Status does not, because it comes from a
    /// proxy.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        match self.kind() {
            // Another release of the server, perhaps behind a load balancer, cannot read the token.
            ErrorKind::Api { code: 400, is_status: true, .. } if self.0.of_later_page => true,
            ErrorKind::Api { code, status, is_status: true, .. } => {
                let is_compacted = *code >= 500 && status.message.contains("has been compact");
                *code == 410 || matches!(&*status.reason, "Expired" | "Gone") || is_compacted
            }
            ErrorKind::NoProgress { .. } => true,
            _ => false,
        }
    }

    /// Returns true if the server's watch cache has not yet seen the requested version. Retry in a second.
    ///
    /// Servers report this as a cause. Servers before 1.17, and some that an aggregator serves, report it only as text
    /// (client-go `tools/cache/reflector.go`, `isTooLargeResourceVersionError`).
    #[must_use]
    pub fn is_too_large_version(&self) -> bool {
        const TEXT: &str = "Too large resource version";
        let ErrorKind::Api { code, status, is_status: true, .. } = self.kind() else { return false };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let is_timeout = *code == 504 || status.reason == "Timeout";
        causes.clone().any(|cause| cause.reason == "ResourceVersionTooLarge")
            || is_timeout && (status.message.contains(TEXT) || causes.clone().any(|cause| cause.message.contains(TEXT)))
    }

    /// Returns true if the body ended before the list did.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        matches!(self.kind(), ErrorKind::Incomplete { .. })
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
        let ErrorParts { kind, items, namespace, audit_id, of_later_page } = &*self.0;
        match kind {
            // The error of an item comes last.
            ErrorKind::Decode(error) => error.fmt_place(f)?,
            kind => write!(f, "{kind}")?,
        }
        match kind {
            // A decode error counts the items of its own page.
            ErrorKind::Decode(error) if error.items() == *items => {}
            ErrorKind::Decode(_) => write!(f, ", {items} in all")?,
            _ if *items == 0 => {}
            _ => {
                let is_cut = *of_later_page && matches!(kind, ErrorKind::Api { .. });
                let incomplete = if is_cut { "the list is incomplete: " } else { "" };
                write!(f, ", {incomplete}{items} item{} delivered", if *items == 1 { "" } else { "s" })?;
            }
        }
        if let Some(namespace) = namespace {
            write!(f, ", in namespace {namespace:?}")?;
        }
        if let Some(id) = audit_id {
            write!(f, " (audit id {})", id.escape_debug())?;
        }
        match kind {
            ErrorKind::Decode(error) => error.fmt_cause(f),
            _ => Ok(()),
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
    /// The parameters, the resource, the namespace or the name are invalid, so nothing was sent.
    #[error("{0}")]
    Params(InvalidInput),

    /// The server responded with an error status, or with a `Status` in place of a list or an object.
    #[error("{}", Api(status, *retry_after))]
    #[non_exhaustive]
    Api {
        /// The code of the Status, or else of HTTP.
        code: u16,
        /// The server's error.
        ///
        /// If the body is not a Status, it consists of the code and the beginning of the body as its message.
        status: Box<Status>,
        /// The `Retry-After` of the headers, or else of the Status.
        retry_after: Option<Duration>,
        /// True if the body is a Status, as API servers send it; false if a proxy may have answered.
        is_status: bool,
    },

    /// The transport failed before or during the response. An interrupted list is [`Incomplete`](Self::Incomplete).
    #[error("{0}")]
    Transport(TransportError),

    /// The body ended before the list did.
    #[error("{}", incomplete(cause.as_ref(), *bytes, *elapsed, *request_timeout))]
    #[non_exhaustive]
    Incomplete {
        /// The error of the transport; `None` if the body ended without one.
        cause: Option<TransportError>,
        /// How many bytes of the body were received, after decompression.
        bytes: u64,
        /// The time from the request to the interruption.
        elapsed: Duration,
        /// The server's request timeout, if `elapsed` is at least 90 % of it.
        ///
        /// The server then probably interrupted the list, which [`ListParams::page_size`](super::ListParams::page_size)
        /// or a faster consumer avoids.
        request_timeout: Option<Duration>,
    },

    /// The body is not a list, exceeds a limit, or contains an item that cannot be decoded.
    #[error("{0}")]
    Decode(DecodeError),

    /// The response is neither protobuf nor JSON of the API, but for example a proxy's page or CBOR.
    #[error("{}", unexpected(*format, content_type.as_deref(), snippet.as_deref()))]
    #[non_exhaustive]
    UnexpectedBody {
        /// The format of the body, judged by its first byte.
        format: BodyFormat,
        /// The `Content-Type` header.
        content_type: Option<String>,
        /// The beginning of the body if it is text, on one line and without credentials.
        snippet: Option<String>,
    },

    /// The response is a list of another kind.
    #[error("the server sent {} instead of {}", type_meta(.found), type_meta(.expected))]
    OtherKind {
        /// The requested type.
        expected: TypeMeta,
        /// The type in the response.
        found: TypeMeta,
    },

    /// A retried page does not begin with the items that were already delivered.
    #[error("the retried page has other items than before")]
    PageChanged,

    /// A later page has another resource version than the first, so the list would not be a snapshot.
    ///
    /// [`List::allow_inconsistent`](super::List::allow_inconsistent) accepts such pages.
    #[error("the pages have different resource versions, {first:?} and {found:?}, so the list is not a snapshot")]
    #[non_exhaustive]
    SeveralVersions {
        /// The version of the first page.
        first: String,
        /// The version of the later page.
        found: String,
    },

    /// The server repeated a continue token, so the pages would never end.
    #[error("the server repeated a continue token, so its pages would never end")]
    RepeatedToken,

    /// The server redirects elsewhere, and following it could send the credentials to another server.
    #[error(
        "the server redirects to {} ({status}), where the client does not follow",
        .to.as_deref().unwrap_or("a relative location")
    )]
    Redirect {
        /// The HTTP status of the redirect.
        status: StatusCode,
        /// The scheme, host and port of the target, without path and query; `None` if one of them is missing.
        to: Option<String>,
    },

    /// The server ended several watches from one version without an event, so the version may have expired.
    #[error("{}", no_progress(resource_version, *watches, last.as_deref()))]
    #[non_exhaustive]
    NoProgress {
        /// The version from which they started.
        resource_version: String,
        /// How many watches there were.
        watches: u32,
        /// The error of the last watch; `None` if the server ended it without an error.
        last: Option<Box<Error>>,
    },

    /// A discovery document of the server cannot be read.
    #[error("cannot read the discovery document {0}")]
    Discovery(String),

    /// The typed name names no resource, several resources, or one that the server does not list.
    #[error("{0}")]
    Unresolved(String),
}

/// Writes the server's error together with the reasons of its causes.
struct Api<'a>(&'a Status, Option<Duration>);

impl fmt::Display for Api<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(status, retry_after) = self;
        write!(f, "API error: {status}")?;
        let causes = status.details.iter().flat_map(|details| &details.causes);
        for cause in causes.filter(|cause| !cause.reason.is_empty()) {
            write!(f, " [{}]", cause.reason.escape_debug())?;
        }
        match retry_after {
            Some(after) => write!(f, ", retry after {} s", after.as_secs()),
            None => Ok(()),
        }
    }
}

fn incomplete(
    cause: Option<&TransportError>,
    bytes: u64,
    elapsed: Duration,
    request_timeout: Option<Duration>,
) -> String {
    let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
    let past = |timeout: Duration| format!(", about or past the server's request timeout of {} s", timeout.as_secs());
    let past = request_timeout.map(past).unwrap_or_default();
    let elapsed = elapsed.as_secs_f64();
    format!("incomplete: the body ended before the list did{cause}, at byte {bytes}, after {elapsed:.1} s{past}")
}

fn unexpected(format: BodyFormat, content_type: Option<&str>, snippet: Option<&str>) -> String {
    let content_type = content_type.map(|text| format!(" (content type {})", text.escape_debug())).unwrap_or_default();
    let snippet = snippet.map(|text| format!(": {}", text.escape_debug())).unwrap_or_default();
    format!("unexpected encoding: the body looks like {format}, not like an API server's{content_type}{snippet}")
}

fn no_progress(version: &str, watches: u32, last: Option<&Error>) -> String {
    let how = match last {
        None => "ended at once, without an event".to_owned(),
        Some(error) => format!("failed without an event, the last with {error}"),
    };
    format!("the resource version {version:?} may have expired: {watches} watches from it {how}")
}

impl From<InvalidInput> for ErrorKind {
    fn from(error: InvalidInput) -> Self {
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
