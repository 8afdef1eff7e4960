//! The subscribers to the values of an index.
//!
//! Values are the caller's, so they are compared, cloned and dropped without the lock. A change clones the map, changes
//! its copy, and locks only to swap it. Only one writer at a time changes it, because all callers hold the writer's
//! lock.

use std::mem;
use std::sync::{Arc, Weak};

use listwatch::StoreType;
use smallvec::SmallVec;

use crate::index::groups::{Group, ValueMap};
use crate::subscribe::subscription::Subscription;
use crate::sync::{Mutex, lock};

pub(super) struct ValueRoutes<T: StoreType + ?Sized, V>(Mutex<RouteLists<T, V>>);

struct RouteLists<T: StoreType + ?Sized, V> {
    /// Places in `lists`.
    values: ValueMap<V>,
    lists: Vec<RouteList<T, V>>,
    /// At this many lists, those without subscribers are removed.
    full: usize,
}

type RouteList<T, V> = (Arc<V>, Vec<Weak<Subscription<T>>>);

const FEW_ROUTES: usize = 64;

impl<T: StoreType + ?Sized, V: Ord + Clone> ValueRoutes<T, V> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(RouteLists { values: ValueMap::new_sync(), lists: Vec::new(), full: FEW_ROUTES }))
    }

    /// Returns the places of values; `None` if no value has subscribers.
    pub(super) fn places(&self) -> Option<ValueMap<V>> {
        let routes = lock(&self.0);
        (!routes.lists.is_empty()).then(|| routes.values.clone())
    }

    pub(super) fn all_places(&self) -> SmallVec<[u32; 4]> {
        (0..).take(lock(&self.0).lists.len()).collect()
    }

    pub(super) fn collect_subscribers(&self, places: &[u32], subscribers: &mut Vec<Arc<Subscription<T>>>) {
        let mut routes = lock(&self.0);
        for at in places {
            if let Some((_, list)) = routes.lists.get_mut(*at as usize) {
                list.retain(|subscription| {
                    subscription.upgrade().map(|subscription| subscribers.push(subscription)).is_some()
                });
            }
        }
    }

    pub(super) fn add(&self, value: &V, subscription: &Arc<Subscription<T>>) {
        let (mut values, len, swept) = {
            let routes = lock(&self.0);
            let swept = (routes.lists.len() >= routes.full).then(|| routes.lists.clone());
            (routes.values.clone(), routes.lists.len(), swept)
        };
        let swept = swept.map(|mut lists| {
            // Builds a new map of the values that still have subscribers.
            lists.retain(|(_, list)| list.iter().any(|subscription| subscription.strong_count() > 0));
            values = ValueMap::new_sync();
            for (at, (value, _)) in lists.iter().enumerate() {
                values.insert_mut(V::clone(value), Group::of_route(at));
            }
            lists
        });
        let found = values.get(value).copied();
        let new = found.is_none().then(|| {
            values.insert_mut(value.clone(), Group::of_route(swept.as_ref().map_or(len, Vec::len)));
            Arc::new(value.clone())
        });
        let mut routes = lock(&self.0);
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
        // Values are dropped without the lock.
        drop(routes);
        drop(before);
    }
}
