//! The client certificate of a configuration.

use std::fs;

use base64::prelude::{BASE64_STANDARD, Engine};
use kube::config::AuthInfo;
use listwatch::client::{TransportError, TransportErrorKind};
use secrecy::{ExposeSecret, SecretString};

use super::error::setup_error;

/// Returns the client certificate and its key in PEM. As in client-go, data replace files.
pub(super) fn identity_pem(user: &AuthInfo) -> Result<Option<SecretString>, TransportError> {
    let data = user.client_certificate_data.as_deref();
    let certificate = read_pem("client certificate", data, user.client_certificate.as_deref())?;
    let data = user.client_key_data.as_ref().map(SecretString::expose_secret);
    let key = read_pem("client key", data, user.client_key.as_deref())?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            Ok(Some(format!("{}\n{}", certificate.expose_secret(), key.expose_secret()).into()))
        }
        (Some(_), None) => Err(setup_error("a client certificate without its key")),
        (None, Some(_)) => Err(setup_error("a client key without its certificate")),
    }
}

/// Returns the PEM in base64 or in a file. Errors do not quote it.
fn read_pem(what: &str, data: Option<&str>, path: Option<&str>) -> Result<Option<SecretString>, TransportError> {
    let bytes = match (data.filter(|data| !data.is_empty()), path) {
        (Some(data), _) => {
            BASE64_STANDARD.decode(data).map_err(|_| setup_error(format!("the {what} is not base64")))?
        }
        (None, Some(path)) => fs::read(path)
            .map_err(|error| TransportError::new(TransportErrorKind::Setup, format!("{path}: {error}")))?,
        (None, None) => return Ok(None),
    };
    let text = String::from_utf8(bytes).map_err(|_| setup_error(format!("the {what} is not PEM")))?;
    Ok(Some(text.into()))
}
