//! Writes what a watch delivers, and appends it to the change log.

use listwatch::ItemRef;

use crate::StoreType;
use crate::error::StoreError;
use crate::key::Identity;
use crate::log::open_log::ObservedChange;
use crate::state::entry::Entry;
use crate::write::core::StoreCore;
use crate::write::origin::Origin;
use crate::write::outcome::ApplyOutcome;
use crate::write::rules::DeletedStates;
use crate::write::writer::Writer;

/// Closes the log when a write does not complete: after an error, or a panic in a function of the caller.
struct CloseUnlessWritten<'s, T: StoreType + ?Sized>(Option<&'s StoreCore<T>>);

impl<T: StoreType + ?Sized> Drop for CloseUnlessWritten<'_, T> {
    fn drop(&mut self) {
        if let Some(core) = self.0 {
            core.log.close();
        }
    }
}

impl<T: StoreType + ?Sized> StoreCore<T> {
    /// Writes or deletes an object that a watch delivered.
    pub(crate) fn apply_watched(&self, object: ItemRef<'_>, is_deleted: bool) -> Result<(), StoreError> {
        let mut writer = self.writer();
        let has_log = self.log.is_enabled();
        let mut guard = CloseUnlessWritten(has_log.then_some(self));
        let effect = if is_deleted {
            self.delete(&mut writer, object, Origin::Watch)?.map(|DeletedStates { old, last }| (Some(old), last))
        } else {
            match self.write_or_skip(&mut writer, object, Origin::Watch)? {
                ApplyOutcome::Added(new) => Some((None, new.entry().clone())),
                ApplyOutcome::Modified { old, new } => Some((Some(old.entry().clone()), new.entry().clone())),
                ApplyOutcome::Unchanged | ApplyOutcome::Stale => None,
            }
        };
        self.confirm(&mut writer, object)?;
        if has_log {
            let observed = match effect {
                Some((old, object)) => ObservedChange { old, object, is_deleted, has_effect: true, known: None },
                None => self.without_effect(&writer, object, is_deleted)?,
            };
            self.log.lock().append(observed, &self.codec);
        }
        guard.0 = None;
        Ok(())
    }

    /// Returns a change without an effect: others than the reflector have written this state or a newer one, or the
    /// watch has delivered it again.
    fn without_effect(
        &self,
        writer: &Writer<T>,
        object: ItemRef<'_>,
        is_deleted: bool,
    ) -> Result<ObservedChange, StoreError> {
        let identity = Identity::of(object)?;
        let known = self.find(self.hash(&identity.namespace, &identity.name), &identity);
        let known = known.map(|(_, known)| known.resource_version().into_owned());
        let known = known.or_else(|| writer.relists.deletion_of(&identity).map(str::to_owned));
        let object = Entry::encoded(object.encoding(), object.bytes(), &identity, || (*identity.namespace).into());
        Ok(ObservedChange { old: None, object, is_deleted, has_effect: false, known })
    }
}
