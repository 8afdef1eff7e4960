//! The data of an index, and the steps in which a write changes it.
//!
//! The caller's function computes values, and the caller's code compares, clones and drops them. None of this may run
//! under a lock that readers acquire, so a write takes three steps:
//!
//! | step | under the lock of the state | runs code of the caller | changes |
//! |---|---|---|---|
//! | `stage` | no | yes: the function, comparisons, clones | nothing that readers see; the next map of values is in `staged` |
//! | `commit` | yes | no | swaps the map, and moves the slot between groups |
//! | `notify` | no | yes: drops the replaced values | nothing |
//!
//! - A new index is registered first, so that it receives all further writes, and then the stored objects are added
//!   (`add`). Nobody reads it before that.
//! - A panic in `stage` is an error of the object, like an error that the function returns. The object then has no
//!   value.
//! - The maps are persistent, so the copy that `stage` changes shares its nodes with the map of the readers.
//! - A value and its group live as long as an object has the value. A group may be reused for another value, so a
//!   reader that found it before a commit compares its generation.
//! - An error of the function is kept for its object until a later state succeeds. The object then has no value.

use std::error::Error;
use std::mem;
use std::sync::Arc;

use listwatch::StoreType;
use smallvec::SmallVec;

use crate::contain::{contain, drop_contained};
use crate::error::ObjectError;
use crate::index::groups::{Group, Groups, NODE, ValueGroups, ValueMap, Values, sort_once};
use crate::index::registry::MaintainedIndex;
use crate::index::routes::ValueRoutes;
use crate::state::object::Object;
use crate::subscribe::subscription::Subscription;
use crate::sync::{Mutex, RwLock, lock, read, write};

pub(crate) type IndexFunction<T, V> =
    dyn Fn(&Object<T>) -> Result<Values<V>, Arc<dyn Error + Send + Sync>> + Send + Sync;

/// Returns the function of an index. A panic in `values` is its error.
pub(crate) fn index_function<T: StoreType + ?Sized, I: IntoIterator, E: Into<Box<dyn Error + Send + Sync>>>(
    values: impl Fn(&Object<T>) -> Result<I, E> + Send + Sync + 'static,
) -> Box<IndexFunction<T, I::Item>> {
    Box::new(move |object| {
        let found = contain(|| match values(object) {
            Ok(values) => Ok(values.into_iter().collect()),
            Err(error) => Err(error.into().into()),
        });
        found.unwrap_or_else(|panicked| Err(Arc::new(panicked) as _))
    })
}

pub(super) struct IndexData<T: StoreType + ?Sized, V> {
    pub(super) name: Arc<str>,
    function: Box<IndexFunction<T, V>>,
    /// The values that objects have. They change together with `groups`, while the state is locked.
    pub(super) values: RwLock<ValueMap<V>>,
    pub(super) groups: RwLock<ValueGroups<V>>,
    /// Locked by one writer at a time.
    staged: Mutex<StagedWrite<V>>,
    pub(super) routes: ValueRoutes<T, V>,
}

/// The write in progress, and afterwards the values to be dropped without a lock.
struct StagedWrite<V> {
    groups: Groups,
    /// Groups whose first object this is.
    created: Vec<(Group, Arc<V>)>,
    /// Groups whose last object this was.
    emptied: Vec<(u32, Arc<V>)>,
    /// The next values, if groups are created or emptied.
    values: Option<ValueMap<V>>,
    error: Option<ObjectError>,
    /// The error of an earlier state.
    old_error: Option<ObjectError>,
    /// The values with subscribers that the object had or has, as places in the list of routes.
    routes: SmallVec<[u32; 4]>,
}

impl<V> Default for StagedWrite<V> {
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

impl<T: StoreType + ?Sized, V: Ord + Clone> IndexData<T, V> {
    pub(super) fn new(name: &str, function: Box<IndexFunction<T, V>>) -> Self {
        Self {
            name: name.into(),
            function,
            values: RwLock::new(ValueMap::new_sync()),
            groups: RwLock::new(ValueGroups::default()),
            staged: Mutex::new(StagedWrite::default()),
            routes: ValueRoutes::new(),
        }
    }

    pub(super) fn values(&self) -> ValueMap<V> {
        read(&self.values).clone()
    }

    /// Adds stored objects to an index that nobody reads yet. An object that was written since the index was registered
    /// is already in it.
    ///
    /// It skips what only a change of a shared map needs: the map of earlier values, routes, and locks for each object.
    /// Adding an index of 500,000 objects by name takes half the time of `stage` and `commit`. tests/store/model.rs
    /// adds indexes at any time.
    pub(super) fn add(&self, objects: Vec<(u32, Result<Values<V>, ObjectError>)>) {
        // Without another reference, the map is changed in place.
        let mut values = mem::replace(&mut *write(&self.values), ValueMap::new_sync());
        let mut data = write(&self.groups);
        for (slot, found) in objects {
            if data.has(slot) {
                continue;
            }
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    data.failed.insert(slot, error);
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
                groups.push(group.at);
            }
            sort_once(&mut groups);
            data.set(slot, groups);
        }
        drop(data);
        *write(&self.values) = values;
    }

    fn groups_of(&self, slot: Option<u32>) -> Vec<(u32, Arc<V>)> {
        let data = read(&self.groups);
        let groups = slot.and_then(|slot| data.by_slot.get(slot as usize)).into_iter().flatten();
        groups.filter_map(|at| Some((*at, Arc::clone(data.groups.get(*at as usize)?.value.as_ref()?)))).collect()
    }
}

impl<T: StoreType + ?Sized, V> IndexData<T, V> {
    pub(super) fn values_of(&self, object: &Object<T>) -> Result<Values<V>, ObjectError> {
        (self.function)(object).map_err(|source| self.error(object, source))
    }

    fn error(&self, object: &Object<T>, source: Arc<dyn Error + Send + Sync>) -> ObjectError {
        ObjectError { key: Some(object.key()), index: Some(Arc::clone(&self.name)), source }
    }
}

impl<T: StoreType + ?Sized, V: Ord + Clone + Send + Sync> MaintainedIndex<T> for IndexData<T, V> {
    fn stage(&self, slot: Option<u32>, object: Option<&Object<T>>) {
        let (values, error) = match object.map(|object| (object, (self.function)(object))) {
            None => (Values::new(), None),
            Some((_, Ok(values))) => (values, None),
            Some((object, Err(source))) => (Values::new(), Some(self.error(object, source))),
        };
        let staged = contain(|| self.staged_values(slot, values)).map(|staged| StagedWrite { error, ..staged });
        let staged = staged.unwrap_or_else(|panicked| {
            let key = object.map(Object::key);
            let error = ObjectError { key, index: Some(Arc::clone(&self.name)), source: Arc::new(panicked) };
            StagedWrite { error: Some(error), ..self.staged_without_values(slot) }
        });
        let before = mem::replace(&mut *lock(&self.staged), staged);
        drop_contained(before);
    }

    fn commit(&self, slot: u32, has_object: bool) -> Option<ObjectError> {
        let mut staged = lock(&self.staged);
        let mut data = write(&self.groups);
        for (group, value) in &staged.created {
            data.create(*group, value);
        }
        data.set(slot, mem::take(&mut staged.groups));
        for (at, _) in &staged.emptied {
            data.release(*at);
        }
        if let Some(values) = &mut staged.values {
            mem::swap(values, &mut *write(&self.values));
        }
        staged.old_error = match &staged.error {
            Some(error) if has_object => data.failed.insert(slot, error.clone()),
            _ => data.failed.remove(&slot),
        };
        staged.error.clone()
    }

    fn notify(&self, subscribers: &mut Vec<Arc<Subscription<T>>>) {
        let staged = mem::take(&mut *lock(&self.staged));
        self.routes.collect_subscribers(&staged.routes, subscribers);
        drop_contained(staged);
    }

    fn bytes(&self) -> usize {
        let values = self.values();
        read(&self.groups).bytes() + values.size() * (size_of::<(V, Group)>() + NODE)
    }
}

impl<T: StoreType + ?Sized, V: Ord + Clone> IndexData<T, V> {
    fn staged_values(&self, slot: Option<u32>, values: Values<V>) -> StagedWrite<V> {
        let mut staged = StagedWrite::default();
        let (known, had) = (self.values(), self.groups_of(slot));
        let routes = self.routes.places();
        let route = |staged: &mut StagedWrite<V>, value: &V| {
            if let Some(route) = routes.as_ref().and_then(|routes| routes.get(value)) {
                staged.routes.push(route.at);
            }
        };
        for value in values {
            route(&mut staged, &value);
            let found = staged.values.as_ref().unwrap_or(&known).get(&value).copied();
            let group = found.unwrap_or_else(|| {
                let group = read(&self.groups).free_group(staged.created.len());
                staged.created.push((group, Arc::new(value.clone())));
                staged.values.get_or_insert_with(|| known.clone()).insert_mut(value, group);
                group
            });
            staged.groups.push(group.at);
        }
        sort_once(&mut staged.groups);
        for (at, value) in had {
            route(&mut staged, &value);
            if staged.groups.binary_search(&at).is_err() && read(&self.groups).is_single(at) {
                staged.values.get_or_insert_with(|| known.clone()).remove_mut(&value);
                staged.emptied.push((at, value));
            }
        }
        sort_once(&mut staged.routes);
        staged
    }

    /// Stages that the object of a slot has no values, after the code of its new values has panicked. The values that
    /// it had may panic too; they then stay in the map, without objects, and all subscribers are notified.
    fn staged_without_values(&self, slot: Option<u32>) -> StagedWrite<V> {
        contain(|| self.staged_values(slot, Values::new()))
            .unwrap_or_else(|_| StagedWrite { routes: self.routes.all_places(), ..StagedWrite::default() })
    }
}
