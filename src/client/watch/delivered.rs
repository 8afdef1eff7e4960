//! The events that a resumed watch has delivered, so that it repeats none.

use std::cmp::Ordering;
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::error::ItemError;
use crate::object::{ItemRef, compare_resource_versions};

/// The least number of deletions that are remembered.
const DELETIONS: usize = 1024;

/// The delivered events.
#[derive(Default)]
pub(super) struct Delivered {
    pub(super) events: u64,
    /// The version up to which all events were delivered; empty before the first version.
    pub(super) version: String,
    /// Hashes of the last deletions, in order and for search.
    deletions: VecDeque<u64>,
    found: HashSet<u64>,
    /// The number of deletions since the version advanced.
    since: usize,
    hasher: RandomState,
}

impl Delivered {
    pub(super) fn up_to(version: String) -> Self {
        Self { version, ..Self::default() }
    }

    /// Forgets everything but the number of events, because the stream starts over.
    pub(super) fn forget(&mut self) {
        *self = Self { events: self.events, ..Self::default() };
    }

    /// Returns a hash of the deleted object and its version.
    pub(super) fn deletion(&self, object: ItemRef<'_>, version: &str) -> Result<u64, ItemError> {
        let meta = object.meta()?;
        Ok(self.hasher.hash_one((meta.namespace(), meta.name(), meta.uid(), version)))
    }

    /// Returns true if an event of this version, or this deletion, was delivered.
    pub(super) fn has(&self, version: &str, deletion: Option<u64>) -> bool {
        !self.may_be_newer(version) && deletion.is_none_or(|deletion| self.found.contains(&deletion))
    }

    pub(super) fn advance(&mut self, version: &str) {
        if self.may_be_newer(version) {
            version.clone_into(&mut self.version);
            self.since = 0;
        }
    }

    /// Returns true if this version is newer than the delivered version, or does not compare with it.
    fn may_be_newer(&self, version: &str) -> bool {
        !matches!(compare_resource_versions(version, &self.version), Some(Ordering::Less | Ordering::Equal))
    }

    pub(super) fn remember(&mut self, deletion: u64) {
        self.since += 1;
        if self.found.insert(deletion) {
            self.deletions.push_back(deletion);
        }
        while self.deletions.len() > self.since.max(DELETIONS) {
            let Some(oldest) = self.deletions.pop_front() else { break };
            self.found.remove(&oldest);
        }
    }
}
