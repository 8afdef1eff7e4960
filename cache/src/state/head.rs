//! The head of an entry: name, uid and resource version before the body, in few bytes.

use std::borrow::Cow;

use prost::encoding::{decode_varint, encode_varint};

use crate::hex::{format_uid, parse_uid};
use crate::key::Identity;

/// Lengths as varints, then the name, the uid, the resource version, and the body.
///
/// A uid in the form that API servers generate takes 16 bytes instead of 36, and has no length. Any other uid is kept
/// as text. The lowest bit of the version's length tells whether the length of such a uid follows.
#[derive(Clone, Copy, Default)]
pub(crate) struct Head<'a> {
    name: &'a [u8],
    uid: Uid<'a>,
    version: &'a [u8],
    pub(crate) body: &'a [u8],
}

#[derive(Clone, Copy)]
enum Uid<'a> {
    Text(&'a [u8]),
    Number(u128),
}

impl Default for Uid<'_> {
    fn default() -> Self {
        Self::Text(&[])
    }
}

impl<'a> Head<'a> {
    pub(crate) fn write(identity: &Identity<'_>, body: &[u8]) -> Vec<u8> {
        let Identity { name, uid, resource_version, .. } = identity;
        let number = parse_uid(uid.as_bytes()).map(u128::to_be_bytes);
        let (uid_len, uid) = number.as_ref().map_or((Some(uid.len()), uid.as_bytes()), |number| (None, number));
        let texts = [name.as_bytes(), uid, resource_version.as_bytes(), body];
        // A text is at most 64 KiB long, so a length takes at most 3 bytes.
        let mut bytes = Vec::with_capacity(9 + texts.iter().map(|text| text.len()).sum::<usize>());
        let version_len = 2 * resource_version.len() + usize::from(uid_len.is_some());
        for len in [Some(name.len()), Some(version_len), uid_len].into_iter().flatten() {
            encode_varint(len as u64, &mut bytes);
        }
        for text in texts {
            bytes.extend_from_slice(text);
        }
        bytes
    }

    /// Reads what [`write`](Self::write) wrote.
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        Self::try_read(bytes).unwrap_or_default()
    }

    fn try_read(mut rest: &'a [u8]) -> Option<Self> {
        let mut len = || usize::try_from(decode_varint(&mut rest).ok()?).ok();
        let (name, version) = (len()?, len()?);
        let uid = if version % 2 == 1 { Some(len()?) } else { None };
        let (name, rest) = rest.split_at_checked(name)?;
        let (uid, rest) = match uid {
            Some(len) => rest.split_at_checked(len).map(|(uid, rest)| (Uid::Text(uid), rest))?,
            None => rest.split_first_chunk().map(|(uid, rest)| (Uid::Number(u128::from_be_bytes(*uid)), rest))?,
        };
        let (version, body) = rest.split_at_checked(version / 2)?;
        Some(Self { name, uid, version, body })
    }

    pub(crate) fn name(&self) -> &'a str {
        text(self.name)
    }

    pub(crate) fn uid(&self) -> Cow<'a, str> {
        match self.uid {
            Uid::Text(uid) => text(uid).into(),
            Uid::Number(number) => text(&format_uid(number)).to_owned().into(),
        }
    }

    pub(crate) fn version(&self) -> &'a str {
        text(self.version)
    }
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
            for (name, version, body) in [("web", "", &b""[..]), (&long, "1234567", b"body"), ("", &long, b"\0")] {
                let identity = Identity {
                    namespace: "ns".into(),
                    name: name.into(),
                    uid: uid.into(),
                    resource_version: version.into(),
                };
                let bytes = Head::write(&identity, body);
                let head = Head::read(&bytes);
                assert_eq!((head.name(), &*head.uid(), head.version(), head.body), (name, uid, version, body));
                let texts = name.len() + uid.len() + version.len() + body.len();
                assert_eq!(bytes.len() < texts, is_short, "{uid}");
                // What `write` did not write is no panic.
                for len in 0..bytes.len().min(100) {
                    _ = Head::read(&bytes[..len]).uid();
                }
            }
        }
    }
}
