//! reqwest's errors as [`TransportError`].

use crate::client::transport::{TransportError, TransportErrorKind, chain};

pub(super) fn setup(message: impl AsRef<str>) -> TransportError {
    TransportError::new(TransportErrorKind::Setup, message)
}

pub(super) fn tls_setup(what: &str, error: reqwest::Error) -> TransportError {
    // Without the URL, which may hold a password.
    setup(format!("{what}: {}", chain(&error.without_url())))
}

pub(super) fn transport_error(error: reqwest::Error) -> TransportError {
    let kind = match &error {
        error if error.is_connect() => TransportErrorKind::Connect,
        error if error.is_request() || error.is_body() || error.is_decode() => TransportErrorKind::Broken,
        _ => TransportErrorKind::Other,
    };
    let server = error.url().filter(|_| error.is_connect()).map(|url| url.origin().ascii_serialization());
    TransportError::from_error(kind, &error.without_url()).at(server.as_deref())
}
