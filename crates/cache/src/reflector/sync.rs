//! The decisions of a reflector: how it syncs, from which version it lists, and how it reacts to errors.
//!
//! An attempt is a list, a watch, or both, and what is known after it decides about the next. This code uses neither IO
//! nor time.
//!
//! | state | the store | it ends |
//! |---|---|---|
//! | `Syncing` | lacks the collection, or changes after a version | with the whole collection: `Synced`; or with a file, before the first attempt: `Loaded` |
//! | `Loaded` | has the collection of a file | with the first attempt, which resumes the watch and sends no list: `Syncing` |
//! | `Synced` | has the collection, and the watch delivers the changes | with the attempt, or when the server went back or the watch misses changes: `Syncing` |
//!
//! While it is `Syncing`, [`ListVersion`] says what lists request. It starts with `Cached`:
//!
//! | lists request | until |
//! |---|---|
//! | `Cached`: the watch cache of the server first, as client-go does | the server refuses the version (410, or too large), fails 3 lists in a row, or its watch makes no progress: `MostRecent`; the server is at an older version: `OlderServer` |
//! | `MostRecent`: the current state | a sync; the server is at an older version: `OlderServer` |
//! | `OlderServer`: the current state, and no stored object counts as unchanged | a sync |
//!
//! - A cache that was complete is never given up. Before that, `fails_fast` decides about lasting errors.
//! - A refused version is replaced at once, but only once; a second refusal backs off.
//! - `Any` ignores page sizes, so a first list in pages requests the most recent state.
//! - What is known about the server (`ShortHistory`, `pages`) is kept as long as the reflector, because a server does
//!   not become faster.

use std::fmt;
use std::mem;
use std::time::Duration;

use listwatch::client::{Error, ErrorKind, ResourceVersion};
use listwatch::internal::{RetryAdvice, is_comparable, is_older};

/// How many lists at a version an API server may fail before the reflector lists without a version. Not every server
/// says that it does not know the version.
const MOST_FAILED_LISTS: u32 = 3;

/// The longest wait between two attempts, which jitter may double.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(30);

/// How a reflector fetches the whole collection, and the changes after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// The server sends the objects as initial events of the watch (KEP-3157, on by default from 1.34).
    ///
    /// If the server refuses them, does not end them, or interrupts them twice, the reflector lists instead.
    WatchList,
    /// A list, and then a watch from its version.
    ///
    /// This never syncs if the list takes longer than the server keeps history. If the server's request timeout
    /// interrupts a list in one response, the next list uses pages of 500.
    ListThenWatch,
    /// A watch from the current version, and at the same time the whole list.
    ///
    /// It syncs however long the list takes, in pages if the request timeout interrupted it, but the store receives
    /// changes before it contains all objects. A list of one object tells the current version. If versions [cannot be
    /// compared](listwatch::compare_resource_versions), the reflector lists and then watches from the version of the
    /// list.
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

#[derive(Debug)]
pub(super) struct SyncPolicy {
    strategy: StrategyChoice,
    /// True if lasting errors end the reflector before the first sync.
    fails_fast: bool,
    /// True if a list took longer than the server's request timeout.
    pages: bool,
    state: SyncState,
}

#[derive(Debug)]
enum StrategyChoice {
    Caller(Strategy),
    /// The reflector chooses by what the server supports, until a version expires between a list and its watch: then
    /// `ShortHistory`.
    Default,
    /// A list takes longer than the server keeps history.
    ShortHistory,
}

/// What the store contains of the collection: see the table above.
#[derive(Debug)]
enum SyncState {
    /// An attempt fetches the collection. `version` is the last version of the whole collection; empty before the first
    /// sync.
    Syncing { version: String, list: ListVersion },
    /// The next attempt resumes at the version of the file.
    Loaded { version: String },
    /// The watch has delivered all changes up to `version`; `has_watched` is true once it has advanced that version.
    Synced { version: String, has_watched: bool },
}

/// What lists request: see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListVersion {
    /// At least the last version of the collection. `failed` counts the lists in a row that an API server failed
    /// although they named a version.
    Cached {
        failed: u32,
    },
    MostRecent,
    OlderServer,
}

impl ListVersion {
    const FIRST: Self = Self::Cached { failed: 0 };
}

impl SyncState {
    fn version(&self) -> &str {
        match self {
            Self::Syncing { version, .. } | Self::Loaded { version } | Self::Synced { version, .. } => version,
        }
    }

    /// Lets the next lists request the most recent state. Returns false if they already did.
    fn lose_version(&mut self) -> bool {
        match self {
            Self::Syncing { list: ListVersion::MostRecent | ListVersion::OlderServer, .. } => false,
            Self::Syncing { version, .. } | Self::Loaded { version } | Self::Synced { version, .. } => {
                *self = Self::Syncing { version: mem::take(version), list: ListVersion::MostRecent };
                true
            }
        }
    }
}

/// Two resource versions between which nothing in the collection changed.
pub(super) struct QuietSpan {
    pub(super) from: String,
    pub(super) to: String,
}

/// One attempt to sync, until an error ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) strategy: Strategy,
    pub(super) because: &'static str,
    /// The version from which a watch resumes, without a list.
    pub(super) resumes: Option<String>,
    /// The version that a list requests.
    pub(super) version: ResourceVersion,
    pub(super) pages: bool,
    /// The last version of the whole collection; empty before the first sync.
    pub(super) known: String,
    /// True if no stored object counts as unchanged.
    pub(super) went_back: bool,
}

impl Attempt {
    /// Returns true if the list must be as new as a version that the server named before.
    fn names_version(&self) -> bool {
        match self.version {
            ResourceVersion::AtLeast(_) => true,
            ResourceVersion::MostRecent => false,
            _ => self.strategy == Strategy::WatchFirst,
        }
    }
}

/// Returns true if the error may be about the requested version, which a proxy's error, or one about load or rights, is
/// not.
fn may_refuse_version(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Api { code: 400 | 422 | 500 | 504, is_status: true, .. })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Retry at once.
    RetryNow,
    /// Retry with backoff.
    RetryLater,
    /// Return the error.
    GiveUp,
}

impl SyncPolicy {
    pub(super) fn new(chosen: Option<Strategy>, fails_fast: bool) -> Self {
        let state = SyncState::Syncing { version: String::new(), list: ListVersion::FIRST };
        let strategy = chosen.map_or(StrategyChoice::Default, StrategyChoice::Caller);
        Self { strategy, fails_fast, pages: false, state }
    }

    pub(super) fn attempt(&mut self, has_initial_events: bool) -> Attempt {
        let (list, resumes) = match &self.state {
            SyncState::Syncing { list, .. } => (*list, None),
            SyncState::Loaded { version } => (ListVersion::FIRST, Some(version.clone())),
            SyncState::Synced { .. } => (ListVersion::FIRST, None),
        };
        let went_back = list == ListVersion::OlderServer;
        let (strategy, because) = match &self.strategy {
            // With a watch next to a list of another history, nobody could tell which state is older.
            _ if went_back => (Strategy::ListThenWatch, "the server has gone back to an older version"),
            StrategyChoice::Caller(strategy) => (*strategy, "the caller chose it"),
            StrategyChoice::ShortHistory => (Strategy::WatchFirst, "a list takes longer than the server keeps history"),
            StrategyChoice::Default if has_initial_events => (Strategy::WatchList, "the default"),
            StrategyChoice::Default => (Strategy::ListThenWatch, "the server has no initial events"),
        };
        let because = if resumes.is_some() { "the watch resumes from the loaded file" } else { because };
        let known = self.state.version().to_owned();
        // As client-go (`tools/cache/reflector.go`, `relistResourceVersion`): requests the watch cache first.
        let version = match list {
            ListVersion::MostRecent | ListVersion::OlderServer => ResourceVersion::MostRecent,
            // `Any` ignores page sizes.
            ListVersion::Cached { .. } if known.is_empty() && !self.pages => ResourceVersion::Any,
            ListVersion::Cached { .. } if !is_comparable(&known) => ResourceVersion::MostRecent,
            ListVersion::Cached { .. } => ResourceVersion::AtLeast(known.clone()),
        };
        self.state = SyncState::Syncing { version: known.clone(), list };
        Attempt { strategy, because, resumes, version, pages: self.pages, known, went_back }
    }

    /// Notes that the store contains the whole collection of this version, from a file.
    pub(super) fn record_load(&mut self, version: &str) {
        self.state = SyncState::Loaded { version: version.to_owned() };
    }

    /// Returns true if a lasting error ends the reflector, because the collection was never complete.
    pub(super) fn fails_fast(&self) -> bool {
        self.fails_fast && self.state.version().is_empty()
    }

    pub(super) fn record_sync(&mut self, version: &str) {
        self.state = SyncState::Synced { version: version.to_owned(), has_watched: false };
    }

    /// Notes that the watch has delivered all changes up to this version. Returns true if the version is newer and the
    /// collection complete.
    pub(super) fn record_watched_version(&mut self, watched: &str) -> bool {
        match &mut self.state {
            // After `record_unchanged`, the watch is at an older version.
            SyncState::Synced { version, has_watched } if version != watched && !is_older(watched, version) => {
                watched.clone_into(version);
                *has_watched = true;
                true
            }
            _ => false,
        }
    }

    /// Records that nothing changed after a version of the collection, up to a newer one. Returns true if the
    /// collection is now at the newer version.
    pub(super) fn record_unchanged(&mut self, QuietSpan { from, to }: &QuietSpan) -> bool {
        match &mut self.state {
            SyncState::Synced { version, .. } if !is_older(version, from) && is_older(version, to) => {
                to.clone_into(version);
                true
            }
            _ => false,
        }
    }

    /// Returns true if this version of the server is older than the collection's.
    pub(super) fn is_ahead_of(&self, version: &str) -> bool {
        is_older(version, self.state.version())
    }

    /// Notes that the server is at a version older than the collection's.
    pub(super) fn record_older_server(&mut self) -> NextStep {
        self.state = SyncState::Syncing { version: self.state.version().to_owned(), list: ListVersion::OlderServer };
        NextStep::RetryNow
    }

    /// Returns true if the server has versions that the watch has not delivered.
    pub(super) fn is_behind(&self, version: &str) -> bool {
        self.state.version() != version && !self.is_ahead_of(version)
    }

    pub(super) fn record_missed_changes(&mut self) -> NextStep {
        self.state.lose_version();
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
        if is_lost && attempt.version != ResourceVersion::MostRecent && self.state.lose_version() {
            return NextStep::RetryNow;
        }
        if attempt.names_version()
            && may_refuse_version(error)
            && let SyncState::Syncing { list: ListVersion::Cached { failed }, .. } = &mut self.state
        {
            *failed += 1;
            if *failed >= MOST_FAILED_LISTS {
                self.state.lose_version();
            }
        }
        self.react_to(advice)
    }

    /// Handles the error that ended the watch of this attempt.
    pub(super) fn watch_failed(&mut self, attempt: &Attempt, error: &Error, advice: RetryAdvice) -> NextStep {
        if attempt.resumes.is_some() && error.is_expired() {
            return NextStep::RetryNow;
        }
        if let ErrorKind::NoProgress { .. } = error.kind() {
            return self.record_missed_changes();
        }
        let was_listed = attempt.strategy == Strategy::ListThenWatch && attempt.resumes.is_none();
        let has_watched = matches!(self.state, SyncState::Synced { has_watched: true, .. });
        if error.is_expired() && was_listed && !has_watched && matches!(self.strategy, StrategyChoice::Default) {
            self.strategy = StrategyChoice::ShortHistory;
        }
        self.react_to(advice)
    }

    /// Returns the reaction to an error with this advice. A cache that was complete is never given up.
    fn react_to(&self, advice: RetryAdvice) -> NextStep {
        let gives_up = match advice {
            RetryAdvice::RetryAfterRepair | RetryAdvice::Relist => self.fails_fast,
            RetryAdvice::GiveUp => true,
            _ => false,
        };
        if gives_up && self.state.version().is_empty() { NextStep::GiveUp } else { NextStep::RetryLater }
    }
}
