//! The crypto provider of TLS.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

use super::transport::{TransportError, TransportErrorKind};

/// Returns the crypto provider of TLS: the default that the program installed in rustls, or else the feature's.
///
/// If both features are enabled, aws-lc-rs is used. rustls is never asked to choose, because it panics in a program
/// that has both.
///
/// # Errors
///
/// [`TransportErrorKind::Setup`] when there is none.
pub fn crypto_provider() -> Result<Arc<CryptoProvider>, TransportError> {
    if let Some(installed) = CryptoProvider::get_default() {
        return Ok(Arc::clone(installed));
    }
    provider_of_features().map(Arc::new).ok_or_else(|| {
        TransportError::new(TransportErrorKind::Setup, "no crypto provider for TLS: enable the feature `ring` or `aws-lc-rs` of listwatch, or install one in rustls")
    })
}

#[cfg(feature = "aws-lc-rs")]
#[expect(clippy::unnecessary_wraps, reason = "with other features there is none")]
fn provider_of_features() -> Option<CryptoProvider> {
    Some(rustls::crypto::aws_lc_rs::default_provider())
}

#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
#[expect(clippy::unnecessary_wraps, reason = "with other features there is none")]
fn provider_of_features() -> Option<CryptoProvider> {
    Some(rustls::crypto::ring::default_provider())
}

#[cfg(not(any(feature = "aws-lc-rs", feature = "ring")))]
fn provider_of_features() -> Option<CryptoProvider> {
    None
}
