//! The client certificate of a configuration.

use std::fs;
use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};

use super::connect::setup;
use crate::client::transport::TransportError;

#[derive(Clone)]
pub(in crate::client) struct Identity {
    pub(in crate::client) certificate: Pem,
    pub(in crate::client) key: Pem,
}

#[derive(Clone)]
pub(in crate::client) enum Pem {
    Text(SecretString),
    File(PathBuf),
}

impl Identity {
    pub(super) fn has_files(&self) -> bool {
        [&self.certificate, &self.key].into_iter().any(|pem| matches!(pem, Pem::File(_)))
    }

    /// Returns the certificate followed by the key, from their files as they are now.
    pub(super) fn read(&self) -> Result<SecretString, TransportError> {
        let (certificate, key) = (self.certificate.read()?, self.key.read()?);
        Ok(joined(certificate.expose_secret(), key.expose_secret()))
    }
}

impl Pem {
    fn read(&self) -> Result<SecretString, TransportError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => match fs::read_to_string(path) {
                Ok(text) => Ok(text.into()),
                Err(error) => Err(setup(format!("{}: {error}", path.display()))),
            },
        }
    }
}

pub(super) fn joined(certificate: &str, key: &str) -> SecretString {
    format!("{certificate}\n{key}").into()
}
