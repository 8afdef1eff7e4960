//! The errors of stores and indexes.

use std::error::Error;
use std::sync::Arc;

use super::key::ObjectKey;
use crate::error::ItemError;

/// The store could not hold an object, or could not commit a list.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The metadata cannot be read; or the object cannot be decoded, and the store keeps objects decoded.
    #[error(transparent)]
    Object(#[from] ItemError),
    /// The object has no name.
    #[error("the object has no name")]
    NoName,
    /// The namespace, name, uid or resource version is longer than 65,535 bytes, or the object than 4 GiB.
    #[error("{0} of the object is too long")]
    TooLong(&'static str),
    /// The object does not fit into the [budget](super::Store::set_budget) of this many bytes.
    #[error("the object does not fit into the store's budget of {0} bytes")]
    OverBudget(usize),
    /// Another [`Replace`](super::Replace) of the store was begun, so this one was not committed.
    #[error("another replace of the store was begun")]
    Superseded,
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

/// The function of an index failed for an object, so the index does not have the object.
#[derive(Clone, Debug, thiserror::Error)]
#[error("index {index} failed for {key}")]
#[non_exhaustive]
pub struct IndexError {
    /// The name of the index.
    pub index: Arc<str>,
    /// The object.
    pub key: ObjectKey,
    /// The error that the function returned.
    pub source: Arc<dyn Error + Send + Sync>,
}

/// The error with which a reflector ended.
pub(super) type Cause = Arc<dyn Error + Send + Sync>;
