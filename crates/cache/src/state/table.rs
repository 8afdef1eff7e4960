//! The table of a store: objects by slot, by key and in key order.

use std::cmp::Ordering;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::compress::group::StateId;
use crate::state::entry::Entry;
use crate::state::key_order::{KeyOrder, compare_keys};

/// The objects by slot, the slots by key, and the resource version of the collection.
///
/// An object has a slot, a number that it keeps until it is deleted. A write copies a chunk, or a leaf of the order,
/// only if a [snapshot](super::snapshot::Snapshot) shares it.
pub(crate) struct ObjectTable {
    /// The slots by the hash of the key.
    pub(crate) keys: HashTable<HashedSlot>,
    /// `CHUNK` slots each, which are copied on write while a snapshot shares them.
    pub(crate) chunks: Vec<Arc<Chunk>>,
    /// The slots in key order.
    pub(super) order: KeyOrder,
    /// The version up to which the store contains all changes. Empty before the first list.
    pub(crate) version: String,
}

const CHUNK: usize = 64;
pub(crate) type Chunk = [Option<Entry>; CHUNK];

#[derive(Clone, Copy)]
pub(crate) struct HashedSlot {
    hash: u32,
    slot: u32,
}

impl HashedSlot {
    /// Spreads the hash, because the table uses its highest and lowest bits.
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl ObjectTable {
    pub(crate) fn new() -> Self {
        Self { keys: HashTable::new(), chunks: Vec::new(), order: KeyOrder::default(), version: String::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn find(&self, hash: u32, namespace: &str, name: &str) -> Option<(u32, &Entry)> {
        self.find_if(hash, |held| held.is(namespace, name))
    }

    pub(crate) fn find_state(&self, state: StateId) -> Option<(u32, &Entry)> {
        self.find_if(state.key_hash, |held| state.is_at(held.address()))
    }

    fn find_if(&self, hash: u32, is: impl Fn(&Entry) -> bool) -> Option<(u32, &Entry)> {
        let is = |located: &HashedSlot| located.hash == hash && self.get(located.slot).is_some_and(&is);
        let slot = self.keys.find(HashedSlot::spread(hash), is)?.slot;
        Some((slot, self.get(slot)?))
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Entry> {
        get(&self.chunks, slot)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().flatten())
    }

    pub(crate) fn insert_key(&mut self, hash: u32, slot: u32) {
        let located = HashedSlot { hash, slot };
        self.keys.insert_unique(HashedSlot::spread(hash), located, |located| HashedSlot::spread(located.hash));
        let Self { chunks, order, .. } = self;
        if let Some(entry) = get(chunks, slot) {
            let key = entry.key();
            order.insert(slot, |other| compare(chunks, other, key));
        }
    }

    pub(crate) fn remove(&mut self, hash: u32, slot: u32) -> Option<Entry> {
        if let Ok(found) = self.keys.find_entry(HashedSlot::spread(hash), |located| located.slot == slot) {
            found.remove();
        }
        let Self { chunks, order, .. } = self;
        if let Some(entry) = get(chunks, slot) {
            let key = entry.key();
            order.remove(slot, |other| compare(chunks, other, key));
        }
        self.slot_mut(slot).and_then(Option::take)
    }

    /// Returns the slots of the objects of a namespace, in key order.
    pub(crate) fn of_namespace<'s>(&'s self, namespace: &'s str) -> impl Iterator<Item = u32> + use<'s> {
        of_range(&self.order, &self.chunks, Some(namespace), None)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.keys.allocation_size()
            + self.chunks.capacity() * size_of::<usize>()
            + self.chunks.len() * (2 * size_of::<usize>() + size_of::<Chunk>())
            + self.order.bytes()
    }

    /// Returns a larger table of keys, if the table has no room for another key.
    pub(super) fn larger(&self) -> Option<HashTable<HashedSlot>> {
        (self.keys.len() >= self.keys.capacity()).then(|| resized(&self.keys, (2 * self.keys.len()).max(4)))
    }

    /// Returns a smaller table of keys, if the table is too large.
    pub(super) fn smaller(&self) -> Option<HashTable<HashedSlot>> {
        (self.keys.len() < self.keys.capacity() / 4).then(|| resized(&self.keys, self.keys.len()))
    }

    /// Frees memory that a smaller collection does not need. `smaller` replaces the table of keys if that is too large.
    pub(super) fn shrink(&mut self, smaller: Option<HashTable<HashedSlot>>) {
        let used = self.chunks.iter().rposition(|chunk| chunk.iter().any(Option::is_some)).map_or(0, |last| last + 1);
        self.chunks.truncate(used);
        self.chunks.shrink_to_fit();
        if let Some(smaller) = smaller {
            self.keys = smaller;
        }
        self.order.shrink();
    }

    /// Returns the slot, in a chunk that no snapshot shares.
    pub(crate) fn slot_mut(&mut self, slot: u32) -> Option<&mut Option<Entry>> {
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

    pub(crate) fn slots(&self) -> u32 {
        // There are fewer than 2^32 objects.
        u32::try_from(self.chunks.len() * CHUNK).unwrap_or(u32::MAX)
    }
}

fn resized(keys: &HashTable<HashedSlot>, capacity: usize) -> HashTable<HashedSlot> {
    let mut resized = HashTable::with_capacity(capacity);
    for located in keys {
        resized.insert_unique(HashedSlot::spread(located.hash), *located, |located| HashedSlot::spread(located.hash));
    }
    resized
}

pub(super) fn get(chunks: &[Arc<Chunk>], slot: u32) -> Option<&Entry> {
    chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)?.as_ref()
}

/// Compares the key of the object of a slot with another key.
pub(super) fn compare(chunks: &[Arc<Chunk>], slot: u32, key: (&str, &str)) -> Ordering {
    // The order has only slots of objects.
    get(chunks, slot).map_or(Ordering::Less, |entry| compare_keys(entry.key(), key))
}

/// Returns the slots of the objects of a namespace, or of all, that follow a key.
pub(super) fn of_range<'s>(
    order: &'s KeyOrder,
    chunks: &'s [Arc<Chunk>],
    namespace: Option<&'s str>,
    after: Option<(&'s str, &'s str)>,
) -> impl Iterator<Item = u32> + use<'s> {
    let of = move |slot, namespace: &str| get(chunks, slot).is_some_and(|entry| entry.key().0 == namespace);
    // Keys of other namespaces may lie between those of cluster-scoped objects, but only in a store that mixes
    // collections.
    let contiguous = namespace.filter(|namespace| !namespace.is_empty());
    let bound = contiguous.map_or(after, |namespace| Some(bound_of(namespace, after)));
    order
        .from(move |slot| of_bound(chunks, slot, bound))
        .take_while(move |slot| contiguous.is_none_or(|namespace| of(*slot, namespace)))
        .filter(move |slot| namespace.is_none_or(|namespace| of(*slot, namespace)))
}

/// Returns the key after which the objects of a namespace begin that come after another key.
pub(super) fn bound_of<'s>(namespace: &'s str, after: Option<(&'s str, &'s str)>) -> (&'s str, &'s str) {
    let first = (namespace, "");
    after.filter(|after| compare_keys(first, *after).is_le()).unwrap_or(first)
}

/// Compares a slot with a bound: less, if its key is the bound or comes before it.
pub(super) fn of_bound(chunks: &[Arc<Chunk>], slot: u32, bound: Option<(&str, &str)>) -> Ordering {
    match bound {
        Some(bound) if compare(chunks, slot, bound).is_le() => Ordering::Less,
        _ => Ordering::Greater,
    }
}
