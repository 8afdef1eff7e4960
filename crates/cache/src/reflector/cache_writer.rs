//! The writer of a cache without a reflector, for unit tests.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use listwatch::client::{Kind, Resource, Selection};
use listwatch::internal::is_older;
use listwatch::{Encoding, ItemRef, StoreType, TypeMeta};
use tokio::sync::{mpsc, watch};

use crate::error::StoreError;
use crate::log::open_log::ChangeLogLimits;
use crate::reflector::cache::{Cache, Collection};
use crate::reflector::status::ReflectorStatus;
use crate::state::entry::StorageFormat;
use crate::state::object::Object;
use crate::store::writable::Store;

const EMPTY: &str = "1";

/// Writes a [`Cache`] in place of a reflector and a server, for unit tests of code that takes caches.
///
/// The cache is synced from the start and needs no async runtime. Indexes and subscribers see each write as they would
/// see the events of a watch.
///
/// ```
/// use k8s_pb::api::core::v1::Pod;
/// use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
/// use listwatch_cache::{Cache, CacheWriter};
///
/// /// The function under test.
/// fn count_of_shop(pods: &Cache<Pod>) -> usize {
///     pods.list_namespace("shop").len()
/// }
///
/// let writer = CacheWriter::<Pod>::of();
/// let pods = writer.cache();
/// let metadata = ObjectMeta {
///     namespace: Some("shop".to_owned()),
///     name: Some("web".to_owned()),
///     resource_version: Some("7".to_owned()),
///     ..ObjectMeta::default()
/// };
/// writer.apply_decoded(&Pod { metadata: Some(metadata), ..Pod::default() })?;
/// assert_eq!(count_of_shop(&pods), 1);
/// assert!(pods.is_synced());
/// writer.delete(("shop", "web"))?;
/// assert_eq!(count_of_shop(&pods), 0);
/// # Ok::<(), listwatch_cache::StoreError>(())
/// ```
///
/// # Resource versions
///
/// The rules of a [`Store`] apply: a server sends each object with a uid and a version, and an older version changes
/// nothing. Objects without a version replace each other in the order of the calls. The cache begins at version 1, and
/// is then at the newest version of an object that was written. [`Cache::wait_for_resource_version`] returns at once up
/// to that version, and waits for a write of a newer one.
///
/// When you drop the writer, the cache stays as it is and subscribers stay open, but a wait for a newer version ends
/// with [`SyncError::Ended`](crate::SyncError::Ended).
pub struct CacheWriter<T: StoreType + ?Sized> {
    cache: Cache<T>,
    status: watch::Sender<ReflectorStatus>,
}

impl<T: StoreType + Kind + ?Sized> CacheWriter<T> {
    /// Creates an empty cache of the resource of `T`.
    #[must_use]
    pub fn of() -> Self {
        Self::new(&T::resource())
    }
}

impl<T: StoreType + ?Sized> CacheWriter<T> {
    /// Creates an empty cache of a resource.
    #[must_use]
    pub fn new(resource: &Resource) -> Self {
        let store = Store::new(StorageFormat::Encoded);
        let selection = Selection::default();
        store.set_type_meta(selection.type_meta(resource));
        store.advance(EMPTY);
        let (status, progress) = watch::channel(ReflectorStatus {
            resource_version: Some(EMPTY.to_owned()),
            resumes_from: Some(EMPTY.to_owned()),
            syncs: 1,
            last_synced_at: Some(Instant::now()),
            is_up_to_date: true,
            ..ReflectorStatus::default()
        });
        let collection = Arc::new(OnceLock::from(Collection {
            description: resource.to_string(),
            type_meta: TypeMeta::new(resource.api_version(), resource.kind()),
            namespace: None,
            selection,
            projection: None,
        }));
        // Only a reflector receives them.
        let (quiet_spans, _) = mpsc::channel(1);
        let stop = Arc::default();
        let cache = Cache { resource: resource.clone(), store, status: progress, stop, quiet_spans, collection };
        Self { cache, status }
    }

    /// Keeps the changes from now on, as [`Reflector::change_log`](super::Reflector::change_log) does.
    #[must_use]
    pub fn change_log(self, limits: ChangeLogLimits) -> Self {
        let store = &self.cache.store;
        store.keep_changes(limits);
        store.open_log(&store.resource_version());
        self
    }

    /// Returns a handle for readers.
    #[must_use]
    pub fn cache(&self) -> Cache<T> {
        self.cache.clone()
    }

    /// Writes an object, as a watch does that delivers it as added or modified.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the object cannot be stored. It contains
    /// [`ItemError::WrongEncoding`](listwatch::ItemError::WrongEncoding) when the cache decodes its objects from the
    /// other encoding.
    pub fn apply(&self, encoding: Encoding, bytes: &[u8]) -> Result<(), StoreError> {
        ItemRef::new(encoding, bytes).check_encoding::<T>()?;
        self.write(ItemRef::new(encoding, bytes), false)
    }

    /// Encodes an object and writes it as [`apply`](Self::apply) does.
    ///
    /// # Errors
    ///
    /// The errors of [`apply`](Self::apply), and an [`ItemError`](listwatch::ItemError) inside of it when the object
    /// cannot be encoded.
    pub fn apply_decoded(&self, object: &T::Decoded) -> Result<(), StoreError> {
        self.apply(T::ENCODING.unwrap_or(Encoding::Protobuf), &<T as StoreType>::encode(object)?)
    }

    /// Deletes the object with this key, and returns its last state; `None` if there is no such object.
    ///
    /// The key is an [`&ObjectKey`](crate::ObjectKey), or a pair of namespace and name.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the object cannot be encoded.
    pub fn delete<'k>(&self, key: impl Into<(&'k str, &'k str)>) -> Result<Option<Object<T>>, StoreError> {
        let Some(object) = self.cache.get(key) else { return Ok(None) };
        self.write(object.item()?, true)?;
        Ok(Some(object))
    }

    /// Deletes an object, as a watch does that delivers its final state, which has a version of its own.
    ///
    /// # Errors
    ///
    /// The errors of [`apply`](Self::apply).
    pub fn apply_deletion(&self, encoding: Encoding, bytes: &[u8]) -> Result<(), StoreError> {
        ItemRef::new(encoding, bytes).check_encoding::<T>()?;
        self.write(ItemRef::new(encoding, bytes), true)
    }

    /// Notes that all changes up to this version were written, as a bookmark of a watch does.
    pub fn bookmark(&self, resource_version: &str) {
        if is_older(&self.cache.store.resource_version(), resource_version) {
            self.cache.store.advance(resource_version);
        }
        self.report();
    }

    fn write(&self, written: ItemRef<'_>, is_deleted: bool) -> Result<(), StoreError> {
        let store = &self.cache.store;
        store.apply_watched(written, is_deleted)?;
        let version = written.meta()?.resource_version().into_owned();
        if is_older(&store.resource_version(), &version) {
            store.advance(&version);
        }
        self.report();
        Ok(())
    }

    fn report(&self) {
        // A function under the writer's lock may read the status, so no write may wait under the lock of the status.
        let version = Some(self.cache.store.resource_version());
        self.status.send_modify(|status| {
            status.events += 1;
            status.last_synced_at = Some(Instant::now());
            status.resumes_from.clone_from(&version);
            status.resource_version = version;
        });
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for CacheWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheWriter").field("cache", &self.cache).finish_non_exhaustive()
    }
}
