//! Reads the states of objects from one part.
//!
//! # Advice for changes
//!
//! The records of an object lie in three places, oldest first: one in `base`, one row for each period in `sealed` that
//! has records of it, and those in `tail`. A state is found from the end: the reader goes back from the newest record
//! that the cut admits to one that is no delta, and applies the deltas from there.
//!
//! - A reader sees the part at one moment, because it reads in one transaction of SQLite. The commits of the tail are
//!   read into memory when it opens; a period is sealed before they exceed a few megabytes.
//! - An absence is never believed: a period lists its objects, commits and objects are numbered without holes, and each
//!   row has a checksum of its key and bytes. So damage of SQLite's own structure is an error, and not a missing
//!   change.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

use listwatch::client::Resource;
use listwatch_cache::{PackedState, StateCodec, StateNames};
use rusqlite::OptionalExtension as _;

use crate::commit::{CommitHead, Spans, read_entry};
use crate::error::HistoryError;
use crate::part::{Mark, PartFile, PartStart, Period};
use crate::record::{Form, Origin, Record, read_bytes, read_number, verified};

/// Which records of a part count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Those before this number.
    Before(u64),
    /// Those that were received until this time, in milliseconds since 1970.
    Until(i64),
    /// All changes before the span that begins at `first`, and the changes of that span, which ends before `end`, up to
    /// the version.
    Version { first: u64, end: u64, version: String },
}

impl Cut {
    pub fn admits(&self, record: &Record<'_>) -> bool {
        match self {
            Self::Before(end) => record.seq < *end,
            Self::Until(time) => record.time <= *time,
            Self::Version { first, end, version } => {
                record.seq < *first || record.seq < *end && crate::cut::is_at_most(&record.version, version)
            }
        }
    }
}

/// An object of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartObject {
    pub id: u32,
    pub collection: u64,
    /// Namespace and name with a slash between them; a cluster-scoped object begins with the slash.
    pub key: String,
    pub uid: String,
}

impl PartObject {
    pub fn names<'a>(&'a self, resource_version: &'a str) -> StateNames<'a> {
        let (namespace, name) = self.key.split_once('/').unwrap_or_default();
        StateNames { namespace, name, uid: &self.uid, resource_version }
    }
}

/// A state, with the record that led to it.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Its body is empty.
    pub record: Record<'static>,
    pub content: Content,
    /// The number of deltas since a whole state.
    pub chain: u8,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Packed(PackedState),
    Raw(Vec<u8>),
}

pub(crate) struct PartReader {
    pub file: PartFile,
    pub start: PartStart,
    pub periods: Vec<(u64, Period)>,
    pub spans: Spans,
    /// The progress of each commit, oldest first.
    pub marks: Vec<Mark>,
    /// How many of them are in periods.
    pub sealed_marks: usize,
    pub collections: Vec<(u64, Resource)>,
    /// The number of objects.
    pub objects: u64,
    pub commits: u64,
    pub next_seq: u64,
    pub last_time: i64,
    is_index_checked: Cell<bool>,
    tail: HashMap<u32, Vec<Box<[u8]>>>,
    pub tail_bytes: usize,
    pub tail_changes: u64,
    codecs: HashMap<u64, StateCodec>,
}

impl PartReader {
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        let file = PartFile::open(path)?;
        file.sql(file.connection.execute_batch("BEGIN"))?;
        let start = file.start()?;
        let (mut periods, mut marks) = (Vec::new(), Vec::new());
        for (id, row) in file.rows("periods")? {
            let mut period = Period::read(&row).ok_or_else(|| file.damaged(format!("period {id}")))?;
            marks.append(&mut period.marks);
            if id != periods.len() as u64 {
                return Err(file.damaged(format!("period {} is missing", periods.len())));
            }
            periods.push((id, period));
        }
        let collections = file.collections()?;
        if (collections.len() as u64) < start.collections {
            return Err(file.damaged("a collection is missing"));
        }
        let mut reader = Self {
            spans: Spans(start.spans.clone()),
            objects: start.objects,
            sealed_marks: marks.len(),
            marks,
            commits: 0,
            next_seq: start.seq,
            last_time: start.time,
            is_index_checked: Cell::new(false),
            tail: HashMap::new(),
            tail_bytes: 0,
            tail_changes: 0,
            codecs: HashMap::new(),
            file,
            start,
            periods,
            collections,
        };
        if let Some((_, last)) = reader.periods.last() {
            reader.spans = Spans(last.spans.clone());
            (reader.objects, reader.commits) = (last.objects, last.last_commit);
            (reader.next_seq, reader.last_time) = (last.next_seq, last.last_time);
        }
        let last = "SELECT period FROM sealed ORDER BY period DESC LIMIT 1";
        let last = reader.file.connection.query_row(last, [], |row| row.get::<_, i64>(0)).optional();
        if reader.file.sql(last)?.is_some_and(|last| last.cast_unsigned() >= reader.periods.len() as u64) {
            return Err(reader.file.damaged(format!("period {} is missing", reader.periods.len())));
        }
        reader.read_tail()?;
        Ok(reader)
    }

    pub fn origin(&self) -> Origin {
        Origin { seq: self.start.seq, time: self.start.time }
    }

    fn read_tail(&mut self) -> Result<(), HistoryError> {
        for (id, row) in self.file.rows("tail")? {
            let damaged = || self.file.damaged(format!("commit {id}"));
            if id != self.commits + 1 {
                return Err(self.file.damaged(format!("commit {} is missing", self.commits + 1)));
            }
            let bytes = &mut &*row;
            let head = CommitHead::read(bytes).ok_or_else(damaged)?;
            if head.seq != self.next_seq {
                return Err(damaged());
            }
            for _ in 0..head.records {
                let (object, record) = read_entry(bytes).ok_or_else(damaged)?;
                self.tail.entry(object).or_default().push(record.into());
            }
            self.spans.advance(&head).ok_or_else(damaged)?;
            for progress in &head.progress {
                self.marks.push(Mark {
                    collection: progress.collection,
                    seq: head.seq,
                    time: head.time,
                    version: progress.version.clone(),
                });
            }
            self.commits = id;
            self.next_seq += head.records;
            self.tail_changes += head.records;
            self.tail_bytes += row.len();
            self.objects = head.objects;
            self.last_time = self.last_time.max(head.time);
        }
        Ok(())
    }

    pub fn resource(&self, collection: u64) -> Option<&Resource> {
        self.collections.iter().find(|(id, _)| *id == collection).map(|(_, resource)| resource)
    }

    /// Returns the objects of a collection after a key, in key order, and at most `most` of them.
    pub fn objects_after(
        &self,
        collection: u64,
        prefix: &str,
        after: Option<(&str, u32)>,
        most: usize,
    ) -> Result<Vec<PartObject>, HistoryError> {
        self.check_index()?;
        let (from, id, end) =
            (after.map_or(prefix, |(key, _)| key), after.map_or(0, |(_, id)| id), format!("{prefix}\u{10ffff}"));
        let select = || {
            let mut statement = self.file.connection.prepare_cached(
                "SELECT id, collection, key, data FROM objects INDEXED BY objects_by_key
                WHERE collection = ?1 AND key >= ?2 AND key < ?4 AND (key > ?2 OR id > ?3)
                ORDER BY key, id LIMIT ?5",
            )?;
            let values = (collection.cast_signed(), from, i64::from(id), end, most.try_into().unwrap_or(i64::MAX));
            let rows = statement.query_map(values, object_row)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        self.file.sql(select())?.into_iter().map(|row| self.checked_object(row)).collect()
    }

    /// Returns all objects that ever had this key, oldest first. Each has its own uid.
    pub fn objects_of_key(&self, collection: u64, key: &str) -> Result<Vec<PartObject>, HistoryError> {
        let select = || {
            let mut statement = self.file.connection.prepare_cached(
                "SELECT id, collection, key, data FROM objects INDEXED BY objects_by_key
                WHERE collection = ?1 AND key = ?2 ORDER BY id",
            )?;
            let rows = statement.query_map((collection.cast_signed(), key), object_row)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        self.check_index()?;
        self.file.sql(select())?.into_iter().map(|row| self.checked_object(row)).collect()
    }

    /// Checks once that the index of keys has exactly the objects of the table, in order, so that no search misses one.
    ///
    /// It reads both from one end to the other, which takes about a microsecond for each object.
    pub fn check_index(&self) -> Result<(), HistoryError> {
        if self.is_index_checked.get() {
            return Ok(());
        }
        let damaged = |what: &str| self.file.damaged(format!("the index of objects: {what}"));
        let scan = |text: &str, visit: &mut dyn FnMut(ObjectRow) -> Result<(), HistoryError>| {
            let mut statement = self.file.sql(self.file.connection.prepare_cached(text))?;
            let mut rows = self.file.sql(statement.query([]))?;
            while let Some(row) = self.file.sql(rows.next())? {
                visit(self.file.sql(object_row(row))?)?;
            }
            Ok::<_, HistoryError>(())
        };
        let hash = |id: u64, collection: u64, key: &str| {
            let mut hasher = DefaultHasher::new();
            (id, collection, key).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        let (mut table, mut index) = (0_u128, 0_u128);
        let mut count = 0;
        scan("SELECT id, collection, key, data FROM objects NOT INDEXED ORDER BY id", &mut |row| {
            count += 1;
            let object = self.checked_object(row)?;
            if u64::from(object.id) != count {
                return Err(self.file.damaged(format!("object {count} is missing")));
            }
            table += hash(count, object.collection, &object.key);
            Ok(())
        })?;
        if count != self.objects {
            return Err(damaged(&format!("the table has {count} of {} objects", self.objects)));
        }
        let mut last = None;
        let in_order = "SELECT id, collection, key, x'' FROM objects INDEXED BY objects_by_key
            WHERE collection >= -9223372036854775808 ORDER BY collection, key, id";
        scan(in_order, &mut |(id, collection, key, _)| {
            index += hash(id, collection, &key);
            let next = Some((collection, key, id));
            if next <= last {
                return Err(damaged("it is out of order"));
            }
            last = next;
            Ok(())
        })?;
        if table != index {
            return Err(damaged("it differs from the table"));
        }
        self.is_index_checked.set(true);
        Ok(())
    }

    pub fn object(&self, id: u32) -> Result<PartObject, HistoryError> {
        let select = || {
            let text = "SELECT id, collection, key, data FROM objects WHERE id = ?1";
            self.file.connection.prepare_cached(text)?.query_row([id], object_row).optional()
        };
        let row = self.file.sql(select())?.ok_or_else(|| self.file.damaged(format!("object {id} is missing")))?;
        self.checked_object(row)
    }

    fn checked_object(&self, (id, collection, key, data): ObjectRow) -> Result<PartObject, HistoryError> {
        let object = || {
            let data = verified("objects", [id, collection], &data)?;
            let mut rest = data;
            let (own_key, uid) = (read_bytes(&mut rest)?, std::str::from_utf8(read_bytes(&mut rest)?).ok()?.to_owned());
            let is_sound = own_key == key.as_bytes() && rest.is_empty();
            is_sound.then_some(PartObject { id: id.try_into().ok()?, collection, key: key.clone(), uid })
        };
        object().ok_or_else(|| self.file.damaged(format!("object {id}, {key:?}")))
    }

    /// Calls `visit` with the records of an object that the cut admits, newest first, until it returns false. Each
    /// comes with the number of the period in which it is sealed.
    fn visit_back(
        &self,
        id: u32,
        cut: &Cut,
        mut visit: impl FnMut(Record<'_>) -> Result<bool, HistoryError>,
    ) -> Result<(), HistoryError> {
        let damaged = || self.file.damaged(format!("a record of object {id}"));
        for record in self.tail.get(&id).into_iter().flatten().rev() {
            let record = Record::read(record, self.origin()).ok_or_else(damaged)?;
            if cut.admits(&record) && !visit(record)? {
                return Ok(());
            }
        }
        for (number, period) in self.periods.iter().rev() {
            let is_later = match cut {
                Cut::Until(time) => period.first_time > *time,
                Cut::Before(_) | Cut::Version { .. } => false,
            };
            if is_later || period.ids.binary_search(&id).is_err() {
                continue;
            }
            let row = self.sealed_row(*number, id)?;
            for record in self.records_of_row(id, &row)?.into_iter().rev() {
                if cut.admits(&record) && !visit(record)? {
                    return Ok(());
                }
            }
        }
        if u64::from(id) > self.start.objects {
            return Ok(());
        }
        let row = self.base_row(id)?;
        visit(Record::read(&row, self.origin()).ok_or_else(damaged)?)?;
        Ok(())
    }

    fn base_row(&self, id: u32) -> Result<Vec<u8>, HistoryError> {
        let row = self.file.row("base", id.into())?;
        row.ok_or_else(|| self.file.damaged(format!("the base state of object {id} is missing")))
    }

    /// Returns the records of an object in a period.
    pub fn sealed_row(&self, period: u64, id: u32) -> Result<Vec<u8>, HistoryError> {
        let select = || {
            let text = "SELECT data FROM sealed WHERE period = ?1 AND object = ?2";
            let mut statement = self.file.connection.prepare_cached(text)?;
            statement.query_row((period.cast_signed(), id), |row| row.get::<_, Vec<u8>>(0)).optional()
        };
        let name = || format!("the records of object {id} in period {period}");
        let mut row = self.file.sql(select())?.ok_or_else(|| self.file.damaged(format!("{} are missing", name())))?;
        let len = verified("sealed", [period, id.into()], &row).map(<[u8]>::len);
        row.truncate(len.ok_or_else(|| self.file.damaged(name()))?);
        Ok(row)
    }

    pub fn records_of_row<'r>(&self, id: u32, mut row: &'r [u8]) -> Result<Vec<Record<'r>>, HistoryError> {
        let mut records = Vec::new();
        while !row.is_empty() {
            let record = read_bytes(&mut row).and_then(|record| Record::read(record, self.origin()));
            records.push(record.ok_or_else(|| self.file.damaged(format!("a record of object {id}")))?);
        }
        Ok(records)
    }

    /// Returns the records of the tail, by object.
    pub fn tail_records(&self) -> impl Iterator<Item = (u32, &Box<[u8]>)> {
        self.tail.iter().flat_map(|(id, records)| records.iter().map(|record| (*id, record)))
    }

    /// Returns the state of an object at a cut; `None` if it does not exist yet.
    ///
    /// A deleted object has the state of its deletion.
    pub fn state(&mut self, object: &PartObject, cut: &Cut) -> Result<Option<State>, HistoryError> {
        let mut chain: Vec<Record<'static>> = Vec::new();
        let mut bodies: Vec<Vec<u8>> = Vec::new();
        self.visit_back(object.id, cut, |record| {
            bodies.push(record.body.to_vec());
            let is_delta = record.form == Form::Delta;
            chain.push(owned(&record));
            Ok(is_delta)
        })?;
        let mut state: Option<State> = None;
        for (record, body) in chain.into_iter().zip(bodies).rev() {
            state = Some(self.apply(object, state.as_ref(), record, &body)?);
        }
        Ok(state)
    }

    /// Returns the newest record of an object, without its body, and the number of deltas that lead to its state.
    pub fn newest(&self, id: u32) -> Result<Option<(Record<'static>, u8)>, HistoryError> {
        let (mut newest, mut deltas) = (None, 0_u8);
        self.visit_back(id, &Cut::Before(u64::MAX), |record| {
            let is_delta = record.form == Form::Delta;
            deltas = deltas.saturating_add(u8::from(is_delta));
            newest.get_or_insert_with(|| owned(&record));
            Ok(is_delta)
        })?;
        Ok(newest.map(|record| (record, deltas)))
    }

    /// Returns all records of an object with their bodies, oldest first.
    pub fn all_records(&self, id: u32) -> Result<Vec<(Record<'static>, Vec<u8>)>, HistoryError> {
        let mut records = Vec::new();
        self.visit_back(id, &Cut::Before(u64::MAX), |record| {
            records.push((owned(&record), record.body.to_vec()));
            Ok(true)
        })?;
        records.reverse();
        Ok(records)
    }

    /// Returns the state after a record, whose reference is the state before.
    pub fn apply(
        &mut self,
        object: &PartObject,
        before: Option<&State>,
        record: Record<'static>,
        body: &[u8],
    ) -> Result<State, HistoryError> {
        let PartObject { id, key, .. } = object;
        let what = |why: &str| format!("change {} of {key} (object {id}): {why}", record.seq);
        let content = match record.form {
            Form::Lost => return Err(self.file.damaged(what("it was damaged in the part before"))),
            Form::Raw if body.len() == record.len as usize => Some(Content::Raw(body.to_vec())),
            Form::Raw => None,
            Form::Whole => self.codec(object.collection)?.read_whole(body, record.len).map(Content::Packed),
            Form::Delta => {
                let before = before.ok_or_else(|| self.file.damaged(what("the state before it is missing")))?;
                let reference = self.reference(object, before)?;
                let reference = reference.ok_or_else(|| self.file.damaged(what("it has no reference")))?;
                self.codec(object.collection)?.read_delta(body, record.len, &reference).map(Content::Packed)
            }
            Form::Sibling => {
                let mut rest = body;
                let sibling = read_number(&mut rest).and_then(|sibling| sibling.try_into().ok());
                let sibling = sibling.filter(|sibling| sibling < id);
                let sibling = sibling.ok_or_else(|| self.file.damaged(what("its sibling")))?;
                let sibling = self.object(sibling)?;
                let row = self.base_row(sibling.id)?;
                let base = Record::read(&row, self.origin()).filter(|base| base.form != Form::Sibling);
                let base = base.ok_or_else(|| self.file.damaged(what("its sibling")))?;
                let state = self.apply(&sibling, None, owned(&base), base.body)?;
                let reference = self.reference(&sibling, &state)?;
                let reference = reference.ok_or_else(|| self.file.damaged(what("it has no reference")))?;
                self.codec(object.collection)?.read_delta(rest, record.len, &reference).map(Content::Packed)
            }
        };
        let content = content.ok_or_else(|| self.file.damaged(what("it cannot be decompressed")))?;
        let chain = before.filter(|_| record.form == Form::Delta).map_or(0, |before| before.chain.saturating_add(1));
        Ok(State { record, content, chain })
    }

    /// Returns the form of a state to which a delta refers.
    pub fn reference(&mut self, object: &PartObject, state: &State) -> Result<Option<PackedState>, HistoryError> {
        match &state.content {
            Content::Packed(packed) => Ok(Some(packed.clone())),
            Content::Raw(bytes) => {
                let names = object.names(&state.record.object_version);
                Ok(self.codec(object.collection)?.pack(&names, bytes))
            }
        }
    }

    /// Returns the bytes of a state, after checking them.
    pub fn bytes(&mut self, object: &PartObject, state: &State) -> Result<Vec<u8>, HistoryError> {
        let bytes = match &state.content {
            Content::Raw(bytes) => Some(bytes.clone()),
            Content::Packed(packed) => {
                let names = object.names(&state.record.object_version);
                self.codec(object.collection)?.unpack(packed, &names)
            }
        };
        let is_sound = |bytes: &Vec<u8>| crc32fast::hash(bytes) == state.record.sum;
        let damaged = || self.file.damaged(format!("change {} of {}: other bytes", state.record.seq, object.key));
        bytes.filter(is_sound).ok_or_else(damaged)
    }

    fn codec(&mut self, collection: u64) -> Result<&mut StateCodec, HistoryError> {
        use std::collections::hash_map::Entry;
        match self.codecs.entry(collection) {
            Entry::Occupied(codec) => Ok(codec.into_mut()),
            Entry::Vacant(vacant) => {
                let dictionary = self.file.row("dictionaries", collection)?;
                Ok(vacant.insert(StateCodec::new(dictionary.as_deref())))
            }
        }
    }
}

/// Returns a record without its body.
pub(crate) fn owned(record: &Record<'_>) -> Record<'static> {
    Record {
        version: record.version.clone().into_owned().into(),
        object_version: record.object_version.clone().into_owned().into(),
        body: &[],
        ..*record
    }
}

type ObjectRow = (u64, u64, String, Vec<u8>);

fn object_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<ObjectRow> {
    Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned(), row.get(2)?, row.get(3)?))
}
