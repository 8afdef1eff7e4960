//! The objects of a store, and the lock that readers acquire.
//!
//! Readers hold the lock for a look-up, or while they copy the pointers of a snapshot. Writers hold it while they write
//! one object into its slot. Work that grows with the collection is done before: under a shared lock,
//! [`Objects::reserve`] builds a larger table and [`Objects::shrink`] a smaller one, which are then swapped in. No
//! function of the caller runs under the lock.
//!
//! A writer may release the lock between two steps, because only the holder of the writer's lock changes the table.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;

use listwatch::StoreType;

use crate::key::Identity;
use crate::state::entry::Entry;
use crate::state::object::{Codec, Object};
use crate::state::snapshot::Snapshot;
use crate::state::table::ObjectTable;
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, read, write};

pub(crate) struct Objects<T: StoreType + ?Sized> {
    pub(crate) hasher: RandomState,
    pub(crate) codec: Arc<Codec<T>>,
    /// Locked while an object is written into its slot, or a table that was built before is swapped in.
    pub(crate) state: RwLock<ObjectTable>,
}

impl<T: StoreType + ?Sized> Objects<T> {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), codec: Arc::new(Codec::new()), state: RwLock::new(ObjectTable::new()) }
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, ObjectTable> {
        read(&self.state)
    }

    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, ObjectTable> {
        write(&self.state)
    }

    pub(crate) fn object(&self, entry: &Entry) -> Object<T> {
        Object::new(entry, &self.codec)
    }

    /// Returns the higher half of the hash of a key.
    pub(crate) fn hash(&self, namespace: &str, name: &str) -> u32 {
        u32::try_from(self.whole_hash((namespace, name)) >> 32).unwrap_or_default()
    }

    pub(crate) fn whole_hash(&self, value: impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    pub(crate) fn find(&self, hash: u32, identity: &Identity<'_>) -> Option<(u32, Entry)> {
        let state = self.state();
        let (slot, entry) = state.find(hash, &identity.namespace, &identity.name)?;
        Some((slot, entry.clone()))
    }

    pub(crate) fn entry_at(&self, slot: u32) -> Option<Entry> {
        self.state().get(slot).cloned()
    }

    pub(crate) fn snapshot(&self) -> Snapshot<T> {
        Snapshot::of(&self.state(), &self.codec)
    }

    /// Grows the table in advance, so that it does not grow while readers wait.
    pub(crate) fn reserve(&self) {
        let Some(larger) = self.state().larger() else { return };
        self.state_mut().keys = larger;
    }

    /// Frees memory of the table that a smaller collection does not need, and returns the number of slots.
    pub(crate) fn shrink(&self) -> u32 {
        let smaller = self.state().smaller();
        let mut state = self.state_mut();
        state.shrink(smaller);
        state.slots()
    }
}
