//! The errors of readers that decode objects.

use listwatch::{ItemError, UndecodableObject};

use crate::state::entry::Entry;
use crate::sync::{Mutex, lock};

/// The number of states of objects that readers could not decode, and the last one.
///
/// A store does not decode what it keeps encoded, so only readers find them. Each state remembers that it is counted.
/// So the number does not depend on the number of readers.
#[derive(Default)]
pub(crate) struct DecodeErrors(Mutex<(u64, Option<UndecodableObject>)>);

impl DecodeErrors {
    /// Counts the state of the entry, unless it is counted.
    pub(super) fn count<D>(&self, entry: &Entry<D>, error: &ItemError) {
        if !entry.set_undecodable() {
            return;
        }
        let (namespace, name) = entry.key();
        let object = UndecodableObject::with_identity([namespace, name, &entry.resource_version()], error.clone());
        let mut errors = lock(&self.0);
        errors.0 += 1;
        let before = errors.1.replace(object);
        drop(errors);
        // The error may be of the caller, whose code no lock waits for.
        drop(before);
    }

    pub(crate) fn get(&self) -> (u64, Option<UndecodableObject>) {
        lock(&self.0).clone()
    }
}
