//! The handle of a store for readers.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use listwatch::{LabelSelector, StoreType, UndecodableObject};

use crate::error::StoreError;
use crate::handles::CountedHandle;
use crate::index::data::index_function;
use crate::index::lookup::Index;
use crate::log::change_log::ChangeCursor;
use crate::log::contents::ChangeLogStatus;
use crate::state::memory::Memory;
use crate::state::object::Object;
use crate::state::snapshot::Snapshot;
use crate::subscribe::builder::SubscriberBuilder;
use crate::write::core::StoreCore;

/// Reads a [`Store`](crate::Store) by key, namespace, labels or index, as a snapshot, or as a subscriber.
///
/// Clones are handles of the same store. A reader waits for a writer only while the writer puts a single object into
/// its slot, but not during a list or while an index is added.
pub struct StoreReader<T: StoreType + ?Sized> {
    pub(crate) core: Arc<StoreCore<T>>,
    pub(super) handle: CountedHandle,
}

impl<T: StoreType + ?Sized> StoreReader<T> {
    /// Returns the object with this key: an [`&ObjectKey`](crate::ObjectKey), or a pair of namespace and name.
    ///
    /// The namespace of a cluster-scoped object is empty.
    ///
    /// ```
    /// # use listwatch_cache::{ObjectKey, StorageFormat, Store};
    /// let store = Store::<[u8]>::new(StorageFormat::Encoded);
    /// assert!(store.get(("kube-system", "dns")).is_none());
    /// let key = ObjectKey { namespace: "kube-system".to_owned(), name: "dns".to_owned() };
    /// assert!(store.get(&key).is_none());
    /// ```
    #[must_use]
    pub fn get<'k>(&self, key: impl Into<(&'k str, &'k str)>) -> Option<Object<T>> {
        let (namespace, name) = key.into();
        let hash = self.core.objects.hash(namespace, name);
        let state = self.core.objects.state();
        let (_, entry) = state.find(hash, namespace, name)?;
        Some(self.core.objects.object(entry))
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.objects.state().len()
    }

    /// Returns true if the store contains no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the resource version up to which the store contains all changes.
    ///
    /// [`Relist::commit`](crate::Relist::commit) and [`Store::advance`](crate::Store::advance) set it; before that it
    /// is empty.
    #[must_use]
    pub fn resource_version(&self) -> String {
        self.core.objects.state().version.clone()
    }

    /// Returns all objects of this moment, to iterate over them while others write.
    ///
    /// While writers wait, this copies 8 bytes for each 64 objects and as much for their order, which takes about a
    /// millisecond for a million objects. As long as the snapshot exists, a write copies up to 64 pointers, and adding
    /// or deleting an object also copies a part of the order.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<T> {
        self.core.objects.snapshot()
    }

    /// Returns the objects of a namespace in key order, without scanning others.
    ///
    /// Writers wait while the objects are looked up, which takes about 0.1 µs each. [`Snapshot::range`] reads a large
    /// namespace without this wait.
    #[must_use]
    pub fn list_namespace(&self, namespace: &str) -> Vec<Object<T>> {
        let state = self.core.objects.state();
        let entries = state.of_namespace(namespace).filter_map(|slot| state.get(slot));
        entries.map(|entry| self.core.objects.object(entry)).collect()
    }

    /// Returns the objects of one namespace, or of all, that a selector matches, in key order.
    ///
    /// The call reads the labels of each object, so an [`index`](Self::index) by label is faster. Objects whose labels
    /// cannot be read are left out and [counted](Self::decode_errors).
    #[must_use]
    pub fn list_labels(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<Object<T>> {
        // Cloning drops bytes that were decompressed for the labels.
        let selected = |object: Object<T>| object.matches(selector).then(|| object.clone());
        match namespace {
            Some(namespace) => self.list_namespace(namespace).into_iter().filter_map(selected).collect(),
            None => self.snapshot().iter().filter_map(selected).collect(),
        }
    }

    /// Adds an index by the values that a function returns for each object: none, one or many.
    ///
    /// For the same object the function must always return the same values. It may read the store. If it panics, the
    /// panic counts as an error that it returned: the index omits the object, and [`Index::errors`] shows the message.
    /// Inside the function, a method panics if it writes to the store or waits for writers, as
    /// [`memory`](Self::memory), [`index`](Self::index) and [`SubscriberBuilder::start`] do.
    ///
    /// The call scans all objects and blocks meanwhile, so a task that must not block adds the index before the store
    /// contains many objects, or in [`spawn_blocking`](tokio::task::spawn_blocking). Others can read and write in the
    /// meantime, and the index includes what they write.
    ///
    /// # Panics
    ///
    /// Panics if the comparison or the clone of a value panics.
    ///
    /// ```
    /// # use listwatch::ItemError;
    /// use listwatch_cache::{StorageFormat, Store};
    /// let store = Store::<[u8]>::new(StorageFormat::Encoded);
    /// let by_app = store.index("app", |object| {
    ///     Ok::<_, ItemError>(object.meta()?.label("app")?.map(String::from))
    /// });
    /// let by_owner = store.index("owner", |object| {
    ///     let meta = object.meta()?;
    ///     Ok::<Vec<_>, ItemError>(meta.owner_references()?.map(|owner| owner.uid.into_owned()).collect())
    /// });
    /// assert_eq!(by_app.count("web") + by_owner.values().len(), 0);
    /// ```
    #[must_use = "the index is removed with its last handle"]
    pub fn index<I, E>(
        &self,
        name: &str,
        values: impl Fn(&Object<T>) -> Result<I, E> + Send + Sync + 'static,
    ) -> Index<T, I::Item>
    where
        I: IntoIterator<Item: Ord + Clone + Send + Sync + 'static>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let index = Index::new(Arc::clone(&self.core) as _, self.handle.clone(), name, index_function(values));
        self.core.register_index(&index.maintained());
        index.build();
        index
    }

    /// Returns a builder for a subscriber to the changes of the store.
    ///
    /// ```
    /// # use listwatch_cache::{Change, StorageFormat, Store};
    /// let store = Store::<[u8]>::new(StorageFormat::Encoded);
    /// let mut of_web = store.subscribe().with_initial_state().namespace("web").start();
    /// while let Some(change) = of_web.try_next() {
    ///     match change {
    ///         Change::Applied { old: None, new, .. } => println!("{} was added", new.name()),
    ///         Change::Applied { old: Some(old), new, .. } => println!("{new:?} replaced {}", old.resource_version()),
    ///         Change::Deleted { last, .. } => println!("{} was deleted", last.name()),
    ///         Change::Synced => println!("the initial state is complete"),
    ///         _ => {}
    ///     }
    /// }
    /// ```
    pub fn subscribe(&self) -> SubscriberBuilder<T> {
        SubscriberBuilder::new(Arc::clone(&self.core) as _, self.handle.clone())
    }

    /// Returns the collection at exactly one resource version: see [`Snapshot::resource_version`].
    ///
    /// The result is `None` if the store is at no such version, because the [change log](Self::change_log) is closed,
    /// or because somebody other than the reflector has written objects that the watch has not delivered yet. The call
    /// waits for a writer.
    ///
    /// If several changes share the version, the watch may have delivered only the first of them. A cursor [after the
    /// version](Self::changes_after) returns the others.
    #[must_use]
    pub fn exact_snapshot(&self) -> Option<Snapshot<T>> {
        self.core.exact_snapshot()
    }

    /// Returns a cursor in the change log, after the changes up to this resource version.
    ///
    /// If the version is newer than the store's, the cursor skips the changes up to it.
    ///
    /// Several changes may share the version, and a reader at this version may know only the first of them. The cursor
    /// therefore also returns those that share the version and those without a version of their own, so a reader may
    /// see some of them twice but misses none.
    ///
    /// # Errors
    ///
    /// [`StoreError::ChangesExpired`] when the log does not contain all changes after this version, or the version
    /// [cannot be compared](listwatch::compare_resource_versions).
    pub fn changes_after(&self, resource_version: &str) -> Result<ChangeCursor<T>, StoreError> {
        ChangeCursor::after(&self.core.log, self.handle.clone(), resource_version)
    }

    /// Returns the state of the change log: see [`Reflector::change_log`](crate::reflector::Reflector::change_log).
    #[must_use]
    pub fn change_log(&self) -> ChangeLogStatus {
        self.core.log.lock().status()
    }

    /// Measures the memory of the store, without pending changes of subscribers.
    ///
    /// The call first compresses the few objects that a [compressed](crate::StorageFormat::Compressed) store has yet to
    /// compress, and then scans the indexes while writers wait.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.core.measure()
    }

    /// Returns the [budget](crate::Store::set_budget) in bytes, if there is one.
    #[must_use]
    pub fn budget(&self) -> Option<usize> {
        self.core.writer().budget.limit
    }

    /// Returns how many objects are missing in their latest state, because the store could not hold it.
    ///
    /// Writing each of them returned a [`StoreError`]. The store is complete only if this is 0. All objects whose name
    /// cannot be read count as one until the next list.
    ///
    /// An object is no longer counted once a state of it was written, once it was deleted, or once a
    /// [`Relist`](crate::Relist) that began afterwards is committed.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.core.writer().skipped.len()
    }

    /// Counts the states of objects that a reader could not decode, and returns the last object still in such a state.
    ///
    /// The store does not decode what it stores, so it contains such objects nevertheless, for readers of their bytes.
    /// It counts a state when the first reader meets it: in [`Object::decode`], [`Object::view`] and [`Object::meta`],
    /// in a label selector, and in the functions of indexes, filters and controllers. Further readers of the same state
    /// are not counted. A filter that leaves out an object because it cannot be decoded counts it too.
    ///
    /// The last 16 such objects are remembered. The object is `None` once all of these were repaired or deleted.
    #[must_use]
    pub fn decode_errors(&self) -> (u64, Option<UndecodableObject>) {
        self.core.objects.codec.errors.get(|object| {
            let found = self.get((&*object.namespace, &*object.name));
            found.is_some_and(|found| found.resource_version() == object.resource_version)
        })
    }
}

impl<T: StoreType + ?Sized> Clone for StoreReader<T> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), handle: self.handle.clone() }
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for StoreReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.core.objects.state();
        f.debug_struct("StoreReader")
            .field("len", &state.len())
            .field("resource_version", &state.version)
            .finish_non_exhaustive()
    }
}
