//! The errors of readers that decode objects.

use std::collections::VecDeque;

use listwatch::{ItemError, UndecodableObject};

use crate::state::entry::Entry;
use crate::sync::{Mutex, lock};

/// How many undecodable objects are remembered, so that one of them is still known when the last one is repaired.
const REMEMBERED: usize = 16;

/// Counts the states of objects that readers could not decode, and keeps the last of them.
///
/// A store does not decode what it keeps, so only readers find such states. Each state remembers that it was counted,
/// so the count does not depend on the number of readers.
#[derive(Default)]
pub(crate) struct DecodeErrors(Mutex<(u64, VecDeque<UndecodableObject>)>);

impl DecodeErrors {
    /// Counts the state of the entry, unless it was counted before.
    pub(super) fn count(&self, entry: &Entry, error: &ItemError) {
        if !entry.set_undecodable() {
            return;
        }
        let (namespace, name) = entry.key();
        let object = UndecodableObject::with_identity([namespace, name, &entry.resource_version()], error.clone());
        let mut errors = lock(&self.0);
        let (count, last) = &mut *errors;
        *count += 1;
        let same = last.iter().position(|before| before.namespace == namespace && before.name == name);
        let before = match same {
            Some(at) => last.remove(at),
            None if last.len() >= REMEMBERED => last.pop_front(),
            None => None,
        };
        last.push_back(object);
        drop(errors);
        // The error may be the caller's, whose code must not run under a lock.
        drop(before);
    }

    /// Returns the count, and the last state that `is_current` says is still stored. It runs without the lock.
    pub(crate) fn get(&self, is_current: impl Fn(&UndecodableObject) -> bool) -> (u64, Option<UndecodableObject>) {
        let (count, last) = lock(&self.0).clone();
        (count, last.into_iter().rev().find(is_current))
    }
}
