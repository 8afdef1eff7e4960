//! The rules of a write: which state of an object wins.
//!
//! The newer resource version wins, and versions that do not compare are decided by the order of writes. The rules
//! below keep one promise. The store never goes back to an older state, except by the commit of a list that is not
//! older than this state, or that shows that the server went back ([`relist`](super::relist)).
//!
//! | the written state | origin | result |
//! |---|---|---|
//! | equal to the store's | any | `Unchanged`, and marked in an open relist |
//! | older than the store's | list | `Stale`: staged for the commit, unless others have written the object |
//! | older than the store's | watch, caller | `Stale`; it replaces an older staged state |
//! | newer, or without an order | any | `Modified` |
//! | of an unknown object, at a version that the collection, or a list that is being committed, has passed | caller, unless a list arrives | `Stale` |
//! | the same | watch | `Added`: a server may send an old object when the user gains access to it |
//! | of an object with a [tombstone](super::tombstones) | any | `Stale`, by the rules of tombstones; staged, if the deletion precedes the relist |
//!
//! - A state without a version is never equal to another. After a server went back, an equal version may be of another
//!   state, too (`replaces_all`).
//! - All checks happen before the first change. So an error leaves the object as it was.
//! - An object that cannot be held is *skipped*, and counted until a later state of it is written. A store with skipped
//!   objects is neither saved nor logged.
//! - The time of a write must not depend on the size of the collection. Work that grows with it, such as a larger
//!   table, happens after a number of writes that grows, too.
//!
//! To change a rule, change the model in `tests/store/model.rs` first: it compares the store with these rules on random
//! writes.

use listwatch::internal::{is_comparable, is_older};
use listwatch::{Encoding, ItemRef};

use crate::StoreType;
use crate::error::StoreError;
use crate::key::Identity;
use crate::state::entry::Entry;
use crate::state::object::Object;
use crate::write::compression::NewObject;
use crate::write::core::StoreCore;
use crate::write::origin::{Origin, is_within};
use crate::write::outcome::ApplyOutcome;
use crate::write::tombstones::Deletion;
use crate::write::writer::Writer;

/// The states of a deleted object.
pub(crate) struct DeletedStates {
    /// The state that the store had.
    pub(crate) old: Entry,
    pub(crate) last: Entry,
}

impl<T: StoreType + ?Sized> StoreCore<T> {
    /// Writes an object by the rules, or counts it as skipped.
    pub(crate) fn write_or_skip(
        &self,
        writer: &mut Writer<T>,
        object: ItemRef<'_>,
        origin: Origin,
    ) -> Result<ApplyOutcome<T>, StoreError> {
        let (listed, encoding, bytes) = (origin == Origin::List, object.encoding(), object.bytes());
        let identity = Identity::of(object).inspect_err(|_| self.add_skipped(writer, object, None, listed))?;
        let written = self.write(writer, encoding, bytes, &identity, origin);
        match &written {
            Ok(ApplyOutcome::Added(_) | ApplyOutcome::Modified { .. }) => {
                self.clear_skipped(writer, &identity, listed);
                writer.relists.is_mixed |= listed;
            }
            Ok(ApplyOutcome::Unchanged | ApplyOutcome::Stale) => {}
            Err(_) => self.add_skipped(writer, object, Some(&identity), listed),
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
    ) -> Result<ApplyOutcome<T>, StoreError> {
        let listed = origin == Origin::List;
        self.renew_some(writer);
        let hash = self.hash(&identity.namespace, &identity.name);
        let found = self.find(hash, identity);
        if let Some((slot, known)) = &found {
            let known = known.identity();
            let replaces_equal = listed && writer.relists.open.as_ref().is_some_and(|open| open.replaces_all);
            if !known.resource_version.is_empty() && known == *identity && !replaces_equal {
                writer.relists.mark_slot(*slot, origin);
                return Ok(ApplyOutcome::Unchanged);
            }
            if is_older(&identity.resource_version, &known.resource_version) {
                self.stage_older(writer, *slot, encoding, bytes, identity, listed)?;
                return Ok(ApplyOutcome::Stale);
            }
        } else {
            // Its version is not newer than the collection's, and the store does not have it: it was deleted.
            let version = &*identity.resource_version;
            let is_passed = |writer: &Writer<T>| match &writer.relists.open {
                None => is_within(version, &self.state().version),
                Some(open) => open.has_passed(version),
            };
            let was_there = origin == Origin::Caller && is_comparable(version) && is_passed(writer);
            match writer.relists.deletion_after(identity, origin) {
                Deletion::None if !was_there => {}
                Deletion::BeforeList => {
                    self.stage_deleted(writer, encoding, bytes, identity)?;
                    return Ok(ApplyOutcome::Stale);
                }
                Deletion::None | Deletion::Later => return Ok(ApplyOutcome::Stale),
            }
        }
        let slot = found.as_ref().map(|(slot, _)| *slot);
        let defers = slot.is_some() && self.defers_compression(writer, bytes.len(), listed);
        let entry = if defers {
            Self::encoded_entry(writer, &NewObject { known: None, encoding, bytes, identity })
        } else {
            self.entry_in_budget(writer, slot, encoding, bytes, identity)?
        };
        let object = Object::for_functions(&entry, &self.codec);
        let has_functions = !writer.indexes.is_empty() || !writer.subscribers.is_empty();
        let object = if has_functions { object.with_bytes(bytes) } else { object };
        let slot = self.put_object(writer, hash, slot, &object);
        writer.relists.mark_new_state(slot, origin);
        self.train_if_due(writer);
        if defers {
            self.defer_compression(writer, slot, bytes.len());
        }
        let new = self.object(&entry);
        Ok(match found {
            Some((_, old)) => ApplyOutcome::Modified { old: self.object(&old), new },
            None => ApplyOutcome::Added(new),
        })
    }

    /// Sets aside a state that is older than the store's, if the open relist needs it.
    fn stage_older(
        &self,
        writer: &mut Writer<T>,
        slot: u32,
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
        listed: bool,
    ) -> Result<(), StoreError> {
        let Some(open) = &writer.relists.open else { return Ok(()) };
        if listed && writer.relists.deletion_after(identity, Origin::List) == Deletion::Later {
            return Ok(());
        }
        let entry = if open.needs_staging(slot, &identity.resource_version, listed) {
            Some(self.entry_in_budget(writer, None, encoding, bytes, identity)?)
        } else {
            None
        };
        if let Some(open) = &mut writer.relists.open {
            open.stage(slot, entry, listed);
        }
        Ok(())
    }

    /// Sets aside a state of the list that is older than a deletion before the relist.
    fn stage_deleted(
        &self,
        writer: &mut Writer<T>,
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
    ) -> Result<(), StoreError> {
        let staged = self.entry_in_budget(writer, None, encoding, bytes, identity)?;
        if let Some(open) = &mut writer.relists.open {
            open.stage_deleted(identity.key(), staged);
        }
        Ok(())
    }

    /// Deletes an object, whose last state this is. Returns the state that the store had, and the last state. Returns
    /// `None` if the store has no state or a newer state.
    pub(crate) fn delete(
        &self,
        writer: &mut Writer<T>,
        object: ItemRef<'_>,
        origin: Origin,
    ) -> Result<Option<DeletedStates>, StoreError> {
        let (encoding, bytes) = (object.encoding(), object.bytes());
        let identity = Identity::of(object).inspect_err(|_| self.add_skipped(writer, object, None, false))?;
        let hash = self.hash(&identity.namespace, &identity.name);
        let found = self.find(hash, &identity);
        if writer.relists.open.is_some() || is_older(&self.state().version, &identity.resource_version) {
            writer.relists.add_tombstone(&identity, origin);
        }
        if let Some((slot, known)) = &found
            && is_older(&identity.resource_version, &known.resource_version())
        {
            if let Some(open) = &mut writer.relists.open {
                open.note_older_deletion(*slot, &identity.resource_version);
            }
            return Ok(None);
        }
        self.clear_skipped(writer, &identity, false);
        let Some((slot, old)) = found else { return Ok(None) };
        // Some servers only name the object.
        let is_named_only = identity.resource_version.is_empty() && identity.uid.is_empty();
        let last = if is_named_only {
            old.clone()
        } else {
            let namespace = || writer.namespaces.intern(&identity.namespace);
            Entry::encoded(encoding, bytes, &identity, namespace)
        };
        self.remove_object(writer, hash, slot, &last, is_named_only);
        Ok(Some(DeletedStates { old, last }))
    }

    /// Records that the store has all changes up to this version.
    pub(crate) fn advance(&self, resource_version: &str) {
        let mut writer = self.writer();
        if is_older(resource_version, &self.state().version) {
            return;
        }
        writer.relists.forget_deletions(resource_version);
        self.pass(&mut writer, resource_version);
        resource_version.clone_into(&mut self.state_mut().version);
        if self.log.is_enabled() {
            self.open_log(&writer, resource_version);
        }
    }
    /// Records that the watch has delivered an object at this version, and all changes before it.
    pub(crate) fn confirm(&self, writer: &mut Writer<T>, object: ItemRef<'_>) -> Result<(), StoreError> {
        if !writer.relists.unconfirmed.is_empty() {
            let identity = Identity::of(object)?;
            let (key, version) = ((&*identity.namespace, &*identity.name), &*identity.resource_version);
            writer.relists.unconfirmed.confirm(self.whole_hash(key), version);
            self.pass(writer, version);
        }
        Ok(())
    }

    /// Records that the watch has delivered all changes before this version.
    fn pass(&self, writer: &mut Writer<T>, resource_version: &str) {
        writer.relists.unconfirmed.pass(resource_version);
        if writer.relists.unconfirmed.is_missed() && self.log.is_enabled() {
            self.log.lock().close();
        }
    }
}
