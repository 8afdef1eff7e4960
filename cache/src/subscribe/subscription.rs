//! The subscribers of a store, and the choice of those that a write notifies.

use std::collections::HashMap;
use std::iter::once;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Waker;

use crate::StoreType;
use crate::error::Cause;
use crate::state::entry::Entry;
use crate::state::object::{Codec, Object};
use crate::subscribe::queue::{LOOK_AHEAD, Queue, Walk};
use crate::sync::{Mutex, lock};

/// A part of the objects with subscribers, so that a write of other objects costs them nothing.
pub(crate) trait Route<T: StoreType + ?Sized>: Send + Sync {
    /// Adds a subscriber, under the writer's lock.
    fn add(&self, subscription: &Arc<Subscription<T>>);
    /// Returns true if the part has the object of the slot.
    fn has(&self, slot: u32) -> bool;
    /// Returns the slots of the objects of the part.
    fn slots(&self) -> Vec<u32>;
}

pub(crate) type Filter<T> = Box<dyn Fn(&Object<T>) -> bool + Send + Sync>;

/// Is called for all states of the objects that are written.
pub(crate) type Inspect<T> = Box<dyn Fn(&Object<T>) + Send + Sync>;

/// The state that a subscriber and a store share. The store changes it under its writer's lock.
pub(crate) struct Subscription<T: StoreType + ?Sized> {
    pub(crate) route: Option<Box<dyn Route<T>>>,
    pub(crate) namespace: Option<String>,
    pub(crate) filters: Vec<Filter<T>>,
    pub(crate) inspect: Option<Inspect<T>>,
    pub(crate) codec: Arc<Codec<T>>,
    pub(crate) queue: Mutex<Queue<T::Decoded>>,
}

impl<T: StoreType + ?Sized> Subscription<T> {
    /// Returns true if the object, which is already in the slot, passes the filters. After a filter panicked, no object passes.
    pub(crate) fn wants(&self, slot: u32, object: &Object<T>) -> bool {
        self.selects(self.route.as_deref().map(|route| (route, slot)), object)
    }

    fn selects(&self, route: Option<(&dyn Route<T>, u32)>, object: &Object<T>) -> bool {
        if self.namespace.as_ref().is_some_and(|namespace| object.namespace() != *namespace) {
            return false;
        }
        if self.filters.is_empty() && route.is_none() {
            return true;
        }
        self.call(|| {
            route.is_none_or(|(route, slot)| route.has(slot)) && self.filters.iter().all(|filter| filter(object))
        })
    }

    /// Finds out whether the subscriber knows an object that is written while it starts, before its walk has reached
    /// the object.
    fn reach(&self, slot: u32, old: Option<&Entry<T::Decoded>>) {
        if !lock(&self.queue).is_first_write(slot) {
            return;
        }
        // The slots of the walk are those of the route.
        if let Some(old) = old
            && self.selects(None, &Object::for_functions(old, &self.codec))
        {
            lock(&self.queue).found(slot, old);
        }
    }

    /// Calls functions of the user. Returns false if one panics or has panicked, which ends the subscriber.
    fn call(&self, functions: impl FnOnce() -> bool) -> bool {
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

    /// Calls the function that inspects all states. The write is visible to readers already.
    fn inspect<'e>(&self, new: Option<&Object<T>>, others: impl IntoIterator<Item = &'e Entry<T::Decoded>>)
    where
        T::Decoded: 'e,
    {
        let Some(inspect) = &self.inspect else { return };
        self.call(|| {
            for entry in others {
                inspect(&Object::new(entry, &self.codec));
            }
            new.into_iter().for_each(inspect);
            true
        });
    }

    fn put(&self, slot: u32, old: Option<&Entry<T::Decoded>>, object: &Object<T>) -> Option<Waker> {
        self.inspect(Some(object), old);
        self.reach(slot, old);
        let wants = self.wants(slot, object);
        let mut queue = lock(&self.queue);
        match old {
            _ if queue.is_closed => {}
            _ if wants => queue.put(slot, old, object.entry()),
            Some(old) => queue.leave(slot, old),
            None => {}
        }
        queue.due_waker()
    }

    fn remove(
        &self,
        slot: u32,
        old: &Entry<T::Decoded>,
        last: &Entry<T::Decoded>,
        final_state_unknown: bool,
    ) -> Option<Waker> {
        let last_states = once(old).chain(Some(last).filter(|last| !old.is_same(last)));
        self.inspect(None, last_states);
        self.reach(slot, Some(old));
        let mut queue = lock(&self.queue);
        if !queue.is_closed {
            queue.remove(slot, old, last, final_state_unknown);
        }
        queue.due_waker()
    }

    fn close(&self, cause: Option<Cause>) -> Option<Waker> {
        let mut queue = lock(&self.queue);
        queue.close(cause);
        queue.due_waker()
    }

    fn synced(&self) -> Option<Waker> {
        let mut queue = lock(&self.queue);
        queue.synced();
        queue.due_waker()
    }

    /// Returns the next few slots of the walk; `None` when it is over.
    pub(crate) fn next_slots(&self) -> Option<Vec<u32>> {
        let queue = lock(&self.queue);
        let Walk { slots, at, .. } = queue.walk.as_ref()?;
        Some(match slots {
            Some(slots) => slots.iter().skip(*at as usize).take(LOOK_AHEAD as usize).copied().collect(),
            None => (*at..at.saturating_add(LOOK_AHEAD)).collect(),
        })
    }

    /// Handles the object that the walk has reached. `wanted` states whether it passes the filters, if that is known.
    pub(crate) fn look_at(&self, slot: u32, object: &Object<T>, wanted: Option<bool>) {
        if lock(&self.queue).knows(slot) || !wanted.unwrap_or_else(|| self.wants(slot, object)) {
            return;
        }
        lock(&self.queue).found(slot, object.entry());
    }

    /// Advances the walk past the [next](Self::next_slots) slots. It ends after the last of `slots`, the number in the store.
    pub(crate) fn looked(&self, slots: u32, is_synced: bool) {
        let mut queue = lock(&self.queue);
        let Some(walk) = &mut queue.walk else { return };
        walk.at = walk.at.saturating_add(LOOK_AHEAD);
        if walk.at as usize >= walk.slots.as_ref().map_or(slots as usize, Vec::len) {
            let delivers = walk.delivers;
            queue.walk = None;
            if delivers && is_synced {
                queue.synced();
            }
        }
    }
}

/// All subscribers of a store.
pub(crate) struct Subscribers<T: StoreType + ?Sized> {
    all: Vec<Weak<Subscription<T>>>,
    /// The number of subscriptions at which dropped subscriptions are removed.
    full: usize,
    /// Subscriptions that every write notifies.
    unrouted: Vec<Weak<Subscription<T>>>,
    by_namespace: HashMap<String, Vec<Weak<Subscription<T>>>>,
    /// True if no more writes follow.
    are_closed: bool,
    /// The error that closed the subscriptions.
    cause: Option<Cause>,
    /// The wakers to wake after all locks are released.
    wakers: Vec<Waker>,
}

const FEW: usize = 64;

impl<T: StoreType + ?Sized> Subscribers<T> {
    pub(crate) fn new() -> Self {
        Self {
            all: Vec::new(),
            full: FEW,
            unrouted: Vec::new(),
            by_namespace: HashMap::new(),
            are_closed: false,
            cause: None,
            wakers: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn add(&mut self, subscription: &Arc<Subscription<T>>) {
        if self.are_closed {
            self.wakers.extend(subscription.close(self.cause.clone()));
            return;
        }
        if self.all.len() >= self.full {
            self.all.retain(|known| known.strong_count() > 0);
            self.full = (2 * self.all.len()).max(FEW);
            self.unrouted.retain(|known| known.strong_count() > 0);
            self.by_namespace.retain(|_, list| list.iter().any(|known| known.strong_count() > 0));
        }
        self.all.push(Arc::downgrade(subscription));
        let list = match (&subscription.route, &subscription.namespace) {
            (Some(route), _) => return route.add(subscription),
            (None, Some(namespace)) => self.by_namespace.entry(namespace.clone()).or_default(),
            (None, None) => &mut self.unrouted,
        };
        list.push(Arc::downgrade(subscription));
    }

    /// Ends all subscriptions, and those that are added later once they have delivered their initial state.
    pub(crate) fn close(&mut self, cause: Option<Cause>) {
        each(&mut self.all, &mut self.wakers, &mut |subscription| subscription.close(cause.clone()));
        (self.all, self.unrouted) = Default::default();
        self.by_namespace.clear();
        (self.are_closed, self.cause) = (true, cause);
    }

    /// Notifies subscriptions that are added from now on of writes again.
    pub(crate) fn reopen(&mut self) {
        (self.are_closed, self.cause) = (false, None);
    }

    /// `routed` are the subscribers to a value that the object has or had in an index.
    pub(crate) fn put(
        &mut self,
        slot: u32,
        old: Option<&Entry<T::Decoded>>,
        object: &Object<T>,
        routed: &[Arc<Subscription<T>>],
    ) {
        self.notify(object.namespace(), routed, |subscription| subscription.put(slot, old, object));
    }

    pub(crate) fn remove(
        &mut self,
        slot: u32,
        old: &Entry<T::Decoded>,
        last: &Entry<T::Decoded>,
        final_state_unknown: bool,
        routed: &[Arc<Subscription<T>>],
    ) {
        let [namespace, ..] = last.texts();
        self.notify(namespace, routed, |subscription| subscription.remove(slot, old, last, final_state_unknown));
    }

    /// Replaces the form of a current state that subscribers have yet to receive, so that it is not kept in two forms.
    pub(crate) fn change_form(&mut self, slot: u32, old: &Entry<T::Decoded>, new: &Entry<T::Decoded>) {
        for subscription in self.all.iter().filter_map(Weak::upgrade) {
            lock(&subscription.queue).change_form(slot, old, new);
        }
    }

    pub(crate) fn synced(&mut self) {
        each(&mut self.all, &mut self.wakers, &mut Subscription::synced);
    }

    fn notify(
        &mut self,
        namespace: &str,
        routed: &[Arc<Subscription<T>>],
        mut notify: impl FnMut(&Subscription<T>) -> Option<Waker>,
    ) {
        each(&mut self.unrouted, &mut self.wakers, &mut notify);
        if let Some(list) = self.by_namespace.get_mut(namespace) {
            each(list, &mut self.wakers, &mut notify);
        }
        self.wakers.extend(routed.iter().filter_map(|subscription| notify(subscription)));
    }

    pub(crate) fn take_wakers(&mut self) -> Wakers {
        Wakers(mem::take(&mut self.wakers))
    }
}

fn each<T: StoreType + ?Sized>(
    list: &mut Vec<Weak<Subscription<T>>>,
    wakers: &mut Vec<Waker>,
    notify: &mut impl FnMut(&Subscription<T>) -> Option<Waker>,
) {
    list.retain(|subscription| {
        let subscription = subscription.upgrade();
        wakers.extend(subscription.as_ref().and_then(|subscription| notify(subscription)));
        subscription.is_some()
    });
}

impl<T: StoreType + ?Sized> Drop for Subscribers<T> {
    fn drop(&mut self) {
        self.close(None);
        self.take_wakers();
    }
}

/// Wakers that are woken when they are dropped.
#[derive(Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Drop for Wakers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}
