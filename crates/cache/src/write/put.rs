//! How a state gets into its slot, and how it is removed.
//!
//! A write has three steps, and only the second holds the lock that readers acquire:
//!
//! 1. Indexes stage the write, which runs their functions. A panic is an error of the object, and of its index only.
//! 2. The state goes into its slot, and indexes commit. Readers see both or neither. No function of the caller runs.
//! 3. Indexes drop replaced values, and subscribers run their filters. A panic in a filter closes its subscriber only.
//!
//! Replaced states are freed after the lock: freeing a decoded object runs code of the caller.

use crate::StoreType;
use crate::state::entry::Entry;
use crate::state::object::Object;
use crate::write::core::StoreCore;
use crate::write::writer::Writer;

impl<T: StoreType + ?Sized> StoreCore<T> {
    /// Puts an object into its slot, or into a new slot.
    pub(crate) fn put_object(&self, writer: &mut Writer<T>, hash: u32, slot: Option<u32>, object: &Object<T>) -> u32 {
        let indexes = writer.indexes.stage(slot, Some(object));
        let entry = object.entry();
        let is_new = slot.is_none();
        if is_new {
            self.reserve();
        }
        let slot = slot.unwrap_or_else(|| writer.slots.take());
        writer.usage.add(entry);

        let mut state = self.state_mut();
        let old = state.slot_mut(slot).and_then(|held| held.replace(entry.clone()));
        if is_new {
            state.insert_key(hash, slot);
        }
        let errors = indexes.commit(slot, true);
        drop(state);
        writer.indexes.add_errors(errors);

        let routed = indexes.notify();
        writer.subscribers.notify_put(slot, old.as_ref(), object, &routed);
        if let Some(old) = old {
            writer.usage.subtract(&old);
        }
        slot
    }

    /// Removes an object. `last` is its last state.
    pub(super) fn remove_object(
        &self,
        writer: &mut Writer<T>,
        hash: u32,
        slot: u32,
        last: &Entry,
        final_state_unknown: bool,
    ) {
        let indexes = writer.indexes.stage(Some(slot), None);
        let mut state = self.state_mut();
        let removed = state.remove(hash, slot);
        let errors = indexes.commit(slot, false);
        drop(state);
        writer.indexes.add_errors(errors);
        let routed = indexes.notify();
        writer.slots.release(slot);
        if let Some(removed) = &removed {
            writer.usage.subtract(removed);
        }
        writer.relists.forget_slot(slot);
        writer.subscribers.notify_removal(slot, removed.as_ref().unwrap_or(last), last, final_state_unknown, &routed);
    }
}
