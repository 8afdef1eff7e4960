//! Sets of slots.

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

/// A set of slots: an ascending list, or one bit for each slot of the store where that takes less memory.
///
/// A change moves at most an eighth of a byte for each object of the store.
pub(crate) enum SlotSet {
    List(SmallVec<[u32; 4]>),
    Bits { bits: FixedBitSet, len: usize },
}

/// The length at which a list becomes bits.
const LONG: usize = 256;

impl Default for SlotSet {
    fn default() -> Self {
        Self::List(SmallVec::new())
    }
}

impl SlotSet {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Bits { len, .. } => *len,
        }
    }

    pub(crate) fn each(&self, mut each: impl FnMut(u32)) {
        match self {
            Self::List(list) => list.iter().copied().for_each(each),
            // `insert` set only bits at `u32` places.
            Self::Bits { bits, .. } => bits.ones().for_each(|slot| each(u32::try_from(slot).unwrap_or(u32::MAX))),
        }
    }

    pub(crate) fn to_vec(&self) -> Vec<u32> {
        let mut slots = Vec::with_capacity(self.len());
        self.each(|slot| slots.push(slot));
        slots
    }

    pub(crate) fn insert(&mut self, slot: u32) {
        match self {
            Self::List(list) => {
                // A new index adds ascending slots.
                if list.last().is_none_or(|last| *last < slot) {
                    list.push(slot);
                } else if let Err(at) = list.binary_search(&slot) {
                    list.insert(at, slot);
                }
                let places = list.last().copied().unwrap_or_default() as usize;
                if list.len() >= LONG && list.len() > places / 32 {
                    let bits: FixedBitSet = list.iter().map(|slot| *slot as usize).collect();
                    *self = Self::Bits { bits, len: list.len() };
                }
            }
            Self::Bits { bits, len } => {
                if !bits.contains(slot as usize) {
                    bits.grow_and_insert(slot as usize);
                    *len += 1;
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        match self {
            Self::List(list) => {
                if let Ok(at) = list.binary_search(&slot) {
                    list.remove(at);
                }
            }
            Self::Bits { bits, len } => {
                if bits.contains(slot as usize) {
                    bits.remove(slot as usize);
                    *len -= 1;
                }
                // Far below the length at which a list becomes bits, so that the form does not alternate.
                if *len < bits.len() / 128 || *len < LONG / 2 {
                    let mut list = SmallVec::with_capacity(*len);
                    self.each(|slot| list.push(slot));
                    *self = Self::List(list);
                }
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::List(list) => spilled(list),
            Self::Bits { bits, .. } => size_of_val(bits.as_slice()),
        }
    }
}

/// Returns the bytes on the heap.
pub(crate) fn spilled<A: smallvec::Array>(values: &SmallVec<A>) -> usize {
    if values.spilled() { values.capacity() * size_of::<A::Item>() } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn slots_are_a_list_or_bits() {
        let mut rng = fastrand::Rng::with_seed(1);
        // Few of many places, most of them, and shares in between.
        for (places, share) in [(10, 50), (100_000, 1), (100_000, 50), (2000, 99)] {
            let (mut slots, mut model) = (SlotSet::default(), BTreeSet::new());
            let mut were_bits = false;
            for step in 0..20_000 {
                let slot = rng.u32(..places);
                // Grows, and shrinks again.
                let inserts = if step < 10_000 { rng.u32(..100) < 90 } else { rng.u32(..100) < share / 10 };
                if inserts {
                    slots.insert(slot);
                    model.insert(slot);
                } else {
                    let slot = model.range(slot..).next().copied().unwrap_or(slot);
                    slots.remove(slot);
                    model.remove(&slot);
                }
                were_bits |= matches!(slots, SlotSet::Bits { .. });
                assert_eq!(slots.len(), model.len());
                if step % 500 == 0 {
                    let mut all = Vec::new();
                    slots.each(|slot| all.push(slot));
                    assert!(all.iter().eq(&model), "{places} places, step {step}");
                }
            }
            assert_eq!(were_bits, places > 10, "{places} {share}");
            while let Some(slot) = model.pop_first() {
                slots.remove(slot);
            }
            assert!(matches!(slots, SlotSet::List(list) if list.is_empty()));
        }
    }
}
