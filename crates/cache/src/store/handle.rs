//! The handle of a store for writers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use listwatch::internal::is_comparable;
use listwatch::{Encoding, ItemRef, TypeMeta};

use crate::StoreType;
use crate::error::{EndReason, ObjectError, StoreError};
use crate::handles::CountedHandle;
use crate::key::Identity;
use crate::log::open_log::ChangeLogLimits;
use crate::state::entry::StorageFormat;
use crate::state::object::Object;
use crate::store::reader::StoreReader;
use crate::write::commit::Commit;
use crate::write::core::StoreCore;
use crate::write::origin::{Origin, is_within};
use crate::write::outcome::ApplyOutcome;
use crate::write::rules::DeletedStates;
use crate::write::writer::Writer;

/// A collection in memory, by namespace and name: a [`StoreReader`] that can also write. Clones are handles of the same
/// collection.
///
/// Any number of threads may read and write. Writes are serialized.
///
/// # Which state of an object wins
///
/// The state with the newer resource version ([`compare_resource_versions`](listwatch::compare_resource_versions))
/// wins. If the versions do not compare, the last write wins. A controller can therefore [`apply`](Self::apply) the
/// result of its own write at once, because the watch's later event changes nothing.
///
/// The exception is a committed [`Relist`] whose version is older than the store's version was when the relist began
/// ([`advance`](Self::advance)): the server was restored from a backup, so the list replaces all objects. Any other
/// list may merely be older than the caller's own writes, so newer states and deletions stay.
///
/// # Memory
///
/// An encoded object takes its bytes and about 100 bytes more: see [`memory`](StoreReader::memory). The memory of a
/// replaced state is freed with its last [`Object`]. Dropping the last handle frees all objects at once, which takes
/// about 0.1 s for a million of them, so a task that must not block drops it in
/// [`spawn_blocking`](tokio::task::spawn_blocking).
pub struct Store<T: StoreType + ?Sized> {
    reader: StoreReader<T>,
}

impl<T: StoreType + ?Sized> Store<T> {
    /// Creates an empty store.
    #[must_use]
    pub fn new(format: StorageFormat) -> Self {
        let core = StoreCore::new(format);
        let handle = core.handles.add();
        Self { reader: StoreReader { core: Arc::new(core), handle } }
    }

    /// Returns a handle that cannot write.
    #[must_use]
    pub fn reader(&self) -> StoreReader<T> {
        self.reader.clone()
    }

    /// Sets the type meta of the objects, or of their list. [`Object::item`] then carries it, and [`Object::view`] and
    /// [`Object::decode`] refuse another kind. A reflector calls this. Only the first call takes effect.
    pub fn set_type_meta(&self, type_meta: TypeMeta) {
        self.core.codec.set_type_meta(type_meta);
    }

    /// Sets the most memory that an object may take when it is decoded, or written as JSON:
    /// [`Limits::DEFAULT_DECODED_SIZE`](listwatch::Limits::DEFAULT_DECODED_SIZE) unless set. See
    /// [`Limits::decoded_size`](listwatch::Limits::decoded_size).
    pub fn set_decoded_size(&self, bytes: u64) {
        self.core.codec.decoded_size.store(bytes, Relaxed);
    }

    /// Limits the memory of the store from now on, in bytes, as [`memory`](StoreReader::memory) counts them. `None`,
    /// the default, means no limit.
    ///
    /// A write that does not fit returns [`StoreError::OverBudget`], and the object is [skipped](StoreReader::skipped).
    /// Stored objects stay even if they exceed the limit. A write that shrinks the store is never refused.
    ///
    /// The store counts objects with each write. It measures everything else, such as indexes, only after an eighth of
    /// the objects has been written, so the limit may be exceeded by what they grow in between. Subscribers, and
    /// objects that only callers hold, do not count.
    pub fn set_budget(&self, bytes: Option<usize>) {
        let mut writer = self.core.settled_writer();
        writer.budget.limit = bytes;
        self.core.measure_rest(&mut writer);
    }

    /// Writes an object that a watch added or modified, or that the server returned for a write. `bytes` is the object
    /// itself, without an envelope; the store copies it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store cannot hold the object. It then keeps its state of the object, and counts the
    /// object as [skipped](StoreReader::skipped).
    pub fn apply(&self, encoding: Encoding, bytes: &[u8]) -> Result<ApplyOutcome<T>, StoreError> {
        self.write(&mut self.core.writer(), encoding, bytes)
    }

    fn write(&self, writer: &mut Writer<T>, encoding: Encoding, bytes: &[u8]) -> Result<ApplyOutcome<T>, StoreError> {
        let written = self.core.write_or_skip(writer, ItemRef::new(encoding, bytes), Origin::Caller)?;
        match &written {
            _ if !self.core.log.is_enabled() => {}
            ApplyOutcome::Added(new) => self.core.note_own_write(&new.entry().identity(), None),
            ApplyOutcome::Modified { old, new } => self.core.note_own_write(&new.entry().identity(), Some(old.entry())),
            ApplyOutcome::Unchanged | ApplyOutcome::Stale => {}
        }
        Ok(written)
    }

    /// Writes the server's answer to a write, which may arrive after any event. An object that the store does not have,
    /// at a version that the store has passed, was deleted since: it stays deleted. Whether an answer of a version that
    /// does not compare is late is unknown, so it changes nothing.
    pub(crate) fn apply_own(&self, encoding: Encoding, bytes: &[u8]) -> Result<ApplyOutcome<T>, StoreError> {
        let identity = Identity::of(ItemRef::new(encoding, bytes))?;
        let mut writer = self.core.writer();
        let version = &*identity.resource_version;
        if !is_comparable(version) {
            return Ok(ApplyOutcome::Stale);
        }
        let is_known = is_within(version, &self.core.state().version);
        if is_known && self.core.find(self.core.hash(&identity.namespace, &identity.name), &identity).is_none() {
            return Ok(ApplyOutcome::Stale);
        }
        self.write(&mut writer, encoding, bytes)
    }

    /// Deletes the object whose last state is `bytes`, and returns that state; `None` if the store does not have the
    /// object, or has a newer state.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the key of the object cannot be read. The store then deletes nothing, and counts an object
    /// as [skipped](StoreReader::skipped).
    pub fn delete(&self, encoding: Encoding, bytes: &[u8]) -> Result<Option<Object<T>>, StoreError> {
        let mut writer = self.core.writer();
        let Some(DeletedStates { old, last }) =
            self.core.delete(&mut writer, ItemRef::new(encoding, bytes), Origin::Caller)?
        else {
            return Ok(None);
        };
        if self.core.log.is_enabled() {
            self.core.note_own_write(&last.identity(), Some(&old));
        }
        Ok(Some(self.core.object(&last)))
    }

    /// Records that all changes up to this resource version have been written. Call it with the version of each event
    /// and bookmark.
    ///
    /// The store remembers the key and version of objects that were [deleted](Self::delete) at newer versions, so that
    /// a late event does not restore them. If you never advance the store, it remembers the newest deletions, at least
    /// 8,000 of them, and all deletions while a [`Relist`] is open. A store without a resource version remembers
    /// deletions only while a [`Relist`] is open.
    pub fn advance(&self, resource_version: &str) {
        self.core.advance(resource_version);
    }

    /// Begins to relist all objects with the objects of a list, which the caller writes to the returned [`Relist`].
    /// An earlier relist that is not committed is then [`Superseded`](StoreError::Superseded).
    ///
    /// Other writes may continue meanwhile, and the list does not undo them.
    #[must_use = "a relist does nothing until it is committed"]
    pub fn begin_relist(&self) -> Relist<T> {
        let mut writer = self.core.writer();
        self.core.log.lock().begin_relist();
        let known = self.core.state().version.clone();
        let id = writer.relists.begin(known);
        // The list has the objects that were rejected, or they were deleted.
        writer.budget.smallest_rejected = None;
        Relist { core: Arc::clone(&self.core), id }
    }
}

impl<T: StoreType + ?Sized> Store<T> {
    /// Keeps the changes that the reflector writes from now on.
    pub(crate) fn keep_changes(&self, limits: ChangeLogLimits) {
        let _writer = self.core.writer();
        self.core.log.enable(limits);
    }

    pub(crate) fn keeps_changes(&self) -> bool {
        let _writer = self.core.writer();
        self.core.log.is_enabled()
    }

    /// Opens the change log at a version up to which the reflector has written all changes.
    pub(crate) fn open_log(&self, resource_version: &str) {
        let writer = self.core.writer();
        if self.core.log.is_enabled() {
            self.core.open_log(&writer, resource_version);
        }
    }

    /// Records that a watch which runs beside a list delivers the changes after this version.
    pub(crate) fn watched_from(&self, resource_version: &str) {
        self.core.log.lock().watched_from(resource_version);
    }

    /// Records the version of a list beside which a watch runs.
    pub(crate) fn listed_at(&self, resource_version: &str) {
        self.core.log.lock().listed_at(resource_version);
    }

    /// Writes or deletes an object that a watch delivered.
    pub(crate) fn apply_watched(&self, object: ItemRef<'_>, is_deleted: bool) -> Result<(), StoreError> {
        self.core.apply_watched(object, is_deleted)
    }

    /// Lets this handle no longer count as one.
    pub(crate) fn forget_handle(&mut self) {
        self.reader.handle = CountedHandle::uncounted();
    }

    /// Waits until the last handle that counts is dropped.
    pub(crate) fn last_handle(&self) -> impl Future<Output = ()> + Send + use<T> {
        let core = Arc::clone(&self.core);
        async move { core.handles.none_left().await }
    }

    /// Registers a reflector that writes to the store.
    pub(crate) fn attach(&self) {
        let mut writer = self.core.writer();
        writer.subscribers.add_reflector();
    }

    /// Unregisters a reflector that has ended. Subscribers end with the last reflector.
    pub(crate) fn detach(&self, reason: EndReason) {
        let mut writer = self.core.writer();
        if writer.subscribers.remove_reflector(reason) {
            self.core.log.close();
        }
    }

    /// Counts an object that could not be projected as skipped.
    pub(crate) fn skip_unwritten(&self, object: ItemRef<'_>) {
        let identity = Identity::of(object).ok();
        let mut writer = self.core.writer();
        self.core.log.close();
        self.core.add_skipped(&mut writer, object, identity.as_ref(), false);
    }

    /// Returns the number of failures of index functions since the last call, and the last error.
    pub(crate) fn take_index_errors(&self) -> (u64, Option<ObjectError>) {
        self.core.writer().indexes.take_errors()
    }

    /// Returns the reason for which the store needs a relist, if it needs one.
    pub(crate) fn needs_relist(&self) -> Option<&'static str> {
        let writer = self.core.writer();
        if writer.relists.unconfirmed.is_missed() {
            return Some("the watch has passed the version of a write that it did not deliver");
        }
        (writer.skipped.len() > 0 && writer.budget.has_room(writer.used()))
            .then_some("the store has room for skipped objects")
    }
}

/// An empty store.
impl<T: StoreType + ?Sized> From<StorageFormat> for Store<T> {
    fn from(format: StorageFormat) -> Self {
        Self::new(format)
    }
}

impl<T: StoreType + ?Sized> Deref for Store<T> {
    type Target = StoreReader<T>;

    fn deref(&self) -> &StoreReader<T> {
        &self.reader
    }
}

impl<T: StoreType + ?Sized> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone() }
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.reader).finish()
    }
}

/// A list that replaces the objects of a [`Store`], by mark and sweep: see [`Store::begin_relist`].
///
/// An object that is already stored in the same state is only marked, which costs neither decoding nor memory. A newer
/// state replaces the stored one at once. An older state comes from a server that lags or was restored from a backup,
/// so it is set aside until the commit.
///
/// A relist that is dropped before [`commit`](Self::commit), because the list failed, deletes nothing and restores no
/// older state.
pub struct Relist<T: StoreType + ?Sized> {
    core: Arc<StoreCore<T>>,
    id: u64,
}

impl<T: StoreType + ?Sized> Relist<T> {
    /// Lets the list replace all objects, because the server was restored from a backup: those that are newer than the
    /// list, too, and those of the same uid and resource version, which the server may use for another state.
    #[must_use]
    pub fn replace_all(self) -> Self {
        if let Some(open) = self.core.writer().relists.open_mut(self.id) {
            open.replaces_all = true;
        }
        self
    }

    /// Writes an object of the list. A [superseded](StoreError::Superseded) relist writes it as [`Store::apply`] does.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store cannot hold the object. It is then [skipped](StoreReader::skipped), and the
    /// relist may continue. The commit keeps the stored state of the object, unless that state is newer than the
    /// listed state and the server went back.
    pub fn apply(&mut self, encoding: Encoding, bytes: &[u8]) -> Result<ApplyOutcome<T>, StoreError> {
        self.write(ItemRef::new(encoding, bytes))
    }

    /// As [`apply`](Self::apply), with the ends of values that the decoder has found.
    pub(crate) fn write(&mut self, object: ItemRef<'_>) -> Result<ApplyOutcome<T>, StoreError> {
        let mut writer = self.core.writer();
        let listed = writer.relists.open_mut(self.id).is_some();
        let origin = if listed { Origin::List } else { Origin::Caller };
        self.core.write_or_skip(&mut writer, object, origin)
    }

    /// Counts an object of the list that could not be projected as skipped.
    pub(crate) fn skip_unwritten(&mut self, object: ItemRef<'_>) {
        let mut writer = self.core.writer();
        let listed = writer.relists.open_mut(self.id).is_some();
        self.core.add_skipped(&mut writer, object, Identity::of(object).ok().as_ref(), listed);
    }

    /// Completes the list at its resource version: deletes the objects that the list does not contain, and restores the
    /// older states that it does contain. Indexes and subscribers receive these changes.
    ///
    /// A state or deletion that is newer than the list stays, unless the list is older than the store's version was
    /// when the relist began. An object that others wrote since then stays in both cases, and also if its version does
    /// not compare.
    ///
    /// The call blocks for about 2 µs for each object that it deletes, and lets others write after every 256. Once all
    /// are deleted, the store is at the [version](StoreReader::resource_version) of the list and can be saved.
    ///
    /// # Errors
    ///
    /// [`StoreError::Superseded`] when another relist was begun. Then nothing changes, unless the other relist began
    /// during this call: the store may then have a part of the changes, and the other relist decides about the rest.
    pub fn commit(self, resource_version: &str) -> Result<(), StoreError> {
        let mut commit = self.begin_commit(resource_version);
        while !commit.advance()? {}
        Ok(())
    }

    /// Begins to complete the list. If the commit is dropped before its last step, the store has a part of the changes.
    pub(crate) fn begin_commit(self, resource_version: &str) -> RelistCommit<T> {
        let commit = Commit::new(self.id, resource_version);
        RelistCommit { relist: self, commit }
    }
}

/// A [`Relist`] whose list is complete.
pub(crate) struct RelistCommit<T: StoreType + ?Sized> {
    relist: Relist<T>,
    commit: Commit,
}

impl<T: StoreType + ?Sized> RelistCommit<T> {
    /// Deletes and restores a few objects. Returns true once the list is committed.
    ///
    /// # Errors
    ///
    /// As [`Relist::commit`].
    pub(crate) fn advance(&mut self) -> Result<bool, StoreError> {
        self.relist.core.advance_commit(&mut self.commit)
    }
}

impl<T: StoreType + ?Sized> Drop for Relist<T> {
    fn drop(&mut self) {
        let mut writer = self.core.writer();
        let version = self.core.state().version.clone();
        let abandoned = writer.relists.abandon(self.id, &version);
        drop(writer);
        drop(abandoned);
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for Relist<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relist").field("id", &self.id).finish_non_exhaustive()
    }
}
