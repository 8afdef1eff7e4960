//! Where a state comes from, and whether the collection has passed its version.

use std::cmp::Ordering;

use listwatch::compare_resource_versions;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The open relist.
    List,
    /// A watch, whose events are in order: an object that it adds exists, however old its version is.
    Watch,
    /// The caller. Its state may be older than a deletion.
    Caller,
    /// The server's answer to a write of the caller, which may arrive after any event. If its version cannot be
    /// compared, nobody knows whether it is late, so it changes nothing.
    Answer,
}

/// Returns true if the version is not newer than the collection's; false if the two cannot be compared.
pub(crate) fn is_within(version: &str, collection: &str) -> bool {
    compare_resource_versions(version, collection).is_some_and(Ordering::is_le)
}
