//! A change in a change log, and its place among the changes of its version.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use listwatch::{EventType, StoreType, compare_resource_versions};
use tokio::time::Instant;

use crate::log::frames::Frames;
use crate::state::entry::Entry;
use crate::state::object::{Codec, Object};

/// A change of a collection as the server made it.
///
/// [`StoreReader::changes_after`](crate::StoreReader::changes_after) returns changes.
pub struct LoggedChange<T: StoreType + ?Sized> {
    pub(super) kind: EventType,
    pub(super) resource_version: String,
    pub(super) old: Option<Entry>,
    pub(super) object: Entry,
    pub(super) codec: Arc<Codec<T>>,
    /// Identifies this change in the keys of kept frames.
    pub(super) number: u64,
    pub(super) frames: Arc<Frames>,
}

/// How many forms of frames the log keeps for a change.
const FRAMES: usize = 4;

impl<T: StoreType + ?Sized> LoggedChange<T> {
    /// Returns what the change did.
    #[must_use]
    pub fn kind(&self) -> EventType {
        self.kind
    }

    /// Returns the resource version of the change, which orders the changes of a collection.
    ///
    /// Several changes may share a version: when a lease of etcd expires, all its objects are deleted at one version. A
    /// change without a version of its own, such as a deletion that some servers send without one, has the version of
    /// the change before it.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// Returns the state before the change; `None` for a new object.
    #[must_use]
    pub fn old(&self) -> Option<Object<T>> {
        self.old.as_ref().map(|old| Object::new(old, &self.codec))
    }

    /// Returns the state after the change, or the final state of a deleted object.
    #[must_use]
    pub fn object(&self) -> Object<T> {
        Object::new(&self.object, &self.codec)
    }

    /// Returns the frame that a reader sends for this change, encoded once for all readers.
    ///
    /// `form` is a number below 4 that names the form of the frame. Frames count in the memory of the log. If they
    /// exceed a quarter of [`ChangeLogLimits::bytes`](crate::ChangeLogLimits::bytes), the log drops those that were
    /// encoded first, and the next call encodes again.
    ///
    /// # Errors
    ///
    /// The error of `encode`, which the next call then calls again. An unknown form is encoded at each call.
    pub fn frame<E>(&self, form: usize, encode: impl FnOnce(&Self) -> Result<Vec<u8>, E>) -> Result<Bytes, E> {
        if form >= FRAMES {
            return encode(self).map(Bytes::from);
        }
        if let Some(frame) = self.frames.get(self.number, form) {
            return Ok(frame);
        }
        let frame = Bytes::from(encode(self)?);
        Ok(self.frames.keep(self.number, form, frame))
    }

    /// Returns how many bytes only the log holds: a replaced state, and the final state of a deleted object.
    fn bytes(&self) -> usize {
        let last = if self.kind == EventType::Deleted { self.object.allocated() } else { 0 };
        let old = self.old.as_ref().map_or(0, Entry::allocated);
        size_of::<Self>() + self.resource_version.len() + old + last
    }
}

impl<T: StoreType + ?Sized> Drop for LoggedChange<T> {
    fn drop(&mut self) {
        self.frames.drop_change(self.number, FRAMES);
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for LoggedChange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedChange")
            .field("kind", &self.kind)
            .field("resource_version", &self.resource_version)
            .field("object", &self.object())
            .finish_non_exhaustive()
    }
}

pub(super) struct KeptChange<T: StoreType + ?Sized> {
    pub(super) at: Instant,
    pub(super) place: Place,
    pub(super) change: Arc<LoggedChange<T>>,
}

/// The place of a change among the changes of its version, which decides whether a reader at a version knows the
/// change.
///
/// A resource version does not always name a single change. When a lease of etcd expires, its objects are deleted at
/// one version, and some servers send deletions without a version, or with the version of the object's last state. A
/// reader at a version may therefore know only a part of its changes. It receives again every change that it may not
/// know, because a reader converges after a repeated change but not after a missing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A reader at this version knows the change.
    First,
    /// The log already contained this version, so a reader at this version may lack the change.
    Further,
    /// The change has no version of its own, so a reader at any version before the next change may lack it.
    Unversioned,
}

impl<T: StoreType + ?Sized> KeptChange<T> {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.change.bytes()
    }

    /// Returns true if a reader at this version certainly knows the change.
    pub(super) fn is_known_at(&self, resource_version: &str) -> bool {
        match compare_resource_versions(&self.change.resource_version, resource_version) {
            Some(Ordering::Less) => self.place != Place::Unversioned,
            Some(Ordering::Equal) => self.place == Place::First,
            _ => false,
        }
    }

    /// Returns true if the change has the newest version and a reader at this version may lack it.
    pub(super) fn is_unsettled_at(&self, newest: &str) -> bool {
        self.place != Place::First && self.change.resource_version == newest
    }
}
