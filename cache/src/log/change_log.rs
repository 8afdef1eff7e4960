//! The change log: the changes of a collection in the order of their versions, for readers that resume.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use tokio::time::Instant;

use crate::StoreType;
use crate::error::StoreError;
use crate::key::ObjectKey;
use crate::log::frames::Frames;
use crate::state::entry::Entry;
use crate::state::object::{Codec, Object};
use crate::sync::lock;
use crate::write::writer::Inner;
use listwatch::compare_resource_versions;
use listwatch::encode::EventType;
use listwatch::internal::{is_comparable, is_older};

/// How much a change log keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeLogLimits {
    /// The memory of the log in bytes: replaced and deleted states, and encoded frames, which take at most a quarter of
    /// it. Over the limit, frames are encoded again and the oldest changes are dropped. The newest change, the
    /// changes that share its version and the newest frame are kept whatever their size. The default is 64 MiB.
    pub bytes: usize,
    /// The age of the oldest change. Changes that share the newest version may be older. The default is 10 minutes.
    pub age: Duration,
}

impl Default for ChangeLogLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, age: Duration::from_secs(600) }
    }
}

/// The state of a change log: see [`StoreReader::change_log`](crate::StoreReader::change_log).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeLogStatus {
    /// The log has all changes after this resource version; `None` while the log is closed.
    pub start: Option<String>,
    /// The number of changes.
    pub changes: usize,
    /// The memory of the log in bytes.
    pub bytes: usize,
    /// The age of the oldest change.
    pub age: Duration,
}

/// A change of a collection as the server made it: see [`StoreReader::changes_after`](crate::StoreReader::changes_after).
pub struct LoggedChange<T: StoreType + ?Sized> {
    kind: EventType,
    resource_version: String,
    old: Option<Entry<T::Decoded>>,
    object: Entry<T::Decoded>,
    codec: Arc<Codec<T>>,
    /// Distinguishes its frames from those of other changes.
    number: u64,
    frames: Arc<Frames>,
}

const FRAMES: usize = 4;

impl<T: StoreType + ?Sized> LoggedChange<T> {
    /// Returns what the change did.
    #[must_use]
    pub fn kind(&self) -> EventType {
        self.kind
    }

    /// Returns the resource version of the change, which orders the changes of a collection.
    ///
    /// Several changes may share a version: when a lease of etcd expires, it deletes all its objects at one version. A
    /// change without a version of its own, for example a deletion that some servers send without one, has the version
    /// of the change before it.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// Returns the state before the change; `None` for a new object.
    #[must_use]
    pub fn old(&self) -> Option<Object<T>> {
        self.old.as_ref().map(|old| Object::new(old, &self.codec))
    }

    /// Returns the state after the change; of a deleted object, the final state.
    #[must_use]
    pub fn object(&self) -> Object<T> {
        Object::new(&self.object, &self.codec)
    }

    /// Returns the frame that a reader sends for this change, which `encode` encodes once for all readers. `form` is a number below 4
    /// that names the form of the frame.
    ///
    /// Frames count in the memory of the log. The log drops the frames that were encoded first when they exceed a
    /// quarter of [`ChangeLogLimits::bytes`]: then the next call encodes again.
    ///
    /// # Errors
    ///
    /// The error of `encode`, which the next call calls again. An unknown form is encoded by each call.
    pub fn frame<E>(&self, form: usize, encode: impl FnOnce(&Self) -> Result<Vec<u8>, E>) -> Result<Bytes, E> {
        if form >= FRAMES {
            return encode(self).map(Bytes::from);
        }
        if let Some(frame) = self.frames.get(self.number, form) {
            return Ok(frame);
        }
        let frame = Bytes::from(encode(self)?);
        Ok(self.frames.keep(self.number, form, frame))
    }

    /// Returns the bytes that only the log holds: a replaced state, and the final state of a deleted object.
    fn bytes(&self) -> usize {
        let last = if self.kind == EventType::Deleted { self.object.allocated() } else { 0 };
        let old = self.old.as_ref().map_or(0, Entry::allocated);
        size_of::<Self>() + size_of::<Kept<T>>() + self.resource_version.len() + old + last
    }
}

impl<T: StoreType + ?Sized> Drop for LoggedChange<T> {
    fn drop(&mut self) {
        self.frames.drop_change(self.number, FRAMES);
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for LoggedChange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedChange")
            .field("kind", &self.kind)
            .field("resource_version", &self.resource_version)
            .field("object", &self.object())
            .finish_non_exhaustive()
    }
}

/// A change, and when it was appended.
struct Kept<T: StoreType + ?Sized> {
    at: Instant,
    place: Place,
    change: Arc<LoggedChange<T>>,
}

/// The place of a change among the changes of its version, which decides whether a reader at a version has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A reader at this version has the change.
    First,
    /// The log had this version before. A reader at this version may lack the change.
    Further,
    /// The change has no version of its own. A reader that is at any version before the next change may lack it.
    Unversioned,
}

impl<T: StoreType + ?Sized> Kept<T> {
    /// Returns true if a reader that is at this version has the change for certain.
    fn is_known_at(&self, resource_version: &str) -> bool {
        match compare_resource_versions(&self.change.resource_version, resource_version) {
            Some(Ordering::Less) => self.place != Place::Unversioned,
            Some(Ordering::Equal) => self.place == Place::First,
            _ => false,
        }
    }

    /// Returns true if the change has the newest version, and a reader at this version may lack it.
    ///
    /// The log keeps such a change. Otherwise each reader that lists at this version would expire at once.
    fn is_unsettled_at(&self, newest: &str) -> bool {
        self.place != Place::First && self.change.resource_version == newest
    }
}

/// The log of a store. Readers acquire its lock without any other.
///
/// | state | left when |
/// |---|---|
/// | `Closed` | the collection is complete at a version, or changes are pending that make it so |
/// | `Opening`: the store has objects that are newer than the version up to which the watch has delivered all changes | the watch has passed them |
/// | `Open` | a relist begins, or the store misses a change |
pub(crate) struct Log<T: StoreType + ?Sized> {
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
    kept: VecDeque<Kept<T>>,
    kept_bytes: usize,
    frames: Arc<Frames>,
    /// The states at `version` of objects that others than the reflector have written since.
    ahead: HashMap<ObjectKey, Option<Entry<T::Decoded>>>,
    /// The wakers of waiting readers, by the number of the reader.
    wakers: HashMap<u64, Waker>,
    readers: u64,
    has_news: bool,
    /// Changes that were dropped. They are freed after the locks are released.
    garbage: Vec<Kept<T>>,
}

/// What is due once a writer has released its locks: readers to wake, and changes to free.
pub(crate) struct Due<T: StoreType + ?Sized> {
    wakers: Vec<Waker>,
    _garbage: Vec<Kept<T>>,
}

impl<T: StoreType + ?Sized> Drop for Due<T> {
    fn drop(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
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
pub(crate) struct Observed<D> {
    /// The state that the store had before.
    pub(crate) old: Option<Entry<D>>,
    /// The state of the change; of a deleted object, its final state.
    pub(crate) object: Entry<D>,
    pub(crate) is_deleted: bool,
    /// True if the store changed.
    pub(crate) has_effect: bool,
    /// The version that the store has of an object that did not change: newer than the change if others than the reflector have
    /// written it.
    pub(crate) known: Option<String>,
}

impl<D> Observed<D> {
    fn old_version(&self) -> Option<&str> {
        self.old.as_ref().map(Entry::resource_version)
    }
}

impl<T: StoreType + ?Sized> Log<T> {
    pub(crate) fn new() -> Self {
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
    pub(crate) fn begin_replace(&mut self) {
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

    /// Begins at a version up to which the store has all changes, and which has an order. `newest` is the newest version of an object of the store.
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
    pub(crate) fn wrote(&mut self, key: ObjectKey, old: Option<Entry<T::Decoded>>, resource_version: &str) {
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
    pub(crate) fn append(&mut self, observed: Observed<T::Decoded>, codec: &Arc<Codec<T>>) {
        let own_version = observed.object.resource_version();
        let is_newer = self.has_not_seen(own_version);
        if is_newer {
            own_version.clone_into(&mut self.seen);
        }
        if !self.is_open() {
            if is_newer {
                self.advance(own_version);
            } else if observed.has_effect || observed.is_deleted && self.is_closed() {
                // It happened after a version at which the log could open without it. While the log is closed, a deletion may have no
                // effect because the list has not delivered the object yet.
                self.lose_track();
            }
            return;
        }
        let place = match own_version {
            _ if is_newer => Place::First,
            // A deletion at the version of the object's last state has none of its own.
            version if version == self.version && observed.old_version() != Some(version) => Place::Further,
            version if observed.has_effect && !version.is_empty() && !is_comparable(version) => {
                return self.lose_track();
            }
            _ => Place::Unversioned,
        };
        let version = own_version.to_owned();
        let observed = if self.ahead.is_empty() { Some(observed) } else { self.catch_up(observed, place) };
        if place == Place::First {
            self.reach(&version);
        }
        // Otherwise the watch has delivered the change again.
        if let Some(observed) = observed.filter(|observed| observed.has_effect || place == Place::First) {
            self.is_shared |= place != Place::First;
            self.push(observed, place, codec);
        }
    }

    /// Returns the change of the state that the log has of an object, if others than the reflector have written the
    /// object; `None` if nothing changes.
    fn catch_up(&mut self, mut observed: Observed<T::Decoded>, place: Place) -> Option<Observed<T::Decoded>> {
        let version = observed.object.resource_version();
        let key = observed.object.identity().key();
        let Some(state) = self.ahead.remove(&key) else { return Some(observed) };
        let is_behind = observed.known.as_ref().is_some_and(|known| is_older(version, known));
        let is_repeated = match &state {
            _ if place == Place::First => false,
            Some(state) => !observed.is_deleted && !is_older(state.resource_version(), version),
            None => observed.is_deleted,
        };
        if is_repeated {
            self.ahead.insert(key, state);
            return None;
        }
        if is_behind && observed.is_deleted && place != Place::First {
            // Whether the object was deleted before or after the state that others wrote is unknown.
            self.lose_track();
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
    fn lose_track(&mut self) {
        self.unsure = Some(self.seen.clone());
        self.close();
    }

    fn push(&mut self, observed: Observed<T::Decoded>, place: Place, codec: &Arc<Codec<T>>) {
        let Observed { old, object, is_deleted, .. } = observed;
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
        self.kept_bytes += change.bytes();
        self.kept.push_back(Kept { at: Instant::now(), place, change });
        self.has_news = true;
        self.trim();
    }

    /// Drops the oldest changes that exceed the limits.
    fn trim(&mut self) {
        let Some(limits) = self.limits else { return };
        // Frames have a limit of their own. Only changes that must be kept exceed the limit of the log.
        let of_changes = limits.bytes - Frames::share(limits.bytes);
        while let Some(oldest) = self.kept.front()
            && !oldest.is_unsettled_at(&self.version)
            && (oldest.at.elapsed() > limits.age || self.kept_bytes > of_changes && self.kept.len() > 1)
        {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.kept_bytes -= oldest.change.bytes();
            self.dropped += 1;
            let version = &oldest.change.resource_version;
            let start = match oldest.place {
                Place::First | Place::Further => version,
                // It happened before the next version.
                Place::Unversioned => {
                    let next = self.kept.iter().find(|kept| kept.place == Place::First);
                    next.map_or(&self.version, |next| &next.change.resource_version)
                }
            };
            self.start.clone_from(start);
            self.start_is_partial = oldest.place == Place::Further;
            self.garbage.push(oldest);
        }
        if self.kept.capacity() > 4 * self.kept.len() + 64 {
            self.kept.shrink_to(2 * self.kept.len());
        }
    }

    /// Returns the memory of the log in bytes.
    pub(crate) fn bytes(&self) -> usize {
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
    pub(crate) fn take_due(&mut self) -> Due<T> {
        let wakers = if mem::take(&mut self.has_news) {
            self.wakers.drain().map(|(_, waker)| waker).collect()
        } else {
            Vec::new()
        };
        Due { wakers, _garbage: mem::take(&mut self.garbage) }
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
        let is_before = |kept: &Kept<T>| {
            is_older(&kept.change.resource_version, resource_version) || kept.is_known_at(resource_version)
        };
        let mut place = self.kept.partition_point(is_before);
        while place > 0 && self.kept.get(place - 1).is_some_and(|kept| kept.place == Place::Unversioned) {
            place -= 1;
        }
        Ok(self.dropped + place as u64)
    }
}

/// A cursor in the change log: see [`StoreReader::changes_after`](crate::StoreReader::changes_after).
///
/// It keeps no change and not the store. It ends with [`StoreError::ChangesExpired`] when the log drops changes that it has not
/// returned, when a relist begins, and when the store is dropped.
pub struct Changes<T: StoreType + ?Sized> {
    inner: Weak<Inner<T>>,
    number: u64,
    opening: u64,
    next: u64,
    /// The version up to which the reader has all changes.
    version: String,
    /// True until the first change that the reader may lack.
    skips_known: bool,
    has_ended: bool,
}

impl<T: StoreType + ?Sized> Changes<T> {
    pub(crate) fn after(inner: &Arc<Inner<T>>, resource_version: &str) -> Result<Self, StoreError> {
        let mut log = lock(&inner.log);
        let next = log.place_after(resource_version)?;
        log.readers += 1;
        let (number, opening, version) = (log.readers, log.opening, resource_version.to_owned());
        Ok(Self { inner: Arc::downgrade(inner), number, opening, next, version, skips_known: true, has_ended: false })
    }

    /// Returns the resource version up to which the reader has all changes. If it has read the whole log, this is the version of the
    /// log, which bookmarks advance.
    pub fn resource_version(&mut self) -> &str {
        if let Some(inner) = self.inner.upgrade() {
            let log = lock(&inner.log);
            if log.opening == self.opening
                && self.next == log.dropped + log.kept.len() as u64
                && is_older(&self.version, &log.version)
            {
                log.version.clone_into(&mut self.version);
            }
        }
        &self.version
    }

    /// Returns the next change, if there is one.
    ///
    /// # Errors
    ///
    /// [`StoreError::ChangesExpired`].
    pub fn try_next(&mut self) -> Result<Option<Arc<LoggedChange<T>>>, StoreError> {
        self.advance(None)
    }

    fn advance(&mut self, waker: Option<&Waker>) -> Result<Option<Arc<LoggedChange<T>>>, StoreError> {
        let inner = self.inner.upgrade().ok_or(StoreError::ChangesExpired)?;
        let mut log = lock(&inner.log);
        loop {
            let at = self
                .next
                .checked_sub(log.dropped)
                .filter(|_| log.opening == self.opening)
                .ok_or(StoreError::ChangesExpired)?;
            let kept = usize::try_from(at).ok().and_then(|at| log.kept.get(at));
            let Some(kept) = kept else { break };
            self.next += 1;
            // A reader that knows a newer version than the store. From the first change that it may lack on, it gets all: a change
            // without a version may be older than what it knows.
            if self.skips_known && kept.is_known_at(&self.version) {
                continue;
            }
            self.skips_known = false;
            kept.change.resource_version.clone_into(&mut self.version);
            return Ok(Some(Arc::clone(&kept.change)));
        }
        if let Some(waker) = waker {
            log.wakers.insert(self.number, waker.clone());
        }
        Ok(None)
    }
}

/// Ends after an error.
impl<T: StoreType + ?Sized> Stream for Changes<T> {
    type Item = Result<Arc<LoggedChange<T>>, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
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
}

impl<T: StoreType + ?Sized> Drop for Changes<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            let waker = lock(&inner.log).wakers.remove(&self.number);
            drop(waker);
        }
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for Changes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("resource_version", &self.version).finish_non_exhaustive()
    }
}
