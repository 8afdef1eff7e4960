//! Loads a store from a file.
//!
//! A file may be damaged, forged, or of another collection. It must then change nothing, and allocate within limits. So
//! a load has two steps:
//!
//! 1. [`read`] checks the checksum before any record, then each record, and builds the entries beside the store. The
//!    budget is checked with a lower bound of each object before the object is expanded.
//! 2. [`put`] locks the writers out, and checks again that the store is empty and that the budget suffices. Then it
//!    writes the entries as if they arrived. Only user code of indexes can fail here.
//!
//! - Objects keep the form of the file, if the format of the store allows it. Expanding takes most of the time of a
//!   load, so each core expands a part.
//! - The number of relists is saved as `epoch`, so that it continues after a load.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread;

use crate::StoreType;
use crate::compress::{Base, Common, Compressor, Decompressor, Dictionary};
use crate::error::StoreError;
use crate::file::format::{
    BASE, BaseRecord, COMPRESSED, DICTIONARY, ENCODED, FileError, Head, Input, MAX_COMPRESSED, MAX_DICTIONARIES,
    MEMBER, OBJECT, Record,
};
use crate::form::{common, intern};
use crate::key::Identity;
use crate::state::entry::{Entry, Form, wire_len};
use crate::state::memory::Usage;
use crate::state::object::Object;
use crate::state::storage_format::StorageFormat;
use crate::write::core::StoreCore;
use listwatch::internal::is_older;

/// The fewest objects for which another thread pays.
const FEW: usize = 1024;

/// The contents of a file that was read and checked.
pub(crate) struct Saved<T: StoreType + ?Sized> {
    version: String,
    /// The version up to which it has all changes.
    resumes_from: String,
    epoch: u32,
    entries: Vec<Entry<T::Decoded>>,
    namespaces: HashSet<Arc<str>>,
    /// The store compressed new objects with the first.
    dictionaries: Vec<Arc<Dictionary>>,
    bases: Vec<Arc<Base>>,
    common: HashMap<Arc<str>, Weak<Common>>,
}

/// Reads a file, and converts its objects to the format of the store.
pub(crate) fn read<T: StoreType + ?Sized>(
    core: &StoreCore<T>,
    path: &Path,
    holds: &str,
) -> Result<Saved<T>, FileError> {
    let (format, budget) = {
        let writer = core.writer();
        (writer.format, writer.budget.clone())
    };
    let mut input = Input::open(path)?;
    let damaged = |offset| FileError::Damaged { what: "a malformed record", offset };
    let (at, head) = input.record()?.ok_or(damaged(0))?;
    let head = Head::parse(head).ok_or(damaged(at))?;
    if head.holds != holds {
        return Err(FileError::Foreign { found: head.holds.to_owned(), expected: holds.to_owned() });
    }
    let objects = head.objects;
    let mut saved = Saved::new(&head);
    let mut bytes = 0_usize;
    while let Some((at, record)) = input.record()? {
        let (what, rest) = record.split_first().ok_or(damaged(at))?;
        match *what {
            DICTIONARY if saved.dictionaries.len() < MAX_DICTIONARIES => {
                saved.dictionaries.push(Arc::new(Dictionary::new(rest).ok_or(damaged(at))?));
            }
            BASE => {
                let record = BaseRecord::parse(rest).ok_or(damaged(at))?;
                bytes = bytes.saturating_add(Base::allocated(record.body.len()));
                budget.check_empty_store(bytes)?;
                saved.base(&core.codec.decompressor, &record).ok_or(damaged(at))?;
            }
            OBJECT => {
                let record = Record::parse(rest).ok_or(damaged(at))?;
                bytes = bytes.saturating_add(record.size::<T::Decoded>(format));
                budget.check_empty_store(bytes)?;
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
    entries: &mut [Entry<T::Decoded>],
    namespaces: &HashSet<Arc<str>>,
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
    entry: &mut Entry<T::Decoded>,
    namespaces: &HashSet<Arc<str>>,
    format: StorageFormat,
) -> Result<(), FileError> {
    let is_converted = match entry.form() {
        Form::Encoded(_) | Form::EncodedWithHead(_) => format != StorageFormat::Decoded,
        Form::Compressed(_) | Form::Member(_) => format == StorageFormat::Compressed,
        Form::Decoded(_) => true,
    };
    if is_converted {
        return Ok(());
    }
    let object = core.object(entry);
    let (encoding, bytes) = (object.encoding(), object.encoded().map_err(StoreError::from)?);
    let identity = Identity::of(encoding, bytes)?;
    // Only in a forged file the namespace is unknown.
    let namespace = || namespaces.get(&*identity.namespace).cloned().unwrap_or_else(|| (*identity.namespace).into());
    *entry = if format == StorageFormat::Decoded {
        let decoded = Arc::new(T::decode(encoding, bytes).map_err(StoreError::from)?);
        let form = Form::Decoded(Box::new((namespace(), decoded)));
        Entry::with_head(encoding, wire_len(bytes), &identity, &[], form)
    } else {
        Entry::encoded(encoding, bytes, &identity, namespace)
    };
    Ok(())
}

/// Puts the objects of a file into the empty store.
pub(crate) fn put<T: StoreType + ?Sized>(core: &StoreCore<T>, saved: Saved<T>) -> Result<(), FileError> {
    let mut writer = core.writer();
    let writer = &mut *writer;
    let was_written = {
        let state = core.state();
        state.len() > 0 || !state.version.is_empty()
    };
    if writer.relists.begun() > 0 || was_written {
        return Err(FileError::NotEmpty);
    }
    // The budget may have changed since `read_saved`.
    let bytes = saved.entries.iter().map(Usage::of).sum::<usize>();
    let bytes = bytes + core.codec.decompressor.base_bytes();
    writer.budget.check_empty_store(bytes)?;
    writer.relists.set_begun(saved.epoch.into());
    writer.namespaces.extend(saved.namespaces);
    if let (StorageFormat::Compressed, Some(dictionary)) = (writer.format, saved.dictionaries.first()) {
        writer.compressor.get_or_insert_with(Compressor::new).adopt(Arc::clone(dictionary));
    }
    if writer.format == StorageFormat::Compressed {
        core.find_families(writer, &saved.entries);
    }
    for entry in saved.entries {
        let identity = entry.identity();
        let hash = core.hash(&identity.namespace, &identity.name);
        // Only a forged file has an object twice.
        if core.find(hash, &identity).is_none() {
            core.put_object(writer, hash, None, &Object::for_functions(&entry, &core.codec));
        }
    }
    core.state_mut().version = saved.version;
    writer.subscribers.notify_synced();
    Ok(())
}

impl<T: StoreType + ?Sized> Saved<T> {
    fn new(head: &Head<'_>) -> Self {
        Self {
            version: head.version.to_owned(),
            resumes_from: head.resumes_from.to_owned(),
            epoch: head.epoch,
            entries: Vec::new(),
            namespaces: HashSet::new(),
            dictionaries: Vec::new(),
            bases: Vec::new(),
            common: HashMap::new(),
        }
    }

    /// Returns the entry of an object, in the form of the file; `None` if the record is malformed.
    fn entry(&mut self, record: &Record<'_>) -> Result<Option<Entry<T::Decoded>>, FileError> {
        let namespace = intern(&mut self.namespaces, &record.identity.namespace);
        if record.form == ENCODED {
            if record.body.len() != record.wire_len as usize {
                return Ok(None);
            }
            let identity = Identity::of(record.encoding, record.body)?;
            return Ok(Some(Entry::encoded(record.encoding, record.body, &identity, || namespace)));
        }
        {
            let Record { encoding, form, wire_len, ref identity, body } = *record;
            let form = match form.checked_sub(MEMBER) {
                Some(at) => self
                    .bases
                    .get(usize::try_from(at).unwrap_or(usize::MAX))
                    .filter(|base| base.namespace == namespace && (!body.is_empty() || base.wire_len == wire_len))
                    .map(|base| Form::Member(Arc::clone(base))),
                None => self.common(form, &namespace).map(Form::Compressed),
            };
            let form = form.filter(|_| wire_len <= MAX_COMPRESSED);
            Ok(form.map(|form| Entry::with_head(encoding, wire_len, identity, body, form)))
        }
    }

    /// Returns what compressed objects of this form have in common; `None` if the file does not have the dictionary.
    fn common(&mut self, form: u64, namespace: &str) -> Option<Arc<Common>> {
        let dictionary = match form.checked_sub(COMPRESSED)? {
            0 => None,
            at => Some(Arc::clone(self.dictionaries.get(usize::try_from(at - 1).ok()?)?)),
        };
        Some(common(&mut self.common, &mut self.namespaces, namespace, dictionary))
    }

    /// Adds a base; `None` if the record is malformed.
    fn base(&mut self, decompressor: &Decompressor, record: &BaseRecord<'_>) -> Option<()> {
        let common = self.common(record.form, record.namespace)?;
        self.bases.push(decompressor.new_base(&common, record.body, record.wire_len));
        Some(())
    }
}

impl<T: StoreType + ?Sized> Saved<T> {
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
