//! The change log of a store, its lock, and its cursors.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use listwatch::StoreType;
use listwatch::internal::is_older;

use crate::error::StoreError;
use crate::handles::CountedHandle;
use crate::log::change::LoggedChange;
use crate::log::contents::{Cursor, LogContents};
use crate::log::open_log::{ChangeLogLimits, CursorPlace};
use crate::sync::{Mutex, MutexGuard, lock};

/// The changes of a collection in the order of the watch.
pub(crate) struct ChangeLog<T: StoreType + ?Sized> {
    /// Changed and read under the writer's lock, so that a store without a log never locks the contents.
    is_enabled: AtomicBool,
    /// Readers lock it without any other lock, and writers under the writer's lock.
    contents: Mutex<LogContents<T>>,
}

impl<T: StoreType + ?Sized> ChangeLog<T> {
    pub(crate) fn new() -> Self {
        Self { is_enabled: AtomicBool::new(false), contents: Mutex::new(LogContents::new()) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LogContents<T>> {
        lock(&self.contents)
    }

    /// Keeps changes from now on. The caller holds the writer's lock.
    pub(crate) fn enable(&self, limits: ChangeLogLimits) {
        self.is_enabled.store(true, Ordering::Relaxed);
        self.lock().enable(limits);
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.lock().close();
    }
}

/// A cursor in the change log: see [`StoreReader::changes_after`](crate::StoreReader::changes_after).
///
/// It keeps neither changes nor the store alive. It ends with [`StoreError::ChangesExpired`] when the log drops changes
/// that the cursor has not returned, when a relist begins, and when the store is dropped.
pub struct ChangeCursor<T: StoreType + ?Sized> {
    log: Weak<ChangeLog<T>>,
    _handle: CountedHandle,
    cursor: Cursor,
    /// The version up to which the reader knows all changes.
    version: String,
    /// True until the first change that the reader may lack.
    skips_known: bool,
    has_ended: bool,
}

/// A place in a change log: see [`ChangeCursor::position`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangePosition(CursorPlace);

impl ChangePosition {
    /// Returns true if both places are of the same log, and this one is before the other. A relist closes a log.
    #[must_use]
    pub fn is_before(self, other: Self) -> bool {
        self.0.log == other.0.log && self.0.next < other.0.next
    }

    /// Returns the place before this one: of the change that a cursor has read which is now here.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(CursorPlace { next: self.0.next.saturating_sub(1), ..self.0 })
    }
}

impl<T: StoreType + ?Sized> ChangeCursor<T> {
    pub(crate) fn after(
        log: &Arc<ChangeLog<T>>,
        handle: CountedHandle,
        resource_version: &str,
    ) -> Result<Self, StoreError> {
        let cursor = log.lock().add_cursor(resource_version)?;
        let version = resource_version.to_owned();
        Ok(Self { log: Arc::downgrade(log), _handle: handle, cursor, version, skips_known: true, has_ended: false })
    }

    /// Returns the resource version up to which the reader knows all changes.
    ///
    /// Once it has read the whole log, this is the version of the log, which bookmarks advance.
    pub fn resource_version(&mut self) -> &str {
        if let Some(log) = self.log.upgrade()
            && let Some(version) = log.lock().version_at_end(&self.cursor)
            && is_older(&self.version, version)
        {
            version.clone_into(&mut self.version);
        }
        &self.version
    }

    /// Returns the place of the next change.
    #[must_use]
    pub fn position(&self) -> ChangePosition {
        ChangePosition(self.cursor.place)
    }

    /// Continues at this place, as if the reader had read the changes before it. Another cursor may have found that the
    /// reader needs none of them; then they may also have left the log. It has no effect if the cursor is at this place
    /// or after it, or if the place is of a log that was closed since.
    pub fn skip_to(&mut self, position: ChangePosition) {
        if !ChangePosition(self.cursor.place).is_before(position) {
            return;
        }
        self.cursor.place = position.0;
        if let Some(log) = self.log.upgrade()
            && let Some(version) = log.lock().version_before(&self.cursor)
            && is_older(&self.version, version)
        {
            version.clone_into(&mut self.version);
            self.skips_known = false;
        }
    }

    /// Returns the next change, or `None` after an error.
    ///
    /// This is `next` of `StreamExt`.
    ///
    /// # Errors
    ///
    /// [`StoreError::ChangesExpired`] when the cursor has ended.
    pub async fn next(&mut self) -> Option<Result<Arc<LoggedChange<T>>, StoreError>> {
        poll_fn(|cx| self.poll_change(cx)).await
    }

    /// Returns the next change, if there is one.
    ///
    /// # Errors
    ///
    /// [`StoreError::ChangesExpired`] when the cursor has ended.
    pub fn try_next(&mut self) -> Result<Option<Arc<LoggedChange<T>>>, StoreError> {
        self.advance(None)
    }

    fn poll_change(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arc<LoggedChange<T>>, StoreError>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let next = self.advance(Some(cx.waker()));
        self.has_ended = next.is_err();
        match next {
            Ok(Some(change)) => Poll::Ready(Some(Ok(change))),
            Ok(None) => Poll::Pending,
            Err(expired) => Poll::Ready(Some(Err(expired))),
        }
    }

    fn advance(&mut self, waker: Option<&Waker>) -> Result<Option<Arc<LoggedChange<T>>>, StoreError> {
        let log = self.log.upgrade().ok_or(StoreError::ChangesExpired)?;
        let mut log = log.lock();
        while let Some(kept) = log.change_at(&self.cursor)? {
            self.cursor.place.next += 1;
            // The reader knows a newer version than the store's. From the first change that it may lack, it receives
            // all, because a change without a version may be older than what it knows.
            if self.skips_known && kept.is_known_at(&self.version) {
                continue;
            }
            self.skips_known = false;
            kept.change.resource_version.clone_into(&mut self.version);
            return Ok(Some(Arc::clone(&kept.change)));
        }
        if let Some(waker) = waker {
            log.set_waker(&self.cursor, waker);
        }
        Ok(None)
    }
}

/// Ends after an error.
impl<T: StoreType + ?Sized> Stream for ChangeCursor<T> {
    type Item = Result<Arc<LoggedChange<T>>, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_change(cx)
    }
}

impl<T: StoreType + ?Sized> Drop for ChangeCursor<T> {
    fn drop(&mut self) {
        if let Some(log) = self.log.upgrade() {
            let waker = log.lock().remove_waker(&self.cursor);
            drop(waker);
        }
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for ChangeCursor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeCursor").field("resource_version", &self.version).finish_non_exhaustive()
    }
}
