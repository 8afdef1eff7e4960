//! The handle of a relist.

use std::fmt;
use std::sync::Arc;

use listwatch::{Encoding, ItemRef, StoreType};

use crate::error::StoreError;
use crate::write::commit::Commit;
use crate::write::core::StoreCore;
use crate::write::origin::Origin;
use crate::write::transaction::ApplyOutcome;
use crate::write::writer::Writer;

/// A list that replaces the objects of a store, by mark and sweep: see
/// [`Store::begin_relist`](crate::Store::begin_relist).
///
/// An object that is already stored in the same state is only marked, which costs neither decoding nor memory. A newer
/// state replaces the stored one at once. An older state comes from a server that lags or was restored from a backup,
/// so it is set aside until the commit.
///
/// A relist that is dropped before [`commit`](Self::commit), because the list failed, deletes nothing and restores no
/// older state.
pub struct Relist<T: StoreType + ?Sized> {
    core: Arc<StoreCore<T>>,
    id: u64,
}

impl<T: StoreType + ?Sized> Relist<T> {
    pub(super) fn new(core: &Arc<StoreCore<T>>, id: u64) -> Self {
        Self { core: Arc::clone(core), id }
    }

    /// Lets the list replace all objects, because the server was restored from a backup.
    ///
    /// It then also replaces objects that are newer than the list, and objects with the same uid and resource version,
    /// which the server may use for another state.
    #[must_use]
    pub fn replace_all(self) -> Self {
        if let Some(open) = self.core.writer().relists.open_mut(self.id) {
            open.replaces_all = true;
        }
        self
    }

    /// Writes an object of the list.
    ///
    /// A [superseded](StoreError::Superseded) relist writes it as [`Store::apply`](crate::Store::apply) does.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store cannot hold the object, which is then [skipped](crate::StoreReader::skipped); the
    /// relist may continue. The commit keeps the stored state of the object, unless that state is newer than the listed
    /// one and the server went back.
    pub fn apply(&mut self, encoding: Encoding, bytes: &[u8]) -> Result<ApplyOutcome<T>, StoreError> {
        self.write(ItemRef::new(encoding, bytes))
    }

    /// Like [`apply`](Self::apply), with the ends of values that the decoder has found.
    pub(crate) fn write(&mut self, object: ItemRef<'_>) -> Result<ApplyOutcome<T>, StoreError> {
        let mut writer = self.core.writer();
        let origin = self.origin(&mut writer);
        self.core.apply(&mut writer, object, origin)
    }

    /// A superseded relist no longer counts as one.
    fn origin(&self, writer: &mut Writer<T>) -> Origin {
        if writer.relists.open_mut(self.id).is_some() { Origin::List } else { Origin::Caller }
    }

    /// Counts an object of the list that could not be projected as skipped.
    pub(crate) fn skip_unwritten(&mut self, object: ItemRef<'_>) {
        let mut writer = self.core.writer();
        let origin = self.origin(&mut writer);
        self.core.skip(&mut writer, object, origin);
    }

    /// Completes the list at its resource version.
    ///
    /// This deletes the objects that the list does not contain, and restores the older states that it does contain.
    /// Indexes and subscribers see these changes. A state or deletion that is newer than the list stays, unless the
    /// list is older than the store's version was when the relist began. In either case, an object that others wrote
    /// since then stays, even if its version cannot be compared.
    ///
    /// The call blocks for about 2 µs for each object that it deletes, and lets others write after every 256. Once all
    /// are deleted, the store is at the [version](crate::StoreReader::resource_version) of the list and can be saved.
    ///
    /// # Errors
    ///
    /// [`StoreError::Superseded`] when another relist has begun. Nothing then changes, unless the other relist began
    /// during this call: the store may then contain a part of the changes, and the other relist decides about the rest.
    pub fn commit(self, resource_version: &str) -> Result<(), StoreError> {
        let mut commit = self.begin_commit(resource_version);
        while !commit.advance()? {}
        Ok(())
    }

    /// Begins to complete the list. If the commit is dropped before its last step, the store contains a part of the
    /// changes.
    pub(crate) fn begin_commit(self, resource_version: &str) -> RelistCommit<T> {
        let commit = Commit::new(self.id, resource_version);
        RelistCommit { relist: self, commit }
    }
}

pub(crate) struct RelistCommit<T: StoreType + ?Sized> {
    relist: Relist<T>,
    commit: Commit,
}

impl<T: StoreType + ?Sized> RelistCommit<T> {
    /// Deletes and restores a few objects. Returns true once the list is committed.
    ///
    /// # Errors
    ///
    /// The same as [`Relist::commit`].
    pub(crate) fn advance(&mut self) -> Result<bool, StoreError> {
        self.commit.advance(&self.relist.core)
    }
}

impl<T: StoreType + ?Sized> Drop for Relist<T> {
    fn drop(&mut self) {
        let mut writer = self.core.writer();
        let version = self.core.objects.state().version.clone();
        let abandoned = writer.relists.abandon(self.id, &version);
        drop(writer);
        drop(abandoned);
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for Relist<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relist").field("id", &self.id).finish_non_exhaustive()
    }
}
