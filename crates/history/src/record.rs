//! The bytes of a record: one state of one object, or its deletion.
//!
//! `docs/history-format.md` describes them. A record names neither its object nor the state that its delta refers to:
//! the row has the object, and the reference is the record before, or for [`Form::Sibling`] a state of the part's base.

use std::borrow::Cow;

use listwatch::Encoding;
use prost::encoding::{decode_varint, encode_varint};

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The object is new.
    Added,
    /// The object changed.
    Modified,
    /// The object was deleted. The record has its final state.
    Deleted,
    /// The server encodes the same version of the object in other bytes, for example after an upgrade.
    Reencoded,
}

/// How a body is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The bytes of the state.
    Raw,
    /// Compressed by itself, with the dictionary of the part and collection if there is one.
    Whole,
    /// The delta to the record before.
    Delta,
    /// In the base of a part: the delta to the base state of an earlier object, whose number comes first.
    Sibling,
    /// In the base of a part: the object was damaged in the part before.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub kind: ChangeKind,
    /// True if the change happened in a gap, so that nobody knows when.
    pub is_between: bool,
    pub encoding: Encoding,
    pub form: Form,
    /// The number of the change in the history.
    pub seq: u64,
    /// When it was received, in milliseconds since 1970, and how long before that the event before it was received.
    pub time: i64,
    pub since: u64,
    /// The version of the change, and the one in the object.
    pub version: Cow<'a, str>,
    pub object_version: Cow<'a, str>,
    /// The length of the state, and the CRC-32 of its bytes.
    pub len: u32,
    pub sum: u32,
    pub body: &'a [u8],
}

/// What the numbers of a row are relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub seq: u64,
    pub time: i64,
}

const KINDS: [ChangeKind; 4] = [ChangeKind::Added, ChangeKind::Modified, ChangeKind::Deleted, ChangeKind::Reencoded];
const FORMS: [Form; 5] = [Form::Raw, Form::Whole, Form::Delta, Form::Sibling, Form::Lost];
const BETWEEN: u8 = 1 << 2;
const JSON: u8 = 1 << 3;
const OTHER_VERSION: u8 = 1 << 4;
const FORM_SHIFT: u8 = 5;

impl Record<'_> {
    pub fn write(&self, origin: Origin, out: &mut Vec<u8>) {
        let position = |found: Option<usize>| u8::try_from(found.unwrap_or_default()).unwrap_or_default();
        let kind = position(KINDS.iter().position(|kind| *kind == self.kind));
        let form = position(FORMS.iter().position(|form| *form == self.form));
        let has_other_version = self.version != self.object_version;
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.push(
            kind | flag(self.is_between, BETWEEN)
                | flag(self.encoding == Encoding::Json, JSON)
                | flag(has_other_version, OTHER_VERSION)
                | form << FORM_SHIFT,
        );
        encode_varint(self.seq.saturating_sub(origin.seq), out);
        encode_varint(self.time.saturating_sub(origin.time).try_into().unwrap_or_default(), out);
        encode_varint(self.since, out);
        write_version(&self.version, out);
        if has_other_version {
            write_version(&self.object_version, out);
        }
        encode_varint(self.len.into(), out);
        out.extend_from_slice(&self.sum.to_le_bytes());
        out.extend_from_slice(self.body);
    }
}

impl<'a> Record<'a> {
    /// Reads a record that fills the bytes; `None` if it is malformed.
    pub fn read(mut bytes: &'a [u8], origin: Origin) -> Option<Self> {
        let flags = *bytes.split_off_first()?;
        let kind = *KINDS.get(usize::from(flags & 3))?;
        let form = *FORMS.get(usize::from(flags >> FORM_SHIFT))?;
        let seq = origin.seq.checked_add(decode_varint(&mut bytes).ok()?)?;
        let time = origin.time.checked_add(decode_varint(&mut bytes).ok()?.try_into().ok()?)?;
        let since = decode_varint(&mut bytes).ok()?;
        let version = read_version(&mut bytes)?;
        let object_version = if flags & OTHER_VERSION == 0 { version.clone() } else { read_version(&mut bytes)? };
        let len = decode_varint(&mut bytes).ok()?.try_into().ok()?;
        let sum = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let encoding = if flags & JSON == 0 { Encoding::Protobuf } else { Encoding::Json };
        let is_between = flags & BETWEEN != 0;
        Some(Self {
            kind,
            is_between,
            encoding,
            form,
            seq,
            time,
            since,
            version,
            object_version,
            len,
            sum,
            body: bytes,
        })
    }
}

/// Writes a version: twice a number, or the length of a text times two plus one, and the text.
pub(crate) fn write_version(version: &str, out: &mut Vec<u8>) {
    let number = version.parse::<u64>().ok().filter(|number| *number <= u64::MAX >> 1 && number.to_string() == version);
    if let Some(number) = number {
        encode_varint(number << 1, out);
    } else {
        encode_varint((version.len() as u64) << 1 | 1, out);
        out.extend_from_slice(version.as_bytes());
    }
}

pub(crate) fn read_version<'a>(bytes: &mut &'a [u8]) -> Option<Cow<'a, str>> {
    let number = decode_varint(bytes).ok()?;
    if number & 1 == 0 {
        return Some(Cow::Owned((number >> 1).to_string()));
    }
    let text = bytes.split_off(..usize::try_from(number >> 1).ok()?)?;
    std::str::from_utf8(text).ok().map(Cow::Borrowed)
}

pub(crate) fn write_bytes(part: &[u8], out: &mut Vec<u8>) {
    encode_varint(part.len() as u64, out);
    out.extend_from_slice(part);
}

pub(crate) fn read_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = decode_varint(bytes).ok()?;
    bytes.split_off(..usize::try_from(len).ok()?)
}

pub(crate) fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    decode_varint(bytes).ok()
}

pub(crate) fn write_number(number: u64, out: &mut Vec<u8>) {
    encode_varint(number, out);
}

/// Appends the CRC-32 of a row: of its table, its key and its bytes. A row that damage moved to another key is noticed.
pub(crate) fn add_checksum(table: &str, key: [u64; 2], row: &mut Vec<u8>) {
    let sum = row_sum(table, key, row);
    row.extend_from_slice(&sum.to_le_bytes());
}

/// Returns the bytes of a row without their checksum; `None` if the row is damaged.
pub(crate) fn verified<'a>(table: &str, key: [u64; 2], row: &'a [u8]) -> Option<&'a [u8]> {
    let (bytes, sum) = row.split_last_chunk()?;
    (u32::from_le_bytes(*sum) == row_sum(table, key, bytes)).then_some(bytes)
}

fn row_sum(table: &str, key: [u64; 2], bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(table.as_bytes());
    for number in key {
        sum.update(&number.to_le_bytes());
    }
    sum.update(bytes);
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let origin = Origin { seq: 1000, time: 1_700_000_000_000 };
        for (version, object_version) in
            [("7", "7"), ("", ""), ("007", "7"), ("18446744073709551615", "a b"), ("0", "")]
        {
            for kind in KINDS {
                for form in FORMS {
                    let record = Record {
                        kind,
                        is_between: kind == ChangeKind::Deleted,
                        encoding: if form == Form::Raw { Encoding::Json } else { Encoding::Protobuf },
                        form,
                        seq: 1300,
                        time: origin.time + 777,
                        since: 1 << 40,
                        version: version.into(),
                        object_version: object_version.into(),
                        len: u32::MAX,
                        sum: 0xdead_beef,
                        body: b"body",
                    };
                    let mut bytes = Vec::new();
                    record.write(origin, &mut bytes);
                    assert_eq!(Record::read(&bytes, origin).unwrap(), record);
                    for len in 0..bytes.len() - 4 {
                        assert!(Record::read(&bytes[..len], origin).is_none(), "{len}");
                    }
                }
            }
        }
    }

    #[test]
    fn each_damaged_byte_of_a_row_is_noticed() {
        let mut row = b"some bytes".to_vec();
        add_checksum("tail", [7, 8], &mut row);
        assert_eq!(verified("tail", [7, 8], &row).unwrap(), b"some bytes");
        assert!(verified("tail", [8, 7], &row).is_none() && verified("base", [7, 8], &row).is_none());
        for at in 0..row.len() {
            row[at] ^= 1;
            assert!(verified("tail", [7, 8], &row).is_none(), "{at}");
            row[at] ^= 1;
            assert!(verified("tail", [7, 8], &row[..at]).is_none(), "{at}");
        }
    }
}
