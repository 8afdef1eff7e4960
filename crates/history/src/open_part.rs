//! The part that is being written: its live objects, its next commit, and its periods.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::path::Path;

use listwatch::Encoding;
use listwatch::client::Resource;
use listwatch_cache::{StateCodec, StateNames};

use crate::base::put_object;
use crate::commit::{CommitHead, Progress, Spans, write_entry};
use crate::error::HistoryError;
use crate::part::{PartFile, Period, part_path, write_resource};
use crate::reader::PartReader;
use crate::record::{ChangeKind, Form, Origin, Record, add_checksum, write_bytes};

/// The most deltas between a whole state and another one.
const MOST_DELTAS: u8 = 31;
/// A change to append.
pub(crate) struct NewChange<'a> {
    pub collection: u64,
    pub kind: ChangeKind,
    pub is_between: bool,
    pub key: &'a str,
    pub uid: &'a str,
    pub version: &'a str,
    pub object_version: &'a str,
    pub encoding: Encoding,
    pub bytes: &'a [u8],
    /// The state before, with its uid and version; `None` for a new object.
    pub old: Option<OldState<'a>>,
}

pub(crate) struct OldState<'a> {
    pub uid: &'a str,
    pub version: &'a str,
    pub bytes: &'a [u8],
}

/// What is known of a live object.
pub(crate) struct LiveObject {
    pub id: u32,
    pub deltas: u8,
    /// The CRC-32 of its newest state.
    pub sum: u32,
}

/// The part that is being written.
pub(crate) struct OpenPart {
    pub number: u64,
    pub file: PartFile,
    pub origin: Origin,
    pub collections: Vec<(u64, Resource)>,
    pub codecs: HashMap<u64, StateCodec>,
    pub live: HashMap<u128, LiveObject>,
    pub spans: Spans,
    pub objects: u32,
    pub commits: u64,
    pub periods: usize,
    pub changes: u64,
    pub next_seq: u64,
    pub last_time: i64,
    pub tail_bytes: usize,
    pub tail_changes: u64,
    pub pending: Pending,
}

/// What the next commit contains.
#[derive(Default)]
pub(crate) struct Pending {
    pub objects: Vec<(u32, u64, String, String)>,
    pub collections: Vec<(u64, Resource)>,
    pub progress: Vec<Progress>,
    pub records: Vec<u8>,
    pub count: u64,
}

impl OpenPart {
    pub fn open(dir: &Path, number: u64) -> Result<Self, HistoryError> {
        let path = part_path(dir, number);
        let mut part = Self::open_rows(&path, number)?;
        let reader = PartReader::open(&path)?;
        for id in 1..=part.objects {
            let live = match reader.newest(id) {
                Ok(Some((record, deltas))) if record.kind != ChangeKind::Deleted => {
                    LiveObject { id, deltas, sum: record.sum }
                }
                Ok(_) => continue,
                // Its next change is stored whole.
                Err(error @ HistoryError::Damaged { .. }) => {
                    tracing::error!(name: "listwatch.history.damaged", %error, "damaged");
                    LiveObject { id, deltas: MOST_DELTAS, sum: 0 }
                }
                Err(error) => return Err(error),
            };
            let object = reader.object(id)?;
            part.live.insert(key_hash(object.collection, &object.key), live);
        }
        Ok(part)
    }

    /// Opens a part without its live objects.
    pub fn open_rows(path: &Path, number: u64) -> Result<Self, HistoryError> {
        let file = PartFile::open(path)?;
        // Before a reader is there, because the mode cannot change then.
        file.sql(file.connection.execute_batch("PRAGMA journal_mode = WAL;"))?;
        let reader = PartReader::open(path)?;
        let mut codecs = HashMap::new();
        for (collection, _) in &reader.collections {
            let dictionary = file.row("dictionaries", *collection)?;
            codecs.insert(*collection, StateCodec::new(dictionary.as_deref()));
        }
        Ok(Self {
            number,
            origin: reader.origin(),
            codecs,
            live: HashMap::new(),
            objects: reader.objects.try_into().map_err(|_| file.damaged("too many objects"))?,
            commits: reader.commits,
            periods: reader.periods.len(),
            changes: reader.next_seq - reader.start.seq,
            next_seq: reader.next_seq,
            last_time: reader.last_time,
            tail_bytes: reader.tail_bytes,
            tail_changes: reader.tail_changes,
            pending: Pending::default(),
            spans: reader.spans,
            collections: reader.collections,
            file,
        })
    }

    pub fn append(&mut self, change: &NewChange<'_>, time: i64, since: u64) {
        let hash = key_hash(change.collection, change.key);
        let known = self.live.get(&hash).filter(|_| change.old.as_ref().is_none_or(|old| old.uid == change.uid));
        let is_new = known.is_none() || change.kind == ChangeKind::Added;
        let (id, deltas) = match known {
            Some(known) if !is_new => (known.id, known.deltas),
            _ => {
                self.objects += 1;
                let object = (self.objects, change.collection, change.key.to_owned(), change.uid.to_owned());
                self.pending.objects.push(object);
                (self.objects, 0)
            }
        };
        // A reference with other bytes than the history has would make the state unreadable.
        let old = change.old.as_ref().filter(|old| {
            let is_known = |known: &LiveObject| known.sum == crc32fast::hash(old.bytes);
            !is_new && deltas < MOST_DELTAS && known.is_some_and(is_known)
        });
        let (form, body) = self.compress(change, old);
        let sum = crc32fast::hash(change.bytes);
        let record = Record {
            kind: change.kind,
            is_between: change.is_between,
            encoding: change.encoding,
            form,
            seq: self.next_seq + self.pending.count,
            time,
            since,
            version: change.version.into(),
            object_version: change.object_version.into(),
            len: change.bytes.len().try_into().unwrap_or(u32::MAX),
            sum,
            body: &body,
        };
        let mut bytes = Vec::with_capacity(body.len() + 32);
        record.write(self.origin, &mut bytes);
        write_entry(id, &bytes, &mut self.pending.records);
        self.pending.count += 1;
        if change.kind == ChangeKind::Deleted {
            self.live.remove(&hash);
        } else {
            let deltas = if form == Form::Delta { deltas + 1 } else { 0 };
            self.live.insert(hash, LiveObject { id, deltas, sum });
        }
    }

    fn compress(&mut self, change: &NewChange<'_>, old: Option<&OldState<'_>>) -> (Form, Vec<u8>) {
        let (namespace, name) = change.key.split_once('/').unwrap_or_default();
        let names = |uid, resource_version| StateNames { namespace, name, uid, resource_version };
        let own = names(change.uid, change.object_version);
        let codec = self.codecs.entry(change.collection).or_insert_with(|| StateCodec::new(None));
        if let Some(old) = old
            && let Some(reference) = codec.pack(&names(old.uid, old.version), old.bytes)
            && let Some(packed) = codec.pack(&own, change.bytes)
            && let Some(delta) = codec.compress_delta(&packed, &reference)
        {
            return (Form::Delta, delta.to_vec());
        }
        let whole = codec.compress_whole(&own, change.bytes);
        whole.map_or_else(|| (Form::Raw, change.bytes.to_vec()), |body| (Form::Whole, body.to_vec()))
    }

    pub fn commit(&mut self, time: i64) -> Result<(), HistoryError> {
        let Pending { objects, collections, progress, records, count } = std::mem::take(&mut self.pending);
        if progress.is_empty() && count == 0 && collections.is_empty() {
            return Ok(());
        }
        let head = CommitHead { seq: self.next_seq, time, objects: self.objects.into(), progress, records: count };
        let mut row = Vec::with_capacity(records.len() + 64);
        head.write(&mut row);
        row.extend_from_slice(&records);
        let len = row.len();
        self.file.sql(self.file.connection.execute_batch("BEGIN IMMEDIATE"))?;
        for (id, collection, key, uid) in &objects {
            put_object(&self.file, *id, *collection, key, uid)?;
        }
        for (number, resource) in collections {
            self.file.put("collections", number, write_resource(&resource))?;
        }
        self.file.put("tail", self.commits + 1, row)?;
        self.file.sql(self.file.connection.execute_batch("COMMIT"))?;
        self.commits += 1;
        self.next_seq += count;
        self.changes += count;
        self.tail_changes += count;
        self.tail_bytes += len;
        self.last_time = self.last_time.max(time);
        self.spans.advance(&head).ok_or_else(|| self.file.damaged("a commit continues no span"))
    }

    /// Moves the records of the tail to rows of their objects.
    pub fn seal(&mut self) -> Result<(), HistoryError> {
        if self.tail_bytes == 0 {
            return Ok(());
        }
        let reader = PartReader::open(&self.file.path)?;
        let mut rows: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let (mut first_time, mut last_time) = (i64::MAX, i64::MIN);
        for (id, record) in reader.tail_records() {
            let read = Record::read(record, self.origin);
            let read = read.ok_or_else(|| self.file.damaged(format!("a record of object {id}")))?;
            (first_time, last_time) = (first_time.min(read.time), last_time.max(read.time));
            write_bytes(record, rows.entry(id).or_default());
        }
        let period = Period {
            last_commit: self.commits,
            next_seq: self.next_seq,
            first_time: first_time.min(self.last_time),
            last_time: last_time.max(self.last_time),
            objects: self.objects.into(),
            spans: reader.spans.0.clone(),
            ids: rows.keys().copied().collect(),
            marks: reader.marks.iter().skip(reader.sealed_marks).cloned().collect(),
        };
        drop(reader);
        let number = self.periods as u64;
        self.file.sql(self.file.connection.execute_batch("BEGIN IMMEDIATE"))?;
        for (id, mut row) in rows {
            add_checksum("sealed", [number, id.into()], &mut row);
            let insert = || {
                let text = "INSERT INTO sealed (period, object, data) VALUES (?1, ?2, ?3)";
                self.file.connection.prepare_cached(text)?.execute((number.cast_signed(), id, row))
            };
            self.file.sql(insert())?;
        }
        self.file.put("periods", number, period.write())?;
        self.file.sql(self.file.connection.execute_batch("DELETE FROM tail; COMMIT"))?;
        self.periods += 1;
        (self.tail_bytes, self.tail_changes) = (0, 0);
        Ok(())
    }
}

/// Hashes a key so that two keys never have the same hash, as far as 128 bits go.
pub(crate) fn key_hash(collection: u64, key: &str) -> u128 {
    let [low, high] = [0_u8, 1].map(|salt| {
        let mut hasher = DefaultHasher::new();
        (salt, collection, key).hash(&mut hasher);
        hasher.finish()
    });
    u128::from(high) << 64 | u128::from(low)
}
