//! The contents of a change log: when it opens and closes, and what is appended, dropped and returned.
//!
//! The log has the changes of the server in the order of the watch. It has them while the store is complete. Then the
//! store at a version and the changes after it give each later state. Each rule below follows from this.
//!
//! - **A relist never becomes changes.** A list has no order, and lacks the deletions. The log closes when a relist
//!   begins.
//! - **The log opens late.** Pages of a list may have objects newer than the collection, and so may a list in parallel
//!   to a watch. The log opens once the watch has passed the newest of them (`Opening`).
//! - **Writes of others are not changes.** The caller may apply the server's answer before the watch delivers it.
//!   `ahead` keeps the state before such a write, so that the change of the watch replaces the right state. While
//!   `ahead` has an object, the store is of no exact version.
//! - **A lost order closes the log.** A version may not compare, or a deletion may meet a newer state of others. Then a
//!   reader could miss a change. Readers then list again, which is always right.
//! - **Places, not versions, order a cursor.** Several changes may share a version: see [`Place`].
//! - **Changes that share the newest version stay**, over the limits too. Otherwise each reader that lists at it would
//!   expire.
//!
//! Left out: a log in the file of a store. After a load the log opens at the saved version, without changes.
//!
//! Freeing a state and waking a task may run code of the caller, which must not run under a lock. So dropped changes
//! and wakers leave the log as [`DueWork`].

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use listwatch::internal::{is_comparable, is_older};
use listwatch::{EventType, compare_resource_versions};
use tokio::time::Instant;

use crate::StoreType;
use crate::contain::wake;
use crate::error::StoreError;
use crate::key::ObjectKey;
use crate::log::change::LoggedChange;
use crate::log::frames::Frames;
use crate::log::place::{KeptChange, Place};
use crate::log::status::{ChangeLogLimits, ChangeLogStatus};
use crate::state::entry::Entry;
use crate::state::object::Codec;

/// The contents of the log of a store.
///
/// | state | left when |
/// |---|---|
/// | `Closed` | the collection is complete at a version, or changes are pending that make it so |
/// | `Opening`: the store has objects that are newer than the version up to which the watch has delivered all changes | the watch has passed them |
/// | `Open` | a relist begins, or the store misses a change |
pub(crate) struct LogContents<T: StoreType + ?Sized> {
    limits: Option<ChangeLogLimits>,
    state: LogState,
    /// Distinguishes the cursors of an earlier opening.
    opening: u64,
    /// All changes after this version are in `kept`.
    start: String,
    /// A change was dropped that a reader at `start` may lack.
    start_is_partial: bool,
    /// All changes up to this version are in `kept`.
    version: String,
    /// Another change has followed at this version, or without a version of its own.
    is_shared: bool,
    /// The newest version that the watch has delivered since the last list began, also while the log is closed.
    seen: String,
    /// The version of a list beside which a watch has run. Its objects may be deleted at versions up to this one.
    listed: String,
    /// The watch has delivered a change without a version of its own, which is newer than this version, while the log
    /// was not open.
    unsure: Option<String>,
    /// The number of changes that were dropped from the front of `kept`.
    dropped: u64,
    kept: VecDeque<KeptChange<T>>,
    kept_bytes: usize,
    frames: Arc<Frames>,
    /// The states at `version` of objects that others than the reflector have written since.
    ahead: HashMap<ObjectKey, Option<Entry>>,
    /// The wakers of waiting readers, by the number of the reader.
    wakers: HashMap<u64, Waker>,
    readers: u64,
    has_news: bool,
    /// Changes that were dropped. They are freed after the locks are released.
    garbage: Vec<KeptChange<T>>,
}

/// The place of a cursor. It keeps no change.
pub(super) struct CursorPlace {
    /// Distinguishes the cursor from others.
    number: u64,
    opening: u64,
    /// The number of the next change since the log was opened.
    pub(super) next: u64,
}

/// What is due once a writer has released its locks: readers to wake, and changes to free.
pub(crate) struct DueWork<T: StoreType + ?Sized> {
    wakers: Vec<Waker>,
    _garbage: Vec<KeptChange<T>>,
}

impl<T: StoreType + ?Sized> Drop for DueWork<T> {
    fn drop(&mut self) {
        self.wakers.drain(..).for_each(wake);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LogState {
    Closed,
    /// Opens at this version.
    Opening(String),
    Open,
}

/// A change of the server that was written.
pub(crate) struct ObservedChange {
    /// The state that the store had before.
    pub(crate) old: Option<Entry>,
    /// The state of the change; of a deleted object, its final state.
    pub(crate) object: Entry,
    pub(crate) is_deleted: bool,
    /// True if the store changed.
    pub(crate) has_effect: bool,
    /// The version that the store has of an object that did not change, or of its deletion: newer than the change if
    /// others than the reflector have written or deleted it.
    pub(crate) known: Option<String>,
}

impl ObservedChange {
    fn is_old_version(&self, version: &str) -> bool {
        self.old.as_ref().is_some_and(|old| old.resource_version() == version)
    }
}

impl<T: StoreType + ?Sized> LogContents<T> {
    pub(super) fn new() -> Self {
        Self {
            limits: None,
            state: LogState::Closed,
            opening: 0,
            start: String::new(),
            start_is_partial: false,
            version: String::new(),
            is_shared: false,
            seen: String::new(),
            listed: String::new(),
            unsure: None,
            dropped: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            frames: Arc::default(),
            ahead: HashMap::new(),
            wakers: HashMap::new(),
            readers: 0,
            has_news: false,
            garbage: Vec::new(),
        }
    }

    pub(crate) fn enable(&mut self, limits: ChangeLogLimits) {
        self.frames.set_limit(Frames::share(limits.bytes));
        self.limits = Some(limits);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == LogState::Open
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state == LogState::Closed
    }

    /// Returns the version at which the store has exactly the objects of the log, if it has.
    pub(crate) fn exact_version(&self) -> Option<&str> {
        (self.is_open() && self.ahead.is_empty()).then_some(&self.version)
    }

    /// Returns the [exact version](Self::exact_version), if each reader at this version has all changes of the store.
    pub(crate) fn settled_version(&self) -> Option<&str> {
        self.exact_version().filter(|_| !self.is_shared)
    }

    /// Drops all changes, and ends all readers.
    pub(crate) fn close(&mut self) {
        if self.is_open() {
            self.has_news = true;
        }
        self.state = LogState::Closed;
        self.opening += 1;
        self.dropped = 0;
        self.kept_bytes = 0;
        self.garbage.extend(mem::take(&mut self.kept));
        self.ahead = HashMap::new();
    }

    /// Closes the log until another list is complete.
    pub(crate) fn begin_relist(&mut self) {
        self.close();
        self.seen.clear();
        self.listed.clear();
        self.unsure = None;
    }

    /// Records the version of the list.
    pub(crate) fn listed_at(&mut self, version: &str) {
        version.clone_into(&mut self.listed);
    }

    /// Records that the watch delivers the changes after this version.
    pub(crate) fn watched_from(&mut self, version: &str) {
        if self.has_not_seen(version) {
            version.clone_into(&mut self.seen);
        }
    }

    /// Begins at a version up to which the store has all changes, and which has an order. `newest` is the newest
    /// version of an object of the store.
    pub(crate) fn open(&mut self, version: &str, newest: &str) {
        let is_unsure = self.unsure.as_ref().is_some_and(|unsure| !is_older(unsure, version));
        if self.limits.is_none() || is_unsure {
            return;
        }
        self.unsure = None;
        self.is_shared = false;
        version.clone_into(&mut self.version);
        self.watched_from(version);
        let newest = if is_older(newest, &self.listed) { &*self.listed } else { newest };
        if is_older(version, newest) {
            self.state = LogState::Opening(newest.to_owned());
        } else {
            version.clone_into(&mut self.start);
            self.start_is_partial = false;
            self.state = LogState::Open;
            self.has_news = true;
        }
    }

    /// Records that the store has all changes up to this version.
    pub(crate) fn advance(&mut self, version: &str) {
        if self.is_closed() || !is_older(&self.version, version) {
            return;
        }
        self.reach(version);
        self.watched_from(version);
        if let LogState::Opening(newest) = &self.state {
            let newest = newest.clone();
            self.open(version, &newest);
        }
        self.trim();
    }

    /// Records the state before a write of others than the reflector, which the log does not have.
    pub(crate) fn note_own_write(&mut self, key: ObjectKey, old: Option<Entry>, resource_version: &str) {
        match &mut self.state {
            LogState::Closed => {}
            LogState::Opening(newest) => {
                if is_older(newest, resource_version) {
                    resource_version.clone_into(newest);
                }
            }
            LogState::Open => _ = self.ahead.entry(key).or_insert(old),
        }
    }

    fn has_not_seen(&self, resource_version: &str) -> bool {
        self.seen.is_empty() || is_older(&self.seen, resource_version)
    }

    /// Appends a change.
    pub(crate) fn append(&mut self, observed: ObservedChange, codec: &Arc<Codec<T>>) {
        let own_version = observed.object.resource_version().into_owned();
        let is_newer = self.has_not_seen(&own_version);
        if is_newer {
            self.seen.clone_from(&own_version);
        }
        if !self.is_open() {
            if is_newer {
                self.advance(&own_version);
            } else if observed.has_effect || observed.is_deleted && self.is_closed() {
                // It happened after a version at which the log could open without it. While the log is closed, a
                // deletion may have no effect because the list has not delivered the object yet.
                self.lose_order();
            }
            return;
        }
        let place = match &*own_version {
            _ if is_newer => Place::First,
            // A deletion at the version of the object's last state has none of its own.
            version if version == self.version && !observed.is_old_version(version) => Place::Further,
            version if observed.has_effect && !version.is_empty() && !is_comparable(version) => {
                return self.lose_order();
            }
            _ => Place::Unversioned,
        };
        let observed = if self.ahead.is_empty() { Some(observed) } else { self.catch_up(observed, place) };
        if place == Place::First {
            self.reach(&own_version);
        }
        // Otherwise the watch has delivered the change again.
        if let Some(observed) = observed.filter(|observed| observed.has_effect || place == Place::First) {
            self.is_shared |= place != Place::First;
            self.push(observed, place, codec);
        }
    }

    /// Returns the change of the state that the log has of an object, if others than the reflector have written the
    /// object; `None` if nothing changes.
    fn catch_up(&mut self, mut observed: ObservedChange, place: Place) -> Option<ObservedChange> {
        let version = observed.object.resource_version();
        let key = observed.object.identity().key();
        let Some(state) = self.ahead.remove(&key) else { return Some(observed) };
        let is_behind = observed.known.as_ref().is_some_and(|known| is_older(&version, known));
        let is_repeated = match &state {
            _ if place == Place::First => false,
            Some(state) => !observed.is_deleted && !is_older(&state.resource_version(), &version),
            None => observed.is_deleted,
        };
        if is_repeated {
            self.ahead.insert(key, state);
            return None;
        }
        if is_behind && observed.is_deleted && place != Place::First {
            // Whether the object was deleted before or after the state that others wrote is unknown.
            self.lose_order();
            return None;
        }
        if is_behind {
            self.ahead.insert(key, (!observed.is_deleted).then(|| observed.object.clone()));
        }
        observed.old = state;
        observed.has_effect = true;
        Some(observed)
    }

    /// Records that the log has all changes up to this version.
    fn reach(&mut self, version: &str) {
        version.clone_into(&mut self.version);
        self.is_shared = false;
    }

    /// Closes the log until the watch has delivered a version that is newer than all before.
    fn lose_order(&mut self) {
        self.unsure = Some(self.seen.clone());
        self.close();
    }

    fn push(&mut self, observed: ObservedChange, place: Place, codec: &Arc<Codec<T>>) {
        let ObservedChange { old, object, is_deleted, .. } = observed;
        let kind = match (is_deleted, &old) {
            (true, None) => return,
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
        self.has_news = true;
        self.trim();
    }

    /// Drops the oldest changes that exceed the limits.
    fn trim(&mut self) {
        let Some(limits) = self.limits else { return };
        // Frames have a limit of their own. Only changes that must be kept exceed the limit of the log.
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
            self.garbage.push(oldest);
        }
        if let Some((place, version)) = last {
            self.start = match place {
                Place::First | Place::Further => version,
                // It happened before the next version.
                Place::Unversioned => {
                    let next = self.kept.iter().find(|kept| kept.place == Place::First);
                    next.map_or(&self.version, |next| &next.change.resource_version).clone()
                }
            };
            self.start_is_partial = place == Place::Further;
        }
        if self.kept.capacity() > 4 * self.kept.len() + 64 {
            self.kept.shrink_to(2 * self.kept.len());
        }
    }

    /// Returns the memory of the log in bytes.
    pub(crate) fn bytes(&self) -> usize {
        debug_assert_eq!(
            self.kept_bytes,
            self.kept.iter().map(KeptChange::bytes).sum::<usize>(),
            "the bytes of the changes"
        );
        self.kept_bytes + self.frames.bytes()
    }

    pub(crate) fn status(&self) -> ChangeLogStatus {
        if !self.is_open() {
            return ChangeLogStatus::default();
        }
        ChangeLogStatus {
            start: Some(self.start.clone()),
            changes: self.kept.len(),
            bytes: self.bytes(),
            age: self.kept.front().map_or(Duration::ZERO, |oldest| oldest.at.elapsed()),
        }
    }

    /// Takes what is due after the locks are released.
    pub(crate) fn take_due_work(&mut self) -> DueWork<T> {
        let wakers = if mem::take(&mut self.has_news) {
            self.wakers.drain().map(|(_, waker)| waker).collect()
        } else {
            Vec::new()
        };
        DueWork { wakers, _garbage: mem::take(&mut self.garbage) }
    }

    /// Returns the place after the changes that a reader has which is at this version.
    fn place_after(&self, resource_version: &str) -> Result<u64, StoreError> {
        // Also refuses versions without an order.
        let has_all = match compare_resource_versions(&self.start, resource_version) {
            Some(Ordering::Less) => true,
            Some(Ordering::Equal) => !self.start_is_partial,
            _ => false,
        };
        if !self.is_open() || !has_all {
            return Err(StoreError::ChangesExpired);
        }
        let is_before = |kept: &KeptChange<T>| {
            is_older(&kept.change.resource_version, resource_version) || kept.is_known_at(resource_version)
        };
        let mut place = self.kept.partition_point(is_before);
        while place > 0 && self.kept.get(place - 1).is_some_and(|kept| kept.place == Place::Unversioned) {
            place -= 1;
        }
        Ok(self.dropped + place as u64)
    }

    /// Registers a cursor after the changes that a reader has which is at this version.
    pub(super) fn add_cursor(&mut self, resource_version: &str) -> Result<CursorPlace, StoreError> {
        let next = self.place_after(resource_version)?;
        self.readers += 1;
        Ok(CursorPlace { number: self.readers, opening: self.opening, next })
    }

    /// Returns the change at the place of a cursor, if there is one.
    pub(super) fn change_at(&self, place: &CursorPlace) -> Result<Option<&KeptChange<T>>, StoreError> {
        let at = place.next.checked_sub(self.dropped).filter(|_| self.opening == place.opening);
        let at = at.ok_or(StoreError::ChangesExpired)?;
        Ok(usize::try_from(at).ok().and_then(|at| self.kept.get(at)))
    }

    /// Returns the version of the log, if the cursor has read all of it.
    pub(super) fn version_at_end(&self, place: &CursorPlace) -> Option<&str> {
        let is_at_end = self.opening == place.opening && place.next == self.dropped + self.kept.len() as u64;
        is_at_end.then_some(&self.version)
    }

    /// Wakes the cursor when the log has news. Returns the waker before.
    pub(super) fn set_waker(&mut self, place: &CursorPlace, waker: &Waker) -> Option<Waker> {
        self.wakers.insert(place.number, waker.clone())
    }

    pub(super) fn remove_waker(&mut self, place: &CursorPlace) -> Option<Waker> {
        self.wakers.remove(&place.number)
    }
}
