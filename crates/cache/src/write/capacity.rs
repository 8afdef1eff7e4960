//! Whether the store can hold an object: its budget, and the objects that were skipped.
//!
//! The bytes of objects are counted with each write. Measuring the rest, such as indexes, costs a scan, so it is
//! measured from time to time and may exceed the budget by its growth in between.
//!
//! A reflector relists when a full store has room again. A relist of a collection that does not fit would repeat itself
//! forever, so it requires room for the smallest object that was rejected, and a tenth of the budget. If the last list
//! left out as many objects as the one before, that much must have become free since.

use std::collections::HashMap;

use crate::error::StoreError;

/// How a store keeps its budget.
#[derive(Default)]
pub(crate) struct BudgetState {
    pub(crate) limit: Option<usize>,
    /// The memory that is not counted with each write: the table, indexes, and objects that a relist set aside.
    pub(crate) rest: usize,
    /// How many writes remain until `rest` is measured again.
    pub(crate) until_measured: usize,
    /// The size of the smallest object that was rejected since the last relist began.
    pub(crate) smallest_rejected: Option<usize>,
    /// The end of the last list, if the budget made it leave objects out.
    pub(crate) last_list: Option<IncompleteList>,
}

/// The end of a list that left objects out.
#[derive(Clone, Copy)]
pub(crate) struct IncompleteList {
    /// How many objects are missing in their latest state.
    skipped: usize,
    /// The memory that was free.
    room: usize,
    /// True if the list left out fewer objects than the list before.
    has_improved: bool,
}

/// `rest` is measured after an eighth as many writes as there are objects, and at least this many.
pub(super) const MEASURE: usize = 64;

impl BudgetState {
    pub(crate) fn record_list(&mut self, skipped: usize, used: usize) {
        let has_improved = self.last_list.is_none_or(|before| skipped < before.skipped);
        let is_full = skipped > 0 && self.smallest_rejected.is_some();
        self.last_list = is_full.then_some(IncompleteList { skipped, room: self.room(used), has_improved });
    }

    /// Returns true if a list could store a rejected object now, by the rule above.
    pub(crate) fn has_room(&self, used: usize) -> bool {
        let Some(smallest) = self.smallest_rejected else { return false };
        let Some(budget) = self.limit else { return true };
        let before = self.last_list.filter(|list| !list.has_improved).map_or(0, |list| list.room);
        self.room(used) >= smallest.max(budget / 10).saturating_add(before)
    }

    pub(super) fn reject(&mut self, size: usize) {
        self.smallest_rejected = Some(self.smallest_rejected.map_or(size, |smallest| smallest.min(size)));
    }

    fn room(&self, used: usize) -> usize {
        self.limit.unwrap_or_default().saturating_sub(used)
    }
}

/// Checks whether an empty store with this budget has room for this many bytes.
pub(crate) fn check_empty_store(budget: Option<usize>, bytes: usize) -> Result<(), StoreError> {
    match budget {
        Some(budget) if bytes > budget => Err(StoreError::OverBudget(budget)),
        _ => Ok(()),
    }
}

/// The objects that are missing in their latest state, because the store could not hold it. Only hashes of their keys
/// are kept, because a full store has no room for keys.
#[derive(Default)]
pub(crate) struct SkippedObjects {
    /// By hash: how many relists began before the object was skipped.
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

    /// Removes an object that the open relist contains, unless it was skipped after the relist began, because the
    /// skipped state may be newer.
    pub(crate) fn remove_listed(&mut self, hash: u64, relists: u64) {
        if self.since.get(&hash).is_some_and(|since| *since < relists) {
            self.since.remove(&hash);
        }
    }

    /// Removes the objects that were skipped before the committed relist began, because the list contains them or they
    /// were deleted.
    pub(crate) fn forget_before(&mut self, relist: u64) {
        self.since.retain(|_, since| *since >= relist);
        self.since.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The budget is 1,000 bytes, and the smallest rejected object takes 10.
    #[test]
    fn a_full_store_lists_again_when_that_may_store_more() {
        for (lists, needed) in [
            // (objects left out, bytes used at the end of the list)
            (&[][..], 100),
            (&[(5, 950)], 100),
            (&[(5, 950), (5, 950)], 150),
            (&[(5, 950), (6, 900)], 200),
            (&[(5, 950), (4, 950)], 100),
            (&[(5, 950), (0, 950)], 100),
            (&[(5, 950), (0, 950), (9, 950)], 100),
            (&[(5, 950), (5, 1200)], 100),
        ] {
            let mut budget = BudgetState { limit: Some(1000), ..BudgetState::default() };
            assert!(!budget.has_room(0), "nothing was rejected");
            budget.reject(10);
            budget.reject(30);
            for (skipped, used) in lists {
                budget.record_list(*skipped, *used);
            }
            assert!(budget.has_room(1000 - needed) && !budget.has_room(1001 - needed), "{lists:?}");
        }
        let mut large = BudgetState { limit: Some(1000), ..BudgetState::default() };
        large.reject(300);
        assert!(large.has_room(700) && !large.has_room(701));
        // A list in which nothing was rejected was not full.
        let mut budget = BudgetState { limit: Some(1000), ..BudgetState::default() };
        (0..2).for_each(|_| budget.record_list(5, 950));
        budget.reject(10);
        assert!(budget.has_room(900) && !budget.has_room(901));
    }

    #[test]
    fn a_budget_includes_its_last_byte() {
        assert!(check_empty_store(Some(10), 10).is_ok() && check_empty_store(None, usize::MAX).is_ok());
        assert!(matches!(check_empty_store(Some(10), 11), Err(StoreError::OverBudget(10))));
    }

    #[test]
    fn a_list_contains_what_was_skipped_before_it_began() {
        let mut skipped = SkippedObjects::default();
        for (hash, relists) in [(1, 0), (2, 1), (3, 2)] {
            skipped.add(hash, relists);
        }
        // Two relists began; the second is open.
        for hash in 1..=4 {
            skipped.remove_listed(hash, 2);
        }
        assert_eq!(skipped.since, [(3, 2)].into());
        skipped.add(5, 1);
        skipped.forget_before(2);
        assert_eq!(skipped.since, [(3, 2)].into());
        assert_eq!(skipped.len(), 1);
        skipped.remove(3);
        assert_eq!(skipped.len(), 0);
        (0..100).for_each(|hash| skipped.add(hash, 0));
        assert_eq!(skipped.bytes(), skipped.since.capacity() * 8 / 7 * 17);
    }
}
