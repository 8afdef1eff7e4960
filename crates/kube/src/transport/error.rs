//! Errors of kube as errors of a transport.

use kube::client::AuthError;
use listwatch::client::{TransportError, TransportErrorKind, chain};

/// Returns the error of a configuration that cannot be used.
pub(super) fn setup_error(message: impl Into<String>) -> TransportError {
    TransportError::new(TransportErrorKind::Setup, message.into())
}

/// Converts an error of kube, with the kind that decides about retries.
pub(super) fn transport_error(error: &kube::Error) -> TransportError {
    match error {
        kube::Error::Auth(_) => TransportError::new(TransportErrorKind::Credentials, chain(error)),
        // The request passed through a layer of kube that adds a provider's token.
        kube::Error::Service(cause) if cause.is::<AuthError>() => {
            TransportError::new(TransportErrorKind::Credentials, chain(error))
        }
        error => TransportError::from_error(TransportErrorKind::Broken, error),
    }
}
