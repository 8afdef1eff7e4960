//! What a write changes, for the writer and for subscribers.

use std::error::Error;
use std::sync::Arc;

use super::object::{Object, Stored};

/// A change of a store, as a [`Subscriber`](super::Subscriber) gets it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Change<T: Stored + ?Sized> {
    /// The object was added or modified.
    Applied {
        /// The state that the subscriber got before, or that was there when it was registered. `None` for an object that it has not
        /// got yet.
        old: Option<Object<T>>,
        /// The state that is there now.
        new: Object<T>,
    },
    /// The object was deleted, or does not pass the filters of the subscriber any more.
    Deleted {
        /// The last state that is known and that passed.
        last: Object<T>,
        /// The deletion itself was missed: the object was not in a complete list. Its last state may have been another one.
        /// (`DeletedFinalStateUnknown` of client-go)
        final_state_unknown: bool,
    },
    /// A list is complete. All its changes were delivered before. A subscriber [with the initial
    /// state](super::Subscribe::with_initial_state) gets it after that state as well, if the store has a resource version.
    Synced,
    /// The reflector of the store ended by this error, so no more changes follow.
    Ended(Arc<dyn Error + Send + Sync>),
}

/// What a write of an object did.
#[derive(Debug)]
#[must_use]
pub enum Written<T: Stored + ?Sized> {
    /// The store did not have the object.
    Added(Object<T>),
    /// The object replaced another state.
    Modified {
        /// The state that was there.
        old: Object<T>,
        /// The state that is there now.
        new: Object<T>,
    },
    /// The store has this state already.
    Unchanged,
    /// The store has a newer state; or the object was deleted: one that the store does not have, and that is not newer than the
    /// [resource version](super::StoreReader::resource_version) of the collection.
    Stale,
}

impl<T: Stored + ?Sized> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Applied { old, new } => Self::Applied { old: old.clone(), new: new.clone() },
            Self::Deleted { last, final_state_unknown } => {
                Self::Deleted { last: last.clone(), final_state_unknown: *final_state_unknown }
            }
            Self::Synced => Self::Synced,
            Self::Ended(error) => Self::Ended(Arc::clone(error)),
        }
    }
}
