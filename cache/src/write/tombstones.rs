//! The objects that were deleted lately.
//!
//! States of an object may be late. A list that began before a deletion has the object, and so has an answer to an
//! earlier write. Without a record of the deletion, they would restore the object until the next relist.
//!
//! - A tombstone has the key and the version of a deletion. A state is late if it is not newer than that.
//! - A tombstone is removed once the collection has its version. From then on, the version of the collection identifies
//!   late states.
//! - A caller of a store may never advance the version. So there are at most [`MOST_TOMBSTONES`], those of the newest
//!   versions, except while a relist is open: its list would restore the objects.
//! - While a relist is open, none is removed, because the list may be older than all of them. A relist that begins
//!   removes all earlier ones: its list is newer.
//! - The watch is the server's order of events. It may add an object at the version of the deletion. The object may
//!   also be older: the user may have gained access to it.

use std::collections::HashMap;

use listwatch::internal::{is_comparable, is_older};

use crate::key::{Identity, ObjectKey};
use crate::write::origin::{Origin, is_within};

/// The number of tombstones at which the older half is removed.
const MOST_TOMBSTONES: usize = 16 << 10;

/// Resource versions of deletions that a list or a watch may not have passed yet.
#[derive(Default)]
pub(super) struct Tombstones(HashMap<ObjectKey, String>);

impl Tombstones {
    /// Adds a tombstone for an object that was deleted at its resource version.
    pub(super) fn add(&mut self, identity: &Identity<'_>) {
        let version = self.0.entry(identity.key()).or_default();
        if !is_older(&identity.resource_version, version) {
            *version = identity.resource_version.clone().into_owned();
        }
    }

    /// Removes the older half, if there are too many.
    pub(super) fn trim(&mut self) {
        if self.0.len() < MOST_TOMBSTONES {
            return;
        }
        // Of comparable versions, the longer number is newer.
        let age = |version: &str| (is_comparable(version), version.len(), version.to_owned());
        let mut ages: Vec<_> = self.0.values().map(|version| age(version)).collect();
        let middle = ages.len() / 2;
        let (_, middle, _) = ages.select_nth_unstable(middle);
        self.0.retain(|_, version| age(version) > *middle);
    }

    /// Returns true if the object was deleted after this state.
    pub(super) fn cover(&self, identity: &Identity<'_>, origin: Origin) -> bool {
        let version = &*identity.resource_version;
        !self.0.is_empty()
            && self.0.get(&identity.key()).is_some_and(|deleted| match origin {
                Origin::Watch => is_older(version, deleted),
                // A deletion without a version is newer than the list: the watch adds the object again if it exists.
                Origin::List => deleted.is_empty() || is_within(version, deleted),
                Origin::Caller => is_within(version, deleted),
            })
    }

    /// Removes tombstones up to this version, because no late event of these objects follows, and tombstones whose
    /// version does not compare.
    pub(super) fn remove_until(&mut self, version: &str) {
        self.0.retain(|_, deleted| is_older(version, deleted));
        self.0.shrink_to_fit();
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |(key, version): (&ObjectKey, &String)| {
            size_of::<(ObjectKey, String)>() + key.namespace.len() + key.name.len() + version.len()
        };
        self.0.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: usize, version: &str) -> Identity<'static> {
        let (namespace, uid) = ("ns".into(), "u".into());
        Identity { namespace, name: name.to_string().into(), uid, resource_version: version.to_owned().into() }
    }

    #[test]
    fn the_newest_deletions_are_remembered() {
        let mut tombstones = Tombstones::default();
        // Also of different lengths, and some that do not compare.
        let version = |i: usize| if i % 100 == 7 { "x".to_owned() } else { (90_000 + i).to_string() };
        for i in 0..5 * MOST_TOMBSTONES {
            tombstones.add(&identity(i, &version(i)));
            tombstones.trim();
            assert!(tombstones.0.len() < MOST_TOMBSTONES);
        }
        let newest = 5 * MOST_TOMBSTONES - MOST_TOMBSTONES / 2 + 1..5 * MOST_TOMBSTONES;
        for i in newest.filter(|i| i % 100 != 7) {
            assert!(tombstones.cover(&identity(i, "90000"), Origin::Caller), "{i}");
        }
        // All of one version.
        let mut tombstones = Tombstones::default();
        for i in 0..2 * MOST_TOMBSTONES {
            tombstones.add(&identity(i, "7"));
            tombstones.trim();
            assert!(tombstones.0.len() < MOST_TOMBSTONES);
        }
    }
}
