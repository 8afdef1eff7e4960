//! Records the changes of caches into a history.
//!
//! # Advice for changes
//!
//! A collection is recorded from the change log of its cache, so no change is coalesced. What its cursor says decides:
//!
//! | the cursor | the recorder |
//! |---|---|
//! | continues after the last recorded version | appends what the log has: there is no gap, also after a restart |
//! | has expired, or the version went back | compares the next exact snapshot with the last recorded states, and begins a span |
//!
//! After an error of the disk the writer is opened again, as after a restart. If the change log still has what was
//! missed, there is no gap.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use listwatch::EventType;
use listwatch::client::Resource;
use listwatch::internal::is_older;
use listwatch_cache::{Cache, ChangeCursor, LoggedChange, Object, Snapshot, StoreError};

use crate::base::{BaseSource, BaseState};
use crate::commit::newer;
use crate::compare::{Comparison, key_of};
use crate::cut::Span;
use crate::error::HistoryError;
use crate::open_part::{NewChange, OldState};
use crate::record::ChangeKind;
use crate::writer::{HistoryWriter, WriterOptions};

/// How long the first part waits for collections that are not synced.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(30);
/// How long a recorder waits after an error of the disk.
const DISK_WAIT: SignedDuration = SignedDuration::from_secs(5);
/// The most changes and bytes of a commit, which bound its memory.
const MOST_CHANGES: usize = 10_000;
const MOST_BYTES: usize = 32 << 20;

/// Records caches into a history. Only one recorder writes a history at a time.
///
/// The caches need a [change log](listwatch_cache::Reflector::change_log). The caller calls [`tick`](Self::tick) at
/// least each second, from a thread that may block.
pub struct Recorder {
    dir: PathBuf,
    options: WriterOptions,
    writer: Option<HistoryWriter>,
    followed: Vec<Followed>,
    first_tick: Option<Timestamp>,
    last_tick: Timestamp,
    retry_at: Option<Timestamp>,
    status: RecorderStatus,
}

/// What a recorder has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderStatus {
    /// How many changes were recorded since the start.
    pub changes: u64,
    /// How many gaps there were since the start. Each is of one collection.
    pub gaps: u64,
    /// How many collections are recorded up to their newest change.
    pub following: usize,
    /// Why nothing is recorded now, if the disk does not take it.
    pub paused: Option<String>,
    /// When something was recorded last, also by an earlier recorder.
    pub last_time: Option<Timestamp>,
    /// The number of parts, and their bytes.
    pub parts: usize,
    /// The bytes of all parts.
    pub bytes: u64,
}

struct Followed {
    cache: Cache<[u8]>,
    cursor: Option<ChangeCursor<[u8]>>,
    /// The number of the collection in the part.
    collection: u64,
    /// When the event or bookmark before was recorded.
    since: Timestamp,
    last_synced: Option<std::time::Instant>,
}

impl Recorder {
    /// Opens the history in a folder, which is created if needed, to record into it.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Locked`] when another process records into it, and others when the newest part cannot be read.
    pub fn open(dir: impl AsRef<Path>, options: WriterOptions) -> Result<Self, HistoryError> {
        let dir = dir.as_ref().to_owned();
        let writer = HistoryWriter::open(&dir, options.clone())?;
        let last_time = writer.last_time().and_then(|time| Timestamp::from_millisecond(time).ok());
        let status = RecorderStatus { last_time, ..RecorderStatus::default() };
        Ok(Self {
            dir,
            options,
            writer: Some(writer),
            followed: Vec::new(),
            first_tick: None,
            last_tick: last_time.unwrap_or(Timestamp::UNIX_EPOCH),
            retry_at: None,
            status,
        })
    }

    /// Records the changes of a cache from now on.
    pub fn attach(&mut self, cache: Cache<[u8]>) {
        let since = self.last_tick;
        self.followed.push(Followed { cache, cursor: None, collection: 0, since, last_synced: None });
    }

    /// Returns what was done.
    #[must_use]
    pub fn status(&self) -> &RecorderStatus {
        &self.status
    }

    /// Writes the changes since the last call to disk. A time before that of the last call counts as the latter.
    ///
    /// A full or failing disk pauses the recording, which [`RecorderStatus::paused`] says; a later call tries again.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] when the history cannot be continued, for example because its newest part is damaged.
    pub fn tick(&mut self, now: Timestamp) -> Result<(), HistoryError> {
        let now = now.max(self.last_tick);
        self.last_tick = now;
        if self.retry_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        match self.record(now) {
            Ok(()) => {
                if self.status.paused.take().is_some() {
                    tracing::warn!(name: "listwatch.history.resumed", "the recording continues");
                }
                self.retry_at = None;
                Ok(())
            }
            Err(error) if error.is_of_disk() => {
                let text = error.to_string();
                if self.status.paused.is_none() {
                    tracing::error!(name: "listwatch.history.paused", error = %text, "the recording pauses");
                }
                self.status.paused = Some(text);
                self.status.following = 0;
                self.writer = None;
                self.followed.iter_mut().for_each(|followed| followed.cursor = None);
                self.retry_at = now.saturating_add(DISK_WAIT).ok();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn record(&mut self, now: Timestamp) -> Result<(), HistoryError> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            closed => closed.insert(HistoryWriter::open(&self.dir, self.options.clone())?),
        };
        if !writer.has_part() && !begin(writer, &mut self.followed, *self.first_tick.get_or_insert(now), now)? {
            return Ok(());
        }
        let mut is_behind = true;
        while is_behind {
            match follow(writer, &mut self.followed, &mut self.status, now) {
                Ok(more) => is_behind = more,
                Err(error) if error.is_of_disk() => return Err(error),
                Err(error) => {
                    writer.abandon(&error);
                    self.status.gaps += self.followed.len() as u64;
                    self.followed.iter_mut().for_each(|followed| followed.cursor = None);
                    return Ok(());
                }
            }
        }
        self.status.last_time = writer.last_time().and_then(|time| Timestamp::from_millisecond(time).ok());
        (self.status.parts, self.status.bytes) = writer.size();
        Ok(())
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("dir", &self.dir).field("status", &self.status).finish_non_exhaustive()
    }
}

/// Commits what the logs have. Returns true if there is more.
fn follow(
    writer: &mut HistoryWriter,
    all: &mut [Followed],
    status: &mut RecorderStatus,
    now: Timestamp,
) -> Result<bool, HistoryError> {
    let (mut is_behind, mut following) = (false, 0);
    for followed in all {
        if followed.cursor.is_none() {
            followed.connect(writer, now, status)?;
        }
        is_behind |= followed.append_changes(writer, now, status)?;
        following += usize::from(followed.cursor.is_some());
    }
    writer.commit(now)?;
    status.following = following;
    Ok(is_behind)
}

/// Writes the first part, once all collections are synced or have had their time. Returns true if it exists.
fn begin(
    writer: &mut HistoryWriter,
    followed: &mut [Followed],
    first_tick: Timestamp,
    now: Timestamp,
) -> Result<bool, HistoryError> {
    let snapshots: Vec<_> = followed.iter().map(|followed| followed.cache.exact_snapshot()).collect();
    let is_complete = snapshots.iter().all(Option::is_some);
    if snapshots.iter().all(Option::is_none) || !is_complete && now.duration_since(first_tick) < FIRST_WAIT {
        return Ok(false);
    }
    let mut collections = Vec::new();
    for (followed, snapshot) in followed.iter_mut().zip(snapshots) {
        let Some(snapshot) = snapshot else { continue };
        followed.cursor = followed.cache.changes_after(snapshot.resource_version()).ok();
        followed.collection = collections.len() as u64 + 1;
        followed.since = now;
        collections.push((followed.collection, followed.cache.resource().clone(), snapshot));
    }
    writer.begin(now, &mut Snapshots { collections, now })?;
    Ok(true)
}

/// Snapshots of caches, as the base of the first part.
struct Snapshots {
    collections: Vec<(u64, Resource, Snapshot<[u8]>)>,
    now: Timestamp,
}

impl Snapshots {
    fn of(&self, collection: u64) -> Option<&Snapshot<[u8]>> {
        self.collections.iter().find(|(number, ..)| *number == collection).map(|(.., snapshot)| snapshot)
    }
}

impl BaseSource for Snapshots {
    fn collections(&self) -> Vec<(u64, Resource)> {
        self.collections.iter().map(|(number, resource, _)| (*number, resource.clone())).collect()
    }

    fn spans(&self) -> Vec<(u64, Span)> {
        let span = |snapshot: &Snapshot<[u8]>| new_span(snapshot.resource_version(), self.now);
        self.collections.iter().map(|(number, _, snapshot)| (*number, span(snapshot))).collect()
    }

    fn len(&self, collection: u64) -> usize {
        self.of(collection).map_or(0, Snapshot::len)
    }

    fn visit(
        &mut self,
        collection: u64,
        step: usize,
        visit: &mut dyn FnMut(BaseState) -> Result<(), HistoryError>,
    ) -> Result<(), HistoryError> {
        let Some(snapshot) = self.of(collection) else { return Ok(()) };
        for object in snapshot.iter().step_by(step) {
            visit(BaseState {
                key: key_of(&object),
                uid: object.uid().to_owned(),
                encoding: object.encoding(),
                version: object.resource_version().to_owned(),
                bytes: Some(object.encoded()?.to_vec()),
            })?;
        }
        Ok(())
    }
}

fn new_span(version: &str, time: Timestamp) -> Span {
    Span {
        first_seq: 0,
        first_version: version.to_owned(),
        first_time: time,
        last_version: version.to_owned(),
        resume_version: version.to_owned(),
        last_time: time,
    }
}

impl Followed {
    /// Finds the place after what was recorded, or after a gap compares the collection with what was recorded.
    fn connect(
        &mut self,
        writer: &mut HistoryWriter,
        now: Timestamp,
        status: &mut RecorderStatus,
    ) -> Result<(), HistoryError> {
        let resource = self.cache.resource().clone();
        let known = writer.collection(&resource);
        let last = known.and_then(|collection| writer.last_span(collection).cloned());
        if let (Some(collection), Some(last)) = (known, &last) {
            (self.collection, self.since) = (collection, last.last_time);
            // A server that was restored from a backup is at an older version, and its changes are others.
            let went_back = is_older(&self.cache.resource_version(), &last.last_version);
            if !went_back && let Ok(cursor) = self.cache.changes_after(&last.last_version) {
                self.cursor = Some(cursor);
                return Ok(());
            }
        }
        let Some(snapshot) = self.cache.exact_snapshot() else { return Ok(()) };
        let version = snapshot.resource_version().to_owned();
        let Ok(cursor) = self.cache.changes_after(&version) else { return Ok(()) };
        // The comparison reads what was recorded, so everything else must be on disk.
        writer.commit(now)?;
        let collection = match known {
            Some(collection) => collection,
            None => writer.add_collection(&resource).unwrap_or_default(),
        };
        let since = last.as_ref().map_or(now, |last| last.last_time);
        let found = Comparison { collection, version: &version, now, since }.append(writer, known, &snapshot)?;
        status.changes += found;
        writer.advance(collection, &version, &version, true);
        if let Some(last) = last {
            status.gaps += 1;
            let from = &last.last_version;
            tracing::warn!(
                name: "listwatch.history.gap", %resource, from, to = version, changed = found,
                "a gap: what happened between two versions is unknown"
            );
        }
        (self.collection, self.since, self.cursor) = (collection, now, Some(cursor));
        Ok(())
    }

    /// Appends what the log has. Returns true if there is more.
    fn append_changes(
        &mut self,
        writer: &mut HistoryWriter,
        now: Timestamp,
        status: &mut RecorderStatus,
    ) -> Result<bool, HistoryError> {
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        // Before the cursor is read, so that the log had everything that was received until then.
        let synced = self.cache.status().last_synced_at;
        let since = now.duration_since(self.since).as_millis().try_into().unwrap_or_default();
        let (mut changes, mut bytes, mut last, mut is_behind) = (0_usize, 0_usize, None, false);
        loop {
            if changes >= MOST_CHANGES || bytes >= MOST_BYTES {
                is_behind = true;
                break;
            }
            match cursor.try_next() {
                Ok(Some(change)) => {
                    changes += 1;
                    bytes += append(writer, self.collection, &change, now, since)?;
                    last = Some(change.resource_version().to_owned());
                }
                Ok(None) => break,
                Err(StoreError::ChangesExpired) => {
                    self.cursor = None;
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let span = writer.last_span(self.collection).cloned();
        let known = span.as_ref().map(|span| (&*span.last_version, &*span.resume_version)).unwrap_or_default();
        // Further changes may share the version of the last one, until the collection is known to be at a newer one.
        let (version, resume) = match (&mut self.cursor, &last) {
            (Some(cursor), _) if !is_behind => {
                let version = newer(cursor.resource_version(), known.0).to_owned();
                let is_passed = last.as_ref().is_none_or(|last| is_older(last, &version)) && version != known.0;
                let resume = match &last {
                    _ if is_passed => version.clone(),
                    Some(last) if last != known.0 => known.0.to_owned(),
                    _ => known.1.to_owned(),
                };
                (version, resume)
            }
            (_, Some(last)) => (last.clone(), if last == known.0 { known.1 } else { known.0 }.to_owned()),
            (_, None) => return Ok(false),
        };
        let has_news = changes > 0 || version != known.0 || synced != self.last_synced;
        if has_news {
            writer.advance(self.collection, &version, &resume, false);
            (self.since, self.last_synced) = (now, synced);
            status.changes += changes as u64;
        }
        Ok(is_behind)
    }
}

/// Appends a change of a log, and returns the bytes of its states.
fn append(
    writer: &mut HistoryWriter,
    collection: u64,
    change: &Arc<LoggedChange<[u8]>>,
    now: Timestamp,
    since: u64,
) -> Result<usize, HistoryError> {
    let (object, old) = (change.object(), change.old());
    let kind = match change.kind() {
        EventType::Deleted => ChangeKind::Deleted,
        EventType::Added => ChangeKind::Added,
        _ => ChangeKind::Modified,
    };
    let key = key_of(&object);
    // After a resume the server may deliver changes again.
    if writer.is_known(collection, &key, kind, object.encoded()?) {
        return Ok(0);
    }
    let bytes = object.encoded()?;
    let old_bytes = old.as_ref().map(Object::encoded).transpose()?;
    let len = bytes.len() + old_bytes.map_or(0, |old| old.len());
    let old = old.as_ref().zip(old_bytes).map(|(old, bytes)| OldState {
        uid: old.uid(),
        version: old.resource_version(),
        bytes,
    });
    let change = NewChange {
        collection,
        kind,
        is_between: false,
        key: &key,
        uid: object.uid(),
        version: change.resource_version(),
        object_version: object.resource_version(),
        encoding: object.encoding(),
        bytes,
        old,
    };
    writer.append(&change, now, since);
    Ok(len)
}
