//! The objects of each value of an index, by numbers.
//!
//! Code under the locks of readers may not run functions of the caller, and comparing values is such a function. Each
//! value therefore has a number, its group, and sets of objects, as well as the groups of an object, are kept by
//! numbers.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use smallvec::SmallVec;

use crate::error::ObjectError;
use crate::state::slot_set::{SlotSet, spilled};

/// The number of the set of a value's objects. A value that loses its last object and later gains another gets a new
/// group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) at: u32,
    pub(super) generation: u32,
}

impl Group {
    /// Returns the place of a list in the lists of [routes](super::routes::ValueRoutes), which are fewer than the bytes
    /// of memory.
    pub(super) fn of_route(at: usize) -> Self {
        Self { at: u32::try_from(at).unwrap_or(u32::MAX), generation: 0 }
    }
}

/// Clones share their common nodes.
pub(super) type ValueMap<V> = RedBlackTreeMapSync<V, Group>;

/// The overhead of a value in its map, in bytes.
pub(super) const NODE: usize = 48;

/// The groups of an object, ascending and each once.
pub(super) type Groups = SmallVec<[u32; 2]>;

/// Sorts numbers without duplicates. An object may have thousands of values, so none is searched for in a list.
pub(super) fn sort_once<A: smallvec::Array<Item = u32>>(numbers: &mut SmallVec<A>) {
    numbers.sort_unstable();
    numbers.dedup();
}

/// Returns the groups that are not among the others.
fn difference<'g>(groups: &'g Groups, others: &'g Groups) -> impl Iterator<Item = u32> + use<'g> {
    let mut others = others.iter().copied().peekable();
    groups.iter().copied().filter(move |at| {
        while others.next_if(|other| other < at).is_some() {}
        others.peek() != Some(at)
    })
}

pub(super) type Values<V> = SmallVec<[V; 1]>;

pub(super) struct ValueGroups<V> {
    pub(super) groups: Vec<GroupMembers<V>>,
    /// Groups without objects.
    pub(super) free: Vec<u32>,
    /// By slot.
    pub(super) by_slot: Vec<Groups>,
    pub(super) failed: HashMap<u32, ObjectError>,
}

pub(super) struct GroupMembers<V> {
    pub(super) generation: u32,
    /// `None` in a group that is free.
    pub(super) value: Option<Arc<V>>,
    pub(super) slots: SlotSet,
}

impl<V> Default for ValueGroups<V> {
    fn default() -> Self {
        Self { groups: Vec::new(), free: Vec::new(), by_slot: Vec::new(), failed: HashMap::new() }
    }
}

impl<V> ValueGroups<V> {
    pub(super) fn slots(&self, group: Group) -> Option<&SlotSet> {
        let members = self.groups.get(group.at as usize)?;
        (members.generation == group.generation).then_some(&members.slots)
    }

    /// Returns the group that `create` creates after this many others.
    pub(super) fn free_group(&self, others: usize) -> Group {
        let free = self.free.len().checked_sub(others + 1).and_then(|at| self.free.get(at));
        // There are no more groups than objects have values in memory.
        let new = || u32::try_from(self.groups.len() + others - self.free.len()).unwrap_or(u32::MAX);
        let at = free.copied().unwrap_or_else(new);
        Group { at, generation: self.groups.get(at as usize).map_or(0, |members| members.generation) }
    }

    pub(super) fn create(&mut self, group: Group, value: &Arc<V>) {
        if let Some(members) = self.groups.get_mut(group.at as usize) {
            self.free.pop();
            members.value = Some(Arc::clone(value));
        } else {
            self.groups.push(GroupMembers { generation: 0, value: Some(Arc::clone(value)), slots: SlotSet::default() });
        }
    }

    /// Frees a group. The staged write holds another reference to its value, which is dropped later, without a lock.
    pub(super) fn release(&mut self, at: u32) {
        if let Some(members) = self.groups.get_mut(at as usize) {
            members.generation = members.generation.wrapping_add(1);
            members.value = None;
            members.slots = SlotSet::default();
            self.free.push(at);
        }
    }

    /// Returns true if the object of a slot was added with a value, or with an error.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.by_slot.get(slot as usize).is_some_and(|groups| !groups.is_empty()) || self.failed.contains_key(&slot)
    }

    pub(super) fn is_single(&self, at: u32) -> bool {
        self.groups.get(at as usize).is_some_and(|members| members.slots.len() == 1)
    }

    pub(super) fn set(&mut self, slot: u32, groups: Groups) {
        let place = slot as usize;
        if place >= self.by_slot.len() {
            if groups.is_empty() {
                return;
            }
            self.by_slot.resize_with(place + 1, Groups::new);
        }
        let Self { groups: members, by_slot, .. } = self;
        let Some(held) = by_slot.get_mut(place) else { return };
        let had = mem::replace(held, groups);
        for at in difference(&had, held) {
            if let Some(members) = members.get_mut(at as usize) {
                members.slots.remove(slot);
            }
        }
        for at in difference(held, &had) {
            if let Some(members) = members.get_mut(at as usize) {
                members.slots.insert(slot);
            }
        }
    }

    /// Returns the bytes on the heap. It leaves out what the values allocate.
    pub(super) fn bytes(&self) -> usize {
        let of_slots = self.by_slot.capacity() * size_of::<Groups>() + self.by_slot.iter().map(spilled).sum::<usize>();
        let groups = self.groups.capacity() * size_of::<GroupMembers<V>>() + self.free.capacity() * size_of::<u32>();
        let members = self.groups.iter().map(|members| {
            let value = if members.value.is_some() { 2 * size_of::<usize>() + size_of::<V>() } else { 0 };
            value + members.slots.bytes()
        });
        of_slots + groups + members.sum::<usize>()
    }
}
