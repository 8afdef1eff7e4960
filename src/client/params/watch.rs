//! [`WatchParams`]: the parameters of a watch.

use std::time::Duration;

use super::query::{ResourceVersion, check_timeout, check_version, check_watched};
use super::selection::Selection;
use crate::error::InvalidInput;

/// The parameters of a watch: which objects, and where the watch begins.
///
/// ```
/// use listwatch::client::{Selection, WatchParams};
///
/// let changes = WatchParams::from_now();
/// let since = WatchParams::from_version("71532");
/// let web = Selection::default().labels("app=web".parse()?);
/// let state_and_changes = WatchParams::with_initial_state().selection(web);
/// # Ok::<(), listwatch::InvalidInput>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchParams {
    pub(in crate::client) selection: Selection,
    pub(in crate::client) start: WatchStart,
    pub(in crate::client) timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::client) enum WatchStart {
    Now,
    /// After this version.
    Version(String),
    /// With the objects of the collection at this version, which is never [`ResourceVersion::Exact`].
    State(ResourceVersion),
}

impl WatchParams {
    /// Watches changes from now on.
    ///
    /// To learn the current version, the client first lists one object of the collection.
    #[must_use]
    pub fn from_now() -> Self {
        Self::new(WatchStart::Now)
    }

    /// Watches changes after this version of a list or of an earlier watch.
    #[must_use]
    pub fn from_version(version: impl Into<String>) -> Self {
        Self::new(WatchStart::Version(version.into()))
    }

    /// Watches the collection, beginning with its current objects (KEP-3157, on by default from 1.34).
    ///
    /// Each object arrives as [`WatchEvent::Added`](crate::client::WatchEvent::Added), then
    /// [`WatchEvent::Synced`](crate::client::WatchEvent::Synced), then changes. The objects are as new as in a list of
    /// [`ResourceVersion::MostRecent`]. A server without initial events refuses the request, or never sends the
    /// bookmark after the objects; a [`Watch`](crate::client::Watch) then lists the collection instead.
    #[must_use]
    pub fn with_initial_state() -> Self {
        Self::new(WatchStart::State(ResourceVersion::MostRecent))
    }

    /// Watches the collection, beginning with objects that are at least as new as this version.
    ///
    /// With version `0` they may be of any age. Otherwise this is [`with_initial_state`](Self::with_initial_state).
    #[must_use]
    pub fn with_initial_state_at_least(version: impl Into<String>) -> Self {
        Self::new(WatchStart::State(match version.into() {
            version if version == "0" => ResourceVersion::Any,
            version => ResourceVersion::AtLeast(version),
        }))
    }

    fn new(start: WatchStart) -> Self {
        Self { selection: Selection::default(), start, timeout: None }
    }

    /// Sets which objects are watched. The default is all.
    #[must_use]
    pub fn selection(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Sets after which time the server ends a connection, in whole seconds.
    ///
    /// By default, the server chooses 5 to 10 minutes at random.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(in crate::client) fn validate(&self) -> Result<(), InvalidInput> {
        self.selection.validate()?;
        match &self.start {
            WatchStart::Version(version) => check_watched(version)?,
            WatchStart::State(ResourceVersion::AtLeast(version)) => check_version(version)?,
            WatchStart::State(_) | WatchStart::Now => {}
        }
        check_timeout(self.timeout)
    }

    pub(in crate::client) fn query(&self, start: &WatchStart, bookmarks: bool, timeout: Duration) -> String {
        let mut query = self.selection.query();
        query.add("watch", "1");
        if bookmarks || matches!(start, WatchStart::State(_)) {
            query.add("allowWatchBookmarks", "true");
        }
        if let WatchStart::State(_) = start {
            query.add("sendInitialEvents", "true");
            query.add("resourceVersionMatch", "NotOlderThan");
        }
        let version = match start {
            WatchStart::Version(version)
            | WatchStart::State(ResourceVersion::AtLeast(version) | ResourceVersion::Exact(version)) => version,
            WatchStart::State(ResourceVersion::Any) => "0",
            WatchStart::State(ResourceVersion::MostRecent) | WatchStart::Now => "",
        };
        query.add("resourceVersion", version);
        query.add("timeoutSeconds", &timeout.as_secs().to_string());
        query.0
    }
}
