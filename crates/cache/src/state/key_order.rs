//! The slots of a store in key order, which is the order of the bytes of `namespace/name`, as etcd and API servers list
//! objects.

use std::cmp::Ordering;
use std::iter;
use std::sync::Arc;

/// How many slots a leaf may contain. A write copies a leaf that a snapshot shares.
const LEAF: usize = 128;

/// Slots in key order, in leaves that snapshots share. A slot takes 4 to 9 bytes.
#[derive(Clone, Default)]
pub(crate) struct KeyOrder {
    /// No leaf is empty.
    leaves: Vec<Arc<Vec<u32>>>,
}

/// Compares two keys by the bytes of `namespace/name`, or of the name alone if the namespace is empty. `a-b/x` comes
/// before `a/x`.
pub(crate) fn compare_keys((namespace, name): (&str, &str), (other_namespace, other_name): (&str, &str)) -> Ordering {
    if namespace == other_namespace {
        return name.cmp(other_name);
    }
    bytes(namespace, name).cmp(bytes(other_namespace, other_name))
}

fn bytes<'k>(namespace: &'k str, name: &'k str) -> impl Iterator<Item = &'k u8> {
    let separator: &[u8] = if namespace.is_empty() { b"" } else { b"/" };
    [namespace.as_bytes(), separator, name.as_bytes()].into_iter().flatten()
}

impl KeyOrder {
    /// Inserts a slot. `compare` compares the key of another slot with the key of this slot.
    pub(crate) fn insert(&mut self, slot: u32, compare: impl Fn(u32) -> Ordering) {
        let (mut at, mut place) = self.position(&compare);
        if at == self.leaves.len() {
            // A list arrives in key order, so its leaves are full.
            let has_room = self.leaves.last().is_some_and(|leaf| leaf.len() < LEAF);
            if !has_room {
                self.leaves.push(Arc::new(Vec::with_capacity(LEAF)));
            }
            at = self.leaves.len() - 1;
            place = self.leaves.get(at).map_or(0, |leaf| leaf.len());
        } else if self.leaves.get(at).is_some_and(|leaf| leaf.len() == LEAF) {
            let mut upper = Vec::with_capacity(LEAF);
            if let Some(leaf) = self.leaf_mut(at) {
                upper.extend(leaf.drain(LEAF / 2..));
            }
            self.leaves.insert(at + 1, Arc::new(upper));
            if place > LEAF / 2 {
                at += 1;
                place -= LEAF / 2;
            }
        }
        if let Some(leaf) = self.leaf_mut(at) {
            leaf.insert(place.min(leaf.len()), slot);
        }
    }

    pub(crate) fn remove(&mut self, slot: u32, compare: impl Fn(u32) -> Ordering) {
        let (at, place) = self.position(compare);
        let Some(leaf) = self.leaf_mut(at) else { return };
        if leaf.get(place) != Some(&slot) {
            return;
        }
        leaf.remove(place);
        let len = leaf.len();
        if len == 0 {
            self.leaves.remove(at);
        } else if let Some(next) = self.leaves.get(at + 1)
            && len + next.len() <= LEAF / 2
        {
            let next = self.leaves.remove(at + 1);
            if let Some(leaf) = self.leaf_mut(at) {
                leaf.extend_from_slice(&next);
            }
        }
    }

    /// Iterates from the first slot for which `compare` does not return less.
    pub(crate) fn from(&self, compare: impl Fn(u32) -> Ordering) -> impl Iterator<Item = u32> {
        let (at, place) = self.position(compare);
        let leaves = self.leaves.get(at..).unwrap_or_default();
        let skipped = iter::once(place).chain(iter::repeat(0));
        leaves.iter().zip(skipped).flat_map(|(leaf, skipped)| leaf.iter().skip(skipped).copied())
    }

    /// Counts the slots for which `compare` does not return less. It visits leaves, not slots.
    pub(crate) fn count_from(&self, compare: impl Fn(u32) -> Ordering) -> usize {
        let (at, place) = self.position(compare);
        let leaves = self.leaves.get(at..).unwrap_or_default();
        leaves.iter().map(|leaf| leaf.len()).sum::<usize>().saturating_sub(place)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.from(|_| Ordering::Equal)
    }

    /// Returns the leaf, and the place in it, of the first slot for which `compare` does not return less.
    fn position(&self, compare: impl Fn(u32) -> Ordering) -> (usize, usize) {
        let is_less = |slot: Option<&u32>| slot.is_some_and(|slot| compare(*slot).is_lt());
        let at = self.leaves.partition_point(|leaf| is_less(leaf.last()));
        (at, self.leaves.get(at).map_or(0, |leaf| leaf.partition_point(|slot| is_less(Some(slot)))))
    }

    fn leaf_mut(&mut self, at: usize) -> Option<&mut Vec<u32>> {
        let leaf = self.leaves.get_mut(at)?;
        if Arc::get_mut(leaf).is_none() {
            let mut copy = Vec::with_capacity(LEAF);
            copy.extend_from_slice(leaf);
            *leaf = Arc::new(copy);
        }
        Arc::get_mut(leaf)
    }

    pub(crate) fn shrink(&mut self) {
        self.leaves.shrink_to(2 * self.leaves.len());
    }

    pub(crate) fn bytes(&self) -> usize {
        let leaf = 2 * size_of::<usize>() + size_of::<Vec<u32>>() + LEAF * size_of::<u32>();
        self.leaves.capacity() * size_of::<usize>() + self.leaves.len() * leaf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_keys_as_etcd() {
        let ascending = [("", "a"), ("a-b", "x"), ("a.b", "x"), ("a", "x"), ("a", "y"), ("a0", "x"), ("b", "a")];
        for (at, key) in ascending.iter().enumerate() {
            for (other_at, other) in ascending.iter().enumerate() {
                assert_eq!(compare_keys(*key, *other), at.cmp(&other_at), "{key:?} {other:?}");
            }
        }
    }

    /// Compares with a sorted list, through growth and shrinkage, in order and at random; a copy must not change.
    #[test]
    fn equals_a_sorted_list() {
        for (name, sorted) in [("ascending", true), ("random", false)] {
            let mut rng = fastrand::Rng::with_seed(7);
            let (mut order, mut model) = (KeyOrder::default(), Vec::<u32>::new());
            for step in 0..6_000_u32 {
                let grows = step < 3_000;
                let slot = if sorted && grows { step } else { rng.u32(..4_000) };
                let place = model.binary_search(&slot);
                let before = (step % 500 == 0).then(|| (order.clone(), model.clone()));
                match place {
                    Err(place) if grows => {
                        order.insert(slot, |other| other.cmp(&slot));
                        model.insert(place, slot);
                    }
                    Ok(place) if !grows => {
                        order.remove(slot, |other| other.cmp(&slot));
                        model.remove(place);
                    }
                    _ => order.remove(5_000, |other| other.cmp(&5_000)),
                }
                if let Some((copy, expected)) = before {
                    assert!(copy.iter().eq(expected), "{name}, step {step}");
                    assert!(order.iter().eq(model.iter().copied()), "{name}, step {step}");
                    let from = rng.u32(..4_000);
                    let expected = model.iter().copied().filter(|slot| *slot >= from);
                    assert_eq!(
                        order.count_from(|slot| slot.cmp(&from)),
                        expected.clone().count(),
                        "{name}, step {step}"
                    );
                    assert!(order.from(|slot| slot.cmp(&from)).eq(expected), "{name}, step {step}");
                }
            }
            while let Some(slot) = model.pop() {
                order.remove(slot, |other| other.cmp(&slot));
            }
            assert_eq!(order.leaves.len(), 0, "{name}");
        }
    }

    #[test]
    fn fills_leaves_in_a_list() {
        let mut order = KeyOrder::default();
        for slot in 0..12_800 {
            order.insert(slot, |other| other.cmp(&slot));
        }
        assert_eq!(order.leaves.len(), 100);
    }
}
