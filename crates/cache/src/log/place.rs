//! The place of a change among the changes of its version.
//!
//! A resource version does not always name one change. When a lease of etcd expires, its objects are deleted at one
//! version. Some servers send deletions without a version, or with the version of the object's last state. So a reader
//! at a version may have only a part of the changes of this version. The place of a change says whether such a reader
//! has it for certain. If not, the reader gets it again: a repeated change converges, and a missing one does not.

use std::cmp::Ordering;
use std::sync::Arc;

use listwatch::compare_resource_versions;
use tokio::time::Instant;

use crate::StoreType;
use crate::log::change::LoggedChange;

/// A change, and when it was appended.
pub(super) struct KeptChange<T: StoreType + ?Sized> {
    pub(super) at: Instant,
    pub(super) place: Place,
    pub(super) change: Arc<LoggedChange<T>>,
}

/// The place of a change among the changes of its version, which decides whether a reader at a version has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A reader at this version has the change.
    First,
    /// The log had this version before. A reader at this version may lack the change.
    Further,
    /// The change has no version of its own. A reader that is at any version before the next change may lack it.
    Unversioned,
}

impl<T: StoreType + ?Sized> KeptChange<T> {
    /// Returns the memory of the change in the log.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.change.bytes()
    }

    /// Returns true if a reader that is at this version has the change for certain.
    pub(super) fn is_known_at(&self, resource_version: &str) -> bool {
        match compare_resource_versions(&self.change.resource_version, resource_version) {
            Some(Ordering::Less) => self.place != Place::Unversioned,
            Some(Ordering::Equal) => self.place == Place::First,
            _ => false,
        }
    }

    /// Returns true if the change has the newest version, and a reader at this version may lack it.
    ///
    /// The log keeps such a change. Otherwise each reader that lists at this version would expire at once.
    pub(super) fn is_unsettled_at(&self, newest: &str) -> bool {
        self.place != Place::First && self.change.resource_version == newest
    }
}
