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

/// A change of a collection as the server made it: see
/// [`StoreReader::changes_after`](crate::StoreReader::changes_after).
pub struct LoggedChange<T: StoreType + ?Sized> {
    pub(super) kind: EventType,
    pub(super) resource_version: String,
    pub(super) old: Option<Entry>,
    pub(super) object: Entry,
    pub(super) codec: Arc<Codec<T>>,
    /// Identifies this change among the keys of kept frames.
    pub(super) number: u64,
    pub(super) frames: Arc<Frames>,
}

/// The number of forms of frames that the log keeps of a change.
const FRAMES: usize = 4;

impl<T: StoreType + ?Sized> LoggedChange<T> {
    /// Returns what the change did.
    #[must_use]
    pub fn kind(&self) -> EventType {
        self.kind
    }

    /// Returns the resource version of the change, which orders the changes of a collection.
    ///
    /// Several changes may share a version: when a lease of etcd expires, it deletes all its objects at one version. A
    /// change without a version of its own, for example a deletion that some servers send without one, has the version
    /// of the change before it.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// Returns the state before the change; `None` for a new object.
    #[must_use]
    pub fn old(&self) -> Option<Object<T>> {
        self.old.as_ref().map(|old| Object::new(old, &self.codec))
    }

    /// Returns the state after the change; of a deleted object, the final state.
    #[must_use]
    pub fn object(&self) -> Object<T> {
        Object::new(&self.object, &self.codec)
    }

    /// Returns the frame that a reader sends for this change, which `encode` encodes once for all readers. `form` is a
    /// number below 4 that names the form of the frame.
    ///
    /// Frames count in the memory of the log. The log drops the frames that were encoded first when they exceed a
    /// quarter of [`ChangeLogLimits::bytes`](crate::ChangeLogLimits::bytes): then the next call encodes again.
    ///
    /// # Errors
    ///
    /// The error of `encode`, which the next call calls again. An unknown form is encoded by each call.
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

    /// Returns the bytes that only the log holds: a replaced state, and the final state of a deleted object.
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

/// A change, and when it was appended.
pub(super) struct KeptChange<T: StoreType + ?Sized> {
    pub(super) at: Instant,
    pub(super) place: Place,
    pub(super) change: Arc<LoggedChange<T>>,
}

/// The place of a change among the changes of its version, which decides whether a reader at a version has the change.
///
/// A resource version does not always name one change. When a lease of etcd expires, its objects are deleted at one
/// version. Some servers send deletions without a version, or with the version of the object's last state. So a reader
/// at a version may have only a part of the changes of this version. A reader gets every change again that it does not
/// have for certain: it converges after a repeated change, but not after a missing one.
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
    pub(super) fn is_unsettled_at(&self, newest: &str) -> bool {
        self.place != Place::First && self.change.resource_version == newest
    }
}
