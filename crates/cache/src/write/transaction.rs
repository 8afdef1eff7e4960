//! A write, from the object that arrived to the change log, in the order in which it happens.
//!
//! | step | does | code of the caller |
//! |---|---|---|
//! | [`Incoming::read`] | reads the metadata, once for all steps | |
//! | `admit` | applies the rules below | |
//! | `encode` | makes the entry, in the format of the store and within its budget | |
//! | `place` | puts the entry into its slot ([`Placement`](super::placement::Placement)), and its slot into the sets of the relist | index functions, under the writer's lock only |
//! | notify | is the end of `place`: subscribers queue the change, and wake once all locks are released | filters, under the same lock |
//! | `log` | appends what a watch delivered to the change log, or notes what others wrote | |
//!
//! A write that does not complete leaves the object as it was, because all errors arise in `admit` and `encode`, before
//! the first change. An object that the store cannot hold is *skipped*, and counted until a later state of it is
//! written. A store with skipped objects is neither saved nor logged.
//!
//! # The rules
//!
//! The newer resource version wins, and among versions that cannot be compared, the order of writes decides. The rules
//! below keep one promise: the store never goes back to an older state, except by the commit of a list that is not
//! older than this state, or that shows that the server went back ([`relist`](super::relist)).
//!
//! | the written state | origin | result |
//! |---|---|---|
//! | equal to the store's | any | `Unchanged`, and marked in an open relist |
//! | older than the store's | list | `Stale`: staged for the commit, unless others have written the object |
//! | older than the store's | watch, caller, answer | `Stale`; it replaces an older staged state |
//! | newer, or without an order | any, but no answer without an order | `Modified` |
//! | of an unknown object, at a version that the collection, or a list that is being committed, has passed | caller, unless a list arrives; answer | `Stale` |
//! | the same | watch | `Added`: a server may send an old object when the user gains access to it |
//! | of an object with a [tombstone](super::tombstones) | any | `Stale`, by the rules of tombstones; staged, if the deletion precedes the relist |
//!
//! - A state without a version never equals another. After a server went back, even an equal version may belong to
//!   another state (`replaces_all`).
//! - The time of a write must not depend on the size of the collection. Work that grows with the collection, such as a
//!   larger table, happens after a number of writes that grows as well.
//!
//! To change a rule, first change the model in `tests/store/model.rs`, which compares the store with these rules on
//! random writes.

use listwatch::internal::{is_comparable, is_older};
use listwatch::{ItemRef, MetaView, StoreType};

use crate::compress::compression::{NewObject, Replaced};
use crate::error::StoreError;
use crate::key::Identity;
use crate::log::open_log::ObservedChange;
use crate::state::entry::Entry;
use crate::state::object::Object;
use crate::write::core::StoreCore;
use crate::write::origin::{Origin, is_within};
use crate::write::tombstones::Deletion;
use crate::write::writer::Writer;

/// The result of writing an object.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum ApplyOutcome<T: StoreType + ?Sized> {
    /// The store did not contain the object.
    Added(Object<T>),
    /// The object replaced an earlier state.
    #[non_exhaustive]
    Modified {
        /// The previous state.
        old: Object<T>,
        /// The current state.
        new: Object<T>,
    },
    /// The store already contains this state.
    Unchanged,
    /// The state is too old, so nothing changed.
    ///
    /// Either the store contains a newer state, or the object was deleted: the store does not contain it, and this
    /// state is not newer than the [resource version](crate::StoreReader::resource_version) of the collection.
    Stale,
}

pub(crate) struct DeletedStates {
    /// The state that was stored.
    pub(crate) old: Entry,
    pub(crate) last: Entry,
}

/// An object that arrived, whose metadata is read once for all steps of its write.
struct Incoming<'a> {
    item: ItemRef<'a>,
    meta: MetaView<'a>,
    identity: Identity<'a>,
}

impl<'a> Incoming<'a> {
    fn read(item: ItemRef<'a>) -> Result<Self, StoreError> {
        let meta = item.meta()?;
        let identity = Identity::of_meta(&meta, item.bytes().len())?;
        Ok(Self { item, meta, identity })
    }

    fn new_object<'n>(&'n self, replaced: Option<&'n Entry>) -> NewObject<'n> {
        let replaced = replaced.map(|old| Replaced { address: old.address(), reference: old.reference() });
        let Self { item, meta, identity } = self;
        NewObject { encoding: item.encoding(), bytes: item.bytes(), meta, identity, replaced }
    }
}

enum Admission {
    /// The state is already stored, in this slot.
    Unchanged { slot: u32 },
    /// The state is late.
    Late,
    /// The state is older than the stored one, which the open relist notes. The commit may need the state itself.
    Older { slot: u32, is_needed: bool },
    /// The state is older than a deletion before the relist, and the commit may need it.
    Deleted,
    /// The state becomes the current one.
    Current,
}

/// The hash of the object's key, and the slot and state of the object if it is stored.
struct Known {
    hash: u32,
    found: Option<(u32, Entry)>,
}

/// The states before and after a write, for the change log.
type Change<'c> = (Option<&'c Entry>, &'c Entry);

/// A write of one object, under the writer's lock.
struct Write<'w, T: StoreType + ?Sized> {
    core: &'w StoreCore<T>,
    writer: &'w mut Writer<T>,
    incoming: Incoming<'w>,
    origin: Origin,
}

/// Closes the log when a change of the watch is not completely written and logged, because of an error or a panic.
struct CloseUnlessLogged<'s, T: StoreType + ?Sized>(Option<&'s StoreCore<T>>);

impl<'s, T: StoreType + ?Sized> CloseUnlessLogged<'s, T> {
    fn new(core: &'s StoreCore<T>, origin: Origin) -> Self {
        Self((origin == Origin::Watch && core.log.is_enabled()).then_some(core))
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl<T: StoreType + ?Sized> Drop for CloseUnlessLogged<'_, T> {
    fn drop(&mut self) {
        if let Some(core) = self.0 {
            core.log.close();
        }
    }
}

impl<T: StoreType + ?Sized> StoreCore<T> {
    /// Writes an object by the rules, or counts it as skipped.
    pub(crate) fn apply(
        &self,
        writer: &mut Writer<T>,
        item: ItemRef<'_>,
        origin: Origin,
    ) -> Result<ApplyOutcome<T>, StoreError> {
        let unlogged = CloseUnlessLogged::new(self, origin);
        let mut write = Write::begin(self, writer, item, origin)?;
        let outcome = write.apply()?;
        write.log(false, outcome.change());
        unlogged.disarm();
        Ok(outcome)
    }

    /// Deletes an object whose last state is this one. Returns `None` if the store contains no state or a newer one.
    pub(crate) fn delete(
        &self,
        writer: &mut Writer<T>,
        item: ItemRef<'_>,
        origin: Origin,
    ) -> Result<Option<DeletedStates>, StoreError> {
        let unlogged = CloseUnlessLogged::new(self, origin);
        let mut write = Write::begin(self, writer, item, origin)?;
        let deleted = write.delete();
        write.log(true, deleted.as_ref().map(|states| (Some(&states.old), &states.last)));
        unlogged.disarm();
        Ok(deleted)
    }

    /// Notes that the store could not hold an object. The commit of a list keeps the stored state of the object, unless
    /// it is newer than the listed one, in which case the rules of a commit decide.
    pub(crate) fn skip(&self, writer: &mut Writer<T>, item: ItemRef<'_>, origin: Origin) {
        let objects = &self.objects;
        if let Ok(incoming) = Incoming::read(item) {
            return Write { core: self, writer, incoming, origin }.skip();
        }
        let key = item.meta().ok().filter(|meta| !meta.name().is_empty());
        let hash = match key {
            Some(meta) => objects.whole_hash((&*meta.namespace(), &*meta.name())),
            // A list contains each object once, so the same bytes are the same object.
            None if origin == Origin::List => objects.whole_hash(item.bytes()),
            // Nobody knows whether two states are of the same object, so all count as one until the next list.
            None => objects.whole_hash("an unreadable object"),
        };
        writer.skipped.add(hash, writer.relists.begun());
    }
}

impl<T: StoreType + ?Sized> ApplyOutcome<T> {
    fn change(&self) -> Option<Change<'_>> {
        match self {
            Self::Added(new) => Some((None, new.entry())),
            Self::Modified { old, new } => Some((Some(old.entry()), new.entry())),
            Self::Unchanged | Self::Stale => None,
        }
    }
}

impl<'w, T: StoreType + ?Sized> Write<'w, T> {
    fn begin(
        core: &'w StoreCore<T>,
        writer: &'w mut Writer<T>,
        item: ItemRef<'w>,
        origin: Origin,
    ) -> Result<Self, StoreError> {
        match Incoming::read(item) {
            Ok(incoming) => Ok(Self { core, writer, incoming, origin }),
            Err(error) => {
                // An answer that cannot be read may be of another collection.
                if origin != Origin::Answer {
                    core.skip(writer, item, origin);
                }
                Err(error)
            }
        }
    }

    fn apply(&mut self) -> Result<ApplyOutcome<T>, StoreError> {
        let Writer { compressor, placement, .. } = &mut *self.writer;
        compressor.renew_some(&self.core.objects, placement);
        let known = self.find();
        let written = match self.admit(known.found.as_ref()) {
            Admission::Unchanged { slot } => {
                self.writer.relists.mark_slot(slot, self.origin);
                return Ok(ApplyOutcome::Unchanged);
            }
            Admission::Late => return Ok(ApplyOutcome::Stale),
            Admission::Older { slot, is_needed } => self.set_aside_older(slot, is_needed),
            Admission::Deleted => self.set_aside_deleted(),
            Admission::Current => self.replace(known),
        };
        match &written {
            Ok(ApplyOutcome::Added(_) | ApplyOutcome::Modified { .. }) => {
                self.clear_skipped();
                self.writer.relists.is_mixed |= self.origin == Origin::List;
            }
            Ok(ApplyOutcome::Unchanged | ApplyOutcome::Stale) => {}
            Err(_) => self.skip(),
        }
        written
    }

    fn find(&self) -> Known {
        let (objects, identity) = (&self.core.objects, &self.incoming.identity);
        let hash = objects.hash(&identity.namespace, &identity.name);
        Known { hash, found: objects.find(hash, identity) }
    }

    /// Applies the rules. Changes nothing.
    fn admit(&self, found: Option<&(u32, Entry)>) -> Admission {
        let (origin, identity, relists) = (self.origin, &self.incoming.identity, &self.writer.relists);
        let version = &*identity.resource_version;
        if origin == Origin::Answer && !is_comparable(version) {
            return Admission::Late;
        }
        if let Some(&(slot, ref known)) = found {
            let known = known.identity();
            let replaces_equal = origin == Origin::List && relists.open.as_ref().is_some_and(|open| open.replaces_all);
            if !known.resource_version.is_empty() && known == *identity && !replaces_equal {
                return Admission::Unchanged { slot };
            }
            if !is_older(version, &known.resource_version) {
                return Admission::Current;
            }
            let Some(open) = &relists.open else { return Admission::Late };
            if origin == Origin::List && relists.deletion_after(identity, origin) == Deletion::Later {
                return Admission::Late;
            }
            return Admission::Older { slot, is_needed: open.needs_staging(slot, version, origin) };
        }
        match relists.deletion_after(identity, origin) {
            Deletion::None if !self.was_deleted(version) => Admission::Current,
            Deletion::BeforeList => Admission::Deleted,
            Deletion::None | Deletion::Later => Admission::Late,
        }
    }

    /// Returns true if an object that is not stored was deleted, because the collection has passed this version of it.
    fn was_deleted(&self, version: &str) -> bool {
        let relists = &self.writer.relists;
        let has_passed = || is_within(version, &self.core.objects.state().version);
        let list_has_passed = || relists.open.as_ref().is_some_and(|open| open.has_passed(version));
        match self.origin {
            Origin::List | Origin::Watch => false,
            _ if !is_comparable(version) => false,
            // The list that arrives may be of a server that went back.
            Origin::Caller if relists.is_open() => list_has_passed(),
            Origin::Caller | Origin::Answer => has_passed() || list_has_passed(),
        }
    }

    /// Returns the entry in the format of the store, if the budget has room for it in place of the replaced one.
    fn encode(&mut self, replaced: Option<&Entry>) -> Result<Entry, StoreError> {
        let StoreCore { objects, log, .. } = self.core;
        let object = self.incoming.new_object(replaced);
        let Writer { compressor, placement, .. } = &mut *self.writer;
        let entry = compressor.entry(objects, placement, &object);
        self.writer.check_room(objects, log, replaced, &entry)?;
        Ok(entry)
    }

    fn replace(&mut self, known: Known) -> Result<ApplyOutcome<T>, StoreError> {
        let (objects, len) = (&self.core.objects, self.incoming.item.bytes().len());
        let (slot, old) = known.found.unzip();
        let is_pending = old.is_some() && self.may_wait(len);
        let entry = if is_pending {
            self.writer.compressor.encoded(&self.incoming.new_object(None))
        } else {
            self.encode(old.as_ref())?
        };
        let slot = self.place(known.hash, slot, &entry);
        let Writer { compressor, placement, .. } = &mut *self.writer;
        compressor.train_if_due(objects);
        if is_pending {
            compressor.add_pending(objects, placement, slot, len);
        }
        let new = objects.object(&entry);
        Ok(match old {
            Some(old) => ApplyOutcome::Modified { old: objects.object(&old), new },
            None => ApplyOutcome::Added(new),
        })
    }

    /// Returns true if a changed object of this length is compressed later, together with others.
    fn may_wait(&self, len: usize) -> bool {
        self.origin != Origin::List
            && !self.core.log.is_enabled()
            && self.writer.budget.limit.is_none()
            && self.writer.compressor.may_wait(len)
    }

    /// Puts the entry into its slot, or into a new one, and notifies subscribers. Returns the slot.
    fn place(&mut self, hash: u32, slot: Option<u32>, entry: &Entry) -> u32 {
        let (objects, placement) = (&self.core.objects, &mut self.writer.placement);
        let object = Object::for_functions(entry, &objects.codec);
        let has_functions = placement.has_functions();
        let object = if has_functions { object.with_bytes(self.incoming.item.bytes()) } else { object };
        let slot = placement.put(objects, hash, slot, &object);
        self.writer.relists.mark_new_state(slot, self.origin);
        slot
    }

    /// Sets aside a state that is older than the store's, if the commit may need it.
    fn set_aside_older(&mut self, slot: u32, is_needed: bool) -> Result<ApplyOutcome<T>, StoreError> {
        let entry = if is_needed { Some(self.encode(None)?) } else { None };
        if let Some(open) = &mut self.writer.relists.open {
            open.stage(slot, entry, self.origin);
        }
        Ok(ApplyOutcome::Stale)
    }

    fn set_aside_deleted(&mut self) -> Result<ApplyOutcome<T>, StoreError> {
        let entry = self.encode(None)?;
        if let Some(open) = &mut self.writer.relists.open {
            open.stage_deleted(self.incoming.identity.key(), entry);
        }
        Ok(ApplyOutcome::Stale)
    }

    fn delete(&mut self) -> Option<DeletedStates> {
        let objects = &self.core.objects;
        let known = self.find();
        let (identity, writer) = (&self.incoming.identity, &mut *self.writer);
        let version = &*identity.resource_version;
        if writer.relists.is_open() || is_older(&objects.state().version, version) {
            writer.relists.add_tombstone(identity, self.origin);
        }
        if let Some((slot, known)) = &known.found
            && is_older(version, &known.resource_version())
        {
            if let Some(open) = &mut writer.relists.open {
                open.note_older_deletion(*slot, version, self.origin);
            }
            return None;
        }
        self.clear_skipped();
        let (slot, old) = known.found?;
        let (identity, writer) = (&self.incoming.identity, &mut *self.writer);
        // Some servers send only the name of the object.
        let is_named_only = identity.resource_version.is_empty() && identity.uid.is_empty();
        let last = if is_named_only { old.clone() } else { writer.compressor.encoded(&self.incoming.new_object(None)) };
        writer.remove(objects, known.hash, slot, &last, is_named_only);
        Some(DeletedStates { old, last })
    }

    /// Appends what the watch has delivered to the change log, even if the store did not change, or notes what others
    /// have written.
    fn log(&mut self, is_deleted: bool, change: Option<Change<'_>>) {
        if self.origin == Origin::Watch {
            self.confirm();
        }
        let StoreCore { log, objects, .. } = self.core;
        if !log.is_enabled() {
            return;
        }
        match (self.origin, change) {
            // A relist never becomes changes.
            (Origin::List, _) | (Origin::Caller | Origin::Answer, None) => {}
            (Origin::Caller | Origin::Answer, Some((old, state))) => {
                let identity = state.identity();
                log.lock().note_own_write(identity.key(), old.cloned(), &identity.resource_version);
            }
            (Origin::Watch, Some((old, state))) => {
                let (old, object) = (old.cloned(), state.clone());
                let observed = ObservedChange { old, object, is_deleted, has_effect: true, known: None };
                log.lock().append(observed, &objects.codec);
            }
            (Origin::Watch, None) => {
                let observed = self.without_effect(is_deleted);
                log.lock().append(observed, &objects.codec);
            }
        }
    }

    /// Returns a change without an effect: others than the reflector have already written this state or a newer one, or
    /// the watch has delivered it again.
    fn without_effect(&mut self, is_deleted: bool) -> ObservedChange {
        let known = self.find().found.map(|(_, known)| known.resource_version().into_owned());
        let deletion = || self.writer.relists.deletion_of(&self.incoming.identity).map(str::to_owned);
        let known = known.or_else(deletion);
        let object = self.writer.compressor.encoded(&self.incoming.new_object(None));
        ObservedChange { old: None, object, is_deleted, has_effect: false, known }
    }

    /// Notes that the watch has delivered the object at this version, and all changes before it.
    fn confirm(&mut self) {
        if !self.writer.relists.unconfirmed.is_empty() {
            let (key_hash, version) = (self.key_hash(), &*self.incoming.identity.resource_version);
            self.writer.relists.unconfirmed.confirm(key_hash, version);
            self.core.pass(self.writer, version);
        }
    }

    /// Notes that the store could not hold the object: see [`StoreCore::skip`].
    fn skip(&mut self) {
        let (key_hash, begun) = (self.key_hash(), self.writer.relists.begun());
        self.writer.skipped.add(key_hash, begun);
        if self.origin == Origin::List
            && let Some((slot, known)) = self.find().found
            && !is_older(&self.incoming.identity.resource_version, &known.resource_version())
        {
            self.writer.relists.mark_slot(slot, Origin::List);
        }
    }

    /// Notes that the store contains the latest state of the object, or that the object was deleted.
    fn clear_skipped(&mut self) {
        if self.writer.skipped.len() == 0 {
            return;
        }
        let (key_hash, begun) = (self.key_hash(), self.writer.relists.begun());
        match self.origin {
            Origin::List => self.writer.skipped.remove_listed(key_hash, begun),
            Origin::Watch | Origin::Caller | Origin::Answer => self.writer.skipped.remove(key_hash),
        }
    }

    /// Returns the whole hash of the key.
    fn key_hash(&self) -> u64 {
        let Identity { namespace, name, .. } = &self.incoming.identity;
        self.core.objects.whole_hash((&**namespace, &**name))
    }
}
