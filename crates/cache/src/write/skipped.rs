//! The objects that a store could not hold.

use std::collections::HashMap;

/// The objects that a store does not have in their latest state, because it could not hold them. It keeps hashes of
/// their keys, because a full store has no room for keys.
#[derive(Default)]
pub(crate) struct SkippedObjects {
    /// By hash: the number of relists that began before the object was skipped.
    since: HashMap<u64, u64>,
}

impl SkippedObjects {
    pub(crate) fn len(&self) -> usize {
        self.since.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.since.capacity() * 8 / 7 * (size_of::<(u64, u64)>() + 1)
    }

    pub(crate) fn add(&mut self, hash: u64, relists: u64) {
        self.since.insert(hash, relists);
    }

    pub(crate) fn remove(&mut self, hash: u64) {
        self.since.remove(&hash);
    }

    /// Removes an object that the open relist has, unless it was skipped after the relist began: the skipped state may
    /// be newer.
    pub(crate) fn remove_listed(&mut self, hash: u64, relists: u64) {
        if self.since.get(&hash).is_some_and(|since| *since < relists) {
            self.since.remove(&hash);
        }
    }

    /// Removes the objects that were skipped before the committed relist began: the list has them, or they were
    /// deleted.
    pub(crate) fn forget_before(&mut self, relist: u64) {
        self.since.retain(|_, since| *since >= relist);
        self.since.shrink_to_fit();
    }
}
