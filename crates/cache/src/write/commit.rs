//! The commit of a relist: see [`relist`](super::relist) for the rules.
//!
//! A list may lack a million objects of the store, so the commit takes steps, and others may write between two of them,
//! as they do while the list arrives. The relist stays open until the last step. Until then, the version of the
//! collection does not advance, and the store is neither saved nor logged.

use listwatch::StoreType;

use crate::error::StoreError;
use crate::key::ObjectKey;
use crate::state::entry::Entry;
use crate::state::object::Object;
use crate::state::objects::Objects;
use crate::write::core::StoreCore;
use crate::write::relist::Fate;
use crate::write::writer::Writer;

/// How many objects a step may delete or replace, and how many slots it may visit.
const MOST_CHANGES: usize = 256;
const MOST_SLOTS: u32 = 16 << 10;

pub(crate) struct Commit {
    relist: u64,
    version: String,
    next: CommitStep,
}

#[derive(Clone, Copy)]
enum CommitStep {
    Begin,
    /// Deletes and replaces objects of the slots below this one, in descending order.
    ///
    /// This order reuses the lowest free slots first.
    Sweep(u32),
    /// Forgets delta groups and namespaces that are not used any more.
    ForgetDropped,
    /// Makes the table smaller.
    Shrink,
    Finish,
}

impl Commit {
    /// Begins the commit of a list at its version.
    pub(crate) fn new(relist: u64, version: &str) -> Self {
        Self { relist, version: version.to_owned(), next: CommitStep::Begin }
    }
}

impl Commit {
    /// Takes the next step. Returns true after the last one.
    pub(crate) fn advance<T: StoreType + ?Sized>(&mut self, core: &StoreCore<T>) -> Result<bool, StoreError> {
        let (mut writer, objects) = (core.writer(), &core.objects);
        let writer = &mut *writer;
        writer.relists.open_mut(self.relist).ok_or(StoreError::Superseded)?;
        self.next = match self.next {
            CommitStep::Begin => {
                writer.relists.begin_commit(&self.version);
                CommitStep::Sweep(writer.placement.slots.count)
            }
            CommitStep::Sweep(below) => match self.sweep(objects, writer, below) {
                0 => CommitStep::ForgetDropped,
                below => CommitStep::Sweep(below),
            },
            CommitStep::ForgetDropped => {
                writer.compressor.compression.forget_dropped(objects);
                writer.compressor.namespaces.forget_unused();
                CommitStep::Shrink
            }
            CommitStep::Shrink => {
                writer.placement.slots.shrink_to(objects.shrink());
                CommitStep::Finish
            }
            CommitStep::Finish => {
                self.finish(core, writer);
                return Ok(true);
            }
        };
        Ok(false)
    }

    /// Deletes the objects that the list does not contain, and restores the older states that were set aside, unless
    /// the store is ahead of the list. Returns the slot below which it has yet to look.
    fn sweep<T: StoreType + ?Sized>(&self, objects: &Objects<T>, writer: &mut Writer<T>, mut below: u32) -> u32 {
        let lowest = below.saturating_sub(MOST_SLOTS);
        let mut changes = 0;
        while below > lowest && changes < MOST_CHANGES {
            below -= 1;
            let slot = below;
            let Some(open) = writer.relists.open_mut(self.relist).filter(|open| !open.keeps_state(slot)) else {
                continue;
            };
            let Some(known) = objects.entry_at(slot) else { continue };
            let (namespace, name) = known.key();
            let hash = objects.hash(namespace, name);
            changes += 1;
            match open.decide(slot, &known.resource_version(), &self.version) {
                Fate::Stays => {}
                Fate::StaysUnconfirmed => {
                    let key_hash = objects.whole_hash((namespace, name));
                    writer.relists.add_unconfirmed(slot, key_hash, &known.resource_version());
                }
                Fate::Replaced(staged) => restore(objects, writer, hash, Some(slot), &staged),
                Fate::Deleted => writer.remove(objects, hash, slot, &known, true),
            }
        }
        below
    }

    fn finish<T: StoreType + ?Sized>(&self, core: &StoreCore<T>, writer: &mut Writer<T>) {
        let objects = &core.objects;
        let hash = |key: &ObjectKey| objects.whole_hash((&*key.namespace, &*key.name));
        for (key, staged) in writer.relists.end_commit(&self.version, hash) {
            let hash = objects.hash(&key.namespace, &key.name);
            if !writer.relists.is_deleted(&key) && objects.find(hash, &staged.identity()).is_none() {
                restore(objects, writer, hash, None, &staged);
            }
        }
        writer.skipped.forget_before(self.relist);
        self.version.clone_into(&mut objects.state_mut().version);
        writer.compress_pending(objects);
        writer.compressor.compression.free_tables();
        writer.measure_rest(objects, &core.log);
        let used = writer.used();
        writer.budget.record_list(writer.skipped.len(), used);
        writer.placement.subscribers.notify_synced();
    }
}

/// Restores a state that was set aside, which was compressed when the list began.
fn restore<T: StoreType + ?Sized>(
    objects: &Objects<T>,
    writer: &mut Writer<T>,
    hash: u32,
    slot: Option<u32>,
    staged: &Entry,
) {
    let object = Object::for_functions(staged, &objects.codec);
    let slot = writer.placement.put(objects, hash, slot, &object);
    writer.compressor.renew_slot(objects, &mut writer.placement, slot);
}

#[cfg(test)]
mod tests {
    use listwatch::Encoding;

    use super::*;
    use crate::{ApplyOutcome, FileError, StorageFormat, Store};

    const OBJECTS: usize = 1000;

    fn write(store: &Store<[u8]>, i: usize, version: u32) -> ApplyOutcome<[u8]> {
        store.apply(Encoding::Json, &json(i, version)).unwrap()
    }

    fn json(i: usize, version: u32) -> Vec<u8> {
        format!(r#"{{"metadata":{{"name":"{i}","uid":"{i}","resourceVersion":"{version}"}}}}"#).into_bytes()
    }

    fn filled() -> Store<[u8]> {
        let store = Store::new(StorageFormat::Encoded);
        (0..OBJECTS).for_each(|i| drop(write(&store, i, 1)));
        store.advance("5");
        store
    }

    #[test]
    fn a_step_changes_a_few_objects_and_the_last_one_advances_the_version() {
        let (store, folder) = (filled(), tempfile::tempdir().unwrap());
        let mut relist = store.begin_relist();
        assert!(relist.apply(Encoding::Json, &json(7, 1)).is_ok());
        // Older than the store's state.
        drop(write(&store, 8, 9));
        let mut commit = relist.begin_commit("10");
        let (mut steps, mut before) = (0, OBJECTS);
        while !commit.advance().unwrap() {
            assert_eq!(store.resource_version(), "5");
            let saved = store.save(folder.path().join("saved"), "objects");
            assert!(matches!(saved, Err(FileError::Incomplete)));
            assert!(before - store.len() <= MOST_CHANGES, "{before} {}", store.len());
            (steps, before) = (steps + 1, store.len());
        }
        assert!(steps > OBJECTS / MOST_CHANGES, "{steps}");
        assert_eq!((store.len(), &*store.resource_version()), (1, "10"));
        store.save(folder.path().join("saved"), "objects").unwrap();
    }

    #[test]
    fn others_write_between_two_steps() {
        let store = filled();
        let mut commit = store.begin_relist().begin_commit("10");
        // The last slots are visited first.
        while store.len() == OBJECTS {
            assert!(!commit.advance().unwrap());
        }
        let is_gone = |i: usize| store.get(("", &*i.to_string())).is_none();
        assert!(is_gone(OBJECTS - 1) && !is_gone(0));
        for (i, version, expected) in [
            // Of objects that are deleted already: an object at a version that the list has is late.
            (OBJECTS - 1, 9, None),
            (OBJECTS - 2, 10, None),
            (OBJECTS - 3, 11, Some("11")),
            // Of objects that the commit has yet to visit.
            (0, 9, None),
            (1, 11, Some("11")),
            // New objects.
            (OBJECTS, 10, None),
            (OBJECTS + 1, 11, Some("11")),
        ] {
            let outcome = write(&store, i, version);
            let is_late = expected.is_none() && i > 0;
            assert_eq!(matches!(outcome, ApplyOutcome::Stale), is_late, "{i} {outcome:?}");
        }
        while !commit.advance().unwrap() {}
        let mut left: Vec<_> = store.snapshot().iter().map(|object| object.name().parse::<usize>().unwrap()).collect();
        left.sort_unstable();
        assert_eq!(left, [1, OBJECTS - 3, OBJECTS + 1]);
    }

    #[test]
    fn a_relist_that_begins_during_a_commit_supersedes_it() {
        let (store, folder) = (filled(), tempfile::tempdir().unwrap());
        let mut commit = store.begin_relist().begin_commit("10");
        while store.len() == OBJECTS {
            assert!(!commit.advance().unwrap());
        }
        let mut relist = store.begin_relist();
        assert!(matches!(commit.advance(), Err(StoreError::Superseded)));
        drop(commit);
        let left = store.len();
        assert!((1..OBJECTS).contains(&left), "{left}");
        assert!(matches!(store.save(folder.path().join("saved"), "objects"), Err(FileError::Incomplete)));
        (0..OBJECTS).for_each(|i| assert!(relist.apply(Encoding::Json, &json(i, 1)).is_ok()));
        relist.commit("11").unwrap();
        assert_eq!((store.len(), &*store.resource_version()), (OBJECTS, "11"));
        // So does one that is dropped.
        let mut commit = store.begin_relist().begin_commit("12");
        assert!(!commit.advance().unwrap() && !commit.advance().unwrap());
        drop(commit);
        assert_eq!(store.resource_version(), "11");
        assert!(matches!(store.save(folder.path().join("saved"), "objects"), Err(FileError::Incomplete)));
        store.begin_relist().commit("13").unwrap();
        assert_eq!((store.len(), &*store.resource_version()), (0, "13"));
    }
}
