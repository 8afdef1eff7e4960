//! What a store does when its objects take too much memory.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use super::entry::{Entry, Identity};
use super::object::Stored;
#[cfg(feature = "client")]
use super::store::identity;
use super::store::{Held, Store, StoreError, Writer};
use crate::object::is_older;
use crate::wire::Encoding;

/// How a store keeps to its budget.
#[derive(Clone, Default)]
pub(super) struct Spending {
    budget: Option<usize>,
    /// What is not counted with each write: the table, indexes, and what a replace put aside.
    rest: usize,
    /// Writes until that is measured again.
    until_measured: usize,
    /// The least that was refused since the last replace began.
    least_refused: Option<usize>,
}

impl Spending {
    /// Whether there is room for so many bytes in a store that is empty.
    pub(super) fn check(&self, bytes: usize) -> Result<(), StoreError> {
        match self.budget {
            Some(budget) if bytes > budget => Err(StoreError::OverBudget(budget)),
            _ => Ok(()),
        }
    }
}

/// Objects that a store does not have, or not in their latest state, because they could not be held. By hashes of their keys,
/// for a store that is full has no room for keys.
#[derive(Default)]
pub(super) struct Skipped {
    /// By hash: the number of replaces that were begun before.
    since: HashMap<u64, u64>,
}

impl Skipped {
    pub(super) fn len(&self) -> usize {
        self.since.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.since.capacity() * 8 / 7 * (size_of::<(u64, u64)>() + 1)
    }

    /// What was skipped before this replace began is in its list, or gone.
    pub(super) fn forget_before(&mut self, replace: u64) {
        self.since.retain(|_, since| *since >= replace);
        self.since.shrink_to_fit();
    }
}

/// The rest is measured after an eighth as many writes as there are objects, and at least so many.
const MEASURE: usize = 64;

impl<T: Stored + ?Sized> Store<T> {
    /// Limits the memory that the store may take from now on, in bytes, counted as [`memory`](Self::memory) counts them; `None`,
    /// the default, is no limit.
    ///
    /// A write for which there is no room is [refused](StoreError::OverBudget), and [counted](Self::skipped). What is there stays,
    /// even if it is more, and a write that makes it less is never refused.
    ///
    /// Objects are counted with each write. The rest, indexes for example, is measured after an eighth as many writes as
    /// there are objects, by going through the indexes; it may be over the limit by what came to it in between. Not counted are
    /// subscribers, and objects that only callers hold.
    pub fn set_budget(&self, bytes: Option<usize>) {
        let spending = &mut self.writer().spending;
        *spending = Spending { budget: bytes, least_refused: spending.least_refused, ..Spending::default() };
    }

    /// Returns how many objects of the collection the store does not have in their latest state, because it could not hold
    /// them: a write of each ended in a [`StoreError`]. The store is then incomplete.
    ///
    /// An object is no longer counted once a state of it has been written, once it has been deleted, or once a
    /// [`Replace`](super::Replace) that began afterwards is committed.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.writer().skipped.len()
    }

    /// Notes that an object could not be held. The state that the store has of it stays, unless that is newer than the one of a
    /// list: then it is of another past.
    pub(super) fn skip(&self, writer: &mut Writer<T>, identity: Option<&Identity<'_>>, bytes: &[u8], listed: bool) {
        let hash = match identity {
            Some(Identity { namespace, name, .. }) => self.skipped_hash(namespace, name),
            // The same bytes are the same object.
            None => self.inner.hasher.hash_one(bytes),
        };
        let since = writer.replaces;
        writer.skipped.since.insert(hash, since);
        if let Some(identity) = identity.filter(|_| listed)
            && let Some((slot, held)) = self.find(self.hash(&identity.namespace, &identity.name), identity)
            && !is_older(&identity.resource_version, &held.identity().resource_version)
        {
            writer.mark(slot, true);
        }
    }

    /// Notes that an object could not be brought into the form in which it is to be held.
    #[cfg(feature = "client")]
    pub(crate) fn skip_unwritten(&self, encoding: Encoding, bytes: &[u8]) {
        self.skip(&mut self.writer(), identity(encoding, bytes).ok().as_ref(), bytes, false);
    }

    /// Notes that the latest state of an object is there, or that it was deleted. What a list has of it may be older than what
    /// was skipped while the list was on its way.
    pub(super) fn unskip(&self, writer: &mut Writer<T>, identity: &Identity<'_>, listed: bool) {
        if writer.skipped.len() == 0 {
            return;
        }
        let hash = self.skipped_hash(&identity.namespace, &identity.name);
        let replaces = writer.replaces;
        if !listed || writer.skipped.since.get(&hash).is_some_and(|since| *since < replaces) {
            writer.skipped.since.remove(&hash);
        }
    }

    fn skipped_hash(&self, namespace: &str, name: &str) -> u64 {
        self.inner.hasher.hash_one((namespace, name))
    }

    /// Whether a relist would bring an object that was refused: there is room for one, and a tenth of the budget is free.
    #[cfg(feature = "client")]
    pub(crate) fn has_room_for_skipped(&self) -> bool {
        let mut writer = self.writer();
        let writer = &mut *writer;
        let Some(least) = writer.spending.least_refused.filter(|_| writer.skipped.len() > 0) else { return false };
        let Some(budget) = writer.spending.budget else { return true };
        writer.held.total() + writer.spending.rest + least.max(budget / 10) <= budget
    }

    /// What was refused before is in the list that begins now, or gone.
    pub(super) fn forget_refused(writer: &mut Writer<T>) {
        writer.spending.least_refused = None;
    }

    /// Measures what is not counted with each write, for it has changed much.
    pub(super) fn measure_rest(&self, writer: &mut Writer<T>) {
        if writer.spending.budget.is_some() {
            writer.spending.until_measured = 0;
            self.measure_if_due(writer);
        }
    }

    /// The entry that is to be in this slot, or beside all of them, if there is room for it.
    pub(super) fn entry_in_budget(
        &self,
        writer: &mut Writer<T>,
        slot: Option<u32>,
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
    ) -> Result<Arc<Entry<T::Decoded>>, StoreError> {
        let entry = writer.entry(encoding, bytes, identity)?;
        let Some(budget) = writer.spending.budget else { return Ok(entry) };
        self.measure_if_due(writer);
        let held = slot.and_then(|slot| self.state().get(slot).map(|held| Held::size(held)));
        let old = held.unwrap_or_default();
        let has_room =
            |writer: &Writer<T>, new| new <= old || writer.held.total() + writer.spending.rest + new - old <= budget;
        if has_room(writer, Held::size(&entry)) {
            return Ok(entry);
        }
        #[cfg(feature = "zstd")]
        let entry = if self.train_if_waiting(writer) {
            // What was held encoded until there would be enough to train a dictionary is compressed.
            self.measure_rest(writer);
            writer.entry(encoding, bytes, identity)?
        } else {
            entry
        };
        let new = Held::size(&entry);
        if has_room(writer, new) {
            return Ok(entry);
        }
        let least = &mut writer.spending.least_refused;
        *least = Some(least.map_or(new - old, |least| least.min(new - old)));
        Err(StoreError::OverBudget(budget))
    }

    fn measure_if_due(&self, writer: &mut Writer<T>) {
        if writer.spending.until_measured == 0 {
            writer.spending.rest = self.measure(writer).total().saturating_sub(writer.held.total());
            writer.spending.until_measured = (self.len() / 8).max(MEASURE);
        }
        writer.spending.until_measured -= 1;
    }
}
