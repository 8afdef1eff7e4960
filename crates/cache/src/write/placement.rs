//! How a state gets into its slot, and how it is removed.
//!
//! A write of a slot has three steps, and only the second holds the lock that readers acquire:
//!
//! 1. Indexes stage the write, which runs their functions. A panic is an error of the object, and of its index only.
//! 2. The state goes into its slot, and indexes commit. Readers see both or neither. No function of the caller runs.
//! 3. Indexes drop replaced values, and subscribers run their filters. A panic in a filter closes only its subscriber.

use listwatch::StoreType;

use crate::index::registry::IndexRegistry;
use crate::state::entry::Entry;
use crate::state::memory::Usage;
use crate::state::object::Object;
use crate::state::objects::Objects;
use crate::subscribe::registry::SubscriberRegistry;

/// What changes with each slot besides the table: the indexes, the subscribers, and the counted bytes.
pub(crate) struct Placement<T: StoreType + ?Sized> {
    pub(crate) slots: SlotAllocator,
    pub(crate) indexes: IndexRegistry<T>,
    pub(crate) subscribers: SubscriberRegistry<T>,
    pub(crate) usage: Usage,
}

impl<T: StoreType + ?Sized> Placement<T> {
    pub(super) fn new() -> Self {
        Self {
            slots: SlotAllocator::default(),
            indexes: IndexRegistry::new(),
            subscribers: SubscriberRegistry::new(),
            usage: Usage::default(),
        }
    }

    /// Returns true if a write calls functions of the caller.
    pub(super) fn has_functions(&self) -> bool {
        !self.indexes.is_empty() || !self.subscribers.is_empty()
    }

    pub(crate) fn put(&mut self, objects: &Objects<T>, hash: u32, slot: Option<u32>, object: &Object<T>) -> u32 {
        let indexes = self.indexes.stage(slot, Some(object));
        let entry = object.entry();
        let is_new = slot.is_none();
        if is_new {
            objects.reserve();
        }
        let slot = slot.unwrap_or_else(|| self.slots.take());
        self.usage.add(entry);

        let mut state = objects.state_mut();
        let old = state.slot_mut(slot).and_then(|held| held.replace(entry.clone()));
        if is_new {
            state.insert_key(hash, slot);
        }
        let errors = indexes.commit(slot, true);
        drop(state);
        self.indexes.add_errors(errors);

        let routed = indexes.notify();
        self.subscribers.notify_put(slot, old.as_ref(), object, &routed);
        if let Some(old) = old {
            self.usage.subtract(&old);
        }
        slot
    }

    /// Removes an object, and notifies subscribers. `last` is its last state.
    pub(super) fn remove(
        &mut self,
        objects: &Objects<T>,
        hash: u32,
        slot: u32,
        last: &Entry,
        final_state_unknown: bool,
    ) {
        let indexes = self.indexes.stage(Some(slot), None);
        let mut state = objects.state_mut();
        let removed = state.remove(hash, slot);
        let errors = indexes.commit(slot, false);
        drop(state);
        self.indexes.add_errors(errors);

        let routed = indexes.notify();
        self.slots.release(slot);
        if let Some(removed) = &removed {
            self.usage.subtract(removed);
        }
        self.subscribers.notify_removal(slot, removed.as_ref().unwrap_or(last), last, final_state_unknown, &routed);
    }

    /// Replaces the entry of a slot by another form of the same state, including where subscribers have yet to receive
    /// it, so that a slow subscriber does not keep objects encoded. The caller holds one reference to the old entry.
    pub(super) fn replace_form(&mut self, objects: &Objects<T>, slot: u32, old: &Entry, new: Entry) {
        let is_held = old.references() > 2;
        if is_held {
            self.subscribers.change_form(slot, old, &new);
        }
        self.change_form(objects, slot, old, new);
    }

    /// Replaces the entry of a slot by another form of the same state. What leaves the slot is subtracted.
    pub(super) fn change_form(&mut self, objects: &Objects<T>, slot: u32, old: &Entry, new: Entry) {
        new.keep_marks_of(old);
        self.usage.add(&new);
        let replaced = objects.state_mut().slot_mut(slot).and_then(|held| held.replace(new));
        if let Some(replaced) = &replaced {
            self.usage.subtract(replaced);
        }
    }
}

/// The free slots. The lowest are reused first, so that a smaller collection leaves empty chunks of slots at the end.
#[derive(Default)]
pub(crate) struct SlotAllocator {
    /// Slots below `count` that are free.
    free: Vec<u32>,
    /// The number of slots, with the free ones.
    pub(super) count: u32,
}

impl SlotAllocator {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }

    fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Removes the slots that the table no longer has.
    pub(super) fn shrink_to(&mut self, slots: u32) {
        self.count = self.count.min(slots);
        self.free.retain(|slot| *slot < slots);
        self.free.shrink_to_fit();
    }

    pub(super) fn bytes(&self) -> usize {
        self.free.capacity() * size_of::<u32>()
    }
}
