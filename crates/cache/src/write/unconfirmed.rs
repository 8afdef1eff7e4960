//! The writes of others that a relist has kept although its list does not contain them yet.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use listwatch::compare_resource_versions;
use listwatch::internal::is_older;

/// States and deletions that are newer than the last list. The watch delivers them if the server has made them. A
/// server that was restored from a backup never does, so once its watch has passed such a version, the store must
/// relist.
///
/// Only hashes of keys are kept. Two objects with the same hash cost a relist too many or too few.
#[derive(Default)]
pub(crate) struct UnconfirmedWrites {
    /// The versions by the hash of the key, without those that the watch has delivered.
    by_key: HashMap<u64, Arc<str>>,
    /// The versions and hashes, the oldest last; unsorted until the commit of the list has ended.
    in_order: Vec<(Arc<str>, u64)>,
    /// True if the watch has passed a version without delivering it.
    is_missed: bool,
}

impl UnconfirmedWrites {
    pub(super) fn add(&mut self, key_hash: u64, version: &str) {
        let version = Arc::<str>::from(version);
        self.by_key.insert(key_hash, Arc::clone(&version));
        self.in_order.push((version, key_hash));
    }

    /// Sorts what was added.
    pub(crate) fn sort(&mut self) {
        self.in_order.sort_by(|(a, _), (b, _)| compare_resource_versions(b, a).unwrap_or(Ordering::Equal));
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    /// Notes that the watch has delivered this version of an object.
    pub(super) fn confirm(&mut self, key_hash: u64, version: &str) {
        if self.by_key.get(&key_hash).is_some_and(|written| !is_older(version, written)) {
            self.by_key.remove(&key_hash);
        }
    }

    /// Notes that the watch has delivered all changes before this version. Changes may share a version.
    pub(super) fn pass(&mut self, version: &str) {
        while let Some((written, key_hash)) = self.in_order.pop_if(|(written, _)| is_older(written, version)) {
            self.is_missed |= self.by_key.get(&key_hash).is_some_and(|waiting| Arc::ptr_eq(waiting, &written));
        }
        if self.in_order.is_empty() {
            (self.in_order, self.by_key) = Default::default();
        }
    }

    /// Returns true if the store contains a write that the server has not made.
    pub(crate) fn is_missed(&self) -> bool {
        self.is_missed
    }

    pub(super) fn bytes(&self) -> usize {
        let versions = self.in_order.iter().map(|(version, _)| 2 * size_of::<usize>() + version.len()).sum::<usize>();
        versions
            + self.in_order.capacity() * size_of::<(Arc<str>, u64)>()
            + self.by_key.capacity() * 8 / 7 * (size_of::<(u64, Arc<str>)>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocated::assert_reports_what_it_allocates;

    #[test]
    fn counts_its_versions_and_its_maps() {
        let create = || {
            let mut writes = UnconfirmedWrites::default();
            assert_eq!(writes.bytes(), 0);
            (0..1000).for_each(|key_hash| writes.add(key_hash, "12345678"));
            writes
        };
        assert_reports_what_it_allocates(create, UnconfirmedWrites::bytes);
    }
}
