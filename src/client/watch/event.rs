//! The events that a watch delivers.

/// A change of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent<O> {
    /// An object was created, or is a part of the initial state.
    Added(O),
    /// An object was modified.
    Modified(O),
    /// An object was deleted, or the selectors no longer select it. The value is its last state that they selected.
    Deleted(O),
    /// The initial state is complete: it is the collection at this version.
    Synced {
        /// The version.
        resource_version: String,
    },
    /// All changes up to this version were delivered. Only [`WatchEvents`](crate::client::WatchEvents) delivers
    /// bookmarks.
    Bookmark {
        /// The version.
        resource_version: String,
    },
    /// The stream starts over with the collection: discard all delivered objects. Only [`Watch`](crate::client::Watch)
    /// starts over, when the initial state was interrupted, and after an expired version.
    Reset,
}

impl<O> WatchEvent<O> {
    pub(super) fn bookmark(resource_version: String, ends_initial_events: bool) -> Self {
        if ends_initial_events { Self::Synced { resource_version } } else { Self::Bookmark { resource_version } }
    }

    pub(super) fn has_object(&self) -> bool {
        matches!(self, Self::Added(_) | Self::Modified(_) | Self::Deleted(_))
    }
}
