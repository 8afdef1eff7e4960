//! The objects that were deleted recently.
//!
//! States of an object may be late. A list that began before a deletion contains the object, a server that lags still
//! lists it, and an answer to an earlier write contains it too. Without a record of the deletion, they would restore
//! the object until the next relist.
//!
//! - A tombstone contains the key and the version of a deletion. A state is late if it is not newer than that.
//! - A tombstone is removed once the collection has passed its version, because the version of the collection then
//!   identifies late states.
//! - A caller of a store may never advance the version, so at most [`MOST_TOMBSTONES`] of the newest versions are kept,
//!   except while a relist is open, whose list would restore the objects.
//! - While a relist is open, none is removed, because the list may be older than all of them. A deletion after the
//!   relist began is final for its list. Whether an earlier deletion is newer than the list is known only at the
//!   commit.
//! - The watch is the server's order of events. It may add an object at the version of the deletion, or an older
//!   object, because the user may have gained access to it.

use std::collections::HashMap;

use listwatch::internal::{is_comparable, is_older};

use crate::key::{Identity, ObjectKey};
use crate::write::origin::{Origin, is_within};

/// At this many tombstones, the older half is removed.
const MOST_TOMBSTONES: usize = 16 << 10;

/// Resource versions of deletions that a list or a watch may not have passed yet.
#[derive(Default)]
pub(super) struct Tombstones(HashMap<ObjectKey, Tombstone>);

#[derive(Default)]
struct Tombstone {
    version: String,
    /// How many relists had begun before the deletion.
    relists: u64,
    /// True if a watch has delivered the deletion.
    is_watched: bool,
}

/// What a tombstone decides about a state of its object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Deletion {
    /// There is none, or the state is newer.
    None,
    /// The state is late.
    Later,
    /// The deletion is newer than the listed state but older than the relist, so the commit decides.
    BeforeList,
}

impl Tombstones {
    /// Adds a tombstone for an object that was deleted at its resource version, after this many relists had begun.
    pub(super) fn add(&mut self, identity: &Identity<'_>, origin: Origin, relists: u64) {
        let tombstone = self.0.entry(identity.key()).or_default();
        if !is_older(&identity.resource_version, &tombstone.version) {
            let version = identity.resource_version.clone().into_owned();
            *tombstone = Tombstone { version, relists, is_watched: origin == Origin::Watch };
        }
    }

    /// Removes the older half, if there are too many.
    pub(super) fn trim(&mut self) {
        if self.0.len() < MOST_TOMBSTONES {
            return;
        }
        // Among comparable versions, the longer number is newer.
        let age = |deleted: &Tombstone| {
            let version = &deleted.version;
            (is_comparable(version), version.len(), version.clone())
        };
        let mut ages: Vec<_> = self.0.values().map(age).collect();
        let middle = ages.len() / 2;
        let (_, middle, _) = ages.select_nth_unstable(middle);
        self.0.retain(|_, deleted| age(deleted) > *middle);
    }

    /// Returns whether the object was deleted after this state. `relists` is the number of relists that have begun.
    pub(super) fn after(&self, identity: &Identity<'_>, origin: Origin, relists: u64) -> Deletion {
        let version = &*identity.resource_version;
        let tombstone = if self.0.is_empty() { None } else { self.0.get(&identity.key()) };
        let Some(tombstone) = tombstone else { return Deletion::None };
        let deleted = &*tombstone.version;
        let covers = match origin {
            Origin::Watch => is_older(version, deleted),
            // A deletion without a version is newer than the list, because the watch adds the object again if it
            // exists.
            Origin::List if tombstone.relists == relists => deleted.is_empty() || is_within(version, deleted),
            Origin::List if is_within(version, deleted) => return Deletion::BeforeList,
            Origin::List => false,
            Origin::Caller | Origin::Answer => is_within(version, deleted),
        };
        if covers { Deletion::Later } else { Deletion::None }
    }

    pub(super) fn version(&self, identity: &Identity<'_>) -> Option<&str> {
        if self.0.is_empty() { None } else { self.0.get(&identity.key()).map(|deleted| &*deleted.version) }
    }

    /// Returns true if the object is still deleted after the commit of a list.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.0.contains_key(key)
    }

    /// Removes tombstones up to this version, because no late event of their objects follows, and those whose version
    /// cannot be compared.
    pub(super) fn remove_until(&mut self, version: &str) {
        self.0.retain(|_, deleted| is_older(version, &deleted.version));
        self.0.shrink_to_fit();
    }

    /// Removes the tombstones of deletions that are older than the relist with this number.
    pub(super) fn remove_before(&mut self, relist: u64) {
        self.0.retain(|_, deleted| deleted.relists >= relist);
    }

    /// Calls `each` with the deletions that no watch has delivered.
    pub(super) fn each_unwatched(&self, mut each: impl FnMut(&ObjectKey, &str)) {
        let unwatched = self.0.iter().filter(|(_, deleted)| !deleted.is_watched);
        unwatched.for_each(|(key, deleted)| each(key, &deleted.version));
    }

    pub(super) fn versions(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|deleted| &*deleted.version)
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |(key, deleted): (&ObjectKey, &Tombstone)| {
            size_of::<(ObjectKey, Tombstone)>() + key.namespace.len() + key.name.len() + deleted.version.len()
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
            tombstones.add(&identity(i, &version(i)), Origin::Caller, 0);
            tombstones.trim();
            assert!(tombstones.0.len() < MOST_TOMBSTONES);
        }
        let newest = 5 * MOST_TOMBSTONES - MOST_TOMBSTONES / 2 + 1..5 * MOST_TOMBSTONES;
        for i in newest.filter(|i| i % 100 != 7) {
            assert!(tombstones.after(&identity(i, "90000"), Origin::Caller, 0) == Deletion::Later, "{i}");
        }
        // All of one version.
        let mut tombstones = Tombstones::default();
        for i in 0..2 * MOST_TOMBSTONES {
            tombstones.add(&identity(i, "7"), Origin::Caller, 0);
            tombstones.trim();
            assert!(tombstones.0.len() < MOST_TOMBSTONES);
        }
    }

    #[test]
    fn a_tombstone_counts_with_its_texts() {
        let mut tombstones = Tombstones::default();
        assert_eq!(tombstones.bytes(), 0);
        tombstones.add(&identity(1, "90"), Origin::Caller, 0);
        tombstones.add(&identity(22, "9001"), Origin::Caller, 0);
        let texts = "ns".len() + "1".len() + "90".len() + "ns".len() + "22".len() + "9001".len();
        assert_eq!(tombstones.bytes(), 2 * size_of::<(ObjectKey, Tombstone)>() + texts);
    }
}
