//! Keys in byte order, each with the place of its newest value: in memory up to a limit, beyond it in a temporary file.
//!
//! The bucket is in the order of revisions, and lists are in key order. Keys arrive in the order of revisions, so of two
//! entries of a key the later one counts. The buffer is sorted, and entries that later ones replace are dropped, when it
//! is full; if half of it is still in use then, it becomes a sorted run of the temporary file. The end merges the runs.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

/// Where the value of a key lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) page: u64,
    pub(crate) index: u16,
    pub(crate) is_tombstone: bool,
}

/// Collects keys with their places.
pub(crate) struct KeySorter {
    limit: usize,
    buffer: Buffer,
    runs: Option<Runs>,
}

/// Returns each key that is not deleted, once, in byte order.
pub(crate) struct SortedKeys(Source);

enum Source {
    Memory { buffer: Buffer, next: usize },
    Merge { heads: BinaryHeap<Head>, key: Vec<u8> },
}

#[derive(Default)]
struct Buffer {
    keys: Vec<u8>,
    entries: Vec<BufferEntry>,
}

#[derive(Clone, Copy)]
struct BufferEntry {
    start: usize,
    len: usize,
    place: Place,
}

struct Runs {
    file: Arc<File>,
    /// The offset at which each run ends.
    ends: Vec<u64>,
}

impl KeySorter {
    /// Keeps at most about `limit` bytes of keys in memory, at least 4 KiB. Sorting them makes a copy.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(4096), buffer: Buffer::default(), runs: None }
    }

    /// Adds the place of a key, which replaces all places of this key that were added before.
    pub(crate) fn push(&mut self, key: &[u8], place: Place) -> Result<(), Error> {
        if self.buffer.size() + key.len() + size_of::<BufferEntry>() > self.limit && !self.buffer.entries.is_empty() {
            self.buffer.sort();
            if self.buffer.size() > self.limit / 2 {
                self.spill().map_err(ErrorKind::Spill)?;
            }
        }
        self.buffer.push(key, place);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<SortedKeys, Error> {
        self.buffer.sort();
        if self.runs.is_none() {
            return Ok(SortedKeys(Source::Memory { buffer: self.buffer, next: 0 }));
        }
        self.spill().map_err(ErrorKind::Spill)?;
        let mut heads = BinaryHeap::new();
        if let Some(runs) = self.runs {
            let mut start = 0;
            for (number, end) in runs.ends.into_iter().enumerate() {
                let mut head =
                    Head { number, key: Vec::new(), place: Place::NONE, run: Run::new(&runs.file, start, end) };
                if head.advance().map_err(ErrorKind::Spill)? {
                    heads.push(head);
                }
                start = end;
            }
        }
        Ok(SortedKeys(Source::Merge { heads, key: Vec::new() }))
    }

    fn spill(&mut self) -> io::Result<()> {
        let runs = match &mut self.runs {
            Some(runs) => runs,
            none => none.insert(Runs { file: Arc::new(temporary_file()?), ends: Vec::new() }),
        };
        let mut out = BufWriter::new(&*runs.file);
        let mut end = out.seek(SeekFrom::End(0))?;
        for entry in &self.buffer.entries {
            let key = self.buffer.key(entry);
            out.write_all(&(entry.len as u64).to_le_bytes())?;
            out.write_all(&entry.place.to_bytes())?;
            out.write_all(key)?;
            end += (8 + Place::LEN + key.len()) as u64;
        }
        out.flush()?;
        drop(out);
        runs.ends.push(end);
        self.buffer = Buffer::default();
        Ok(())
    }
}

/// An unnamed file that only this user can read. `/tmp` may be in memory, so unless `TMPDIR` names a folder the file lies
/// in `/var/tmp`, if there is one.
fn temporary_file() -> io::Result<File> {
    let persistent = std::path::Path::new("/var/tmp");
    if std::env::var_os("TMPDIR").is_none() && persistent.is_dir() {
        return tempfile::tempfile_in(persistent);
    }
    tempfile::tempfile()
}

impl SortedKeys {
    /// Returns the next key and the place of its value.
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], Place)>, Error> {
        match &mut self.0 {
            Source::Memory { buffer, next } => loop {
                let Some(entry) = buffer.entries.get(*next) else { return Ok(None) };
                *next += 1;
                if !entry.place.is_tombstone {
                    let entry = *entry;
                    return Ok(Some((buffer.key(&entry), entry.place)));
                }
            },
            Source::Merge { heads, key } => loop {
                let Some(place) = merge_next(heads, key).map_err(ErrorKind::Spill)? else { return Ok(None) };
                if !place.is_tombstone {
                    return Ok(Some((key, place)));
                }
            },
        }
    }
}

/// Takes the smallest key off the runs, with its place in the latest run.
fn merge_next(heads: &mut BinaryHeap<Head>, key: &mut Vec<u8>) -> io::Result<Option<Place>> {
    let Some(first) = heads.peek() else { return Ok(None) };
    key.clone_from(&first.key);
    let place = first.place;
    // The later of two runs with this key is on top, so the others follow at once.
    while let Some(mut head) = heads.peek_mut() {
        if head.key != *key {
            break;
        }
        if !head.advance()? {
            PeekMut::pop(head);
        }
    }
    Ok(Some(place))
}

impl Buffer {
    fn size(&self) -> usize {
        self.keys.len() + self.entries.len() * size_of::<BufferEntry>()
    }

    fn push(&mut self, key: &[u8], place: Place) {
        let (start, len) = (self.keys.len(), key.len());
        self.keys.extend_from_slice(key);
        self.entries.push(BufferEntry { start, len, place });
    }

    fn key(&self, entry: &BufferEntry) -> &[u8] {
        self.keys.get(entry.start..entry.start + entry.len).unwrap_or_default()
    }

    /// Sorts the entries, and keeps the last one of each key.
    fn sort(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        let key = |entry: &BufferEntry| keys.get(entry.start..).and_then(|keys| keys.get(..entry.len));
        self.entries.sort_by(|a, b| key(a).cmp(&key(b)));
        let mut kept = Buffer::default();
        for (index, entry) in self.entries.iter().enumerate() {
            let this = key(entry);
            if self.entries.get(index + 1).is_none_or(|next| key(next) != this) {
                kept.push(this.unwrap_or_default(), entry.place);
            }
        }
        *self = kept;
    }
}

impl Place {
    const NONE: Self = Self { page: 0, index: 0, is_tombstone: true };
    const LEN: usize = 11;

    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.page.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.index.to_le_bytes());
        bytes[10] = self.is_tombstone.into();
        bytes
    }

    fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [page @ .., low, high, tombstone] = bytes;
        Self { page: u64::from_le_bytes(page), index: u16::from_le_bytes([low, high]), is_tombstone: tombstone != 0 }
    }
}

/// A run of the temporary file, with a buffer of its own. Runs share the file, so each read seeks first.
struct Run(BufReader<RunBytes>);

struct RunBytes {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Run {
    fn new(file: &Arc<File>, at: u64, end: u64) -> Self {
        Self(BufReader::with_capacity(32 << 10, RunBytes { file: Arc::clone(file), at, end }))
    }
}

impl Read for RunBytes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = out.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(self.at))?;
        let read = file.read(out.get_mut(..len).unwrap_or_default())?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The first entry of a run that has not been merged.
struct Head {
    number: usize,
    key: Vec<u8>,
    place: Place,
    run: Run,
}

impl Head {
    /// Reads the next entry; false at the end of the run.
    fn advance(&mut self) -> io::Result<bool> {
        let mut len = [0; 8];
        if self.run.0.get_ref().at == self.run.0.get_ref().end && self.run.0.buffer().is_empty() {
            return Ok(false);
        }
        self.run.0.read_exact(&mut len)?;
        let mut place = [0; Place::LEN];
        self.run.0.read_exact(&mut place)?;
        self.place = Place::from_bytes(place);
        self.key.clear();
        self.key.resize(usize::try_from(u64::from_le_bytes(len)).map_err(io::Error::other)?, 0);
        self.run.0.read_exact(&mut self.key)?;
        Ok(true)
    }
}

impl Ord for Head {
    /// A max-heap: the smallest key is greatest, and of equal keys that of the latest run.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn sorts_as_a_map_does_with_and_without_a_file() {
        for (seed, limit, spills) in [(1, 1 << 20, false), (2, 4096, true), (3, 20_000, true)] {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut expected = BTreeMap::new();
            let mut sorter = KeySorter::new(limit);
            for number in 0..5000_u64 {
                let key = format!("/registry/{:0width$}", random.u32(0..2000), width = random.usize(4..9));
                let place = Place { page: number, index: random.u16(..), is_tombstone: random.u8(..4) == 0 };
                sorter.push(key.as_bytes(), place).unwrap();
                expected.insert(key.into_bytes(), place);
            }
            assert_eq!(sorter.runs.is_some(), spills, "seed {seed}");
            let mut keys = sorter.finish().unwrap();
            let mut actual = Vec::new();
            while let Some((key, place)) = keys.next().unwrap() {
                actual.push((key.to_vec(), place));
            }
            expected.retain(|_, place| !place.is_tombstone);
            assert_eq!(actual, expected.into_iter().collect::<Vec<_>>(), "seed {seed}");
        }
    }

    #[test]
    fn many_revisions_of_few_keys_need_no_file() {
        let mut sorter = KeySorter::new(4096);
        for number in 0..100_000 {
            let place = Place { page: number, index: 0, is_tombstone: false };
            sorter.push(format!("key-{}", number % 10).as_bytes(), place).unwrap();
        }
        assert!(sorter.runs.is_none());
    }
}
