//! The families of objects: objects of one family differ little, so they are stored as differences to one base.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::compress::Base;
use listwatch::{Encoding, ItemRef};

/// A longer object has no family, which bounds the memory for the bases that are decompressed.
pub(super) const LONGEST: usize = 1 << 20;
/// The longest object that is tried as a base after it was written.
const LONGEST_LAST: usize = 64 << 10;
/// Another base is tried at the latest after this many objects. Each trial takes the time of one compression.
const TRIAL: u8 = 16;
/// The number of failures in a row after which objects skip their base, and the most objects that skip it until the next attempt.
const FAILURES: u8 = 3;
const SKIPS: u8 = 128;

/// Calls `hash` with the namespace and with what names the family: the uid of the controlling owner, or else the prefix of the name.
/// Returns `None` if the object has no family.
pub(super) fn key(
    encoding: Encoding,
    bytes: &[u8],
    namespace: &str,
    hash: impl FnOnce((&str, bool, &str)) -> u64,
) -> Option<u64> {
    if bytes.len() > LONGEST {
        return None;
    }
    let meta = ItemRef::new(encoding, bytes).meta().ok()?;
    let owner = meta.owner_references().ok()?.find(|owner| owner.controller && !owner.uid.is_empty());
    let (has_owner, family) = match owner {
        Some(owner) => (true, owner.uid),
        None => (false, meta.generate_name()),
    };
    (!family.is_empty()).then(|| hash((namespace, has_owner, &family)))
}

/// The families of a store, by the hash of their key. Two families with the same hash share a base, which costs memory only.
pub(super) struct Families {
    known: HashMap<u64, Family>,
    /// The length of `known` at which dropped families are removed: twice the number that was alive the last time.
    full: usize,
    last: Last,
}

/// The object that was written last.
#[derive(Default)]
struct Last {
    key: u64,
    name: String,
    bytes: Vec<u8>,
}

pub(super) struct Family {
    lead: Lead<Weak<Base>>,
    /// The number of objects until the next trial, and between trials.
    until_trial: u8,
    gap: u8,
    /// The number of failures in a row, and of objects that skip the base.
    failures: u8,
    skips: u8,
}

/// What the next object of a family is compared with.
#[derive(Clone, Copy)]
pub(super) enum Lead<B> {
    /// An object that is compressed by itself: the hash of its key, and the address of its state. It becomes the base when another
    /// object resembles it. A later state that gets the same place may be taken for it, which costs memory only.
    First {
        hash: u32,
        address: usize,
    },
    Base(B),
}

impl Default for Families {
    fn default() -> Self {
        Self { known: HashMap::new(), full: 64, last: Last::default() }
    }
}

impl Families {
    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut Family> {
        self.known.get_mut(&key)
    }

    /// Returns true if dropped families must be removed before another is added.
    pub(super) fn is_full(&self) -> bool {
        self.known.len() >= self.full
    }

    /// Compares objects of the family with this object or base from now on.
    pub(super) fn set(&mut self, key: u64, lead: Lead<&Arc<Base>>) {
        let lead = match lead {
            Lead::First { hash, address } => Lead::First { hash, address },
            Lead::Base(base) => Lead::Base(Arc::downgrade(base)),
        };
        let new = Family { lead: lead.clone(), until_trial: 0, gap: 1, failures: 0, skips: 0 };
        self.known.entry(key).or_insert(new).lead = lead;
    }

    /// Records that a state of an object has moved.
    pub(super) fn moved(&mut self, key: u64, from: usize, to: usize) {
        if let Some(Family { lead: Lead::First { address, .. }, .. }) = self.known.get_mut(&key)
            && *address == from
        {
            *address = to;
        }
    }

    /// Remembers the object that was written last.
    pub(super) fn remember(&mut self, key: u64, name: &str, bytes: &[u8]) {
        let Last { key: last, name: last_name, bytes: last_bytes } = &mut self.last;
        *last = key;
        name.clone_into(last_name);
        last_bytes.clear();
        if bytes.len() <= LONGEST_LAST {
            last_bytes.extend_from_slice(bytes);
        }
    }

    /// Returns the object that was written last if it is another object of this family, and if a trial is due.
    pub(super) fn trial(&mut self, key: u64, name: &str) -> Option<&[u8]> {
        let Last { key: last, name: last_name, bytes } = &self.last;
        let family = self.known.get_mut(&key)?;
        family.until_trial = family.until_trial.saturating_sub(1);
        if family.until_trial > 0 || *last != key || last_name == name || bytes.is_empty() {
            return None;
        }
        family.gap = (2 * family.gap).min(TRIAL);
        family.until_trial = family.gap;
        Some(bytes)
    }

    /// Removes families without a base and without a stored object that could become the base.
    pub(super) fn forget_dropped(&mut self, is_stored: impl Fn(u32, usize) -> bool) {
        self.known.retain(|_, family| match &family.lead {
            Lead::First { hash, address } => is_stored(*hash, *address),
            Lead::Base(base) => base.strong_count() > 0,
        });
        self.last = Last::default();
        self.full = (2 * self.known.len()).max(64);
        self.known.shrink_to_fit();
    }

    pub(super) fn bytes(&self) -> usize {
        self.known.capacity() * 8 / 7 * (size_of::<(u64, Family)>() + 1)
            + self.last.name.capacity()
            + self.last.bytes.capacity()
    }
}

impl Family {
    /// Returns what to compare the next object with; `None` if the base does not exist any more.
    pub(super) fn lead(&self) -> Option<Lead<Arc<Base>>> {
        Some(match &self.lead {
            Lead::First { hash, address } => Lead::First { hash: *hash, address: *address },
            Lead::Base(base) => Lead::Base(base.upgrade()?),
        })
    }

    /// Returns true if the next object should not be compared, because many objects in a row did not resemble the base.
    pub(super) fn skip(&mut self) -> bool {
        let skips = self.skips > 0;
        self.skips = self.skips.saturating_sub(1);
        skips
    }

    /// Records that another base resembles the objects better.
    pub(super) fn drifted(&mut self) {
        (self.until_trial, self.gap) = (0, 1);
    }

    /// Records whether an object resembled the base.
    pub(super) fn compared(&mut self, resembles: bool) {
        if resembles {
            self.failures = 0;
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if let Some(many) = self.failures.checked_sub(FAILURES) {
            self.skips = 1_u8.checked_shl(many.into()).unwrap_or(SKIPS).min(SKIPS);
        }
    }
}
