//! What comes of a list and a watch, into a store.

use std::borrow::Cow;
use std::fmt;
use std::mem;
use std::task::{Context, Poll, ready};

use super::sync::Attempt;
use crate::cache::{IndexError, ObjectKey, Replace, Store, StoreError, Stored, Superseded};
use crate::client::{Change, Connections, Error, OwnedEvent, Pages};
use crate::error::ItemError;
use crate::object::ItemRef;
use crate::object::{Projection, is_older};
use crate::wire::Encoding;

/// So many objects are written before anybody else has a turn.
const BATCH: u64 = 256;

/// A list and a watch on their way into a store.
pub(super) struct Feed<'r, T: Stored + ?Sized> {
    store: &'r Store<T>,
    projection: Option<&'r Projection>,
    attempt: &'r Attempt,
    replace: Option<Replace<T>>,
    list: Option<Pages>,
    watch: Option<Connections>,
    /// Where the watch beside a list began.
    began: Option<String>,
    /// Where the watch goes on from what the store has, until it is open.
    resumes: Option<String>,
    /// Up to which all changes of the watch are written, if that is known.
    version: Option<String>,
    /// Events of the watch, bookmarks among them.
    heard: u64,
    /// What came since it was last asked.
    progress: Progress,
}

/// What came of a list and a watch.
#[derive(Default)]
pub(super) struct Progress {
    /// Objects and deletions that were written.
    pub(super) written: u64,
    /// Whether the watch brought anything, if only a bookmark.
    pub(super) has_heard: bool,
    /// The last object that could not be stored.
    pub(super) skipped: Option<SkippedObject>,
    /// How often the function of an index failed.
    pub(super) index_errors: u64,
    pub(super) last_index_error: Option<IndexError>,
}

/// An object of the collection that a [`Reflector`](super::Reflector) could not store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SkippedObject {
    /// Its key, if that can be read.
    pub key: Option<ObjectKey>,
    /// Why it could not be stored.
    pub error: StoreError,
}

impl fmt::Display for SkippedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{key}: {}", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl Progress {
    fn wrote(&mut self, errors: Vec<IndexError>) {
        self.index_errors += errors.len() as u64;
        self.last_index_error = errors.into_iter().last().or(self.last_index_error.take());
    }

    fn skipped(&mut self, item: &ItemRef<'_>, error: StoreError) {
        let key = item.meta().ok().filter(|meta| !meta.name().is_empty());
        let key =
            key.map(|meta| ObjectKey { namespace: meta.namespace().into_owned(), name: meta.name().into_owned() });
        self.skipped = Some(SkippedObject { key, error });
    }
}

pub(super) enum Step {
    /// Something was written, or the watch brought a bookmark.
    Written,
    /// The collection is complete, at this version.
    Synced(String),
    /// What the store had is the collection at this version, and the watch brings what happened since.
    Resumed(String),
    /// Somebody else began to replace what the store has, so it is not known what of it is there.
    Superseded,
    /// The collection is complete at an older version than it was before, and the store has what it had.
    WentBack,
    /// Nothing came for long, and the server is at this version.
    Silent(Result<String, Error>),
    ListFailed(Error),
    WatchFailed(Error),
}

impl<'r, T: Stored + ?Sized> Feed<'r, T> {
    /// A list, a watch, or both; what the list brings, or else the watch until it is [synced](Step::Synced), takes the place of
    /// what is there. A watch that resumes goes on from what is there.
    pub(super) fn new(
        store: &'r Store<T>,
        projection: Option<&'r Projection>,
        list: Option<Pages>,
        watch: Option<Connections>,
        attempt: &'r Attempt,
    ) -> Self {
        let began = watch.as_ref().and_then(Connections::resource_version).map(str::to_owned);
        let mut feed = Self {
            store,
            projection,
            attempt,
            replace: None,
            list,
            watch,
            began,
            resumes: attempt.resumes.then(|| attempt.known.clone()),
            version: None,
            heard: 0,
            progress: Progress::default(),
        };
        if !attempt.resumes {
            feed.begin_replace();
        }
        feed
    }

    fn begin_replace(&mut self) {
        let replace = self.store.begin_replace();
        self.replace = Some(if self.attempt.afresh { replace.afresh() } else { replace });
    }

    /// What came since it was last asked, and up to which version all of the watch is written.
    pub(super) fn progress(&mut self) -> (Progress, Option<&str>) {
        (mem::take(&mut self.progress), self.version.as_deref())
    }

    /// Whether only a list was there, and is complete.
    pub(super) fn needs_watch(&self) -> bool {
        self.list.is_none() && self.watch.is_none()
    }

    pub(super) fn set_watch(&mut self, watch: Connections) {
        self.watch = Some(watch);
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let step = self.advance(cx);
        let version = self.watch.as_ref().and_then(Connections::resource_version);
        if version != self.version.as_deref() {
            self.version = version.map(str::to_owned);
        }
        let is_open = self.watch.as_ref().is_some_and(Connections::is_open);
        let heard = self.watch.as_ref().map_or(0, Connections::heard);
        self.progress.has_heard |= heard != mem::replace(&mut self.heard, heard);
        match step.or_else(|| self.resumes.take_if(|_| is_open).map(Step::Resumed)) {
            Some(step) => Poll::Ready(step),
            None if self.progress.has_heard || self.progress.written > 0 => Poll::Ready(Step::Written),
            None => Poll::Pending,
        }
    }

    /// Writes what is there to be written, up to a step that is another.
    fn advance(&mut self, cx: &mut Context<'_>) -> Option<Step> {
        while self.progress.written < BATCH {
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

    /// `None`: something was written.
    fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Step>> {
        let Some(watch) = &mut self.watch else { return Poll::Pending };
        // Beside a list, what the watch brings is news.
        let mut replace = self.replace.as_mut().filter(|_| self.list.is_none());
        let (store, projection, progress) = (self.store, self.projection, &mut self.progress);
        let event = watch.advance(cx, &mut |change, item| {
            let encoding = item.encoding();
            let bytes = projected(&item, projection);
            let written = match (change, &mut replace, bytes) {
                (Change::Added, Some(replace), bytes) => listed(replace, encoding, item.bytes(), bytes),
                (_, _, Err(error)) => {
                    store.skip_unwritten(encoding, item.bytes());
                    Err(error)
                }
                (Change::Deleted, _, Ok(bytes)) => store.delete(encoding, &bytes).map(|_| Vec::new()),
                (_, _, Ok(bytes)) => store.apply(encoding, &bytes).map(|written| written.index_errors),
            };
            match written {
                Ok(errors) => progress.wrote(errors),
                Err(error) => progress.skipped(&item, error),
            }
            Ok::<_, ItemError>(())
        });
        Poll::Ready(match ready!(event) {
            Ok(Some(OwnedEvent::Synced { resource_version })) => Some(self.commit(resource_version)),
            Ok(Some(OwnedEvent::Reset)) => {
                self.begin_replace();
                None
            }
            Ok(_) => {
                self.progress.written += 1;
                None
            }
            Err(error) => Some(Step::WatchFailed(error)),
        })
    }

    /// The same.
    fn poll_list(&mut self, cx: &mut Context<'_>) -> Poll<Option<Step>> {
        let (Some(list), Some(replace)) = (&mut self.list, &mut self.replace) else { return Poll::Pending };
        let (projection, progress) = (self.projection, &mut self.progress);
        let item = list.advance(cx, &mut |item| {
            match listed(replace, item.encoding(), item.bytes(), projected(&item, projection)) {
                Ok(errors) => progress.wrote(errors),
                Err(error) => progress.skipped(&item, error),
            }
            Ok::<_, ItemError>(())
        });
        let version = match (ready!(item), &self.began) {
            (Ok(Some(())), _) => {
                self.progress.written += 1;
                return Poll::Ready(None);
            }
            // What is behind it, the watch tells; how far the list is ahead of that, its version does not say of pages.
            (Ok(None), Some(began)) => Ok(began.clone()),
            (Ok(None), None) => list.version(),
            (Err(error), _) => Err(error),
        };
        Poll::Ready(Some(version.map_or_else(Step::ListFailed, |version| self.commit(version))))
    }

    fn commit(&mut self, version: String) -> Step {
        self.list = None;
        if is_older(&version, &self.attempt.known) && !self.attempt.afresh {
            return Step::WentBack;
        }
        match self.replace.take().map(|replace| replace.commit(&version)) {
            Some(Err(Superseded)) => return Step::Superseded,
            Some(Ok(committed)) => {
                committed.restored.into_iter().for_each(|written| self.progress.wrote(written.index_errors));
            }
            None => {}
        }
        Step::Synced(version)
    }
}

/// What is to be stored of an object.
fn projected<'i>(item: &ItemRef<'i>, projection: Option<&Projection>) -> Result<Cow<'i, [u8]>, StoreError> {
    Ok(match projection {
        Some(projection) => item.project(projection)?.into_vec().into(),
        None => item.bytes().into(),
    })
}

/// Writes an object of a list, of which `bytes` are to be stored.
fn listed<T: Stored + ?Sized>(
    replace: &mut Replace<T>,
    encoding: Encoding,
    whole: &[u8],
    bytes: Result<Cow<'_, [u8]>, StoreError>,
) -> Result<Vec<IndexError>, StoreError> {
    match bytes {
        Ok(bytes) => replace.apply(encoding, &bytes).map(|written| written.index_errors),
        Err(error) => {
            replace.skip_unwritten(encoding, whole);
            Err(error)
        }
    }
}
