//! The handle for readers of a reflector's store.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use listwatch::client::{Resource, Selection};
use listwatch::{Encoding, FieldPath, ItemError, ItemRef, Projection, StoreType, TypeMeta, compare_resource_versions};
use tokio::sync::{Notify, mpsc, watch};

use crate::error::{EndReason, StoreError};
use crate::file::format::FileError;
use crate::reflector::status::{ReflectorStatus, SyncError};
use crate::reflector::sync::QuietSpan;
use crate::store::reader::StoreReader;
use crate::store::writable::Store;
use crate::write::transaction::ApplyOutcome;

/// The [`StoreReader`] of a store that a [`Reflector`](super::Reflector) keeps synced. Clones share the store.
pub struct Cache<T: StoreType + ?Sized> {
    pub(super) resource: Resource,
    pub(super) store: Store<T>,
    pub(super) status: watch::Receiver<ReflectorStatus>,
    pub(super) stop: Arc<Notify>,
    pub(super) quiet_spans: mpsc::Sender<QuietSpan>,
    pub(super) collection: Arc<OnceLock<Collection>>,
}

/// The objects that a reflector stores, and their form.
pub(super) struct Collection {
    /// The collection as a text, for files.
    pub(super) description: String,
    /// The type meta of the whole objects.
    pub(super) type_meta: TypeMeta,
    pub(super) namespace: Option<String>,
    pub(super) selection: Selection,
    pub(super) projection: Option<Projection>,
}

impl Collection {
    fn selects(&self, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        let is_of_namespace = match &self.namespace {
            Some(namespace) => item.meta()?.namespace() == *namespace,
            None => true,
        };
        Ok(is_of_namespace && self.selection.selects(item)?)
    }

    /// Returns the part of a whole object that the reflector stores.
    fn stored(&self, item: &ItemRef<'_>) -> Result<Box<[u8]>, ItemError> {
        let mut bytes = item.to_box();
        if self.selection.is_metadata_only() {
            let metadata = Projection::new().keep(&FieldPath::new("metadata", &[1]));
            bytes = item.with_bytes(&bytes).project(&metadata)?;
        }
        match &self.projection {
            Some(projection) => item.with_bytes(&bytes).project(projection),
            None => Ok(bytes),
        }
    }
}

impl<T: StoreType + ?Sized> Cache<T> {
    /// Returns the resource of the collection.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Returns the progress of the reflector.
    #[must_use]
    pub fn status(&self) -> ReflectorStatus {
        let mut status = self.status.borrow().clone();
        (status.decode_errors, status.last_decode_error) = self.store.decode_errors();
        status
    }

    /// Returns true once the store has contained the whole collection, as client-go's `HasSynced` does.
    ///
    /// It stays true even if the cache is out of date or its reflector has ended: see
    /// [`is_up_to_date`](Self::is_up_to_date).
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.status.borrow().resource_version.is_some()
    }

    /// Returns true until the reflector ends.
    ///
    /// After that the cache receives no more changes, and [`ended_by`](ReflectorStatus::ended_by) says why.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.status.borrow().ended_by.is_none()
    }

    /// Returns true while the store contains the whole collection and its watch is open.
    ///
    /// Changes then arrive as the server sends them. It is false before the first sync, from an error of the watch
    /// until the server accepts the next one, during a relist, and after the end of the reflector. The store keeps
    /// serving its objects meanwhile. It stays true when a server ends a watch in the usual way, and when an object is
    /// [skipped](ReflectorStatus::skipped).
    ///
    /// A connection that dies silently is noticed only after the [idle
    /// timeout](listwatch::client::Client::read_idle_timeout). [`last_synced_at`](ReflectorStatus::last_synced_at) says
    /// when the server was last heard.
    #[must_use]
    pub fn is_up_to_date(&self) -> bool {
        self.status.borrow().is_up_to_date
    }

    /// Stops the reflector. The call returns at once, and the reflector ends when its task runs next.
    ///
    /// Subscribers receive the changes that were written before, and then [`Change::Ended`](crate::Change::Ended) with
    /// [`EndReason::Stopped`]. Cursors of the change log end with [`StoreError::ChangesExpired`]. The store keeps
    /// serving its objects.
    pub fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits until the store has contained the whole collection, and returns the resource version of its last change.
    ///
    /// # Errors
    ///
    /// [`SyncError::Incomplete`] while the store lacks objects that it could not hold; [`SyncError::Ended`] when the
    /// reflector has ended, even if the store contained the collection before.
    pub async fn synced(&self) -> Result<String, SyncError> {
        self.wait_for(|status| {
            if let Some(reason) = &status.ended_by {
                return Some(Err(SyncError::Ended(reason.clone())));
            }
            let resource_version = status.resource_version.clone()?;
            Some(match status.skipped {
                0 => Ok(resource_version),
                skipped => Err(SyncError::Incomplete { resource_version, skipped, last: status.last_skipped.clone() }),
            })
        })
        .await?
    }

    /// Waits until the store contains all changes up to this resource version.
    ///
    /// Use it with the version of an object that you have just written. There is no time limit, so the call waits while
    /// the reflector cannot reach the server. Bound it with [`timeout`](tokio::time::timeout).
    /// [Skipped](ReflectorStatus::skipped) objects are ignored.
    ///
    /// # Errors
    ///
    /// [`SyncError::Incomparable`] once the cache is synced, for a version that [cannot be
    /// compared](compare_resource_versions) with the server's, such as an empty one; [`SyncError::Ended`] when the
    /// reflector ended first.
    pub async fn wait_for_resource_version(&self, resource_version: &str) -> Result<(), SyncError> {
        self.wait_for(|status| {
            let so_far = status.resource_version.as_deref()?;
            match compare_resource_versions(so_far, resource_version) {
                Some(order) => order.is_ge().then_some(Ok(())),
                None => Some(Err(SyncError::Incomparable {
                    resource_version: resource_version.to_owned(),
                    cached: so_far.to_owned(),
                })),
            }
        })
        .await?
    }

    /// Saves the collection with its resource version: see [`Store::save`].
    ///
    /// The next start can then [load](super::PreparedReflector::load) it. The call blocks, so call it in
    /// [`spawn_blocking`](tokio::task::spawn_blocking), every few minutes and when the process ends. The file names the
    /// collection: path, selectors, the requested form of objects, and the projection.
    ///
    /// # Errors
    ///
    /// [`FileError`]. It is [`Incomplete`](FileError::Incomplete) until the collection is complete, while a relist has
    /// changed a part of it, and while objects are [skipped](ReflectorStatus::skipped).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let collection = self.collection.get().filter(|_| self.is_synced()).ok_or(FileError::Incomplete)?;
        let resumes_from = self.status.borrow().resumes_from.clone();
        self.store.save_from(path.as_ref(), &collection.description, resumes_from.as_deref())
    }

    async fn wait_for<R>(&self, ready: impl Fn(&ReflectorStatus) -> Option<R>) -> Result<R, SyncError> {
        let mut status = self.status.clone();
        loop {
            {
                let status = status.borrow_and_update();
                if let Some(ready) = ready(&status) {
                    return Ok(ready);
                }
                if let Some(reason) = &status.ended_by {
                    return Err(SyncError::Ended(reason.clone()));
                }
            }
            if status.changed().await.is_err() {
                return Err(SyncError::Ended(EndReason::Dropped));
            }
        }
    }

    /// Stores the server's answer to your write, so that the cache contains it before the watch delivers it.
    ///
    /// The bytes are in the encoding from which the cache decodes its objects: protobuf for prost messages, JSON for
    /// `Json<T>`, either for `[u8]`. [`apply_decoded`](Self::apply_decoded) accepts a decoded object. If the answer is
    /// in the other encoding, as from kube's `Api`, [wait for its version](Self::wait_for_resource_version) instead.
    ///
    /// The object is stored like the reflector's other objects, for example without the fields that its projection
    /// drops. The result is `None` if the cache does not keep such an object, because it belongs to another namespace
    /// or shard or the selectors do not match, or if the reflector does not run yet.
    ///
    /// A late answer changes nothing: it neither restores an object that was deleted since nor replaces a newer state.
    /// A relist whose list is older than the answer keeps it, unless the server was restored from a backup. An answer
    /// whose version [cannot be compared](compare_resource_versions) with others is dropped, and the watch delivers the
    /// object.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the object cannot be stored or the selectors cannot be checked. It contains
    /// [`ItemError::WrongEncoding`] when the cache decodes its objects from the other encoding. The cache is then
    /// unchanged.
    pub fn apply(&self, encoding: Encoding, bytes: &[u8]) -> Result<Option<ApplyOutcome<T>>, StoreError> {
        ItemRef::new(encoding, bytes).check_encoding::<T>()?;
        let Some(collection) = self.collection.get() else { return Ok(None) };
        let item = ItemRef::new(encoding, bytes).with_type_meta(&collection.type_meta);
        if !collection.selects(&item)? {
            return Ok(None);
        }
        self.store.apply_own(encoding, &collection.stored(&item)?).map(Some)
    }

    /// Encodes the server's answer to your write, and stores it as [`apply`](Self::apply) does.
    ///
    /// Fields that the type does not contain are missing from the cache until the watch delivers a newer version.
    ///
    /// # Errors
    ///
    /// The errors of [`apply`](Self::apply), and an [`ItemError`] inside of it when the object cannot be encoded.
    pub fn apply_decoded(&self, object: &T::Decoded) -> Result<Option<ApplyOutcome<T>>, StoreError> {
        self.apply(T::ENCODING.unwrap_or(Encoding::Protobuf), &<T as StoreType>::encode(object)?)
    }
}

/// A cache reads as its store, just as a `Vec` reads as a slice. No method of the cache has the name of a method of the
/// reader, so neither can hide the other.
///
/// Only the reflector, or in tests its [`CacheWriter`](crate::CacheWriter), and [`Cache::apply`] write to the store.
impl<T: StoreType + ?Sized> Deref for Cache<T> {
    type Target = StoreReader<T>;

    fn deref(&self) -> &StoreReader<T> {
        &self.store
    }
}

impl<T: StoreType + ?Sized> Clone for Cache<T> {
    fn clone(&self) -> Self {
        let Self { resource, store, status, stop, quiet_spans, collection } = self;
        Self {
            resource: resource.clone(),
            store: store.clone(),
            status: status.clone(),
            stop: Arc::clone(stop),
            quiet_spans: quiet_spans.clone(),
            collection: Arc::clone(collection),
        }
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("store", &self.store)
            .field("status", &*self.status.borrow())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Returns the names of the methods in a file.
    fn methods(source: &str) -> BTreeSet<&str> {
        let signatures = source.lines().filter_map(|line| line.trim_start().strip_prefix("pub"));
        let names = signatures.filter_map(|signature| signature.split_once("fn ")?.1.split(['(', '<']).next());
        names.collect()
    }

    /// A method of a handle would hide the method of its reader: a new one would change what existing calls do.
    #[test]
    fn handles_and_their_reader_have_no_method_of_the_same_name() {
        let reader = methods(include_str!("../store/reader.rs"));
        assert!(reader.contains("get") && reader.contains("subscribe"));
        let handles = [include_str!("cache.rs"), include_str!("../store/writable.rs")].map(methods);
        assert!(handles[0].contains("synced") && handles[1].contains("advance") && handles[1].contains("save"));
        for handle in handles {
            assert_eq!(handle.intersection(&reader).collect::<Vec<_>>(), [""; 0].iter().collect::<Vec<_>>());
        }
    }
}
