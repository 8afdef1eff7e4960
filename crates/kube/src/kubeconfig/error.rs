//! The error of a kubeconfig.

use std::fmt;
use std::path::Path;

/// The error of a kubeconfig that cannot be used. Its text shows no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigError(String);

impl KubeconfigError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Adds the file to the text.
    pub(super) fn at(self, file: &Path) -> Self {
        Self(format!("{}: {}", file.display(), self.0))
    }
}

impl fmt::Display for KubeconfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KubeconfigError {}

pub(super) type Result<T> = std::result::Result<T, KubeconfigError>;

/// Returns an error with this text.
pub(super) fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(KubeconfigError::new(message))
}
