//! Changed objects that wait for their compression.

/// Changed objects are compressed together once they are this many, or this many bytes. Compressing one at a time loads
/// the tables of the dictionary, half a megabyte, into the processor's caches each time: a change of one of 20,000 Pods
/// takes 1.4 times as long.
const DEFERRED: usize = 64;
const DEFERRED_LEN: usize = 512 << 10;

/// Slots of objects that are kept encoded until some of them are compressed together.
#[derive(Default)]
pub(super) struct DeferredSlots {
    slots: Vec<u32>,
    len: usize,
}

impl DeferredSlots {
    /// Returns true if an object of this length may wait.
    pub(super) fn accepts(len: usize) -> bool {
        len <= DEFERRED_LEN
    }

    /// Adds the slot of an object of this length. Returns true if the slots are now to be compressed.
    pub(super) fn add(&mut self, slot: u32, len: usize) -> bool {
        self.slots.push(slot);
        self.len += len;
        self.slots.len() >= DEFERRED || self.len >= DEFERRED_LEN
    }

    /// Returns the slots, and keeps none.
    pub(super) fn take(&mut self) -> Vec<u32> {
        std::mem::take(self).slots
    }
}
