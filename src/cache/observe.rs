//! Writes what a watch delivers, and keeps the change log.

use super::change::Written;
use super::entry::Entry;
use super::error::StoreError;
use super::inner::{Inner, Writer};
use super::key::Identity;
use super::log::Observed;
use super::object::Stored;
use super::state::Snapshot;
use super::write::Deleted;
use crate::object::{is_comparable, is_older};
use crate::sync::lock;
use crate::wire::Encoding;

/// Closes the log when a write does not complete: after an error, or a panic in a function of the caller.
struct CloseUnlessWritten<'s, T: Stored + ?Sized>(Option<&'s Inner<T>>);

impl<T: Stored + ?Sized> Drop for CloseUnlessWritten<'_, T> {
    fn drop(&mut self) {
        if let Some(inner) = self.0 {
            lock(&inner.log).close();
        }
    }
}

impl<T: Stored + ?Sized> Inner<T> {
    /// Writes or deletes an object that a watch delivered.
    pub(super) fn observe(&self, encoding: Encoding, bytes: &[u8], is_deleted: bool) -> Result<(), StoreError> {
        let mut writer = self.writer();
        let has_log = writer.has_log;
        let mut guard = CloseUnlessWritten(has_log.then_some(self));
        let effect = if is_deleted {
            self.delete(&mut writer, encoding, bytes)?.map(|Deleted { old, last }| (Some(old), last))
        } else {
            match self.write_or_skip(&mut writer, encoding, bytes, false)? {
                Written::Added(new) => Some((None, new.entry().clone())),
                Written::Modified { old, new } => Some((Some(old.entry().clone()), new.entry().clone())),
                Written::Unchanged | Written::Stale => None,
            }
        };
        if has_log {
            let observed = match effect {
                Some((old, object)) => Observed { old, object, is_deleted, has_effect: true, known: None },
                None => self.without_effect(encoding, bytes, is_deleted)?,
            };
            lock(&self.log).append(observed, &self.codec);
        }
        guard.0 = None;
        Ok(())
    }

    /// Returns a change without an effect: others than the reflector have written this state or a newer one, or the watch has
    /// delivered it again.
    fn without_effect(
        &self,
        encoding: Encoding,
        bytes: &[u8],
        is_deleted: bool,
    ) -> Result<Observed<T::Decoded>, StoreError> {
        let identity = Identity::of(encoding, bytes)?;
        let known = self.find(self.hash(&identity.namespace, &identity.name), &identity);
        let known = known.map(|(_, known)| known.resource_version().to_owned());
        let object = Entry::encoded(encoding, bytes, &identity, || (*identity.namespace).into());
        Ok(Observed { old: None, object, is_deleted, has_effect: false, known })
    }

    /// Records a write of others than the reflector.
    pub(super) fn wrote(&self, identity: &Identity<'_>, old: Option<&Entry<T::Decoded>>) {
        lock(&self.log).wrote(identity.key(), old.cloned(), &identity.resource_version);
    }

    /// Opens a closed log, if the store has all objects; or advances it.
    pub(super) fn open_log(&self, writer: &Writer<T>, resource_version: &str) {
        let mut log = lock(&self.log);
        if !log.is_closed() {
            return log.advance(resource_version);
        }
        if !is_comparable(resource_version) || writer.open.is_some() || writer.is_mixed || writer.skipped.len() > 0 {
            return;
        }
        let state = self.state();
        let mut newest = String::new();
        for version in state.entries().map(Entry::resource_version) {
            if is_older(&newest, version) || newest.is_empty() {
                version.clone_into(&mut newest);
            }
        }
        log.open(resource_version, &newest);
    }

    pub(super) fn exact_snapshot(&self) -> Option<Snapshot<T>> {
        let _writer = self.writer();
        let version = lock(&self.log).exact_version()?.to_owned();
        Some(self.snapshot().at_version(version))
    }
}
