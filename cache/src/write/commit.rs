//! The commit of a relist: see [`relist`](super::relist) for the rules.

use crate::StoreType;
use crate::error::StoreError;
use crate::state::object::Object;
use crate::subscribe::change::Change;
use crate::write::core::StoreCore;
use crate::write::relist::Fate;
use crate::write::writer::Writer;

impl<T: StoreType + ?Sized> StoreCore<T> {
    /// Commits a list: deletes the objects that it does not have, and restores the older states that were set aside,
    /// unless the store is ahead of the list.
    pub(crate) fn commit(&self, relist: u64, version: &str) -> Result<Vec<Change<T>>, StoreError> {
        let mut writer = self.writer();
        let writer = &mut *writer;
        let (mut open, ahead) = writer.relists.begin_commit(relist).ok_or(StoreError::Superseded)?;
        let list = open.version(version);
        let mut changes = Vec::new();
        // Until the end, because an index function may panic.
        writer.relists.is_mixed = true;
        // In descending order, so that the lowest free slots are reused first.
        for slot in (0..writer.slots.count).rev() {
            if open.keeps_state(slot) {
                continue;
            }
            let Some(known) = self.entry_at(slot) else { continue };
            let (namespace, name) = known.key();
            let hash = self.hash(namespace, name);
            match open.decide(slot, &known.resource_version(), &list, &ahead) {
                Fate::Stays => {}
                Fate::StaysUnconfirmed => {
                    let key_hash = self.whole_hash((namespace, name));
                    writer.relists.add_unconfirmed(slot, key_hash, &known.resource_version());
                }
                Fate::Replaced(staged) => {
                    self.put_object(writer, hash, Some(slot), &Object::for_functions(&staged, &self.codec));
                    changes.push(Change::Applied { old: Some(self.object(&known)), new: self.object(&staged) });
                }
                Fate::Deleted => {
                    self.remove_object(writer, hash, slot, &known, true);
                    changes.push(Change::Deleted {
                        old: self.object(&known),
                        last: self.object(&known),
                        final_state_unknown: true,
                    });
                }
            }
        }
        writer.relists.end_commit(&list, |key| self.whole_hash((&*key.namespace, &*key.name)));
        for (key, staged) in open.take_staged_deleted() {
            let hash = self.hash(&key.namespace, &key.name);
            if !writer.relists.is_deleted(&key) && self.find(hash, &staged.identity()).is_none() {
                self.put_object(writer, hash, None, &Object::for_functions(&staged, &self.codec));
                changes.push(Change::Applied { old: None, new: self.object(&staged) });
            }
        }
        writer.relists.is_mixed = false;
        writer.skipped.forget_before(relist);
        self.shrink(writer, version);
        self.compress_deferred(writer);
        writer.compression.free_tables();
        self.measure_rest(writer);
        let used = writer.used();
        writer.budget.record_list(writer.skipped.len(), used);
        writer.subscribers.notify_synced();
        Ok(changes)
    }

    /// Frees memory that a smaller collection does not need.
    fn shrink(&self, writer: &mut Writer<T>, version: &str) {
        writer.compression.forget_dropped(|state| self.has_state(state));
        let slots = self.objects.shrink(version);
        writer.slots.shrink_to(slots);
        writer.namespaces.forget_unused();
    }
}
