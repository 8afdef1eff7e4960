//! The form in which objects are kept: compression, its training, and the families of objects.

use std::collections::HashSet;
#[cfg(feature = "zstd")]
use std::collections::{BTreeSet, HashMap};
#[cfg(feature = "zstd")]
use std::hash::BuildHasher as _;
#[cfg(feature = "zstd")]
use std::mem;
use std::sync::Arc;
#[cfg(feature = "zstd")]
use std::sync::Weak;

#[cfg(feature = "zstd")]
use super::compress::{Base, Common, Compressor, Dictionary};
use super::entry::{Entry, Form, wire_len};
use super::error::StoreError;
#[cfg(feature = "zstd")]
use super::family::{self, Lead};
use super::inner::{Inner, StorageFormat, Writer};
use super::key::Identity;
use super::object::Stored;
#[cfg(feature = "zstd")]
use crate::sync::write;
use crate::wire::Encoding;

/// An object resembles a base if the difference saves a quarter of what the dictionary is expected to leave, and this many bytes.
#[cfg(feature = "zstd")]
const SAVED: usize = 64;

/// Changed objects are compressed together once they are this many, or this many bytes. Compressing one at a time loads the tables of
/// the dictionary, half a megabyte, into the processor's caches each time: a change of one of 20,000 Pods takes 1.4 times as long.
#[cfg(feature = "zstd")]
const DEFERRED: usize = 64;
#[cfg(feature = "zstd")]
const DEFERRED_LEN: usize = 512 << 10;

/// Slots of objects that are kept encoded until some of them are compressed together.
#[cfg(feature = "zstd")]
#[derive(Default)]
pub(super) struct Deferred {
    slots: Vec<u32>,
    len: usize,
}

/// An object to be written, and the entry that it replaces.
pub(super) struct NewObject<'a, D> {
    #[cfg_attr(not(feature = "zstd"), expect(dead_code))]
    pub(super) known: Option<&'a Arc<Entry<D>>>,
    pub(super) encoding: Encoding,
    pub(super) bytes: &'a [u8],
    pub(super) identity: &'a Identity<'a>,
}

impl<T: Stored + ?Sized> Inner<T> {
    #[cfg(feature = "zstd")]
    pub(super) fn train_if_due(&self, writer: &mut Writer<T>, slot: u32, len: usize) {
        if writer.format == StorageFormat::Compressed
            && writer.compressor.get_or_insert_with(Compressor::new).is_due(slot, len)
        {
            self.train(writer);
        }
    }

    /// Trains with fewer objects than the compressor waits for, because there are no more, or no room for more. Returns true if it
    /// trained.
    #[cfg(feature = "zstd")]
    pub(super) fn train_if_waiting(&self, writer: &mut Writer<T>) -> bool {
        let trains = writer.compressor.as_ref().is_some_and(Compressor::can_train);
        if trains {
            self.train(writer);
        }
        trains
    }

    /// Trains with the objects that were written last, and compresses them.
    #[cfg(feature = "zstd")]
    fn train(&self, writer: &mut Writer<T>) {
        let Some(compressor) = &mut writer.compressor else { return };
        let recent: BTreeSet<u32> = compressor.recent().iter().copied().collect();
        // One after the other, because the store may have them compressed.
        compressor.train(recent.iter().filter_map(|slot| self.codec.encode(&*self.entry_at(*slot)?).ok()));
        for slot in recent {
            self.compress(writer, slot);
        }
    }

    /// Compresses the object of a slot.
    #[cfg(feature = "zstd")]
    fn compress(&self, writer: &mut Writer<T>, slot: u32) {
        let Some(old) = self.entry_at(slot) else { return };
        if matches!(old.form(), Form::Compressed(_) | Form::Member(_)) {
            return;
        }
        let stored = self.object(&old);
        let Ok(bytes) = stored.encoded() else { return };
        let object = NewObject { known: Some(&old), encoding: stored.encoding(), bytes, identity: &old.identity() };
        if let Some(new) = self.compressed(writer, &object) {
            // `old`, `stored` and the slot hold it; a subscriber may hold it too.
            let is_held = Arc::strong_count(&old) > 3;
            if is_held {
                writer.subscribers.change_form(slot, &old, &new);
            }
            self.change_form(writer, slot, &old, new);
        }
    }

    /// Returns true if an object of this length is kept encoded for now, and compressed together with others. The objects of a list
    /// are compressed one after the other anyway. A change log keeps states in the form in which they were written, and a budget
    /// allows no more memory than the compressed object takes.
    #[cfg(feature = "zstd")]
    pub(super) fn defers(writer: &Writer<T>, len: usize, listed: bool) -> bool {
        #[cfg(feature = "client")]
        let has_log = writer.has_log;
        #[cfg(not(feature = "client"))]
        let has_log = false;
        let is_trained = writer.compressor.as_ref().is_some_and(|compressor| !compressor.is_waiting());
        is_trained && !listed && !has_log && writer.spending.budget.is_none() && len <= DEFERRED_LEN
    }

    /// Compresses the object of a slot together with others.
    #[cfg(feature = "zstd")]
    pub(super) fn defer(&self, writer: &mut Writer<T>, slot: u32, len: usize) {
        writer.deferred.slots.push(slot);
        writer.deferred.len += len;
        if writer.deferred.slots.len() >= DEFERRED || writer.deferred.len >= DEFERRED_LEN {
            self.compress_deferred(writer);
        }
    }

    #[cfg(feature = "zstd")]
    pub(super) fn compress_deferred(&self, writer: &mut Writer<T>) {
        for slot in mem::take(&mut writer.deferred).slots {
            self.compress(writer, slot);
        }
    }

    /// Replaces the entry of a slot by another form of the same state.
    #[cfg(feature = "zstd")]
    fn change_form(
        &self,
        writer: &mut Writer<T>,
        slot: u32,
        old: &Arc<Entry<T::Decoded>>,
        new: Arc<Entry<T::Decoded>>,
    ) {
        writer.usage.subtract(old);
        writer.usage.add(&new);
        self.codec.moved(old, &new);
        if let Some(held) = write(&self.state).slot_mut(slot) {
            *held = Some(new);
        }
    }

    /// Returns the entry of an object, in the form in which the store keeps objects.
    #[cfg_attr(not(feature = "zstd"), expect(clippy::unused_self))]
    pub(super) fn entry(
        &self,
        writer: &mut Writer<T>,
        object: &NewObject<'_, T::Decoded>,
    ) -> Result<Arc<Entry<T::Decoded>>, StoreError> {
        let NewObject { encoding, bytes, identity, .. } = *object;
        match writer.format {
            StorageFormat::Encoded => {}
            #[cfg(feature = "zstd")]
            StorageFormat::Compressed => {
                if let Some(entry) = self.compressed(writer, object) {
                    return Ok(entry);
                }
            }
            StorageFormat::Decoded => {
                let decoded = Arc::new(T::decode(encoding, bytes)?);
                let form = Form::Decoded(Box::new((intern(&mut writer.namespaces, &identity.namespace), decoded)));
                return Ok(Arc::new(Entry::with_head(encoding, wire_len(bytes), identity, &[], form)));
            }
        }
        Ok(Self::encoded(writer, object))
    }

    /// Returns the entry of an object as it arrived.
    pub(super) fn encoded(writer: &mut Writer<T>, object: &NewObject<'_, T::Decoded>) -> Arc<Entry<T::Decoded>> {
        let NewObject { encoding, bytes, identity, .. } = *object;
        let namespace = || intern(&mut writer.namespaces, &identity.namespace);
        // Allocates the entry before its bytes, so that a lookup finds both in one page.
        Arc::new_cyclic(|_| Entry::encoded(encoding, bytes, identity, namespace))
    }

    /// Returns the entry of a compressed object; `None` if it is not compressed.
    #[cfg(feature = "zstd")]
    fn compressed(&self, writer: &mut Writer<T>, object: &NewObject<'_, T::Decoded>) -> Option<Arc<Entry<T::Decoded>>> {
        let NewObject { encoding, bytes, identity, .. } = *object;
        if writer.compressor.get_or_insert_with(Compressor::new).is_waiting() {
            return None;
        }
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
        let (body, dictionary) = writer.compressor.as_mut()?.compress(bytes)?;
        let common = common(&mut writer.common, &mut writer.namespaces, &identity.namespace, dictionary);
        let entry = Entry::with_head(encoding, wire_len(bytes), identity, body, Form::Compressed(common));
        let entry = Arc::new(entry);
        if let Some(key) = key.filter(|_| is_first) {
            writer.families.set_first(key, &entry);
        }
        Some(entry)
    }

    /// Returns the hash of the family of an object.
    #[cfg(feature = "zstd")]
    pub(super) fn family(&self, encoding: Encoding, bytes: &[u8], namespace: &str) -> Option<u64> {
        family::key(encoding, bytes, namespace, |key| self.hasher.hash_one(key))
    }

    /// Returns the entry of an object as the difference to the base of its family. Otherwise it returns whether the next object of
    /// the family should be compared with this object.
    #[cfg(feature = "zstd")]
    fn difference(
        &self,
        writer: &mut Writer<T>,
        key: u64,
        object: &NewObject<'_, T::Decoded>,
    ) -> Result<Arc<Entry<T::Decoded>>, bool> {
        let NewObject { known, encoding, bytes, identity } = *object;
        let family = writer.families.get_mut(key).ok_or(true)?;
        if family.skip() {
            return Err(false);
        }
        let lead = family.lead().ok_or(true)?;
        let decompressor = &self.codec.decompressor;
        let (base, base_body) = match &lead {
            // The object itself.
            Lead::First(first) if known.is_some_and(|known| Arc::ptr_eq(known, first)) => return Err(true),
            Lead::First(first) => {
                let base = self.codec.encode(first).map_err(|_| true)?;
                (Arc::new(base), first.body().len())
            }
            // Only this object used the base.
            Lead::Base(base) if is_last_member(base, known) => return Err(true),
            Lead::Base(base) => (decompressor.base(base).ok_or(true)?, base.body.len()),
        };
        let Writer { compressor: Some(compressor), families, .. } = writer else { return Err(false) };
        let head = [&identity.name, &identity.uid, &identity.resource_version].map(|text| text.as_bytes());
        let trial =
            families.trial(key, &identity.name).and_then(|last| Some(compressor.difference(last, head, bytes)?.len()));
        let difference = compressor.difference(&base, head, bytes).ok_or(true)?;
        let expected = base_body.saturating_mul(bytes.len()) / base.len().max(1);
        let resembles = difference.len() + SAVED <= expected && 4 * difference.len() <= 3 * expected;
        let has_drifted = trial.is_some_and(|trial| 5 * trial < 4 * difference.len());
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
            Lead::First(first) => self.make_base(writer, key, &first).ok_or(true)?,
        };
        let difference = writer.compressor.as_ref().map(Compressor::last_difference).unwrap_or_default();
        Ok(Arc::new(Entry::with_head(encoding, wire_len(bytes), identity, difference, Form::Member(base))))
    }

    /// Makes the base of a family of a stored object, which becomes its first member.
    #[cfg(feature = "zstd")]
    fn make_base(&self, writer: &mut Writer<T>, key: u64, first: &Arc<Entry<T::Decoded>>) -> Option<Arc<Base>> {
        let Form::Compressed(common) = first.form() else { return None };
        let identity = first.identity();
        // Otherwise it was set aside by a replace.
        let (slot, _) = self
            .find(self.hash(&identity.namespace, &identity.name), &identity)
            .filter(|(_, stored)| Arc::ptr_eq(stored, first))?;
        let base = self.codec.decompressor.new_base(common, first.body(), first.wire_len());
        let form = Form::Member(Arc::clone(&base));
        let member = Arc::new(Entry::with_head(first.encoding(), first.wire_len(), &identity, &[], form));
        self.change_form(writer, slot, first, member);
        writer.families.set_base(key, &base);
        Some(base)
    }

    /// Finds the families of loaded objects, to compare later objects with their bases.
    #[cfg(feature = "zstd")]
    pub(super) fn find_families(&self, writer: &mut Writer<T>, entries: &[Arc<Entry<T::Decoded>>]) {
        let mut last = None;
        for entry in entries {
            let Form::Member(base) = entry.form() else { continue };
            // Objects of a family are mostly neighbours. Finding a base again changes nothing.
            if last.replace(Arc::as_ptr(base)) != Some(Arc::as_ptr(base))
                && let Some(bytes) = self.codec.decompressor.base(base)
                && let Some(key) = self.family(entry.encoding(), &bytes, &base.common.namespace)
            {
                writer.families.set_base(key, base);
            }
        }
    }
}

/// Returns true if no other object than `known` uses the base; the caller holds it, too.
#[cfg(feature = "zstd")]
fn is_last_member<D>(base: &Arc<Base>, known: Option<&Arc<Entry<D>>>) -> bool {
    let uses = |known: &Arc<Entry<D>>| matches!(known.form(), Form::Member(other) if Arc::ptr_eq(base, other));
    known.is_some_and(uses) && Arc::strong_count(base) == 2
}

/// Returns what compressed objects of a namespace have in common until another dictionary is trained.
#[cfg(feature = "zstd")]
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

#[cfg(all(test, feature = "zstd"))]
mod tests {
    use super::*;
    use crate::cache::{Change, Store};

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

    fn entry(store: &Store<[u8]>, object: u32) -> Arc<Entry<Box<[u8]>>> {
        Arc::clone(store.get(("a", &*object.to_string())).unwrap().entry())
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
                assert!(Arc::ptr_eq(new.entry(), &entry(&store, name)), "{name}");
                assert_eq!((old.resource_version(), new.resource_version()), ("1", "2"));
                assert!(old.entry().as_encoded().is_none());
            }
        }
    }
}
