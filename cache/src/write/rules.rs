//! The rules by which objects are written.

use std::cmp::Ordering;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Weak};

use crate::StoreType;
use crate::error::StoreError;
use crate::form::{NewObject, intern};
use crate::key::Identity;
use crate::state::entry::Entry;
use crate::state::memory::Usage;
use crate::state::object::Object;
use crate::state::table::resized;
use crate::subscribe::change::{Change, Written};
use crate::sync::write;
use crate::write::budget::MEASURE;
use crate::write::relist::Origin;
use crate::write::writer::{Inner, Writer};
use listwatch::internal::{is_comparable, is_older};
use listwatch::{Encoding, compare_resource_versions};

/// The states of a deleted object.
pub(crate) struct Deleted<D> {
    /// The state that the store had.
    pub(crate) old: Entry<D>,
    pub(crate) last: Entry<D>,
}

impl<T: StoreType + ?Sized> Inner<T> {
    /// Writes an object by the rules, or counts it as skipped.
    pub(crate) fn write_or_skip(
        &self,
        writer: &mut Writer<T>,
        encoding: Encoding,
        bytes: &[u8],
        origin: Origin,
    ) -> Result<Written<T>, StoreError> {
        let listed = origin == Origin::List;
        let identity = Identity::of(encoding, bytes).inspect_err(|_| self.skip(writer, None, bytes, listed))?;
        let written = self.write(writer, encoding, bytes, &identity, origin);
        match &written {
            Ok(Written::Added(_) | Written::Modified { .. }) => {
                self.unskip(writer, &identity, listed);
                writer.is_mixed |= listed;
            }
            Ok(Written::Unchanged | Written::Stale) => {}
            Err(_) => self.skip(writer, Some(&identity), bytes, listed),
        }
        written
    }

    /// Writes an object by the rules.
    fn write(
        &self,
        writer: &mut Writer<T>,
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
        origin: Origin,
    ) -> Result<Written<T>, StoreError> {
        let listed = origin == Origin::List;
        let hash = self.hash(&identity.namespace, &identity.name);
        let found = self.find(hash, identity);
        if let Some((slot, known)) = &found {
            let known = known.identity();
            let replaces_equal = listed && writer.open.as_ref().is_some_and(|open| open.replaces_equal_versions);
            if !known.resource_version.is_empty() && known == *identity && !replaces_equal {
                writer.mark(*slot, origin);
                return Ok(Written::Unchanged);
            }
            if is_older(&identity.resource_version, &known.resource_version) {
                self.set_aside(writer, *slot, encoding, bytes, identity, listed)?;
                return Ok(Written::Stale);
            }
        } else {
            // Its version is not newer than the collection's, and the store does not have it: it was deleted.
            let version = &*identity.resource_version;
            let was_there = origin != Origin::Watch
                && writer.open.is_none()
                && is_comparable(version)
                && is_within(version, &self.state().version);
            if was_there || writer.is_deleted(identity, origin) {
                return Ok(Written::Stale);
            }
        }
        let slot = found.as_ref().map(|(slot, _)| *slot);
        let defers = slot.is_some() && Self::defers(writer, bytes.len(), listed);
        let entry = if defers {
            Self::encoded(writer, &NewObject { known: None, encoding, bytes, identity })
        } else {
            self.entry_in_budget(writer, slot, encoding, bytes, identity)?
        };
        let object = Object::for_functions(&entry, &self.codec);
        let has_functions = !writer.indexes.is_empty() || !writer.subscribers.is_empty();
        let object = if has_functions { object.with_bytes(bytes) } else { object };
        let slot = self.put(writer, hash, slot, &object);
        writer.mark(slot, origin);
        {
            self.train_if_due(writer);
            if defers {
                self.defer(writer, slot, bytes.len());
            }
        }
        let new = self.object(&entry);
        Ok(match found {
            Some((_, old)) => Written::Modified { old: self.object(&old), new },
            None => Written::Added(new),
        })
    }

    /// Sets aside a state that is older than the store's, if the open replace wants it.
    fn set_aside(
        &self,
        writer: &mut Writer<T>,
        slot: u32,
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
        listed: bool,
    ) -> Result<(), StoreError> {
        let Some(open) = &writer.open else { return Ok(()) };
        if listed && writer.is_deleted(identity, Origin::List) {
            return Ok(());
        }
        let entry = if open.wants(slot, &identity.resource_version, listed) {
            Some(self.entry_in_budget(writer, None, encoding, bytes, identity)?)
        } else {
            None
        };
        if let Some(open) = &mut writer.open {
            open.set_aside(slot, entry, listed);
        }
        Ok(())
    }

    /// Puts an object into its slot, or into a new slot.
    pub(crate) fn put(&self, writer: &mut Writer<T>, hash: u32, slot: Option<u32>, object: &Object<T>) -> u32 {
        writer.indexes.retain(|index| index.strong_count() > 0);
        let indexes: Vec<_> = writer.indexes.iter().filter_map(Weak::upgrade).collect();
        for index in &indexes {
            index.prepare(slot, Some(object));
        }
        let entry = object.entry();
        let is_new = slot.is_none();
        if is_new {
            self.reserve();
        }
        let slot = slot.unwrap_or_else(|| writer.take_slot());
        writer.usage.add(entry);

        let mut state = write(&self.state);
        let old = state.slot_mut(slot).and_then(|held| held.replace(entry.clone()));
        if is_new {
            state.locate(hash, slot);
        }
        let (errors, last_error) = &mut writer.index_errors;
        let failed = indexes.iter().filter_map(|index| index.keep(slot)).inspect(|_| *errors += 1).last();
        drop(state);
        *last_error = failed.or(last_error.take());

        let mut routed = Vec::new();
        for index in &indexes {
            index.finish(&mut routed);
        }
        writer.subscribers.put(slot, old.as_ref(), object, &routed);
        if let Some(old) = old {
            writer.usage.subtract(&old);
        }
        slot
    }

    /// Grows the table in advance, so that it does not grow while readers wait.
    fn reserve(&self) {
        let state = self.state();
        if state.table.len() < state.table.capacity() {
            return;
        }
        let larger = resized(&state.table, (2 * state.table.len()).max(4));
        drop(state);
        write(&self.state).table = larger;
    }

    /// Removes an object. `last` is its last state.
    fn remove(
        &self,
        writer: &mut Writer<T>,
        hash: u32,
        slot: u32,
        last: &Entry<T::Decoded>,
        final_state_unknown: bool,
    ) {
        let indexes: Vec<_> = writer.indexes.iter().filter_map(Weak::upgrade).collect();
        for index in &indexes {
            index.prepare(Some(slot), None);
        }
        let mut state = write(&self.state);
        let removed = state.remove(hash, slot);
        for index in &indexes {
            _ = index.keep(slot);
        }
        drop(state);
        let mut routed = Vec::new();
        for index in &indexes {
            index.finish(&mut routed);
        }
        writer.free.push(slot);
        if let Some(removed) = &removed {
            writer.usage.subtract(removed);
        }
        if let Some(open) = &mut writer.open {
            open.forget(slot);
        }
        writer.subscribers.remove(slot, removed.as_ref().unwrap_or(last), last, final_state_unknown, &routed);
    }

    /// Deletes the object whose last state is `bytes`. Returns the state that the store had, and the last state; `None` if the store
    /// has no state or a newer state.
    pub(crate) fn delete(
        &self,
        writer: &mut Writer<T>,
        encoding: Encoding,
        bytes: &[u8],
    ) -> Result<Option<Deleted<T::Decoded>>, StoreError> {
        let identity = Identity::of(encoding, bytes).inspect_err(|_| self.skip(writer, None, bytes, false))?;
        let hash = self.hash(&identity.namespace, &identity.name);
        let found = self.find(hash, &identity);
        if writer.open.is_some() || is_older(&self.state().version, &identity.resource_version) {
            writer.bury(&identity);
        }
        if let Some((slot, known)) = &found
            && is_older(&identity.resource_version, known.resource_version())
        {
            if let Some(open) = &mut writer.open {
                open.deleted(*slot, &identity.resource_version);
            }
            return Ok(None);
        }
        self.unskip(writer, &identity, false);
        let Some((slot, old)) = found else { return Ok(None) };
        // Some servers only name the object.
        let is_named_only = identity.resource_version.is_empty() && identity.uid.is_empty();
        let last = if is_named_only {
            old.clone()
        } else {
            let namespace = || intern(&mut writer.namespaces, &identity.namespace);
            Entry::encoded(encoding, bytes, &identity, namespace)
        };
        self.remove(writer, hash, slot, &last, is_named_only);
        Ok(Some(Deleted { old, last }))
    }

    /// Records that the store has all changes up to this version.
    pub(crate) fn advance(&self, resource_version: &str) {
        let mut writer = self.writer();
        if is_older(resource_version, &self.state().version) {
            return;
        }
        writer.forget_deleted(resource_version);
        resource_version.clone_into(&mut write(&self.state).version);
        if writer.has_log {
            self.open_log(&writer, resource_version);
        }
    }

    /// Commits a list: deletes the objects that it does not have, and restores the older states that were set aside.
    pub(crate) fn commit(&self, replace: u64, version: &str) -> Result<Vec<Change<T>>, StoreError> {
        let mut writer = self.writer();
        let writer = &mut *writer;
        let mut open = writer.open.take_if(|open| open.id == replace).ok_or(StoreError::Superseded)?;
        let mut changes = Vec::new();
        // Until the end, because an index function may panic.
        writer.is_mixed = true;
        // In descending order, so that the lowest free slots are reused first.
        for slot in (0..writer.slots).rev() {
            if open.is_settled(slot) {
                continue;
            }
            let Some(known) = self.entry_at(slot) else { continue };
            let [namespace, name, resource_version] = known.texts();
            let hash = self.hash(namespace, name);
            if let Some(staged) = open.restored(slot) {
                self.put(writer, hash, Some(slot), &Object::for_functions(&staged, &self.codec));
                changes.push(Change::Applied { old: Some(self.object(&known)), new: self.object(&staged) });
            } else if !open.stays(slot, resource_version, version) {
                self.remove(writer, hash, slot, &known, true);
                changes.push(Change::Deleted {
                    old: self.object(&known),
                    last: self.object(&known),
                    final_state_unknown: true,
                });
            }
        }
        writer.is_mixed = false;
        writer.skipped.forget_before(replace);
        writer.forget_deleted(version);
        self.shrink(writer, version);
        {
            self.compress_deferred(writer);
            if let Some(compressor) = &mut writer.compressor {
                compressor.rest();
            }
        }
        self.measure_rest(writer);
        let used = self.used(writer);
        writer.spending.listed(writer.skipped.len(), used);
        writer.subscribers.synced();
        Ok(changes)
    }

    /// Frees memory that a smaller collection does not need.
    fn shrink(&self, writer: &mut Writer<T>, version: &str) {
        self.codec.forget_dropped();
        self.forget_families(writer);
        let state = self.state();
        let smaller =
            (state.table.len() < state.table.capacity() / 4).then(|| resized(&state.table, state.table.len()));
        drop(state);
        let mut state = write(&self.state);
        version.clone_into(&mut state.version);
        state.shrink(smaller);
        let slots = state.slots();
        drop(state);
        writer.slots = writer.slots.min(slots);
        writer.free.retain(|slot| *slot < writer.slots);
        writer.free.shrink_to_fit();
        writer.common.retain(|_, common| common.strong_count() > 0);
        writer.common.shrink_to(2 * writer.common.len());
        writer.namespaces.retain(|namespace| Arc::strong_count(namespace) > 1);
        writer.namespaces.shrink_to(2 * writer.namespaces.len());
    }

    /// Records that the store could not hold an object. The commit of a list keeps the stored state of the object, unless that is
    /// newer than the listed state: then the server was restored from a backup.
    pub(crate) fn skip(&self, writer: &mut Writer<T>, identity: Option<&Identity<'_>>, bytes: &[u8], listed: bool) {
        let hash = match identity {
            Some(Identity { namespace, name, .. }) => self.skipped_hash(namespace, name),
            // The same bytes are the same object.
            None => self.hasher.hash_one(bytes),
        };
        writer.skipped.add(hash, writer.replaces);
        if let Some(identity) = identity.filter(|_| listed)
            && let Some((slot, known)) = self.find(self.hash(&identity.namespace, &identity.name), identity)
            && !is_older(&identity.resource_version, known.resource_version())
        {
            writer.mark(slot, Origin::List);
        }
    }

    /// Records that the store has the latest state of an object, or that the object was deleted.
    fn unskip(&self, writer: &mut Writer<T>, identity: &Identity<'_>, listed: bool) {
        if writer.skipped.len() == 0 {
            return;
        }
        let hash = self.skipped_hash(&identity.namespace, &identity.name);
        if listed {
            writer.skipped.remove_listed(hash, writer.replaces);
        } else {
            writer.skipped.remove(hash);
        }
    }

    fn skipped_hash(&self, namespace: &str, name: &str) -> u64 {
        self.hasher.hash_one((namespace, name))
    }

    /// Measures the memory that is not counted with each write, at once, because it has changed much.
    pub(crate) fn measure_rest(&self, writer: &mut Writer<T>) {
        if writer.spending.budget.is_some() {
            writer.spending.until_measured = 0;
            self.measure_if_due(writer);
        }
    }

    fn measure_if_due(&self, writer: &mut Writer<T>) {
        if writer.spending.until_measured == 0 {
            writer.spending.rest = self.measure(writer).total().saturating_sub(self.counted(writer));
            writer.spending.until_measured = (self.state().table.len() / 8).max(MEASURE);
        }
        writer.spending.until_measured -= 1;
    }

    /// Returns the entry for a slot, or for an object that is set aside, if there is room for it.
    fn entry_in_budget(
        &self,
        writer: &mut Writer<T>,
        slot: Option<u32>,
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
    ) -> Result<Entry<T::Decoded>, StoreError> {
        let known = slot.and_then(|slot| self.entry_at(slot));
        let object = NewObject { known: known.as_ref(), encoding, bytes, identity };
        let entry = self.entry(writer, &object)?;
        let Some(budget) = writer.spending.budget else { return Ok(entry) };
        self.measure_if_due(writer);
        let old = known.as_ref().map(Usage::of).unwrap_or_default();
        let new = Usage::of(&entry);
        if new <= old || self.used(writer) + new - old <= budget {
            return Ok(entry);
        }
        let least = &mut writer.spending.least_refused;
        *least = Some(least.map_or(new - old, |least| least.min(new - old)));
        Err(StoreError::OverBudget(budget))
    }
}

impl<T: StoreType + ?Sized> Writer<T> {
    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    /// Records the object in the open replace.
    fn mark(&mut self, slot: u32, origin: Origin) {
        if let Some(open) = &mut self.open {
            open.mark(slot, origin);
        }
    }

    /// Adds a tombstone for an object that was deleted at its resource version.
    fn bury(&mut self, identity: &Identity<'_>) {
        let version = self.tombstones.entry(identity.key()).or_default();
        if !is_older(&identity.resource_version, version) {
            *version = identity.resource_version.clone().into_owned();
        }
    }

    fn is_deleted(&self, identity: &Identity<'_>, origin: Origin) -> bool {
        let version = &*identity.resource_version;
        !self.tombstones.is_empty()
            && self.tombstones.get(&identity.key()).is_some_and(|deleted| match origin {
                Origin::Watch => is_older(version, deleted),
                // A deletion without a version is newer than the list: the watch adds the object again if it exists.
                Origin::List => deleted.is_empty() || is_within(version, deleted),
                Origin::Caller => is_within(version, deleted),
            })
    }

    /// Removes tombstones up to this version, because no late event of these objects follows, and tombstones whose version does not
    /// compare.
    pub(crate) fn forget_deleted(&mut self, version: &str) {
        if self.open.is_none() {
            self.tombstones.retain(|_, deleted| is_older(version, deleted));
            self.tombstones.shrink_to_fit();
        }
    }
}

/// Returns true if the version is not newer than the collection's; false if the two do not compare.
pub(crate) fn is_within(version: &str, collection: &str) -> bool {
    compare_resource_versions(version, collection).is_some_and(Ordering::is_le)
}
