//! Keys in byte order, each with what is known about it, such as the place of its newest value: in memory up to a
//! limit, beyond it in a temporary file.
//!
//! The bucket is in the order of revisions, and lists are in key order. Keys arrive in the order of revisions, so a
//! later entry of a key replaces an earlier one, or adds to it. When the buffer is full, it is sorted in place, and
//! entries of one key become one; if half of it is still in use then, it becomes a sorted run of the temporary file,
//! and else it is copied without the gaps. The end merges the runs.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

/// What is kept of a key. It is written into the temporary file in a fixed number of bytes.
pub(crate) trait Entry: Copy {
    const LEN: usize;

    /// Returns what is known after this entry, which follows an earlier one of the same key.
    fn after(self, earlier: Self) -> Self;

    fn write(&self, out: &mut impl Write) -> io::Result<()>;
    fn read(bytes: &[u8]) -> io::Result<Self>;
}

/// Collects keys with their entries.
pub(crate) struct KeySorter<E> {
    limit: usize,
    buffer: Buffer<E>,
    runs: Option<Runs>,
}

/// Returns each key once, in byte order.
pub(crate) struct SortedKeys<E>(Source<E>);

enum Source<E> {
    Memory { buffer: Buffer<E>, next: usize },
    Merge { heads: BinaryHeap<Head<E>>, key: Vec<u8> },
}

struct Buffer<E> {
    keys: Vec<u8>,
    entries: Vec<BufferEntry<E>>,
}

#[derive(Clone, Copy)]
struct BufferEntry<E> {
    start: usize,
    len: usize,
    entry: E,
}

struct Runs {
    file: Arc<File>,
    /// The offset at which each run ends.
    ends: Vec<u64>,
}

impl<E: Entry> KeySorter<E> {
    /// Keeps at most about `limit` bytes of keys in memory, at least 4 KiB, and a copy of up to half of them for a
    /// moment.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(4096), buffer: Buffer::default(), runs: None }
    }

    /// Adds an entry of a key, which comes after all entries of this key that were added before.
    pub(crate) fn push(&mut self, key: &[u8], entry: E) -> Result<(), Error> {
        let size = self.buffer.size() + key.len() + size_of::<BufferEntry<E>>();
        if size > self.limit && !self.buffer.entries.is_empty() {
            self.buffer.sort();
            if self.buffer.size_without_gaps() > self.limit / 2 {
                self.spill().map_err(ErrorKind::Spill)?;
            } else {
                self.buffer.remove_gaps();
            }
        }
        self.buffer.push(key, entry);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<SortedKeys<E>, Error> {
        self.buffer.sort();
        if self.runs.is_none() {
            return Ok(SortedKeys(Source::Memory { buffer: self.buffer, next: 0 }));
        }
        self.spill().map_err(ErrorKind::Spill)?;
        let mut heads = BinaryHeap::new();
        if let Some(runs) = self.runs {
            let mut start = 0;
            for (number, end) in runs.ends.into_iter().enumerate() {
                let run = Run::new(&runs.file, start, end);
                heads.extend(Head::first(number, run).map_err(ErrorKind::Spill)?);
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
            entry.entry.write(&mut out)?;
            out.write_all(key)?;
            end += (8 + E::LEN + key.len()) as u64;
        }
        out.flush()?;
        drop(out);
        runs.ends.push(end);
        self.buffer = Buffer::default();
        Ok(())
    }
}

/// An unnamed file that only this user can read. `/tmp` may be in memory, so unless `TMPDIR` names a folder the file
/// lies in `/var/tmp`, if there is one.
fn temporary_file() -> io::Result<File> {
    let persistent = std::path::Path::new("/var/tmp");
    if std::env::var_os("TMPDIR").is_none() && persistent.is_dir() {
        return tempfile::tempfile_in(persistent);
    }
    tempfile::tempfile()
}

impl<E: Entry> SortedKeys<E> {
    /// Returns the next key and its entry.
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], E)>, Error> {
        match &mut self.0 {
            Source::Memory { buffer, next } => {
                let Some(entry) = buffer.entries.get(*next).copied() else { return Ok(None) };
                *next += 1;
                Ok(Some((buffer.key(&entry), entry.entry)))
            }
            Source::Merge { heads, key } => {
                let merged = merge_next(heads, key).map_err(ErrorKind::Spill)?;
                Ok(merged.map(|entry| (key.as_slice(), entry)))
            }
        }
    }
}

/// Takes the smallest key off the runs, with what all runs know about it.
fn merge_next<E: Entry>(heads: &mut BinaryHeap<Head<E>>, key: &mut Vec<u8>) -> io::Result<Option<E>> {
    let Some(first) = heads.peek() else { return Ok(None) };
    key.clone_from(&first.key);
    let mut merged = None::<E>;
    // The latest run with this key is on top, and the earlier ones follow at once.
    while let Some(mut head) = heads.peek_mut() {
        if head.key != *key {
            break;
        }
        merged = Some(merged.map_or(head.entry, |later| later.after(head.entry)));
        if !head.advance()? {
            PeekMut::pop(head);
        }
    }
    Ok(merged)
}

impl<E> Default for Buffer<E> {
    fn default() -> Self {
        Self { keys: Vec::new(), entries: Vec::new() }
    }
}

impl<E: Entry> Buffer<E> {
    fn size(&self) -> usize {
        self.keys.len() + self.entries.len() * size_of::<BufferEntry<E>>()
    }

    fn push(&mut self, key: &[u8], entry: E) {
        let (start, len) = (self.keys.len(), key.len());
        self.keys.extend_from_slice(key);
        self.entries.push(BufferEntry { start, len, entry });
    }

    fn key(&self, entry: &BufferEntry<E>) -> &[u8] {
        self.keys.get(entry.start..entry.start + entry.len).unwrap_or_default()
    }

    /// Sorts the entries, and merges the entries of one key. The bytes of the keys stay where they are.
    fn sort(&mut self) {
        let keys = &self.keys;
        let key = |entry: &BufferEntry<E>| keys.get(entry.start..).and_then(|keys| keys.get(..entry.len));
        // Later entries of a key start later.
        self.entries.sort_unstable_by(|a, b| key(a).cmp(&key(b)).then(a.start.cmp(&b.start)));
        self.entries.dedup_by(|later, kept| {
            let is_same = key(later) == key(kept);
            if is_same {
                kept.entry = later.entry.after(kept.entry);
            }
            is_same
        });
    }

    /// Returns the size without the bytes of keys that have no entry any more.
    fn size_without_gaps(&self) -> usize {
        self.entries.iter().map(|entry| entry.len + size_of::<BufferEntry<E>>()).sum()
    }

    fn remove_gaps(&mut self) {
        let mut kept = Self { keys: Vec::new(), entries: Vec::with_capacity(self.entries.len()) };
        for entry in &self.entries {
            kept.push(self.key(entry), entry.entry);
        }
        *self = kept;
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
struct Head<E> {
    number: usize,
    key: Vec<u8>,
    entry: E,
    run: Run,
}

impl<E: Entry> Head<E> {
    /// Reads the first entry of a run; nothing if the run is empty.
    fn first(number: usize, mut run: Run) -> io::Result<Option<Self>> {
        let mut key = Vec::new();
        Ok(run.next(&mut key)?.map(|entry| Self { number, key, entry, run }))
    }

    /// Reads the next entry; false at the end of the run.
    fn advance(&mut self) -> io::Result<bool> {
        let next = self.run.next(&mut self.key)?;
        Ok(next.map(|entry| self.entry = entry).is_some())
    }
}

impl Run {
    fn next<E: Entry>(&mut self, key: &mut Vec<u8>) -> io::Result<Option<E>> {
        let bytes = self.0.get_ref();
        if bytes.at == bytes.end && self.0.buffer().is_empty() {
            return Ok(None);
        }
        let mut len = [0; 8];
        self.0.read_exact(&mut len)?;
        key.clear();
        key.resize(E::LEN, 0);
        self.0.read_exact(key)?;
        let entry = E::read(key)?;
        key.clear();
        key.resize(usize::try_from(u64::from_le_bytes(len)).map_err(io::Error::other)?, 0);
        self.0.read_exact(key)?;
        Ok(Some(entry))
    }
}

impl<E> Ord for Head<E> {
    /// A max-heap: the smallest key is greatest, and of equal keys that of the latest run.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key).then(self.number.cmp(&other.number))
    }
}

impl<E> PartialOrd for Head<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Head<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Head<E> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The number of entries of a key, and the number of the last one.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Counted(u64, u64);

    impl Entry for Counted {
        const LEN: usize = 16;

        fn after(self, earlier: Self) -> Self {
            Self(self.0 + earlier.0, self.1)
        }

        fn write(&self, out: &mut impl Write) -> io::Result<()> {
            out.write_all(&self.0.to_le_bytes())?;
            out.write_all(&self.1.to_le_bytes())
        }

        fn read(bytes: &[u8]) -> io::Result<Self> {
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            Ok(Self(number(0), number(8)))
        }
    }

    #[test]
    fn sorts_as_a_map_does_with_and_without_a_file() {
        for (seed, limit, spills) in [(1, 1 << 20, false), (2, 4096, true), (3, 20_000, true)] {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut expected = BTreeMap::new();
            let mut sorter = KeySorter::new(limit);
            for number in 0..5000_u64 {
                let key = format!("/registry/{:0width$}", random.u32(0..2000), width = random.usize(4..9));
                sorter.push(key.as_bytes(), Counted(1, number)).unwrap();
                let known = expected.entry(key.into_bytes()).or_insert(Counted(0, 0));
                *known = Counted(1, number).after(*known);
            }
            assert_eq!(sorter.runs.is_some(), spills, "seed {seed}");
            let mut keys = sorter.finish().unwrap();
            let mut actual = Vec::new();
            while let Some((key, entry)) = keys.next().unwrap() {
                actual.push((key.to_vec(), entry));
            }
            assert_eq!(actual, expected.into_iter().collect::<Vec<_>>(), "seed {seed}");
        }
    }

    #[test]
    fn many_revisions_of_few_keys_need_no_file() {
        let mut sorter = KeySorter::new(4096);
        for number in 0..100_000 {
            sorter.push(format!("key-{}", number % 10).as_bytes(), Counted(1, number)).unwrap();
        }
        assert!(sorter.runs.is_none());
        assert_eq!(sorter.finish().unwrap().next().unwrap(), Some((&b"key-0"[..], Counted(10_000, 99_990))));
    }
}
