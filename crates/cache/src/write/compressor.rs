//! Makes entries in the storage format of the store, and changes the forms of existing ones.
//!
//! [`Compression`] decides what is compressed how. A replacement here never changes the state: readers find the same
//! object in another form.
//!
//! - A form is changed under the writer's lock. Readers that hold the old entry keep it.
//! - Objects of a list are compressed at once, because they follow each other anyway. Changed objects are *pending*
//!   until [`MOST_PENDING`] of them are compressed together, unless the store has a change log, which keeps states as
//!   they were written, or a budget, which has no room for encoded objects.

use std::mem;
use std::sync::Arc;

use listwatch::{ItemRef, StoreType};

use crate::compress::compression::{Compression, EncodeOutcome, NewObject, RecompressedWhole, Replaced, StoredStates};
use crate::compress::decoder::Decoder;
use crate::compress::dictionary::{Dictionary, StoredWhole};
use crate::compress::elide::ElidedObject;
use crate::compress::group::StateId;
use crate::compress::training::SampleChoice;
use crate::key::Namespaces;
use crate::state::entry::{Entry, StorageFormat, wire_len};
use crate::state::object::Object;
use crate::state::objects::Objects;
use crate::state::table::ObjectTable;
use crate::write::placement::Placement;

/// Changed objects are compressed together once there are this many of them, or this many bytes. Compressing one at a
/// time would load the tables of the dictionary, half a megabyte, into the processor's caches each time: a change of
/// one of 20,000 Pods then takes 1.4 times as long.
const MOST_PENDING: usize = 64;
const MOST_PENDING_LEN: usize = 512 << 10;

pub(crate) struct Compressor {
    pub(crate) format: StorageFormat,
    pub(crate) compression: Compression,
    pub(crate) namespaces: Namespaces,
    /// The slots of changed objects that stay encoded until they are compressed together, and their bytes.
    pending: Vec<u32>,
    pending_len: usize,
}

impl<T: StoreType + ?Sized> StoredStates for Objects<T> {
    type Found = (u32, Entry);

    fn find_state(&self, state: StateId) -> Option<(u32, Entry)> {
        let table = self.state();
        let (slot, entry) = table.find_state(state)?;
        Some((slot, entry.clone()))
    }

    fn as_whole((_, entry): &(u32, Entry)) -> Option<StoredWhole<'_>> {
        entry.stored_whole()
    }
}

impl Compressor {
    pub(super) fn new(format: StorageFormat, decoder: Decoder) -> Self {
        let (compression, namespaces) = (Compression::new(decoder), Namespaces::default());
        Self { format, compression, namespaces, pending: Vec::new(), pending_len: 0 }
    }

    pub(super) fn entry<T: StoreType + ?Sized>(
        &mut self,
        objects: &Objects<T>,
        placement: &mut Placement<T>,
        object: &NewObject<'_>,
    ) -> Entry {
        let compressed = match self.format {
            StorageFormat::Encoded => None,
            StorageFormat::Compressed => self.compressed(objects, placement, object),
        };
        compressed.unwrap_or_else(|| self.encoded(object))
    }

    pub(super) fn encoded(&mut self, object: &NewObject<'_>) -> Entry {
        let NewObject { encoding, bytes, identity, .. } = *object;
        Entry::encoded(encoding, bytes, identity, || self.namespaces.intern(&identity.namespace))
    }

    /// Returns the entry of a compressed object; `None` if it is not compressed.
    fn compressed<T: StoreType + ?Sized>(
        &mut self,
        objects: &Objects<T>,
        placement: &mut Placement<T>,
        object: &NewObject<'_>,
    ) -> Option<Entry> {
        let NewObject { encoding, bytes, identity, .. } = *object;
        match self.compression.encode(object, objects, &mut self.namespaces) {
            EncodeOutcome::Delta { reference, body, candidate } => {
                if let Some((slot, candidate)) = candidate {
                    // Its bytes are now the reference.
                    let (encoding, wire_len) = (candidate.encoding(), candidate.wire_len());
                    let empty = Entry::delta(encoding, wire_len, &candidate.identity(), &[], Arc::clone(&reference));
                    placement.change_form(objects, slot, &candidate, empty);
                }
                Some(Entry::delta(encoding, wire_len(bytes), identity, &body, reference))
            }
            EncodeOutcome::Whole { shared, body, candidate_of } => {
                let new = Entry::whole(encoding, wire_len(bytes), identity, body, shared);
                if let Some(group) = candidate_of {
                    let key_hash = objects.hash(&identity.namespace, &identity.name);
                    self.compression.set_candidate(group, StateId::new(key_hash, new.address()), objects);
                }
                Some(new)
            }
            EncodeOutcome::Incompressible => None,
        }
    }

    /// Trains a dictionary if one is due, on samples of all objects that are not stored as deltas. What was compressed
    /// before is then [renewed](Self::renew_some).
    pub(super) fn train_if_due<T: StoreType + ?Sized>(&mut self, objects: &Objects<T>) {
        if !self.compression.is_training_due() {
            return;
        }
        // Empty deltas stand for their references.
        let is_whole = |entry: &&Entry| entry.reference().is_none() || entry.body().is_empty();
        let (mut count, mut len, mut untrained_len) = (0, 0, 0);
        for entry in objects.state().entries().filter(is_whole) {
            count += 1;
            len += entry.wire_len() as usize;
            untrained_len += entry.compressed().map_or(0, |object| object.form.untrained_len());
        }
        if !self.compression.pays_training(untrained_len) {
            return;
        }
        let choice = SampleChoice::of(count, len);
        let samples = |state: &ObjectTable| {
            let places = state.entries().filter(is_whole).zip(0..);
            places.filter(|(_, place)| choice.has(*place)).map(|(entry, _)| entry.clone()).collect::<Vec<_>>()
        };
        let samples = samples(&objects.state());
        // One after the other, because each must be decompressed.
        let sample = |entry: &Entry| match entry.compressed() {
            Some(object) => objects.codec.decoder.decode_elided(&object),
            None => Some(ElidedObject::of(&entry.identity(), entry.as_encoded()?)?.into_bytes()),
        };
        self.compression.train(samples.iter().filter_map(sample));
    }

    /// Compresses a few objects again if their dictionary is not the current one. Each write calls this.
    pub(super) fn renew_some<T: StoreType + ?Sized>(&mut self, objects: &Objects<T>, placement: &mut Placement<T>) {
        if let Some(renewal) = self.compression.take_renewal() {
            let slots = placement.slots.count;
            let renewal = renewal.advance(slots, |slot| self.renew_slot(objects, placement, slot));
            self.compression.put_renewal(renewal);
        }
    }

    /// Compresses the object of a slot with the current dictionary, unless it already is. Returns the length of an
    /// object that it compressed.
    pub(super) fn renew_slot<T: StoreType + ?Sized>(
        &mut self,
        objects: &Objects<T>,
        placement: &mut Placement<T>,
        slot: u32,
    ) -> Option<u32> {
        let old = objects.entry_at(slot)?;
        let len = old.wire_len();
        let Some(object) = old.compressed() else {
            self.encode_again(objects, placement, slot, &old);
            return Some(len);
        };
        if !self.compression.is_of_old_dictionary(&object) {
            return None;
        }
        let Self { compression, namespaces, .. } = self;
        if old.reference().is_some() {
            match compression.renew_reference(&object, old.encoding(), namespaces) {
                Some(reference) => {
                    placement.replace_form(objects, slot, &old, old.to_reference(reference));
                    // Nothing in the bytes of a delta is compressed.
                    return Some(0);
                }
                None => self.encode_again(objects, placement, slot, &old),
            }
        } else if let Some(RecompressedWhole { shared, body, group }) =
            compression.compress_again(&object, old.encoding(), namespaces)
        {
            let new = Entry::whole(old.encoding(), old.wire_len(), &object.identity, body, shared);
            if let Some(group) = group {
                compression.move_candidate(group, old.address(), new.address());
            }
            placement.replace_form(objects, slot, &old, new);
        } else {
            self.encode_again(objects, placement, slot, &old);
        }
        Some(len)
    }

    /// Compresses the state of a slot as if it was written. A compressed object that is not compressed again becomes
    /// encoded.
    fn encode_again<T: StoreType + ?Sized>(
        &mut self,
        objects: &Objects<T>,
        placement: &mut Placement<T>,
        slot: u32,
        old: &Entry,
    ) {
        if self.format != StorageFormat::Compressed {
            return;
        }
        let stored = Object::new(old, &objects.codec);
        let Ok(bytes) = stored.encoded() else { return };
        let Ok(meta) = ItemRef::new(old.encoding(), bytes).meta() else { return };
        let replaced = Some(Replaced { address: old.address(), reference: old.reference() });
        let (encoding, identity) = (old.encoding(), &old.identity());
        let object = NewObject { encoding, bytes, meta: &meta, identity, replaced };
        let new = self.compressed(objects, placement, &object);
        let new = new.or_else(|| old.as_encoded().is_none().then(|| self.encoded(&object)));
        drop(stored);
        if let Some(new) = new {
            placement.replace_form(objects, slot, old, new);
        }
    }

    /// Returns true if a changed object of this length may be pending.
    pub(super) fn may_wait(&self, len: usize) -> bool {
        self.format == StorageFormat::Compressed && len <= MOST_PENDING_LEN
    }

    /// Notes that the object of a slot is pending, and compresses the pending objects if there are enough.
    pub(super) fn add_pending<T: StoreType + ?Sized>(
        &mut self,
        objects: &Objects<T>,
        placement: &mut Placement<T>,
        slot: u32,
        len: usize,
    ) {
        self.pending.push(slot);
        self.pending_len += len;
        if self.pending.len() >= MOST_PENDING || self.pending_len >= MOST_PENDING_LEN {
            self.compress_pending(objects, placement);
        }
    }

    pub(crate) fn compress_pending<T: StoreType + ?Sized>(
        &mut self,
        objects: &Objects<T>,
        placement: &mut Placement<T>,
    ) {
        self.pending_len = 0;
        for slot in mem::take(&mut self.pending) {
            // It may have been deleted, or compressed by a renewal.
            if let Some(old) = objects.entry_at(slot).filter(|entry| entry.as_encoded().is_some()) {
                self.encode_again(objects, placement, slot, &old);
            }
        }
    }

    /// Adopts the dictionaries of loaded objects, and compares later objects with their references.
    pub(crate) fn adopt(&mut self, dictionaries: &[Arc<Dictionary>], entries: &[Entry]) {
        if self.format != StorageFormat::Compressed {
            return;
        }
        self.compression.adopt_dictionaries(dictionaries);
        let mut last = None;
        for entry in entries {
            let Some(reference) = entry.reference() else { continue };
            // Objects of a group are mostly neighbours. Learning a reference again would change nothing.
            if last.replace(Arc::as_ptr(reference)) != Some(Arc::as_ptr(reference))
                && let Some(object) = entry.compressed()
            {
                self.compression.learn_reference(&object, entry.encoding());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use listwatch::Encoding;

    use super::*;
    use crate::compress::pool::Reference;
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

    fn entry(store: &Store<[u8]>, object: u32) -> Entry {
        store.get(("a", &*object.to_string())).unwrap().entry().clone()
    }

    fn is_encoded(store: &Store<[u8]>, object: u32) -> bool {
        is_waiting(store, &object.to_string())
    }

    fn is_waiting(store: &Store<[u8]>, name: &str) -> bool {
        store.get(("a", name)).unwrap().entry().as_encoded().is_some()
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
        let mut relist = store.begin_relist();
        let known = store.get(("a", "3")).unwrap().encoded().unwrap().to_vec();
        let changed = String::from_utf8(known).unwrap().replace("\"4\"", "\"300\"");
        assert!(relist.apply(Encoding::Json, changed.as_bytes()).is_ok());
        assert_eq!((is_encoded(&store, 3), &*entry(&store, 3).resource_version()), (false, "300"));
        drop(relist);
    }

    #[test]
    fn a_training_gives_deltas_new_references() {
        let store = Store::<[u8]>::new(StorageFormat::Compressed);
        let words = |seed: u64, words: usize| {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..words).map(|_| format!("word-{:x}", random.u16(..4000))).collect::<Vec<_>>().join(" ")
        };
        let write = |group: &str, name: &str, text: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"{name}","generateName":"{group}","namespace":"a","resourceVersion":"1"}},"spec":"{text} {name}"}}"#
            );
            assert!(store.apply(Encoding::Json, json.as_bytes()).is_ok());
            json
        };
        let member = |group: u64, i: u64| {
            let name = format!("group-{group}-{i}");
            let json = write(&format!("group-{group}-"), &name, &words(group, 200));
            (name, json)
        };
        let reference = |name: &str| {
            let entry = store.get(("a", name)).unwrap().entry().clone();
            entry.reference().map(Arc::clone)
        };
        let is_trained = |reference: &Arc<Reference>| reference.object().shared.dictionary.is_some();
        let mut members: Vec<_> = (0..30).map(|i| member(i / 3, i % 3)).collect();
        assert!(members.iter().all(|(name, _)| reference(name).is_some_and(|reference| !is_trained(&reference))));
        // The next object of each of these groups is compared with the first, which the training compresses again.
        let firsts: Vec<_> = (10..20).map(|group| member(group, 0)).collect();
        // Without a group, until the training.
        let mut others = 0;
        let mut write_other = || {
            write("", &format!("other-{others}"), &words(1000 + others, 1000));
            others += 1;
        };
        while !is_trained(&reference("group-0-0").unwrap()) {
            write_other();
        }
        // A write renews at least one object.
        (0..30).for_each(|_| write_other());
        assert!(members.iter().all(|(name, _)| reference(name).is_some_and(|reference| is_trained(&reference))));
        // The groups compare their next objects with the new references. The dictionary may have some of these itself.
        members.extend((0..10).map(|group| member(group, 3)));
        let of_group = |group: u64| (0..4).map(|i| reference(&format!("group-{group}-{i}"))).collect::<Vec<_>>();
        let is_shared = |references: &[Option<Arc<Reference>>]| {
            references.iter().flatten().all(|reference| Arc::ptr_eq(reference, references[0].as_ref().unwrap()))
        };
        let groups: Vec<_> = (0..10).map(of_group).collect();
        assert!(groups.iter().all(|references| is_shared(references)));
        assert!(groups.iter().filter(|references| references.iter().all(Option::is_some)).count() >= 7);
        let compared = |&group: &u64| reference(&member(group, 1).0).is_some();
        assert!((10..20).filter(compared).count() >= 7);
        for (name, json) in members.iter().chain(&firsts) {
            assert_eq!(**store.get(("a", &**name)).unwrap().encoded().unwrap(), *json.as_bytes());
        }
    }

    /// An object that waits is compressed by the training, and makes a later object the reference of their group.
    #[test]
    fn the_first_training_counts_each_object_once() {
        let store = Store::<[u8]>::new(StorageFormat::Compressed);
        let text = |seed: u64, words: usize| {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..words).map(|_| format!("{:x}", random.u32(..))).collect::<Vec<_>>().join(" ")
        };
        let json = |group: &str, name: &str, version: u32, text: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}","generateName":"{group}","namespace":"a","resourceVersion":"{version}"}},"spec":"{text}"}}"#
            )
        };
        let write = |json: &str| assert!(store.apply(Encoding::Json, json.as_bytes()).is_ok());
        write(&json("", "first", 1, &text(1, 10)));
        write(&json("web-", "web-b", 1, &text(2, 200)));
        write(&json("web-", "first", 2, &text(2, 200)));
        assert!(is_waiting(&store, "first") && !is_waiting(&store, "web-b"));
        let is_trained = || store.core.writer().compressor.compression.dictionary().is_some();
        let mut others = 0;
        while !is_trained() {
            write(&json("", &format!("other-{others}"), 1, &text(1000 + others, 1000)));
            others += 1;
        }
        assert!(store.memory().compressed > 0);
        store.begin_relist().commit("9").unwrap();
        assert_eq!(store.memory().compressed, 0);
        store.set_budget(Some(store.memory().total() + 10_000));
        write(&json("", "new", 10, "text"));
        assert_eq!(store.len(), 1);
    }

    /// `memory` compares the counted bytes with the bytes of all entries.
    #[test]
    fn random_writes_across_the_first_training_are_counted_exactly() {
        for seed in 0..4 {
            let mut random = fastrand::Rng::with_seed(seed);
            let store = Store::<[u8]>::new(StorageFormat::Compressed);
            let texts: Vec<String> = (0..40).map(|_| (0..4000).map(|_| random.alphanumeric()).collect()).collect();
            let (mut version, mut writes_after) = (0, 200);
            while writes_after > 0 {
                version += 1;
                let (group, name) = (random.usize(..200), random.u8(..5));
                let text = &texts[if random.u8(..4) > 0 { group % 40 } else { random.usize(..40) }];
                let group_name = if group < 100 { format!("group-{group}-") } else { String::new() };
                let json = format!(
                    r#"{{"metadata":{{"name":"object-{group}-{name}","generateName":"{group_name}","namespace":"a","resourceVersion":"{version}"}},"spec":"{text} {version}"}}"#
                );
                if random.u8(..10) == 0 {
                    assert!(store.delete(Encoding::Json, json.as_bytes()).is_ok());
                } else {
                    assert!(store.apply(Encoding::Json, json.as_bytes()).is_ok());
                }
                writes_after -= usize::from(store.core.writer().compressor.compression.dictionary().is_some());
                if random.u8(..100) == 0 {
                    assert!(store.memory().compressed > 0);
                }
            }
            store.begin_relist().commit(&(version + 1).to_string()).unwrap();
            let memory = store.memory();
            assert_eq!((memory.compressed, memory.encoded), (0, 0), "seed {seed}");
        }
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
