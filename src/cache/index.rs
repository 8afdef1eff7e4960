//! Objects by what is in them.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::iter;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use smallvec::SmallVec;

use super::object::{Object, ObjectRef, Stored};
use super::state::State;
use super::store::{ObjectKey, Store};
use super::subscribe::Subscribe;
use crate::sync::{Mutex, RwLock, lock, read, write};

/// Finds the objects of a [`Store`] by values that a function gives for each: see [`Store::index`].
///
/// It is kept up to date until its last clone is dropped. What it gives is of one moment, the objects in no order.
///
/// It takes about 30 bytes for each object, and 50 for each value. The objects of a value have clones of one: text is best an
/// `Arc<str>`.
pub struct Index<T: Stored + ?Sized, V>(Handle<T, V, HashMap<V, Slots>>);

/// As [`Index`], with the values in order: see [`Store::ordered_index`].
pub struct OrderedIndex<T: Stored + ?Sized, V>(Handle<T, V, BTreeMap<V, Slots>>);

/// The function of an index did not give values for an object, which is then not in that index.
#[derive(Clone, Debug, thiserror::Error)]
#[error("index {index} of {key}: {source}")]
pub struct IndexError {
    /// The name of the index.
    pub index: Arc<str>,
    /// The object.
    pub key: ObjectKey,
    /// What the function returned.
    pub source: Arc<dyn Error + Send + Sync>,
}

impl<T: Stored + ?Sized, V: Hash + Eq + Clone + Send + Sync + 'static> Index<T, V> {
    /// The objects that have this value.
    #[must_use]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> Vec<Object<T>>
    where
        V: Borrow<Q>,
    {
        self.0.with(|state, groups| objects(&self.0.store, state, groups.get(value)))
    }

    /// The keys of the objects that have this value.
    #[must_use]
    pub fn keys<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> Vec<ObjectKey>
    where
        V: Borrow<Q>,
    {
        self.get(value).iter().map(Object::key).collect()
    }

    /// How many objects have this value.
    #[must_use]
    pub fn count<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> usize
    where
        V: Borrow<Q>,
    {
        self.0.with(|_, groups| groups.get(value).map_or(0, SmallVec::len))
    }

    /// All values that objects have.
    #[must_use]
    pub fn values(&self) -> Vec<V> {
        self.0.with(|_, groups| groups.keys().cloned().collect())
    }

    /// A subscriber to the objects that have this value, yet to be registered. For each of its writes the function of the
    /// index is called once more.
    pub fn subscribe(&self, value: V) -> Subscribe<T> {
        self.0.subscribe(value)
    }

    /// Why objects are not in it.
    #[must_use]
    pub fn errors(&self) -> Vec<IndexError> {
        self.0.errors()
    }
}

impl<T: Stored + ?Sized, V: Ord + Clone + Send + Sync + 'static> OrderedIndex<T, V> {
    /// The objects that have this value.
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, value: &Q) -> Vec<Object<T>>
    where
        V: Borrow<Q>,
    {
        self.0.with(|state, groups| objects(&self.0.store, state, groups.get(value)))
    }

    /// The keys of the objects that have this value.
    #[must_use]
    pub fn keys<Q: Ord + ?Sized>(&self, value: &Q) -> Vec<ObjectKey>
    where
        V: Borrow<Q>,
    {
        self.get(value).iter().map(Object::key).collect()
    }

    /// How many objects have this value.
    #[must_use]
    pub fn count<Q: Ord + ?Sized>(&self, value: &Q) -> usize
    where
        V: Borrow<Q>,
    {
        self.0.with(|_, groups| groups.get(value).map_or(0, SmallVec::len))
    }

    /// All values that objects have, in order.
    #[must_use]
    pub fn values(&self) -> Vec<V> {
        self.0.with(|_, groups| groups.keys().cloned().collect())
    }

    /// The values in a range, in order, each with its objects. Each step looks anew: what is written meanwhile is seen
    /// where the values are still to come.
    pub fn range(&self, range: impl RangeBounds<V>) -> impl Iterator<Item = (V, Vec<Object<T>>)> {
        let (mut start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
        iter::from_fn(move || {
            let next = self.0.with(|state, groups| {
                let range = (start.as_ref(), end.as_ref());
                let (value, slots) = (!is_empty(range)).then(|| groups.range(range).next()).flatten()?;
                Some((value.clone(), objects(&self.0.store, state, Some(slots))))
            })?;
            start = Bound::Excluded(next.0.clone());
            Some(next)
        })
    }

    /// The least value in a range, with its objects.
    #[must_use]
    pub fn first(&self, range: impl RangeBounds<V>) -> Option<(V, Vec<Object<T>>)> {
        self.range(range).next()
    }

    /// The values that begin with this, in order, as [`range`](Self::range) gives them.
    pub fn prefix(&self, prefix: &str) -> impl Iterator<Item = (V, Vec<Object<T>>)>
    where
        V: Borrow<str>,
    {
        let mut last: Option<V> = None;
        iter::from_fn(move || {
            let next = self.0.with(|state, groups| {
                let start = last.as_ref().map_or(Bound::Included(prefix), |last| Bound::Excluded(last.borrow()));
                let (value, slots) = groups.range::<str, _>((start, Bound::Unbounded)).next()?;
                let begins = Borrow::<str>::borrow(value).starts_with(prefix);
                begins.then(|| (value.clone(), objects(&self.0.store, state, Some(slots))))
            })?;
            last = Some(next.0.clone());
            Some(next)
        })
    }

    /// A subscriber to the objects that have this value, yet to be registered. For each of its writes the function of the
    /// index is called once more.
    pub fn subscribe(&self, value: V) -> Subscribe<T> {
        self.0.subscribe(value)
    }

    /// Why objects are not in it.
    #[must_use]
    pub fn errors(&self) -> Vec<IndexError> {
        self.0.errors()
    }
}

impl<T: Stored + ?Sized, V: Hash + Eq + Clone + Send + Sync + 'static> Clone for Index<T, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Stored + ?Sized, V: Ord + Clone + Send + Sync + 'static> Clone for OrderedIndex<T, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Stored + ?Sized, V: Hash + Eq + Clone + Send + Sync + 'static> fmt::Debug for Index<T, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Index").field(&self.0.kept.name).finish()
    }
}

impl<T: Stored + ?Sized, V: Ord + Clone + Send + Sync + 'static> fmt::Debug for OrderedIndex<T, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OrderedIndex").field(&self.0.kept.name).finish()
    }
}

/// `BTreeMap` panics on some of these.
fn is_empty<V: Ord>(range: (Bound<&V>, Bound<&V>)) -> bool {
    match range {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start >= end,
        _ => false,
    }
}

fn objects<T: Stored + ?Sized>(store: &Store<T>, state: &State<T::Decoded>, slots: Option<&Slots>) -> Vec<Object<T>> {
    let slots = slots.into_iter().flatten();
    slots.filter_map(|slot| state.get(*slot)).map(|entry| store.object(entry)).collect()
}

/// The places of the objects that have a value, ascending.
type Slots = SmallVec<[u32; 4]>;

/// The values of one object.
type Values<V> = SmallVec<[V; 1]>;

type Function<T, V> = dyn Fn(&ObjectRef<'_, T>) -> Result<Values<V>, Arc<dyn Error + Send + Sync>> + Send + Sync;

pub(super) fn function<T: Stored + ?Sized, I: IntoIterator, E: Into<Box<dyn Error + Send + Sync>>>(
    values: impl Fn(&ObjectRef<'_, T>) -> Result<I, E> + Send + Sync + 'static,
) -> Arc<Function<T, I::Item>> {
    Arc::new(move |object| match values(object) {
        Ok(values) => Ok(values.into_iter().collect()),
        Err(error) => Err(error.into().into()),
    })
}

impl<T: Stored + ?Sized, V: Hash + Eq + Clone + Send + Sync + 'static> Index<T, V> {
    pub(super) fn new(store: Store<T>, name: &str, function: Arc<Function<T, V>>) -> Self {
        Self(Handle::new(store, name, function))
    }
}

impl<T: Stored + ?Sized, V: Ord + Clone + Send + Sync + 'static> OrderedIndex<T, V> {
    pub(super) fn new(store: Store<T>, name: &str, function: Arc<Function<T, V>>) -> Self {
        Self(Handle::new(store, name, function))
    }
}

struct Handle<T: Stored + ?Sized, V, G> {
    store: Store<T>,
    kept: Arc<Kept<T, V, G>>,
}

impl<T: Stored + ?Sized, V: Eq + Clone + Send + Sync + 'static, G: Groups<V>> Handle<T, V, G> {
    fn new(store: Store<T>, name: &str, function: Arc<Function<T, V>>) -> Self {
        let data = Data { groups: G::default(), values: Vec::new(), failed: HashMap::new() };
        let pending = Mutex::new(Ok(Values::new()));
        let kept = Arc::new(Kept { name: name.into(), function, pending, data: RwLock::new(data) });
        store.maintain(&(Arc::clone(&kept) as Arc<dyn Maintained<T>>));
        Self { store, kept }
    }

    fn with<R>(&self, look: impl FnOnce(&State<T::Decoded>, &G) -> R) -> R {
        // In this order, as those who write take them.
        let state = self.store.state();
        let data = read(&self.kept.data);
        look(&state, &data.groups)
    }

    fn subscribe(&self, value: V) -> Subscribe<T> {
        let function = Arc::clone(&self.kept.function);
        self.store.subscribe().filter(move |object| function(object).is_ok_and(|values| values.contains(&value)))
    }

    fn errors(&self) -> Vec<IndexError> {
        read(&self.kept.data).failed.values().cloned().collect()
    }
}

impl<T: Stored + ?Sized, V, G> Clone for Handle<T, V, G> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), kept: Arc::clone(&self.kept) }
    }
}

/// A map from values to objects.
trait Groups<V>: Default + Send + Sync + 'static {
    /// Adds an object, and has it share the value that is there.
    fn add(&mut self, value: &mut V, slot: u32);
    fn remove(&mut self, value: &V, slot: u32);
    fn bytes(&self) -> usize;
}

#[expect(clippy::mismatching_type_param_order, reason = "a value here is a key there")]
impl<V: Hash + Eq + Clone + Send + Sync + 'static> Groups<V> for HashMap<V, Slots> {
    fn add(&mut self, value: &mut V, slot: u32) {
        if let Some((known, _)) = self.get_key_value(value) {
            *value = known.clone();
        }
        insert(self.entry(value.clone()).or_default(), slot);
    }

    fn remove(&mut self, value: &V, slot: u32) {
        if self.get_mut(value).is_some_and(|slots| is_last(slots, slot)) {
            self.remove(value);
        }
    }

    fn bytes(&self) -> usize {
        self.capacity() * 8 / 7 * (size_of::<(V, Slots)>() + 1) + self.values().map(spilled).sum::<usize>()
    }
}

#[expect(clippy::mismatching_type_param_order, reason = "a value here is a key there")]
impl<V: Ord + Clone + Send + Sync + 'static> Groups<V> for BTreeMap<V, Slots> {
    fn add(&mut self, value: &mut V, slot: u32) {
        if let Some((known, _)) = self.get_key_value(value) {
            *value = known.clone();
        }
        insert(self.entry(value.clone()).or_default(), slot);
    }

    fn remove(&mut self, value: &V, slot: u32) {
        if self.get_mut(value).is_some_and(|slots| is_last(slots, slot)) {
            self.remove(value);
        }
    }

    /// Its nodes have room for 11 and are three quarters full.
    fn bytes(&self) -> usize {
        self.len() * size_of::<(V, Slots)>() * 4 / 3 + self.values().map(spilled).sum::<usize>()
    }
}

fn insert(slots: &mut Slots, slot: u32) {
    if let Err(at) = slots.binary_search(&slot) {
        slots.insert(at, slot);
    }
}

/// Takes the slot out. Whether none is left.
fn is_last(slots: &mut Slots, slot: u32) -> bool {
    if let Ok(at) = slots.binary_search(&slot) {
        slots.remove(at);
    }
    slots.is_empty()
}

fn spilled<A: smallvec::Array>(values: &SmallVec<A>) -> usize {
    if values.spilled() { values.capacity() * size_of::<A::Item>() } else { 0 }
}

/// What a store does with its indexes when an object is written: `prepare`, which runs code of the caller's and changes
/// nothing, then `keep` with the state locked.
pub(super) trait Maintained<T: Stored + ?Sized>: Send + Sync {
    fn prepare(&self, object: &ObjectRef<'_, T>);
    fn keep(&self, slot: u32) -> Option<IndexError>;
    fn remove(&self, slot: u32);
    fn bytes(&self) -> usize;
}

struct Kept<T: Stored + ?Sized, V, G> {
    name: Arc<str>,
    function: Arc<Function<T, V>>,
    /// What the object that is written just now has.
    pending: Mutex<Result<Values<V>, IndexError>>,
    data: RwLock<Data<V, G>>,
}

struct Data<V, G> {
    groups: G,
    /// By slot: what `groups` has of each object.
    values: Vec<Values<V>>,
    failed: HashMap<u32, IndexError>,
}

impl<T: Stored + ?Sized, V: Eq + Clone + Send + Sync, G: Groups<V>> Maintained<T> for Kept<T, V, G> {
    fn prepare(&self, object: &ObjectRef<'_, T>) {
        let values = (self.function)(object).map_err(|source| {
            let key = ObjectKey::of(object.identity());
            IndexError { index: Arc::clone(&self.name), key, source }
        });
        *lock(&self.pending) = values;
    }

    fn keep(&self, slot: u32) -> Option<IndexError> {
        let mut data = write(&self.data);
        match std::mem::replace(&mut *lock(&self.pending), Ok(Values::new())) {
            Ok(values) => {
                data.failed.remove(&slot);
                data.set(slot, values);
                None
            }
            Err(error) => {
                data.set(slot, Values::new());
                data.failed.insert(slot, error.clone());
                Some(error)
            }
        }
    }

    fn remove(&self, slot: u32) {
        let mut data = write(&self.data);
        data.failed.remove(&slot);
        data.set(slot, Values::new());
    }

    fn bytes(&self) -> usize {
        let data = read(&self.data);
        let values = data.values.capacity() * size_of::<Values<V>>();
        values + data.values.iter().map(spilled).sum::<usize>() + data.groups.bytes()
    }
}

impl<V: Eq + Clone, G: Groups<V>> Data<V, G> {
    fn set(&mut self, slot: u32, mut values: Values<V>) {
        let at = slot as usize;
        if at >= self.values.len() {
            self.values.resize_with(at + 1, Values::new);
        }
        let Some(had) = self.values.get_mut(at) else { return };
        if *had == values {
            return;
        }
        for value in &*had {
            self.groups.remove(value, slot);
        }
        for value in &mut values {
            self.groups.add(value, slot);
        }
        *had = values;
    }
}
