//! The data that all handles of a store share: the state that readers access, and the writer's lock.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use crate::StoreType;
use crate::compress::{Common, Compressor};
use crate::error::ObjectError;
use crate::family::Families;
use crate::form::Deferred;
use crate::key::{Identity, ObjectKey};
use crate::log::change_log::{Due, Log};
use crate::state::entry::Entry;
use crate::state::memory::{Memory, Usage};
use crate::state::object::{Codec, Object};
use crate::state::table::{Chunk, Snapshot, State};
use crate::subscribe::queue::Walk;
use crate::subscribe::subscription::{Subscribers, Subscription, Wakers};
use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, lock, read, thread};
use crate::write::budget::{Skipped, Spending};
use crate::write::relist::Open;

/// The form in which a [`Store`](crate::Store) keeps objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StorageFormat {
    /// The bytes as they arrived. A reader decodes them.
    #[default]
    Encoded,
    /// Compressed by zstd (feature `zstd`), as the difference to an object of the same family: of the same controlling owner, or without
    /// one of the same `generateName`. An object without a family, or unlike it, is compressed by itself. Once such objects take
    /// 1.5 MiB, the store trains a dictionary of 110 KiB on samples of them, which takes about 0.2 s, and compresses them again.
    /// It trains another when objects compress worse. An object that compression does not make shorter is kept encoded. An object that
    /// changes is kept encoded too, until 64 objects have changed, or 512 KiB of them: to compress them together takes a fraction of the
    /// time. A store with a budget or a change log compresses each at once.
    Compressed,
    /// Decoded. The bytes are not kept, so a reader of the bytes encodes the object again. [`Memory`] and the budget can only
    /// estimate its memory.
    Decoded,
}

pub(crate) struct Inner<T: StoreType + ?Sized> {
    pub(crate) hasher: RandomState,
    pub(crate) codec: Arc<Codec<T>>,
    /// Locked while one object is written into its slot, or a table that was built before is swapped.
    pub(crate) state: RwLock<State<T::Decoded>>,
    /// Locked before `state`, by each writer.
    writer: Mutex<Writer<T>>,
    /// The thread that holds the writer's lock; 0 if none does.
    writing: AtomicUsize,
    pub(crate) log: Mutex<Log<T>>,
}

/// The state that only writers access.
pub(crate) struct Writer<T: StoreType + ?Sized> {
    pub(crate) format: StorageFormat,
    pub(crate) spending: Spending,
    pub(crate) skipped: Skipped,
    /// Slots below `slots` that are free.
    pub(crate) free: Vec<u32>,
    pub(crate) slots: u32,
    pub(crate) namespaces: HashSet<Arc<str>>,
    pub(crate) indexes: Vec<Weak<dyn Maintained<T>>>,
    /// The number of failures of index functions since the reflector last read it, and the last error.
    pub(crate) index_errors: (u64, Option<ObjectError>),
    pub(crate) subscribers: Subscribers<T>,
    /// The number of reflectors that write to the store. Subscribers end when the last of them ends.
    pub(crate) reflectors: usize,
    /// True if the change log is enabled.
    pub(crate) has_log: bool,
    /// Resource versions of deletions that a list or a watch may not have passed yet.
    pub(crate) tombstones: HashMap<ObjectKey, String>,
    pub(crate) open: Option<Open<T::Decoded>>,
    pub(crate) replaces: u64,
    /// True if an uncommitted list has changed the store, which then mixes two states of the collection.
    pub(crate) is_mixed: bool,
    pub(crate) usage: Usage,
    pub(crate) compressor: Option<Compressor>,
    pub(crate) families: Families,
    pub(crate) deferred: Deferred,
    /// What compressed objects share, by namespace.
    pub(crate) common: HashMap<Arc<str>, Weak<Common>>,
}

/// The steps of a write for an index: `prepare` runs user code and changes nothing, `keep` runs under the lock of the state and
/// calls no user code, and `finish` runs user code again.
pub(crate) trait Maintained<T: StoreType + ?Sized>: Send + Sync {
    /// Adds the objects of these slots to an index that is empty and has no readers yet.
    fn fill(&self, objects: &mut dyn Iterator<Item = (u32, Object<T>)>);
    /// Computes the values of the object that is written into the slot, or into a new slot; `None` if the object is removed.
    fn prepare(&self, slot: Option<u32>, object: Option<&Object<T>>);
    fn keep(&self, slot: u32) -> Option<ObjectError>;
    /// Appends the subscribers to the values that the object had or has.
    fn finish(&self, subscribers: &mut Vec<Arc<Subscription<T>>>);
    fn bytes(&self) -> usize;
}

/// The writer's lock. After it is released, subscribers are woken.
pub(crate) struct Writing<'s, T: StoreType + ?Sized> {
    writer: MutexGuard<'s, Writer<T>>,
    inner: &'s Inner<T>,
    /// Dropped after the lock.
    wakers: Wakers,
    due: Option<Due<T>>,
}

impl<T: StoreType + ?Sized> Deref for Writing<'_, T> {
    type Target = Writer<T>;

    fn deref(&self) -> &Writer<T> {
        &self.writer
    }
}

impl<T: StoreType + ?Sized> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut Writer<T> {
        &mut self.writer
    }
}

impl<T: StoreType + ?Sized> Drop for Writing<'_, T> {
    fn drop(&mut self) {
        self.wakers = self.writer.subscribers.take_wakers();
        if self.writer.has_log {
            self.due = Some(lock(&self.inner.log).take_due());
        }
        self.inner.writing.store(0, Relaxed);
    }
}

impl<T: StoreType + ?Sized> Inner<T> {
    pub(crate) fn new(format: StorageFormat) -> Self {
        let writer = Writer {
            format,
            spending: Spending::default(),
            skipped: Skipped::default(),
            free: Vec::new(),
            slots: 0,
            namespaces: HashSet::new(),
            indexes: Vec::new(),
            index_errors: (0, None),
            subscribers: Subscribers::new(),
            reflectors: 0,
            has_log: false,
            tombstones: HashMap::new(),
            open: None,
            replaces: 0,
            is_mixed: false,
            usage: Usage::default(),
            compressor: None,
            families: Families::default(),
            deferred: Deferred::default(),
            common: HashMap::new(),
        };
        Self {
            hasher: RandomState::new(),
            codec: Arc::new(Codec::new()),
            state: RwLock::new(State::new()),
            writer: Mutex::new(writer),
            writing: AtomicUsize::new(0),
            log: Mutex::new(Log::new()),
        }
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State<T::Decoded>> {
        read(&self.state)
    }

    /// Waits for other writers.
    ///
    /// # Panics
    ///
    /// Panics if the caller is an index function or a filter that another write runs: it would wait for itself.
    pub(crate) fn writer(&self) -> Writing<'_, T> {
        let thread = thread();
        // Another thread never stores the number of this one.
        let is_nested = self.writing.load(Relaxed) == thread;
        assert!(
            !is_nested,
            "an index function or a filter must not write to its store, or call a method that waits for writers"
        );
        let writer = lock(&self.writer);
        self.writing.store(thread, Relaxed);
        Writing { writer, inner: self, wakers: Wakers::default(), due: None }
    }

    /// As [`writer`](Self::writer), after it has compressed the objects that are waiting for it.
    pub(crate) fn settled_writer(&self) -> Writing<'_, T> {
        let mut writer = self.writer();
        self.compress_deferred(&mut writer);
        writer
    }

    pub(crate) fn object(&self, entry: &Entry<T::Decoded>) -> Object<T> {
        Object::new(entry, &self.codec)
    }

    /// Returns the higher half of the hash of a key.
    pub(crate) fn hash(&self, namespace: &str, name: &str) -> u32 {
        u32::try_from(self.hasher.hash_one((namespace, name)) >> 32).unwrap_or_default()
    }

    pub(crate) fn find(&self, hash: u32, identity: &Identity<'_>) -> Option<(u32, Entry<T::Decoded>)> {
        let state = self.state();
        let (slot, entry) = state.find(hash, &identity.namespace, &identity.name)?;
        Some((slot, entry.clone()))
    }

    /// Finds an object by the address of its state.
    pub(crate) fn find_state(&self, hash: u32, address: usize) -> Option<(u32, Entry<T::Decoded>)> {
        let state = self.state();
        let (slot, entry) = state.find_state(hash, address)?;
        Some((slot, entry.clone()))
    }

    pub(crate) fn entry_at(&self, slot: u32) -> Option<Entry<T::Decoded>> {
        self.state().get(slot).cloned()
    }

    pub(crate) fn snapshot(&self) -> Snapshot<T> {
        self.state().snapshot(&self.codec)
    }

    /// Adds a subscriber and begins its walk over the stored objects.
    pub(crate) fn register(&self, subscription: &Arc<Subscription<T>>, delivers: bool) {
        let mut writer = self.writer();
        let slots = match (&subscription.route, &subscription.namespace) {
            (Some(route), _) => Some(route.slots()),
            (None, Some(namespace)) => Some(self.state().of_namespace(namespace).collect()),
            (None, None) => None,
        };
        lock(&subscription.queue).walk = Some(Walk::new(slots, delivers));
        writer.subscribers.add(subscription);
    }

    /// Advances the walk of a subscriber by a few objects. Returns false when the walk is over.
    pub(crate) fn look_ahead(&self, subscription: &Subscription<T>) -> bool {
        let Some(slots) = subscription.next_slots() else { return false };
        let there: Vec<_> = {
            let state = self.state();
            slots.iter().map(|slot| state.get(*slot).map(|entry| Object::for_functions(entry, &self.codec))).collect()
        };
        // The filters run while others write.
        let wanted: Vec<_> = slots
            .iter()
            .zip(&there)
            .map(|(slot, object)| object.as_ref().is_some_and(|object| subscription.wants(*slot, object)))
            .collect();
        let writer = self.writer();
        for (slot, (before, wanted)) in slots.into_iter().zip(there.iter().zip(wanted)) {
            let Some(entry) = self.entry_at(slot) else { continue };
            let is_same = before.as_ref().is_some_and(|before| before.entry().is_same(&entry));
            let object = Object::for_functions(&entry, &self.codec);
            subscription.look_at(slot, &object, is_same.then_some(wanted));
        }
        let is_synced = !self.state().version.is_empty();
        subscription.looked(writer.slots, is_synced);
        true
    }

    /// Queues objects for a subscriber again.
    pub(crate) fn repeat(&self, subscription: &Subscription<T>, slots: Range<u32>) {
        let _writer = self.writer();
        for slot in slots {
            if let Some(entry) = self.entry_at(slot) {
                lock(&subscription.queue).repeat(slot, &entry);
            }
        }
    }

    /// Adds all objects to an index, and keeps it up to date from then on.
    pub(crate) fn maintain(&self, index: &Arc<dyn Maintained<T>>) {
        let mut writer = self.writer();
        let chunks = self.state().chunks.clone();
        // The processor waits for the entries of a chunk at once: an index of 50,000 encoded Pods by a view takes a fifth less time.
        let prefetch = |chunk: &&Arc<Chunk<_>>| chunk.iter().flatten().for_each(Entry::prefetch);
        index.fill(
            &mut chunks
                .iter()
                .inspect(prefetch)
                .flat_map(|chunk| chunk.iter())
                .zip(0..)
                .filter_map(|(entry, slot)| Some((slot, Object::for_functions(entry.as_ref()?, &self.codec)))),
        );
        writer.indexes.push(Arc::downgrade(index));
    }

    /// Returns the memory of the store, of which the [rest](Spending::rest) was measured some writes
    /// ago.
    pub(crate) fn used(&self, writer: &Writer<T>) -> usize {
        self.counted(writer) + writer.spending.rest
    }

    /// Returns the bytes of the objects and their bases, which are counted with each write.
    pub(crate) fn counted(&self, writer: &Writer<T>) -> usize {
        return writer.usage.total() + self.codec.decompressor.base_bytes();
    }

    pub(crate) fn measure(&self, writer: &Writer<T>) -> Memory {
        let state = self.state();
        let codec = &self.codec;
        let Usage { encoded, compressed, decoded } = writer.usage;
        let namespaces = writer.namespaces.capacity() * 8 / 7 * (size_of::<Arc<str>>() + 1)
            + writer.namespaces.iter().map(|namespace| 2 * size_of::<usize>() + namespace.len()).sum::<usize>();
        let table = state.bytes()
            + writer.free.capacity() * size_of::<u32>()
            + namespaces
            + writer.skipped.bytes()
            + codec.shared_bytes();
        let tombstones = writer.tombstones.iter().map(|(key, version)| {
            size_of::<(ObjectKey, String)>() + key.namespace.len() + key.name.len() + version.len()
        });
        let indexes = writer.indexes.iter().filter_map(Weak::upgrade).map(|index| index.bytes());
        let compressor = writer.compressor.as_ref();
        Memory {
            encoded,
            compressed: compressed + codec.decompressor.base_bytes(),
            decoded,
            table: table
                + compressor.map_or(0, Compressor::buffer_bytes)
                + codec.decompressor.buffer_bytes()
                + writer.families.bytes()
                + writer.common.capacity() * 8 / 7 * (size_of::<(Arc<str>, Weak<Common>)>() + 1)
                + writer.common.len() * (2 * size_of::<usize>() + size_of::<Common>()),
            indexes: indexes.sum(),
            log: lock(&self.log).bytes(),
            replace: writer.open.as_ref().map_or(0, Open::bytes) + tombstones.sum::<usize>(),
            zstd: compressor.map_or(0, Compressor::zstd_bytes) + codec.decompressor.zstd_bytes(),
        }
    }
}
