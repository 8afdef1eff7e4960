//! Writes a history: one writer, by lock, which appends commits, seals them, and begins new parts.
//!
//! # Advice for changes
//!
//! | step | when | what it writes |
//! |---|---|---|
//! | commit | each second | a row of `tail`, and new objects, in one transaction that is flushed to disk |
//! | seal | after [`WriterOptions::period_changes`] | the records of the tail by object, as rows of `sealed`; the tail is emptied |
//! | roll | after a day, many changes or periods | a new part that begins with the state of every object |
//!
//! - A part is built under another name, and renamed when it is complete, so a crash leaves the previous part the last.
//! - After an error the writer is unusable: what it knows of the objects may be ahead of the file. Open it again.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs4::{FileExt, TryLockError};
use jiff::Timestamp;
use listwatch::Encoding;
use listwatch::client::Resource;

use crate::base::{BaseSource, BaseState, write_base};
use crate::commit::Progress;
use crate::cut::Span;
use crate::error::HistoryError;
use crate::open_part::{LiveObject, NewChange, OpenPart, key_hash};
use crate::part::{PartFile, part_numbers, part_path};
use crate::reader::{Cut, PartReader};
use crate::record::ChangeKind;

/// The most periods in a part.
const MOST_PERIODS: usize = 16;

/// How a history is written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WriterOptions {
    /// How long parts are kept; the default is 14 days.
    pub keep: Duration,
    /// The most bytes of all parts together; by default no limit. The newest part always stays.
    pub max_size: Option<u64>,
    /// The longest time of a part; the default is a day.
    pub part_time: Duration,
    /// The most changes of a part; the default is a million.
    pub part_changes: u64,
    /// The most changes of a period; the default is 65,536, and a period also ends at 16 MiB.
    pub period_changes: u64,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            keep: Duration::from_secs(14 * 86_400),
            max_size: None,
            part_time: Duration::from_secs(86_400),
            part_changes: 1_000_000,
            period_changes: 1 << 16,
        }
    }
}

/// The bytes of a tail at which a period ends.
const PERIOD_BYTES: usize = 16 << 20;

pub(crate) struct HistoryWriter {
    dir: PathBuf,
    options: WriterOptions,
    _lock: File,
    part: Option<OpenPart>,
    /// The number of the next part.
    next_number: u64,
}

impl HistoryWriter {
    /// Opens the history in a folder, which is created if needed.
    pub fn open(dir: &Path, options: WriterOptions) -> Result<Self, HistoryError> {
        let io = |error| HistoryError::Io { path: dir.to_owned(), error };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(dir).map_err(io)?;
        let lock_path = dir.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(|error| HistoryError::Io { path: lock_path, error })?;
        match FileExt::try_lock(&lock) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(HistoryError::Locked(dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        for entry in fs::read_dir(dir).map_err(io)? {
            let entry = entry.map_err(io)?;
            // What a crash left of a part that was being built.
            if entry.file_name().to_string_lossy().starts_with("unfinished-") {
                fs::remove_file(entry.path()).map_err(io)?;
            }
        }
        let mut writer = Self { dir: dir.to_owned(), options, _lock: lock, part: None, next_number: 1 };
        if let Some(number) = part_numbers(dir)?.last() {
            writer.next_number = number + 1;
            match OpenPart::open(dir, *number) {
                Ok(part) => writer.part = Some(part),
                Err(error) if error.is_of_disk() || matches!(error, HistoryError::Format { .. }) => return Err(error),
                Err(error) => writer.abandon(&error),
            }
        }
        Ok(writer)
    }

    pub fn has_part(&self) -> bool {
        self.part.is_some()
    }

    /// Returns the number of a collection that is recorded.
    pub fn collection(&self, resource: &Resource) -> Option<u64> {
        let found = self.part.as_ref()?.collections.iter().find(|(_, known)| known == resource);
        found.map(|(collection, _)| *collection)
    }

    pub fn last_span(&self, collection: u64) -> Option<&Span> {
        self.part.as_ref()?.spans.last(collection)
    }

    /// Returns when something was recorded last, in milliseconds since 1970.
    pub fn last_time(&self) -> Option<i64> {
        self.part.as_ref().map(|part| part.last_time)
    }

    /// Returns a reader of the newest part.
    pub fn reader(&self) -> Result<Option<PartReader>, HistoryError> {
        self.part.as_ref().map(|part| PartReader::open(&part.file.path)).transpose()
    }

    /// Leaves a part that is damaged, so that the next one begins without it.
    pub fn abandon(&mut self, error: &HistoryError) {
        tracing::error!(
            name: "listwatch.history.damaged", %error,
            "the newest part is damaged: another one begins, and what happened in between is unknown"
        );
        self.part = None;
    }

    /// Begins a part with these states, without the part before.
    pub fn begin(&mut self, time: Timestamp, source: &mut dyn BaseSource) -> Result<(), HistoryError> {
        // More than the part before has.
        let seq = (self.next_number - 1) << 40;
        self.begin_part((seq, time), self.next_number, source)
    }

    fn begin_part(
        &mut self,
        (seq, time): (u64, Timestamp),
        number: u64,
        source: &mut dyn BaseSource,
    ) -> Result<(), HistoryError> {
        let io = |error| HistoryError::Io { path: self.dir.clone(), error };
        let unfinished = self.dir.join(format!("unfinished-{number:06}.db"));
        // What an attempt before has left.
        if unfinished.exists() {
            fs::remove_file(&unfinished).map_err(io)?;
        }
        let mut live = HashMap::new();
        let file = write_base(&unfinished, (seq, time), source, |object| {
            let known = LiveObject { id: object.id, deltas: 0, sum: object.sum };
            live.insert(key_hash(object.collection, object.key), known);
        })?;
        file.finish();
        let path = part_path(&self.dir, number);
        fs::rename(&unfinished, &path).map_err(io)?;
        // So that the name survives a loss of power. Other systems cannot open folders.
        #[cfg(unix)]
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(io)?;
        self.part = Some(OpenPart { live, ..OpenPart::open_rows(&path, number)? });
        self.next_number = number + 1;
        Ok(())
    }

    /// Adds a collection, which begins without objects and without a span.
    pub fn add_collection(&mut self, resource: &Resource) -> Option<u64> {
        let part = self.part.as_mut()?;
        let number = part.collections.iter().map(|(number, _)| *number).max().unwrap_or(0) + 1;
        part.collections.push((number, resource.clone()));
        part.pending.collections.push((number, resource.clone()));
        Some(number)
    }

    /// Returns true if the history has this change already.
    pub fn is_known(&self, collection: u64, key: &str, kind: ChangeKind, bytes: &[u8]) -> bool {
        let Some(part) = &self.part else { return false };
        match part.live.get(&key_hash(collection, key)) {
            None => kind == ChangeKind::Deleted,
            Some(live) => kind != ChangeKind::Deleted && live.sum == crc32fast::hash(bytes),
        }
    }

    /// Appends a change to the next commit.
    pub fn append(&mut self, change: &NewChange<'_>, time: Timestamp, since: u64) {
        if let Some(part) = &mut self.part {
            part.append(change, time.as_millisecond(), since);
        }
    }

    /// Notes how far a collection has come.
    pub fn advance(&mut self, collection: u64, version: &str, resume_version: &str, is_new_span: bool) {
        if let Some(part) = &mut self.part {
            let (version, resume_version) = (version.to_owned(), resume_version.to_owned());
            part.pending.progress.push(Progress { collection, is_new_span, version, resume_version });
        }
    }

    /// Writes what was appended, and flushes it to disk. Then it seals a period or begins a part if one is due, and
    /// drops the oldest parts.
    pub fn commit(&mut self, time: Timestamp) -> Result<(), HistoryError> {
        let Some(part) = &mut self.part else { return Ok(()) };
        part.commit(time.as_millisecond())?;
        if part.tail_changes >= self.options.period_changes || part.tail_bytes >= PERIOD_BYTES {
            part.seal()?;
        }
        let size = if self.options.max_size.is_some() { size_of(&part.file.path) } else { 0 };
        let age = part.last_time - part.origin.time;
        let is_full = part.changes >= self.options.part_changes
            || part.periods >= MOST_PERIODS
            || age >= i64::try_from(self.options.part_time.as_millis()).unwrap_or(i64::MAX)
            // So that the oldest part can be dropped without most of the history.
            || part.changes > 0 && self.options.max_size.is_some_and(|most| size > most / 4);
        if is_full {
            self.roll()?;
        }
        self.drop_old(time)
    }

    /// Begins the next part.
    pub fn roll(&mut self) -> Result<(), HistoryError> {
        let Some(part) = &mut self.part else { return Ok(()) };
        part.seal()?;
        let (number, seq) = (part.number + 1, part.next_seq);
        let time = Timestamp::from_millisecond(part.last_time).unwrap_or(Timestamp::UNIX_EPOCH);
        let reader = PartReader::open(&part.file.path)?;
        let mut source = LastStates { spans: reader.spans.continued(seq), reader };
        self.begin_part((seq, time), number, &mut source)?;
        drop(source);
        PartFile::open(&part_path(&self.dir, number - 1))?.finish();
        Ok(())
    }

    fn drop_old(&mut self, now: Timestamp) -> Result<(), HistoryError> {
        let mut numbers = part_numbers(&self.dir)?;
        let Some(newest) = numbers.pop() else { return Ok(()) };
        let keep = i64::try_from(self.options.keep.as_millis()).unwrap_or(i64::MAX);
        let mut sizes: u64 =
            numbers.iter().chain([&newest]).map(|number| size_of(&part_path(&self.dir, *number))).sum();
        for (at, number) in numbers.iter().enumerate() {
            let path = part_path(&self.dir, *number);
            // A part ends where the next one begins.
            let next = part_path(&self.dir, numbers.get(at + 1).copied().unwrap_or(newest));
            let is_old = || {
                let start = PartFile::open(&next).and_then(|next| next.start());
                start.is_ok_and(|start| start.time.saturating_add(keep) < now.as_millisecond())
            };
            if self.options.max_size.is_none_or(|most| sizes <= most) && !is_old() {
                return Ok(());
            }
            sizes = sizes.saturating_sub(size_of(&path));
            fs::remove_file(&path).map_err(|error| HistoryError::Io { path: path.clone(), error })?;
            for log in ["-wal", "-shm"] {
                let mut name = path.clone().into_os_string();
                name.push(log);
                _ = fs::remove_file(name);
            }
            tracing::info!(name: "listwatch.history.dropped", part = %path.display(), "dropped the oldest part");
        }
        Ok(())
    }

    /// Returns the parts and their bytes.
    pub fn size(&self) -> (usize, u64) {
        let numbers = part_numbers(&self.dir).unwrap_or_default();
        (numbers.len(), numbers.iter().map(|number| size_of(&part_path(&self.dir, *number))).sum())
    }
}

fn size_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// The newest states of a part, as the base of the next one.
struct LastStates {
    reader: PartReader,
    spans: Vec<(u64, Span)>,
}

impl BaseSource for LastStates {
    fn collections(&self) -> Vec<(u64, Resource)> {
        self.reader.collections.clone()
    }

    fn spans(&self) -> Vec<(u64, Span)> {
        self.spans.clone()
    }

    fn len(&self, _collection: u64) -> usize {
        self.reader.objects.try_into().unwrap_or(usize::MAX)
    }

    fn visit(
        &mut self,
        collection: u64,
        step: usize,
        visit: &mut dyn FnMut(BaseState) -> Result<(), HistoryError>,
    ) -> Result<(), HistoryError> {
        let (mut after, mut place) = (None::<(String, u32)>, 0_usize);
        loop {
            let last = after.as_ref().map(|(key, id)| (&**key, *id));
            let objects = self.reader.objects_after(collection, "", last, 256)?;
            let Some(newest) = objects.last() else { break };
            after = Some((newest.key.clone(), newest.id));
            for object in objects {
                place += 1;
                if !place.is_multiple_of(step) {
                    continue;
                }
                let record = match self.reader.newest(object.id) {
                    Ok(Some((record, _))) if record.kind != ChangeKind::Deleted => Some(record),
                    Ok(_) => continue,
                    Err(HistoryError::Damaged { .. }) => None,
                    Err(error) => return Err(error),
                };
                let state = self.reader.state(&object, &Cut::Before(u64::MAX));
                let bytes = match state {
                    Ok(Some(state)) => self.reader.bytes(&object, &state),
                    Ok(None) => continue,
                    Err(error) => Err(error),
                };
                let bytes = match bytes {
                    Ok(bytes) => Some(bytes),
                    Err(HistoryError::Damaged { path, what }) => {
                        tracing::error!(name: "listwatch.history.damaged", part = %path.display(), %what, "damaged");
                        None
                    }
                    Err(error) => return Err(error),
                };
                let encoding = record.as_ref().map_or(Encoding::Protobuf, |record| record.encoding);
                let version = record.map(|record| record.object_version.into_owned()).unwrap_or_default();
                visit(BaseState { key: object.key, uid: object.uid, encoding, version, bytes })?;
            }
        }
        Ok(())
    }
}
