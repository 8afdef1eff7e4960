//! What a store does when its objects take too much memory.

use std::sync::Arc;

use super::entry::Entry;
use super::object::{ObjectRef, Stored};
#[cfg(feature = "zstd")]
use super::store::Residency;
use super::store::{Held, Store, StoreError, Writer};

/// How much memory a [`Store`] may take, and what happens at the limit: see [`Store::set_budget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Budget {
    /// As much as it takes.
    #[default]
    Unlimited,
    /// So many bytes. A write for which there is no room is refused.
    Refuse(usize),
    /// So many bytes. At the limit, what is written is compressed from then on, and with each write a few of the objects that
    /// are there: as many as it takes to make room. A write for which there is no room even so is refused.
    #[cfg(feature = "zstd")]
    Compress(usize),
}

impl Budget {
    fn bytes(self) -> Option<usize> {
        match self {
            Self::Unlimited => None,
            Self::Refuse(bytes) => Some(bytes),
            #[cfg(feature = "zstd")]
            Self::Compress(bytes) => Some(bytes),
        }
    }
}

/// How a store keeps to its budget.
#[derive(Default)]
pub(super) struct Spending {
    budget: Budget,
    /// What is not counted with each write: the table, indexes, and what a replace put aside.
    rest: usize,
    /// Writes until that is measured again.
    until_measured: usize,
    /// Up to which slot objects were compressed, since there was no room for the first time.
    #[cfg(feature = "zstd")]
    compressed_to: Option<u32>,
}

impl Spending {
    /// Whether there is room for so many bytes in a store that is empty.
    pub(super) fn check(&self, bytes: usize) -> Result<(), StoreError> {
        match self.budget.bytes() {
            Some(budget) if bytes > budget => Err(StoreError::OverBudget(budget)),
            _ => Ok(()),
        }
    }
}

/// The rest is measured after an eighth as many writes as there are objects, and at least so many.
const MEASURE: usize = 64;

/// So many objects that are there are compressed with each write.
#[cfg(feature = "zstd")]
const STEP: usize = 8;

impl<T: Stored + ?Sized> Store<T> {
    /// How much memory it may take from now on, counted as [`memory`](Self::memory) does. What is there stays, even if it is
    /// more, and so does a write that makes it less.
    ///
    /// Objects are counted with each write. The rest, indexes for example, is measured after an eighth as many writes as
    /// there are objects, by going through the indexes; it may be over the limit by what came to it in between. Not counted are
    /// subscribers, and objects that only callers hold.
    pub fn set_budget(&self, budget: Budget) {
        self.writer().spending = Spending { budget, ..Spending::default() };
    }

    /// The entry that is to be in this slot, or beside all of them, if there is room for it; a smaller one if that makes room.
    #[cfg_attr(not(feature = "zstd"), expect(unused_variables))]
    pub(super) fn in_budget(
        &self,
        writer: &mut Writer<T>,
        slot: Option<u32>,
        entry: Arc<Entry<T::Decoded>>,
        object: &ObjectRef<'_, T>,
    ) -> Result<Arc<Entry<T::Decoded>>, StoreError> {
        let Some(bytes) = writer.spending.budget.bytes() else { return Ok(entry) };
        self.measure_if_due(writer);
        #[cfg(feature = "zstd")]
        let entry = match writer.spending.budget {
            Budget::Compress(_) => self.make_room(writer, bytes, slot, entry, object)?,
            _ => entry,
        };
        if self.has_room(writer, bytes, slot, &entry) { Ok(entry) } else { Err(StoreError::OverBudget(bytes)) }
    }

    fn has_room(&self, writer: &Writer<T>, budget: usize, slot: Option<u32>, entry: &Entry<T::Decoded>) -> bool {
        let held = slot.and_then(|slot| self.state().get(slot).map(|held| Held::size(held)));
        let (new, old) = (Held::size(entry), held.unwrap_or_default());
        new <= old || writer.held.total() + writer.spending.rest + new - old <= budget
    }

    fn measure_if_due(&self, writer: &mut Writer<T>) {
        if writer.spending.until_measured == 0 {
            writer.spending.rest = self.measure(writer).total().saturating_sub(writer.held.total());
            writer.spending.until_measured = (self.len() / 8).max(MEASURE);
        }
        writer.spending.until_measured -= 1;
    }

    #[cfg(feature = "zstd")]
    fn make_room(
        &self,
        writer: &mut Writer<T>,
        budget: usize,
        slot: Option<u32>,
        mut entry: Arc<Entry<T::Decoded>>,
        object: &ObjectRef<'_, T>,
    ) -> Result<Arc<Entry<T::Decoded>>, StoreError> {
        let mut next = match writer.spending.compressed_to {
            Some(next) => next,
            None if self.has_room(writer, budget, slot, &entry) => return Ok(entry),
            None => {
                writer.residency = Residency::Compressed;
                self.train_with_what_is_there(writer);
                writer.spending.until_measured = 0;
                entry = writer.entry(object.encoding(), object.encoded()?, object.identity())?;
                0
            }
        };
        let mut step = STEP;
        while next < writer.slots && (step > 0 || !self.has_room(writer, budget, slot, &entry)) {
            let was_not = self.compress(writer, next);
            step = step.saturating_sub(was_not.into());
            next += 1;
        }
        writer.spending.compressed_to = Some(next);
        Ok(entry)
    }
}
