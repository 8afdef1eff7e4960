//! The decisions of a reflector: how it syncs, from which version it lists, and how it reacts to errors.
//!
//! An attempt is a list, a watch, or both. After each attempt the state has new facts, and the facts choose the next
//! attempt. The code uses neither IO nor time, so a test runs a year of errors in a moment.
//!
//! | fact | learned from | changes the next attempt |
//! |---|---|---|
//! | `version` | a sync, and each event or bookmark after it | the version that a list requests at least |
//! | `was_loaded` | a file | it resumes the watch, and sends no list |
//! | `version_is_lost` | a list refused for its version (410, or too large), or failed 3 times in a row by an API server, or a watch without progress | it lists the most recent state |
//! | `went_back` | a server at an older version | no stored object counts as unchanged |
//! | `history_is_short` | a version that expired between a list and its watch | it watches first, and lists in parallel |
//! | `pages` | a list that the request timeout interrupted | it lists in pages |
//!
//! - A cache that was complete is never given up. Before that, `fails_fast` decides about lasting errors.
//! - A refused version is replaced at once, but only once: a second refusal backs off.
//! - A list requests the watch cache of the server first, as client-go does.
//! - `Any` ignores page sizes, so a first list in pages requests the most recent state.
//! - Facts about the server (`history_is_short`, `pages`) are kept as long as the reflector: a server does not get
//!   faster.

use std::fmt;
use std::mem;
use std::time::Duration;

use listwatch::client::{Error, ErrorKind, ResourceVersion};
use listwatch::internal::{RetryAdvice, is_comparable, is_older};

/// The number of lists at a version that an API server may fail before the reflector lists without a version. Not every
/// server says that it does not have the version.
const MOST_FAILED_LISTS: u32 = 3;

/// The longest wait between two attempts, which jitter may double.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(30);

/// How a reflector gets the whole collection into its store, and the changes after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// The server sends the objects as initial events of the watch (KEP-3157, on by default from 1.34). If the server
    /// refuses them, does not end them, or interrupts them twice, the reflector lists instead.
    WatchList,
    /// A list, and then a watch from its version. It never syncs if the list takes longer than the server keeps
    /// history. If the server's request timeout interrupts a list in one response, the next list uses pages of 500.
    ListThenWatch,
    /// A watch from the version of a list of one object, and in parallel the whole list, into the same store. It syncs
    /// however long the list takes, in pages if the request timeout interrupted it, and the store has changes before it
    /// has all objects. If versions do not [compare](listwatch::compare_resource_versions), the reflector lists, and
    /// watches from the version of the list.
    WatchFirst,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WatchList => "watch list",
            Self::ListThenWatch => "list, then watch",
            Self::WatchFirst => "watch first",
        })
    }
}

/// The facts about a collection and its server that decide the next attempt. It uses neither IO nor time.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub(super) struct SyncState {
    /// The strategy that the caller chose.
    chosen: Option<Strategy>,
    /// The last version of the whole collection; empty before the first sync.
    version: String,
    /// True if the version is from a loaded file: the next attempt resumes from it.
    was_loaded: bool,
    /// True if the server does not have the version yet, or has forgotten it.
    version_is_lost: bool,
    /// The number of lists in a row that an API server failed, and that named a version.
    failed_lists: u32,
    /// True if the server is at an older version, so that the store may have objects of another history.
    went_back: bool,
    /// True if a list took longer than the server keeps history.
    history_is_short: bool,
    /// True if a list took longer than the server's request timeout.
    pages: bool,
    /// True if the collection was complete in this attempt.
    is_synced: bool,
    /// True if the watch has advanced the version since then.
    has_watched: bool,
    /// True if lasting errors end the reflector before the first sync.
    fails_fast: bool,
}

/// One attempt to sync, until an error ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) strategy: Strategy,
    pub(super) because: &'static str,
    /// True for a watch from the known version, without a list.
    pub(super) resumes: bool,
    /// The version that a list requests.
    pub(super) version: ResourceVersion,
    pub(super) pages: bool,
    /// The last version of the whole collection; empty before the first sync.
    pub(super) known: String,
    /// True if no stored object counts as unchanged.
    pub(super) went_back: bool,
}

impl Attempt {
    /// Returns true if its list must be as new as a version that the server named before.
    fn names_version(&self) -> bool {
        match self.version {
            ResourceVersion::AtLeast(_) => true,
            ResourceVersion::MostRecent => false,
            _ => self.strategy == Strategy::WatchFirst,
        }
    }
}

/// Returns true if the error may be about the requested version: not if it is a proxy's, or about load or rights.
fn may_refuse_version(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Api { code: 400 | 422 | 500 | 504, is_status: true, .. })
}

/// The reaction to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Retry at once.
    RetryNow,
    /// Retry with backoff.
    RetryLater,
    /// Return the error.
    GiveUp,
}

impl SyncState {
    pub(super) fn new(chosen: Option<Strategy>, fails_fast: bool) -> Self {
        Self { chosen, fails_fast, ..Self::default() }
    }

    pub(super) fn attempt(&mut self, has_initial_events: bool) -> Attempt {
        self.is_synced = false;
        self.has_watched = false;
        let (strategy, because) = match self.chosen {
            // With a watch in parallel to a list of another history, the older state could not be determined.
            _ if self.went_back => (Strategy::ListThenWatch, "the server has gone back to an older version"),
            Some(strategy) => (strategy, "the caller chose it"),
            None if self.history_is_short => {
                (Strategy::WatchFirst, "a list takes longer than the server keeps history")
            }
            None if has_initial_events => (Strategy::WatchList, "the default"),
            None => (Strategy::ListThenWatch, "the server has no initial events"),
        };
        // As client-go (`tools/cache/reflector.go`, `relistResourceVersion`): requests the watch cache first.
        let version = match &self.version {
            _ if self.version_is_lost => ResourceVersion::MostRecent,
            // `Any` ignores page sizes.
            version if version.is_empty() && !self.pages => ResourceVersion::Any,
            version if !is_comparable(version) => ResourceVersion::MostRecent,
            version => ResourceVersion::AtLeast(version.clone()),
        };
        let resumes = mem::take(&mut self.was_loaded);
        let because = if resumes { "the watch resumes from the loaded file" } else { because };
        let (known, went_back) = (self.version.clone(), self.went_back);
        Attempt { strategy, because, resumes, version, pages: self.pages, known, went_back }
    }

    /// Records that the store has the whole collection of this version from a file.
    pub(super) fn record_load(&mut self, version: &str) {
        version.clone_into(&mut self.version);
        self.was_loaded = true;
    }

    /// Returns true if a lasting error ends the reflector, because the collection was never complete.
    pub(super) fn fails_fast(&self) -> bool {
        self.fails_fast && self.version.is_empty()
    }

    /// Records that the collection is complete at this version.
    pub(super) fn record_sync(&mut self, version: &str) {
        version.clone_into(&mut self.version);
        self.version_is_lost = false;
        self.failed_lists = 0;
        self.went_back = false;
        self.is_synced = true;
    }

    /// Records that the watch has delivered all changes up to this version. Returns true if the version is new, and the
    /// collection is complete.
    pub(super) fn record_watched_version(&mut self, version: &str) -> bool {
        if !self.is_synced || self.version == version {
            return false;
        }
        version.clone_into(&mut self.version);
        self.has_watched = true;
        true
    }

    /// Returns true if this version of the server is older than the collection's.
    pub(super) fn is_ahead_of(&self, version: &str) -> bool {
        is_older(version, &self.version)
    }

    /// Records that the server is at a version older than the collection's.
    pub(super) fn record_older_server(&mut self) -> NextStep {
        self.went_back = true;
        self.version_is_lost = true;
        NextStep::RetryNow
    }

    /// Returns true if the server has versions that the watch has not delivered.
    pub(super) fn is_behind(&self, version: &str) -> bool {
        self.version != version && !self.is_ahead_of(version)
    }

    /// Records that the watch does not deliver the changes after the collection's version.
    pub(super) fn record_missed_changes(&mut self) -> NextStep {
        self.version_is_lost = true;
        NextStep::RetryLater
    }

    /// Handles the error of a list of this attempt.
    pub(super) fn list_failed(&mut self, attempt: &Attempt, error: &Error, advice: RetryAdvice) -> NextStep {
        if let ErrorKind::Incomplete { request_timeout: Some(_), .. } = error.kind() {
            self.pages = true;
            return NextStep::RetryLater;
        }
        // A list is no loss after a proxy's 410 either.
        let is_lost = error.is_expired() || error.is_too_large_version() || error.code() == Some(410);
        if is_lost && attempt.version != ResourceVersion::MostRecent && !mem::replace(&mut self.version_is_lost, true) {
            return NextStep::RetryNow;
        }
        self.failed_lists += u32::from(attempt.names_version() && may_refuse_version(error));
        self.version_is_lost |= self.failed_lists >= MOST_FAILED_LISTS;
        self.react_to(advice)
    }

    /// Handles the error that ended the watch of this attempt.
    pub(super) fn watch_failed(&mut self, attempt: &Attempt, error: &Error, advice: RetryAdvice) -> NextStep {
        if attempt.resumes && error.is_expired() {
            return NextStep::RetryNow;
        }
        if let ErrorKind::NoProgress { .. } = error.kind() {
            return self.record_missed_changes();
        }
        let was_listed = attempt.strategy == Strategy::ListThenWatch && !attempt.resumes;
        self.history_is_short |= error.is_expired() && was_listed && !self.has_watched;
        self.react_to(advice)
    }

    /// Returns the reaction to an error with this advice. A cache that was complete is never given up.
    fn react_to(&mut self, advice: RetryAdvice) -> NextStep {
        let gives_up = match advice {
            RetryAdvice::RetryAfterRepair | RetryAdvice::Relist => self.fails_fast,
            RetryAdvice::GiveUp => true,
            _ => false,
        };
        if gives_up && self.version.is_empty() { NextStep::GiveUp } else { NextStep::RetryLater }
    }
}
