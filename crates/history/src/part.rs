//! The file of a part: its tables, and the rows that describe the part itself.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use listwatch::client::Resource;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::cut::Span;
use crate::error::HistoryError;
use crate::record::{
    add_checksum, read_bytes, read_number, read_version, verified, write_bytes, write_number, write_version,
};

/// The format of a part, which is SQLite's `user_version`.
pub(crate) const FORMAT: i64 = 1;
/// "lwhi", SQLite's `application_id`.
const APPLICATION: i64 = 0x6c77_6869;
/// How long a reader waits for a lock of SQLite, which a writer holds for moments.
const BUSY: Duration = Duration::from_secs(10);

const TABLES: &str = "
    CREATE TABLE meta (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
    CREATE TABLE collections (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
    CREATE TABLE dictionaries (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
    CREATE TABLE objects (id INTEGER PRIMARY KEY, collection INTEGER NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL);
    CREATE INDEX objects_by_key ON objects (collection, key);
    CREATE TABLE base (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
    CREATE TABLE tail (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
    CREATE TABLE periods (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
    CREATE TABLE sealed (period INTEGER, object INTEGER, data BLOB NOT NULL, PRIMARY KEY (period, object)) WITHOUT ROWID;
";

/// A file of SQLite with its path for errors.
pub(crate) struct PartFile {
    pub path: PathBuf,
    pub connection: Connection,
}

/// Where a part begins: its base is the state of all collections there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartStart {
    /// The number of its first change, and the time in milliseconds since 1970.
    pub seq: u64,
    pub time: i64,
    /// The number of objects in the base, which are numbered from 1.
    pub objects: u64,
    /// The number of collections then.
    pub collections: u64,
    /// For each collection the span that continues.
    pub spans: Vec<(u64, Span)>,
}

/// A batch of changes that were sealed: their records, by object, are in `sealed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Period {
    /// The last commit in it, and the number of the next change.
    pub last_commit: u64,
    pub next_seq: u64,
    /// When its first and last change were received.
    pub first_time: i64,
    pub last_time: i64,
    /// The number of objects of the part, and all its spans, at the end.
    pub objects: u64,
    pub spans: Vec<(u64, Span)>,
    /// The objects with records, ascending.
    pub ids: Vec<u32>,
    /// The progress of each commit.
    pub marks: Vec<Mark>,
}

/// When a collection reached a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub collection: u64,
    /// The number of the first change of its commit.
    pub seq: u64,
    pub time: i64,
    pub version: String,
}

impl PartFile {
    /// Creates a part without rows. It belongs to its owner only.
    pub fn create(path: &Path) -> Result<Self, HistoryError> {
        let io = |error| HistoryError::Io { path: path.to_owned(), error };
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path).map_err(io)?;
        let part = Self::open_with(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let created = part.connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
            PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT}; BEGIN; {TABLES} COMMIT;"
        ));
        part.sql(created)?;
        Ok(part)
    }

    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        let part = Self::open_with(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let format = part.pragma("user_version")?;
        if part.pragma("application_id")? != APPLICATION {
            return Err(part.damaged("it is no part of a history"));
        }
        if format != FORMAT {
            return Err(HistoryError::Format { path: path.to_owned(), found: format, expected: FORMAT });
        }
        part.sql(part.connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON;"))?;
        Ok(part)
    }

    fn open_with(path: &Path, flags: OpenFlags) -> Result<Self, HistoryError> {
        let named = |error| HistoryError::Sqlite { path: path.to_owned(), error };
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(named)?;
        connection.busy_timeout(BUSY).map_err(named)?;
        connection.set_prepared_statement_cache_capacity(32);
        Ok(Self { path: path.to_owned(), connection })
    }

    fn pragma(&self, name: &str) -> Result<i64, HistoryError> {
        self.sql(self.connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)))
    }

    /// Makes the part one file, which nobody writes to any more.
    pub fn finish(self) {
        // Readers may still use the log; then SQLite keeps it, and the next reader that is alone removes it.
        let at_once = self.connection.busy_timeout(Duration::ZERO);
        let done = at_once.and_then(|()| {
            self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE;")
        });
        if let Err(error) = done {
            tracing::debug!(part = %self.path.display(), %error, "the write-ahead log stays");
        }
    }

    pub fn sql<T>(&self, result: rusqlite::Result<T>) -> Result<T, HistoryError> {
        result.map_err(|error| HistoryError::Sqlite { path: self.path.clone(), error })
    }

    pub fn damaged(&self, what: impl Into<String>) -> HistoryError {
        HistoryError::Damaged { path: self.path.clone(), what: what.into() }
    }

    /// Reads a row by its number, and verifies it.
    pub fn row(&self, table: &'static str, id: u64) -> Result<Option<Vec<u8>>, HistoryError> {
        let select = || {
            let mut statement = self.connection.prepare_cached(&format!("SELECT data FROM {table} WHERE id = ?1"))?;
            statement.query_row([id.cast_signed()], |row| row.get::<_, Vec<u8>>(0)).optional()
        };
        let Some(mut data) = self.sql(select())? else { return Ok(None) };
        let len = verified(table, [id, 0], &data).map(<[u8]>::len);
        let len = len.ok_or_else(|| self.damaged(format!("row {id} of {table}")))?;
        data.truncate(len);
        Ok(Some(data))
    }

    /// Reads all rows of a table, in order, and verifies them.
    pub fn rows(&self, table: &'static str) -> Result<Vec<(u64, Vec<u8>)>, HistoryError> {
        let select = || {
            let mut statement = self.connection.prepare_cached(&format!("SELECT id, data FROM {table} ORDER BY id"))?;
            let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(u64, Vec<u8>)>>>()
        };
        let mut rows = self.sql(select())?;
        for (id, data) in &mut rows {
            let len = verified(table, [*id, 0], data).map(<[u8]>::len);
            let len = len.ok_or_else(|| self.damaged(format!("row {id} of {table}")))?;
            data.truncate(len);
        }
        Ok(rows)
    }

    /// Writes a row with its checksum.
    pub fn put(&self, table: &'static str, id: u64, mut data: Vec<u8>) -> Result<(), HistoryError> {
        add_checksum(table, [id, 0], &mut data);
        let insert = || {
            let text = format!("INSERT INTO {table} (id, data) VALUES (?1, ?2)");
            self.connection.prepare_cached(&text)?.execute((id.cast_signed(), data))
        };
        self.sql(insert()).map(drop)
    }

    pub fn start(&self) -> Result<PartStart, HistoryError> {
        let row = self.row("meta", 0)?.ok_or_else(|| self.damaged("it has no beginning"))?;
        PartStart::read(&row).ok_or_else(|| self.damaged("its beginning"))
    }

    pub fn collections(&self) -> Result<Vec<(u64, Resource)>, HistoryError> {
        let rows = self.rows("collections")?;
        let read = |(id, row): (u64, Vec<u8>)| {
            let resource = read_resource(&row).ok_or_else(|| self.damaged(format!("collection {id}")))?;
            Ok((id, resource))
        };
        rows.into_iter().map(read).collect()
    }
}

pub(crate) fn write_resource(resource: &Resource) -> Vec<u8> {
    let mut out = Vec::new();
    for text in [resource.group(), resource.version(), resource.plural(), resource.kind()] {
        write_bytes(text.as_bytes(), &mut out);
    }
    out.push(u8::from(resource.is_namespaced()));
    out
}

fn read_resource(mut row: &[u8]) -> Option<Resource> {
    let mut text = || std::str::from_utf8(read_bytes(&mut row)?).ok().map(str::to_owned);
    let resource = Resource::new(text()?, text()?, text()?, text()?);
    match row {
        [0] => Some(resource.cluster_scoped()),
        [1] => Some(resource),
        _ => None,
    }
}

fn write_spans(spans: &[(u64, Span)], out: &mut Vec<u8>) {
    write_number(spans.len() as u64, out);
    for (collection, span) in spans {
        write_number(*collection, out);
        write_number(span.first_seq, out);
        for version in [&span.first_version, &span.last_version, &span.resume_version] {
            write_version(version, out);
        }
        for time in [span.first_time, span.last_time] {
            write_number(time.as_millisecond().try_into().unwrap_or_default(), out);
        }
    }
}

fn read_spans(bytes: &mut &[u8]) -> Option<Vec<(u64, Span)>> {
    let count = read_number(bytes)?;
    let mut spans = Vec::new();
    for _ in 0..count {
        let (collection, first_seq) = (read_number(bytes)?, read_number(bytes)?);
        let mut version = || read_version(bytes).map(Cow::into_owned);
        let [first_version, last_version, resume_version] = [version()?, version()?, version()?];
        let mut time = || jiff::Timestamp::from_millisecond(read_number(bytes)?.try_into().ok()?).ok();
        let [first_time, last_time] = [time()?, time()?];
        let span = Span { first_seq, first_version, first_time, last_version, resume_version, last_time };
        spans.push((collection, span));
    }
    Some(spans)
}

impl PartStart {
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.seq, self.time.try_into().unwrap_or_default(), self.objects, self.collections] {
            write_number(number, &mut out);
        }
        write_spans(&self.spans, &mut out);
        out
    }

    fn read(mut row: &[u8]) -> Option<Self> {
        let bytes = &mut row;
        let (seq, time, objects) = (read_number(bytes)?, read_number(bytes)?.try_into().ok()?, read_number(bytes)?);
        let collections = read_number(bytes)?;
        Some(Self { seq, time, objects, collections, spans: read_spans(bytes)? })
    }
}

impl Period {
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let times = [self.first_time, self.last_time].map(|time| time.try_into().unwrap_or_default());
        for number in [self.last_commit, self.next_seq, times[0], times[1], self.objects] {
            write_number(number, &mut out);
        }
        write_spans(&self.spans, &mut out);
        write_number(self.ids.len() as u64, &mut out);
        let mut before = 0;
        for id in &self.ids {
            write_number(u64::from(*id - before), &mut out);
            before = *id;
        }
        write_number(self.marks.len() as u64, &mut out);
        for Mark { collection, seq, time, version } in &self.marks {
            for number in [*collection, *seq, (*time).try_into().unwrap_or_default()] {
                write_number(number, &mut out);
            }
            write_version(version, &mut out);
        }
        out
    }

    pub fn read(mut row: &[u8]) -> Option<Self> {
        let bytes = &mut row;
        let mut period = Self { last_commit: read_number(bytes)?, next_seq: read_number(bytes)?, ..Self::default() };
        period.first_time = read_number(bytes)?.try_into().ok()?;
        period.last_time = read_number(bytes)?.try_into().ok()?;
        period.objects = read_number(bytes)?;
        period.spans = read_spans(bytes)?;
        let (count, mut id) = (read_number(bytes)?, 0_u32);
        for _ in 0..count {
            id = id.checked_add(read_number(bytes)?.try_into().ok()?)?;
            period.ids.push(id);
        }
        for _ in 0..read_number(bytes)? {
            let (collection, seq) = (read_number(bytes)?, read_number(bytes)?);
            let time = read_number(bytes)?.try_into().ok()?;
            period.marks.push(Mark { collection, seq, time, version: read_version(bytes)?.into_owned() });
        }
        Some(period)
    }
}

/// The name of the part with this number.
pub(crate) fn part_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("part-{number:06}.db"))
}

/// Returns the numbers of the parts in a folder, ascending.
pub(crate) fn part_numbers(dir: &Path) -> Result<Vec<u64>, HistoryError> {
    let io = |error| HistoryError::Io { path: dir.to_owned(), error };
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix("part-")?.strip_suffix(".db")?.parse::<u64>().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}
