//! etcd's key space in the bucket `key`: revisions as keys, `mvccpb.KeyValue` as values.

use crate::error::RevisionFault;

/// A revision: that of the transaction, and the number of the change in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Revision {
    pub(crate) main: i64,
    pub(crate) sub: i64,
    pub(crate) is_tombstone: bool,
}

impl Revision {
    /// Reads 8 bytes, `_`, 8 bytes, and for a deletion `t` (`server/storage/mvcc/revision.go` of etcd).
    pub(crate) fn parse(key: &[u8]) -> Result<Self, RevisionFault> {
        let (main, rest) = key.split_first_chunk::<8>().ok_or(RevisionFault::Key)?;
        let rest = rest.strip_prefix(b"_").ok_or(RevisionFault::Key)?;
        let (sub, mark) = rest.split_first_chunk::<8>().ok_or(RevisionFault::Key)?;
        let is_tombstone = match mark {
            b"" => false,
            b"t" => true,
            _ => return Err(RevisionFault::Key),
        };
        let (main, sub) = (i64::from_be_bytes(*main), i64::from_be_bytes(*sub));
        if main < 0 || sub < 0 {
            return Err(RevisionFault::Key);
        }
        Ok(Self { main, sub, is_tombstone })
    }
}

/// A key of etcd with its value, at one revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyValue<'a> {
    /// The key, such as `/registry/pods/default/web-1`.
    pub key: &'a [u8],
    /// The bytes that the API server wrote.
    pub value: &'a [u8],
    /// The revision at which the key was created.
    pub create_revision: i64,
    /// The revision of this value, which is the `resourceVersion` of the object.
    pub mod_revision: i64,
    /// The number of changes since the key was created, which is 1 then.
    pub version: i64,
    /// The lease with which etcd deletes the key, or 0. The key is here although its lease may have expired.
    pub lease: i64,
}

impl<'a> KeyValue<'a> {
    pub(crate) fn parse(mut message: &'a [u8]) -> Result<Self, RevisionFault> {
        let mut result = Self::default();
        while !message.is_empty() {
            let (field, rest) = field(message).ok_or(RevisionFault::Value)?;
            message = rest;
            match field {
                (1, Field::Bytes(key)) => result.key = key,
                (2, Field::Number(revision)) => result.create_revision = revision,
                (3, Field::Number(revision)) => result.mod_revision = revision,
                (4, Field::Number(version)) => result.version = version,
                (5, Field::Bytes(value)) => result.value = value,
                (6, Field::Number(lease)) => result.lease = lease,
                (1..=6, _) => return Err(RevisionFault::Value),
                _ => {}
            }
        }
        if result.key.is_empty() { Err(RevisionFault::NoKey) } else { Ok(result) }
    }

    /// Reads the key from the first bytes of a message, if it lies there: etcd writes it first.
    pub(crate) fn key_at_front(bytes: &'a [u8]) -> Option<&'a [u8]> {
        match field(bytes)? {
            ((1, Field::Bytes(key)), _) if !key.is_empty() => Some(key),
            _ => None,
        }
    }
}

/// A field of a protobuf message.
pub(crate) enum Field<'a> {
    Number(i64),
    Bytes(&'a [u8]),
    Other,
}

/// Splits one field of a protobuf message from the rest.
pub(crate) fn field(bytes: &[u8]) -> Option<((u64, Field<'_>), &[u8])> {
    let (tag, rest) = varint(bytes)?;
    let (field, rest) = match tag & 7 {
        0 => {
            let (number, rest) = varint(rest)?;
            (Field::Number(number.cast_signed()), rest)
        }
        1 => (Field::Other, rest.get(8..)?),
        2 => {
            let (len, rest) = varint(rest)?;
            let (bytes, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            (Field::Bytes(bytes), rest)
        }
        5 => (Field::Other, rest.get(4..)?),
        _ => return None,
    };
    ((tag >> 3) != 0).then_some(((tag >> 3, field), rest))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7F);
        if index == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

/// Writes a field of bytes.
pub(crate) fn write_bytes(number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    write_varint(number << 3 | 2, out);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7F) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_revisions() {
        let revision = |main: i64, sub: i64, mark: &[u8]| {
            Revision::parse(&[&main.to_be_bytes()[..], b"_", &sub.to_be_bytes(), mark].concat())
        };
        assert_eq!(revision(7, 1, b""), Ok(Revision { main: 7, sub: 1, is_tombstone: false }));
        assert_eq!(revision(7, 1, b"t"), Ok(Revision { main: 7, sub: 1, is_tombstone: true }));
        for (main, sub, mark) in [(7, 1, &b"x"[..]), (7, 1, b"tt"), (-7, 1, b""), (7, -1, b"")] {
            assert_eq!(revision(main, sub, mark), Err(RevisionFault::Key), "{main} {sub} {mark:?}");
        }
        for short in [&b""[..], b"12345678", b"12345678_1234567", b"12345678 12345678"] {
            assert_eq!(Revision::parse(short), Err(RevisionFault::Key), "{short:?}");
        }
    }

    #[test]
    fn reads_key_values_up_to_the_first_fault() {
        let whole = b"\x0a\x01k\x10\x05\x18\x96\x01\x20\x02\x2a\x02vv\x30\x09";
        let expected =
            KeyValue { key: b"k", value: b"vv", create_revision: 5, mod_revision: 150, version: 2, lease: 9 };
        assert_eq!(KeyValue::parse(whole), Ok(expected));
        assert_eq!(KeyValue::key_at_front(&whole[..4]), Some(&b"k"[..]));
        assert_eq!(KeyValue::key_at_front(&whole[..2]), None);
        assert_eq!(KeyValue::parse(b"\x10\x05"), Err(RevisionFault::NoKey));
        // A field of another type, a length beyond the end, a group, field 0, and a varint of eleven bytes.
        for bad in
            [&b"\x08\x01"[..], b"\x0a\x05k", b"\x0b", b"\x02\x00", b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"]
        {
            assert_eq!(KeyValue::parse(bad), Err(RevisionFault::Value), "{bad:?}");
        }
        // Unknown fields are skipped.
        assert_eq!(
            KeyValue::parse(b"\x0a\x01k\x39\0\0\0\0\0\0\0\0\x3d\0\0\0\0\x42\x01x").map(|kv| kv.key),
            Ok(&b"k"[..])
        );
    }
}
