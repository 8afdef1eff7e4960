//! Relists: a list replaces the objects of a store by mark and sweep.
//!
//! A collection may be larger than the memory that is free, so a list is not collected first. Each object goes into the
//! store as it arrives, and the commit deletes the objects that were not marked.
//!
//! | state of the list, compared with the store's | at once | at the commit |
//! |---|---|---|
//! | equal | marked, which costs neither decoding nor memory | stays |
//! | newer, or without an order | replaces the store's state | stays |
//! | older: a server that was restored from a backup | staged beside the store's state | replaces it |
//! | missing | nothing | deleted |
//!
//! Others write meanwhile, and the list must not undo it. So three sets of slots decide what the commit keeps:
//! `listed`, `written` by others, and `watched` by a watch in parallel. A written object stays if it is newer than the
//! list. A watched object stays whatever its version: the user may have gained access to an old object.
//!
//! - The sets are by slot. A slot that is freed is forgotten in all of them, because another object may get it.
//! - A store between the first change of a list and its commit mixes two states of the collection (`is_mixed`). It is
//!   neither saved nor logged. A relist that fails leaves it so until the next commit.
//! - A relist that begins supersedes an open one. There is no nesting: the older list has nothing to add.
//! - The sets are bits, so they take an eighth of a byte for each object.

use std::cmp::Ordering;
use std::collections::HashMap;

use fixedbitset::FixedBitSet;
use listwatch::compare_resource_versions;
use listwatch::internal::is_older;

use crate::key::Identity;
use crate::state::entry::Entry;
use crate::write::origin::Origin;
use crate::write::tombstones::Tombstones;

/// The relists of a store: the open relist, and what outlasts it.
pub(crate) struct Relists<D> {
    pub(super) open: Option<RelistState<D>>,
    /// The number of relists that were begun, which is the id of the last.
    begun: u64,
    /// True if an uncommitted list has changed the store, which then mixes two states of the collection.
    pub(super) is_mixed: bool,
    tombstones: Tombstones,
}

impl<D> Default for Relists<D> {
    fn default() -> Self {
        Self { open: None, begun: 0, is_mixed: false, tombstones: Tombstones::default() }
    }
}

impl<D> Relists<D> {
    /// Begins a relist, and returns its id. An earlier relist that is not committed is superseded.
    pub(crate) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.open = Some(RelistState::new(self.begun));
        // The list is newer than all earlier deletions.
        self.tombstones.clear();
        self.begun
    }

    /// Returns the relist with this id, unless it was superseded.
    pub(crate) fn open_mut(&mut self, id: u64) -> Option<&mut RelistState<D>> {
        self.open.as_mut().filter(|open| open.id == id)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn take_open(&mut self, id: u64) -> Option<RelistState<D>> {
        self.open.take_if(|open| open.id == id)
    }

    /// Ends a relist without a commit, at this version of the collection.
    pub(crate) fn abandon(&mut self, id: u64, version: &str) {
        if self.take_open(id).is_some() {
            self.forget_deletions(version);
        }
    }

    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// Sets the number of relists of a loaded store. Versions of two numbers do not compare.
    pub(crate) fn set_begun(&mut self, begun: u64) {
        self.begun = begun;
    }

    /// Returns true if the store is of one state of the collection.
    pub(crate) fn is_consistent(&self) -> bool {
        !self.is_mixed
    }

    /// Records the object in the open relist.
    pub(super) fn mark_slot(&mut self, slot: u32, origin: Origin) {
        if let Some(open) = &mut self.open {
            open.mark_slot(slot, origin);
        }
    }

    pub(super) fn add_tombstone(&mut self, identity: &Identity<'_>) {
        self.tombstones.add(identity);
        if self.open.is_none() {
            self.tombstones.trim();
        }
    }

    pub(super) fn is_deleted(&self, identity: &Identity<'_>, origin: Origin) -> bool {
        self.tombstones.cover(identity, origin)
    }

    /// Removes the tombstones up to this version, unless a relist is open.
    pub(super) fn forget_deletions(&mut self, version: &str) {
        if self.open.is_none() {
            self.tombstones.remove_until(version);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.open.as_ref().map_or(0, RelistState::bytes) + self.tombstones.bytes()
    }
}

/// The progress of a relist, by slot.
pub(crate) struct RelistState<D> {
    pub(super) id: u64,
    /// True if a listed object also replaces a stored object of the same identity and resource version.
    pub(crate) replaces_equal_versions: bool,
    /// The objects that the list has.
    listed: FixedBitSet,
    /// The objects that others have written since the relist began.
    written: FixedBitSet,
    /// The objects that a watch beside the list has written. They exist until it deletes them, whatever their versions.
    watched: FixedBitSet,
    /// States of the list that are older than the store's.
    staged: HashMap<u32, Entry<D>>,
}

impl<D> RelistState<D> {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            replaces_equal_versions: false,
            listed: FixedBitSet::new(),
            written: FixedBitSet::new(),
            watched: FixedBitSet::new(),
            staged: HashMap::new(),
        }
    }

    pub(super) fn mark_slot(&mut self, slot: u32, origin: Origin) {
        let bits = if origin == Origin::List { &mut self.listed } else { &mut self.written };
        bits.grow_and_insert(slot as usize);
        if origin == Origin::Watch {
            self.watched.grow_and_insert(slot as usize);
        }
        self.staged.remove(&slot);
    }

    /// Returns true if a state that is older than the store's must be set aside: a state of the list, unless others
    /// wrote the object; or a state that others wrote, if it is not older than the state that was set aside.
    pub(super) fn needs_staging(&self, slot: u32, version: &str, listed: bool) -> bool {
        if listed {
            return !self.written.contains(slot as usize);
        }
        self.staged.get(&slot).is_some_and(|staged| !is_older(version, &staged.resource_version()))
    }

    /// Records that the list has an older state than the store, or that others wrote an older state. `staged` is kept
    /// until the commit.
    pub(super) fn stage(&mut self, slot: u32, staged: Option<Entry<D>>, listed: bool) {
        if listed {
            self.listed.grow_and_insert(slot as usize);
        }
        if let Some(entry) = staged {
            self.staged.insert(slot, entry);
        }
    }

    /// Records the deletion of a state that is older than the store's.
    pub(super) fn note_older_deletion(&mut self, slot: u32, version: &str) {
        if self.needs_staging(slot, version, false) {
            self.forget_slot(slot);
        }
    }

    /// Removes all records of the slot.
    pub(super) fn forget_slot(&mut self, slot: u32) {
        for bits in [&mut self.listed, &mut self.written, &mut self.watched] {
            if (slot as usize) < bits.len() {
                bits.remove(slot as usize);
            }
        }
        self.staged.remove(&slot);
    }

    /// Takes the older state that the list has.
    pub(super) fn take_staged(&mut self, slot: u32) -> Option<Entry<D>> {
        self.staged.remove(&slot)
    }

    /// Returns true if the list contains the stored state of the object, so that the commit keeps it.
    pub(super) fn keeps_state(&self, slot: u32) -> bool {
        self.listed.contains(slot as usize) && (self.staged.is_empty() || !self.staged.contains_key(&slot))
    }

    /// Returns true if the commit of a list of version `list` keeps an object of this version.
    pub(super) fn keeps_object(&self, slot: u32, version: &str, list: &str) -> bool {
        let slot = slot as usize;
        let in_list = compare_resource_versions(version, list).is_some_and(Ordering::is_le);
        self.listed.contains(slot) || self.watched.contains(slot) || self.written.contains(slot) && !in_list
    }

    pub(super) fn bytes(&self) -> usize {
        let bits = (self.listed.len() + self.written.len() + self.watched.len()) / 8;
        let staged = self.staged.capacity() * 8 / 7 * (size_of::<(u32, Entry<D>)>() + 1);
        bits + staged + self.staged.values().map(Entry::allocated).sum::<usize>()
    }
}
