//! The errors of stores and indexes.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use listwatch::{ItemError, client};

use crate::key::ObjectKey;

/// Why a store cannot hold an object, commit a list, or return the changes after a version.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The metadata cannot be read.
    #[error(transparent)]
    Object(#[from] ItemError),
    /// The object has no name.
    #[error("the object has no name")]
    NoName,
    /// The namespace, name, uid or resource version is longer than 65,535 bytes, or the object is longer than 4 GiB.
    #[error("{0} of the object is too long")]
    TooLong(&'static str),
    /// The object does not fit into the [budget](super::Store::set_budget), which is this many bytes.
    #[error("the object does not fit into the store's budget of {0} bytes")]
    OverBudget(usize),
    /// Another [`Relist`](super::Relist) of the store has begun, so this one was not committed.
    #[error("another relist of the store has begun")]
    Superseded,
    /// The [change log](super::ChangeCursor) is closed, or has dropped changes after the version. The reader must
    /// relist.
    #[error("the change log does not contain all changes after this resource version")]
    ChangesExpired,
}

/// Lets a closure that writes items to a store return the store's errors.
impl From<StoreError> for ItemError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Object(error) => error,
            error => Self::Other(Arc::new(error)),
        }
    }
}

/// An object whose latest state is missing from a store or an index.
///
/// Either the store could not hold that state, or the function of the index failed. The text is one line and includes
/// the cause.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObjectError {
    /// The object; `None` if its key cannot be read.
    pub key: Option<ObjectKey>,
    /// The name of the index; `None` if the object is missing from the store.
    pub index: Option<Arc<str>>,
    /// The error that the function of the index returned, or a [`StoreError`].
    pub source: Arc<dyn Error + Send + Sync>,
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.index, &self.key) {
            (Some(index), Some(key)) => write!(f, "index {index} failed for {key}")?,
            (Some(index), None) => write!(f, "index {index} failed")?,
            (None, Some(key)) => write!(f, "cannot store {key}")?,
            (None, None) => f.write_str("cannot store an object")?,
        }
        write!(f, ": {}", self.source)
    }
}

impl Error for ObjectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

/// Why a reflector has ended, so that its cache receives no more changes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EndReason {
    /// [`PreparedReflector::run`](crate::PreparedReflector::run) returned this error.
    Failed(client::Error),
    /// The reflector panicked, with this message.
    Panicked(Arc<str>),
    /// [`Cache::stop`](crate::Cache::stop) stopped it.
    Stopped,
    /// Its future was dropped, because its task was aborted or its runtime has shut down.
    Dropped,
}

/// The text includes the error's, so the source is the source of that error.
impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "the reflector has failed: {error}"),
            Self::Panicked(message) => write!(f, "the reflector panicked: {message}"),
            Self::Stopped => f.write_str("the reflector was stopped"),
            Self::Dropped => {
                f.write_str("the reflector was dropped: its task was aborted, or its runtime has shut down")
            }
        }
    }
}

impl Error for EndReason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => error.source(),
            Self::Panicked(_) | Self::Stopped | Self::Dropped => None,
        }
    }
}
