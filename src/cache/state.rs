//! The state that readers of a store access: objects by key and by namespace, and snapshots.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use hashbrown::HashTable;

use super::entry::Entry;
use super::object::{Codec, Object, Stored};
use super::slots::Slots;

/// The collection at one moment: see [`StoreReader::snapshot`](super::StoreReader::snapshot).
pub struct Snapshot<T: Stored + ?Sized> {
    chunks: Vec<Arc<Chunk<T::Decoded>>>,
    len: usize,
    version: String,
    codec: Arc<Codec<T>>,
}

impl<T: Stored + ?Sized> Snapshot<T> {
    /// Iterates over the objects, unordered.
    pub fn iter(&self) -> impl Iterator<Item = Object<T>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().flatten()).map(|entry| Object::new(entry, &self.codec))
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the [resource version](super::StoreReader::resource_version) of the collection at that moment. Objects may be newer.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.version
    }
}

impl<T: Stored + ?Sized> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("len", &self.len)
            .field("resource_version", &self.version)
            .finish_non_exhaustive()
    }
}

/// The state that readers access.
pub(super) struct State<D> {
    pub(super) table: HashTable<Located>,
    /// `CHUNK` slots each, copied on write while a snapshot shares them.
    pub(super) chunks: Vec<Arc<Chunk<D>>>,
    /// The slots of the objects of each namespace.
    namespaces: HashMap<Arc<str>, Slots>,
    pub(super) version: String,
}

const CHUNK: usize = 64;
pub(super) type Chunk<D> = [Option<Arc<Entry<D>>>; CHUNK];

#[derive(Clone, Copy)]
pub(super) struct Located {
    pub(super) hash: u32,
    pub(super) slot: u32,
}

impl Located {
    /// Spreads the hash, because the table uses its highest and lowest bits.
    pub(super) fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl<D> State<D> {
    pub(super) fn new() -> Self {
        Self { table: HashTable::new(), chunks: Vec::new(), namespaces: HashMap::new(), version: String::new() }
    }

    pub(super) fn snapshot<T: Stored<Decoded = D> + ?Sized>(&self, codec: &Arc<Codec<T>>) -> Snapshot<T> {
        Snapshot {
            chunks: self.chunks.clone(),
            len: self.table.len(),
            version: self.version.clone(),
            codec: Arc::clone(codec),
        }
    }

    pub(super) fn find(&self, hash: u32, namespace: &str, name: &str) -> Option<(u32, &Arc<Entry<D>>)> {
        let is = |located: &Located| {
            located.hash == hash && self.get(located.slot).is_some_and(|held| held.is(namespace, name))
        };
        let slot = self.table.find(Located::spread(hash), is)?.slot;
        Some((slot, self.get(slot)?))
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Arc<Entry<D>>> {
        self.chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)?.as_ref()
    }

    /// Adds the object of a slot to the table and to its namespace.
    pub(super) fn locate(&mut self, hash: u32, slot: u32, namespace: Arc<str>) {
        let located = Located { hash, slot };
        self.table.insert_unique(Located::spread(hash), located, |located| Located::spread(located.hash));
        self.namespaces.entry(namespace).or_default().insert(slot);
    }

    /// Removes the object of a slot.
    pub(super) fn remove(&mut self, hash: u32, slot: u32) -> Option<Arc<Entry<D>>> {
        if let Ok(found) = self.table.find_entry(Located::spread(hash), |located| located.slot == slot) {
            found.remove();
        }
        let removed = self.slot_mut(slot).and_then(Option::take)?;
        let [namespace, ..] = removed.texts();
        if let Some(slots) = self.namespaces.get_mut(namespace) {
            slots.remove(slot);
            if slots.len() == 0 {
                self.namespaces.remove(namespace);
            }
        }
        Some(removed)
    }

    /// Returns the slots of the objects of a namespace.
    pub(super) fn of_namespace(&self, namespace: &str) -> Option<&Slots> {
        self.namespaces.get(namespace)
    }

    /// Returns the bytes on the heap, without the objects.
    pub(super) fn bytes(&self) -> usize {
        let namespaces = self.namespaces.values().map(Slots::bytes).sum::<usize>()
            + self.namespaces.capacity() * 8 / 7 * (size_of::<(Arc<str>, Slots)>() + 1);
        self.table.allocation_size()
            + self.chunks.capacity() * size_of::<usize>()
            + self.chunks.len() * (2 * size_of::<usize>() + size_of::<Chunk<D>>())
            + namespaces
    }

    /// Frees memory that a smaller collection does not need. `smaller` replaces the table, if the table is too large.
    pub(super) fn shrink(&mut self, smaller: Option<HashTable<Located>>) {
        let used = self.chunks.iter().rposition(|chunk| chunk.iter().any(Option::is_some)).map_or(0, |last| last + 1);
        self.chunks.truncate(used);
        self.chunks.shrink_to_fit();
        if let Some(smaller) = smaller {
            self.table = smaller;
        }
        self.namespaces.shrink_to(2 * self.namespaces.len());
    }

    /// Returns the slot, in a chunk that no snapshot shares.
    pub(super) fn slot_mut(&mut self, slot: u32) -> Option<&mut Option<Arc<Entry<D>>>> {
        let at = slot as usize / CHUNK;
        while self.chunks.len() <= at {
            self.chunks.push(Arc::new([const { None }; CHUNK]));
        }
        let chunk = self.chunks.get_mut(at)?;
        if Arc::get_mut(chunk).is_none() {
            *chunk = Arc::new(Chunk::clone(chunk));
        }
        Arc::get_mut(chunk)?.get_mut(slot as usize % CHUNK)
    }

    pub(super) fn slots(&self) -> u32 {
        // There are fewer than 2^32 objects.
        u32::try_from(self.chunks.len() * CHUNK).unwrap_or(u32::MAX)
    }
}

/// Returns the same table with another capacity.
pub(super) fn resized(table: &HashTable<Located>, capacity: usize) -> HashTable<Located> {
    let mut resized = HashTable::with_capacity(capacity);
    for located in table {
        resized.insert_unique(Located::spread(located.hash), *located, |located| Located::spread(located.hash));
    }
    resized
}
