//! Writes what a watch delivers, and keeps the change log.

use std::sync::Arc;

use super::change::Written;
use super::entry::Entry;
use super::error::StoreError;
use super::inner::{Inner, Writer};
use super::key::Identity;
use super::log::Observed;
use super::object::Stored;
use super::state::Snapshot;
use super::write::Deleted;
use crate::object::{compare_resource_versions, is_older};
use crate::sync::lock;
use crate::wire::Encoding;

/// Closes the log if a function of the caller panics in the middle of a write.
struct CloseOnPanic<'s, T: Stored + ?Sized>(Option<&'s Inner<T>>);

impl<T: Stored + ?Sized> Drop for CloseOnPanic<'_, T> {
    fn drop(&mut self) {
        if let Some(inner) = self.0 {
            lock(&inner.log).close();
        }
    }
}

impl<T: Stored + ?Sized> Inner<T> {
    /// Writes an object that a watch delivered.
    pub(super) fn observe(&self, encoding: Encoding, bytes: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.writer();
        let writer = &mut *writer;
        if !writer.has_log {
            return self.write_or_skip(writer, encoding, bytes, false).map(drop);
        }
        let mut guard = CloseOnPanic(Some(self));
        let (old, object) = match self.write_or_skip(writer, encoding, bytes, false)? {
            Written::Added(new) => (None, Some(Arc::clone(new.entry()))),
            Written::Modified { old, new } => (Some(Arc::clone(old.entry())), Some(Arc::clone(new.entry()))),
            // Others than the reflector have written this state or a newer one, or the watch has delivered it again.
            Written::Unchanged | Written::Stale => (None, None),
        };
        let identity = Identity::of(encoding, bytes)?;
        let known = self.known(&identity);
        let has_effect = object.is_some();
        let object = object
            .unwrap_or_else(|| Arc::new(Entry::encoded(encoding, bytes, &identity, || (*identity.namespace).into())));
        self.append(&identity, old, object, false, has_effect, known.as_ref());
        guard.0 = None;
        Ok(())
    }

    /// Deletes an object that a watch delivered.
    pub(super) fn observe_deletion(&self, encoding: Encoding, bytes: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.writer();
        let writer = &mut *writer;
        if !writer.has_log {
            return self.delete(writer, encoding, bytes).map(drop);
        }
        let mut guard = CloseOnPanic(Some(self));
        let deleted = self.delete(writer, encoding, bytes)?;
        let identity = Identity::of(encoding, bytes)?;
        let known = self.known(&identity);
        let has_effect = deleted.is_some();
        let (old, object) = match deleted {
            Some(Deleted { old, last }) => (Some(old), last),
            None => (None, Arc::new(Entry::encoded(encoding, bytes, &identity, || (*identity.namespace).into()))),
        };
        self.append(&identity, old, object, true, has_effect, known.as_ref());
        guard.0 = None;
        Ok(())
    }

    fn known(&self, identity: &Identity<'_>) -> Option<Arc<Entry<T::Decoded>>> {
        self.find(self.hash(&identity.namespace, &identity.name), identity).map(|(_, known)| known)
    }

    fn append(
        &self,
        identity: &Identity<'_>,
        old: Option<Arc<Entry<T::Decoded>>>,
        object: Arc<Entry<T::Decoded>>,
        is_deleted: bool,
        has_effect: bool,
        known: Option<&Arc<Entry<T::Decoded>>>,
    ) {
        let key = (&*identity.namespace, &*identity.name);
        let resource_version = &*identity.resource_version;
        let observed = Observed { key, resource_version, old, object, is_deleted, has_effect };
        let mut log = lock(&self.log);
        log.append(observed, known.map(|known| known.resource_version()), &self.codec);
    }

    /// Records a write of others than the reflector.
    pub(super) fn wrote(&self, identity: &Identity<'_>, old: Option<&Arc<Entry<T::Decoded>>>) {
        lock(&self.log).wrote(identity.key(), old.cloned(), &identity.resource_version);
    }

    /// Opens a closed log, if the store has all objects; or advances it.
    pub(super) fn open_log(&self, writer: &Writer<T>, resource_version: &str) {
        let mut log = lock(&self.log);
        if !log.is_closed() {
            return log.advance(resource_version);
        }
        let has_order = compare_resource_versions(resource_version, resource_version).is_some();
        if !has_order || writer.open.is_some() || writer.is_mixed || writer.skipped.len() > 0 {
            return;
        }
        let state = self.state();
        let mut newest = String::new();
        for version in state.entries().map(|entry| entry.resource_version()) {
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
