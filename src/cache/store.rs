//! The handle of a store for writers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::budget::Spending;
use super::change::{Change, Written};
use super::error::StoreError;
#[cfg(feature = "client")]
use super::error::{Cause, IndexError};
use super::inner::{Inner, StorageFormat};
#[cfg(feature = "client")]
use super::key::Identity;
use super::object::{Object, Stored};
use super::open::Open;
use super::reader::StoreReader;
#[cfg(feature = "client")]
use super::write::{is_ordered, is_within};
use crate::object::is_older;
use crate::sync::write;
use crate::wire::Encoding;

/// A collection in memory, by namespace and name. It is a [`StoreReader`] that can write, and a handle: clones share the collection.
///
/// Any number of threads may read and write. Writes follow one another.
///
/// # Which state of an object wins
///
/// The one with the newer resource version ([`compare_resource_versions`](crate::compare_resource_versions)). Among versions that do not
/// compare the last write wins. So a controller can [`apply`](Self::apply) the result of its own write at once, and the late event of
/// the watch changes nothing.
///
/// A committed [`Replace`] is the exception: it wins over all objects that were there when it began, because a server that was
/// restored from a backup has older versions.
///
/// # Memory
///
/// Kept encoded, an object takes its bytes and about 110 more: see [`memory`](StoreReader::memory). The memory of a replaced state is
/// freed with its last [`Object`].
pub struct Store<T: Stored + ?Sized> {
    reader: StoreReader<T>,
}

impl<T: Stored + ?Sized> Store<T> {
    /// Creates an empty store.
    #[must_use]
    pub fn new(format: StorageFormat) -> Self {
        Self { reader: StoreReader { inner: Arc::new(Inner::new(format)) } }
    }

    /// Returns a handle that cannot write.
    #[must_use]
    pub fn reader(&self) -> StoreReader<T> {
        self.reader.clone()
    }

    /// Sets the form of objects that are written from now on. Objects that are there stay as they are.
    pub fn set_storage_format(&self, format: StorageFormat) {
        self.inner.writer().format = format;
    }

    /// Limits the memory of the store from now on, in bytes, as [`memory`](StoreReader::memory) counts them. `None`, the default, is no
    /// limit.
    ///
    /// A write that does not fit returns [`StoreError::OverBudget`], and the object is [skipped](StoreReader::skipped). Objects that are there
    /// stay even if they are over the limit. A write that shrinks the store is never refused.
    ///
    /// Objects are counted with each write. The rest, for example indexes, is measured once for each eighth of the objects that is
    /// written, and may exceed the limit by its growth in between. Subscribers and objects that only callers have are not counted.
    pub fn set_budget(&self, bytes: Option<usize>) {
        let spending = &mut self.inner.writer().spending;
        *spending = Spending { budget: bytes, least_refused: spending.least_refused, ..Spending::default() };
    }

    /// Writes an object: one that a watch added or modified, or the server's answer to a write. The bytes are those of the object
    /// itself, without an envelope. They are copied.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the object cannot be held. The store then keeps the state that it has, and counts the object as
    /// [skipped](StoreReader::skipped).
    pub fn apply(&self, encoding: Encoding, bytes: &[u8]) -> Result<Written<T>, StoreError> {
        self.inner.write_or_skip(&mut self.inner.writer(), encoding, bytes, false)
    }

    /// Writes the server's answer to a write, which may arrive after any event. An object that the store does not have, and whose
    /// version the store has passed, was deleted since.
    #[cfg(feature = "client")]
    pub(crate) fn apply_own(&self, encoding: Encoding, bytes: &[u8]) -> Result<Written<T>, StoreError> {
        let identity = Identity::of(encoding, bytes)?;
        let mut writer = self.inner.writer();
        let version = &*identity.resource_version;
        let is_known = is_ordered(version) && is_within(version, &self.inner.state().version);
        if is_known && self.inner.find(self.inner.hash(&identity.namespace, &identity.name), &identity).is_none() {
            return Ok(Written::Stale);
        }
        self.inner.write_or_skip(&mut writer, encoding, bytes, false)
    }

    /// Deletes the object whose last state is in these bytes, and returns that state; `None` if the store does not have the object, or
    /// has a newer state.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the key of the object cannot be read. Nothing is deleted then, and an object is counted as
    /// [skipped](StoreReader::skipped).
    pub fn delete(&self, encoding: Encoding, bytes: &[u8]) -> Result<Option<Object<T>>, StoreError> {
        self.inner.delete(&mut self.inner.writer(), encoding, bytes)
    }

    /// Notes that all changes up to this resource version have been written: the version of each event and bookmark of a watch.
    ///
    /// Until then the store remembers key and version of objects that were [deleted](Self::delete) at newer versions, so that a late
    /// event does not bring them back. A store without a resource version remembers them only while a [`Replace`] is open.
    pub fn advance(&self, resource_version: &str) {
        let mut writer = self.inner.writer();
        if is_older(resource_version, &self.inner.state().version) {
            return;
        }
        writer.forget_deleted(resource_version);
        resource_version.clone_into(&mut write(&self.inner.state).version);
    }

    /// Begins to replace all objects by a list whose objects arrive one by one. A replace that was begun before is
    /// [`Superseded`](StoreError::Superseded).
    ///
    /// Other writes continue meanwhile, and the list does not undo them.
    #[must_use = "a replace does nothing until it is committed"]
    pub fn begin_replace(&self) -> Replace<T> {
        let mut writer = self.inner.writer();
        writer.replaces += 1;
        writer.open = Some(Open::new(writer.replaces));
        // The list is newer than deletions before it.
        writer.tombstones.clear();
        // Refused objects are in the list, or deleted.
        writer.spending.least_refused = None;
        Replace { inner: Arc::clone(&self.inner), id: writer.replaces }
    }
}

#[cfg(feature = "client")]
impl<T: Stored + ?Sized> Store<T> {
    /// A reflector begins to write to the store.
    pub(crate) fn attach(&self) {
        let mut writer = self.inner.writer();
        writer.reflectors += 1;
        writer.subscribers.reopen();
    }

    /// A reflector has ended. After the last one subscribers end.
    pub(crate) fn detach(&self, cause: Option<Cause>) {
        let mut writer = self.inner.writer();
        writer.reflectors = writer.reflectors.saturating_sub(1);
        if writer.reflectors == 0 {
            writer.subscribers.close(cause);
        }
    }

    /// Counts an object as skipped that could not be projected.
    pub(crate) fn skip_unwritten(&self, encoding: Encoding, bytes: &[u8]) {
        let identity = Identity::of(encoding, bytes).ok();
        self.inner.skip(&mut self.inner.writer(), identity.as_ref(), bytes, false);
    }

    /// Returns how often functions of indexes failed since the last call, and the last error.
    pub(crate) fn take_index_errors(&self) -> (u64, Option<IndexError>) {
        std::mem::take(&mut self.inner.writer().index_errors)
    }

    /// Returns true if a relist would bring an object that was refused: there is room for one, and a tenth of the budget is free.
    pub(crate) fn has_room_for_skipped(&self) -> bool {
        let writer = self.inner.writer();
        let Some(least) = writer.spending.least_refused.filter(|_| writer.skipped.len() > 0) else { return false };
        let Some(budget) = writer.spending.budget else { return true };
        writer.usage.total() + writer.spending.rest + least.max(budget / 10) <= budget
    }
}

impl<T: Stored + ?Sized> Deref for Store<T> {
    type Target = StoreReader<T>;

    fn deref(&self) -> &StoreReader<T> {
        &self.reader
    }
}

impl<T: Stored + ?Sized> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone() }
    }
}

impl<T: Stored + ?Sized> fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.reader).finish()
    }
}

/// A list that replaces the objects of a [`Store`], by mark and sweep: see [`Store::begin_replace`].
///
/// An object that the store has in the same state is only marked, which costs neither decoding nor memory. A newer state replaces
/// the store's at once. An older one, which a server sends after it was restored from a backup, is set aside until the list is
/// complete.
///
/// Dropped before [`commit`](Self::commit), because the list failed half way, it deletes nothing and restores nothing older.
pub struct Replace<T: Stored + ?Sized> {
    inner: Arc<Inner<T>>,
    id: u64,
}

impl<T: Stored + ?Sized> Replace<T> {
    /// Replaces an object also by one of the same uid and resource version: a server that was restored from a backup may give the
    /// same version to another state.
    #[must_use]
    pub fn afresh(self) -> Self {
        if let Some(open) = self.inner.writer().open.as_mut().filter(|open| open.id == self.id) {
            open.afresh = true;
        }
        self
    }

    /// Writes an object of the list. A [superseded](StoreError::Superseded) replace writes it as [`Store::apply`] does.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the object cannot be held. It is then [skipped](StoreReader::skipped), and the replace may continue. The
    /// commit leaves the state that the store has of the object, unless that state is newer than the list's.
    pub fn apply(&mut self, encoding: Encoding, bytes: &[u8]) -> Result<Written<T>, StoreError> {
        let mut writer = self.inner.writer();
        let listed = writer.open.as_ref().is_some_and(|open| open.id == self.id);
        self.inner.write_or_skip(&mut writer, encoding, bytes, listed)
    }

    /// Counts an object of the list as skipped that could not be projected.
    #[cfg(feature = "client")]
    pub(crate) fn skip_unwritten(&mut self, encoding: Encoding, bytes: &[u8]) {
        let mut writer = self.inner.writer();
        let listed = writer.open.as_ref().is_some_and(|open| open.id == self.id);
        self.inner.skip(&mut writer, Identity::of(encoding, bytes).ok().as_ref(), bytes, listed);
    }

    /// Completes the list at its resource version, and deletes the objects that it does not have. Returns what that changed:
    /// deletions, and objects whose older state the list has.
    ///
    /// An object that others wrote since the replace began stays if it is newer than the list, or if its version does not compare.
    ///
    /// # Errors
    ///
    /// [`StoreError::Superseded`] when another replace was begun since. Nothing is deleted then.
    pub fn commit(self, resource_version: &str) -> Result<Vec<Change<T>>, StoreError> {
        self.inner.commit(self.id, resource_version)
    }
}

impl<T: Stored + ?Sized> Drop for Replace<T> {
    fn drop(&mut self) {
        let mut writer = self.inner.writer();
        if writer.open.take_if(|open| open.id == self.id).is_some() {
            let version = self.inner.state().version.clone();
            writer.forget_deleted(&version);
        }
    }
}

impl<T: Stored + ?Sized> fmt::Debug for Replace<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replace").field("id", &self.id).finish_non_exhaustive()
    }
}
