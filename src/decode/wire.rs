//! The protobuf wire format: varints, tags and, over resident bytes, fields.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>.

use crate::error::Fault;

/// Groups may be nested this deep in what is skipped; prost allows as many nested messages.
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

    /// Takes the next byte; `Some` when it was the last.
    pub(crate) fn push(&mut self, byte: u8) -> Result<Option<u64>, Fault> {
        // The tenth byte holds the last bit of 64.
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

/// The length-delimited fields of a resident message; every other field is checked and skipped.
pub(crate) struct LenFields<'a> {
    rest: &'a [u8],
    groups: Vec<u32>,
}

impl<'a> LenFields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { rest: message, groups: Vec::new() }
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let mut varint = Varint::default();
        loop {
            let (&byte, rest) = self.rest.split_first().ok_or(Fault::PastParent)?;
            self.rest = rest;
            if let Some(value) = varint.push(byte)? {
                return Ok(value);
            }
        }
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        let taken = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let (taken, rest) = taken.ok_or(Fault::PastParent)?;
        self.rest = rest;
        Ok(taken)
    }

    fn advance(&mut self) -> Result<Option<(u32, &'a [u8])>, Fault> {
        while !self.rest.is_empty() {
            let tag = Tag::new(self.varint()?)?;
            match tag.wire_type {
                WireType::Varint => drop(self.varint()?),
                WireType::Fixed64 => drop(self.take(8)?),
                WireType::Fixed32 => drop(self.take(4)?),
                WireType::StartGroup if self.groups.len() == MAX_GROUP_DEPTH => return Err(Fault::GroupDepth),
                WireType::StartGroup => self.groups.push(tag.number),
                WireType::EndGroup if self.groups.pop() == Some(tag.number) => {}
                WireType::EndGroup => return Err(Fault::EndGroup),
                WireType::Len => {
                    let len = self.varint()?;
                    let value = self.take(len)?;
                    if self.groups.is_empty() {
                        return Ok(Some((tag.number, value)));
                    }
                }
            }
        }
        if self.groups.is_empty() { Ok(None) } else { Err(Fault::PastParent) }
    }
}

impl<'a> Iterator for LenFields<'a> {
    type Item = Result<(u32, &'a [u8]), Fault>;

    /// After an error the iterator ends.
    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if next.is_err() {
            (self.rest, self.groups) = (&[], Vec::new());
        }
        next.transpose()
    }
}

#[cfg(test)]
mod tests {
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
    fn varints() {
        let max = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        for (bytes, expected) in [
            (&[][..], Ok(None)),
            (&[0x00], Ok(Some(0))),
            (&[0x7f], Ok(Some(127))),
            (&[0x80], Ok(None)),
            (&[0x80, 0x01], Ok(Some(128))),
            (&max, Ok(Some(u64::MAX))),
            // Overlong, but of no more than ten bytes.
            (&[0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], Ok(Some(1))),
            // Over u64.
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], Err(Fault::Varint)),
            // An eleventh byte is announced.
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80], Err(Fault::Varint)),
        ] {
            assert_eq!(read(bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn tags() {
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
    fn len_fields_skip_everything_else() {
        for (bytes, expected) in [
            (&b""[..], vec![]),
            (b"\x0a\x01a\x08\x05\x12\x02bc", vec![Ok((1, &b"a"[..])), Ok((2, b"bc"))]),
            (b"\x0d\x01\x02\x03\x04\x09abcdefgh\x0a\x00", vec![Ok((1, &b""[..]))]),
            // A group hides its fields, those of a nested group too.
            (b"\x6b\x0a\x01x\x73\x0a\x01y\x74\x6c\x0a\x01z", vec![Ok((1, &b"z"[..]))]),
            (b"\x6b\x74", vec![Err(Fault::EndGroup)]),
            (b"\x6b", vec![Err(Fault::PastParent)]),
            (b"\x0a\x02a", vec![Err(Fault::PastParent)]),
            (b"\x0a\x01a\x08", vec![Ok((1, &b"a"[..])), Err(Fault::PastParent)]),
            (&[0x6b; MAX_GROUP_DEPTH + 1], vec![Err(Fault::GroupDepth)]),
        ] {
            assert_eq!(LenFields::new(bytes).collect::<Vec<_>>(), expected, "{bytes:x?}");
        }
    }
}
