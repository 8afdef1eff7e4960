//! The changes of a store, for subscribers.

use crate::StoreType;
use crate::error::EndReason;
use crate::state::object::Object;

/// A change of a store, as a [`Subscriber`](crate::Subscriber) gets it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Change<T: StoreType + ?Sized> {
    /// The object was added or modified.
    #[non_exhaustive]
    Applied {
        /// The state that the subscriber received before, or that the store had when the subscriber was registered.
        /// `None` for an object that is new to the subscriber.
        old: Option<Object<T>>,
        /// The current state.
        new: Object<T>,
    },
    /// The object was deleted, or does not pass the filters of the subscriber any more.
    #[non_exhaustive]
    Deleted {
        /// The state that the subscriber received before, or that the store had when the subscriber was registered. It
        /// differs from `last` if a change was coalesced with the deletion.
        old: Object<T>,
        /// The last known state that passed the filters.
        last: Object<T>,
        /// True if the deletion itself was missed: a complete list did not have the object, so its last state may
        /// differ from `last` (`DeletedFinalStateUnknown` of client-go).
        final_state_unknown: bool,
    },
    /// A list is complete, and all its changes were delivered before. A subscriber [with the initial
    /// state](crate::SubscriberBuilder::with_initial_state) also gets this after the initial state, if the store has a
    /// resource version.
    Synced,
    /// The reflector of the store has ended, so no more changes follow.
    Ended(EndReason),
}

impl<T: StoreType + ?Sized> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Applied { old, new } => Self::Applied { old: old.clone(), new: new.clone() },
            Self::Deleted { old, last, final_state_unknown } => {
                let final_state_unknown = *final_state_unknown;
                Self::Deleted { old: old.clone(), last: last.clone(), final_state_unknown }
            }
            Self::Synced => Self::Synced,
            Self::Ended(reason) => Self::Ended(reason.clone()),
        }
    }
}
