//! The walk of a new subscriber over the stored objects.
//!
//! Filters are slow, and a store may contain a million objects. The walk therefore takes [`WALK_STEP`] slots at a time
//! and runs the filters without any lock. Then it locks writers out and compares: if an object was written meanwhile,
//! its filters run again, under the lock. Writes between two steps go to the queue as usual.
//!
//! A subscriber without the initial state receives deletions too, but only of objects that it would have received, so
//! its walk marks objects as announced. A write may replace such an object before the walk has reached it. The first
//! write of a slot then filters the replaced state, in [`Subscription::mark_first_write`].

use std::ops::Range;
use std::sync::Arc;

use listwatch::StoreType;

use crate::state::object::Object;
use crate::subscribe::queue::{InitialWalk, WALK_STEP};
use crate::subscribe::registry::SubscriberHost;
use crate::subscribe::subscription::Subscription;
use crate::sync::lock;

impl<T: StoreType + ?Sized> Subscription<T> {
    /// Adds the subscription to its store, and begins its walk over the stored objects.
    pub(super) fn register(self: &Arc<Self>, host: &dyn SubscriberHost<T>, delivers: bool) {
        host.exclude_writers(&mut |subscribers| {
            let slots = match (&self.route, &self.namespace) {
                (Some(route), _) => Some(route.slots()),
                (None, Some(namespace)) => Some(host.objects().state().of_namespace(namespace).collect()),
                (None, None) => None,
            };
            lock(&self.queue).walk = Some(InitialWalk::new(slots, delivers));
            subscribers.add(self);
        });
    }

    /// Advances the walk by a few objects. Returns false when the walk is over.
    pub(super) fn advance_walk(&self, host: &dyn SubscriberHost<T>) -> bool {
        let Some(slots) = self.next_slots() else { return false };
        let objects = host.objects();
        let before: Vec<_> = {
            let state = objects.state();
            slots
                .iter()
                .map(|slot| state.get(*slot).map(|entry| Object::for_functions(entry, &objects.codec)))
                .collect()
        };
        // The filters run while others write.
        let selected: Vec<_> = slots
            .iter()
            .zip(&before)
            .map(|(slot, object)| object.as_ref().is_some_and(|object| self.selects_object(*slot, object)))
            .collect();
        host.exclude_writers(&mut |_| {
            for (slot, (before, selected)) in slots.iter().zip(before.iter().zip(&selected)) {
                let Some(entry) = objects.entry_at(*slot) else { continue };
                let is_same = before.as_ref().is_some_and(|before| before.entry().is_same(&entry));
                let object = Object::for_functions(&entry, &objects.codec);
                self.visit_object(*slot, &object, is_same.then_some(*selected));
            }
            let (slots, is_synced) = {
                let state = objects.state();
                (state.slots(), !state.version.is_empty())
            };
            self.finish_step(slots, is_synced);
        });
        true
    }

    pub(super) fn requeue(&self, host: &dyn SubscriberHost<T>, slots: Range<u32>) {
        host.exclude_writers(&mut |_| {
            for slot in slots.clone() {
                if let Some(entry) = host.objects().entry_at(slot) {
                    lock(&self.queue).requeue(slot, &entry);
                }
            }
        });
    }

    /// Returns the next few slots of the walk; `None` when it is over.
    pub(crate) fn next_slots(&self) -> Option<Vec<u32>> {
        let queue = lock(&self.queue);
        let InitialWalk { slots, at, .. } = queue.walk.as_ref()?;
        Some(match slots {
            Some(slots) => slots.iter().skip(*at as usize).take(WALK_STEP as usize).copied().collect(),
            None => (*at..at.saturating_add(WALK_STEP)).collect(),
        })
    }

    /// Handles the object that the walk has reached. `selected` says whether it passes the filters, if that is known.
    pub(crate) fn visit_object(&self, slot: u32, object: &Object<T>, selected: Option<bool>) {
        if lock(&self.queue).knows_object(slot) || !selected.unwrap_or_else(|| self.selects_object(slot, object)) {
            return;
        }
        lock(&self.queue).add_walked(slot, object.entry());
    }

    /// Advances the walk past the [next](Self::next_slots) slots. It ends after the last of `slots`, which is their
    /// number in the store.
    pub(crate) fn finish_step(&self, slots: u32, is_synced: bool) {
        let mut queue = lock(&self.queue);
        let Some(walk) = &mut queue.walk else { return };
        walk.at = walk.at.saturating_add(WALK_STEP);
        if walk.at as usize >= walk.slots.as_ref().map_or(slots as usize, Vec::len) {
            let delivers = walk.delivers;
            queue.walk = None;
            if delivers && is_synced {
                queue.push_synced();
            }
        }
    }
}
