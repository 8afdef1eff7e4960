//! The type of a change: the one table of its names in the protocol.

/// The type of a change, as a watch names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventType {
    /// `ADDED`: an object was created, or existed already when the watch began.
    Added,
    /// `MODIFIED`: an object was modified.
    Modified,
    /// `DELETED`: an object was deleted, or no longer matches the watch's selectors.
    Deleted,
}

impl EventType {
    /// Returns the name in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}
