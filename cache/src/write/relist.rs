//! The progress of a list that replaces the objects of a store by mark and sweep.

use std::cmp::Ordering;
use std::collections::HashMap;

use fixedbitset::FixedBitSet;

use crate::state::entry::Entry;
use listwatch::compare_resource_versions;
use listwatch::internal::is_older;

/// Where a state comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The open replace.
    List,
    /// A watch, whose events are in order: an object that it adds exists, however old its version is.
    Watch,
    /// The caller. Its state may be older than a deletion.
    Caller,
}

/// The progress of a replace, by slot.
pub(crate) struct Open<D> {
    pub(crate) id: u64,
    /// True if a listed object also replaces a stored object of the same identity and resource version.
    pub(crate) replaces_equal_versions: bool,
    /// The objects that the list has.
    listed: FixedBitSet,
    /// The objects that others have written since the replace began.
    written: FixedBitSet,
    /// The objects that a watch beside the list has written. They exist until it deletes them, whatever their versions.
    watched: FixedBitSet,
    /// States of the list that are older than the store's.
    staged: HashMap<u32, Entry<D>>,
}

impl<D> Open<D> {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            replaces_equal_versions: false,
            listed: FixedBitSet::new(),
            written: FixedBitSet::new(),
            watched: FixedBitSet::new(),
            staged: HashMap::new(),
        }
    }

    pub(crate) fn mark(&mut self, slot: u32, origin: Origin) {
        let bits = if origin == Origin::List { &mut self.listed } else { &mut self.written };
        bits.grow_and_insert(slot as usize);
        if origin == Origin::Watch {
            self.watched.grow_and_insert(slot as usize);
        }
        self.staged.remove(&slot);
    }

    /// Returns true if a state that is older than the store's must be set aside: a state of the list, unless others wrote the
    /// object; or a state that others wrote, if it is not older than the state that was set aside.
    pub(crate) fn wants(&self, slot: u32, version: &str, listed: bool) -> bool {
        if listed {
            return !self.written.contains(slot as usize);
        }
        self.staged.get(&slot).is_some_and(|staged| !is_older(version, staged.resource_version()))
    }

    /// Records that the list has an older state than the store, or that others wrote an older state. `wanted` is set aside.
    pub(crate) fn set_aside(&mut self, slot: u32, wanted: Option<Entry<D>>, listed: bool) {
        if listed {
            self.listed.grow_and_insert(slot as usize);
        }
        if let Some(entry) = wanted {
            self.staged.insert(slot, entry);
        }
    }

    /// Records the deletion of a state that is older than the store's.
    pub(crate) fn deleted(&mut self, slot: u32, version: &str) {
        if self.wants(slot, version, false) {
            self.forget(slot);
        }
    }

    /// Removes all records of the slot.
    pub(crate) fn forget(&mut self, slot: u32) {
        for bits in [&mut self.listed, &mut self.written, &mut self.watched] {
            if (slot as usize) < bits.len() {
                bits.remove(slot as usize);
            }
        }
        self.staged.remove(&slot);
    }

    /// Takes the older state that the list has.
    pub(crate) fn restored(&mut self, slot: u32) -> Option<Entry<D>> {
        self.staged.remove(&slot)
    }

    /// Returns true if the list contains the stored state of the object, so that the commit keeps it.
    pub(crate) fn is_settled(&self, slot: u32) -> bool {
        self.listed.contains(slot as usize) && (self.staged.is_empty() || !self.staged.contains_key(&slot))
    }

    /// Returns true if the commit of a list of version `list` keeps an object of this version.
    pub(crate) fn stays(&self, slot: u32, version: &str, list: &str) -> bool {
        let slot = slot as usize;
        let in_list = compare_resource_versions(version, list).is_some_and(Ordering::is_le);
        self.listed.contains(slot) || self.watched.contains(slot) || self.written.contains(slot) && !in_list
    }

    pub(crate) fn bytes(&self) -> usize {
        let bits = (self.listed.len() + self.written.len() + self.watched.len()) / 8;
        let staged = self.staged.capacity() * 8 / 7 * (size_of::<(u32, Entry<D>)>() + 1);
        bits + staged + self.staged.values().map(Entry::allocated).sum::<usize>()
    }
}
