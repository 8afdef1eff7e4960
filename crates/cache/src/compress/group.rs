//! Delta groups: objects of one group differ little, so they are stored as deltas to one reference.
//!
//! A group contains only what decides about its next object. It does not know its deltas, which own the reference,
//! while the group has a weak pointer to it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::mem;
use std::sync::{Arc, Weak};

use listwatch::MetaView;

use crate::compress::decide::Verdict;
use crate::compress::pool::Reference;

/// The longest object that has a group. This bounds the memory for decompressed references.
pub(crate) const MAX_GROUPED_LEN: usize = 1 << 20;
/// The longest object that is tried as a reference after it was written.
const MAX_TRIAL_LEN: usize = 64 << 10;
/// The most objects between two trials of another reference. Each trial takes as long as one compression.
const LONGEST_TRIAL_GAP: u8 = 16;
/// The number of failures in a row after which objects skip the comparison, and the most objects that skip it until the
/// next attempt.
const FAILURES: u8 = 3;
const MAX_SKIPS: u8 = 128;
/// The number of groups below which nobody looks for dropped groups.
const FEW_GROUPS: usize = 64;

/// The hash of a group's name. Two groups with the same hash share a reference, which costs only memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey(u64);

impl GroupKey {
    /// Hashes the namespace and the uid of the controlling owner, or else the prefix of the name. Returns `None` if the
    /// object has no group.
    pub(super) fn of(hasher: &RandomState, meta: &MetaView<'_>, len: usize, namespace: &str) -> Option<Self> {
        if len > MAX_GROUPED_LEN {
            return None;
        }
        let owner = meta.owner_references().ok()?.find(|owner| owner.controller && !owner.uid.is_empty());
        let (has_owner, group) = match owner {
            Some(owner) => (true, owner.uid),
            None => (false, meta.generate_name()),
        };
        (!group.is_empty()).then(|| Self(hasher.hash_one((namespace, has_owner, &group))))
    }
}

/// A state of an object in the store: the hash of its key, and bits of its address. Another state of the object at the
/// same address, or a multiple of 64 GiB away, may be mistaken for it, which costs only memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateId {
    pub(crate) key_hash: u32,
    address_bits: u32,
}

impl StateId {
    pub(crate) fn new(key_hash: u32, address: usize) -> Self {
        Self { key_hash, address_bits: address_bits(address) }
    }

    pub(crate) fn is_at(self, address: usize) -> bool {
        self.address_bits == address_bits(address)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "as `StateId` says")]
fn address_bits(address: usize) -> u32 {
    (address / 16) as u32
}

/// What the next object of a group is compared with.
#[derive(Clone, Copy)]
pub(super) enum GroupReference<R> {
    /// An object that is stored whole. It becomes the reference when another object resembles it.
    Candidate(StateId),
    Reference(R),
}

pub(super) struct DeltaGroups {
    groups: HashMap<GroupKey, DeltaGroup>,
    /// The number of groups at which dropped groups are removed: twice the number that remained the last time.
    full: usize,
    previous: PreviousObject,
}

/// The last written object that has a group.
#[derive(Default)]
struct PreviousObject {
    group: Option<GroupKey>,
    name: String,
    /// Empty if the object is long.
    bytes: Vec<u8>,
}

/// A group, in 16 bytes. To fit, each variant contains the pace itself, before the fields that need an alignment.
enum DeltaGroup {
    Candidate(Pace, StateId),
    Reference(Pace, Weak<Reference>),
}

/// Decides whether the next object of a group is compared, and whether with a trial.
pub(super) struct Pace {
    /// The number of objects until the next trial, and between trials.
    until_trial: u8,
    trial_gap: u8,
    /// The number of failures in a row, and the number of objects that skip the comparison.
    failures: u8,
    skips: u8,
}

impl Default for DeltaGroups {
    fn default() -> Self {
        Self { groups: HashMap::new(), full: FEW_GROUPS, previous: PreviousObject::default() }
    }
}

impl DeltaGroups {
    pub(super) fn pace_mut(&mut self, group: GroupKey) -> Option<&mut Pace> {
        self.groups.get_mut(&group).map(DeltaGroup::pace_mut)
    }

    /// Returns what the next object is compared with, or `None` if the group's reference does not exist any more.
    pub(super) fn reference(&self, group: GroupKey) -> Option<GroupReference<Arc<Reference>>> {
        Some(match self.groups.get(&group)? {
            DeltaGroup::Candidate(_, state) => GroupReference::Candidate(*state),
            DeltaGroup::Reference(_, reference) => GroupReference::Reference(reference.upgrade()?),
        })
    }

    /// Returns the state of the object with which the next object of the group is compared, unless that is a reference.
    pub(super) fn candidate(&self, group: GroupKey) -> Option<StateId> {
        match self.groups.get(&group)? {
            DeltaGroup::Candidate(_, state) => Some(*state),
            DeltaGroup::Reference(..) => None,
        }
    }

    /// Compares objects of the group with this object from now on. A new group may displace groups that have neither a
    /// reference nor a stored object.
    pub(super) fn set_candidate(&mut self, group: GroupKey, state: StateId, is_stored: impl Fn(StateId) -> bool) {
        self.set(group, GroupReference::Candidate(state), is_stored);
    }

    pub(super) fn set_reference(
        &mut self,
        group: GroupKey,
        reference: &Arc<Reference>,
        is_stored: impl Fn(StateId) -> bool,
    ) {
        self.set(group, GroupReference::Reference(Arc::downgrade(reference)), is_stored);
    }

    fn set(
        &mut self,
        group: GroupKey,
        reference: GroupReference<Weak<Reference>>,
        is_stored: impl Fn(StateId) -> bool,
    ) {
        if let Some(known) = self.groups.get_mut(&group) {
            *known = DeltaGroup::new(mem::take(known.pace_mut()), reference);
            return;
        }
        if self.groups.len() >= self.full {
            self.forget_dropped(is_stored);
        }
        self.groups.insert(group, DeltaGroup::new(Pace::default(), reference));
    }

    pub(super) fn move_candidate(&mut self, group: GroupKey, from: usize, to: usize) {
        if let Some(DeltaGroup::Candidate(_, state)) = self.groups.get_mut(&group)
            && state.is_at(from)
        {
            *state = StateId::new(state.key_hash, to);
        }
    }

    /// Compares objects of the group with the new reference, or with nothing, if they were compared with the old one.
    pub(super) fn replace_reference(&mut self, group: GroupKey, old: &Arc<Reference>, new: Option<&Arc<Reference>>) {
        if let Some(DeltaGroup::Reference(_, reference)) = self.groups.get_mut(&group)
            && reference.as_ptr() == Arc::as_ptr(old)
        {
            *reference = new.map(Arc::downgrade).unwrap_or_default();
        }
    }

    /// Remembers the object that was just written, for a trial.
    pub(super) fn remember_previous(&mut self, group: GroupKey, name: &str, bytes: &[u8]) {
        let previous = &mut self.previous;
        previous.group = Some(group);
        name.clone_into(&mut previous.name);
        previous.bytes.clear();
        if bytes.len() <= MAX_TRIAL_LEN {
            previous.bytes.extend_from_slice(bytes);
        }
    }

    /// Returns the object that was written last if it is another object of this group, and if a trial is due.
    pub(super) fn take_due_trial(&mut self, group: GroupKey, name: &str) -> Option<&[u8]> {
        let previous = &self.previous;
        let has_previous = previous.group == Some(group) && previous.name != name && !previous.bytes.is_empty();
        let pace = self.groups.get_mut(&group)?.pace_mut();
        pace.take_due_trial(has_previous).then_some(&previous.bytes)
    }

    /// Removes groups without a reference and without a stored object that could become the reference.
    pub(super) fn forget_dropped(&mut self, is_stored: impl Fn(StateId) -> bool) {
        self.groups.retain(|_, group| match group {
            DeltaGroup::Candidate(_, state) => is_stored(*state),
            DeltaGroup::Reference(_, reference) => reference.strong_count() > 0,
        });
        self.previous = PreviousObject::default();
        self.full = (2 * self.groups.len()).max(FEW_GROUPS);
        self.groups.shrink_to_fit();
    }

    pub(super) fn bytes(&self) -> usize {
        self.groups.capacity() * 8 / 7 * (size_of::<(GroupKey, DeltaGroup)>() + 1)
            + self.previous.name.capacity()
            + self.previous.bytes.capacity()
    }
}

impl DeltaGroup {
    fn new(pace: Pace, reference: GroupReference<Weak<Reference>>) -> Self {
        match reference {
            GroupReference::Candidate(state) => Self::Candidate(pace, state),
            GroupReference::Reference(reference) => Self::Reference(pace, reference),
        }
    }

    fn pace_mut(&mut self) -> &mut Pace {
        let (Self::Candidate(pace, _) | Self::Reference(pace, _)) = self;
        pace
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self { until_trial: 0, trial_gap: 1, failures: 0, skips: 0 }
    }
}

impl Pace {
    /// Returns true if the next object should not be compared, because many objects in a row differed from the
    /// reference.
    pub(super) fn take_skip(&mut self) -> bool {
        let skips = self.skips > 0;
        self.skips = self.skips.saturating_sub(1);
        skips
    }

    /// Counts an object, and returns true if a trial is due and the previous object can serve for it.
    fn take_due_trial(&mut self, has_previous: bool) -> bool {
        self.until_trial = self.until_trial.saturating_sub(1);
        if self.until_trial > 0 || !has_previous {
            return false;
        }
        self.trial_gap = (2 * self.trial_gap).min(LONGEST_TRIAL_GAP);
        self.until_trial = self.trial_gap;
        true
    }

    /// Records the verdict about an object, which decides about skips and trials of the next ones.
    pub(super) fn record(&mut self, verdict: Verdict) {
        if let Verdict::Outdated { .. } = verdict {
            (self.until_trial, self.trial_gap) = (0, 1);
        }
        if verdict.resembles() {
            self.failures = 0;
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if let Some(doublings) = self.failures.checked_sub(FAILURES) {
            self.skips = 1_u8.checked_shl(doublings.into()).unwrap_or(MAX_SKIPS).min(MAX_SKIPS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocated::assert_reports_what_it_allocates;

    #[test]
    fn a_group_takes_16_bytes() {
        assert_eq!(size_of::<DeltaGroup>(), 16);
    }

    #[test]
    fn objects_skip_the_comparison_after_three_that_differ() {
        let mut pace = Pace::default();
        let mut skipped = Vec::new();
        for _ in 0..13 {
            let mut skips = 0_u32;
            while pace.take_skip() {
                skips += 1;
            }
            skipped.push(skips);
            pace.record(Verdict::Differs);
        }
        assert_eq!(skipped, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 128, 128]);
        // One that resembles the reference ends the row.
        pace.record(Verdict::Resembles);
        (0..128).for_each(|_| assert!(pace.take_skip()));
        pace.record(Verdict::Differs);
        pace.record(Verdict::Outdated { resembles: true });
        pace.record(Verdict::Differs);
        pace.record(Verdict::Differs);
        assert!(!pace.take_skip());
        pace.record(Verdict::Outdated { resembles: false });
        assert!(pace.take_skip());
    }

    #[test]
    fn trials_become_rare_until_a_reference_is_outdated() {
        let mut pace = Pace::default();
        let trials = |pace: &mut Pace, objects| (0..objects).filter(|_| pace.take_due_trial(true)).collect::<Vec<_>>();
        assert_eq!(trials(&mut pace, 64), [0, 2, 6, 14, 30, 46, 62]);
        pace.record(Verdict::Resembles);
        assert_eq!(trials(&mut pace, 16), [14]);
        pace.record(Verdict::Outdated { resembles: true });
        assert_eq!(trials(&mut pace, 8), [0, 2, 6]);
        // Without a previous object, the trial stays due.
        assert!((0..20).all(|_| !pace.take_due_trial(false)));
        assert!(pace.take_due_trial(true));
    }

    #[test]
    fn a_trial_compares_with_another_object_of_the_group() {
        let mut groups = DeltaGroups::default();
        let [one, other] = [1, 2].map(GroupKey);
        groups.set_candidate(one, StateId::new(1, 16), |_| true);
        assert!(groups.take_due_trial(one, "a").is_none());
        groups.remember_previous(one, "a", b"bytes");
        assert!(groups.take_due_trial(one, "a").is_none());
        assert!(groups.take_due_trial(other, "b").is_none());
        assert_eq!(groups.take_due_trial(one, "b"), Some(&b"bytes"[..]));
        groups.remember_previous(other, "c", b"bytes");
        assert!((0..40).all(|_| groups.take_due_trial(one, "b").is_none()));
        groups.remember_previous(one, "c", &vec![0; MAX_TRIAL_LEN + 1]);
        assert!((0..40).all(|_| groups.take_due_trial(one, "b").is_none()));
    }

    #[test]
    fn groups_of_deleted_objects_are_forgotten() {
        let mut groups = DeltaGroups::default();
        for i in 0..1000 {
            // Only the newest object is stored.
            let state = |i: usize| StateId::new(0, 16 * i);
            groups.set_candidate(GroupKey(i as u64), state(i), |held| held == state(i - 1));
            assert!(groups.groups.len() <= FEW_GROUPS);
        }
        assert_eq!(groups.candidate(GroupKey(999)), Some(StateId::new(0, 16 * 999)));
        for (from, expected) in [(998_usize, 999), (999, 7)] {
            groups.move_candidate(GroupKey(999), 16 * from, 16 * 7);
            assert_eq!(groups.candidate(GroupKey(999)), Some(StateId::new(0, 16 * expected)));
        }
    }

    #[test]
    fn reports_its_map_and_the_previous_object() {
        let create = || {
            let mut groups = DeltaGroups::default();
            (0..3000).for_each(|i| groups.set_candidate(GroupKey(i), StateId::new(0, 16), |_| true));
            groups.remember_previous(GroupKey(0), &"n".repeat(20_000), &vec![0; 30_000]);
            groups
        };
        let mut groups = assert_reports_what_it_allocates(create, DeltaGroups::bytes);
        groups.forget_dropped(|_| false);
        assert_eq!(groups.bytes(), 0);
    }
}
