//! Whether the store can hold an object: the budget, and the objects that were skipped.

use listwatch::internal::is_older;
use listwatch::{Encoding, ItemRef};

use crate::StoreType;
use crate::error::StoreError;
use crate::key::Identity;
use crate::state::entry::Entry;
use crate::write::budget::MEASURE;
use crate::write::compression::NewObject;
use crate::write::core::StoreCore;
use crate::write::origin::Origin;
use crate::write::writer::Writer;

impl<T: StoreType + ?Sized> StoreCore<T> {
    /// Records that the store could not hold an object. The commit of a list keeps the stored state of the object,
    /// unless that is newer than the listed state: then the rules of a commit decide.
    pub(crate) fn add_skipped(
        &self,
        writer: &mut Writer<T>,
        object: ItemRef<'_>,
        identity: Option<&Identity<'_>>,
        listed: bool,
    ) {
        let key = object.meta().ok().filter(|meta| !meta.name().is_empty());
        let hash = match key {
            Some(meta) => self.whole_hash((&*meta.namespace(), &*meta.name())),
            // A list has each object once, and the same bytes are the same object.
            None if listed => self.whole_hash(object.bytes()),
            // Whether two states are of the same object is unknown, so all count as one until the next list.
            None => self.whole_hash("an unreadable object"),
        };
        writer.skipped.add(hash, writer.relists.begun());
        if let Some(identity) = identity.filter(|_| listed)
            && let Some((slot, known)) = self.find(self.hash(&identity.namespace, &identity.name), identity)
            && !is_older(&identity.resource_version, &known.resource_version())
        {
            writer.relists.mark_slot(slot, Origin::List);
        }
    }

    /// Records that the store has the latest state of an object, or that the object was deleted.
    pub(super) fn clear_skipped(&self, writer: &mut Writer<T>, identity: &Identity<'_>, listed: bool) {
        if writer.skipped.len() == 0 {
            return;
        }
        let hash = self.whole_hash((&*identity.namespace, &*identity.name));
        if listed {
            writer.skipped.remove_listed(hash, writer.relists.begun());
        } else {
            writer.skipped.remove(hash);
        }
    }

    /// Measures the memory that is not counted with each write, at once, because it has changed much.
    pub(crate) fn measure_rest(&self, writer: &mut Writer<T>) {
        if writer.budget.limit.is_some() {
            writer.budget.until_measured = 0;
            self.measure_if_due(writer);
        }
    }

    fn measure_if_due(&self, writer: &mut Writer<T>) {
        if writer.budget.until_measured == 0 {
            writer.budget.rest = writer.measure(&self.objects, &self.log).total().saturating_sub(writer.counted());
            writer.budget.until_measured = (self.state().len() / 8).max(MEASURE);
        }
        writer.budget.until_measured -= 1;
    }

    /// Returns the entry for a slot, or for an object that is set aside, if there is room for it.
    pub(super) fn entry_in_budget(
        &self,
        writer: &mut Writer<T>,
        slot: Option<u32>,
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
    ) -> Result<Entry, StoreError> {
        let known = slot.and_then(|slot| self.entry_at(slot));
        let object = NewObject { known: known.as_ref(), encoding, bytes, identity };
        let entry = self.entry(writer, &object);
        let Some(budget) = writer.budget.limit else { return Ok(entry) };
        self.measure_if_due(writer);
        let old = known.as_ref().map_or(0, Entry::allocated);
        let new = entry.allocated();
        if new <= old || writer.used() + new - old <= budget {
            return Ok(entry);
        }
        writer.budget.reject(new - old);
        Err(StoreError::OverBudget(budget))
    }
}
