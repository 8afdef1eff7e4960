//! The head of an entry: name, uid and resource version before the body, in few bytes.

use std::borrow::Cow;

use listwatch::internal::is_comparable;
use prost::encoding::{decode_varint, encode_varint};

use crate::hex::{format_uid, parse_uid};
use crate::key::Identity;

/// Varints, then the name, the uid, the version unless it is a number, and the body.
///
/// | varint | lowest bit | the other bits |
/// |---|---|---|
/// | 1 | the uid is a text | length of the name |
/// | 2 | the version is a text | its length, or the number |
/// | 3, if the uid is a text | | its length |
///
/// A uid as API servers generate it is a number of 16 bytes. A version is a number if it is a decimal number of up to
/// [`MAX_NUMBER`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Head<'a> {
    name: &'a [u8],
    uid: TextOr<'a, u128>,
    version: TextOr<'a, u64>,
    pub(crate) body: &'a [u8],
}

/// A text, or the number that it stands for.
#[derive(Clone, Copy)]
enum TextOr<'a, N> {
    Text(&'a [u8]),
    Number(N),
}

impl<N> Default for TextOr<'_, N> {
    fn default() -> Self {
        Self::Text(&[])
    }
}

/// The highest version that leaves room for the lowest bit.
const MAX_NUMBER: u64 = u64::MAX >> 1;

impl<'a> Head<'a> {
    pub(crate) fn write(identity: &Identity<'_>, body: &[u8]) -> Vec<u8> {
        let Identity { name, uid, resource_version, .. } = identity;
        let uid_number = parse_uid(uid.as_bytes()).map(u128::to_be_bytes);
        let version_number = parse_version(resource_version);
        let (uid_len, uid) = uid_number.as_ref().map_or((Some(uid.len()), uid.as_bytes()), |number| (None, number));
        let version = if version_number.is_some() { "" } else { resource_version };
        let texts = [name.as_bytes(), uid, version.as_bytes(), body];
        // A text is at most 64 KiB long, so its length and a bit take at most 3 bytes. A version takes at most 10.
        let mut bytes = Vec::with_capacity(16 + texts.iter().map(|text| text.len()).sum::<usize>());
        encode_varint(with_bit(name.len() as u64, uid_len.is_some()), &mut bytes);
        let version = version_number.unwrap_or(version.len() as u64);
        encode_varint(with_bit(version, version_number.is_none()), &mut bytes);
        if let Some(len) = uid_len {
            encode_varint(len as u64, &mut bytes);
        }
        for text in texts {
            bytes.extend_from_slice(text);
        }
        bytes
    }

    /// Returns the head with name, uid and version as these texts.
    pub(crate) fn of_texts([name, uid, version]: [&'a [u8]; 3], body: &'a [u8]) -> Self {
        Self { name, uid: TextOr::Text(uid), version: TextOr::Text(version), body }
    }

    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        Self::try_read(bytes).unwrap_or_default()
    }

    fn try_read(mut rest: &'a [u8]) -> Option<Self> {
        let mut number = || decode_varint(&mut rest).ok();
        let (name, version) = (number()?, number()?);
        let uid_len = if name & 1 == 1 { Some(usize::try_from(number()?).ok()?) } else { None };
        let (name, rest) = rest.split_at_checked(usize::try_from(name >> 1).ok()?)?;
        let (uid, rest) = match uid_len {
            Some(len) => rest.split_at_checked(len).map(|(uid, rest)| (TextOr::Text(uid), rest))?,
            None => rest.split_first_chunk().map(|(uid, rest)| (TextOr::Number(u128::from_be_bytes(*uid)), rest))?,
        };
        let (version, body) = if version & 1 == 1 {
            let (version, body) = rest.split_at_checked(usize::try_from(version >> 1).ok()?)?;
            (TextOr::Text(version), body)
        } else {
            (TextOr::Number(version >> 1), rest)
        };
        Some(Self { name, uid, version, body })
    }

    pub(crate) fn name(&self) -> &'a str {
        text(self.name)
    }

    pub(crate) fn uid(&self) -> Cow<'a, str> {
        match self.uid {
            TextOr::Text(uid) => text(uid).into(),
            TextOr::Number(number) => text(&format_uid(number)).to_owned().into(),
        }
    }

    /// Returns the version as a number, if that has the same text.
    pub(crate) fn version_number(&self) -> Option<u64> {
        match self.version {
            TextOr::Text(version) => parse_version(text(version)),
            TextOr::Number(number) => Some(number),
        }
    }

    pub(crate) fn version(&self) -> Cow<'a, str> {
        match self.version {
            TextOr::Text(version) => text(version).into(),
            TextOr::Number(number) => number.to_string().into(),
        }
    }
}

fn with_bit(number: u64, bit: bool) -> u64 {
    number << 1 | u64::from(bit)
}

/// Returns the number of a version; `None` unless the number has the same text, and leaves room for a bit.
fn parse_version(version: &str) -> Option<u64> {
    let is_same_text = version == "0" || is_comparable(version);
    version.parse().ok().filter(|number| is_same_text && *number <= MAX_NUMBER)
}

/// Returns bytes that were copied from a `str`.
pub(crate) fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_what_was_written() {
        let long = "x".repeat(usize::from(u16::MAX));
        for (uid, is_short) in [
            ("01234567-89ab-cdef-0123-456789abcdef", true),
            ("ffffffff-ffff-ffff-ffff-ffffffffffff", true),
            ("00000000-0000-0000-0000-000000000000", true),
            // As long, but not as API servers make them.
            ("01234567-89AB-cdef-0123-456789abcdef", false),
            ("0123456-789ab-cdef-0123-456789abcdef", false),
            ("01234567-89ab-cdef-0123-456789abcde-", false),
            ("01234567-89ab-cdef-0123-456789abcdé", false),
            ("01234567-89ab-cdef-0123-456789abcdefa", false),
            ("0123456789abcdef0123456789abcdef", false),
            ("", false),
            ("7", false),
            (&long, false),
        ] {
            for (name, version, body) in [("web", "", &b""[..]), (&long, "07", b"body"), ("", &long, b"\0")] {
                let identity = Identity {
                    namespace: "ns".into(),
                    name: name.into(),
                    uid: uid.into(),
                    resource_version: version.into(),
                };
                let bytes = Head::write(&identity, body);
                let head = Head::read(&bytes);
                assert_eq!((head.name(), &*head.uid(), &*head.version(), head.body), (name, uid, version, body));
                let texts = name.len() + uid.len() + version.len() + body.len();
                assert_eq!(bytes.len() < texts, is_short, "{uid}");
                // What `write` did not write is no panic.
                for len in 0..bytes.len().min(100) {
                    _ = Head::read(&bytes[..len]).uid();
                }
            }
        }
    }

    #[test]
    fn versions_are_numbers_where_the_number_has_the_same_text() {
        let long = "1".repeat(300);
        for (version, len) in [
            ("", 1),
            ("0", 1),
            ("63", 1),
            ("64", 2),
            ("12345678", 4),
            ("9223372036854775807", 10),
            // Texts.
            ("9223372036854775808", 1 + 19),
            ("18446744073709551616", 1 + 20),
            ("007", 1 + 3),
            ("+7", 1 + 2),
            ("-7", 1 + 2),
            ("7 ", 1 + 2),
            ("v7", 1 + 2),
            (&long, 2 + 300),
        ] {
            let uid = "01234567-89ab-cdef-0123-456789abcdef";
            let identity = Identity {
                namespace: "".into(),
                name: "web".into(),
                uid: uid.into(),
                resource_version: version.into(),
            };
            let bytes = Head::write(&identity, b"body");
            let head = Head::read(&bytes);
            assert_eq!((head.name(), &*head.uid(), &*head.version(), head.body), ("web", uid, version, &b"body"[..]));
            assert_eq!(bytes.len(), 1 + len + 3 + 16 + 4, "{version}");
        }
    }
}
