//! The only classification of errors: what failed, and what to do next.
//!
//! - [`judge`] decides both. Lists, gets, watches and reflectors turn its [`RetryAdvice`] into their next step, and
//!   metrics count its [`ErrorClass`].
//! - Its match of `ErrorKind` has no `_`, so a new kind does not compile until both are decided.
//! - [`DecodeError::is_incomplete`](crate::DecodeError::is_incomplete) decides what a truncation is, for this file as
//!   well.
//! - An expired version or token comes first, whatever the status code, because no retry of the same request helps.
//! - Only a Status of Kubernetes says that a version has expired. A proxy's error says nothing about the version,
//!   however often it returns.
//! - A TLS error is final until the server was reached once. Later it may be the rotation of a certificate.
//! - 401, 403 and 404 may end when a role or a resource is created, so a watch retries them, and a list does not.
//! - A list that the server's request timeout interrupted would be interrupted again, so a reflector relists in pages.
//! - The caller's own error ([`ItemError`](crate::ItemError) of an item) would return for the same item.
//! - [`most_fruitless`] exists because some servers end a watch of an expired version without an error.

use std::time::Duration;

use super::error::{Error, ErrorKind};
use super::transport::TransportErrorKind;
use crate::error::DecodeErrorKind;
use crate::wire::BodyFormat;

/// The longest `Retry-After` that is obeyed. client-go obeys any (`rest/with_retry.go`); API servers send seconds, but
/// a proxy may send anything. After a longer one, a list or get ends in the error, and a watch or a reflector retries
/// after this time.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// What failed, in one of a few words for metrics and alerts: see [`Error::class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The server has forgotten the version or the continue token: see [`Error::is_expired`].
    Expired,
    /// The server limits requests (429).
    Throttled,
    /// Rights or credentials are missing (401, 403), or credentials cannot be issued.
    Denied,
    /// The request is invalid or was not sent, or the resource does not exist (all other codes below 500).
    Rejected,
    /// The server failed (408, 5xx).
    Server,
    /// There was no connection, or it broke or stalled before the end of the body.
    Connection,
    /// The response is not what was requested, but a redirect, a proxy's page, or a body that cannot be decoded.
    Response,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: &[Self] =
        &[Self::Expired, Self::Throttled, Self::Denied, Self::Rejected, Self::Server, Self::Connection, Self::Response];

    /// Returns the class as a lower-case word, for a label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Throttled => "throttled",
            Self::Denied => "denied",
            Self::Rejected => "rejected",
            Self::Server => "server",
            Self::Connection => "connection",
            Self::Response => "response",
        }
    }
}

/// What lists, gets, watches and reflectors do after an error.
///
/// | advice | list, get | watch that resumes | reflector |
/// |---|---|---|---|
/// | `Retry` | retried within [`Retry`](crate::client::Retry) | retried | retried |
/// | `RetryAfterRepair` | ends | retried, unless it fails fast | retried, unless it fails fast |
/// | `StartOver` | ends, unless it starts over | starts over before `Synced`, later if the caller chose so | relists |
/// | `Relist` | ends | ends | relists, unless it fails fast |
/// | `GiveUp` | ends | ends | ends before the first sync |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryAdvice {
    /// The same request may succeed soon.
    Retry,
    /// The same request may succeed once somebody intervenes.
    ///
    /// For example, somebody must grant a role, create the resource, or repair credentials or a proxy.
    RetryAfterRepair,
    /// The server has forgotten the resource version or the continue token, so only a request without it can succeed.
    StartOver,
    /// The response cannot be used. Repeating the request may return the same response, but a list in another form may
    /// not.
    Relist,
    /// The caller must change something.
    GiveUp,
}

/// Returns what failed, and what to do next.
///
/// A TLS error is retried if the server `was_reached` before, because a certificate may have been rotated. The class
/// does not depend on that.
fn judge(error: &Error, was_reached: bool) -> (ErrorClass, RetryAdvice) {
    use self::ErrorClass::{Connection, Denied, Expired, Rejected, Response, Server, Throttled};
    use self::RetryAdvice::{GiveUp, Relist, Retry, RetryAfterRepair, StartOver};

    let of_transport = |kind| match kind {
        TransportErrorKind::Connect | TransportErrorKind::Broken | TransportErrorKind::ReadIdle => (Connection, Retry),
        TransportErrorKind::Tls if was_reached => (Connection, Retry),
        TransportErrorKind::Tls | TransportErrorKind::Deadline => (Connection, GiveUp),
        TransportErrorKind::Other => (Connection, RetryAfterRepair),
        TransportErrorKind::Credentials => (Denied, RetryAfterRepair),
        TransportErrorKind::Redirect | TransportErrorKind::Compression => (Response, RetryAfterRepair),
        TransportErrorKind::Setup => (Rejected, GiveUp),
    };
    match error.kind() {
        _ if error.is_expired() => (Expired, StartOver),
        ErrorKind::NoProgress { .. } => (Expired, StartOver),
        ErrorKind::Api { code, retry_after, .. } => {
            let later = if *retry_after > Some(MAX_RETRY_AFTER) { RetryAfterRepair } else { Retry };
            match code {
                429 => (Throttled, later),
                408 | 500..=599 => (Server, later),
                600.. => (Server, GiveUp),
                401 | 403 => (Denied, RetryAfterRepair),
                // A proxy's 410. An API server's 410 counts as expired.
                404 | 410 => (Rejected, RetryAfterRepair),
                _ => (Rejected, GiveUp),
            }
        }
        ErrorKind::Transport(error) => of_transport(error.kind()),
        ErrorKind::Incomplete { request_timeout: Some(_), .. } => (Connection, Relist),
        ErrorKind::Incomplete { cause, .. } => match cause {
            Some(cause) => of_transport(cause.kind()),
            None => (Connection, Retry),
        },
        ErrorKind::Decode(error) if error.is_incomplete() => (Connection, Retry),
        ErrorKind::Decode(error) if matches!(error.kind(), DecodeErrorKind::Item(_)) => (Response, GiveUp),
        // A text is a proxy's page.
        ErrorKind::Redirect { .. } | ErrorKind::UnexpectedBody { format: BodyFormat::Html | BodyFormat::Text, .. } => {
            (Response, RetryAfterRepair)
        }
        ErrorKind::Decode(_)
        | ErrorKind::UnexpectedBody { .. }
        | ErrorKind::OtherKind { .. }
        | ErrorKind::Discovery(_)
        | ErrorKind::PageChanged
        | ErrorKind::SeveralVersions { .. }
        | ErrorKind::RepeatedToken => (Response, Relist),
        ErrorKind::Params(_) => (Rejected, GiveUp),
        ErrorKind::Unresolved(_) => (Rejected, RetryAfterRepair),
    }
}

/// Returns what to do after an error. A TLS error is retried if the server `was_reached` before.
pub(super) fn classify(error: &Error, was_reached: bool) -> RetryAdvice {
    judge(error, was_reached).1
}

impl Error {
    /// Returns what failed, for metrics and alerts.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        judge(self, false).0
    }

    /// Returns true if the same call may succeed soon: after 408, 429, any 5xx, or a failed, broken or stalled
    /// connection.
    ///
    /// By then the client has already retried, within its [`Retry`](super::Retry), unless items were delivered. A list
    /// that the server's request timeout interrupted is not retryable, because the timeout would interrupt the next
    /// list too.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        classify(self, false) == RetryAdvice::Retry
    }
}

/// Returns what to do after an error of one group's discovery document.
///
/// While the server of a group is down, the API server answers 503 at once (kube-aggregator `handler_proxy.go`), and a
/// retry would delay the other groups. A retry helps if the server asked for one or the connection broke, which are the
/// only errors that client-go retries (`rest/with_retry.go`).
pub(super) fn classify_version(error: &Error, was_reached: bool) -> RetryAdvice {
    match error.kind() {
        ErrorKind::Api { retry_after: None, .. } => RetryAdvice::RetryAfterRepair,
        _ => classify(error, was_reached),
    }
}

/// Returns how many connections that end like this one let their version count as expired.
///
/// They all start from that version and end without an event. The result is `None` if such an end is no sign of an
/// expired version, as after 429 or a refused connection.
///
/// `at_once` is true if the server accepted the watch and it ended at once. client-go relists after a single such end,
/// and after every error but 429 and refused connections (`tools/cache/reflector.go`, `handleWatch`).
pub(super) fn most_fruitless(error: Option<&Error>, at_once: bool) -> Option<u32> {
    let breaks = || at_once.then_some(MOST_FAILED);
    match error.map(Error::kind) {
        None => at_once.then_some(MOST_ENDED),
        Some(ErrorKind::Api { code: 500 | 504, is_status: true, .. }) => Some(MOST_FAILED),
        Some(ErrorKind::Transport(error)) if error.kind() == TransportErrorKind::Broken => breaks(),
        Some(ErrorKind::Decode(error)) if error.is_incomplete() => breaks(),
        Some(_) => None,
    }
}

/// How many watches the server may end at once before their version counts as expired.
const MOST_ENDED: u32 = 3;

/// How many watches may fail before their version counts as expired. With the default backoff, they take a minute or
/// two.
const MOST_FAILED: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::transport::TransportError;
    use crate::error::DecodeError;
    use crate::meta::Status;

    #[test]
    fn says_what_failed_and_what_to_do_next() {
        let api = |code, message: &str| {
            let status = Box::new(Status { message: message.to_owned(), ..Status::default() });
            ErrorKind::Api { code, status, retry_after: None, is_status: true }
        };
        let transport = |kind| ErrorKind::Transport(TransportError::new(kind, "x"));
        let interrupted = |cause| ErrorKind::Incomplete {
            cause,
            bytes: 1,
            elapsed: std::time::Duration::ZERO,
            request_timeout: None,
        };
        let broken = TransportError::new(TransportErrorKind::Broken, "x");
        let damaged = TransportError::new(TransportErrorKind::Compression, "x");
        for (kind, expected) in [
            (api(410, ""), "expired"),
            (api(500, "the revision has been compacted"), "expired"),
            (api(429, ""), "throttled"),
            (api(401, ""), "denied"),
            (api(403, ""), "denied"),
            (transport(TransportErrorKind::Credentials), "denied"),
            (api(404, ""), "rejected"),
            (api(422, ""), "rejected"),
            (transport(TransportErrorKind::Setup), "rejected"),
            (api(408, ""), "server"),
            (api(503, ""), "server"),
            (api(600, ""), "server"),
            (transport(TransportErrorKind::Connect), "connection"),
            (transport(TransportErrorKind::Tls), "connection"),
            (transport(TransportErrorKind::ReadIdle), "connection"),
            (interrupted(None), "connection"),
            (interrupted(Some(broken)), "connection"),
            (interrupted(Some(damaged)), "response"),
            (ErrorKind::RepeatedToken, "response"),
        ] {
            let error = Error::new(kind);
            assert_eq!(error.class().as_str(), expected, "{error}");
        }
    }
    #[test]
    fn only_an_end_that_an_expired_version_may_cause_is_fruitless() {
        let api = |code, is_status| {
            let status = Box::new(Status::default());
            ErrorKind::Api { code, status, retry_after: None, is_status }
        };
        let transport = |kind| ErrorKind::Transport(TransportError::new(kind, "x"));
        let decode = |kind| ErrorKind::Decode(DecodeError::new(kind, 0, None, 0).of_watch());
        for (kind, at_once, later) in [
            (api(500, true), Some(MOST_FAILED), Some(MOST_FAILED)),
            (api(504, true), Some(MOST_FAILED), Some(MOST_FAILED)),
            (api(500, false), None, None),
            (api(429, true), None, None),
            (transport(TransportErrorKind::Broken), Some(MOST_FAILED), None),
            (transport(TransportErrorKind::Connect), None, None),
            (decode(DecodeErrorKind::TruncatedFrame), Some(MOST_FAILED), None),
            (decode(DecodeErrorKind::Finished), None, None),
        ] {
            let error = Error::new(kind);
            assert_eq!([true, false].map(|at_once| most_fruitless(Some(&error), at_once)), [at_once, later], "{error}");
        }
        assert_eq!([true, false].map(|at_once| most_fruitless(None, at_once)), [Some(MOST_ENDED), None]);
    }
}
