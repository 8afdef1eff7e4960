//! A subscription: what a subscriber selects, and the queue that it shares with its store.
//!
//! Writers call a subscription under the writer's lock, after readers can see the write. Its functions are the
//! caller's, so they run neither under a lock that readers acquire nor under the lock of the queue. If one of them
//! panics, only this subscription is closed, and the subscriber's next call resumes the panic. The write is done, and
//! other subscribers are notified.

use std::cell::LazyCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use listwatch::StoreType;

use crate::error::EndReason;
use crate::state::entry::Entry;
use crate::state::object::{Codec, Object};
use crate::subscribe::change::Written;
use crate::subscribe::predicate::Predicate;
use crate::subscribe::queue::ChangeQueue;
use crate::sync::{Mutex, lock};

/// A part of the objects with subscribers, so that a write of other objects costs them nothing.
pub(crate) trait Route<T: StoreType + ?Sized>: Send + Sync {
    /// Adds a subscriber, under the writer's lock.
    fn add(&self, subscription: &Arc<Subscription<T>>);
    /// Returns true if the part contains the object of the slot.
    fn contains(&self, slot: u32) -> bool;
    /// Returns the slots of the objects of the part.
    fn slots(&self) -> Vec<u32>;
}

pub(crate) type Filter<T> = Box<dyn Fn(&Object<T>) -> bool + Send + Sync>;

pub(crate) type Inspect<T> = Box<dyn Fn(Written<'_, T>) + Send + Sync>;

/// The state that a subscriber and a store share. The store changes it under its writer's lock.
pub(crate) struct Subscription<T: StoreType + ?Sized> {
    pub(crate) route: Option<Box<dyn Route<T>>>,
    pub(crate) namespace: Option<String>,
    pub(crate) filters: Vec<Filter<T>>,
    pub(crate) predicate: Option<Predicate>,
    pub(crate) inspect: Option<Inspect<T>>,
    pub(crate) codec: Arc<Codec<T>>,
    pub(crate) queue: Mutex<ChangeQueue>,
}

impl<T: StoreType + ?Sized> Subscription<T> {
    /// Returns true if the object, which is already in the slot, passes the filters. After a filter has panicked, none
    /// passes.
    pub(crate) fn selects_object(&self, slot: u32, object: &Object<T>) -> bool {
        self.passes_filters(self.route.as_deref().map(|route| (route, slot)), object)
    }

    fn passes_filters(&self, route: Option<(&dyn Route<T>, u32)>, object: &Object<T>) -> bool {
        if self.namespace.as_ref().is_some_and(|namespace| object.namespace() != *namespace) {
            return false;
        }
        if self.filters.is_empty() && route.is_none() {
            return true;
        }
        self.call_functions(|| {
            route.is_none_or(|(route, slot)| route.contains(slot)) && self.filters.iter().all(|filter| filter(object))
        })
    }

    /// Finds out whether the subscriber knows an object that is written while the subscriber starts, before its walk
    /// has reached the object.
    fn mark_first_write(&self, slot: u32, old: Option<&Entry>) {
        if !lock(&self.queue).is_first_write(slot) {
            return;
        }
        // The slots of the walk are those of the route.
        if let Some(old) = old
            && self.passes_filters(None, &Object::for_functions(old, &self.codec))
        {
            lock(&self.queue).add_walked(slot, old);
        }
    }

    /// Calls functions of the user. Returns false if one of them panics or has panicked, which ends the subscriber.
    fn call_functions(&self, functions: impl FnOnce() -> bool) -> bool {
        if lock(&self.queue).has_panicked {
            return false;
        }
        catch_unwind(AssertUnwindSafe(functions)).unwrap_or_else(|panic| {
            let mut queue = lock(&self.queue);
            queue.panic = Some(panic);
            queue.has_panicked = true;
            queue.close(None);
            false
        })
    }

    /// Returns true if the predicate drops a modification.
    fn drops_change(&self, old: Option<&Object<T>>, new: &Object<T>) -> bool {
        let (Some(predicate), Some(old)) = (&self.predicate, old) else { return false };
        self.call_functions(|| !predicate.passes(old, new))
    }

    /// Calls the function that inspects writes, after the write is visible to readers.
    fn inspect_write(&self, inspect: &Inspect<T>, written: Written<'_, T>) {
        self.call_functions(|| {
            inspect(written);
            true
        });
    }

    pub(super) fn put(&self, slot: u32, old: Option<&Object<T>>, object: &Object<T>) -> Option<Waker> {
        let is_dropped = LazyCell::new(|| self.drops_change(old, object));
        if let Some(inspect) = &self.inspect
            && !*is_dropped
        {
            let added = Written::Added(object);
            self.inspect_write(inspect, old.map_or(added, |old| Written::Modified { old, new: object }));
        }
        let old = old.map(Object::entry);
        self.mark_first_write(slot, old);
        let is_selected = self.selects_object(slot, object);
        let is_dropped = is_selected && *is_dropped;
        let mut queue = lock(&self.queue);
        match old {
            _ if queue.is_closed => {}
            _ if is_selected => queue.put(slot, old, object.entry(), is_dropped),
            Some(old) => queue.remove_rejected(slot, old),
            None => {}
        }
        queue.due_waker()
    }

    pub(super) fn remove(&self, slot: u32, old: &Entry, last: &Entry, final_state_unknown: bool) -> Option<Waker> {
        if let Some(inspect) = &self.inspect {
            let [old, last] = [old, last].map(|entry| Object::new(entry, &self.codec));
            self.inspect_write(inspect, Written::Deleted { old: &old, last: &last });
        }
        self.mark_first_write(slot, Some(old));
        let mut queue = lock(&self.queue);
        if !queue.is_closed {
            queue.remove(slot, old, last, final_state_unknown);
        }
        queue.due_waker()
    }

    pub(super) fn close(&self, reason: Option<EndReason>) -> Option<Waker> {
        let mut queue = lock(&self.queue);
        queue.close(reason);
        queue.due_waker()
    }

    pub(super) fn push_synced(&self) -> Option<Waker> {
        let mut queue = lock(&self.queue);
        queue.push_synced();
        queue.due_waker()
    }
}
