//! When the change log of a store opens, and what it must know of writes of others.

use listwatch::internal::{is_comparable, is_older};

use crate::StoreType;
use crate::key::Identity;
use crate::state::entry::Entry;
use crate::state::snapshot::Snapshot;
use crate::write::core::StoreCore;
use crate::write::writer::Writer;

impl<T: StoreType + ?Sized> StoreCore<T> {
    /// Records a write of others than the reflector.
    pub(crate) fn note_own_write(&self, identity: &Identity<'_>, old: Option<&Entry>) {
        self.log.lock().note_own_write(identity.key(), old.cloned(), &identity.resource_version);
    }

    /// Opens a closed log, if the store has all objects; or advances it.
    pub(crate) fn open_log(&self, writer: &Writer<T>, resource_version: &str) {
        let mut log = self.log.lock();
        if !log.is_closed() {
            return log.advance(resource_version);
        }
        if !is_comparable(resource_version)
            || writer.relists.is_open()
            || !writer.relists.is_consistent()
            || writer.skipped.len() > 0
        {
            return;
        }
        let state = self.state();
        // A loaded store may have a part of the changes up to its version.
        let mut newest = state.version.clone();
        let mut keep_newer = |version: &str| {
            if is_older(&newest, version) || !is_comparable(&newest) {
                version.clone_into(&mut newest);
            }
        };
        let mut number = None;
        for entry in state.entries() {
            // A text for each of a million objects would take ten times as long.
            match entry.version_number() {
                Some(version) => number = number.max(Some(version)),
                None => keep_newer(&entry.resource_version()),
            }
        }
        if let Some(number) = number {
            keep_newer(&number.to_string());
        }
        // At older versions the deleted objects exist.
        let newest = writer.relists.newest_deletion(&newest).unwrap_or(&newest);
        log.open(resource_version, newest);
    }

    pub(crate) fn exact_snapshot(&self) -> Option<Snapshot<T>> {
        let _writer = self.writer();
        let version = self.log.lock().exact_version()?.to_owned();
        Some(self.snapshot().at_version(version))
    }
}
