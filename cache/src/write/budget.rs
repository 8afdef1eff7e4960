//! How a store keeps its budget, and which objects it skipped.

use std::collections::HashMap;

use crate::error::StoreError;

/// How a store keeps its budget.
#[derive(Clone, Default)]
pub(crate) struct Spending {
    pub(crate) budget: Option<usize>,
    /// The memory that is not counted with each write: the table, indexes, and objects that a replace set aside.
    pub(crate) rest: usize,
    /// Writes until `rest` is measured again.
    pub(crate) until_measured: usize,
    /// The size of the smallest object that was refused since the last replace began.
    pub(crate) least_refused: Option<usize>,
    /// The end of the last list, if the budget made it leave objects out.
    pub(crate) full: Option<Full>,
}

/// The end of a list that left objects out.
#[derive(Clone, Copy)]
pub(crate) struct Full {
    /// The number of objects that the store does not have in their latest state.
    skipped: usize,
    /// The memory that was free.
    room: usize,
    /// True if the list left out fewer objects than the list before.
    has_improved: bool,
}

/// `rest` is measured after an eighth as many writes as there are objects, and at least this many.
pub(crate) const MEASURE: usize = 64;

impl Spending {
    /// Records the end of a list.
    pub(crate) fn listed(&mut self, skipped: usize, used: usize) {
        let has_improved = self.full.is_none_or(|before| skipped < before.skipped);
        let is_full = skipped > 0 && self.least_refused.is_some();
        self.full = is_full.then_some(Full { skipped, room: self.room(used), has_improved });
    }

    /// Returns true if a list can store a refused object at this use of memory: the smallest of them fits, and a tenth
    /// of the budget is free. If the last list left out as many objects as the list before, that much must have become
    /// free since.
    pub(crate) fn has_room(&self, used: usize) -> bool {
        let Some(least) = self.least_refused else { return false };
        let Some(budget) = self.budget else { return true };
        let before = self.full.filter(|full| !full.has_improved).map_or(0, |full| full.room);
        self.room(used) >= least.max(budget / 10).saturating_add(before)
    }

    fn room(&self, used: usize) -> usize {
        self.budget.unwrap_or_default().saturating_sub(used)
    }

    /// Checks whether an empty store has room for this many bytes.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), StoreError> {
        match self.budget {
            Some(budget) if bytes > budget => Err(StoreError::OverBudget(budget)),
            _ => Ok(()),
        }
    }
}

/// The objects that a store does not have in their latest state, because it could not hold them. It keeps hashes of their keys,
/// because a full store has no room for keys.
#[derive(Default)]
pub(crate) struct Skipped {
    /// By hash: the number of replaces that began before the object was skipped.
    since: HashMap<u64, u64>,
}

impl Skipped {
    pub(crate) fn len(&self) -> usize {
        self.since.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.since.capacity() * 8 / 7 * (size_of::<(u64, u64)>() + 1)
    }

    pub(crate) fn add(&mut self, hash: u64, replaces: u64) {
        self.since.insert(hash, replaces);
    }

    pub(crate) fn remove(&mut self, hash: u64) {
        self.since.remove(&hash);
    }

    /// Removes an object that the open replace has, unless it was skipped after the replace began: the skipped state may be newer.
    pub(crate) fn remove_listed(&mut self, hash: u64, replaces: u64) {
        if self.since.get(&hash).is_some_and(|since| *since < replaces) {
            self.since.remove(&hash);
        }
    }

    /// Removes the objects that were skipped before the committed replace began: the list has them, or they were deleted.
    pub(crate) fn forget_before(&mut self, replace: u64) {
        self.since.retain(|_, since| *since >= replace);
        self.since.shrink_to_fit();
    }
}
