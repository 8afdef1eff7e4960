//! The renewal: objects of an old dictionary are compressed again with the current one.
//!
//! A dictionary takes about 130 kB for as long as an object uses it. After each training, the writer therefore visits
//! all slots in their order, a few with each write, and compresses what has another dictionary or none. The old
//! dictionary is freed with its last object. Until the renewal has visited all slots, no other training is due, so the
//! objects of a store have at most two dictionaries.
//!
//! - A reference never changes, so its deltas receive a new reference with the same bytes, one after the other.
//! - A delta that is written meanwhile also receives the new reference, because the renewal may have visited its slot.
//! - A caller, a subscriber, a snapshot or the change log may keep an old state, and its dictionary with it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::compress::pool::Reference;

/// The most slots that a write visits, and the bytes of objects after which it stops.
const MOST_SLOTS: u32 = 256;
const MOST_LEN: usize = 16 << 10;
/// What an object costs in addition to the time for its bytes, in bytes.
const OBJECT_LEN: usize = 512;

#[derive(Default)]
pub(crate) struct Renewal {
    /// The slot that is visited next.
    next: u32,
}

impl Renewal {
    /// Visits the next ones of the `slots` slots. `renew` returns the length of the object if it compressed one again.
    /// Returns `None` if no slot is left.
    pub(crate) fn advance(self, slots: u32, mut renew: impl FnMut(u32) -> Option<u32>) -> Option<Self> {
        let Range { start, end } = self.next..self.next.saturating_add(MOST_SLOTS).min(slots);
        let mut len = 0;
        for slot in start..end {
            if let Some(object) = renew(slot) {
                len += object as usize + OBJECT_LEN;
            }
            if len >= MOST_LEN {
                return Some(Self { next: slot + 1 });
            }
        }
        (end < slots).then_some(Self { next: end })
    }
}

/// The new references by the addresses of the old ones. It keeps the old allocations, so that no other reference gets
/// such an address.
#[derive(Default)]
pub(super) struct RenewedReferences(HashMap<usize, (Weak<Reference>, Weak<Reference>)>);

impl RenewedReferences {
    pub(super) fn add(&mut self, old: &Arc<Reference>, new: &Arc<Reference>) {
        self.0.insert(Arc::as_ptr(old).addr(), (Arc::downgrade(old), Arc::downgrade(new)));
    }

    pub(super) fn get(&self, old: &Arc<Reference>) -> Option<Arc<Reference>> {
        let (_, new) = self.0.get(&Arc::as_ptr(old).addr())?;
        new.upgrade()
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * 8 / 7 * (size_of::<(usize, [Weak<Reference>; 2])>() + 1)
            + self.0.len() * Reference::allocated(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocated::assert_reports_what_it_allocates;
    use crate::compress::dictionary::{NamespaceDictionary, StoredWhole};

    #[test]
    fn a_step_is_bounded_by_slots_and_bytes() {
        // The number of slots, the length of each object that is renewed, and the slots of each step.
        for (slots, len, steps) in [
            (0, None, vec![0]),
            (1, None, vec![1]),
            (MOST_SLOTS, None, vec![MOST_SLOTS]),
            (2 * MOST_SLOTS + 1, None, vec![MOST_SLOTS, MOST_SLOTS, 1]),
            (40, Some(0), vec![32, 8]),
            (5, Some(8000), vec![2, 2, 1]),
            (3, Some(1 << 24), vec![1, 1, 1]),
            (3, Some(u32::MAX), vec![1, 1, 1]),
        ] {
            let (mut renewal, mut visited, mut found) = (Some(Renewal::default()), 0, Vec::new());
            while let Some(step) = renewal {
                let before = visited;
                renewal = step.advance(slots, |slot| {
                    assert_eq!(slot, visited);
                    visited += 1;
                    len
                });
                found.push(visited - before);
            }
            // A step may end exactly at the end, and the next one then visits nothing.
            found.retain(|visited| *visited > 0 || slots == 0);
            assert_eq!(found, steps, "{slots} {len:?}");
        }
    }

    #[test]
    fn reports_its_map_and_the_old_allocations() {
        let (pool, namespace) = (Arc::default(), NamespaceDictionary { namespace: "ns".into(), dictionary: None });
        let object = StoredWhole { shared: &Arc::new(namespace), body: &[1, 2, 3], wire_len: 9 };
        let new = Reference::new(&pool, object);
        let create = || {
            let mut renewed = RenewedReferences::default();
            (0..3000).for_each(|_| renewed.add(&Reference::new(&pool, object), &new));
            renewed
        };
        assert_reports_what_it_allocates(create, RenewedReferences::bytes);
    }
}
