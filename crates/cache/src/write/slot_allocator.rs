//! The slots that a store has given to objects.

/// The free slots. The lowest are reused first, so that a smaller collection leaves chunks of slots empty at the end.
#[derive(Default)]
pub(crate) struct SlotAllocator {
    /// Slots below `count` that are free.
    free: Vec<u32>,
    /// The number of slots, with the free ones.
    pub(super) count: u32,
}

impl SlotAllocator {
    pub(super) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }

    pub(super) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Removes the slots that the table does not have any more.
    pub(super) fn shrink_to(&mut self, slots: u32) {
        self.count = self.count.min(slots);
        self.free.retain(|slot| *slot < slots);
        self.free.shrink_to_fit();
    }

    pub(super) fn bytes(&self) -> usize {
        self.free.capacity() * size_of::<u32>()
    }
}
