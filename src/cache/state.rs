//! What readers of a store see: its objects, by key and as they are at one moment.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashTable;

use super::entry::Entry;
use super::object::{Codec, Object, Stored};

/// A collection as it was at one moment: see [`Store::snapshot`](super::Store::snapshot).
pub struct Snapshot<T: Stored + ?Sized> {
    chunks: Vec<Arc<Chunk<T::Decoded>>>,
    len: usize,
    version: String,
    codec: Arc<Codec<T>>,
}

impl<T: Stored + ?Sized> Snapshot<T> {
    /// Its objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Object<T>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().flatten()).map(|entry| Object::new(entry, &self.codec))
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The version of the collection, as [`Store::version`](super::Store::version) gave it then. Objects may be newer.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

impl<T: Stored + ?Sized> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("len", &self.len).field("version", &self.version).finish_non_exhaustive()
    }
}

/// What readers see.
pub(super) struct State<D> {
    pub(super) table: HashTable<Place>,
    /// `CHUNK` slots each, copied on write while a snapshot has them.
    pub(super) chunks: Vec<Arc<Chunk<D>>>,
    pub(super) version: String,
}

const CHUNK: usize = 64;
pub(super) type Chunk<D> = [Option<Arc<Entry<D>>>; CHUNK];

#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) hash: u32,
    pub(super) slot: u32,
}

impl Place {
    /// Spreads the hash, for the table looks at its highest and lowest bits.
    pub(super) fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl<D> State<D> {
    pub(super) fn new() -> Self {
        Self { table: HashTable::new(), chunks: Vec::new(), version: String::new() }
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
        let is =
            |place: &Place| place.hash == hash && self.get(place.slot).is_some_and(|held| held.is(namespace, name));
        let slot = self.table.find(Place::spread(hash), is)?.slot;
        Some((slot, self.get(slot)?))
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Arc<Entry<D>>> {
        self.chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)?.as_ref()
    }

    /// The slot, in a chunk that no snapshot has.
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
        // Each is of an object, of which there are fewer than 2^32.
        u32::try_from(self.chunks.len() * CHUNK).unwrap_or(u32::MAX)
    }
}

/// The same with another capacity.
pub(super) fn resized(table: &HashTable<Place>, capacity: usize) -> HashTable<Place> {
    let mut resized = HashTable::with_capacity(capacity);
    for place in table {
        resized.insert_unique(Place::spread(place.hash), *place, |place| Place::spread(place.hash));
    }
    resized
}
