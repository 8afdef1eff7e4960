//! A list takes the place of what a store has, object by object.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::entry::Entry;
use super::object::Stored;
#[cfg(feature = "client")]
use super::store::identity;
use super::store::{Store, StoreError, Tombstone, Written};
use crate::object::{compare_resource_versions, is_older};
use crate::wire::Encoding;

/// A list on its way into a [`Store`], by mark and sweep: see [`Store::begin_replace`].
///
/// An object that the store has in the same state is marked and nothing else: it costs neither time to decode nor memory.
/// A newer state takes its place at once. An older one, as a server has it that was restored from a backup, is put aside
/// until the list is complete.
///
/// Dropped before [`commit`](Self::commit), because the list failed half way, it deletes nothing and brings nothing older.
#[derive(Debug)]
pub struct Replace<T: Stored + ?Sized> {
    store: Store<T>,
    id: u64,
}

/// What a committed [`Replace`] changed at its end.
#[derive(Debug)]
pub struct Committed<T: Stored + ?Sized> {
    /// Objects that were not in the list.
    pub deleted: Vec<Tombstone<T>>,
    /// Objects of which the list had an older state, which is there now.
    pub restored: Vec<Written<T>>,
}

/// Another replace of the same store was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another replace of the store was begun since")]
pub struct Superseded;

impl<T: Stored + ?Sized> Replace<T> {
    pub(super) fn new(store: Store<T>, id: u64) -> Self {
        Self { store, id }
    }

    /// Takes no state for the one that is there because uid and version are the same: a server that was restored from a backup
    /// gives a version to another state that it had given before.
    #[must_use]
    pub fn afresh(self) -> Self {
        if let Some(open) = self.store.writer().open.as_mut().filter(|open| open.id == self.id) {
            open.afresh = true;
        }
        self
    }

    /// Writes an object of the list. Of a replace that is [`Superseded`] it is written as by [`Store::apply`].
    ///
    /// # Errors
    ///
    /// [`StoreError`] when it cannot be held. The replace goes on: the object counts as [skipped](Store::skipped), and the sweep
    /// leaves the state that the store has of it, unless that is newer, as after the server was restored from a backup.
    pub fn apply(&mut self, encoding: Encoding, bytes: &[u8]) -> Result<Written<T>, StoreError> {
        let mut writer = self.store.writer();
        let listed = writer.open.as_ref().is_some_and(|open| open.id == self.id);
        self.store.write_or_skip(&mut writer, encoding, bytes, listed)
    }

    /// Notes that an object of the list could not be brought into the form in which it is to be held.
    #[cfg(feature = "client")]
    pub(crate) fn skip_unwritten(&mut self, encoding: Encoding, bytes: &[u8]) {
        let mut writer = self.store.writer();
        let listed = writer.open.as_ref().is_some_and(|open| open.id == self.id);
        self.store.skip(&mut writer, identity(encoding, bytes).ok().as_ref(), bytes, listed);
    }

    /// The list is complete, and the collection at its version: what was not in the list is deleted.
    ///
    /// What was written by others since the replace was begun stays if it is newer than the list, or if its version does not
    /// compare.
    ///
    /// # Errors
    ///
    /// [`Superseded`] when another replace was begun since. Nothing is deleted then.
    pub fn commit(self, version: &str) -> Result<Committed<T>, Superseded> {
        self.store.commit(self.id, version)
    }
}

impl<T: Stored + ?Sized> Drop for Replace<T> {
    fn drop(&mut self) {
        let mut writer = self.store.writer();
        if writer.open.take_if(|open| open.id == self.id).is_some() {
            writer.forget_deleted(&self.store.version());
        }
    }
}

/// What is known of a replace, by slot. Bits are those of the object that is there.
pub(super) struct Open<D> {
    pub(super) id: u64,
    /// What is listed takes the place of the same version.
    pub(super) afresh: bool,
    /// In the list.
    listed: FixedBitSet,
    /// Written by others since it was begun.
    written: FixedBitSet,
    /// States that are older than what is there.
    staged: HashMap<u32, Arc<Entry<D>>>,
}

impl<D> Open<D> {
    pub(super) fn new(id: u64) -> Self {
        Self { id, afresh: false, listed: FixedBitSet::new(), written: FixedBitSet::new(), staged: HashMap::new() }
    }

    pub(super) fn mark(&mut self, slot: u32, listed: bool) {
        let bits = if listed { &mut self.listed } else { &mut self.written };
        bits.grow_and_insert(slot as usize);
        self.staged.remove(&slot);
    }

    /// Whether a state that is older than what is there is to be put aside: that of the list, or what others wrote over
    /// it.
    pub(super) fn wants(&self, slot: u32, version: &str, listed: bool) -> bool {
        if listed {
            return !self.written.contains(slot as usize);
        }
        self.staged.get(&slot).is_some_and(|staged| !is_older(version, &staged.identity().resource_version))
    }

    /// The list has an older state, or others wrote one; it is put aside if it is wanted.
    pub(super) fn set_aside(&mut self, slot: u32, wanted: Option<Arc<Entry<D>>>, listed: bool) {
        if listed {
            self.listed.grow_and_insert(slot as usize);
        }
        if let Some(entry) = wanted {
            self.staged.insert(slot, entry);
        }
    }

    /// A state was deleted that is older than what is there.
    pub(super) fn deleted(&mut self, slot: u32, version: &str) {
        if self.wants(slot, version, false) {
            self.forget(slot);
        }
    }

    /// Nothing is known of the slot any more.
    pub(super) fn forget(&mut self, slot: u32) {
        for bits in [&mut self.listed, &mut self.written] {
            if (slot as usize) < bits.len() {
                bits.remove(slot as usize);
            }
        }
        self.staged.remove(&slot);
    }

    /// The older state that the list brought back.
    pub(super) fn restored(&mut self, slot: u32) -> Option<Arc<Entry<D>>> {
        self.staged.remove(&slot)
    }

    /// Returns true if the list contains the stored state of the object, so that the commit leaves it.
    pub(super) fn is_settled(&self, slot: u32) -> bool {
        self.listed.contains(slot as usize) && (self.staged.is_empty() || !self.staged.contains_key(&slot))
    }

    pub(super) fn stays(&self, slot: u32, version: &str, list: &str) -> bool {
        let slot = slot as usize;
        let in_list = compare_resource_versions(version, list).is_some_and(Ordering::is_le);
        self.listed.contains(slot) || self.written.contains(slot) && !in_list
    }

    pub(super) fn bytes(&self) -> usize {
        let bits = self.listed.len().max(self.written.len()) / 4;
        let staged = self.staged.capacity() * 8 / 7 * (size_of::<(u32, Arc<Entry<D>>)>() + 1);
        bits + staged + self.staged.values().map(|entry| entry.allocated()).sum::<usize>()
    }
}
