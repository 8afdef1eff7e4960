//! Objects by what is in them.
//!
//! Hashing, comparing, cloning and dropping values is code of the user's, and so is the function of an index. It runs with no lock
//! that readers take: values and the numbers of their groups are in a persistent map, of which readers look into a copy, and
//! writers make the next one before they lock anything. Under the locks there are numbers only.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::iter;
use std::mem;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Weak};

use fixedbitset::FixedBitSet;
use rpds::{HashTrieMapSync, RedBlackTreeMapSync};
use smallvec::SmallVec;

use super::object::{Object, ObjectRef, Stored};
use super::store::{ObjectKey, Store};
use super::subscribe::{Route, Subscribe, Subscription};
use crate::sync::{Mutex, RwLock, lock, read, write};

/// Finds the objects of a [`Store`] by values that a function gives for each: see [`Store::index`].
///
/// It is kept up to date until its last clone and its last subscriber are dropped. What it gives is of one moment, the objects in
/// no order.
///
/// It takes about 30 bytes for each object, and 150 for each value, which is there twice: text is best an `Arc<str>`.
pub struct Index<T: Stored + ?Sized, V>(Handle<T, V, HashTrieMapSync<V, Group>>)
where
    V: Hash + Eq;

/// As [`Index`], with the values in order: see [`Store::ordered_index`].
pub struct OrderedIndex<T: Stored + ?Sized, V>(Handle<T, V, RedBlackTreeMapSync<V, Group>>)
where
    V: Ord;

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
        self.0.objects(self.0.values().get(value).copied())
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
        self.0.count(self.0.values().get(value).copied())
    }

    /// All values that objects have.
    #[must_use]
    pub fn values(&self) -> Vec<V> {
        self.0.values().keys().cloned().collect()
    }

    /// A subscriber to the objects that have this value, yet to be registered. Writes of other objects cost it nothing, and the
    /// function of the index is called once for all subscribers.
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
        self.0.objects(self.0.values().get(value).copied())
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
        self.0.count(self.0.values().get(value).copied())
    }

    /// All values that objects have, in order.
    #[must_use]
    pub fn values(&self) -> Vec<V> {
        self.0.values().keys().cloned().collect()
    }

    /// The values in a range, in order, each with its objects. Each step looks anew: what is written meanwhile is seen
    /// where the values are still to come.
    pub fn range(&self, range: impl RangeBounds<V>) -> impl Iterator<Item = (V, Vec<Object<T>>)> {
        let (mut start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
        iter::from_fn(move || {
            loop {
                let values = self.0.values();
                let range = (start.as_ref(), end.as_ref());
                let (value, group) = (!is_empty(range)).then(|| values.range::<V, _>(range).next()).flatten()?;
                start = Bound::Excluded(value.clone());
                let objects = self.0.objects(Some(*group));
                // Their last one may have gone just now.
                if !objects.is_empty() {
                    return Some((value.clone(), objects));
                }
            }
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
            loop {
                let values = self.0.values();
                let start = last.as_ref().map_or(Bound::Included(prefix), |last| Bound::Excluded(last.borrow()));
                let (value, group) = values.range::<str, _>((start, Bound::Unbounded)).next()?;
                if !Borrow::<str>::borrow(value).starts_with(prefix) {
                    return None;
                }
                last = Some(value.clone());
                let objects = self.0.objects(Some(*group));
                if !objects.is_empty() {
                    return Some((value.clone(), objects));
                }
            }
        })
    }

    /// A subscriber to the objects that have this value, yet to be registered. Writes of other objects cost it nothing, and the
    /// function of the index is called once for all subscribers.
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

/// Finds the slots of the objects that have a value. One whose last object has gone is another one when it has objects again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Group {
    at: u32,
    generation: u32,
}

impl Group {
    /// The place of a list in `Routes::lists`. There are fewer lists than bytes of memory.
    fn route(at: usize) -> Self {
        Self { at: u32::try_from(at).unwrap_or(u32::MAX), generation: 0 }
    }
}

/// The groups that an object is in.
type Groups = SmallVec<[u32; 2]>;

/// The values of one object.
type Values<V> = SmallVec<[V; 1]>;

type Function<T, V> = dyn Fn(&ObjectRef<'_, T>) -> Result<Values<V>, Arc<dyn Error + Send + Sync>> + Send + Sync;

pub(super) fn function<T: Stored + ?Sized, I: IntoIterator, E: Into<Box<dyn Error + Send + Sync>>>(
    values: impl Fn(&ObjectRef<'_, T>) -> Result<I, E> + Send + Sync + 'static,
) -> Box<Function<T, I::Item>> {
    Box::new(move |object| match values(object) {
        Ok(values) => Ok(values.into_iter().collect()),
        Err(error) => Err(error.into().into()),
    })
}

impl<T: Stored + ?Sized, V: Hash + Eq + Clone + Send + Sync + 'static> Index<T, V> {
    pub(super) fn new(store: Store<T>, name: &str, function: Box<Function<T, V>>) -> Self {
        Self(Handle::new(store, name, function))
    }
}

impl<T: Stored + ?Sized, V: Ord + Clone + Send + Sync + 'static> OrderedIndex<T, V> {
    pub(super) fn new(store: Store<T>, name: &str, function: Box<Function<T, V>>) -> Self {
        Self(Handle::new(store, name, function))
    }
}

struct Handle<T: Stored + ?Sized, V, M> {
    store: Store<T>,
    kept: Arc<Kept<T, V, M>>,
}

impl<T: Stored + ?Sized, V: Clone + Send + Sync + 'static, M: Map<V>> Handle<T, V, M> {
    fn new(store: Store<T>, name: &str, function: Box<Function<T, V>>) -> Self {
        let kept = Arc::new(Kept {
            name: name.into(),
            function,
            values: RwLock::new(M::default()),
            data: RwLock::new(Data { groups: Vec::new(), free: Vec::new(), of: Vec::new(), failed: HashMap::new() }),
            pending: Mutex::new(Pending::default()),
            routes: Mutex::new(Routes { values: M::default(), lists: Vec::new(), full: FEW_ROUTES }),
        });
        store.maintain(&(Arc::clone(&kept) as Arc<dyn Maintained<T>>));
        Self { store, kept }
    }

    fn values(&self) -> M {
        self.kept.values()
    }

    fn objects(&self, group: Option<Group>) -> Vec<Object<T>> {
        let Some(group) = group else { return Vec::new() };
        // In this order, as those who write take them.
        let state = self.store.state();
        let data = read(&self.kept.data);
        let Some(slots) = data.slots(group) else { return Vec::new() };
        let mut objects = Vec::with_capacity(slots.len());
        slots.each(|slot| objects.extend(state.get(slot).map(|entry| self.store.object(entry))));
        objects
    }

    fn count(&self, group: Option<Group>) -> usize {
        let Some(group) = group else { return 0 };
        let _state = self.store.state();
        read(&self.kept.data).slots(group).map_or(0, Slots::len)
    }

    fn subscribe(&self, value: V) -> Subscribe<T> {
        self.store.subscribe().route(Box::new(OfValue { kept: Arc::clone(&self.kept), value }))
    }

    fn errors(&self) -> Vec<IndexError> {
        read(&self.kept.data).failed.values().cloned().collect()
    }
}

impl<T: Stored + ?Sized, V, M> Clone for Handle<T, V, M> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), kept: Arc::clone(&self.kept) }
    }
}

/// A map whose clones share what they have in common.
trait Map<V>: Clone + Default + Send + Sync + 'static {
    fn find(&self, value: &V) -> Option<Group>;
    fn add(&mut self, value: V, group: Group);
    fn take(&mut self, value: &V);
    /// Bytes that it has allocated, about.
    fn bytes(&self) -> usize;
}

impl<V: Hash + Eq + Send + Sync + 'static> Map<V> for HashTrieMapSync<V, Group> {
    fn find(&self, value: &V) -> Option<Group> {
        self.get(value).copied()
    }

    fn add(&mut self, value: V, group: Group) {
        self.insert_mut(value, group);
    }

    fn take(&mut self, value: &V) {
        self.remove_mut(value);
    }

    /// An entry and a node of its own for each, in the list of the node above.
    fn bytes(&self) -> usize {
        self.size() * (size_of::<(V, Group)>() + 80)
    }
}

impl<V: Ord + Send + Sync + 'static> Map<V> for RedBlackTreeMapSync<V, Group> {
    fn find(&self, value: &V) -> Option<Group> {
        self.get(value).copied()
    }

    fn add(&mut self, value: V, group: Group) {
        self.insert_mut(value, group);
    }

    fn take(&mut self, value: &V) {
        self.remove_mut(value);
    }

    /// An entry and a node of its own for each.
    fn bytes(&self) -> usize {
        self.size() * (size_of::<(V, Group)>() + 48)
    }
}

/// What a store does with its indexes when an object is written or removed: `prepare`, which runs code of the user's and changes
/// nothing, `keep` with the state locked, which runs none, and `finish`, which does again.
pub(super) trait Maintained<T: Stored + ?Sized>: Send + Sync {
    /// For the object that is to be in the slot, or in a new one; `None` when it is removed.
    fn prepare(&self, slot: Option<u32>, object: Option<&ObjectRef<'_, T>>);
    fn keep(&self, slot: u32) -> Option<IndexError>;
    /// Adds the subscribers to the values that the object had or has.
    fn finish(&self, told: &mut Vec<Arc<Subscription<T>>>);
    fn bytes(&self) -> usize;
}

struct Kept<T: Stored + ?Sized, V, M> {
    name: Arc<str>,
    function: Box<Function<T, V>>,
    /// Values that objects have. Changed with `data`, while the state is locked.
    values: RwLock<M>,
    data: RwLock<Data<V>>,
    /// For those who write, one at a time.
    pending: Mutex<Pending<V, M>>,
    /// The same.
    routes: Mutex<Routes<T, V, M>>,
}

struct Data<V> {
    groups: Vec<Members<V>>,
    /// Groups without objects.
    free: Vec<u32>,
    /// By slot.
    of: Vec<Groups>,
    failed: HashMap<u32, IndexError>,
}

struct Members<V> {
    generation: u32,
    /// `None` in a group that is free.
    value: Option<Arc<V>>,
    slots: Slots,
}

/// What becomes of the object that is written just now; afterwards, what is left to be dropped.
struct Pending<V, M> {
    groups: Groups,
    /// Groups that it is the first object of.
    created: Vec<(Group, Arc<V>)>,
    /// Groups that it was the last object of.
    emptied: Vec<(u32, Arc<V>)>,
    /// The values, where groups are created or emptied.
    values: Option<M>,
    error: Option<IndexError>,
    old_error: Option<IndexError>,
    /// The values that it had or has, which somebody subscribed to: places in `Routes::lists`.
    told: SmallVec<[u32; 4]>,
}

impl<V, M> Default for Pending<V, M> {
    fn default() -> Self {
        Self {
            groups: Groups::new(),
            created: Vec::new(),
            emptied: Vec::new(),
            values: None,
            error: None,
            old_error: None,
            told: SmallVec::new(),
        }
    }
}

impl<T: Stored + ?Sized, V: Clone, M: Map<V>> Kept<T, V, M> {
    fn values(&self) -> M {
        read(&self.values).clone()
    }

    /// The groups of a slot, with their values.
    fn of(&self, slot: Option<u32>) -> Vec<(u32, Arc<V>)> {
        let data = read(&self.data);
        let groups = slot.and_then(|slot| data.of.get(slot as usize)).into_iter().flatten();
        groups.filter_map(|at| Some((*at, Arc::clone(data.groups.get(*at as usize)?.value.as_ref()?)))).collect()
    }
}

impl<T: Stored + ?Sized, V: Clone + Send + Sync, M: Map<V>> Maintained<T> for Kept<T, V, M> {
    fn prepare(&self, slot: Option<u32>, object: Option<&ObjectRef<'_, T>>) {
        let mut pending = Pending::default();
        let values = match object.map(|object| (object, (self.function)(object))) {
            None => Values::new(),
            Some((_, Ok(values))) => values,
            Some((object, Err(source))) => {
                let key = ObjectKey::of(object.identity());
                pending.error = Some(IndexError { index: Arc::clone(&self.name), key, source });
                Values::new()
            }
        };
        let (known, had) = (self.values(), self.of(slot));
        let routes = lock(&self.routes).values();
        let route = |pending: &mut Pending<V, M>, value: &V| {
            if let Some(route) = routes.as_ref().and_then(|routes| routes.find(value))
                && !pending.told.contains(&route.at)
            {
                pending.told.push(route.at);
            }
        };
        for value in values {
            route(&mut pending, &value);
            let found = pending.values.as_ref().unwrap_or(&known).find(&value);
            let group = found.unwrap_or_else(|| {
                let group = read(&self.data).free_group(pending.created.len());
                pending.created.push((group, Arc::new(value.clone())));
                pending.values.get_or_insert_with(|| known.clone()).add(value, group);
                group
            });
            if !pending.groups.contains(&group.at) {
                pending.groups.push(group.at);
            }
        }
        for (at, value) in had {
            route(&mut pending, &value);
            if !pending.groups.contains(&at) && read(&self.data).is_single(at) {
                pending.values.get_or_insert_with(|| known.clone()).take(&value);
                pending.emptied.push((at, value));
            }
        }
        let before = mem::replace(&mut *lock(&self.pending), pending);
        drop(before);
    }

    fn keep(&self, slot: u32) -> Option<IndexError> {
        let mut pending = lock(&self.pending);
        let mut data = write(&self.data);
        for (group, value) in &pending.created {
            data.create(*group, value);
        }
        data.set(slot, &pending.groups);
        for (at, _) in &pending.emptied {
            data.release(*at);
        }
        if let Some(values) = &mut pending.values {
            mem::swap(values, &mut *write(&self.values));
        }
        pending.old_error = match &pending.error {
            Some(error) => data.failed.insert(slot, error.clone()),
            None => data.failed.remove(&slot),
        };
        pending.error.clone()
    }

    fn finish(&self, told: &mut Vec<Arc<Subscription<T>>>) {
        let pending = mem::take(&mut *lock(&self.pending));
        let mut routes = lock(&self.routes);
        for at in &pending.told {
            if let Some((_, list)) = routes.lists.get_mut(*at as usize) {
                list.retain(|subscription| subscription.upgrade().map(|to| told.push(to)).is_some());
            }
        }
        drop(routes);
        drop(pending);
    }

    fn bytes(&self) -> usize {
        let values = self.values();
        let data = read(&self.data);
        let of = data.of.capacity() * size_of::<Groups>() + data.of.iter().map(spilled).sum::<usize>();
        let groups = data.groups.capacity() * size_of::<Members<V>>() + data.free.capacity() * size_of::<u32>();
        let members = data.groups.iter().map(|members| {
            let value = if members.value.is_some() { 2 * size_of::<usize>() + size_of::<V>() } else { 0 };
            value + members.slots.bytes()
        });
        of + groups + members.sum::<usize>() + values.bytes()
    }
}

impl<V> Data<V> {
    fn slots(&self, group: Group) -> Option<&Slots> {
        let members = self.groups.get(group.at as usize)?;
        (members.generation == group.generation).then_some(&members.slots)
    }

    /// Returns the group that `create` takes after `others` groups before it.
    fn free_group(&self, others: usize) -> Group {
        let free = self.free.len().checked_sub(others + 1).and_then(|at| self.free.get(at));
        // There are no more groups than objects have values in memory.
        let new = || u32::try_from(self.groups.len() + others - self.free.len()).unwrap_or(u32::MAX);
        let at = free.copied().unwrap_or_else(new);
        Group { at, generation: self.groups.get(at as usize).map_or(0, |members| members.generation) }
    }

    fn create(&mut self, group: Group, value: &Arc<V>) {
        if let Some(members) = self.groups.get_mut(group.at as usize) {
            self.free.pop();
            members.value = Some(Arc::clone(value));
        } else {
            self.groups.push(Members { generation: 0, value: Some(Arc::clone(value)), slots: Slots::default() });
        }
    }

    /// The value is dropped by who has another reference to it.
    fn release(&mut self, at: u32) {
        if let Some(members) = self.groups.get_mut(at as usize) {
            members.generation = members.generation.wrapping_add(1);
            members.value = None;
            members.slots = Slots::default();
            self.free.push(at);
        }
    }

    fn is_single(&self, at: u32) -> bool {
        self.groups.get(at as usize).is_some_and(|members| members.slots.len() == 1)
    }

    fn set(&mut self, slot: u32, groups: &Groups) {
        let place = slot as usize;
        if place >= self.of.len() {
            if groups.is_empty() {
                return;
            }
            self.of.resize_with(place + 1, Groups::new);
        }
        let Some(had) = self.of.get_mut(place).map(|had| mem::replace(had, groups.clone())) else { return };
        for at in had.iter().filter(|at| !groups.contains(at)) {
            if let Some(members) = self.groups.get_mut(*at as usize) {
                members.slots.remove(slot);
            }
        }
        for at in groups.iter().filter(|at| !had.contains(at)) {
            if let Some(members) = self.groups.get_mut(*at as usize) {
                members.slots.insert(slot);
            }
        }
    }
}

/// The places of the objects that have a value: a list, ascending, or a bit for each place where that takes less memory. So a
/// change moves at most an eighth of a byte for each object of the store.
enum Slots {
    List(SmallVec<[u32; 4]>),
    Bits { bits: FixedBitSet, len: usize },
}

/// The shortest list that becomes bits.
const LONG: usize = 256;

impl Default for Slots {
    fn default() -> Self {
        Self::List(SmallVec::new())
    }
}

impl Slots {
    fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Bits { len, .. } => *len,
        }
    }

    fn each(&self, mut each: impl FnMut(u32)) {
        match self {
            Self::List(list) => list.iter().copied().for_each(each),
            // Each was a place before.
            Self::Bits { bits, .. } => bits.ones().for_each(|slot| each(u32::try_from(slot).unwrap_or(u32::MAX))),
        }
    }

    fn insert(&mut self, slot: u32) {
        match self {
            Self::List(list) => {
                if let Err(at) = list.binary_search(&slot) {
                    list.insert(at, slot);
                }
                let places = list.last().copied().unwrap_or_default() as usize;
                if list.len() >= LONG && list.len() > places / 32 {
                    let bits: FixedBitSet = list.iter().map(|slot| *slot as usize).collect();
                    *self = Self::Bits { bits, len: list.len() };
                }
            }
            Self::Bits { bits, len } => {
                if !bits.contains(slot as usize) {
                    bits.grow_and_insert(slot as usize);
                    *len += 1;
                }
            }
        }
    }

    fn remove(&mut self, slot: u32) {
        match self {
            Self::List(list) => {
                if let Ok(at) = list.binary_search(&slot) {
                    list.remove(at);
                }
            }
            Self::Bits { bits, len } => {
                if bits.contains(slot as usize) {
                    bits.remove(slot as usize);
                    *len -= 1;
                }
                // Far below where a list becomes bits, so that it is not the one and the other in turn.
                if *len < bits.len() / 128 || *len < LONG / 2 {
                    let mut list = SmallVec::with_capacity(*len);
                    self.each(|slot| list.push(slot));
                    *self = Self::List(list);
                }
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::List(list) => spilled(list),
            Self::Bits { bits, .. } => size_of_val(bits.as_slice()),
        }
    }
}

fn spilled<A: smallvec::Array>(values: &SmallVec<A>) -> usize {
    if values.spilled() { values.capacity() * size_of::<A::Item>() } else { 0 }
}

/// Who subscribed to which value.
struct Routes<T: Stored + ?Sized, V, M> {
    /// Places in `lists`.
    values: M,
    lists: Vec<Listed<T, V>>,
    /// The number of lists at which those without subscribers are removed.
    full: usize,
}

/// A value and those who subscribed to it.
type Listed<T, V> = (Arc<V>, Vec<Weak<Subscription<T>>>);

const FEW_ROUTES: usize = 64;

impl<T: Stored + ?Sized, V, M: Map<V>> Routes<T, V, M> {
    /// `None` when nobody subscribed to any.
    fn values(&self) -> Option<M> {
        (!self.lists.is_empty()).then(|| self.values.clone())
    }
}

/// The objects that have a value.
struct OfValue<T: Stored + ?Sized, V, M> {
    kept: Arc<Kept<T, V, M>>,
    value: V,
}

impl<T: Stored + ?Sized, V: Clone + Send + Sync + 'static, M: Map<V>> Route<T> for OfValue<T, V, M> {
    fn add(&self, subscription: &Arc<Subscription<T>>) {
        let routes = &self.kept.routes;
        let (mut values, len, swept) = {
            let routes = lock(routes);
            let swept = (routes.lists.len() >= routes.full).then(|| routes.lists.clone());
            (routes.values.clone(), routes.lists.len(), swept)
        };
        let swept = swept.map(|mut lists| {
            // A new map, of those that somebody still subscribes to.
            lists.retain(|(_, list)| list.iter().any(|subscription| subscription.strong_count() > 0));
            values = M::default();
            for (at, (value, _)) in lists.iter().enumerate() {
                values.add(V::clone(value), Group::route(at));
            }
            lists
        });
        let found = values.find(&self.value);
        let new = found.is_none().then(|| {
            values.add(self.value.clone(), Group::route(swept.as_ref().map_or(len, Vec::len)));
            Arc::new(self.value.clone())
        });
        let mut routes = lock(routes);
        let before = swept.map(|lists| {
            routes.full = (2 * lists.len()).max(FEW_ROUTES);
            mem::replace(&mut routes.lists, lists)
        });
        let before = (before, mem::replace(&mut routes.values, values));
        match (new, found) {
            (Some(value), _) => routes.lists.push((value, vec![Arc::downgrade(subscription)])),
            (None, Some(found)) => {
                if let Some((_, list)) = routes.lists.get_mut(found.at as usize) {
                    list.retain(|subscription| subscription.strong_count() > 0);
                    list.push(Arc::downgrade(subscription));
                }
            }
            (None, None) => {}
        }
        drop(routes);
        drop(before);
    }

    fn slots(&self) -> Vec<u32> {
        let Some(group) = self.kept.values().find(&self.value) else { return Vec::new() };
        let data = read(&self.kept.data);
        let mut slots = Vec::new();
        if let Some(members) = data.slots(group) {
            members.each(|slot| slots.push(slot));
        }
        slots
    }

    fn has(&self, slot: u32) -> bool {
        let Some(group) = self.kept.values().find(&self.value) else { return false };
        read(&self.kept.data).of.get(slot as usize).is_some_and(|groups| groups.contains(&group.at))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn slots_are_a_list_or_bits() {
        let mut rng = fastrand::Rng::with_seed(1);
        // Few of many places, most of them, and what there is in between.
        for (places, share) in [(10, 50), (100_000, 1), (100_000, 50), (2000, 99)] {
            let (mut slots, mut model) = (Slots::default(), BTreeSet::new());
            let mut were_bits = false;
            for step in 0..20_000 {
                let slot = rng.u32(..places);
                // Grows, and shrinks again.
                let inserts = if step < 10_000 { rng.u32(..100) < 90 } else { rng.u32(..100) < share / 10 };
                if inserts {
                    slots.insert(slot);
                    model.insert(slot);
                } else {
                    let slot = model.range(slot..).next().copied().unwrap_or(slot);
                    slots.remove(slot);
                    model.remove(&slot);
                }
                were_bits |= matches!(slots, Slots::Bits { .. });
                assert_eq!(slots.len(), model.len());
                if step % 500 == 0 {
                    let mut all = Vec::new();
                    slots.each(|slot| all.push(slot));
                    assert!(all.iter().eq(&model), "{places} places, step {step}");
                }
            }
            assert_eq!(were_bits, places > 10, "{places} {share}");
            while let Some(slot) = model.pop_first() {
                slots.remove(slot);
            }
            assert!(matches!(slots, Slots::List(list) if list.is_empty()));
        }
    }
}
