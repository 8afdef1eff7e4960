//! The handle of a store for writers.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use listwatch::{Encoding, ItemRef, StoreType, TypeMeta};

use crate::error::{EndReason, ObjectError, StoreError};
use crate::file::format::FileError;
use crate::file::load::{self, SavedStore};
use crate::file::save;
use crate::handles::CountedHandle;
use crate::log::open_log::ChangeLogLimits;
use crate::state::entry::StorageFormat;
use crate::state::object::Object;
use crate::store::reader::StoreReader;
use crate::store::relist::Relist;
use crate::write::core::StoreCore;
use crate::write::origin::Origin;
use crate::write::transaction::ApplyOutcome;

/// A collection in memory, by namespace and name: a [`StoreReader`] that can also write.
///
/// Clones are handles of the same collection. Any number of threads may read and write, and writes are serialized.
///
/// # Which state of an object wins
///
/// The state with the newer resource version wins
/// ([`compare_resource_versions`](listwatch::compare_resource_versions)), and if the versions cannot be compared, the
/// last write wins. A controller can therefore [`apply`](Self::apply) the result of its own write at once, because the
/// watch's later event changes nothing.
///
/// The exception is a committed [`Relist`] whose version is older than the store's version was when the relist began
/// ([`advance`](Self::advance)). The server was then restored from a backup, so the list replaces all objects. Any
/// other list may merely be older than the caller's own writes, so newer states and deletions stay.
///
/// # Memory
///
/// An encoded object takes its bytes and about 100 bytes more: see [`memory`](StoreReader::memory). The memory of a
/// replaced state is freed with its last [`Object`]. Dropping the last handle frees all objects at once, which takes
/// about 0.1 s for a million of them. A task that must not block drops it in
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

    /// Sets the type meta of the objects, or of their list. Only the first call takes effect.
    ///
    /// [`Object::item`] then carries it, and [`Object::view`] and [`Object::decode`] refuse other kinds. A reflector
    /// calls this itself.
    pub fn set_type_meta(&self, type_meta: TypeMeta) {
        self.core.objects.codec.set_type_meta(type_meta);
    }

    /// Sets the most memory that decoding an object, or writing it as JSON, may take.
    ///
    /// The default is [`Limits::DEFAULT_DECODED_SIZE`](listwatch::Limits::DEFAULT_DECODED_SIZE): see
    /// [`Limits::decoded_size`](listwatch::Limits::decoded_size).
    pub fn set_decoded_size(&self, bytes: u64) {
        self.core.objects.codec.decoded_size.store(bytes, Relaxed);
    }

    /// Limits the memory of the store from now on, in bytes as [`memory`](StoreReader::memory) counts them.
    ///
    /// `None`, the default, means no limit. A write that does not fit returns [`StoreError::OverBudget`], and the
    /// object is [skipped](StoreReader::skipped). Stored objects stay even if they exceed the limit, and a write that
    /// shrinks the store is never refused.
    ///
    /// The store counts objects with each write. It measures everything else, such as indexes, only after an eighth of
    /// the objects has been written, so the limit may be exceeded by what they grow in between. Subscribers, and
    /// objects that only callers hold, do not count.
    pub fn set_budget(&self, bytes: Option<usize>) {
        let (mut writer, objects) = (self.core.writer(), &self.core.objects);
        writer.compress_pending(objects);
        writer.budget.limit = bytes;
        writer.measure_rest(objects, &self.core.log);
    }

    /// Writes an object that a watch added or modified, or that the server returned for a write.
    ///
    /// `bytes` is the object itself without an envelope. The store copies it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store cannot hold the object. The store then keeps its previous state of the object, and
    /// counts the object as [skipped](StoreReader::skipped).
    pub fn apply(&self, encoding: Encoding, bytes: &[u8]) -> Result<ApplyOutcome<T>, StoreError> {
        self.core.apply(&mut self.core.writer(), ItemRef::new(encoding, bytes), Origin::Caller)
    }

    /// Writes the server's answer to a write: see [`Origin::Answer`].
    pub(crate) fn apply_own(&self, encoding: Encoding, bytes: &[u8]) -> Result<ApplyOutcome<T>, StoreError> {
        self.core.apply(&mut self.core.writer(), ItemRef::new(encoding, bytes), Origin::Answer)
    }

    /// Deletes the object whose last state is `bytes`, and returns that state.
    ///
    /// The result is `None` if the store does not contain the object or has a newer state.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the key of the object cannot be read. The store then deletes nothing, and counts an object
    /// as [skipped](StoreReader::skipped).
    pub fn delete(&self, encoding: Encoding, bytes: &[u8]) -> Result<Option<Object<T>>, StoreError> {
        let deleted = self.core.delete(&mut self.core.writer(), ItemRef::new(encoding, bytes), Origin::Caller)?;
        Ok(deleted.map(|states| self.core.objects.object(&states.last)))
    }

    /// Notes that all changes up to this resource version were written. Call it with the version of each event and
    /// bookmark.
    ///
    /// The store remembers the key and version of objects that were [deleted](Self::delete) at newer versions, so that
    /// a late event does not restore them. If you never advance the store, it remembers the newest deletions, at least
    /// 8,000 of them, and all deletions while a [`Relist`] is open. A store without a resource version remembers
    /// deletions only while a [`Relist`] is open.
    pub fn advance(&self, resource_version: &str) {
        self.core.advance(resource_version);
    }

    /// Begins a relist, to which the caller writes the objects of a list.
    ///
    /// An earlier relist that is not yet committed is then [`Superseded`](StoreError::Superseded). Other writes may
    /// continue meanwhile, and the list does not undo them.
    #[must_use = "a relist does nothing until it is committed"]
    pub fn begin_relist(&self) -> Relist<T> {
        let mut writer = self.core.writer();
        self.core.log.lock().begin_relist();
        let known = self.core.objects.state().version.clone();
        let id = writer.relists.begin(known);
        // The list contains the objects that were rejected, or else they were deleted.
        writer.budget.smallest_rejected = None;
        Relist::new(&self.core, id)
    }
}

impl<T: StoreType + ?Sized> Store<T> {
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

    /// Notes that a watch next to a list delivers the changes after this version.
    pub(crate) fn watched_from(&self, resource_version: &str) {
        self.core.log.lock().watched_from(resource_version);
    }

    pub(crate) fn listed_at(&self, resource_version: &str) {
        self.core.log.lock().listed_at(resource_version);
    }

    /// Writes or deletes an object that a watch delivered.
    pub(crate) fn apply_watched(&self, object: ItemRef<'_>, is_deleted: bool) -> Result<(), StoreError> {
        let mut writer = self.core.writer();
        if is_deleted {
            self.core.delete(&mut writer, object, Origin::Watch).map(drop)
        } else {
            self.core.apply(&mut writer, object, Origin::Watch).map(drop)
        }
    }

    /// Stops counting this handle.
    pub(crate) fn forget_handle(&mut self) {
        self.reader.handle = CountedHandle::uncounted();
    }

    /// Waits until the last handle that counts is dropped.
    pub(crate) fn last_handle(&self) -> impl Future<Output = ()> + Send + use<T> {
        let core = Arc::clone(&self.core);
        async move { core.handles.none_left().await }
    }

    pub(crate) fn attach(&self) {
        let mut writer = self.core.writer();
        writer.placement.subscribers.add_reflector();
    }

    /// Unregisters a reflector that has ended. Subscribers end with the last reflector.
    pub(crate) fn detach(&self, reason: EndReason) {
        let mut writer = self.core.writer();
        if writer.placement.subscribers.remove_reflector(reason) {
            self.core.log.close();
        }
    }

    /// Counts an object that could not be projected as skipped.
    pub(crate) fn skip_unwritten(&self, object: ItemRef<'_>) {
        let mut writer = self.core.writer();
        self.core.log.close();
        self.core.skip(&mut writer, object, Origin::Watch);
    }

    /// Returns the number of failures of index functions since the last call, and the last error.
    pub(crate) fn take_index_errors(&self) -> (u64, Option<ObjectError>) {
        self.core.writer().placement.indexes.take_errors()
    }

    /// Returns why the store needs a relist, if it does.
    pub(crate) fn needs_relist(&self) -> Option<&'static str> {
        let writer = self.core.writer();
        if writer.relists.unconfirmed.is_missed() {
            return Some("the watch has passed the version of a write that it did not deliver");
        }
        (writer.skipped.len() > 0 && writer.budget.has_room(writer.used()))
            .then_some("the store has room for skipped objects")
    }
}

impl<T: StoreType + ?Sized> Store<T> {
    /// Saves the collection of this moment with its resource version, so that a watch can resume after a restart.
    ///
    /// `holds` names the collection, and [`load`](Self::load) expects the same text.
    ///
    /// Saves are atomic: a crash leaves the previous file intact, because the new file is written next to it and then
    /// renamed, and a later save removes what a killed process left. Saves may run at the same time, even to the same
    /// path, where the last one wins. An existing file keeps its permissions, and only its owner can read a new one. A
    /// symbolic link stays, and the file to which it leads is replaced.
    ///
    /// Objects are saved compressed. A save blocks its caller but not other writers. For 50,000 Pods it took 0.1 s with
    /// a [compressed](crate::StorageFormat) store and 0.5 s with an encoded one. Meanwhile it holds a
    /// [`snapshot`](crate::StoreReader::snapshot), samples of up to 4 MiB, about 30 bytes for each delta group of a
    /// compressed store, and buffers that do not grow with the collection.
    ///
    /// ```
    /// # use listwatch_cache::{StorageFormat, Store};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("pods");
    /// # let before = Store::<[u8]>::new(StorageFormat::Encoded);
    /// # before.begin_relist().commit("7")?;
    /// before.save(&path, "the Pods of cluster blue")?;
    ///
    /// let after = Store::<[u8]>::new(StorageFormat::Encoded);
    /// after.load(&path, "the Pods of cluster blue")?;
    /// assert_eq!((after.len(), after.resource_version()), (before.len(), before.resource_version()));
    /// assert!(after.load(&path, "the Pods of cluster green").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`FileError`] when the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>, holds: &str) -> Result<(), FileError> {
        save::save(&self.core, path.as_ref(), holds, None)
    }

    /// Like [`save`](Self::save), with the version from which a watch resumes.
    pub(crate) fn save_from(&self, path: &Path, holds: &str, resumes_from: Option<&str>) -> Result<(), FileError> {
        save::save(&self.core, path, holds, resumes_from)
    }

    /// Loads a file that [`save`](Self::save) wrote for the same collection into an empty store.
    ///
    /// Indexes and subscribers see the objects as if they were written. The call blocks its caller and, at the end,
    /// while it puts the objects into the store, other writers.
    ///
    /// The store keeps the objects in its own [format](crate::StorageFormat), except that a compressed store keeps
    /// those encoded that the file contains uncompressed. A file whose objects would exceed the
    /// [budget](Store::set_budget) in that format is refused before any object is expanded. The store stays empty until
    /// the whole file is checked.
    ///
    /// The checksum detects damage but not forgery. Allocations are bounded by the size of the file, whatever lengths
    /// it declares, except that a compressed object may expand to 16 MiB where the store does not keep it compressed,
    /// and a reference to 1 MiB.
    ///
    /// # Errors
    ///
    /// [`FileError`], after which the store is unchanged.
    pub fn load(&self, path: impl AsRef<Path>, holds: &str) -> Result<(), FileError> {
        self.put_saved(self.read_saved(path.as_ref(), holds)?)
    }

    pub(crate) fn read_saved(&self, path: &Path, holds: &str) -> Result<SavedStore, FileError> {
        load::read(&self.core, path, holds)
    }

    pub(crate) fn put_saved(&self, saved: SavedStore) -> Result<(), FileError> {
        load::put(&self.core, saved)
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
