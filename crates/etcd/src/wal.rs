//! The write-ahead log beside a data file: what etcd has accepted, but not yet written into the file.
//!
//! A file of the log is a series of frames: 8 bytes with the length and the padding, a `walpb.Record`, and the padding
//! (`server/storage/wal/decoder.go` of etcd). The log is only counted, so its checksums are not verified.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::key_value::{Field, field};

/// The largest record that is read. etcd limits a record to the size of a request, and its files to 64 MB.
const MAX_RECORD: u64 = 128 << 20;

/// `entryType` and `stateType` of etcd's log.
const ENTRY: i64 = 2;
const STATE: i64 = 3;

/// Returns the number of committed entries after `index` in the log that belongs to this data file; `None` if the file
/// does not lie in `member/snap` beside a folder `wal`.
///
/// # Errors
///
/// The log cannot be read.
pub(crate) fn entries_after(data_file: &Path, index: u64) -> io::Result<Option<u64>> {
    let snap = data_file.canonicalize()?;
    let Some(folder) = snap.parent().filter(|folder| folder.ends_with("snap")).and_then(Path::parent) else {
        return Ok(None);
    };
    let folder = folder.join("wal");
    if !folder.is_dir() {
        return Ok(None);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some(first) = first_index(&path) {
            files.push((first, path));
        }
    }
    files.sort();
    // Earlier files have only entries before the last file that begins at or before the index.
    let from = files.iter().rposition(|(first, _)| *first <= index).unwrap_or(0);
    let (mut last, mut committed) = (0, 0);
    for (_, path) in files.iter().skip(from) {
        read_log(path, &mut last, &mut committed)?;
    }
    Ok(Some(last.min(committed).saturating_sub(index)))
}

/// Reads the index of the first entry from a name such as `0000000000000001-00000000000186a1.wal`.
fn first_index(path: &Path) -> Option<u64> {
    let (_, first) = path.file_name()?.to_str()?.strip_suffix(".wal")?.split_once('-')?;
    u64::from_str_radix(first, 16).ok()
}

fn read_log(path: &Path, last: &mut u64, committed: &mut u64) -> io::Result<()> {
    let mut file = BufReader::with_capacity(64 << 10, File::open(path)?);
    let mut record = Vec::new();
    loop {
        let mut head = [0; 8];
        match file.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let head = u64::from_le_bytes(head);
        let padding = if head >> 63 == 1 { (head >> 56) & 7 } else { 0 };
        let len = (head & 0x00FF_FFFF_FFFF_FFFF) + padding;
        // The rest of a file is allocated in advance, and zero.
        if head == 0 || len > MAX_RECORD {
            return Ok(());
        }
        record.clear();
        // A torn write at the end of the last file is normal after a crash.
        if (&mut file).take(len).read_to_end(&mut record)? as u64 != len {
            return Ok(());
        }
        record.truncate(usize::try_from(len - padding).unwrap_or_default());
        let Some((kind, data)) = read_record(&record) else { return Ok(()) };
        match kind {
            ENTRY => *last = number(data, 3).unwrap_or(*last),
            STATE => *committed = number(data, 3).unwrap_or(*committed),
            _ => {}
        }
    }
}

/// Returns the type and the data of a `walpb.Record`.
fn read_record(mut record: &[u8]) -> Option<(i64, &[u8])> {
    let (mut kind, mut data) = (0, &b""[..]);
    while !record.is_empty() {
        let (this, rest) = field(record)?;
        record = rest;
        match this {
            (1, Field::Number(number)) => kind = number,
            (3, Field::Bytes(bytes)) => data = bytes,
            _ => {}
        }
    }
    Some((kind, data))
}

/// Returns a number of a message: field 3 is the index of a `raftpb.Entry`, and the commit of a `raftpb.HardState`.
fn number(mut message: &[u8], wanted: u64) -> Option<u64> {
    while !message.is_empty() {
        let (this, rest) = field(message)?;
        message = rest;
        if let (number, Field::Number(value)) = this
            && number == wanted
        {
            return u64::try_from(value).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of a record: its type, and a message with a number in field 3.
    fn frame(kind: i64, index: u8) -> Vec<u8> {
        let record = [0x08, u8::try_from(kind).unwrap(), 0x10, 7, 0x1A, 2, 0x18, index];
        let padding = (8 - record.len() % 8) % 8;
        let mut frame = (record.len() as u64).to_le_bytes().to_vec();
        frame.extend_from_slice(&record);
        frame.resize(frame.len() + padding, 0);
        frame
    }

    #[test]
    fn counts_committed_entries_that_the_file_lacks() {
        let member = tempfile::tempdir().unwrap();
        let [snap, wal] = ["snap", "wal"].map(|name| member.path().join(name));
        let db = snap.join("db");
        fs::create_dir(&snap).unwrap();
        fs::write(&db, b"").unwrap();
        assert_eq!(entries_after(&db, 3).unwrap(), None);
        fs::create_dir(&wal).unwrap();
        let first = [frame(ENTRY, 1), frame(ENTRY, 2), vec![0; 64]].concat();
        fs::write(wal.join("0000000000000000-0000000000000000.wal"), first).unwrap();
        let entries = (3..=9).flat_map(|index| frame(ENTRY, index));
        // Committed up to 8, and a torn frame at the end.
        let second: Vec<_> = entries.chain(frame(STATE, 8)).chain(frame(ENTRY, 10).into_iter().take(9)).collect();
        fs::write(wal.join("0000000000000001-0000000000000003.wal"), second).unwrap();
        fs::write(wal.join("0.tmp"), b"x").unwrap();
        for (index, expected) in [(1, 7), (3, 5), (8, 0), (9, 0)] {
            assert_eq!(entries_after(&db, index).unwrap(), Some(expected), "{index}");
        }
        assert_eq!(entries_after(&wal.join("0.tmp"), 3).unwrap(), None);
    }
}
