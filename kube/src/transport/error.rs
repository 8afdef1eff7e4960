//! Errors of kube as errors of a transport.

use listwatch::client::{TransportError, TransportErrorKind};

/// Returns the error of a configuration that cannot be used.
pub(super) fn setup_error(message: impl Into<String>) -> TransportError {
    TransportError::new(TransportErrorKind::Setup, message.into())
}

/// Converts an error of kube, with the kind that decides about retries.
pub(super) fn transport_error(error: &kube::Error) -> TransportError {
    let kind = match error {
        kube::Error::Auth(_) => TransportErrorKind::Credentials,
        // The request passed through a layer of kube that adds a provider's token.
        kube::Error::Service(error) if error.downcast_ref::<kube::client::AuthError>().is_some() => {
            TransportErrorKind::Credentials
        }
        kube::Error::Service(error) => match error.downcast_ref::<hyper_util::client::legacy::Error>() {
            Some(error) if error.is_connect() => TransportErrorKind::Connect,
            _ => TransportErrorKind::Broken,
        },
        kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => TransportErrorKind::Broken,
        _ => TransportErrorKind::Other,
    };
    TransportError::from_error(kind, error)
}
