//! Relists: a list replaces the objects of a store by mark and sweep.
//!
//! A collection may be larger than the free memory, so a list is not collected first. Each object goes into the store
//! as it arrives, and the commit deletes the objects that were not marked.
//!
//! | state of the list, compared with the store's | at once | at the commit |
//! |---|---|---|
//! | equal | marked, which costs neither decoding nor memory | stays |
//! | newer, or without an order | replaces the store's state | stays |
//! | older | staged beside the store's state | see below |
//! | of an object that was deleted at a newer version, before the relist | staged by its key | see below |
//! | missing | nothing | see below |
//!
//! The store may be ahead of the list, because a controller writes the answers to its own writes and deletions before
//! the watch delivers them, and the server that answers a list may lag. The commit therefore compares the version of
//! the list with two others. A list older than what the watch had delivered when the relist began shows that the
//! *server went back*: it was restored from a backup.
//!
//! | the store has | if the server went back | otherwise |
//! |---|---|---|
//! | a state or deletion of others or of a failed list, and it is newer than the list | the list replaces it | it stays, unconfirmed |
//! | one that others have written since the relist began, and it is newer or does not compare | it stays, unconfirmed | the same |
//! | one that a watch in parallel has delivered | it stays, whatever its version | the same |
//! | any other | the list replaces it | the same |
//!
//! - *Unconfirmed*: the watch has yet to deliver the write. If it passes the version without doing so, the server has
//!   not made the write, and the reflector relists ([`UnconfirmedWrites`]).
//! - Sets of slots decide. `ahead` outlasts a relist, and contains the states that neither a committed list nor the
//!   watch has delivered. A relist has `listed`, `written` by others, and `watched` by a watch next to it. A slot that
//!   is freed is removed from all of them, because another object may get it.
//! - The commit takes steps (`commit.rs`), and the relist stays open until the last one.
//! - A store between the first change of a list and its commit mixes two states of the collection (`is_mixed`), so it
//!   is neither saved nor logged. A relist that fails leaves it so until the next commit.
//! - A relist that begins supersedes an open one. There is no nesting, because the older list has nothing to add.
//! - The sets are bits, so they take an eighth of a byte for each object.

use std::collections::HashMap;
use std::collections::hash_map::Entry as HashEntry;
use std::mem;

use fixedbitset::FixedBitSet;
use listwatch::internal::is_older;

use crate::key::{Identity, ObjectKey};
use crate::state::entry::Entry;
use crate::write::origin::{Origin, is_within};
use crate::write::tombstones::{Deletion, Tombstones};
use crate::write::unconfirmed::UnconfirmedWrites;

/// The relists of a store: the open relist, and what outlasts it.
#[derive(Default)]
pub(crate) struct Relists {
    pub(super) open: Option<RelistState>,
    /// How many relists have begun, which is the id of the last.
    begun: u64,
    /// True if an uncommitted list has changed the store, which then mixes two states of the collection.
    pub(super) is_mixed: bool,
    pub(crate) unconfirmed: UnconfirmedWrites,
    /// The slots of states that are in no committed list and that no watch has delivered since.
    ahead: FixedBitSet,
    tombstones: Tombstones,
}

impl Relists {
    /// Begins a relist of a collection at version `known`, and returns its id. An earlier relist that is not committed
    /// is superseded.
    pub(crate) fn begin(&mut self, known: String) -> u64 {
        self.begun += 1;
        if let Some(superseded) = self.open.replace(RelistState::new(self.begun, known)) {
            self.ahead.union_with(&superseded.ahead);
        }
        self.begun
    }

    /// Returns the relist with this id, unless it was superseded.
    pub(crate) fn open_mut(&mut self, id: u64) -> Option<&mut RelistState> {
        self.open.as_mut().filter(|open| open.id == id)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    fn take_open(&mut self, id: u64) -> Option<RelistState> {
        self.open.take_if(|open| open.id == id)
    }

    /// Ends a relist without a commit, at this version of the collection. The caller frees what was set aside.
    pub(crate) fn abandon(&mut self, id: u64, version: &str) -> Option<RelistState> {
        let abandoned = self.take_open(id)?;
        self.ahead.union_with(&abandoned.ahead);
        self.forget_deletions(version);
        Some(abandoned)
    }

    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// Sets the number of relists of a loaded store, because versions of different numbers cannot be compared.
    pub(crate) fn set_begun(&mut self, begun: u64) {
        self.begun = begun;
    }

    /// Returns true if the store shows a single state of the collection.
    pub(crate) fn is_consistent(&self) -> bool {
        !self.is_mixed && !self.unconfirmed.is_missed()
    }

    /// Notes that this state of an object was written, although it may have been stored before.
    pub(super) fn mark_slot(&mut self, slot: u32, origin: Origin) {
        match &mut self.open {
            Some(open) => open.mark_slot(slot, origin),
            None if origin == Origin::Watch => remove(&mut self.ahead, slot),
            None => {}
        }
    }

    /// Records that the store has a new state of an object.
    pub(super) fn mark_new_state(&mut self, slot: u32, origin: Origin) {
        self.ahead.grow_and_insert(slot as usize);
        self.mark_slot(slot, origin);
    }

    /// Notes a state that the watch has yet to deliver.
    pub(crate) fn add_unconfirmed(&mut self, slot: u32, key_hash: u64, version: &str) {
        self.ahead.grow_and_insert(slot as usize);
        self.unconfirmed.add(key_hash, version);
    }

    pub(super) fn forget_slot(&mut self, slot: u32) {
        remove(&mut self.ahead, slot);
        if let Some(open) = &mut self.open {
            open.forget_slot(slot);
        }
    }

    /// Begins the commit of the open list at its version. From now on the store mixes two states of the collection.
    pub(super) fn begin_commit(&mut self, list: &str) {
        if let Some(open) = &mut self.open {
            open.committed_at = Some(list.to_owned());
            open.ahead = mem::take(&mut self.ahead);
        }
        self.unconfirmed.clear();
        self.is_mixed = true;
    }

    pub(super) fn add_tombstone(&mut self, identity: &Identity<'_>, origin: Origin) {
        self.tombstones.add(identity, origin, self.begun);
        match &mut self.open {
            Some(open) => open.forget_staged_deleted(identity),
            None => self.tombstones.trim(),
        }
    }

    pub(super) fn deletion_after(&self, identity: &Identity<'_>, origin: Origin) -> Deletion {
        self.tombstones.after(identity, origin, self.begun)
    }

    /// Returns the version of a deletion that the collection has not passed.
    pub(super) fn deletion_of(&self, identity: &Identity<'_>) -> Option<&str> {
        self.tombstones.version(identity)
    }

    /// Returns true if the object was deleted, and the last list did not restore it.
    pub(super) fn is_deleted(&self, key: &ObjectKey) -> bool {
        self.tombstones.has(key)
    }

    /// Ends the commit of the open list, and returns the states that are older than a deletion before the relist.
    /// Deletions that are newer than the list stay, unless they belong to the history before the server went back.
    /// `hash` returns the hash of a key.
    pub(super) fn end_commit(&mut self, version: &str, hash: impl Fn(&ObjectKey) -> u64) -> HashMap<ObjectKey, Entry> {
        let Some(open) = self.open.take() else { return HashMap::new() };
        let list = open.version(version);
        self.forget_deletions(list.version);
        if list.went_back {
            self.tombstones.remove_before(self.begun);
        }
        let Self { tombstones, unconfirmed, .. } = self;
        tombstones.each_unwatched(|key, version| unconfirmed.add(hash(key), version));
        unconfirmed.sort();
        self.is_mixed = false;
        open.staged_deleted
    }

    /// Returns the newest deletion, if it is newer than this version.
    pub(super) fn newest_deletion(&self, version: &str) -> Option<&str> {
        let newer = self.tombstones.versions().filter(|deleted| is_older(version, deleted));
        newer.reduce(|newest, next| if is_older(newest, next) { next } else { newest })
    }

    /// Removes the tombstones up to this version, unless a relist is open.
    pub(super) fn forget_deletions(&mut self, version: &str) {
        if self.open.is_none() {
            self.tombstones.remove_until(version);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let open = self.open.as_ref().map_or(0, RelistState::bytes);
        open + self.ahead.len() / 8 + self.tombstones.bytes() + self.unconfirmed.bytes()
    }
}

/// The version of a list, and what it says about the server.
pub(super) struct ListVersion<'a> {
    version: &'a str,
    went_back: bool,
}

fn remove(bits: &mut FixedBitSet, slot: u32) {
    if (slot as usize) < bits.len() {
        bits.remove(slot as usize);
    }
}

/// What the commit of a list does with an object of the store.
pub(super) enum Fate {
    Stays,
    /// The watch has yet to deliver the state.
    StaysUnconfirmed,
    Replaced(Entry),
    Deleted,
}

/// The progress of a relist, by slot.
pub(crate) struct RelistState {
    pub(super) id: u64,
    /// The version of the collection when the relist began.
    known: String,
    /// The version of the list, once its commit has begun.
    committed_at: Option<String>,
    /// The states that were ahead of the list when its commit began.
    ahead: FixedBitSet,
    /// True if the caller knows that the server went back. A listed object then also replaces a stored object of the
    /// same identity and resource version.
    pub(crate) replaces_all: bool,
    /// The objects that the list contains.
    listed: FixedBitSet,
    /// The objects that others have written since the relist began.
    written: FixedBitSet,
    /// The objects that a watch next to the list has written. They exist until it deletes them, whatever their
    /// versions.
    watched: FixedBitSet,
    /// States of the list that are older than the store's.
    staged: HashMap<u32, Entry>,
    /// States of the list that are older than a deletion before the relist.
    staged_deleted: HashMap<ObjectKey, Entry>,
}

impl RelistState {
    pub(super) fn new(id: u64, known: String) -> Self {
        Self {
            id,
            known,
            committed_at: None,
            ahead: FixedBitSet::new(),
            replaces_all: false,
            listed: FixedBitSet::new(),
            written: FixedBitSet::new(),
            watched: FixedBitSet::new(),
            staged: HashMap::new(),
            staged_deleted: HashMap::new(),
        }
    }

    pub(super) fn version<'a>(&self, list: &'a str) -> ListVersion<'a> {
        ListVersion { version: list, went_back: self.replaces_all || is_older(list, &self.known) }
    }

    /// Returns true if the list is being committed and contains all changes up to this version.
    pub(super) fn has_passed(&self, version: &str) -> bool {
        self.committed_at.as_ref().is_some_and(|list| is_within(version, list))
    }

    pub(super) fn mark_slot(&mut self, slot: u32, origin: Origin) {
        let bits = if origin == Origin::List { &mut self.listed } else { &mut self.written };
        bits.grow_and_insert(slot as usize);
        if origin == Origin::Watch {
            self.watched.grow_and_insert(slot as usize);
        }
        self.staged.remove(&slot);
    }

    /// Returns true if a state that is older than the stored one must be set aside: a state of the list, unless others
    /// wrote the object, or a state that others wrote, if it is not older than the one that was set aside.
    pub(super) fn needs_staging(&self, slot: u32, version: &str, origin: Origin) -> bool {
        if origin == Origin::List {
            return !self.written.contains(slot as usize);
        }
        self.staged.get(&slot).is_some_and(|staged| !is_older(version, &staged.resource_version()))
    }

    /// Notes that the list contains a state older than the stored one, or that others wrote one. `staged` is kept until
    /// the commit.
    pub(super) fn stage(&mut self, slot: u32, staged: Option<Entry>, origin: Origin) {
        if origin == Origin::List {
            self.listed.grow_and_insert(slot as usize);
        }
        if let Some(entry) = staged {
            self.staged.insert(slot, entry);
        }
    }

    /// Records the deletion of a state that is older than the store's.
    pub(super) fn note_older_deletion(&mut self, slot: u32, version: &str, origin: Origin) {
        if self.needs_staging(slot, version, origin) {
            self.forget_slot(slot);
        }
    }

    pub(super) fn forget_slot(&mut self, slot: u32) {
        for bits in [&mut self.listed, &mut self.written, &mut self.watched, &mut self.ahead] {
            remove(bits, slot);
        }
        self.staged.remove(&slot);
    }

    /// Sets aside a state of the list that is older than a deletion before the relist.
    pub(super) fn stage_deleted(&mut self, key: ObjectKey, staged: Entry) {
        self.staged_deleted.insert(key, staged);
    }

    /// Removes the state of an object that was deleted once more.
    fn forget_staged_deleted(&mut self, deleted: &Identity<'_>) {
        if !self.staged_deleted.is_empty()
            && let HashEntry::Occupied(staged) = self.staged_deleted.entry(deleted.key())
            && !is_older(&deleted.resource_version, &staged.get().resource_version())
        {
            staged.remove();
        }
    }

    /// Returns true if the stored state of the object is the list's, so that the commit keeps it.
    pub(super) fn keeps_state(&self, slot: u32) -> bool {
        let at = slot as usize;
        self.listed.contains(at)
            && !self.written.contains(at)
            && (self.staged.is_empty() || !self.staged.contains_key(&slot))
    }

    /// Returns what the commit of the list does with an object whose stored state has this version, and takes the state
    /// that was set aside.
    pub(super) fn decide(&mut self, slot: u32, version: &str, list: &str) -> Fate {
        let list = self.version(list);
        let at = slot as usize;
        let is_newer = is_older(list.version, version);
        let is_ahead = is_newer && !list.went_back && self.ahead.contains(at);
        match self.staged.remove(&slot) {
            Some(staged) if !is_ahead => return Fate::Replaced(staged),
            None if self.watched.contains(at) => return Fate::Stays,
            _ => {}
        }
        let is_written = self.written.contains(at);
        if is_ahead || is_newer && is_written {
            Fate::StaysUnconfirmed
        } else if self.listed.contains(at) || is_written && !is_within(version, list.version) {
            Fate::Stays
        } else {
            Fate::Deleted
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let bits = (self.listed.len() + self.written.len() + self.watched.len() + self.ahead.len()) / 8;
        let staged = self.staged.capacity() * 8 / 7 * (size_of::<(u32, Entry)>() + 1);
        let keys = self
            .staged_deleted
            .keys()
            .map(|key| size_of::<(ObjectKey, Entry)>() + key.namespace.len() + key.name.len());
        let entries = self.staged.values().chain(self.staged_deleted.values()).map(Entry::allocated);
        bits + staged + keys.sum::<usize>() + entries.sum::<usize>()
    }
}
