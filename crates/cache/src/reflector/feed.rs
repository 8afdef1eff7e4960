//! Writes the objects of a list and a watch into a store.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use listwatch::client::{Error, WatchEvent};
use listwatch::internal::{Connections, Pages, is_older};
use listwatch::{EventType, ItemError, ItemRef, Projection, StoreType};

use crate::error::{ObjectError, StoreError};
use crate::key::ObjectKey;
use crate::reflector::sync::Attempt;
use crate::store::relist::{Relist, RelistCommit};
use crate::store::writable::Store;

/// How many objects are written before the task yields.
pub(super) const BATCH: u64 = 256;

/// A list, a watch, or both, and the store to which they are written.
pub(super) struct Feed<'r, T: StoreType + ?Sized> {
    store: &'r Store<T>,
    projection: Option<&'r Projection>,
    attempt: &'r Attempt,
    relist: Option<Relist<T>>,
    /// The commit of a complete list, which takes a step at each poll, and the version of the list.
    commit: Option<(RelistCommit<T>, String)>,
    list: Option<Pages>,
    watch: Option<Connections>,
    /// The resource version from which a watch next to the list began.
    began: Option<String>,
    /// The resource version from which the watch resumes, until the watch is open.
    resumes: Option<String>,
    /// The resource version up to which all changes of the watch are written, if known.
    version: Option<String>,
    /// Counts the events of the watch, including bookmarks.
    events: u64,
    /// What was delivered since the last call of `take_received`.
    received: Received,
    /// How many objects and deletions were reported before.
    reported: u64,
}

/// What a list and a watch have delivered since the last report.
#[derive(Default)]
pub(super) struct Received {
    /// Objects and deletions that were written.
    pub(super) written: u64,
    /// True if the watch delivered an event or a bookmark.
    pub(super) has_event: bool,
    /// The last object that could not be stored.
    pub(super) skipped: Option<ObjectError>,
}

impl Received {
    fn add_skipped(&mut self, item: &ItemRef<'_>, error: StoreError) {
        let key = item.meta().ok().filter(|meta| !meta.name().is_empty());
        let key =
            key.map(|meta| ObjectKey { namespace: meta.namespace().into_owned(), name: meta.name().into_owned() });
        self.skipped = Some(ObjectError { key, index: None, source: Arc::new(error) });
    }
}

pub(super) enum FeedStep {
    /// Objects were written, or the watch delivered a bookmark.
    Written,
    /// The collection is complete at this version.
    Synced(String),
    /// The store contains the collection at this version, and the watch delivers the changes since.
    Resumed(String),
    /// Another relist of the store has begun, so the contents of the store are unknown.
    Superseded,
    /// The list is complete at a version older than the cache's, and was not committed.
    WentBack,
    ListFailed(Error),
    WatchFailed(Error),
}

impl<'r, T: StoreType + ?Sized> Feed<'r, T> {
    /// Creates a feed. A list, or without one a watch until it is [synced](FeedStep::Synced), replaces the objects of
    /// the store. A watch that resumes does not.
    pub(super) fn new(
        store: &'r Store<T>,
        projection: Option<&'r Projection>,
        list: Option<Pages>,
        watch: Option<Connections>,
        attempt: &'r Attempt,
    ) -> Self {
        let began = watch.as_ref().and_then(Connections::newest_version).map(str::to_owned);
        let mut feed = Self {
            store,
            projection,
            attempt,
            relist: None,
            commit: None,
            list,
            watch,
            began,
            resumes: attempt.resumes.clone(),
            version: None,
            events: 0,
            received: Received::default(),
            reported: 0,
        };
        match &attempt.resumes {
            Some(version) => store.open_log(version),
            None => feed.begin_relist(),
        }
        feed
    }

    fn begin_relist(&mut self) {
        let relist = self.store.begin_relist();
        if let (Some(_), Some(began)) = (&self.list, &self.began) {
            self.store.watched_from(began);
        }
        self.relist = Some(if self.attempt.went_back { relist.replace_all() } else { relist });
    }

    /// Takes what was delivered, and returns the resource version up to which all changes of the watch are written.
    pub(super) fn take_received(&mut self) -> (Received, Option<&str>) {
        self.reported += self.received.written;
        (mem::take(&mut self.received), self.version.as_deref())
    }

    /// Returns the number of objects and deletions that were received, and the bytes on the network.
    pub(super) fn totals(&self) -> (u64, u64) {
        let bytes = self.list.as_ref().map_or(0, Pages::received_bytes);
        let watched = self.watch.as_ref().map_or(0, Connections::received_bytes);
        (self.reported + self.received.written, bytes + watched)
    }

    /// Returns true if the feed had only a list, which is now complete.
    pub(super) fn needs_watch(&self) -> bool {
        self.list.is_none() && self.watch.is_none()
    }

    pub(super) fn is_watching(&self) -> bool {
        self.watch.as_ref().is_some_and(Connections::is_open)
    }

    /// Returns the version from which the watch resumes; `None` without a watch.
    pub(super) fn resumes_from(&self) -> Option<&str> {
        self.watch.as_ref().and_then(Connections::resource_version)
    }

    /// Returns true if the watch has delivered all changes up to this version of the server, and none is newer.
    pub(super) fn is_complete_at(&self, version: &str) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.is_complete_at(version))
    }

    pub(super) fn set_watch(&mut self, watch: Connections) {
        self.watch = Some(watch);
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FeedStep> {
        let step = match self.commit.take() {
            Some((commit, version)) => self.advance_commit(commit, version),
            None => self.advance(cx),
        };
        let version = self.watch.as_ref().and_then(Connections::newest_version);
        if version != self.version.as_deref() {
            self.version = version.map(str::to_owned);
        }
        let is_open = self.is_watching();
        let events = self.watch.as_ref().map_or(0, Connections::received_events);
        self.received.has_event |= events != mem::replace(&mut self.events, events);
        match step.or_else(|| self.resumes.take_if(|_| is_open).map(FeedStep::Resumed)) {
            Some(step) => Poll::Ready(step),
            None if self.received.has_event || self.received.written > 0 => Poll::Ready(FeedStep::Written),
            None => {
                if self.commit.is_some() {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    /// Writes the objects that have arrived, up to the next step other than [`Written`](FeedStep::Written).
    fn advance(&mut self, cx: &mut Context<'_>) -> Option<FeedStep> {
        while self.received.written < BATCH && self.commit.is_none() {
            let watch = self.poll_watch(cx);
            if let Poll::Ready(Some(step)) = watch {
                return Some(step);
            }
            let list = self.poll_list(cx);
            if let Poll::Ready(Some(step)) = list {
                return Some(step);
            }
            if watch.is_pending() && list.is_pending() {
                break;
            }
        }
        None
    }

    /// Advances the watch. Returns `None` after an event without a step of its own.
    fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<Option<FeedStep>> {
        let Some(watch) = &mut self.watch else { return Poll::Pending };
        // A watch next to a list delivers changes, not the initial state.
        let mut relist = self.relist.as_mut().filter(|_| self.list.is_none());
        let (store, projection, received) = (self.store, self.projection, &mut self.received);
        let event = watch.advance(cx, &mut |change, item| {
            let mut copy = Vec::new();
            let written = match (change, &mut relist, project(item, projection, &mut copy)) {
                (EventType::Added, Some(relist), stored) => write_listed(relist, item, stored),
                (_, _, Err(error)) => {
                    store.skip_unwritten(item);
                    Err(error)
                }
                (change, _, Ok(stored)) => store.apply_watched(stored, change == EventType::Deleted),
            };
            if let Err(error) = written {
                received.add_skipped(&item, error);
            }
            Ok::<_, ItemError>(())
        });
        Poll::Ready(match ready!(event) {
            Ok(Some(WatchEvent::Synced { resource_version })) => self.begin_commit(resource_version),
            Ok(Some(WatchEvent::Reset)) => {
                self.begin_relist();
                None
            }
            Ok(_) => {
                self.received.written += 1;
                None
            }
            Err(error) => Some(FeedStep::WatchFailed(error)),
        })
    }

    /// Advances the list. Returns `None` after an item.
    fn poll_list(&mut self, cx: &mut Context<'_>) -> Poll<Option<FeedStep>> {
        let (Some(list), Some(relist)) = (&mut self.list, &mut self.relist) else { return Poll::Pending };
        let (projection, received) = (self.projection, &mut self.received);
        let item = list.advance(cx, &mut |item| {
            let mut copy = Vec::new();
            if let Err(error) = write_listed(relist, item, project(item, projection, &mut copy)) {
                received.add_skipped(&item, error);
            }
            Ok::<_, ItemError>(())
        });
        let version = match (ready!(item), &self.began) {
            (Ok(Some(())), _) => {
                self.received.written += 1;
                return Poll::Ready(None);
            }
            // The watch delivers the changes since then. Later pages may be newer than the list.
            (Ok(None), began) => list.version().and_then(|version| {
                self.store.listed_at(&list.newest_version()?);
                Ok(began.clone().unwrap_or(version))
            }),
            (Err(error), _) => Err(error),
        };
        Poll::Ready(match version {
            Ok(version) => self.begin_commit(version),
            Err(error) => Some(FeedStep::ListFailed(error)),
        })
    }

    /// Begins to commit the list. Returns a step if it is not committed.
    fn begin_commit(&mut self, version: String) -> Option<FeedStep> {
        self.list = None;
        if is_older(&version, &self.attempt.known) && !self.attempt.went_back {
            return Some(FeedStep::WentBack);
        }
        let Some(relist) = self.relist.take() else { return Some(self.finish_commit(version)) };
        self.commit = Some((relist.begin_commit(&version), version));
        None
    }

    /// Takes a step of the commit. Returns `None` unless it was the last one.
    fn advance_commit(&mut self, mut commit: RelistCommit<T>, version: String) -> Option<FeedStep> {
        match commit.advance() {
            Ok(true) => Some(self.finish_commit(version)),
            Ok(false) => {
                self.commit = Some((commit, version));
                None
            }
            Err(_) => Some(FeedStep::Superseded),
        }
    }

    fn finish_commit(&mut self, version: String) -> FeedStep {
        // A watch next to the list has already delivered changes after the list's version.
        let watched = self.watch.as_ref().and_then(Connections::newest_version);
        self.store.open_log(watched.filter(|watched| is_older(&version, watched)).unwrap_or(&version));
        FeedStep::Synced(version)
    }
}

/// Returns the part of an object that is stored, which is a copy only if there is a projection.
fn project<'i>(
    item: ItemRef<'i>,
    projection: Option<&Projection>,
    copy: &'i mut Vec<u8>,
) -> Result<ItemRef<'i>, StoreError> {
    let Some(projection) = projection else { return Ok(item) };
    item.project_into(projection, copy)?;
    Ok(item.with_bytes(copy))
}

/// Writes an object of a list, or counts it as skipped. `stored` is the part to be stored.
fn write_listed<T: StoreType + ?Sized>(
    relist: &mut Relist<T>,
    whole: ItemRef<'_>,
    stored: Result<ItemRef<'_>, StoreError>,
) -> Result<(), StoreError> {
    match stored {
        Ok(stored) => relist.write(stored).map(drop),
        Err(error) => {
            relist.skip_unwritten(whole);
            Err(error)
        }
    }
}
