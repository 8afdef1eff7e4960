//! The classes of errors, for metrics.

use super::error::{Error, ErrorKind};
use super::transport::TransportErrorKind;

/// What failed, in one of a few words, for metrics and alerts: see [`Error::class`].
///
/// It decides nothing: [`RetryAdvice`](super::RetryAdvice) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The server has forgotten the version or the continue token: [`Error::is_expired`].
    Expired,
    /// The server limits requests: 429.
    Throttled,
    /// Rights or credentials are missing: 401, 403, and credentials that cannot be issued.
    Denied,
    /// The request is invalid, or the resource does not exist: all other codes below 500, and requests that were not
    /// sent.
    Rejected,
    /// The server failed: 408 and 5xx.
    Server,
    /// No connection, or one that broke or stalled before the end of the body.
    Connection,
    /// The response is not what was requested: a redirect, a proxy's page, or a body that cannot be decoded.
    Response,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: &[Self] =
        &[Self::Expired, Self::Throttled, Self::Denied, Self::Rejected, Self::Server, Self::Connection, Self::Response];

    /// Returns the class as a word in lower case, for a label.
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

impl Error {
    /// Returns what failed, for metrics and alerts.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        let of_transport = |kind| match kind {
            TransportErrorKind::Credentials => ErrorClass::Denied,
            TransportErrorKind::Setup => ErrorClass::Rejected,
            TransportErrorKind::Redirect | TransportErrorKind::Compression => ErrorClass::Response,
            TransportErrorKind::Connect
            | TransportErrorKind::Broken
            | TransportErrorKind::ReadIdle
            | TransportErrorKind::Tls
            | TransportErrorKind::Deadline
            | TransportErrorKind::Other => ErrorClass::Connection,
        };
        match self.kind() {
            _ if self.is_expired() => ErrorClass::Expired,
            ErrorKind::Api { code, .. } => match code {
                429 => ErrorClass::Throttled,
                401 | 403 => ErrorClass::Denied,
                408 | 500.. => ErrorClass::Server,
                _ => ErrorClass::Rejected,
            },
            ErrorKind::Transport(error) => of_transport(error.kind()),
            ErrorKind::Incomplete { cause, .. } => {
                cause.as_ref().map_or(ErrorClass::Connection, |cause| of_transport(cause.kind()))
            }
            ErrorKind::Decode(error) if error.is_incomplete() => ErrorClass::Connection,
            ErrorKind::Params(_) | ErrorKind::Unresolved(_) => ErrorClass::Rejected,
            ErrorKind::NoProgress { .. } => ErrorClass::Expired,
            ErrorKind::Decode(_)
            | ErrorKind::UnexpectedBody { .. }
            | ErrorKind::OtherKind { .. }
            | ErrorKind::PageChanged
            | ErrorKind::SeveralVersions { .. }
            | ErrorKind::RepeatedToken
            | ErrorKind::Redirect { .. }
            | ErrorKind::Discovery(_) => ErrorClass::Response,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::transport::TransportError;
    use crate::meta::Status;

    #[test]
    fn names_what_failed() {
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
}
