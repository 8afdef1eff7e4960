//! The protobuf wire format: varints, tags, and the fields of a message that is whole in memory.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>.

use std::borrow::Cow;
use std::mem;

use prost::encoding::{self, encode_key, encode_varint};

use crate::encoding::utf8;
use crate::wire::Fault;

/// The deepest nesting of messages below an object, as in prost. Only the schemas of a `CustomResourceDefinition` nest
/// without a limit.
pub(crate) const MAX_DEPTH: usize = 100;

/// The deepest nesting of skipped groups: the same as prost's limit for nested messages.
pub(crate) const MAX_GROUP_DEPTH: usize = 100;

const MAX_FIELD_NUMBER: u64 = (1 << 29) - 1;

/// A varint, read byte by byte.
///
/// Invariant: `len <= 10`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Varint {
    value: u64,
    len: u8,
}

impl Varint {
    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Adds the next byte. Returns the value after the last byte.
    pub(crate) fn push(&mut self, byte: u8) -> Result<Option<u64>, Fault> {
        // The tenth byte contains only the last of 64 bits.
        if self.len == 9 && byte > 1 {
            return Err(Fault::Varint);
        }
        self.value |= u64::from(byte & 0x7f) << (7 * self.len);
        self.len += 1;
        Ok((byte < 0x80).then_some(self.value))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireType {
    Varint,
    Fixed64,
    Len,
    StartGroup,
    EndGroup,
    Fixed32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) number: u32,
    pub(crate) wire_type: WireType,
}

impl Tag {
    pub(crate) fn new(tag: u64) -> Result<Self, Fault> {
        let wire_type = match tag & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Len,
            3 => WireType::StartGroup,
            4 => WireType::EndGroup,
            5 => WireType::Fixed32,
            _ => return Err(Fault::Tag),
        };
        match u32::try_from(tag >> 3) {
            Ok(number @ 1..) if u64::from(number) <= MAX_FIELD_NUMBER => Ok(Self { number, wire_type }),
            _ => Err(Fault::Tag),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireField<'a> {
    pub(crate) number: u32,
    pub(crate) value: Value<'a>,
    /// Tag and value.
    pub(crate) bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Len(&'a [u8]),
    /// The bits of a double.
    Fixed64(u64),
    /// A value that Kubernetes does not use: four bytes, or a group.
    Other,
}

impl<'a> Value<'a> {
    pub(crate) fn bytes(self) -> Result<&'a [u8], Fault> {
        match self {
            Self::Len(bytes) => Ok(bytes),
            _ => Err(Fault::WireType),
        }
    }

    /// Returns a string of the envelope, which must be UTF-8.
    pub(crate) fn str(self) -> Result<&'a str, Fault> {
        str::from_utf8(self.bytes()?).map_err(|_| Fault::Utf8)
    }

    /// Returns a text of an object, with U+FFFD in place of each byte that is not UTF-8.
    pub(crate) fn text(self) -> Result<Cow<'a, str>, Fault> {
        self.bytes().map(utf8::replaced)
    }

    pub(crate) fn int(self) -> Result<i64, Fault> {
        match self {
            Self::Varint(value) => Ok(value.cast_signed()),
            _ => Err(Fault::WireType),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Fault> {
        self.short().map_or_else(|| self.long_varint(), |value| Ok(u64::from(value)))
    }

    /// Consumes a varint of one or two bytes, as most tags and lengths have.
    #[inline]
    fn short(&mut self) -> Option<u32> {
        let (value, rest) = match *self.rest {
            [value @ ..0x80, ref rest @ ..] => (u32::from(value), rest),
            [low, high @ ..0x80, ref rest @ ..] => (u32::from(low & 0x7f) | u32::from(high) << 7, rest),
            _ => return None,
        };
        self.rest = rest;
        Some(value)
    }

    #[cold]
    fn long_varint(&mut self) -> Result<u64, Fault> {
        let mut varint = Varint::default();
        loop {
            let (&byte, rest) = self.rest.split_first().ok_or(Fault::PastParent)?;
            self.rest = rest;
            if let Some(value) = varint.push(byte)? {
                return Ok(value);
            }
        }
    }

    #[inline]
    fn take(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        let taken = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let (taken, rest) = taken.ok_or(Fault::PastParent)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Consumes the next field if its tag, and its length or value, have one or two bytes, as almost all fields do.
    ///
    /// Keeping the walk over these fields in registers saved a quarter of the instructions for an event of a watch, and
    /// as much for views, paths and projections. A test compares the result with [`Self::any`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the parts of a field that a caller ignores are then never computed")]
    fn plain(&mut self) -> Option<(u32, Value<'a>)> {
        let ahead = &mut self.clone();
        let (tag, value) = (ahead.short()?, u64::from(ahead.short()?));
        let value = match tag & 7 {
            0 if tag > 7 => Value::Varint(value),
            2 if tag > 7 => Value::Len(ahead.take(value).ok()?),
            _ => return None,
        };
        self.rest = ahead.rest;
        Some((tag >> 3, value))
    }

    /// Consumes the next field, and returns its bytes, if it has this tag and a length of one or two bytes.
    #[inline]
    pub(crate) fn tagged(&mut self, tag: u8) -> Option<&'a [u8]> {
        let ahead = &mut Self::new(self.rest.strip_prefix(&[tag])?);
        let len = ahead.short()?.into();
        let bytes = ahead.take(len).ok()?;
        self.rest = ahead.rest;
        Some(bytes)
    }

    /// Like [`tagged`](Self::tagged), if the field is the last one.
    #[inline]
    pub(crate) fn sole(mut self, tag: u8) -> Option<&'a [u8]> {
        self.tagged(tag).filter(|_| self.rest.is_empty())
    }

    #[inline(never)]
    fn any(&mut self) -> Result<(u32, Value<'a>), Fault> {
        let tag = Tag::new(self.varint()?)?;
        let value = match tag.wire_type {
            WireType::StartGroup => {
                self.skip_group(tag.number)?;
                Value::Other
            }
            WireType::EndGroup => return Err(Fault::EndGroup),
            wire_type => self.value(wire_type)?,
        };
        Ok((tag.number, value))
    }

    /// Consumes the value of a field that is not a group.
    #[inline]
    fn value(&mut self, wire_type: WireType) -> Result<Value<'a>, Fault> {
        Ok(match wire_type {
            WireType::Varint => Value::Varint(self.varint()?),
            WireType::Len => {
                let len = self.varint()?;
                Value::Len(self.take(len)?)
            }
            WireType::Fixed64 => {
                let bytes = self.take(8)?.try_into().map_err(|_| Fault::PastParent)?;
                Value::Fixed64(u64::from_le_bytes(bytes))
            }
            WireType::Fixed32 => {
                self.take(4)?;
                Value::Other
            }
            WireType::StartGroup | WireType::EndGroup => Value::Other,
        })
    }

    /// Skips the rest of a group that was just begun.
    #[cold]
    fn skip_group(&mut self, number: u32) -> Result<(), Fault> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            let tag = Tag::new(self.varint()?)?;
            match tag.wire_type {
                WireType::StartGroup if open.len() == MAX_GROUP_DEPTH => return Err(Fault::GroupDepth),
                WireType::StartGroup => open.push(tag.number),
                WireType::EndGroup if tag.number == innermost => drop(open.pop()),
                WireType::EndGroup => return Err(Fault::EndGroup),
                wire_type => drop(self.value(wire_type)?),
            }
        }
        Ok(())
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<WireField<'a>, Fault>;

    /// The iterator ends after an error.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `plain`")]
    fn next(&mut self) -> Option<Self::Item> {
        let start = self.rest;
        if start.is_empty() {
            return None;
        }
        let (number, value) = if let Some(field) = self.plain() {
            field
        } else {
            // The copy is in registers, while borrowing `self` would keep it in memory. After an error, `self` stays
            // empty.
            let mut ahead = mem::take(self);
            let field = match ahead.any() {
                Ok(field) => field,
                Err(fault) => return Some(Err(fault)),
            };
            *self = ahead;
            field
        };
        let taken = start.len() - self.rest.len();
        Some(Ok(WireField { number, value, bytes: start.get(..taken).unwrap_or_default() }))
    }
}

pub(crate) fn write_len(number: u32, value: &[u8], out: &mut Vec<u8>) {
    write_len_head(number, value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Appends the key and the length of a field that has a length.
pub(crate) fn write_len_head(number: u32, len: u64, out: &mut Vec<u8>) {
    encode_key(number, encoding::WireType::LengthDelimited, out);
    encode_varint(len, out);
}

/// Reads an entry of a map, which protobuf encodes as a message of key and value.
#[inline]
pub(crate) fn entry(value: Value<'_>) -> Result<(&[u8], &[u8]), Fault> {
    let mut entry = (&[][..], &[][..]);
    for field in Fields::new(value.bytes()?) {
        let field = field?;
        match field.number {
            1 => entry.0 = field.value.bytes()?,
            2 => entry.1 = field.value.bytes()?,
            _ => {}
        }
    }
    Ok(entry)
}

pub(crate) fn key_of(entry: &[u8]) -> Result<&[u8], Fault> {
    let mut key = &[][..];
    for field in Fields::new(entry) {
        let field = field?;
        if field.number == 1 {
            key = field.value.bytes()?;
        }
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Option<u64>, Fault> {
        let mut varint = Varint::default();
        for &byte in bytes {
            if let Some(value) = varint.push(byte)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    #[test]
    fn reads_varints_of_up_to_ten_bytes() {
        let max = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        for (bytes, expected) in [
            (&[][..], Ok(None)),
            (&[0x00], Ok(Some(0))),
            (&[0x7f], Ok(Some(127))),
            (&[0x80], Ok(None)),
            (&[0x80, 0x01], Ok(Some(128))),
            (&max, Ok(Some(u64::MAX))),
            // Overlong, but no more than ten bytes.
            (&[0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], Ok(Some(1))),
            // Over u64.
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], Err(Fault::Varint)),
            // The tenth byte announces an eleventh.
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80], Err(Fault::Varint)),
        ] {
            assert_eq!(read(bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn parses_tags_and_refuses_invalid_ones() {
        let tag = |number, wire_type| Ok(Tag { number, wire_type });
        for (value, expected) in [
            (0x00, Err(Fault::Tag)),
            (0x02, Err(Fault::Tag)),
            (0x08, tag(1, WireType::Varint)),
            (0x12, tag(2, WireType::Len)),
            (0x6b, tag(13, WireType::StartGroup)),
            (0x0e, Err(Fault::Tag)),
            (0x0f, Err(Fault::Tag)),
            (0xffff_fffd, tag((1 << 29) - 1, WireType::Fixed32)),
            (0x1_0000_0000, Err(Fault::Tag)),
            (u64::MAX - 5, Err(Fault::Tag)),
        ] {
            assert_eq!(Tag::new(value), expected, "{value:#x}");
        }
    }

    #[test]
    fn reads_fields_up_to_the_first_fault() {
        let len = |number, value, bytes| Ok(WireField { number, value: Value::Len(value), bytes });
        let varint = |number, value, bytes| Ok(WireField { number, value: Value::Varint(value), bytes });
        let fixed64 =
            |number, value, bytes| Ok(WireField { number, value: Value::Fixed64(u64::from_le_bytes(value)), bytes });
        let other = |number, bytes| Ok(WireField { number, value: Value::Other, bytes });
        for (bytes, expected) in [
            (&b""[..], vec![]),
            (b"\x0a\x01a\x08\x85\x01", vec![len(1, b"a", b"\x0a\x01a"), varint(1, 0x85, b"\x08\x85\x01")]),
            // The second field has an overlong tag and length.
            (b"\x12\x00\x92\x00\x80\x00", vec![len(2, b"", b"\x12\x00"), len(2, b"", b"\x92\x00\x80\x00")]),
            (b"\x0d1234", vec![other(1, b"\x0d1234")]),
            (b"\x0912345678\x0a\x00", vec![fixed64(1, *b"12345678", b"\x0912345678"), len(1, b"", b"\x0a\x00")]),
            // A group is one field, which includes the fields of a nested group.
            (
                b"\x6b\x0a\x01x\x73\x08\x01\x74\x6c\x0a\x01z",
                vec![other(13, b"\x6b\x0a\x01x\x73\x08\x01\x74\x6c"), len(1, b"z", b"\x0a\x01z")],
            ),
            (b"\x6b\x74", vec![Err(Fault::EndGroup)]),
            (b"\x0c", vec![Err(Fault::EndGroup)]),
            (b"\x6b", vec![Err(Fault::PastParent)]),
            (b"\x6b\x0a\x02a", vec![Err(Fault::PastParent)]),
            (b"\x0a\x02a", vec![Err(Fault::PastParent)]),
            (b"\x0d123", vec![Err(Fault::PastParent)]),
            (b"\x091234567", vec![Err(Fault::PastParent)]),
            (b"\x0f", vec![Err(Fault::Tag)]),
            (b"\x0a\x01a\x08", vec![len(1, b"a", b"\x0a\x01a"), Err(Fault::PastParent)]),
            (&[0x6b; MAX_GROUP_DEPTH + 1], vec![Err(Fault::GroupDepth)]),
        ] {
            assert_eq!(Fields::new(bytes).collect::<Vec<_>>(), expected, "{bytes:x?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_fast_path_reads_the_same_as_the_plain_code(head: [u8; 4], zeros in 0..20_000_usize) {
            let message = [&head[..], &vec![0; zeros]].concat();
            let (mut plain, mut any) = (Fields::new(&message), Fields::new(&message));
            if let Some(field) = plain.plain() {
                prop_assert_eq!((Ok(field), plain.rest), (any.any(), any.rest));
            } else {
                prop_assert_eq!(plain.rest, &message);
            }
            let mut tagged = Fields::new(&message);
            let mut any = Fields::new(&message);
            if (8..0x80).contains(&head[0]) && head[0] & 7 == 2 && let Some(bytes) = tagged.tagged(head[0]) {
                let (tag, field) = (Tag::new(head[0].into()).unwrap(), any.any());
                prop_assert_eq!((Ok((tag.number, Value::Len(bytes))), tagged.rest), (field, any.rest));
            }
        }
    }
}
