//! Loads a store from a file.
//!
//! A file may be damaged, forged, or of another collection. It must then change nothing, and allocate within limits, so
//! a load has two steps:
//!
//! 1. [`read`] checks the checksum before any record, then each record, and builds the entries beside the store. The
//!    budget is checked with a lower bound of each object before the object is expanded.
//! 2. [`put`] locks writers out, and checks again that the store is empty and that the budget suffices. Then it writes
//!    the entries as if they arrived. Only user code of indexes can fail here.
//!
//! - Objects keep the form of the file, if the format of the store allows it. Expanding takes most of the time of a
//!   load, so each core expands a part.
//! - The number of relists is saved as `epoch`, so that it continues after a load.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use listwatch::internal::is_older;
use listwatch::{ItemRef, StoreType};

use crate::compress::decoder::Decoder;
use crate::compress::dictionary::{Dictionary, NamespaceDictionaries, NamespaceDictionary, StoredWhole};
use crate::compress::pool::Reference;
use crate::error::StoreError;
use crate::file::format::{
    COMPRESSED, DELTA, DICTIONARY, ENCODED, FileError, FileHead, FileInput, MAX_COMPRESSED, MAX_DICTIONARIES, OBJECT,
    ObjectRecord, REFERENCE, ReferenceRecord,
};
use crate::key::{Identity, Namespaces};
use crate::state::entry::StorageFormat;
use crate::state::entry::{Entry, EntryForm};
use crate::state::object::Object;
use crate::write::capacity::check_empty_store;
use crate::write::core::StoreCore;

/// The fewest objects for which another thread pays off.
const FEW: usize = 1024;

pub(crate) struct SavedStore {
    version: String,
    /// The version up to which it contains all changes.
    resumes_from: String,
    epoch: u32,
    entries: Vec<Entry>,
    namespaces: Namespaces,
    dictionaries: LoadedDictionaries,
}

/// Reads a file, and converts its objects to the format of the store.
pub(crate) fn read<T: StoreType + ?Sized>(
    core: &StoreCore<T>,
    path: &Path,
    holds: &str,
) -> Result<SavedStore, FileError> {
    let (format, budget) = {
        let writer = core.writer();
        (writer.compressor.format, writer.budget.limit)
    };
    let mut input = FileInput::open(path)?;
    let damaged = |offset| FileError::Damaged { what: "a malformed record", offset };
    let (at, head) = input.record()?.ok_or(damaged(0))?;
    let head = FileHead::parse(head).ok_or(damaged(at))?;
    if head.holds != holds {
        return Err(FileError::Foreign { found: head.holds.to_owned(), expected: holds.to_owned() });
    }
    let objects = head.objects;
    let mut saved = SavedStore::new(&head);
    let mut bytes = 0_usize;
    while let Some((at, record)) = input.record()? {
        let (what, rest) = record.split_first().ok_or(damaged(at))?;
        match *what {
            DICTIONARY if saved.dictionaries.len() < MAX_DICTIONARIES => {
                saved.dictionaries.add_dictionary(rest).ok_or(damaged(at))?;
            }
            REFERENCE => {
                let record = ReferenceRecord::parse(rest).ok_or(damaged(at))?;
                bytes = bytes.saturating_add(Reference::allocated(record.body.len()));
                check_empty_store(budget, bytes)?;
                let shared = saved.namespace_dictionary(record.form, record.namespace).ok_or(damaged(at))?;
                saved.dictionaries.add_reference(&core.objects.codec.decoder, &shared, record.body, record.wire_len);
            }
            OBJECT => {
                let record = ObjectRecord::parse(rest).ok_or(damaged(at))?;
                bytes = bytes.saturating_add(record.size(format));
                check_empty_store(budget, bytes)?;
                let entry = saved.entry(&record)?;
                saved.entries.push(entry.ok_or(damaged(at))?);
            }
            _ => return Err(damaged(at)),
        }
    }
    if saved.entries.len() as u64 != objects {
        return Err(FileError::Damaged { what: "wrong number of objects", offset: at });
    }
    expand(core, &mut saved.entries, &saved.namespaces, format)?;
    Ok(saved)
}

/// Converts objects to the format of the store. This takes most of the time of a load, so each core converts a part.
fn expand<T: StoreType + ?Sized>(
    core: &StoreCore<T>,
    entries: &mut [Entry],
    namespaces: &Namespaces,
    format: StorageFormat,
) -> Result<(), FileError> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let part = entries.len().div_ceil(threads).max(FEW);
    thread::scope(|scope| {
        let expand = |entry| expand_one(core, entry, namespaces, format);
        let parts = entries.chunks_mut(part).map(|part| scope.spawn(move || part.iter_mut().try_for_each(expand)));
        let parts: Vec<_> = parts.collect();
        parts.into_iter().try_for_each(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

fn expand_one<T: StoreType + ?Sized>(
    core: &StoreCore<T>,
    entry: &mut Entry,
    namespaces: &Namespaces,
    format: StorageFormat,
) -> Result<(), FileError> {
    let is_converted = match entry.form() {
        EntryForm::Encoded { .. } | EntryForm::EncodedWithHead { .. } => true,
        EntryForm::Whole { .. } | EntryForm::Delta { .. } => format == StorageFormat::Compressed,
    };
    if is_converted {
        return Ok(());
    }
    let object = core.objects.object(entry);
    let (encoding, bytes) = (object.encoding(), object.encoded().map_err(StoreError::from)?);
    let identity = Identity::of(ItemRef::new(encoding, bytes))?;
    // The namespace is unknown only in a forged file.
    let namespace = || namespaces.get(&identity.namespace).unwrap_or_else(|| (*identity.namespace).into());
    *entry = Entry::encoded(encoding, bytes, &identity, namespace);
    Ok(())
}

pub(crate) fn put<T: StoreType + ?Sized>(core: &StoreCore<T>, saved: SavedStore) -> Result<(), FileError> {
    let (mut writer, objects) = (core.writer(), &core.objects);
    let writer = &mut *writer;
    let was_written = {
        let state = objects.state();
        state.len() > 0 || !state.version.is_empty()
    };
    if writer.relists.begun() > 0 || was_written {
        return Err(FileError::NotEmpty);
    }
    // The budget may have changed since `read_saved`.
    let bytes = saved.entries.iter().map(Entry::allocated).sum::<usize>();
    let bytes = bytes + writer.compressor.compression.reference_bytes();
    check_empty_store(writer.budget.limit, bytes)?;
    writer.relists.set_begun(saved.epoch.into());
    writer.compressor.namespaces.extend(saved.namespaces);
    writer.compressor.adopt(saved.dictionaries.dictionaries(), &saved.entries);
    for entry in saved.entries {
        let identity = entry.identity();
        let hash = objects.hash(&identity.namespace, &identity.name);
        // Only a forged file contains an object twice.
        if objects.find(hash, &identity).is_none() {
            let object = Object::for_functions(&entry, &objects.codec);
            let slot = writer.placement.put(objects, hash, None, &object);
            // A write of others, which the resumed watch must deliver.
            if is_older(&saved.version, &identity.resource_version) {
                let key_hash = objects.whole_hash((&*identity.namespace, &*identity.name));
                writer.relists.add_unconfirmed(slot, key_hash, &identity.resource_version);
            }
        }
    }
    writer.relists.unconfirmed.sort();
    objects.state_mut().version = saved.version;
    writer.placement.subscribers.notify_synced();
    Ok(())
}

impl SavedStore {
    fn new(head: &FileHead<'_>) -> Self {
        Self {
            version: head.version.to_owned(),
            resumes_from: head.resumes_from.to_owned(),
            epoch: head.epoch,
            entries: Vec::new(),
            namespaces: Namespaces::default(),
            dictionaries: LoadedDictionaries::default(),
        }
    }

    /// Returns the entry of an object, in the form of the file; `None` if the record is malformed.
    fn entry(&mut self, record: &ObjectRecord<'_>) -> Result<Option<Entry>, FileError> {
        let namespace = self.namespaces.intern(&record.identity.namespace);
        if record.form == ENCODED {
            if record.body.len() != record.wire_len as usize {
                return Ok(None);
            }
            let identity = Identity::of(ItemRef::new(record.encoding, record.body))?;
            return Ok(Some(Entry::encoded(record.encoding, record.body, &identity, || namespace)));
        }
        let ObjectRecord { encoding, form, wire_len, ref identity, body } = *record;
        if wire_len > MAX_COMPRESSED {
            return Ok(None);
        }
        Ok(match form.checked_sub(DELTA) {
            Some(at) => {
                let fits = |reference: &&Arc<Reference>| {
                    *reference.namespace() == namespace && (!body.is_empty() || reference.object().wire_len == wire_len)
                };
                let reference = self.dictionaries.reference(at).filter(fits);
                reference.map(|reference| Entry::delta(encoding, wire_len, identity, body, Arc::clone(reference)))
            }
            None => self
                .namespace_dictionary(form, &namespace)
                .map(|shared| Entry::whole(encoding, wire_len, identity, body, shared)),
        })
    }

    /// Returns what objects of this form share; `None` if the file does not have the dictionary.
    fn namespace_dictionary(&mut self, form: u64, namespace: &str) -> Option<Arc<NamespaceDictionary>> {
        let dictionary = form.checked_sub(COMPRESSED)?.checked_sub(1);
        self.dictionaries.namespace_dictionary(&mut self.namespaces, namespace, dictionary)
    }
}

impl SavedStore {
    pub(crate) fn resumes_from(&self) -> &str {
        &self.resumes_from
    }

    /// Returns objects that identify a server's history: the object that was changed last, which a server that went
    /// back in time does not have, and the object that has been unchanged for longest, which a server of the same
    /// history most likely still has.
    pub(crate) fn identifying_objects(&self) -> Vec<Identity<'_>> {
        let all = self.entries.iter().map(|entry| entry.identity());
        // Some servers may not have an object yet that was applied ahead of the watch.
        let all = all.filter(|object| !is_older(&self.version, &object.resource_version));
        let older = |a: &Identity<'_>, b: &Identity<'_>| is_older(&a.resource_version, &b.resource_version);
        let newest = all.clone().reduce(|newest, next| if older(&newest, &next) { next } else { newest });
        let oldest = all.reduce(|oldest, next| if older(&next, &oldest) { next } else { oldest });
        let oldest = oldest.filter(|oldest| newest.as_ref() != Some(oldest));
        newest.into_iter().chain(oldest).collect()
    }
}

/// The dictionaries and references of a file, which number them in their order.
#[derive(Default)]
struct LoadedDictionaries {
    dictionaries: Vec<Arc<Dictionary>>,
    references: Vec<Arc<Reference>>,
    by_namespace: NamespaceDictionaries,
}

impl LoadedDictionaries {
    fn len(&self) -> usize {
        self.dictionaries.len()
    }

    /// Returns the dictionaries. The store compressed new objects with the first.
    fn dictionaries(&self) -> &[Arc<Dictionary>] {
        &self.dictionaries
    }

    /// Adds a dictionary; returns `None` if zstd refuses the bytes.
    fn add_dictionary(&mut self, bytes: &[u8]) -> Option<()> {
        self.dictionaries.push(Arc::new(Dictionary::new(bytes)?));
        Some(())
    }

    /// Adds a reference to which objects of this file are deltas.
    fn add_reference(&mut self, decoder: &Decoder, shared: &Arc<NamespaceDictionary>, body: &[u8], wire_len: u32) {
        self.references.push(decoder.new_reference(StoredWhole { shared, body, wire_len }));
    }

    /// Returns what objects of the namespace share that are compressed with this dictionary, or without one; `None` if
    /// the file does not have the dictionary.
    fn namespace_dictionary(
        &mut self,
        namespaces: &mut Namespaces,
        namespace: &str,
        dictionary: Option<u64>,
    ) -> Option<Arc<NamespaceDictionary>> {
        let dictionary = match dictionary {
            None => None,
            Some(at) => Some(Arc::clone(self.dictionaries.get(usize::try_from(at).ok()?)?)),
        };
        Some(self.by_namespace.get(namespaces, namespace, dictionary))
    }

    fn reference(&self, at: u64) -> Option<&Arc<Reference>> {
        self.references.get(usize::try_from(at).ok()?)
    }
}
