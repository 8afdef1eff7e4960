//! What a reflector does next: how it syncs, from which version it lists, and how it reacts to errors.

use std::fmt;
use std::mem;

use crate::client::{Class, Error, ErrorKind, ResourceVersion};
use crate::object::{compare_resource_versions, is_older};

/// How a reflector gets the whole collection into its store, and the changes after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// The server sends the objects as initial events of the watch (KEP-3157, on by default from 1.34). Where it refuses
    /// them, does not end them, or interrupts them twice, the reflector lists instead.
    WatchList,
    /// A list, and a watch from its version. It never syncs where the list takes longer than the server keeps history.
    ListThenWatch,
    /// A watch from the version of a list of one object, and in parallel the whole list, into the same store. It syncs however long
    /// the list takes, and the store has changes before it has all objects. Where versions do not
    /// [compare](compare_resource_versions) the reflector lists, and watches from the version of the list.
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
#[expect(clippy::struct_excessive_bools, reason = "they are of different things, and any may be with any")]
pub(super) struct SyncState {
    /// The caller's choice.
    pub(super) chosen: Option<Strategy>,
    /// The last version of the whole collection; empty before.
    version: String,
    /// The version is that of a loaded file: the next attempt resumes from it.
    was_loaded: bool,
    /// The server did not have it, or has forgotten it.
    version_is_lost: bool,
    /// The server is at an older one, and the store may have objects of another history.
    went_back: bool,
    /// A list took longer than the server keeps history.
    history_is_short: bool,
    /// A list took longer than the server allows a request to.
    pages: bool,
    /// Whether the collection was complete in this attempt.
    is_synced: bool,
    /// Whether the watch has brought anything since then.
    has_watched: bool,
    /// Whether errors that may last end it before the first sync.
    pub(super) fails_fast: bool,
}

/// One try to sync, until an error ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) strategy: Strategy,
    pub(super) because: &'static str,
    /// A watch from the known version, and nothing else.
    pub(super) resumes: bool,
    /// What a list asks for.
    pub(super) version: ResourceVersion,
    pub(super) pages: bool,
    /// The last version of the whole collection; empty before.
    pub(super) known: String,
    /// Nothing that is stored counts as known.
    pub(super) afresh: bool,
}

/// What follows an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Now,
    /// After a time that grows.
    Later,
    Give,
}

impl SyncState {
    pub(super) fn attempt(&mut self, has_initial_events: bool) -> Attempt {
        self.is_synced = false;
        self.has_watched = false;
        let (strategy, because) = match self.chosen {
            // A watch in parallel to a list of another history does not tell which state is older.
            _ if self.went_back => (Strategy::ListThenWatch, "the server has gone back to an older version"),
            Some(strategy) => (strategy, "it was chosen"),
            None if self.history_is_short => (Strategy::WatchFirst, "the server keeps less history than a list takes"),
            None if has_initial_events => (Strategy::WatchList, "nothing speaks against it"),
            None => (Strategy::ListThenWatch, "the server has no initial events"),
        };
        // As client-go does (`tools/cache/reflector.go`, `relistResourceVersion`): the watch cache first.
        let version = match &self.version {
            _ if self.version_is_lost => ResourceVersion::MostRecent,
            // It ignores limits.
            version if version.is_empty() && !self.pages => ResourceVersion::Any,
            version if !is_comparable(version) => ResourceVersion::MostRecent,
            version => ResourceVersion::AtLeast(version.clone()),
        };
        let resumes = mem::take(&mut self.was_loaded);
        let because = if resumes { "the watch resumes from the loaded file" } else { because };
        let (known, afresh) = (self.version.clone(), self.went_back);
        Attempt { strategy, because, resumes, version, pages: self.pages, known, afresh }
    }

    /// The store has the whole collection of this version from a file.
    pub(super) fn loaded(&mut self, version: &str) {
        version.clone_into(&mut self.version);
        self.was_loaded = true;
    }

    /// What the store has is not what was loaded, or not of the collection that is asked for.
    pub(super) fn forget(&mut self) {
        self.version.clear();
        self.was_loaded = false;
    }

    /// Whether an error that may last ends it: the collection was never complete.
    pub(super) fn fails_fast(&self) -> bool {
        self.fails_fast && self.version.is_empty()
    }

    /// The collection is complete at this version.
    pub(super) fn synced(&mut self, version: &str) {
        version.clone_into(&mut self.version);
        self.version_is_lost = false;
        self.went_back = false;
        self.is_synced = true;
    }

    /// The watch has brought all changes up to this version. Returns true if the version is new; before the collection is complete it
    /// has none.
    pub(super) fn watched(&mut self, version: &str) -> bool {
        if !self.is_synced || self.version == version {
            return false;
        }
        version.clone_into(&mut self.version);
        self.has_watched = true;
        true
    }

    /// Whether the server cannot have had this version after that of the collection.
    pub(super) fn is_ahead_of(&self, version: &str) -> bool {
        is_older(version, &self.version)
    }

    /// The server is at a version before that of the collection.
    pub(super) fn went_back(&mut self) -> Next {
        self.went_back = true;
        self.version_is_lost = true;
        Next::Now
    }

    /// A list of this attempt failed.
    pub(super) fn list_failed(&mut self, attempt: &Attempt, error: &Error, class: Class) -> Next {
        if let ErrorKind::Incomplete(incomplete) = error.kind()
            && incomplete.request_timeout.is_some()
        {
            self.pages = true;
            return Next::Later;
        }
        let is_lost = error.is_expired() || error.is_too_large_version();
        if is_lost && attempt.version != ResourceVersion::MostRecent && !mem::replace(&mut self.version_is_lost, true) {
            return Next::Now;
        }
        self.failed(class)
    }

    /// The watch of this attempt ended for good.
    pub(super) fn watch_failed(&mut self, attempt: &Attempt, error: &Error, class: Class) -> Next {
        if attempt.resumes && error.is_expired() {
            return Next::Now;
        }
        let was_listed = attempt.strategy == Strategy::ListThenWatch && !attempt.resumes;
        self.history_is_short |= error.is_expired() && was_listed && !self.has_watched;
        self.failed(class)
    }

    /// A cache that serves is not given up.
    fn failed(&mut self, class: Class) -> Next {
        let gives = match class {
            Class::Transient | Class::Expired => false,
            Class::Lasting | Class::Unreadable => self.fails_fast,
            Class::Final => true,
        };
        if gives && self.version.is_empty() { Next::Give } else { Next::Later }
    }
}

/// Returns true if the version compares with others.
pub(super) fn is_comparable(version: &str) -> bool {
    compare_resource_versions(version, "1").is_some()
}
