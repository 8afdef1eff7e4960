//! Sorts records of any number: in memory up to a limit, then in runs in a temporary file, which are merged at the end.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::spool::temporary_file;

/// The bytes of records in memory at which a run is written.
const RUN: usize = 16 << 20;

/// The bytes of all buffers of a merge together, unless there are many runs.
const BUFFERS: usize = 8 << 20;
const BUFFER: std::ops::RangeInclusive<usize> = 4 << 10..=256 << 10;

/// What a record costs in memory besides its bytes.
const OVERHEAD: usize = 64;

/// A value that records are sorted by.
pub trait Key: Ord + Sized {
    fn encode(&self, out: &mut Vec<u8>);

    /// Takes a key off the front.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;
}

pub struct Sorter<K> {
    records: Vec<(K, Box<[u8]>)>,
    bytes: usize,
    file: Option<File>,
    /// Where the runs of the file end.
    ends: Vec<u64>,
}

impl<K: Key> Sorter<K> {
    pub fn new() -> Self {
        Self { records: Vec::new(), bytes: 0, file: None, ends: Vec::new() }
    }

    pub fn add(&mut self, key: K, record: &[u8]) -> io::Result<()> {
        self.bytes += record.len() + OVERHEAD;
        self.records.push((key, record.into()));
        if self.bytes < RUN { Ok(()) } else { self.write_run() }
    }

    /// Passes all records in order. Records of equal keys keep theirs.
    ///
    /// The outer error is of the temporary file, the inner one of `visit`.
    pub fn finish<E>(mut self, mut visit: impl FnMut(&[u8]) -> Result<(), E>) -> io::Result<Result<(), E>> {
        self.records.sort_by(|(a, _), (b, _)| a.cmp(b));
        if self.ends.is_empty() {
            return Ok(self.records.iter().try_for_each(|(_, record)| visit(record)));
        }
        self.write_run()?;
        let Self { file: Some(mut file), ends, .. } = self else { return Ok(Ok(())) };
        let size = (BUFFERS / ends.len().max(1)).clamp(*BUFFER.start(), *BUFFER.end());
        let starts = [0].into_iter().chain(ends.iter().copied());
        let mut runs: Vec<_> = starts.zip(ends.iter().copied()).map(|(at, end)| Run::new(at, end, size)).collect();
        let mut heap = BinaryHeap::new();
        for (number, run) in runs.iter_mut().enumerate() {
            heap.extend(run.next::<K>(&mut file)?.map(|(key, record)| Reverse(Head { key, number, record })));
        }
        while let Some(Reverse(Head { number, record, .. })) = heap.pop() {
            if let Err(error) = visit(&record) {
                return Ok(Err(error));
            }
            if let Some(run) = runs.get_mut(number) {
                heap.extend(run.next::<K>(&mut file)?.map(|(key, record)| Reverse(Head { key, number, record })));
            }
        }
        Ok(Ok(()))
    }

    fn write_run(&mut self) -> io::Result<()> {
        self.records.sort_by(|(a, _), (b, _)| a.cmp(b));
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(temporary_file()?),
        };
        let mut writer = io::BufWriter::with_capacity(*BUFFER.end(), &*file);
        let mut length = 0;
        let (mut key_bytes, records) = (Vec::new(), std::mem::take(&mut self.records));
        for (key, record) in records {
            key_bytes.clear();
            key.encode(&mut key_bytes);
            let total = key_bytes.len() + record.len();
            writer.write_all(&(total as u64).to_le_bytes())?;
            writer.write_all(&key_bytes)?;
            writer.write_all(&record)?;
            length += 8 + total as u64;
        }
        writer.flush()?;
        drop(writer);
        self.ends.push(self.ends.last().copied().unwrap_or(0) + length);
        self.bytes = 0;
        Ok(())
    }
}

/// The next record of a run. Equal keys are in the order of their runs.
struct Head<K> {
    key: K,
    number: usize,
    record: Vec<u8>,
}

impl<K: Ord> Ord for Head<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then(self.number.cmp(&other.number))
    }
}

impl<K: Ord> PartialOrd for Head<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord> PartialEq for Head<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<K: Ord> Eq for Head<K> {}

/// A sorted part of the file.
struct Run {
    at: u64,
    end: u64,
    size: usize,
    buffer: Vec<u8>,
    /// The bytes of the buffer that were taken.
    taken: usize,
}

impl Run {
    fn new(at: u64, end: u64, size: usize) -> Self {
        Self { at, end, size, buffer: Vec::new(), taken: 0 }
    }

    fn next<K: Key>(&mut self, file: &mut File) -> io::Result<Option<(K, Vec<u8>)>> {
        if self.at == self.end && self.taken == self.buffer.len() {
            return Ok(None);
        }
        self.fill(file, 8)?;
        let length = self.buffer.get(self.taken..).and_then(|rest| rest.first_chunk::<8>()).copied();
        let length = length.and_then(|length| usize::try_from(u64::from_le_bytes(length)).ok()).ok_or_else(damaged)?;
        self.taken += 8;
        self.fill(file, length)?;
        let mut bytes = self.buffer.get(self.taken..self.taken + length).ok_or_else(damaged)?;
        self.taken += length;
        let key = K::decode(&mut bytes).ok_or_else(damaged)?;
        Ok(Some((key, bytes.to_vec())))
    }

    /// Reads until the buffer holds this many bytes that were not taken.
    fn fill(&mut self, file: &mut File, wanted: usize) -> io::Result<()> {
        let left = self.buffer.len() - self.taken;
        if left >= wanted {
            return Ok(());
        }
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let more = self.size.max(wanted - left) as u64;
        file.seek(SeekFrom::Start(self.at))?;
        let read = file.take(more.min(self.end - self.at)).read_to_end(&mut self.buffer)?;
        self.at += read as u64;
        // A large record does not widen the buffer for good.
        self.buffer.shrink_to(2 * self.size.max(self.buffer.len()));
        Ok(())
    }
}

fn damaged() -> io::Error {
    io::Error::other("a temporary file was changed by another program")
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Key for u64 {
        fn encode(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(&self.to_le_bytes());
        }

        fn decode(bytes: &mut &[u8]) -> Option<Self> {
            let (key, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(Self::from_le_bytes(*key))
        }
    }

    #[test]
    fn sorts_in_memory_and_in_runs_and_keeps_the_order_of_equal_keys() {
        for (count, length, runs) in [(0, 10, false), (1000, 10, false), (60_000, 2000, true)] {
            let mut random = fastrand::Rng::with_seed(11);
            let (mut sorter, mut expected) = (Sorter::new(), Vec::new());
            for number in 0..count {
                let key = random.u64(0..5000);
                let mut record = format!("{key} {number} ").into_bytes();
                record.resize(random.usize(20..20 + length), b'x');
                expected.push((key, number));
                sorter.add(key, &record).unwrap();
            }
            assert_eq!(!sorter.ends.is_empty(), runs);
            expected.sort_by_key(|(key, _)| *key);
            let mut expected = expected.into_iter();
            sorter
                .finish(|record| {
                    let text = String::from_utf8(record.to_vec()).unwrap();
                    let mut words = text.split(' ').map(|word| word.parse::<u64>().ok());
                    assert_eq!(
                        (words.next().flatten(), words.next().flatten()),
                        expected.next().map(|(k, n)| (Some(k), Some(n))).unwrap()
                    );
                    Ok::<_, ()>(())
                })
                .unwrap()
                .unwrap();
            assert_eq!(expected.next(), None);
        }
    }
}
