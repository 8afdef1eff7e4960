//! The form in which objects are kept: compression, its training, and the families of objects.

use std::collections::HashMap;
use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::mem;
use std::sync::Arc;
use std::sync::Weak;

use crate::StoreType;
use crate::compress::{Base, Common, Compressor, Dictionary, UNTRAINED, is_sample};
use crate::error::StoreError;
use crate::family::{self, Lead};
use crate::key::Identity;
use crate::state::entry::{Entry, Form, wire_len};
use crate::state::storage_format::StorageFormat;
use crate::sync::write;
use crate::write::core::StoreCore as Inner;
use crate::write::writer::Writer;
use listwatch::Encoding;

/// An object resembles a base if the difference saves a quarter of what the dictionary is expected to leave, and this many bytes.
const SAVED: usize = 64;

/// Changed objects are compressed together once they are this many, or this many bytes. Compressing one at a time loads the tables of
/// the dictionary, half a megabyte, into the processor's caches each time: a change of one of 20,000 Pods takes 1.4 times as long.
const DEFERRED: usize = 64;
const DEFERRED_LEN: usize = 512 << 10;

/// Slots of objects that are kept encoded until some of them are compressed together.
#[derive(Default)]
pub(super) struct Deferred {
    slots: Vec<u32>,
    len: usize,
}

/// An object to be written, and the entry that it replaces.
pub(super) struct NewObject<'a, D> {
    pub(super) known: Option<&'a Entry<D>>,
    pub(super) encoding: Encoding,
    pub(super) bytes: &'a [u8],
    pub(super) identity: &'a Identity<'a>,
}

impl<T: StoreType + ?Sized> Inner<T> {
    pub(super) fn train_if_due(&self, writer: &mut Writer<T>) {
        if writer.compressor.as_mut().is_some_and(Compressor::is_due) {
            self.train(writer);
        }
    }

    /// Trains with samples of all objects that are not stored as differences. What was compressed without a dictionary is compressed
    /// again.
    fn train(&self, writer: &mut Writer<T>) {
        let Some(compressor) = &mut writer.compressor else { return };
        let whole = self.whole();
        let is_first = compressor.dictionary().is_none();
        if is_first && whole.iter().map(|(_, entry)| untrained_len(entry)).sum::<usize>() < UNTRAINED {
            return;
        }
        let len = whole.iter().map(|(_, entry)| entry.wire_len() as usize).sum::<usize>();
        let samples = whole.iter().zip(0..).filter(|(_, place)| is_sample(*place, len));
        // One after the other, because the store has them compressed.
        compressor.train(samples.filter_map(|((_, entry), _)| self.codec.encode(entry).ok()));
        if is_first && compressor.dictionary().is_some() {
            for (slot, old) in whole {
                self.compress_again(writer, slot, &old);
            }
        }
        // The samples compress better than later objects.
        if let Some(compressor) = &mut writer.compressor {
            compressor.restart_window();
        }
    }

    /// Returns the objects that are not stored as differences, and their slots.
    fn whole(&self) -> Vec<(u32, Entry<T::Decoded>)> {
        let state = self.state();
        let slots = state.chunks.iter().flat_map(|chunk| chunk.iter()).zip(0..);
        let is_whole = |entry: &Entry<_>| !matches!(entry.form(), Form::Member(_)) || entry.body().is_empty();
        slots
            .filter_map(|(entry, slot)| Some((slot, entry.as_ref().filter(|entry| is_whole(entry))?.clone())))
            .collect()
    }

    /// Compresses an object with the dictionary that was trained first.
    fn compress_again(&self, writer: &mut Writer<T>, slot: u32, old: &Entry<T::Decoded>) {
        let (Form::Compressed(_) | Form::Member(_)) = old.form() else { return self.compress(writer, slot) };
        let Ok(bytes) = self.codec.encode(old) else { return };
        let identity = old.identity();
        let key = self.family(old.encoding(), &bytes, &identity.namespace);
        let Some((body, dictionary)) = writer.compressor.as_mut().and_then(|compressor| compressor.compress(&bytes))
        else {
            return;
        };
        if let Form::Member(base) = old.form() {
            return base.repack(body, dictionary);
        }
        let common = common(&mut writer.common, &mut writer.namespaces, &identity.namespace, dictionary);
        let new = Entry::with_head(old.encoding(), old.wire_len(), &identity, body, Form::Compressed(common));
        if let Some(key) = key {
            writer.families.moved(key, old.address(), new.address());
        }
        self.replace_form(writer, slot, old, new);
    }

    /// Compresses the object of a slot.
    fn compress(&self, writer: &mut Writer<T>, slot: u32) {
        let Some(old) = self.entry_at(slot) else { return };
        if matches!(old.form(), Form::Compressed(_) | Form::Member(_)) {
            return;
        }
        let stored = self.object(&old);
        let Ok(bytes) = stored.encoded() else { return };
        let object = NewObject { known: Some(&old), encoding: stored.encoding(), bytes, identity: &old.identity() };
        if let Some(new) = self.compressed(writer, &object) {
            drop(stored);
            self.replace_form(writer, slot, &old, new);
        }
    }

    /// Returns true if an object of this length is kept encoded for now, and compressed together with others. The objects of a list
    /// are compressed one after the other anyway. A change log keeps states in the form in which they were written, and a budget
    /// allows no more memory than the compressed object takes.
    pub(super) fn defers(&self, writer: &Writer<T>, len: usize, listed: bool) -> bool {
        let has_log = self.log.is_enabled();
        let is_compressed = writer.format == StorageFormat::Compressed;
        is_compressed && !listed && !has_log && writer.budget.limit.is_none() && len <= DEFERRED_LEN
    }

    /// Compresses the object of a slot together with others.
    pub(super) fn defer(&self, writer: &mut Writer<T>, slot: u32, len: usize) {
        writer.deferred.slots.push(slot);
        writer.deferred.len += len;
        if writer.deferred.slots.len() >= DEFERRED || writer.deferred.len >= DEFERRED_LEN {
            self.compress_deferred(writer);
        }
    }

    pub(super) fn compress_deferred(&self, writer: &mut Writer<T>) {
        for slot in mem::take(&mut writer.deferred).slots {
            self.compress(writer, slot);
        }
    }

    /// Replaces the entry of a slot by another form of the same state, and the entries that subscribers have yet to receive. The caller
    /// has one reference to the old entry.
    fn replace_form(&self, writer: &mut Writer<T>, slot: u32, old: &Entry<T::Decoded>, new: Entry<T::Decoded>) {
        let is_held = old.references() > 2;
        if is_held {
            writer.subscribers.change_form(slot, old, &new);
        }
        self.change_form(writer, slot, old, new);
    }

    /// Replaces the entry of a slot by another form of the same state.
    fn change_form(&self, writer: &mut Writer<T>, slot: u32, old: &Entry<T::Decoded>, new: Entry<T::Decoded>) {
        writer.usage.subtract(old);
        writer.usage.add(&new);
        self.codec.copy_decoded(old, &new);
        if let Some(held) = write(&self.state).slot_mut(slot) {
            *held = Some(new);
        }
    }

    /// Returns the entry of an object, in the form in which the store keeps objects.
    pub(super) fn entry(
        &self,
        writer: &mut Writer<T>,
        object: &NewObject<'_, T::Decoded>,
    ) -> Result<Entry<T::Decoded>, StoreError> {
        let NewObject { encoding, bytes, identity, .. } = *object;
        match writer.format {
            StorageFormat::Encoded => {}
            StorageFormat::Compressed => {
                if let Some(entry) = self.compressed(writer, object) {
                    return Ok(entry);
                }
            }
            StorageFormat::Decoded => {
                let decoded = Arc::new(T::decode(encoding, bytes)?);
                let form = Form::Decoded(Box::new((intern(&mut writer.namespaces, &identity.namespace), decoded)));
                return Ok(Entry::with_head(encoding, wire_len(bytes), identity, &[], form));
            }
        }
        Ok(Self::encoded(writer, object))
    }

    /// Returns the entry of an object as it arrived.
    pub(super) fn encoded(writer: &mut Writer<T>, object: &NewObject<'_, T::Decoded>) -> Entry<T::Decoded> {
        let NewObject { encoding, bytes, identity, .. } = *object;
        let namespace = || intern(&mut writer.namespaces, &identity.namespace);
        Entry::encoded(encoding, bytes, identity, namespace)
    }

    /// Returns the entry of a compressed object; `None` if it is not compressed.
    fn compressed(&self, writer: &mut Writer<T>, object: &NewObject<'_, T::Decoded>) -> Option<Entry<T::Decoded>> {
        let NewObject { encoding, bytes, identity, .. } = *object;
        let key = self.family(encoding, bytes, &identity.namespace);
        let mut is_first = false;
        if let Some(key) = key {
            let difference = self.difference(writer, key, object);
            writer.families.remember(key, &identity.name, bytes);
            match difference {
                Ok(entry) => return Some(entry),
                Err(first) => is_first = first,
            }
        }
        let compressor = writer.compressor.get_or_insert_with(Compressor::new);
        let (body, dictionary) = compressor.compress(bytes)?;
        let common = common(&mut writer.common, &mut writer.namespaces, &identity.namespace, dictionary);
        let entry = Entry::with_head(encoding, wire_len(bytes), identity, body, Form::Compressed(common));
        if let Some(key) = key.filter(|_| is_first) {
            let (hash, address) = (self.hash(&identity.namespace, &identity.name), entry.address());
            self.set_lead(writer, key, Lead::First { hash, address });
        }
        Some(entry)
    }

    /// Returns the hash of the family of an object.
    pub(super) fn family(&self, encoding: Encoding, bytes: &[u8], namespace: &str) -> Option<u64> {
        family::key(encoding, bytes, namespace, |key| self.hasher.hash_one(key))
    }

    /// Returns the entry of an object as the difference to the base of its family. Otherwise it returns whether the next object of
    /// the family should be compared with this object.
    fn difference(
        &self,
        writer: &mut Writer<T>,
        key: u64,
        object: &NewObject<'_, T::Decoded>,
    ) -> Result<Entry<T::Decoded>, bool> {
        let NewObject { known, encoding, bytes, identity } = *object;
        let family = writer.families.get_mut(key).ok_or(true)?;
        if family.skip() {
            return Err(false);
        }
        let lead = family.lead().ok_or(true)?;
        let (base, compressed_len, is_trained) = match &lead {
            Lead::First { hash, address } => {
                // Otherwise it was deleted, or a replace has set it aside.
                let (_, first) = self.find_state(*hash, *address).ok_or(true)?;
                let Form::Compressed(common) = first.form() else { return Err(true) };
                let is_itself = known.is_some_and(|known| known.is_same(&first));
                // Another object may have got the place of the first, and the members of a base have one namespace.
                if is_itself || *common.namespace != *identity.namespace {
                    return Err(true);
                }
                let base = self.codec.encode(&first).map_err(|_| true)?;
                (Arc::new(base), first.body().len(), common.dictionary.is_some())
            }
            // Only this object used the base.
            Lead::Base(base) if is_last_member(base, known) => return Err(true),
            Lead::Base(base) => {
                let bytes = self.codec.decompressor.base(base).ok_or(true)?;
                let packed = base.packed();
                (bytes, packed.body.len(), packed.dictionary.is_some())
            }
        };
        let compressor = writer.compressor.get_or_insert_with(Compressor::new);
        let families = &mut writer.families;
        let head = [&identity.name, &identity.uid, &identity.resource_version].map(|text| text.as_bytes());
        let trial = families.trial(key, &identity.name).and_then(|last| compressor.difference(last, head, bytes));
        let difference = compressor.difference(&base, head, bytes).unwrap_or(bytes.len());
        // A dictionary leaves about half of what is left without it.
        let expected = compressed_len.saturating_mul(bytes.len()) / base.len().max(1) / if is_trained { 1 } else { 2 };
        let resembles = difference + SAVED <= expected && 4 * difference <= 3 * expected;
        let has_drifted = trial.is_some_and(|trial| 4 * trial < 3 * difference);
        let family = families.get_mut(key).ok_or(true)?;
        family.compared(resembles);
        if has_drifted {
            family.drifted();
        }
        if has_drifted || !resembles {
            return Err(true);
        }
        let base = match lead {
            Lead::Base(base) => base,
            Lead::First { hash, address } => self.make_base(writer, key, hash, address).ok_or(true)?,
        };
        let difference = writer.compressor.as_ref().map(Compressor::last_difference).unwrap_or_default();
        Ok(Entry::with_head(encoding, wire_len(bytes), identity, difference, Form::Member(base)))
    }

    /// Makes the base of a family of a stored object, which becomes its first member.
    fn make_base(&self, writer: &mut Writer<T>, key: u64, hash: u32, address: usize) -> Option<Arc<Base>> {
        let (slot, first) = self.find_state(hash, address)?;
        let Form::Compressed(common) = first.form() else { return None };
        let identity = first.identity();
        let base = self.codec.decompressor.new_base(common, first.body(), first.wire_len());
        let form = Form::Member(Arc::clone(&base));
        let member = Entry::with_head(first.encoding(), first.wire_len(), &identity, &[], form);
        self.change_form(writer, slot, &first, member);
        self.set_lead(writer, key, Lead::Base(&base));
        Some(base)
    }

    fn set_lead(&self, writer: &mut Writer<T>, key: u64, lead: Lead<&Arc<Base>>) {
        if writer.families.is_full() {
            self.forget_families(writer);
        }
        writer.families.set(key, lead);
    }

    /// Removes families whose objects were deleted.
    pub(super) fn forget_families(&self, writer: &mut Writer<T>) {
        let state = self.state();
        writer.families.forget_dropped(|hash, address| state.find_state(hash, address).is_some());
    }

    /// Finds the families of loaded objects, to compare later objects with their bases.
    pub(super) fn find_families(&self, writer: &mut Writer<T>, entries: &[Entry<T::Decoded>]) {
        let mut last = None;
        for entry in entries {
            let Form::Member(base) = entry.form() else { continue };
            // Objects of a family are mostly neighbours. Finding a base again changes nothing.
            if last.replace(Arc::as_ptr(base)) != Some(Arc::as_ptr(base))
                && let Some(bytes) = self.codec.decompressor.base(base)
                && let Some(key) = self.family(entry.encoding(), &bytes, &base.namespace)
            {
                self.set_lead(writer, key, Lead::Base(base));
            }
        }
    }
}

/// Returns the length of what was compressed without a dictionary.
fn untrained_len<D>(entry: &Entry<D>) -> usize {
    match entry.form() {
        Form::Compressed(common) if common.dictionary.is_none() => entry.body().len(),
        Form::Member(base) => {
            let packed = base.packed();
            if packed.dictionary.is_none() { packed.body.len() } else { 0 }
        }
        _ => 0,
    }
}

/// Returns true if no other object than `known` uses the base; the caller holds it, too.
fn is_last_member<D>(base: &Arc<Base>, known: Option<&Entry<D>>) -> bool {
    let uses = |known: &Entry<D>| matches!(known.form(), Form::Member(other) if Arc::ptr_eq(base, other));
    known.is_some_and(uses) && Arc::strong_count(base) == 2
}

/// Returns what compressed objects of a namespace have in common until another dictionary is trained.
pub(super) fn common(
    known: &mut HashMap<Arc<str>, Weak<Common>>,
    namespaces: &mut HashSet<Arc<str>>,
    namespace: &str,
    dictionary: Option<Arc<Dictionary>>,
) -> Arc<Common> {
    let address = |dictionary: &Option<Arc<Dictionary>>| dictionary.as_ref().map(Arc::as_ptr);
    if let Some(common) = known.get(namespace).and_then(Weak::upgrade)
        && address(&common.dictionary) == address(&dictionary)
    {
        return common;
    }
    let namespace = intern(namespaces, namespace);
    let common = Arc::new(Common { namespace: Arc::clone(&namespace), dictionary });
    known.insert(namespace, Arc::downgrade(&common));
    common
}

pub(super) fn intern(namespaces: &mut HashSet<Arc<str>>, namespace: &str) -> Arc<str> {
    if let Some(known) = namespaces.get(namespace) {
        return Arc::clone(known);
    }
    let namespace = Arc::<str>::from(namespace);
    namespaces.insert(Arc::clone(&namespace));
    namespace
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Store};

    const MANY: u32 = 64;

    /// A store of 600 compressed objects, and a function that changes one of them.
    fn store() -> (Store<[u8]>, impl Fn(u32, u32)) {
        let store = Store::<[u8]>::new(StorageFormat::Compressed);
        let write = {
            let store = store.clone();
            move |object: u32, version: u32| {
                let text = "limits cpu 100m memory 64Mi, image registry.example.com/shop/web".repeat(4);
                let json = format!(
                    r#"{{"metadata":{{"name":"{object}","namespace":"a","resourceVersion":"{version}"}},"spec":"{text} {}"}}"#,
                    object * 7919
                );
                assert!(store.apply(Encoding::Json, json.as_bytes()).is_ok());
            }
        };
        (0..600).for_each(|object| write(object, 1));
        (store, write)
    }

    fn entry(store: &Store<[u8]>, object: u32) -> Entry<Box<[u8]>> {
        store.get(("a", &*object.to_string())).unwrap().entry().clone()
    }

    fn is_encoded(store: &Store<[u8]>, object: u32) -> bool {
        entry(store, object).as_encoded().is_some()
    }

    #[test]
    fn changed_objects_are_compressed_together() {
        let (store, write) = store();
        for round in 0..3 {
            for object in 0..MANY {
                assert!(!is_encoded(&store, object));
                write(object, 2 + round);
                assert_eq!(is_encoded(&store, object), object < MANY - 1);
                assert_eq!(is_encoded(&store, 0), object < MANY - 1);
            }
        }
        // An object that changes often is compressed once.
        (10..9 + MANY).for_each(|version| write(7, version));
        assert!(is_encoded(&store, 7));
        write(7, 9 + MANY);
        assert!(!is_encoded(&store, 7));
        // New objects, and objects of a list, are compressed at once.
        write(600, 1);
        assert!(!is_encoded(&store, 600));
        let mut replace = store.begin_replace();
        let known = store.get(("a", "3")).unwrap().encoded().unwrap().to_vec();
        let changed = String::from_utf8(known).unwrap().replace("\"4\"", "\"300\"");
        assert!(replace.apply(Encoding::Json, changed.as_bytes()).is_ok());
        assert_eq!((is_encoded(&store, 3), entry(&store, 3).resource_version()), (false, "300"));
        drop(replace);
    }

    #[test]
    fn an_exact_measure_of_memory_waits_for_no_further_change() {
        let (store, write) = store();
        let before = store.memory();
        (0..5).for_each(|object| write(object, 2));
        assert!((0..5).all(|object| is_encoded(&store, object)));
        let after = store.memory();
        assert!((0..5).all(|object| !is_encoded(&store, object)));
        assert_eq!((before.encoded, after.encoded), (0, 0));
    }

    #[test]
    fn a_store_with_a_budget_compresses_at_once() {
        let (store, write) = store();
        write(1, 2);
        store.set_budget(Some(64 << 20));
        assert!(!is_encoded(&store, 1));
        write(2, 2);
        assert!(!is_encoded(&store, 2));
    }

    #[test]
    fn a_slow_subscriber_keeps_the_form_of_the_store() {
        let (store, write) = store();
        let mut all = store.subscribe().start();
        let mut some = store.subscribe().filter(|object| object.name() == "5").start();
        (0..MANY).for_each(|object| write(object, 2));
        for subscriber in [&mut all, &mut some] {
            while let Some(change) = subscriber.try_next() {
                let Change::Applied { old: Some(old), new } = change else { panic!("{change:?}") };
                let name = new.name().parse().unwrap();
                assert!(new.entry().is_same(&entry(&store, name)), "{name}");
                assert_eq!((old.resource_version(), new.resource_version()), ("1", "2"));
                assert!(old.entry().as_encoded().is_none());
            }
        }
    }
}
