//! Puts compressed objects into the store: it does what [`Compression`](crate::compress::Compression) decides.
//!
//! The folder `compress` never sees the store. So this file looks up what a decision needs, and replaces entries. Each
//! replacement keeps the state: readers find the same object, in another form.
//!
//! - A form is changed under the writer's lock. Readers that hold the old entry keep it.
//! - Subscribers that have yet to receive an entry get the new one, so that a slow subscriber does not keep encoded
//!   objects.
//! - Objects of a list are compressed at once, because they follow each other anyway. Changed objects wait, unless the
//!   store has a change log, which keeps states as they were written, or a budget, which has no room for encoded
//!   objects.

use std::sync::Arc;

use listwatch::Encoding;

use crate::StoreType;
use crate::compress::{
    CompressInput, Compression, ElidedObject, EncodeOutcome, RecompressedWhole, Reference, SampleChoice, StateId,
};
use crate::key::Identity;
use crate::state::entry::StorageFormat;
use crate::state::entry::{Entry, EntryForm, wire_len};
use crate::state::table::ObjectTable;
use crate::write::core::StoreCore;
use crate::write::writer::Writer;

/// An object to be written, and the entry that it replaces.
pub(crate) struct NewObject<'a> {
    pub(crate) known: Option<&'a Entry>,
    pub(crate) encoding: Encoding,
    pub(crate) bytes: &'a [u8],
    pub(crate) identity: &'a Identity<'a>,
}

impl<T: StoreType + ?Sized> StoreCore<T> {
    /// Returns the entry of an object, in the form in which the store keeps objects.
    pub(super) fn entry(&self, writer: &mut Writer<T>, object: &NewObject<'_>) -> Entry {
        let compressed = match writer.format {
            StorageFormat::Encoded => None,
            StorageFormat::Compressed => self.compressed_entry(writer, object),
        };
        compressed.unwrap_or_else(|| Self::encoded_entry(writer, object))
    }

    /// Returns the entry of an object as it arrived.
    pub(super) fn encoded_entry(writer: &mut Writer<T>, object: &NewObject<'_>) -> Entry {
        let NewObject { encoding, bytes, identity, .. } = *object;
        Entry::encoded(encoding, bytes, identity, || writer.namespaces.intern(&identity.namespace))
    }

    /// Returns the entry of a compressed object; `None` if it is not compressed.
    fn compressed_entry(&self, writer: &mut Writer<T>, object: &NewObject<'_>) -> Option<Entry> {
        let NewObject { known, encoding, bytes, identity } = *object;
        let delta = |body: &[u8], reference| Entry::delta(encoding, wire_len(bytes), identity, body, reference);
        let Writer { compression, namespaces, .. } = &mut *writer;
        let group = compression.group_of(encoding, bytes, &identity.namespace);
        let candidate = group.and_then(|group| self.find_state(compression.candidate(group)?));
        let candidate = candidate.filter(|(_, candidate)| known.is_none_or(|known| !known.is_same(candidate)));
        let input = CompressInput {
            bytes,
            identity,
            group,
            candidate: candidate.as_ref().and_then(|(_, candidate)| candidate.stored_whole()),
            replaced_reference: known.and_then(Entry::reference),
        };
        let new = match compression.encode(&input, namespaces) {
            EncodeOutcome::Delta { reference, body } => {
                let new = delta(body, reference);
                Self::renewed_delta(writer, new)
            }
            EncodeOutcome::FirstDelta { reference, body } => {
                let new = delta(body, reference);
                let new = Self::renewed_delta(writer, new);
                if let (Some((slot, candidate)), Some(reference)) = (&candidate, new.reference()) {
                    self.make_reference_entry(writer, *slot, candidate, Arc::clone(reference));
                }
                new
            }
            EncodeOutcome::Whole { shared, body, candidate_of } => {
                let new = Entry::whole(encoding, wire_len(bytes), identity, body, shared);
                if let Some(group) = candidate_of {
                    let key_hash = self.hash(&identity.namespace, &identity.name);
                    let state = StateId::new(key_hash, new.address());
                    writer.compression.set_candidate(group, state, |state| self.has_state(state));
                }
                new
            }
            EncodeOutcome::Incompressible => return None,
        };
        writer.compression.record_stored(new.allocated());
        Some(new)
    }

    /// Replaces the entry of a candidate, whose bytes are now the reference, by an empty delta.
    fn make_reference_entry(&self, writer: &mut Writer<T>, slot: u32, candidate: &Entry, reference: Arc<Reference>) {
        let (encoding, wire_len) = (candidate.encoding(), candidate.wire_len());
        let empty = Entry::delta(encoding, wire_len, &candidate.identity(), &[], reference);
        self.change_form(writer, slot, candidate, empty);
    }

    /// Returns the entry of a delta to a reference of the current dictionary, if there is such a reference with the
    /// same bytes.
    fn renewed_delta(writer: &mut Writer<T>, delta: Entry) -> Entry {
        let Writer { compression, namespaces, .. } = writer;
        let old = delta.compressed().filter(|object| compression.is_of_old_dictionary(object));
        let renewed = old.and_then(|object| compression.renew_reference(&object, delta.encoding(), namespaces));
        match renewed {
            Some(reference) => delta.to_reference(reference),
            None => delta,
        }
    }

    /// Trains a dictionary, if a training is due, on samples of all objects that are not stored as deltas. What was
    /// compressed before is then [renewed](Self::renew_some).
    pub(super) fn train_if_due(&self, writer: &mut Writer<T>) {
        if !writer.compression.is_training_due() {
            return;
        }
        // Empty deltas stand for their references.
        let is_whole = |entry: &&Entry| entry.reference().is_none() || entry.body().is_empty();
        let (mut count, mut len, mut untrained_len) = (0, 0, 0);
        for entry in self.state().entries().filter(is_whole) {
            count += 1;
            len += entry.wire_len() as usize;
            untrained_len += entry.compressed().map_or(0, |object| object.form.untrained_len());
        }
        if !writer.compression.pays_training(untrained_len) {
            return;
        }
        let choice = SampleChoice::of(count, len);
        let samples = |state: &ObjectTable| {
            let places = state.entries().filter(is_whole).zip(0..);
            places.filter(|(_, place)| choice.has(*place)).map(|(entry, _)| entry.clone()).collect::<Vec<_>>()
        };
        let samples = samples(&self.state());
        // One after the other, because the store has them compressed.
        let sample = |entry: &Entry| match entry.compressed() {
            Some(object) => self.codec.decoder.decode_elided(&object),
            None => Some(ElidedObject::of(&entry.identity(), &self.codec.bytes_of(entry).ok()?)?.into_bytes()),
        };
        writer.compression.train(samples.iter().filter_map(sample));
    }

    /// Compresses a few objects again, if they have another dictionary than the current one. Each write calls it.
    pub(super) fn renew_some(&self, writer: &mut Writer<T>) {
        if writer.format == StorageFormat::Compressed
            && let Some(renewal) = writer.compression.take_renewal()
        {
            let renewal = renewal.advance(writer.slots.count, |slot| self.renew_slot(writer, slot));
            writer.compression.put_renewal(renewal);
        }
    }

    /// Compresses the object of a slot with the current dictionary, unless it is. Returns the length of an object that
    /// it compressed.
    pub(super) fn renew_slot(&self, writer: &mut Writer<T>, slot: u32) -> Option<u32> {
        let old = self.entry_at(slot)?;
        let len = old.wire_len();
        let Some(object) = old.compressed() else {
            self.compress_slot(writer, slot);
            return Some(len);
        };
        if !writer.compression.is_of_old_dictionary(&object) {
            return None;
        }
        let Writer { compression, namespaces, .. } = &mut *writer;
        if old.reference().is_some() {
            match compression.renew_reference(&object, old.encoding(), namespaces) {
                Some(reference) => {
                    self.replace_form(writer, slot, &old, old.to_reference(reference));
                    // Of the bytes of a delta nothing is compressed.
                    return Some(0);
                }
                None => self.encode_again(writer, slot, &old),
            }
        } else if let Some(RecompressedWhole { shared, body, group }) =
            compression.compress_again(&object, old.encoding(), namespaces)
        {
            let new = Entry::whole(old.encoding(), old.wire_len(), &object.identity, body, shared);
            if let Some(group) = group {
                compression.move_candidate(group, old.address(), new.address());
            }
            self.replace_form(writer, slot, &old, new);
        } else {
            self.encode_again(writer, slot, &old);
        }
        Some(len)
    }

    /// Compresses the object of a slot, unless it is compressed.
    fn compress_slot(&self, writer: &mut Writer<T>, slot: u32) {
        let Some(old) = self.entry_at(slot) else { return };
        if !matches!(old.form(), EntryForm::Whole { .. } | EntryForm::Delta { .. }) {
            self.encode_again(writer, slot, &old);
        }
    }

    /// Compresses the state of a slot as if it was written. A compressed object that is not compressed again becomes
    /// encoded.
    fn encode_again(&self, writer: &mut Writer<T>, slot: u32, old: &Entry) {
        let stored = self.object(old);
        let Ok(bytes) = stored.encoded() else { return };
        let object = NewObject { known: Some(old), encoding: stored.encoding(), bytes, identity: &old.identity() };
        let is_compressed = old.compressed().is_some();
        let new = self.compressed_entry(writer, &object);
        let new = new.or_else(|| is_compressed.then(|| Self::encoded_entry(writer, &object)));
        drop(stored);
        if let Some(new) = new {
            self.replace_form(writer, slot, old, new);
        }
    }

    /// Returns true if an object of this length is kept encoded for now, and compressed together with others.
    pub(super) fn defers_compression(&self, writer: &Writer<T>, len: usize, listed: bool) -> bool {
        writer.format == StorageFormat::Compressed
            && !listed
            && !self.log.is_enabled()
            && writer.budget.limit.is_none()
            && Compression::may_defer(len)
    }

    /// Compresses the object of a slot together with others.
    pub(super) fn defer_compression(&self, writer: &mut Writer<T>, slot: u32, len: usize) {
        if writer.compression.defer(slot, len) {
            self.compress_deferred(writer);
        }
    }

    /// Compresses the objects that wait for it.
    pub(crate) fn compress_deferred(&self, writer: &mut Writer<T>) {
        for slot in writer.compression.take_deferred() {
            self.compress_slot(writer, slot);
        }
    }

    /// Compares later objects with the references of loaded objects.
    pub(crate) fn learn_references(writer: &mut Writer<T>, entries: &[Entry]) {
        let mut last = None;
        for entry in entries {
            let Some(reference) = entry.reference() else { continue };
            // Objects of a group are mostly neighbours. Learning a reference again changes nothing.
            if last.replace(Arc::as_ptr(reference)) != Some(Arc::as_ptr(reference))
                && let Some(object) = entry.compressed()
            {
                writer.compression.learn_reference(&object, entry.encoding());
            }
        }
    }

    /// Replaces the entry of a slot by another form of the same state, and the entries that subscribers have yet to
    /// receive. The caller has one reference to the old entry.
    fn replace_form(&self, writer: &mut Writer<T>, slot: u32, old: &Entry, new: Entry) {
        let is_held = old.references() > 2;
        if is_held {
            writer.subscribers.change_form(slot, old, &new);
        }
        self.change_form(writer, slot, old, new);
    }

    /// Replaces the entry of a slot by another form of the same state. What leaves the slot is what is subtracted.
    fn change_form(&self, writer: &mut Writer<T>, slot: u32, old: &Entry, new: Entry) {
        new.keep_marks_of(old);
        writer.usage.add(&new);
        let replaced = self.state_mut().slot_mut(slot).and_then(|held| held.replace(new));
        if let Some(replaced) = &replaced {
            writer.usage.subtract(replaced);
        }
    }
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
        for (name, json) in &members {
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
        let is_trained = || store.core.writer().compression.dictionary().is_some();
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
                writes_after -= usize::from(store.core.writer().compression.dictionary().is_some());
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
