//! Objects by key, and the rules by which they are replaced.

use std::cmp::Ordering;
#[cfg(feature = "zstd")]
use std::collections::BTreeSet;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
#[cfg(feature = "client")]
use std::ops::Range;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use super::budget::{Skipped, Spending};
#[cfg(feature = "zstd")]
use super::compress::Compressor;
use super::entry::{Entry, Form, Identity, MAX_TEXT, wire_len};
use super::index::{self, Index, IndexError, Maintained, OrderedIndex};
use super::memory::Memory;
use super::object::{Codec, DECODED_FACTOR, Object, ObjectRef, Stored};
use super::replace::{Committed, Open, Replace, Superseded};
use super::state::{Chunk, Place, Snapshot, State, resized};
use super::subscribe::{LOOK_AHEAD, Subscribe, Subscribers, Subscription, Wakers};
use crate::error::ItemError;
use crate::object::{MetaView, compare_resource_versions, is_older};
use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, lock, read, write};
use crate::wire::Encoding;

/// A collection in memory, by `namespace/name`. It is a handle: clones share it.
///
/// Any number of threads may read and write. Writes follow one another; who reads waits for none of them but while a
/// single object is put in its place, not for a list and not for an index that is added.
///
/// # Which state of an object wins
///
/// The one with the newer version ([`compare_resource_versions`]). Among versions that do not compare the last write wins.
/// So it does no harm to write what is known already: a controller can [`apply`](Self::apply) the result of its own
/// write at once, and the event of a watch that comes later changes nothing.
///
/// A committed [`Replace`] is the exception: it wins over all that was there when it began, for a server that was restored
/// from a backup has older versions.
///
/// # Memory
///
/// Held encoded, an object takes its bytes and about 110 more; see [`memory`](Self::memory). One that is replaced is gone
/// with its last [`Object`], whatever else is held.
pub struct Store<T: Stored + ?Sized> {
    pub(super) inner: Arc<Inner<T>>,
}

/// How an object is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StorageFormat {
    /// The bytes that came, decoded when somebody wants it.
    #[default]
    Encoded,
    /// Compressed by zstd with a dictionary that is trained on the first few hundred objects, and again when what comes
    /// compresses worse. Until then, and where it does not help, it is held encoded.
    #[cfg(feature = "zstd")]
    Compressed,
    /// Decoded. The bytes are not kept.
    Decoded,
}

/// Names an object of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; empty for an object without one.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    pub(super) fn of(identity: &Identity<'_>) -> Self {
        Self { namespace: identity.namespace.clone().into_owned(), name: identity.name.clone().into_owned() }
    }
}

/// `namespace/name`, or only the name.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// What became of an object that was written.
#[derive(Debug)]
#[must_use]
pub struct Written<T: Stored + ?Sized> {
    /// What changed.
    pub effect: Effect<T>,
    /// Indexes that it is not in, because their function failed. It is in the store all the same.
    pub index_errors: Vec<IndexError>,
}

/// What a write changed.
#[derive(Debug)]
pub enum Effect<T: Stored + ?Sized> {
    /// There was no such object.
    Added(Object<T>),
    /// It took the place of another state.
    Modified {
        /// The state that was there.
        old: Object<T>,
        /// The state that is there now.
        new: Object<T>,
    },
    /// This very state was there.
    Unchanged,
    /// A newer state was there; or the object was deleted since, as far as that is known: one that is not there, and is not
    /// newer than the [version](Store::version) of the collection, was.
    Stale,
}

/// An object that was deleted.
#[derive(Debug)]
pub struct Tombstone<T: Stored + ?Sized> {
    /// Its last known state.
    pub object: Object<T>,
    /// Nobody said that it was deleted: it was missing in a complete list. Its last state may have been another one.
    /// (`DeletedFinalStateUnknown` of client-go)
    pub final_state_unknown: bool,
}

/// Why an object cannot be held.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Its metadata cannot be read; or it cannot be decoded, where it is to be held so.
    #[error(transparent)]
    Object(#[from] ItemError),
    /// It has no name.
    #[error("the object has no name")]
    NoName,
    /// Its namespace, name, uid or version is longer than 65,535 bytes, or all of it than 4 GiB.
    #[error("{0} of the object is too long")]
    TooLong(&'static str),
    /// There is no room for it in the [budget](Store::set_budget) of this many bytes.
    #[error("the store has no room for the object in its {0} bytes")]
    OverBudget(usize),
}

/// For a closure that writes the items of a list to a store.
impl From<StoreError> for ItemError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Object(error) => error,
            error => Self::Other(Arc::new(error)),
        }
    }
}

pub(super) struct Inner<T: Stored + ?Sized> {
    pub(super) hasher: RandomState,
    codec: Arc<Codec<T>>,
    /// Locked for as long as it takes to put one object in its place.
    pub(super) state: RwLock<State<T::Decoded>>,
    /// Locked before `state`, by whoever writes.
    writer: Mutex<Writer<T>>,
}

/// What only those who write see.
pub(super) struct Writer<T: Stored + ?Sized> {
    pub(super) format: StorageFormat,
    pub(super) spending: Spending,
    pub(super) skipped: Skipped,
    /// Slots below `slots` that are free.
    free: Vec<u32>,
    pub(super) slots: u32,
    pub(super) namespaces: HashSet<Arc<str>>,
    indexes: Vec<Weak<dyn Maintained<T>>>,
    pub(super) subscribers: Subscribers<T>,
    /// Reflectors that write to it. Subscribers end with the last of them.
    #[cfg(feature = "client")]
    feeders: usize,
    /// Versions of deletions that a list or a watch may not know of yet.
    tombstones: HashMap<ObjectKey, String>,
    pub(super) open: Option<Open<T::Decoded>>,
    pub(super) replaces: u64,
    /// A list that was not committed has changed the store, which since then mixes two states of the collection.
    pub(super) is_mixed: bool,
    pub(super) held: Held,
    #[cfg(feature = "zstd")]
    pub(super) compressor: Option<Compressor>,
}

/// The lock of those who write. Subscribers are woken when it is given back.
pub(super) struct Writing<'s, T: Stored + ?Sized> {
    writer: MutexGuard<'s, Writer<T>>,
    /// Dropped after the lock.
    wakers: Wakers,
}

impl<T: Stored + ?Sized> Deref for Writing<'_, T> {
    type Target = Writer<T>;

    fn deref(&self) -> &Writer<T> {
        &self.writer
    }
}

impl<T: Stored + ?Sized> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut Writer<T> {
        &mut self.writer
    }
}

impl<T: Stored + ?Sized> Drop for Writing<'_, T> {
    fn drop(&mut self) {
        self.wakers = self.writer.subscribers.take_wakers();
    }
}

/// Bytes by form.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    encoded: usize,
    compressed: usize,
    decoded: usize,
}

impl Held {
    fn count<D>(&mut self, entry: &Entry<D>, count: impl Fn(usize, usize) -> usize) {
        let part = match entry.form() {
            Form::Encoded(_) | Form::EncodedBeside(_) => &mut self.encoded,
            #[cfg(feature = "zstd")]
            Form::Compressed(..) => &mut self.compressed,
            Form::Decoded(..) => &mut self.decoded,
        };
        *part = count(*part, Self::size(entry));
    }

    pub(super) fn size<D>(entry: &Entry<D>) -> usize {
        let decoded = match entry.form() {
            Form::Decoded(..) => Self::decoded_size(entry.wire_len()),
            _ => 0,
        };
        entry.allocated().saturating_add(decoded)
    }

    /// What an object that has this length encoded takes decoded, estimated.
    pub(super) fn decoded_size(wire_len: u32) -> usize {
        usize::try_from(u64::from(wire_len) * DECODED_FACTOR).unwrap_or(usize::MAX)
    }

    pub(super) fn total(&self) -> usize {
        self.encoded + self.compressed + self.decoded
    }
}

impl<T: Stored + ?Sized> Store<T> {
    /// An empty store.
    #[must_use]
    pub fn new(format: StorageFormat) -> Self {
        Self::with_hot_objects(format, 0)
    }

    /// An empty store that keeps the objects that are decoded most decoded, as many as fit into so many bytes, estimated
    /// as [`Memory::decoded`] is.
    #[must_use]
    pub fn with_hot_objects(format: StorageFormat, bytes: u64) -> Self {
        let writer = Writer {
            format,
            spending: Spending::default(),
            skipped: Skipped::default(),
            free: Vec::new(),
            slots: 0,
            namespaces: HashSet::new(),
            indexes: Vec::new(),
            subscribers: Subscribers::new(),
            #[cfg(feature = "client")]
            feeders: 0,
            tombstones: HashMap::new(),
            open: None,
            replaces: 0,
            is_mixed: false,
            held: Held::default(),
            #[cfg(feature = "zstd")]
            compressor: None,
        };
        let state = State::new();
        let inner = Inner {
            hasher: RandomState::new(),
            codec: Arc::new(Codec::new(bytes)),
            state: RwLock::new(state),
            writer: Mutex::new(writer),
        };
        Self { inner: Arc::new(inner) }
    }

    /// How what is written from now on is held. What is there stays as it is.
    pub fn set_storage_format(&self, format: StorageFormat) {
        self.writer().format = format;
    }

    /// The object of this name; of no namespace, if that is empty.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Object<T>> {
        let hash = self.hash(namespace, name);
        let state = self.state();
        let (_, entry) = state.find(hash, namespace, name)?;
        Some(self.object(entry))
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().table.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version of the collection, as [`Replace::commit`] and [`advance`](Self::advance) were told; empty before.
    #[must_use]
    pub fn version(&self) -> String {
        self.state().version.clone()
    }

    /// All objects of this moment, to go through them while others write. It takes 8 bytes for 64 objects; a write copies
    /// what it needs for the store and the snapshot to differ, 64 pointers at most.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<T> {
        self.state().snapshot(&self.inner.codec)
    }

    /// Writes an object: one that a watch added or modified, or that the server answered with to a write.
    ///
    /// The bytes are those of the object itself, without an envelope. Nothing refers to them afterwards.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be held. The store then keeps the state that it has, and counts the object as
    /// [skipped](Self::skipped).
    pub fn apply(&self, encoding: Encoding, bytes: &[u8]) -> Result<Written<T>, StoreError> {
        self.write_or_skip(&mut self.writer(), encoding, bytes, false)
    }

    /// Writes the server's answer to a write of one's own, which may come after any event. One that does not have the object, and
    /// has all changes up to that version, has had its deletion.
    #[cfg(feature = "client")]
    pub(crate) fn apply_own(&self, encoding: Encoding, bytes: &[u8]) -> Result<Written<T>, StoreError> {
        let identity = identity(encoding, bytes)?;
        let mut writer = self.writer();
        let version = &*identity.resource_version;
        let is_known = is_ordered(version) && is_within(version, &self.state().version);
        if is_known && self.find(self.hash(&identity.namespace, &identity.name), &identity).is_none() {
            return Ok(Written { effect: Effect::Stale, index_errors: Vec::new() });
        }
        self.write_or_skip(&mut writer, encoding, bytes, false)
    }

    /// Deletes an object, of which these bytes are the last state. `None`: it was not there, or a newer state is.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be told which object it is. Nothing is deleted then, and an object is counted as
    /// [skipped](Self::skipped).
    pub fn delete(&self, encoding: Encoding, bytes: &[u8]) -> Result<Option<Tombstone<T>>, StoreError> {
        let mut writer = self.writer();
        let writer = &mut *writer;
        let identity = match identity(encoding, bytes) {
            Ok(identity) => identity,
            Err(error) => {
                self.skip(writer, None, bytes, false);
                return Err(error);
            }
        };
        let hash = self.hash(&identity.namespace, &identity.name);
        let found = self.find(hash, &identity);
        if writer.open.is_some() || is_older(&self.state().version, &identity.resource_version) {
            writer.bury(&identity);
        }
        if let Some((slot, held)) = &found
            && is_older(&identity.resource_version, &held.identity().resource_version)
        {
            if let Some(open) = &mut writer.open {
                open.deleted(*slot, &identity.resource_version);
            }
            return Ok(None);
        }
        self.unskip(writer, &identity, false);
        let Some((slot, held)) = found else { return Ok(None) };
        let namespace = || intern(&mut writer.namespaces, &identity.namespace);
        let last = Arc::new(Entry::encoded(encoding, bytes, &identity, namespace));
        self.remove(writer, hash, slot, &held, &last, false);
        Ok(Some(Tombstone { object: self.object(&last), final_state_unknown: false }))
    }

    /// Says that all changes up to this version have been written: that of each event of a watch, and of its bookmarks.
    ///
    /// Until then the store remembers what was [deleted](Self::delete) ahead of it, so that a late event does not bring it
    /// back: key and version of each. A store that was never told a version remembers it only while a [`Replace`] is open.
    pub fn advance(&self, version: &str) {
        let mut writer = self.writer();
        if is_older(version, &self.state().version) {
            return;
        }
        writer.forget_deleted(version);
        version.clone_into(&mut write(&self.inner.state).version);
    }

    /// Begins to replace all that is there by a list whose objects arrive one by one. One that was begun before is
    /// [`Superseded`].
    ///
    /// Other writes go on meanwhile, and what they wrote is not undone by the list.
    #[must_use = "it does nothing until it is committed"]
    pub fn begin_replace(&self) -> Replace<T> {
        let mut writer = self.writer();
        writer.replaces += 1;
        writer.open = Some(Open::new(writer.replaces));
        // As of all that was there when it began, the list knows better.
        writer.tombstones.clear();
        Self::forget_refused(&mut writer);
        Replace::new(self.clone(), writer.replaces)
    }

    /// Adds an index by values that `values` gives for each object: none, one or many. For the same object it must give
    /// the same values, and it must not write to the store.
    ///
    /// It goes through all objects that are there; those who read do not wait for it.
    ///
    /// ```
    /// # use listwatch::{ItemError, cache::{StorageFormat, Store}};
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
    #[must_use = "it goes with its last handle"]
    pub fn index<I, E>(
        &self,
        name: &str,
        values: impl Fn(&ObjectRef<'_, T>) -> Result<I, E> + Send + Sync + 'static,
    ) -> Index<T, I::Item>
    where
        I: IntoIterator<Item: Hash + Eq + Clone + Send + Sync + 'static>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Index::new(self.clone(), name, index::function(values))
    }

    /// As [`index`](Self::index), with the values in order.
    #[must_use = "it goes with its last handle"]
    pub fn ordered_index<I, E>(
        &self,
        name: &str,
        values: impl Fn(&ObjectRef<'_, T>) -> Result<I, E> + Send + Sync + 'static,
    ) -> OrderedIndex<T, I::Item>
    where
        I: IntoIterator<Item: Ord + Clone + Send + Sync + 'static>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        OrderedIndex::new(self.clone(), name, index::function(values))
    }

    /// A subscriber to what changes, whoever writes it.
    ///
    /// ```
    /// # use listwatch::cache::{Change, StorageFormat, Store};
    /// let store = Store::<[u8]>::new(StorageFormat::Encoded);
    /// let mut of_web = store.subscribe().with_initial_state().filter(|object| object.identity().namespace == "web").start();
    /// while let Some(change) = of_web.try_next() {
    ///     match change {
    ///         Change::Applied(object) => println!("{:?} is there", object.identity()),
    ///         Change::Deleted(tombstone) => println!("{:?} is gone", tombstone.object.identity()),
    ///         Change::Synced => println!("that is all"),
    ///     }
    /// }
    /// ```
    pub fn subscribe(&self) -> Subscribe<T> {
        Subscribe::new(self.clone())
    }

    /// What it takes; not what subscribers have yet to be told. It goes through the indexes, and all who write wait for it.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.measure(&self.writer())
    }

    pub(super) fn measure(&self, writer: &Writer<T>) -> Memory {
        let state = self.state();
        let codec = &self.inner.codec;
        let Held { encoded, compressed, decoded } = writer.held;
        let hot = usize::try_from(codec.hot_bytes()).unwrap_or(usize::MAX);
        let chunks = state.chunks.len() * (2 * size_of::<usize>() + size_of::<Chunk<T::Decoded>>());
        let namespaces = writer.namespaces.capacity() * 8 / 7 * (size_of::<Arc<str>>() + 1)
            + writer.namespaces.iter().map(|namespace| 2 * size_of::<usize>() + namespace.len()).sum::<usize>();
        let table = state.table.allocation_size()
            + state.chunks.capacity() * size_of::<usize>()
            + chunks
            + writer.free.capacity() * size_of::<u32>()
            + namespaces
            + writer.skipped.bytes()
            + codec.shared_bytes();
        let tombstones = writer.tombstones.iter().map(|(key, version)| {
            size_of::<(ObjectKey, String)>() + key.namespace.len() + key.name.len() + version.len()
        });
        let indexes = writer.indexes.iter().filter_map(Weak::upgrade).map(|index| index.bytes());
        #[cfg(feature = "zstd")]
        let compressor = writer.compressor.as_ref();
        Memory {
            encoded,
            compressed,
            decoded: decoded + hot,
            #[cfg(feature = "zstd")]
            table: table + compressor.map_or(0, Compressor::buffer_bytes),
            #[cfg(not(feature = "zstd"))]
            table,
            indexes: indexes.sum(),
            replace: writer.open.as_ref().map_or(0, Open::bytes) + tombstones.sum::<usize>(),
            #[cfg(feature = "zstd")]
            zstd: compressor.map_or(0, Compressor::zstd_bytes) + codec.decompressor.zstd_bytes(),
            #[cfg(not(feature = "zstd"))]
            zstd: 0,
        }
    }
}

impl<T: Stored + ?Sized> Store<T> {
    pub(super) fn state(&self) -> RwLockReadGuard<'_, State<T::Decoded>> {
        read(&self.inner.state)
    }

    pub(super) fn writer(&self) -> Writing<'_, T> {
        Writing { writer: lock(&self.inner.writer), wakers: Wakers::default() }
    }

    pub(super) fn object(&self, entry: &Arc<Entry<T::Decoded>>) -> Object<T> {
        Object::new(entry, &self.inner.codec)
    }

    pub(super) fn codec(&self) -> Arc<Codec<T>> {
        Arc::clone(&self.inner.codec)
    }

    pub(super) fn upgrade(inner: &Weak<Inner<T>>) -> Option<Self> {
        Some(Self { inner: inner.upgrade()? })
    }

    pub(super) fn downgrade(&self) -> Weak<Inner<T>> {
        Arc::downgrade(&self.inner)
    }

    /// A reflector begins to write to it.
    #[cfg(feature = "client")]
    pub(crate) fn attach(&self) {
        let mut writer = self.writer();
        writer.feeders += 1;
        writer.subscribers.reopen();
    }

    /// A reflector has ended: after the last one nothing is written any more.
    #[cfg(feature = "client")]
    pub(crate) fn detach(&self) {
        let mut writer = self.writer();
        writer.feeders = writer.feeders.saturating_sub(1);
        if writer.feeders == 0 {
            writer.subscribers.close();
        }
    }

    pub(super) fn register(&self, subscription: &Arc<Subscription<T>>) {
        let mut writer = self.writer();
        if subscription.looked_at().is_none() {
            for slot in subscription.slots(writer.slots) {
                if let Some(object) = self.object_at(slot) {
                    subscription.is_known(slot, &object);
                }
            }
        }
        writer.subscribers.add(subscription);
    }

    fn object_at(&self, slot: u32) -> Option<Object<T>> {
        self.state().get(slot).map(|entry| self.object(entry))
    }

    /// Tells one who wants what is there of the next few.
    pub(super) fn look_ahead(&self, subscription: &Subscription<T>) {
        let Some(from) = subscription.looked_at() else { return };
        let to = from.saturating_add(LOOK_AHEAD);
        let there: Vec<_> = {
            let state = self.state();
            (from..to).map(|slot| state.get(slot).map(|entry| self.object(entry))).collect()
        };
        // The filter runs while others write.
        let wanted: Vec<_> = (from..to)
            .zip(&there)
            .map(|(slot, object)| object.as_ref().is_some_and(|object| subscription.wants_object(slot, object)))
            .collect();
        let writer = self.writer();
        for (slot, (then, wanted)) in (from..to).zip(there.iter().zip(wanted)) {
            let Some(object) = self.object_at(slot) else { continue };
            let is_same = then.as_ref().is_some_and(|then| Arc::ptr_eq(&then.entry(), &object.entry()));
            subscription.look_at(slot, &object, is_same.then_some(wanted));
        }
        let is_through = to >= writer.slots;
        subscription.looked_up_to((!is_through).then_some(to), is_through && !self.state().version.is_empty());
    }

    /// Tells one of objects once more.
    #[cfg(feature = "client")]
    pub(super) fn tell_again(&self, subscription: &Subscription<T>, slots: Range<u32>) {
        let _writer = self.writer();
        for slot in slots {
            if let Some(object) = self.object_at(slot) {
                subscription.tell_again(slot, &object);
            }
        }
    }

    /// Of the hash that the hasher gives, its higher half.
    pub(super) fn hash(&self, namespace: &str, name: &str) -> u32 {
        u32::try_from(self.inner.hasher.hash_one((namespace, name)) >> 32).unwrap_or_default()
    }

    pub(super) fn find(&self, hash: u32, identity: &Identity<'_>) -> Option<(u32, Arc<Entry<T::Decoded>>)> {
        let state = self.state();
        let (slot, entry) = state.find(hash, &identity.namespace, &identity.name)?;
        Some((slot, Arc::clone(entry)))
    }

    /// Writes an object by the rules, or counts it as skipped.
    pub(super) fn write_or_skip(
        &self,
        writer: &mut Writer<T>,
        encoding: Encoding,
        bytes: &[u8],
        listed: bool,
    ) -> Result<Written<T>, StoreError> {
        let identity = identity(encoding, bytes).inspect_err(|_| self.skip(writer, None, bytes, listed))?;
        let written = self.write(writer, encoding, bytes, &identity, listed);
        match &written {
            Ok(Written { effect: Effect::Added(_) | Effect::Modified { .. }, .. }) => {
                self.unskip(writer, &identity, listed);
                writer.is_mixed |= listed;
            }
            Ok(_) => {}
            Err(_) => self.skip(writer, Some(&identity), bytes, listed),
        }
        written
    }

    /// Writes an object by the rules, `listed` when it comes from the list of the open replace.
    pub(super) fn write(
        &self,
        writer: &mut Writer<T>,
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
        listed: bool,
    ) -> Result<Written<T>, StoreError> {
        let unwritten = |effect| Ok(Written { effect, index_errors: Vec::new() });
        let hash = self.hash(&identity.namespace, &identity.name);
        let found = self.find(hash, identity);
        if let Some((slot, held)) = &found {
            let known = held.identity();
            let afresh = listed && writer.open.as_ref().is_some_and(|open| open.afresh);
            if !known.resource_version.is_empty() && known == *identity && !afresh {
                writer.mark(*slot, listed);
                return unwritten(Effect::Unchanged);
            }
            if is_older(&identity.resource_version, &known.resource_version) {
                self.set_aside(writer, *slot, encoding, bytes, identity, listed)?;
                return unwritten(Effect::Stale);
            }
        } else {
            // What had its last change at the version of the collection or before, and is not there, was deleted.
            let version = &*identity.resource_version;
            let was_there = writer.open.is_none() && is_ordered(version) && is_within(version, &self.state().version);
            if was_there || writer.is_deleted(identity) {
                return unwritten(Effect::Stale);
            }
        }
        let slot = found.as_ref().map(|(slot, _)| *slot);
        let entry = self.entry_in_budget(writer, slot, encoding, bytes, identity)?;
        let object = ObjectRef::lent(identity, encoding, bytes, entry.form());
        let new = self.object(&entry);
        let (slot, index_errors) = self.put(writer, hash, slot, entry, &object);
        writer.mark(slot, listed);
        #[cfg(feature = "zstd")]
        self.train_if_due(writer, slot, bytes.len());
        let effect = match found {
            Some((_, held)) => Effect::Modified { old: self.object(&held), new },
            None => Effect::Added(new),
        };
        Ok(Written { effect, index_errors })
    }

    /// What the open replace makes of a state that is older than what is there.
    fn set_aside(
        &self,
        writer: &mut Writer<T>,
        slot: u32,
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
        listed: bool,
    ) -> Result<(), StoreError> {
        let Some(open) = &writer.open else { return Ok(()) };
        if listed && writer.is_deleted(identity) {
            return Ok(());
        }
        let entry = if open.wants(slot, &identity.resource_version, listed) {
            Some(self.entry_in_budget(writer, None, encoding, bytes, identity)?)
        } else {
            None
        };
        if let Some(open) = &mut writer.open {
            open.set_aside(slot, entry, listed);
        }
        Ok(())
    }

    /// Puts an object in its place, or a new one.
    pub(super) fn put(
        &self,
        writer: &mut Writer<T>,
        hash: u32,
        slot: Option<u32>,
        entry: Arc<Entry<T::Decoded>>,
        object: &ObjectRef<'_, T>,
    ) -> (u32, Vec<IndexError>) {
        writer.indexes.retain(|index| index.strong_count() > 0);
        let indexes: Vec<_> = writer.indexes.iter().filter_map(Weak::upgrade).collect();
        for index in &indexes {
            index.prepare(slot, Some(object));
        }
        let is_new = slot.is_none();
        if is_new {
            self.reserve();
        }
        let slot = slot.unwrap_or_else(|| writer.take_slot());
        writer.held.count(&entry, |sum, bytes| sum + bytes);

        let new = Arc::clone(&entry);
        let mut state = write(&self.inner.state);
        let old = state.slot_mut(slot).and_then(|held| held.replace(entry));
        if is_new {
            let place = Place { hash, slot };
            state.table.insert_unique(Place::spread(hash), place, |place| Place::spread(place.hash));
        }
        let errors = indexes.iter().filter_map(|index| index.keep(slot)).collect();
        drop(state);

        let mut routed = Vec::new();
        for index in &indexes {
            index.finish(&mut routed);
        }
        writer.subscribers.put(slot, old.as_ref(), &new, object, &routed);
        if let Some(old) = old {
            writer.held.count(&old, |sum, bytes| sum - bytes);
        }
        (slot, errors)
    }

    /// Makes room in the table, so that it need not grow while readers wait.
    fn reserve(&self) {
        let state = self.state();
        if state.table.len() < state.table.capacity() {
            return;
        }
        let larger = resized(&state.table, (2 * state.table.len()).max(4));
        drop(state);
        write(&self.inner.state).table = larger;
    }

    /// Removes an object. `last` is its last state.
    fn remove(
        &self,
        writer: &mut Writer<T>,
        hash: u32,
        slot: u32,
        held: &Entry<T::Decoded>,
        last: &Arc<Entry<T::Decoded>>,
        final_state_unknown: bool,
    ) {
        let indexes: Vec<_> = writer.indexes.iter().filter_map(Weak::upgrade).collect();
        for index in &indexes {
            index.prepare(Some(slot), None);
        }
        let mut state = write(&self.inner.state);
        if let Ok(found) = state.table.find_entry(Place::spread(hash), |place| place.slot == slot) {
            found.remove();
        }
        let removed = state.slot_mut(slot).and_then(Option::take);
        for index in &indexes {
            _ = index.keep(slot);
        }
        drop(state);
        drop(removed);
        let mut routed = Vec::new();
        for index in &indexes {
            index.finish(&mut routed);
        }
        writer.free.push(slot);
        writer.held.count(held, |sum, bytes| sum - bytes);
        if let Some(open) = &mut writer.open {
            open.forget(slot);
        }
        writer.subscribers.remove(slot, last, final_state_unknown, &routed);
    }

    /// Has an index go through all objects, and keep up from then on.
    pub(super) fn maintain(&self, index: &Arc<dyn Maintained<T>>) {
        let mut writer = self.writer();
        for slot in 0..writer.slots {
            let Some(object) = self.object_at(slot) else { continue };
            index.prepare(Some(slot), Some(&ObjectRef::kept(&object.identity(), &object)));
            _ = index.keep(slot);
            index.finish(&mut Vec::new());
        }
        writer.indexes.push(Arc::downgrade(index));
    }

    /// What a complete list ends in: see [`Replace::commit`].
    pub(super) fn commit(&self, replace: u64, version: &str) -> Result<Committed<T>, Superseded> {
        let mut writer = self.writer();
        let writer = &mut *writer;
        let mut open = writer.open.take_if(|open| open.id == replace).ok_or(Superseded)?;
        let mut committed = Committed { deleted: Vec::new(), restored: Vec::new() };
        // From the end, where slots are given back.
        for slot in (0..writer.slots).rev() {
            if open.is_settled(slot) {
                continue;
            }
            let Some(held) = self.state().get(slot).map(Arc::clone) else { continue };
            let identity = held.identity();
            let hash = self.hash(&identity.namespace, &identity.name);
            if let Some(staged) = open.restored(slot) {
                let new = self.object(&staged);
                let identity = new.identity();
                let lent = ObjectRef::kept(&identity, &new);
                let (_, index_errors) = self.put(writer, hash, Some(slot), new.entry(), &lent);
                let effect = Effect::Modified { old: self.object(&held), new: new.clone() };
                committed.restored.push(Written { effect, index_errors });
            } else if !open.stays(slot, &identity.resource_version, version) {
                self.remove(writer, hash, slot, &held, &held, true);
                committed.deleted.push(Tombstone { object: self.object(&held), final_state_unknown: true });
            }
        }
        writer.is_mixed = false;
        writer.skipped.forget_before(replace);
        writer.forget_deleted(version);
        self.shrink(writer, version);
        self.measure_rest(writer);
        #[cfg(feature = "zstd")]
        self.train_if_waiting(writer);
        writer.subscribers.resynced();
        Ok(committed)
    }

    /// Gives back what a smaller collection does not need.
    fn shrink(&self, writer: &mut Writer<T>, version: &str) {
        writer.namespaces.retain(|namespace| Arc::strong_count(namespace) > 1);
        self.inner.codec.forget_dropped();
        let state = self.state();
        let used = state.chunks.iter().rposition(|chunk| chunk.iter().any(Option::is_some)).map_or(0, |last| last + 1);
        let smaller =
            (state.table.len() < state.table.capacity() / 4).then(|| resized(&state.table, state.table.len()));
        drop(state);
        let mut state = write(&self.inner.state);
        version.clone_into(&mut state.version);
        state.chunks.truncate(used);
        state.chunks.shrink_to_fit();
        if let Some(smaller) = smaller {
            state.table = smaller;
        }
        writer.slots = writer.slots.min(state.slots());
        writer.free.retain(|slot| *slot < writer.slots);
        writer.free.shrink_to_fit();
    }

    #[cfg(feature = "zstd")]
    fn train_if_due(&self, writer: &mut Writer<T>, slot: u32, len: usize) {
        if writer.format == StorageFormat::Compressed
            && writer.compressor.get_or_insert_with(Compressor::new).is_due(slot, len)
        {
            self.train(writer);
        }
    }

    /// Trains with fewer objects than it waited for, because there are no more, or no room for more. Whether it did.
    #[cfg(feature = "zstd")]
    pub(super) fn train_if_waiting(&self, writer: &mut Writer<T>) -> bool {
        let trains = writer.compressor.as_ref().is_some_and(Compressor::can_train);
        if trains {
            self.train(writer);
        }
        trains
    }

    /// Trains with what was written last, and compresses it.
    #[cfg(feature = "zstd")]
    fn train(&self, writer: &mut Writer<T>) {
        let Some(compressor) = &mut writer.compressor else { return };
        let recent: BTreeSet<u32> = compressor.recent().iter().copied().collect();
        let objects: Vec<_> = recent.iter().filter_map(|slot| self.object_at(*slot)).collect();
        let samples: Vec<_> = objects.iter().filter_map(|object| object.encoded().ok()).collect();
        compressor.train(samples.iter().map(AsRef::as_ref));
        for slot in recent {
            self.compress(writer, slot);
        }
    }

    /// Compresses what is in a slot.
    #[cfg(feature = "zstd")]
    fn compress(&self, writer: &mut Writer<T>, slot: u32) {
        let Some(object) = self.object_at(slot) else { return };
        let held = object.entry();
        if matches!(held.form(), Form::Compressed(..)) {
            return;
        }
        if let Ok(bytes) = object.encoded()
            && let Ok(entry) = writer.entry(object.encoding(), &bytes, &object.identity())
        {
            writer.held.count(&held, |sum, bytes| sum - bytes);
            writer.held.count(&entry, |sum, bytes| sum + bytes);
            self.inner.codec.share(&held, &entry);
            if let Some(place) = write(&self.inner.state).slot_mut(slot) {
                *place = Some(entry);
            }
        }
    }
}

pub(super) fn intern(namespaces: &mut HashSet<Arc<str>>, namespace: &str) -> Arc<str> {
    if let Some(known) = namespaces.get(namespace) {
        return Arc::clone(known);
    }
    let namespace = Arc::<str>::from(namespace);
    namespaces.insert(Arc::clone(&namespace));
    namespace
}

impl<T: Stored + ?Sized> Writer<T> {
    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    pub(super) fn entry(
        &mut self,
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
    ) -> Result<Arc<Entry<T::Decoded>>, StoreError> {
        match self.format {
            StorageFormat::Encoded => {}
            #[cfg(feature = "zstd")]
            StorageFormat::Compressed => {
                let compressor = self.compressor.get_or_insert_with(Compressor::new);
                if let Some((body, dictionary)) = compressor.compress(bytes) {
                    let form = Form::Compressed(intern(&mut self.namespaces, &identity.namespace), dictionary);
                    return Ok(Arc::new(Entry::beside(encoding, wire_len(bytes), identity, body, form)));
                }
            }
            StorageFormat::Decoded => {
                let decoded = Arc::new(T::decode(encoding, bytes)?);
                let form = Form::Decoded(intern(&mut self.namespaces, &identity.namespace), decoded);
                return Ok(Arc::new(Entry::beside(encoding, wire_len(bytes), identity, &[], form)));
            }
        }
        let namespace = || intern(&mut self.namespaces, &identity.namespace);
        // Has the entry allocated before its bytes, so that who looks it up finds both in one page.
        Ok(Arc::new_cyclic(|_| Entry::encoded(encoding, bytes, identity, namespace)))
    }

    /// Notes for the open replace that the object is there.
    pub(super) fn mark(&mut self, slot: u32, listed: bool) {
        if let Some(open) = &mut self.open {
            open.mark(slot, listed);
        }
    }

    /// Remembers that it was deleted at its version.
    fn bury(&mut self, identity: &Identity<'_>) {
        let version = self.tombstones.entry(ObjectKey::of(identity)).or_default();
        if !is_older(&identity.resource_version, version) {
            *version = identity.resource_version.clone().into_owned();
        }
    }

    fn is_deleted(&self, identity: &Identity<'_>) -> bool {
        !self.tombstones.is_empty()
            && self
                .tombstones
                .get(&ObjectKey::of(identity))
                .is_some_and(|deleted| is_within(&identity.resource_version, deleted))
    }

    /// Of deletions up to this version no late event comes any more; of versions that do not compare nobody knows.
    pub(super) fn forget_deleted(&mut self, version: &str) {
        if self.open.is_none() {
            self.tombstones.retain(|_, deleted| is_older(version, deleted));
            self.tombstones.shrink_to_fit();
        }
    }
}

impl<T: Stored + ?Sized> Clone for Tombstone<T> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), final_state_unknown: self.final_state_unknown }
    }
}

impl<T: Stored + ?Sized> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T: Stored + ?Sized> fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Store")
            .field("len", &state.table.len())
            .field("version", &state.version)
            .finish_non_exhaustive()
    }
}

/// Whether the version compares with others than itself.
fn is_ordered(version: &str) -> bool {
    compare_resource_versions(version, "1").is_some()
}

/// Whether it is known to be this version or an older one.
fn is_within(version: &str, collection: &str) -> bool {
    compare_resource_versions(version, collection).is_some_and(Ordering::is_le)
}

/// Which object it is.
pub(super) fn identity(encoding: Encoding, bytes: &[u8]) -> Result<Identity<'_>, StoreError> {
    let identity = MetaView::new(encoding, bytes)?.into_identity();
    if identity.name.is_empty() {
        return Err(StoreError::NoName);
    }
    let Identity { namespace, name, uid, resource_version } = &identity;
    for (what, text) in [("namespace", namespace), ("name", name), ("uid", uid), ("version", resource_version)] {
        if text.len() > MAX_TEXT {
            return Err(StoreError::TooLong(what));
        }
    }
    if u32::try_from(bytes.len()).is_err() {
        return Err(StoreError::TooLong("the whole"));
    }
    Ok(identity)
}
