//! The state that readers of a store access: objects by key and in key order, and snapshots.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::StoreType;
use crate::state::entry::Entry;
use crate::state::key_order::{Order, compare_keys};
use crate::state::object::{Codec, Object};

/// The collection at one moment: see [`StoreReader::snapshot`](crate::StoreReader::snapshot).
pub struct Snapshot<T: StoreType + ?Sized> {
    chunks: Vec<Arc<Chunk<T::Decoded>>>,
    order: Order,
    len: usize,
    version: String,
    codec: Arc<Codec<T>>,
}

impl<T: StoreType + ?Sized> Snapshot<T> {
    /// Iterates over the objects in key order: by the bytes of `namespace/name`, as an API server lists them.
    pub fn iter(&self) -> impl Iterator<Item = Object<T>> {
        self.objects(self.order.iter())
    }

    /// Iterates in key order over the objects of a namespace, or of all, that follow a key. It finds the first of them in a time that
    /// grows with the logarithm of the collection. The key need not exist.
    ///
    /// ```
    /// # use listwatch::Encoding;
    /// use listwatch_cache::{StorageFormat, Store};
    /// let store = Store::<[u8]>::new(StorageFormat::Encoded);
    /// for (namespace, name) in [("a", "x"), ("a-b", "x"), ("a", "y")] {
    ///     let json = format!(r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}"}}}}"#);
    ///     _ = store.apply(Encoding::Json, json.as_bytes())?;
    /// }
    /// let snapshot = store.snapshot();
    /// let keys = |after| snapshot.range(None, after).map(|object| object.key().to_string()).collect::<Vec<_>>();
    /// assert_eq!(keys(None), ["a-b/x", "a/x", "a/y"]);
    /// assert_eq!(keys(Some(("a", "x"))), ["a/y"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<'s>(
        &'s self,
        namespace: Option<&'s str>,
        after: Option<(&'s str, &'s str)>,
    ) -> impl Iterator<Item = Object<T>> + use<'s, T> {
        self.objects(of_range(&self.order, &self.chunks, namespace, after))
    }

    /// Returns the number of objects that [`range`](Self::range) iterates over, without visiting them: it costs two
    /// binary searches and an addition for about 100 objects after the key. For the namespace `""` it visits them.
    #[must_use]
    pub fn range_len(&self, namespace: Option<&str>, after: Option<(&str, &str)>) -> usize {
        let Some(namespace) = namespace else {
            return self.order.count_from(|slot| of_bound(&self.chunks, slot, after));
        };
        if namespace.is_empty() {
            return self.range(Some(namespace), after).count();
        }
        // `0` follows `/`, which follows the namespace in all keys of the namespace.
        let end = format!("{namespace}0");
        let bound = bound_of(namespace, after);
        let from = self.order.count_from(|slot| of_bound(&self.chunks, slot, Some(bound)));
        let after_end = self.order.count_from(|slot| compare(&self.chunks, slot, ("", &end)));
        from.saturating_sub(after_end)
    }

    fn objects<'s, I: Iterator<Item = u32> + 's>(
        &'s self,
        slots: I,
    ) -> impl Iterator<Item = Object<T>> + use<'s, I, T> {
        slots.filter_map(|slot| Some(Object::new(get(&self.chunks, slot)?, &self.codec)))
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

    pub(crate) fn at_version(self, version: String) -> Self {
        Self { version, ..self }
    }

    /// Returns the [resource version](crate::StoreReader::resource_version) of the collection at that moment. Objects may be newer.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.version
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("len", &self.len)
            .field("resource_version", &self.version)
            .finish_non_exhaustive()
    }
}

/// The state that readers access.
pub(crate) struct State<D> {
    pub(crate) table: HashTable<Located>,
    /// `CHUNK` slots each, copied on write while a snapshot shares them.
    pub(crate) chunks: Vec<Arc<Chunk<D>>>,
    /// The slots in key order.
    order: Order,
    pub(crate) version: String,
}

const CHUNK: usize = 64;
pub(crate) type Chunk<D> = [Option<Entry<D>>; CHUNK];

#[derive(Clone, Copy)]
pub(crate) struct Located {
    pub(crate) hash: u32,
    pub(crate) slot: u32,
}

impl Located {
    /// Spreads the hash, because the table uses its highest and lowest bits.
    pub(crate) fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl<D> State<D> {
    pub(crate) fn new() -> Self {
        Self { table: HashTable::new(), chunks: Vec::new(), order: Order::default(), version: String::new() }
    }

    pub(crate) fn snapshot<T: StoreType<Decoded = D> + ?Sized>(&self, codec: &Arc<Codec<T>>) -> Snapshot<T> {
        Snapshot {
            chunks: self.chunks.clone(),
            order: self.order.clone(),
            len: self.table.len(),
            version: self.version.clone(),
            codec: Arc::clone(codec),
        }
    }

    pub(crate) fn find(&self, hash: u32, namespace: &str, name: &str) -> Option<(u32, &Entry<D>)> {
        self.find_if(hash, |held| held.is(namespace, name))
    }

    pub(crate) fn find_state(&self, hash: u32, address: usize) -> Option<(u32, &Entry<D>)> {
        self.find_if(hash, |held| held.address() == address)
    }

    fn find_if(&self, hash: u32, is: impl Fn(&Entry<D>) -> bool) -> Option<(u32, &Entry<D>)> {
        let is = |located: &Located| located.hash == hash && self.get(located.slot).is_some_and(&is);
        let slot = self.table.find(Located::spread(hash), is)?.slot;
        Some((slot, self.get(slot)?))
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Entry<D>> {
        get(&self.chunks, slot)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry<D>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().flatten())
    }

    /// Adds the object of a slot to the table and to the order.
    pub(crate) fn locate(&mut self, hash: u32, slot: u32) {
        let located = Located { hash, slot };
        self.table.insert_unique(Located::spread(hash), located, |located| Located::spread(located.hash));
        let Self { chunks, order, .. } = self;
        if let Some(entry) = get(chunks, slot) {
            let key = entry.key();
            order.insert(slot, |other| compare(chunks, other, key));
        }
    }

    /// Removes the object of a slot.
    pub(crate) fn remove(&mut self, hash: u32, slot: u32) -> Option<Entry<D>> {
        if let Ok(found) = self.table.find_entry(Located::spread(hash), |located| located.slot == slot) {
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
    pub(crate) fn of_namespace<'s>(&'s self, namespace: &'s str) -> impl Iterator<Item = u32> + use<'s, D> {
        of_range(&self.order, &self.chunks, Some(namespace), None)
    }

    /// Returns the bytes on the heap, without the objects.
    pub(crate) fn bytes(&self) -> usize {
        self.table.allocation_size()
            + self.chunks.capacity() * size_of::<usize>()
            + self.chunks.len() * (2 * size_of::<usize>() + size_of::<Chunk<D>>())
            + self.order.bytes()
    }

    /// Frees memory that a smaller collection does not need. `smaller` replaces the table, if the table is too large.
    pub(crate) fn shrink(&mut self, smaller: Option<HashTable<Located>>) {
        let used = self.chunks.iter().rposition(|chunk| chunk.iter().any(Option::is_some)).map_or(0, |last| last + 1);
        self.chunks.truncate(used);
        self.chunks.shrink_to_fit();
        if let Some(smaller) = smaller {
            self.table = smaller;
        }
        self.order.shrink();
    }

    /// Returns the slot, in a chunk that no snapshot shares.
    pub(crate) fn slot_mut(&mut self, slot: u32) -> Option<&mut Option<Entry<D>>> {
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

/// Returns the same table with another capacity.
pub(crate) fn resized(table: &HashTable<Located>, capacity: usize) -> HashTable<Located> {
    let mut resized = HashTable::with_capacity(capacity);
    for located in table {
        resized.insert_unique(Located::spread(located.hash), *located, |located| Located::spread(located.hash));
    }
    resized
}

fn get<D>(chunks: &[Arc<Chunk<D>>], slot: u32) -> Option<&Entry<D>> {
    chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)?.as_ref()
}

/// Compares the key of the object of a slot with another key.
fn compare<D>(chunks: &[Arc<Chunk<D>>], slot: u32, key: (&str, &str)) -> Ordering {
    // The order has only slots of objects.
    get(chunks, slot).map_or(Ordering::Less, |entry| compare_keys(entry.key(), key))
}

/// Returns the slots of the objects of a namespace, or of all, that follow a key.
fn of_range<'s, D>(
    order: &'s Order,
    chunks: &'s [Arc<Chunk<D>>],
    namespace: Option<&'s str>,
    after: Option<(&'s str, &'s str)>,
) -> impl Iterator<Item = u32> + use<'s, D> {
    let of = move |slot, namespace: &str| get(chunks, slot).is_some_and(|entry| entry.key().0 == namespace);
    // Keys of other namespaces may be between those of cluster-scoped objects, but only in a store that mixes collections.
    let contiguous = namespace.filter(|namespace| !namespace.is_empty());
    let bound = contiguous.map_or(after, |namespace| Some(bound_of(namespace, after)));
    order
        .from(move |slot| of_bound(chunks, slot, bound))
        .take_while(move |slot| contiguous.is_none_or(|namespace| of(*slot, namespace)))
        .filter(move |slot| namespace.is_none_or(|namespace| of(*slot, namespace)))
}

/// Returns the key after which the objects of a namespace begin that are after another key.
fn bound_of<'s>(namespace: &'s str, after: Option<(&'s str, &'s str)>) -> (&'s str, &'s str) {
    let first = (namespace, "");
    after.filter(|after| compare_keys(first, *after).is_le()).unwrap_or(first)
}

/// Compares a slot with a bound: less, if its key is the bound or before it.
fn of_bound<D>(chunks: &[Arc<Chunk<D>>], slot: u32, bound: Option<(&str, &str)>) -> Ordering {
    match bound {
        Some(bound) if compare(chunks, slot, bound).is_le() => Ordering::Less,
        _ => Ordering::Greater,
    }
}
