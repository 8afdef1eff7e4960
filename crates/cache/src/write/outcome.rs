//! The result of a write.

use crate::StoreType;
use crate::state::object::Object;

/// The result of writing an object.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum ApplyOutcome<T: StoreType + ?Sized> {
    /// The store did not have the object.
    Added(Object<T>),
    /// The object replaced another state.
    #[non_exhaustive]
    Modified {
        /// The previous state.
        old: Object<T>,
        /// The current state.
        new: Object<T>,
    },
    /// The store already has this state.
    Unchanged,
    /// The store has a newer state of the object; or the object was deleted: the store does not have it, and this state
    /// is not newer than the [resource version](crate::StoreReader::resource_version) of the collection.
    Stale,
}
