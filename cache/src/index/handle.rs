//! Indexes: objects by values that a function computes from them.
//!
//! User code computes, compares, clones and drops values. It runs while no lock is held that readers acquire: the values and the
//! numbers of their groups are in a persistent map. Readers search a copy of the map, and a writer builds the next map before it
//! acquires those locks. Code under the locks handles only numbers.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::iter;
use std::mem;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Weak};

use rpds::RedBlackTreeMapSync;
use smallvec::SmallVec;

use crate::StoreType;
use crate::error::ObjectError;
use crate::state::object::Object;
use crate::state::slot_set::{Slots, spilled};
use crate::subscribe::subscriber::Subscribe;
use crate::subscribe::subscription::{Route, Subscription};
use crate::sync::{Mutex, RwLock, lock, read, write};
use crate::write::writer::{Inner, Maintained};

/// Finds the objects of a store by values that a function computes from each: see [`StoreReader::index`](crate::StoreReader::index).
///
/// The store keeps it up to date until its last clone and its last subscriber are dropped. A lookup takes about `log2(values)`
/// comparisons, and returns the objects of one moment, unordered.
///
/// It takes about 30 bytes for each object, and for each value about 130 bytes and two copies of the value: for text prefer
/// `Arc<str>`.
pub struct Index<T: StoreType + ?Sized, V> {
    inner: Arc<Inner<T>>,
    kept: Arc<Kept<T, V>>,
}

impl<T: StoreType + ?Sized, V: Ord + Clone + Send + Sync + 'static> Index<T, V> {
    pub(crate) fn new(inner: Arc<Inner<T>>, name: &str, function: Box<Function<T, V>>) -> Self {
        let kept = Arc::new(Kept {
            name: name.into(),
            function,
            values: RwLock::new(ValueMap::new_sync()),
            data: RwLock::new(Data::default()),
            pending: Mutex::new(Pending::default()),
            routes: Mutex::new(Routes { values: ValueMap::new_sync(), lists: Vec::new(), full: FEW_ROUTES }),
        });
        inner.maintain(&(Arc::clone(&kept) as Arc<dyn Maintained<T>>));
        Self { inner, kept }
    }

    /// Returns the objects that have this value.
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, value: &Q) -> Vec<Object<T>>
    where
        V: Borrow<Q>,
    {
        self.objects(self.kept.values().get(value).copied())
    }

    /// Returns the number of objects that have this value.
    #[must_use]
    pub fn count<Q: Ord + ?Sized>(&self, value: &Q) -> usize
    where
        V: Borrow<Q>,
    {
        let Some(group) = self.kept.values().get(value).copied() else { return 0 };
        let _state = self.inner.state();
        read(&self.kept.data).slots(group).map_or(0, Slots::len)
    }

    /// Returns all values that objects have, in order.
    #[must_use]
    pub fn values(&self) -> Vec<V> {
        self.kept.values().keys().cloned().collect()
    }

    /// Iterates over the values in a range, in order, with the objects of each. Each step sees all earlier writes.
    pub fn range(&self, range: impl RangeBounds<V>) -> impl Iterator<Item = (V, Vec<Object<T>>)> {
        let (mut start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
        iter::from_fn(move || {
            loop {
                let values = self.kept.values();
                let range = (start.as_ref(), end.as_ref());
                let (value, group) = (!is_empty(range)).then(|| values.range::<V, _>(range).next()).flatten()?;
                start = Bound::Excluded(value.clone());
                let objects = self.objects(Some(*group));
                // The last object may have been removed since.
                if !objects.is_empty() {
                    return Some((value.clone(), objects));
                }
            }
        })
    }

    /// Returns an unregistered subscriber to the objects that have this value. Writes of other objects cost it nothing, and the
    /// function of the index is called once for all subscribers.
    pub fn subscribe(&self, value: V) -> Subscribe<T> {
        let route = OfValue { kept: Arc::clone(&self.kept), value };
        Subscribe::new(Arc::clone(&self.inner)).route(Box::new(route))
    }

    /// Returns an error for each object that the index does not have because its function failed.
    #[must_use]
    pub fn errors(&self) -> Vec<ObjectError> {
        read(&self.kept.data).failed.values().cloned().collect()
    }

    fn objects(&self, group: Option<Group>) -> Vec<Object<T>> {
        let Some(group) = group else { return Vec::new() };
        // Locks in the same order as writers.
        let state = self.inner.state();
        let data = read(&self.kept.data);
        let Some(slots) = data.slots(group) else { return Vec::new() };
        let mut objects = Vec::with_capacity(slots.len());
        slots.each(|slot| objects.extend(state.get(slot).map(|entry| self.inner.object(entry))));
        objects
    }
}

impl<T: StoreType + ?Sized, V> Clone for Index<T, V> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), kept: Arc::clone(&self.kept) }
    }
}

impl<T: StoreType + ?Sized, V> fmt::Debug for Index<T, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Index").field(&self.kept.name).finish()
    }
}

/// Returns true for an empty range: `RedBlackTreeMap::range` panics on some of them.
fn is_empty<V: Ord>(range: (Bound<&V>, Bound<&V>)) -> bool {
    match range {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start >= end,
        _ => false,
    }
}

/// The number of the set of a value's objects. A value that loses its last object and later gains another has a new group.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Group {
    at: u32,
    generation: u32,
}

impl Group {
    /// Returns the place of a list in `Routes::lists`. There are fewer lists than bytes of memory.
    fn route(at: usize) -> Self {
        Self { at: u32::try_from(at).unwrap_or(u32::MAX), generation: 0 }
    }
}

/// Clones share their common nodes.
type ValueMap<V> = RedBlackTreeMapSync<V, Group>;

/// The overhead of a value in its map, in bytes.
const NODE: usize = 48;

/// The groups of an object.
type Groups = SmallVec<[u32; 2]>;

/// The values of an object.
type Values<V> = SmallVec<[V; 1]>;

type Function<T, V> = dyn Fn(&Object<T>) -> Result<Values<V>, Arc<dyn Error + Send + Sync>> + Send + Sync;

pub(crate) fn function<T: StoreType + ?Sized, I: IntoIterator, E: Into<Box<dyn Error + Send + Sync>>>(
    values: impl Fn(&Object<T>) -> Result<I, E> + Send + Sync + 'static,
) -> Box<Function<T, I::Item>> {
    Box::new(move |object| match values(object) {
        Ok(values) => Ok(values.into_iter().collect()),
        Err(error) => Err(error.into().into()),
    })
}

struct Kept<T: StoreType + ?Sized, V> {
    name: Arc<str>,
    function: Box<Function<T, V>>,
    /// Values that objects have. Changed with `data`, while the state is locked.
    values: RwLock<ValueMap<V>>,
    data: RwLock<Data<V>>,
    /// Locked by one writer at a time.
    pending: Mutex<Pending<V>>,
    /// Locked by one writer at a time.
    routes: Mutex<Routes<T, V>>,
}

struct Data<V> {
    groups: Vec<Members<V>>,
    /// Groups without objects.
    free: Vec<u32>,
    /// By slot.
    of: Vec<Groups>,
    failed: HashMap<u32, ObjectError>,
}

struct Members<V> {
    generation: u32,
    /// `None` in a group that is free.
    value: Option<Arc<V>>,
    slots: Slots,
}

/// The write in progress; afterwards, the values to be dropped without a lock.
struct Pending<V> {
    groups: Groups,
    /// Groups whose first object this is.
    created: Vec<(Group, Arc<V>)>,
    /// Groups whose last object this was.
    emptied: Vec<(u32, Arc<V>)>,
    /// The next values, if groups are created or emptied.
    values: Option<ValueMap<V>>,
    error: Option<ObjectError>,
    old_error: Option<ObjectError>,
    /// The values with subscribers that the object had or has: places in `Routes::lists`.
    routes: SmallVec<[u32; 4]>,
}

impl<V> Default for Pending<V> {
    fn default() -> Self {
        Self {
            groups: Groups::new(),
            created: Vec::new(),
            emptied: Vec::new(),
            values: None,
            error: None,
            old_error: None,
            routes: SmallVec::new(),
        }
    }
}

impl<T: StoreType + ?Sized, V: Ord + Clone> Kept<T, V> {
    fn values(&self) -> ValueMap<V> {
        read(&self.values).clone()
    }

    /// Returns the groups of a slot, with their values.
    fn of(&self, slot: Option<u32>) -> Vec<(u32, Arc<V>)> {
        let data = read(&self.data);
        let groups = slot.and_then(|slot| data.of.get(slot as usize)).into_iter().flatten();
        groups.filter_map(|at| Some((*at, Arc::clone(data.groups.get(*at as usize)?.value.as_ref()?)))).collect()
    }
}

impl<T: StoreType + ?Sized, V> Kept<T, V> {
    fn error(&self, object: &Object<T>, source: Arc<dyn Error + Send + Sync>) -> ObjectError {
        ObjectError { key: Some(object.key()), index: Some(Arc::clone(&self.name)), source }
    }
}

impl<T: StoreType + ?Sized, V: Ord + Clone + Send + Sync> Maintained<T> for Kept<T, V> {
    // It skips what only a change of a shared map needs: the map of earlier values, routes, and locks for each object.
    // An index of 50,000 stored Pods by node takes 76 ms of user time, by `prepare` and `keep` 87 ms. tests/cache/model.rs adds indexes at any time.
    fn fill(&self, objects: &mut dyn Iterator<Item = (u32, Object<T>)>) {
        let (mut values, mut data) = (ValueMap::new_sync(), Data::default());
        for (slot, object) in objects {
            let found = match (self.function)(&object) {
                Ok(found) => found,
                Err(source) => {
                    data.failed.insert(slot, self.error(&object, source));
                    continue;
                }
            };
            let mut groups = Groups::new();
            for value in found {
                let group = values.get(&value).copied().unwrap_or_else(|| {
                    let group = data.free_group(0);
                    data.create(group, &Arc::new(value.clone()));
                    values.insert_mut(value, group);
                    group
                });
                if !groups.contains(&group.at) {
                    groups.push(group.at);
                }
            }
            data.set(slot, &groups);
        }
        *write(&self.data) = data;
        *write(&self.values) = values;
    }

    fn prepare(&self, slot: Option<u32>, object: Option<&Object<T>>) {
        let mut pending = Pending::default();
        let values = match object.map(|object| (object, (self.function)(object))) {
            None => Values::new(),
            Some((_, Ok(values))) => values,
            Some((object, Err(source))) => {
                pending.error = Some(self.error(object, source));
                Values::new()
            }
        };
        let (known, had) = (self.values(), self.of(slot));
        let routes = lock(&self.routes).values();
        let route = |pending: &mut Pending<V>, value: &V| {
            if let Some(route) = routes.as_ref().and_then(|routes| routes.get(value))
                && !pending.routes.contains(&route.at)
            {
                pending.routes.push(route.at);
            }
        };
        for value in values {
            route(&mut pending, &value);
            let found = pending.values.as_ref().unwrap_or(&known).get(&value).copied();
            let group = found.unwrap_or_else(|| {
                let group = read(&self.data).free_group(pending.created.len());
                pending.created.push((group, Arc::new(value.clone())));
                pending.values.get_or_insert_with(|| known.clone()).insert_mut(value, group);
                group
            });
            if !pending.groups.contains(&group.at) {
                pending.groups.push(group.at);
            }
        }
        for (at, value) in had {
            route(&mut pending, &value);
            if !pending.groups.contains(&at) && read(&self.data).is_single(at) {
                pending.values.get_or_insert_with(|| known.clone()).remove_mut(&value);
                pending.emptied.push((at, value));
            }
        }
        let before = mem::replace(&mut *lock(&self.pending), pending);
        drop(before);
    }

    fn keep(&self, slot: u32) -> Option<ObjectError> {
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

    fn finish(&self, subscribers: &mut Vec<Arc<Subscription<T>>>) {
        let pending = mem::take(&mut *lock(&self.pending));
        let mut routes = lock(&self.routes);
        for at in &pending.routes {
            if let Some((_, list)) = routes.lists.get_mut(*at as usize) {
                list.retain(|subscription| {
                    subscription.upgrade().map(|subscription| subscribers.push(subscription)).is_some()
                });
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
        of + groups + members.sum::<usize>() + values.size() * (size_of::<(V, Group)>() + NODE)
    }
}

impl<V> Default for Data<V> {
    fn default() -> Self {
        Self { groups: Vec::new(), free: Vec::new(), of: Vec::new(), failed: HashMap::new() }
    }
}

impl<V> Data<V> {
    fn slots(&self, group: Group) -> Option<&Slots> {
        let members = self.groups.get(group.at as usize)?;
        (members.generation == group.generation).then_some(&members.slots)
    }

    /// Returns the group that `create` creates after this many others.
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

    /// Frees a group. `Pending` holds another reference to its value, which is dropped later, without a lock.
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

/// The subscribers to values.
struct Routes<T: StoreType + ?Sized, V> {
    /// Places in `lists`.
    values: ValueMap<V>,
    lists: Vec<Listed<T, V>>,
    /// The number of lists at which lists without subscribers are removed.
    full: usize,
}

/// A value and its subscribers.
type Listed<T, V> = (Arc<V>, Vec<Weak<Subscription<T>>>);

const FEW_ROUTES: usize = 64;

impl<T: StoreType + ?Sized, V: Ord> Routes<T, V> {
    /// Returns `None` if no value has subscribers.
    fn values(&self) -> Option<ValueMap<V>> {
        (!self.lists.is_empty()).then(|| self.values.clone())
    }
}

/// The route to the objects that have a value.
struct OfValue<T: StoreType + ?Sized, V> {
    kept: Arc<Kept<T, V>>,
    value: V,
}

impl<T: StoreType + ?Sized, V: Ord + Clone + Send + Sync + 'static> Route<T> for OfValue<T, V> {
    fn add(&self, subscription: &Arc<Subscription<T>>) {
        let routes = &self.kept.routes;
        let (mut values, len, swept) = {
            let routes = lock(routes);
            let swept = (routes.lists.len() >= routes.full).then(|| routes.lists.clone());
            (routes.values.clone(), routes.lists.len(), swept)
        };
        let swept = swept.map(|mut lists| {
            // Builds a new map of the values that still have subscribers.
            lists.retain(|(_, list)| list.iter().any(|subscription| subscription.strong_count() > 0));
            values = ValueMap::new_sync();
            for (at, (value, _)) in lists.iter().enumerate() {
                values.insert_mut(V::clone(value), Group::route(at));
            }
            lists
        });
        let found = values.get(&self.value).copied();
        let new = found.is_none().then(|| {
            values.insert_mut(self.value.clone(), Group::route(swept.as_ref().map_or(len, Vec::len)));
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
        let Some(group) = self.kept.values().get(&self.value).copied() else { return Vec::new() };
        let data = read(&self.kept.data);
        data.slots(group).map_or(Vec::new(), Slots::to_vec)
    }

    fn has(&self, slot: u32) -> bool {
        let Some(group) = self.kept.values().get(&self.value).copied() else { return false };
        read(&self.kept.data).of.get(slot as usize).is_some_and(|groups| groups.contains(&group.at))
    }
}
