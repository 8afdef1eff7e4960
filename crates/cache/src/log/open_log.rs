//! An open change log: the changes of the server after a version, in the order of the watch.
//!
//! - **Writes of others are not changes.** The caller may apply the server's answer before the watch delivers it.
//!   `ahead` keeps the state before such a write, so that the change of the watch replaces the right state. While
//!   `ahead` contains an object, the store is at no exact version.
//! - **A lost order ends the log.** If a version cannot be compared, or a deletion meets a newer state of others, a
//!   reader could miss a change. Readers then relist, which is always right.
//! - **Places, not versions, order a cursor**, because several changes may share a version: see [`Place`].
//! - **Changes that share the newest version stay**, even over the limits. Otherwise each reader that lists at this
//!   version would expire at once.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use listwatch::internal::{is_comparable, is_older};
use listwatch::{EventType, StoreType, compare_resource_versions};
use tokio::time::Instant;

use crate::error::StoreError;
use crate::key::ObjectKey;
use crate::log::change::{KeptChange, LoggedChange, Place};
use crate::log::frames::Frames;
use crate::state::entry::Entry;
use crate::state::object::Codec;

/// How much a change log keeps.
///
/// A relist that begins frees all of it at once, on the thread of the reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeLogLimits {
    /// The memory of the log in bytes, for replaced and deleted states and for encoded frames. The default is 64 MiB.
    ///
    /// Frames take at most a quarter of it. Over the limit, frames are encoded again and the oldest changes are
    /// dropped. The newest change, the changes that share its version and the newest frame are kept whatever their
    /// size.
    pub bytes: usize,
    /// The age of the oldest change. The default is 10 minutes.
    ///
    /// Changes that share the newest version may be older.
    pub age: Duration,
}

impl Default for ChangeLogLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, age: Duration::from_secs(600) }
    }
}

pub(crate) struct ObservedChange {
    /// The state that was stored before.
    pub(crate) old: Option<Entry>,
    /// The state of the change, or the final state of a deleted object.
    pub(crate) object: Entry,
    pub(crate) is_deleted: bool,
    /// True if the store changed.
    pub(crate) has_effect: bool,
    /// The stored version of an object that did not change, or of its deletion. It is newer than the change if somebody
    /// other than the reflector has written or deleted the object.
    pub(crate) known: Option<String>,
}

impl ObservedChange {
    fn is_old_version(&self, version: &str) -> bool {
        self.old.as_ref().is_some_and(|old| old.resource_version() == version)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    /// The log contains a new change, so wake the readers.
    Change,
    /// The log contained the change before, or it is of an object that the log does not contain.
    Nothing,
    /// The place of the change is unknown, so close the log.
    OrderLost,
}

/// The changes of a log since it opened, and what must be known to append the next one.
pub(super) struct OpenLog<T: StoreType + ?Sized> {
    /// Distinguishes the cursors of this log from those of an earlier one.
    number: u64,
    start: LogStart,
    /// The store contained all changes up to this version when the watch delivered it.
    version: String,
    kept: VecDeque<KeptChange<T>>,
    kept_bytes: usize,
    /// How many changes were dropped from the front of `kept`.
    dropped: u64,
    frames: Arc<Frames>,
    /// The states at `version` of objects that others than the reflector have written since.
    ahead: HashMap<ObjectKey, Option<Entry>>,
}

/// The readers that lack none of the dropped changes.
enum LogStart {
    /// Readers at this version or a newer one.
    At(String),
    /// Readers at a newer version: a further change of this version was dropped.
    After(String),
}

impl LogStart {
    fn version(&self) -> &str {
        match self {
            Self::At(version) | Self::After(version) => version,
        }
    }

    /// Also returns false for versions that cannot be compared.
    fn admits(&self, resource_version: &str) -> bool {
        match compare_resource_versions(self.version(), resource_version) {
            Some(Ordering::Less) => true,
            Some(Ordering::Equal) => matches!(self, Self::At(_)),
            _ => false,
        }
    }
}

/// The place of a cursor, which keeps no change alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CursorPlace {
    pub(super) log: u64,
    /// The number of the next change since the log was opened.
    pub(super) next: u64,
}

impl<T: StoreType + ?Sized> OpenLog<T> {
    /// Creates a log without changes, at a version up to which the store contains all changes and no newer ones.
    pub(super) fn new(number: u64, version: &str, frames: Arc<Frames>) -> Self {
        Self {
            number,
            start: LogStart::At(version.to_owned()),
            version: version.to_owned(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            dropped: 0,
            frames,
            ahead: HashMap::new(),
        }
    }

    pub(super) fn exact_version(&self) -> Option<&str> {
        self.ahead.is_empty().then_some(&self.version)
    }

    /// Returns true if a reader at the log's version may lack a change.
    pub(super) fn is_shared(&self) -> bool {
        self.kept.back().is_some_and(|newest| newest.is_unsettled_at(&self.version))
    }

    /// Notes that the store contains all changes up to this version. Returns true if the version is new.
    pub(super) fn reach(&mut self, version: &str) -> bool {
        let is_new = is_older(&self.version, version);
        if is_new {
            version.clone_into(&mut self.version);
        }
        is_new
    }

    pub(super) fn note_own_write(&mut self, key: ObjectKey, old: Option<Entry>) {
        self.ahead.entry(key).or_insert(old);
    }

    /// Appends a change of this version. `is_newer` is true if the watch has delivered only older versions before.
    pub(super) fn append(
        &mut self,
        observed: ObservedChange,
        own_version: &str,
        is_newer: bool,
        codec: &Arc<Codec<T>>,
    ) -> Appended {
        let place = match own_version {
            _ if is_newer => Place::First,
            // A deletion at the version of the object's last state has no version of its own.
            version if version == self.version && !observed.is_old_version(version) => Place::Further,
            version if observed.has_effect && !version.is_empty() && !is_comparable(version) => {
                return Appended::OrderLost;
            }
            _ => Place::Unversioned,
        };
        let observed = match self.catch_up(observed, place) {
            Ok(observed) => observed,
            Err(appended) => return appended,
        };
        if place == Place::First {
            own_version.clone_into(&mut self.version);
        } else if !observed.has_effect {
            // The watch has delivered the change again.
            return Appended::Nothing;
        }
        self.push(observed, place, codec)
    }

    /// Returns the change from the state that the log contains, if others than the reflector have written the object.
    ///
    /// # Errors
    ///
    /// The result of [`append`](Self::append), if nothing is appended.
    fn catch_up(&mut self, mut observed: ObservedChange, place: Place) -> Result<ObservedChange, Appended> {
        if self.ahead.is_empty() {
            return Ok(observed);
        }
        let version = observed.object.resource_version();
        let key = observed.object.identity().key();
        let Some(state) = self.ahead.remove(&key) else { return Ok(observed) };
        let is_behind = observed.known.as_ref().is_some_and(|known| is_older(&version, known));
        let is_repeated = match &state {
            _ if place == Place::First => false,
            Some(state) => !observed.is_deleted && !is_older(&state.resource_version(), &version),
            None => observed.is_deleted,
        };
        if is_repeated {
            self.ahead.insert(key, state);
            return Err(Appended::Nothing);
        }
        if is_behind && observed.is_deleted && place != Place::First {
            // Nobody knows whether the object was deleted before or after the state that others wrote.
            return Err(Appended::OrderLost);
        }
        if is_behind {
            self.ahead.insert(key, (!observed.is_deleted).then(|| observed.object.clone()));
        }
        observed.old = state;
        observed.has_effect = true;
        Ok(observed)
    }

    fn push(&mut self, observed: ObservedChange, place: Place, codec: &Arc<Codec<T>>) -> Appended {
        let ObservedChange { old, object, is_deleted, .. } = observed;
        let kind = match (is_deleted, &old) {
            (true, None) => return Appended::Nothing,
            (true, Some(_)) => EventType::Deleted,
            (false, Some(_)) => EventType::Modified,
            (false, None) => EventType::Added,
        };
        let change = Arc::new(LoggedChange {
            kind,
            resource_version: self.version.clone(),
            old,
            object,
            codec: Arc::clone(codec),
            number: self.frames.number(),
            frames: Arc::clone(&self.frames),
        });
        let kept = KeptChange { at: Instant::now(), place, change };
        self.kept_bytes += kept.bytes();
        self.kept.push_back(kept);
        Appended::Change
    }

    /// Moves the oldest changes that exceed the limits to `dropped`.
    pub(super) fn trim(&mut self, limits: &ChangeLogLimits, dropped: &mut Vec<KeptChange<T>>) {
        // Frames have their own limit. Only changes that must be kept exceed the limit of the log.
        let of_changes = limits.bytes - Frames::share(limits.bytes);
        let mut last = None;
        while let Some(oldest) = self.kept.front()
            && !oldest.is_unsettled_at(&self.version)
            && (oldest.at.elapsed() > limits.age || self.kept_bytes > of_changes && self.kept.len() > 1)
        {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.kept_bytes -= oldest.bytes();
            self.dropped += 1;
            last = Some((oldest.place, oldest.change.resource_version.clone()));
            dropped.push(oldest);
        }
        if let Some((place, version)) = last {
            self.start = match place {
                Place::First => LogStart::At(version),
                Place::Further => LogStart::After(version),
                // It happened before the next version.
                Place::Unversioned => {
                    let next = self.kept.iter().find(|kept| kept.place == Place::First);
                    LogStart::At(next.map_or(&self.version, |next| &next.change.resource_version).clone())
                }
            };
        }
        shrink(&mut self.kept);
    }

    /// Returns the memory of the changes in bytes, without their frames.
    pub(super) fn bytes(&self) -> usize {
        debug_assert_eq!(
            self.kept_bytes,
            self.kept.iter().map(KeptChange::bytes).sum::<usize>(),
            "the bytes of the changes"
        );
        self.kept_bytes
    }

    /// Returns the version after which the log contains all changes, how many there are, and the age of the oldest.
    pub(super) fn extent(&self) -> (&str, usize, Duration) {
        let age = self.kept.front().map_or(Duration::ZERO, |oldest| oldest.at.elapsed());
        (self.start.version(), self.kept.len(), age)
    }

    /// Returns the place after the changes that a reader at this version knows.
    ///
    /// # Errors
    ///
    /// [`StoreError::ChangesExpired`] if the reader lacks changes that were dropped.
    pub(super) fn place_after(&self, resource_version: &str) -> Result<CursorPlace, StoreError> {
        if !self.start.admits(resource_version) {
            return Err(StoreError::ChangesExpired);
        }
        let is_before = |kept: &KeptChange<T>| {
            is_older(&kept.change.resource_version, resource_version) || kept.is_known_at(resource_version)
        };
        let mut place = self.kept.partition_point(is_before);
        while place > 0 && self.kept.get(place - 1).is_some_and(|kept| kept.place == Place::Unversioned) {
            place -= 1;
        }
        Ok(CursorPlace { log: self.number, next: self.dropped + place as u64 })
    }

    /// Returns the change at the place of a cursor, if there is one.
    ///
    /// # Errors
    ///
    /// [`StoreError::ChangesExpired`] if the change was dropped, or the cursor is of an earlier log.
    pub(super) fn change_at(&self, place: &CursorPlace) -> Result<Option<&KeptChange<T>>, StoreError> {
        let at = place.next.checked_sub(self.dropped).filter(|_| self.number == place.log);
        let at = at.ok_or(StoreError::ChangesExpired)?;
        Ok(usize::try_from(at).ok().and_then(|at| self.kept.get(at)))
    }

    /// Returns the version of the change before a place, or of the last one that was dropped.
    pub(super) fn version_before(&self, place: &CursorPlace) -> Option<&str> {
        let at = place.next.checked_sub(self.dropped).filter(|_| self.number == place.log)?;
        let before = usize::try_from(at).ok()?.checked_sub(1);
        Some(match before.and_then(|before| self.kept.get(before)) {
            Some(kept) => &kept.change.resource_version,
            None => self.start.version(),
        })
    }

    pub(super) fn version_at_end(&self, place: &CursorPlace) -> Option<&str> {
        let is_at_end = self.number == place.log && place.next == self.dropped + self.kept.len() as u64;
        is_at_end.then_some(&self.version)
    }
}

/// Frees most of the capacity that a queue no longer needs.
fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > 4 * queue.len() + 64 {
        queue.shrink_to(2 * queue.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_was_long_frees_its_capacity() {
        for (capacity, len, expected) in [(64, 0, 64..65), (1000, 250, 1000..1001), (1000, 100, 200..500)] {
            let mut queue = VecDeque::<u8>::with_capacity(capacity);
            queue.resize(len, 0);
            shrink(&mut queue);
            assert!(expected.contains(&queue.capacity()), "{capacity}, {len}: {}", queue.capacity());
        }
    }
}
