//! The subscriptions of a store, and the choice of those that a write notifies.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Weak};
use std::task::Waker;

use listwatch::StoreType;

use crate::contain::wake;
use crate::error::EndReason;
use crate::state::entry::Entry;
use crate::state::object::Object;
use crate::state::objects::Objects;
use crate::subscribe::subscription::Subscription;
use crate::sync::lock;

/// The store with which subscribers are registered. A writer implements it, so that subscribers need not know writers.
pub(crate) trait SubscriberHost<T: StoreType + ?Sized>: Send + Sync {
    fn objects(&self) -> &Objects<T>;

    /// Runs a function under the writer's lock.
    ///
    /// # Panics
    ///
    /// Panics if an index function or a filter calls it during a write.
    fn exclude_writers(&self, function: &mut dyn FnMut(&mut SubscriberRegistry<T>));
}

pub(crate) struct SubscriberRegistry<T: StoreType + ?Sized> {
    all: Vec<Weak<Subscription<T>>>,
    /// At this many subscriptions, dropped ones are removed.
    full: usize,
    /// Subscriptions that every write notifies.
    unrouted: Vec<Weak<Subscription<T>>>,
    by_namespace: HashMap<String, Vec<Weak<Subscription<T>>>>,
    /// True if no more writes follow.
    are_closed: bool,
    /// Why the subscriptions were closed.
    reason: Option<EndReason>,
    /// The wakers to wake after all locks are released.
    wakers: Vec<Waker>,
    /// How many reflectors write to the store. Subscriptions end with the last of them.
    reflectors: usize,
}

const FEW: usize = 64;

impl<T: StoreType + ?Sized> SubscriberRegistry<T> {
    pub(crate) fn new() -> Self {
        Self {
            all: Vec::new(),
            full: FEW,
            unrouted: Vec::new(),
            by_namespace: HashMap::new(),
            are_closed: false,
            reason: None,
            wakers: Vec::new(),
            reflectors: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn add(&mut self, subscription: &Arc<Subscription<T>>) {
        if self.are_closed {
            self.wakers.extend(subscription.close(self.reason.clone()));
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

    /// Ends all subscriptions, and later those that are added, once they have delivered their initial state.
    fn close(&mut self, reason: Option<EndReason>) {
        notify_each(&mut self.all, &mut self.wakers, &mut |subscription| subscription.close(reason.clone()));
        (self.all, self.unrouted) = Default::default();
        self.by_namespace.clear();
        (self.are_closed, self.reason) = (true, reason);
    }

    /// Registers a reflector. Subscriptions that are added from now on are notified of writes again.
    pub(crate) fn add_reflector(&mut self) {
        self.reflectors += 1;
        (self.are_closed, self.reason) = (false, None);
    }

    /// Unregisters a reflector that has ended. Returns true if it was the last, in which case all subscriptions end.
    pub(crate) fn remove_reflector(&mut self, reason: EndReason) -> bool {
        self.reflectors = self.reflectors.saturating_sub(1);
        let was_last = self.reflectors == 0;
        if was_last {
            self.close(Some(reason));
        }
        was_last
    }

    /// `routed` are the subscribers to the values that the object has or had in an index.
    pub(crate) fn notify_put(
        &mut self,
        slot: u32,
        old: Option<&Entry>,
        object: &Object<T>,
        routed: &[Arc<Subscription<T>>],
    ) {
        if !self.is_empty() {
            // All subscribers share one decompression of the replaced state.
            let old = old.map(|old| object.other_state(old));
            self.notify(object.namespace(), routed, |subscription| subscription.put(slot, old.as_ref(), object));
        }
    }

    pub(crate) fn notify_removal(
        &mut self,
        slot: u32,
        old: &Entry,
        last: &Entry,
        final_state_unknown: bool,
        routed: &[Arc<Subscription<T>>],
    ) {
        let (namespace, _) = last.key();
        self.notify(namespace, routed, |subscription| subscription.remove(slot, old, last, final_state_unknown));
    }

    /// Replaces the form of a current state that subscribers have yet to receive, so that it is not kept in two forms.
    pub(crate) fn change_form(&mut self, slot: u32, old: &Entry, new: &Entry) {
        for subscription in self.all.iter().filter_map(Weak::upgrade) {
            lock(&subscription.queue).change_form(slot, old, new);
        }
    }

    pub(crate) fn notify_synced(&mut self) {
        notify_each(&mut self.all, &mut self.wakers, &mut Subscription::push_synced);
    }

    fn notify(
        &mut self,
        namespace: &str,
        routed: &[Arc<Subscription<T>>],
        mut notify: impl FnMut(&Subscription<T>) -> Option<Waker>,
    ) {
        notify_each(&mut self.unrouted, &mut self.wakers, &mut notify);
        if let Some(list) = self.by_namespace.get_mut(namespace) {
            notify_each(list, &mut self.wakers, &mut notify);
        }
        self.wakers.extend(routed.iter().filter_map(|subscription| notify(subscription)));
    }

    pub(crate) fn take_wakers(&mut self) -> Wakers {
        Wakers(mem::take(&mut self.wakers))
    }
}

fn notify_each<T: StoreType + ?Sized>(
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

impl<T: StoreType + ?Sized> Drop for SubscriberRegistry<T> {
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
        self.0.drain(..).for_each(wake);
    }
}
