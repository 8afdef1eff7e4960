//! The changes of a store, for subscribers.

use listwatch::StoreType;

use crate::error::EndReason;
use crate::state::object::Object;

/// A change of a store, as a [`Subscriber`](crate::Subscriber) receives it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Change<T: StoreType + ?Sized> {
    /// The object was added or modified.
    #[non_exhaustive]
    Applied {
        /// The state that the subscriber received before, or that was stored when the subscriber was registered.
        ///
        /// `None` for an object that is new to the subscriber.
        old: Option<Object<T>>,
        /// The current state.
        new: Object<T>,
    },
    /// The object was deleted, or no longer passes the filters of the subscriber.
    #[non_exhaustive]
    Deleted {
        /// The state that the subscriber received before, or that was stored when the subscriber was registered.
        ///
        /// It differs from `last` if a change was coalesced with the deletion.
        old: Object<T>,
        /// The last known state that passed the filters.
        last: Object<T>,
        /// True if the deletion itself was missed, because a complete list did not contain the object.
        ///
        /// Its last state may then differ from `last` (`DeletedFinalStateUnknown` of client-go).
        final_state_unknown: bool,
    },
    /// A list is complete, and all its changes were delivered before.
    ///
    /// A subscriber [with the initial state](crate::SubscriberBuilder::with_initial_state) also receives this after the
    /// initial state, if the store has a resource version.
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

/// What one write did to an object: see [`SubscriberBuilder::inspect`](crate::SubscriberBuilder::inspect).
///
/// Unlike a [`Change`], it is never coalesced.
#[non_exhaustive]
pub enum Written<'w, T: StoreType + ?Sized> {
    /// The object is new.
    Added(&'w Object<T>),
    /// A state replaced an earlier one.
    Modified {
        /// The state before the write.
        old: &'w Object<T>,
        /// The state that is stored now.
        new: &'w Object<T>,
    },
    /// The object was deleted.
    Deleted {
        /// The state that was stored.
        old: &'w Object<T>,
        /// The last known state: `old`, or the newer state that came with the deletion.
        last: &'w Object<T>,
    },
}

impl<'w, T: StoreType + ?Sized> Written<'w, T> {
    /// Returns the states of the object before and after the write, or the last two states of a deleted object.
    pub fn states(&self) -> impl Iterator<Item = &'w Object<T>> {
        let (first, second) = match *self {
            Self::Added(new) => (new, None),
            Self::Modified { old, new } => (old, Some(new)),
            Self::Deleted { old, last } => (old, Some(last).filter(|last| !old.entry().is_same(last.entry()))),
        };
        std::iter::once(first).chain(second)
    }
}
