//! The states of a change log: when it opens and closes, and which readers wake.
//!
//! The log contains the changes of the server in the order of the watch, while the store is complete. The store at a
//! version, together with the changes after it, then yields each later state. Every rule here and in
//! [`open_log`](super::open_log) follows from this.
//!
//! | state | what is known | it ends |
//! |---|---|---|
//! | `Disabled` | nothing | when a reflector asks for a log: `Closed` |
//! | `Closed` | what the watch must have passed before the log can open | once the store has all changes up to a version that has an order: `Open` if no object is newer, else `Opening` |
//! | `Opening` | that version, and the newest version of an object | once the watch has passed the newest version: `Open` |
//! | `Open` | the changes since | |
//!
//! `Opening` and `Open` end in `Closed` when a relist begins, a write fails, or the order of the changes is lost.
//!
//! - **A relist never becomes changes.** A list has no order and lacks the deletions, so the log closes when a relist
//!   begins.
//! - **The log opens late.** Pages of a list may contain objects newer than the collection, and so may a list next to a
//!   watch. The log opens once the watch has passed the newest of them.
//! - **A change that is not logged delays the log.** While the log is not open, the watch may deliver a change without
//!   a version of its own. A log that opened at the version before it would lack this change.
//!
//! Left out: a log in the file of a store. After a load, the log opens at the saved version without changes.
//!
//! Waking a task may run code of the caller, and freeing a log may take long. Neither may happen under a lock, so
//! wakers and dropped changes leave the log as [`DueWork`].

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use listwatch::StoreType;
use listwatch::internal::is_older;

use crate::contain::wake;
use crate::error::StoreError;
use crate::key::ObjectKey;
use crate::log::change::KeptChange;
use crate::log::frames::Frames;
use crate::log::open_log::{Appended, ChangeLogLimits, CursorPlace, ObservedChange, OpenLog};
use crate::state::entry::Entry;
use crate::state::object::Codec;

/// The state of a change log: see [`StoreReader::change_log`](crate::StoreReader::change_log).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeLogStatus {
    /// The log contains all changes after this resource version; `None` while it is closed.
    pub start: Option<String>,
    /// How many changes it contains.
    pub changes: usize,
    /// The memory of the log in bytes.
    pub bytes: usize,
    /// The age of the oldest change.
    pub age: Duration,
}

pub(crate) struct LogContents<T: StoreType + ?Sized> {
    limits: ChangeLogLimits,
    state: LogState<T>,
    /// How often the log was opened.
    openings: u64,
    /// The newest version that the watch has delivered since the last list began, in any state; empty before the first.
    seen: String,
    /// Readers may hold changes, and so their frames, even after the log was closed.
    frames: Arc<Frames>,
    readers: WaitingReaders,
    /// What is freed after the locks are released.
    dropped: Dropped<T>,
}

/// The state of a log: see the table above.
enum LogState<T: StoreType + ?Sized> {
    /// No reflector has asked for a log. `enable` closes it.
    Disabled,
    /// `open` opens it, once the watch has passed these versions.
    Closed {
        /// The store may contain objects that are deleted at versions up to this one, which is the newest of the last
        /// list.
        listed: String,
        /// The watch has delivered a change without a version of its own that is newer than this version.
        unsure: Option<String>,
    },
    /// `advance` opens it, once `version` has reached `newest`.
    Opening {
        /// The store has all changes up to this version.
        version: String,
        /// The store may contain or lack objects because of changes up to this version.
        newest: String,
    },
    /// It closes when it would lack a change.
    Open(Box<OpenLog<T>>),
}

#[derive(Default)]
struct WaitingReaders {
    /// How many cursors there were so far, which numbers the next one.
    cursors: u64,
    /// The wakers, by the number of the cursor.
    wakers: HashMap<u64, Waker>,
    has_news: bool,
}

/// The log is dropped with its store, and waiting readers must learn it, because nothing else would ever poll them
/// again.
impl Drop for WaitingReaders {
    fn drop(&mut self) {
        self.wakers.drain().for_each(|(_, waker)| wake(waker));
    }
}

/// Changes that were dropped one by one, and logs that were closed.
struct Dropped<T: StoreType + ?Sized> {
    changes: Vec<KeptChange<T>>,
    logs: Vec<OpenLog<T>>,
}

/// What remains to be done once a writer has released its locks: waking readers and freeing changes.
pub(crate) struct DueWork<T: StoreType + ?Sized> {
    wakers: Vec<Waker>,
    _dropped: Dropped<T>,
}

/// A cursor that the log knows.
pub(super) struct Cursor {
    number: u64,
    pub(super) place: CursorPlace,
}

impl<T: StoreType + ?Sized> Default for Dropped<T> {
    fn default() -> Self {
        Self { changes: Vec::new(), logs: Vec::new() }
    }
}

impl<T: StoreType + ?Sized> Drop for DueWork<T> {
    fn drop(&mut self) {
        self.wakers.drain(..).for_each(wake);
    }
}

impl<T: StoreType + ?Sized> LogState<T> {
    fn closed() -> Self {
        Self::Closed { listed: String::new(), unsure: None }
    }
}

impl<T: StoreType + ?Sized> LogContents<T> {
    pub(super) fn new() -> Self {
        Self {
            limits: ChangeLogLimits::default(),
            state: LogState::Disabled,
            openings: 0,
            seen: String::new(),
            frames: Arc::default(),
            readers: WaitingReaders::default(),
            dropped: Dropped::default(),
        }
    }

    pub(crate) fn enable(&mut self, limits: ChangeLogLimits) {
        self.frames.set_limit(Frames::share(limits.bytes));
        self.limits = limits;
        if let LogState::Disabled = self.state {
            self.state = LogState::closed();
        }
    }

    fn open_log(&self) -> Option<&OpenLog<T>> {
        if let LogState::Open(log) = &self.state { Some(log) } else { None }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, LogState::Closed { .. })
    }

    /// Returns the version at which the store contains exactly the objects of the log, if there is one.
    pub(crate) fn exact_version(&self) -> Option<&str> {
        self.open_log()?.exact_version()
    }

    /// Returns the [exact version](Self::exact_version), if every reader at this version knows all changes of the
    /// store.
    pub(crate) fn settled_version(&self) -> Option<&str> {
        self.open_log().filter(|log| !log.is_shared())?.exact_version()
    }

    pub(crate) fn close(&mut self) {
        match &mut self.state {
            LogState::Disabled | LogState::Closed { .. } => {}
            LogState::Opening { newest, .. } => {
                self.state = LogState::Closed { listed: mem::take(newest), unsure: None };
            }
            LogState::Open(_) => {
                if let LogState::Open(log) = mem::replace(&mut self.state, LogState::closed()) {
                    self.dropped.logs.push(*log);
                }
                self.readers.has_news = true;
            }
        }
    }

    /// Closes the log until the watch has delivered a version newer than all before.
    fn lose_order(&mut self) {
        self.close();
        if let LogState::Closed { unsure, .. } = &mut self.state {
            *unsure = Some(self.seen.clone());
        }
    }

    /// Closes the log until another list is complete.
    pub(crate) fn begin_relist(&mut self) {
        self.close();
        self.seen.clear();
        if self.is_closed() {
            self.state = LogState::closed();
        }
    }

    /// Notes the version of the list.
    pub(crate) fn listed_at(&mut self, version: &str) {
        if let LogState::Closed { listed, .. } = &mut self.state {
            version.clone_into(listed);
        }
    }

    /// Notes that the watch delivers the changes after this version.
    pub(crate) fn watched_from(&mut self, version: &str) {
        if self.has_not_seen(version) {
            version.clone_into(&mut self.seen);
        }
    }

    fn has_not_seen(&self, resource_version: &str) -> bool {
        self.seen.is_empty() || is_older(&self.seen, resource_version)
    }

    /// Opens a closed log at a comparable version up to which the store contains all changes. `newest` is the newest
    /// version of an object in the store.
    pub(crate) fn open(&mut self, version: &str, newest: &str) {
        let LogState::Closed { listed, unsure } = &self.state else { return };
        if unsure.as_ref().is_some_and(|unsure| !is_older(unsure, version)) {
            return;
        }
        let newest = if is_older(newest, listed) { listed.clone() } else { newest.to_owned() };
        self.open_after(version, newest);
    }

    /// Opens the log at this version, unless the store contains newer objects.
    fn open_after(&mut self, version: &str, newest: String) {
        self.watched_from(version);
        self.state = if is_older(version, &newest) {
            LogState::Opening { version: version.to_owned(), newest }
        } else {
            self.openings += 1;
            LogState::Open(Box::new(OpenLog::new(self.openings, version, Arc::clone(&self.frames))))
        };
    }

    /// Notes that the store contains all changes up to this version.
    pub(crate) fn advance(&mut self, version: &str) {
        match &mut self.state {
            LogState::Disabled | LogState::Closed { .. } => {}
            LogState::Opening { version: before, newest } => {
                if is_older(before, version) {
                    let newest = mem::take(newest);
                    self.open_after(version, newest);
                }
            }
            LogState::Open(log) => {
                if log.reach(version) {
                    log.trim(&self.limits, &mut self.dropped.changes);
                    self.watched_from(version);
                }
            }
        }
    }

    /// Notes the state before a write that is not the reflector's, which the log does not contain.
    pub(crate) fn note_own_write(&mut self, key: ObjectKey, old: Option<Entry>, resource_version: &str) {
        match &mut self.state {
            LogState::Disabled | LogState::Closed { .. } => {}
            LogState::Opening { newest, .. } => {
                if is_older(newest, resource_version) {
                    resource_version.clone_into(newest);
                }
            }
            LogState::Open(log) => log.note_own_write(key, old),
        }
    }

    pub(crate) fn append(&mut self, observed: ObservedChange, codec: &Arc<Codec<T>>) {
        let version = observed.object.resource_version().into_owned();
        let is_newer = self.has_not_seen(&version);
        if is_newer {
            self.seen.clone_from(&version);
        }
        // A change that is not newer happened after a version at which the log could open without it.
        let loses_order = match &mut self.state {
            LogState::Disabled => false,
            LogState::Opening { .. } if is_newer => {
                self.advance(&version);
                false
            }
            LogState::Opening { .. } => observed.has_effect,
            // A deletion may have no effect because the list has not delivered the object yet.
            LogState::Closed { .. } => !is_newer && (observed.has_effect || observed.is_deleted),
            LogState::Open(log) => match log.append(observed, &version, is_newer, codec) {
                Appended::Nothing => false,
                Appended::Change => {
                    log.trim(&self.limits, &mut self.dropped.changes);
                    self.readers.has_news = true;
                    false
                }
                Appended::OrderLost => true,
            },
        };
        if loses_order {
            self.lose_order();
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.open_log().map_or(0, OpenLog::bytes) + self.frames.bytes()
    }

    pub(crate) fn status(&self) -> ChangeLogStatus {
        let Some(log) = self.open_log() else { return ChangeLogStatus::default() };
        let (start, changes, age) = log.extent();
        ChangeLogStatus { start: Some(start.to_owned()), changes, bytes: self.bytes(), age }
    }

    /// Takes what remains to be done after the locks are released.
    pub(crate) fn take_due_work(&mut self) -> DueWork<T> {
        let wakers = if mem::take(&mut self.readers.has_news) {
            self.readers.wakers.drain().map(|(_, waker)| waker).collect()
        } else {
            Vec::new()
        };
        DueWork { wakers, _dropped: mem::take(&mut self.dropped) }
    }

    /// Registers a cursor after the changes that a reader at this version knows.
    pub(super) fn add_cursor(&mut self, resource_version: &str) -> Result<Cursor, StoreError> {
        let place = self.open_log().ok_or(StoreError::ChangesExpired)?.place_after(resource_version)?;
        self.readers.cursors += 1;
        Ok(Cursor { number: self.readers.cursors, place })
    }

    /// Returns the change at the place of a cursor, if there is one.
    pub(super) fn change_at(&self, cursor: &Cursor) -> Result<Option<&KeptChange<T>>, StoreError> {
        self.open_log().ok_or(StoreError::ChangesExpired)?.change_at(&cursor.place)
    }

    /// Returns the version of the log, if the cursor has read all of it.
    pub(super) fn version_at_end(&self, cursor: &Cursor) -> Option<&str> {
        self.open_log()?.version_at_end(&cursor.place)
    }

    /// Returns the version of the change before the place of a cursor.
    pub(super) fn version_before(&self, cursor: &Cursor) -> Option<&str> {
        self.open_log()?.version_before(&cursor.place)
    }

    /// Sets the waker for when the log has news, and returns the previous one.
    pub(super) fn set_waker(&mut self, cursor: &Cursor, waker: &Waker) -> Option<Waker> {
        self.readers.wakers.insert(cursor.number, waker.clone())
    }

    pub(super) fn remove_waker(&mut self, cursor: &Cursor) -> Option<Waker> {
        self.readers.wakers.remove(&cursor.number)
    }
}
