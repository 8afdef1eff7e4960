//! Elision: the bytes of an object without the texts that its entry contains anyway.
//!
//! A text is replaced by two bytes, the marker and the number of the text. The marker never occurs in UTF-8, so only
//! invalid JSON contains it; protobuf contains it in numbers and in binary data.

use memchr::{memchr, memchr_iter, memmem};
use smallvec::SmallVec;

use crate::key::Identity;

/// The byte before a text's number, which no text in UTF-8 contains (RFC 3629, section 3).
pub(super) const MARKER: u8 = 0xf8;
/// The number that follows a marker which the object itself contains. Smaller numbers name a text.
const ESCAPED: u8 = 6;
const TEXTS: usize = 6;
/// The length of the shortest text that is replaced. A dictionary handles shorter ones well.
const SHORTEST: usize = 4;

/// An object after the elision.
pub(crate) struct ElidedObject {
    pub(super) bytes: Vec<u8>,
    /// The length of the object before the elision.
    pub(super) wire_len: u32,
}

impl ElidedObject {
    /// Elides the bytes of an object. Returns `None` if it is longer than 4 GiB, or would grow much because it contains
    /// many markers.
    pub(crate) fn of(identity: &Identity<'_>, bytes: &[u8]) -> Option<Self> {
        let (wire_len, mut elided) = (bytes.len().try_into().ok()?, Vec::new());
        ElidedTexts::of(identity).elide(bytes, &mut elided)?;
        Some(Self { bytes: elided, wire_len })
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the object's bytes, or `None` if they were elided with another identity.
    pub(super) fn restore(&self, identity: &Identity<'_>) -> Option<Vec<u8>> {
        ElidedTexts::of(identity).restore(&self.bytes, self.wire_len as usize)
    }
}

impl AsRef<[u8]> for ElidedObject {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The texts that an entry contains: uid, name, namespace and resource version. They are followed by the parts of the
/// name before and after its last hyphen or dot, because these parts also occur alone: the name of a `ReplicaSet` is
/// the name of its Deployment, a hyphen and a hash, and the labels of the `ReplicaSet` contain the hash.
pub(super) struct ElidedTexts<'a>([&'a str; TEXTS]);

/// A text to replace: its place, its length, and the number that follows the marker.
type Occurrence = (usize, usize, u8);

impl<'a> ElidedTexts<'a> {
    pub(super) fn of(identity: &'a Identity<'_>) -> Self {
        let Identity { namespace, name, uid, resource_version } = identity;
        let (before, after) = name.rsplit_once(['-', '.']).unwrap_or_default();
        Self([uid, name, namespace, resource_version, before, after])
    }

    /// Replaces `elided` by the bytes without the texts. Returns `None` if the result exceeds [`longest_elided`].
    pub(super) fn elide(&self, bytes: &[u8], elided: &mut Vec<u8>) -> Option<()> {
        let mut occurrences: SmallVec<[Occurrence; 32]> = SmallVec::new();
        occurrences.extend(memchr_iter(MARKER, bytes).map(|at| (at, 1, ESCAPED)));
        for (text, number) in self.0.iter().zip(0..) {
            if text.len() >= SHORTEST {
                occurrences.extend(memmem::find_iter(bytes, text).map(|at| (at, text.len(), number)));
            }
        }
        // Among texts at the same place, the longest comes first, because the namespace may be the beginning of the
        // name.
        occurrences.sort_unstable_by_key(|(at, len, _)| (*at, usize::MAX - len));
        elided.clear();
        elided.reserve(bytes.len() + occurrences.len());
        let mut done = 0;
        for (at, len, number) in occurrences {
            // Otherwise, an earlier text covers this one.
            if let Some(before) = bytes.get(done..at) {
                elided.extend_from_slice(before);
                elided.extend_from_slice(&[MARKER, number]);
                done = at + len;
            }
        }
        elided.extend_from_slice(bytes.get(done..)?);
        (elided.len() <= longest_elided(bytes.len())).then_some(())
    }

    /// Returns the bytes of an object of this length; `None` if they have another length, or if [`elide`](Self::elide)
    /// did not write the elided bytes.
    pub(super) fn restore(&self, elided: &[u8], len: usize) -> Option<Vec<u8>> {
        let (mut bytes, mut rest) = (Vec::with_capacity(len), elided);
        while let Some(at) = memchr(MARKER, rest) {
            let (before, after) = rest.split_at_checked(at)?;
            let [_, number, after @ ..] = after else { return None };
            let text = match self.0.get(usize::from(*number)) {
                Some(text) => text.as_bytes(),
                None => &[MARKER],
            };
            // A forged file may repeat a long text.
            if before.len() + text.len() > len - bytes.len() {
                return None;
            }
            bytes.extend_from_slice(before);
            bytes.extend_from_slice(text);
            rest = after;
        }
        (rest.len() == len - bytes.len()).then(|| {
            bytes.extend_from_slice(rest);
            bytes
        })
    }
}

/// Returns the most bytes that an object of this length may have after the elision. Random bytes grow by a 256th.
pub(super) fn longest_elided(len: usize) -> usize {
    len + len / 64 + 64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity([namespace, name, uid, resource_version]: [&str; 4]) -> Identity<'_> {
        Identity {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            resource_version: resource_version.into(),
        }
    }

    #[test]
    fn texts_of_the_identity_are_elided_and_restored() {
        let texts = ["shop", "shop-web-1", "0123-uid", "1234567"];
        for (bytes, expected) in [
            (&b""[..], Some(0)),
            (b"nothing of it", Some(13)),
            (b"shop-web-1", Some(2)),
            (b"name: shop-web-1 in shop, 0123-uid at 1234567", Some(6 + 2 + 4 + 2 + 2 + 2 + 4 + 2)),
            (b"shopshopshop-web-10123-uid", Some(8)),
            // A text that another one covers in part.
            (b"shop-web-1shop-web-", Some(2 + 2 + 1)),
            (b"shop-we", Some(2 + 3)),
            (b"\xf8\x00\xf8", Some(5)),
            (b"\xf8shop\xf8", Some(6)),
            (b"xshop-web-1234567", Some(1 + 2 + 6)),
        ] {
            let identity = identity(texts);
            let (texts, mut elided) = (ElidedTexts::of(&identity), vec![7]);
            assert_eq!(texts.elide(bytes, &mut elided).map(|()| elided.len()), expected, "{}", bytes.escape_ascii());
            assert_eq!(texts.restore(&elided, bytes.len()).as_deref(), Some(bytes));
            for len in (0..40).filter(|len| *len != bytes.len()) {
                assert_eq!(texts.restore(&elided, len), None);
            }
        }
    }

    #[test]
    fn parts_of_the_name_are_elided() {
        for (name, bytes, expected) in [
            (
                "shop-web-5d8f7",
                &b"app: shop-web, hash: 5d8f7, of shop-web-5d8f7"[..],
                &b"app: \xf8\x04, hash: \xf8\x05, of \xf8\x01"[..],
            ),
            ("shop-web.17ab", b"shop-web 17ab shop", b"\xf8\x04 \xf8\x05 shop"),
            ("web-5d8", b"web 5d8 web-5d8", b"web 5d8 \xf8\x01"),
            ("shop", b"shop-", b"\xf8\x01-"),
            ("shop-", b"shop shop-", b"\xf8\x04 \xf8\x01"),
            ("-shop", b"shop -shop", b"\xf8\x05 \xf8\x01"),
        ] {
            let identity = identity(["", name, "", ""]);
            let (texts, mut elided) = (ElidedTexts::of(&identity), Vec::new());
            texts.elide(bytes, &mut elided).unwrap();
            assert_eq!(elided, expected, "{name}");
            assert_eq!(texts.restore(&elided, bytes.len()).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn short_texts_stay() {
        let identity = identity(["a", "web", "", "1"]);
        let mut elided = Vec::new();
        ElidedTexts::of(&identity).elide(b"a web 1", &mut elided).unwrap();
        assert_eq!(elided, b"a web 1");
    }

    #[test]
    fn bytes_that_grow_much_are_refused() {
        let identity = identity(["a", "web", "", "1"]);
        let mut elided = Vec::new();
        assert_eq!(ElidedTexts::of(&identity).elide(&[MARKER; 64], &mut elided), Some(()));
        assert_eq!(ElidedTexts::of(&identity).elide(&[MARKER; 70], &mut elided), None);
    }

    #[test]
    fn forged_bytes_are_refused() {
        let name = "x".repeat(1 << 16);
        let identity = identity(["a", &name, "", "1"]);
        let texts = ElidedTexts::of(&identity);
        for forged in [&[MARKER][..], &[b'a', MARKER], &[MARKER, 1].repeat(1 << 16)] {
            assert_eq!(texts.restore(forged, 1 << 16), None);
        }
        // Any other number is a marker.
        assert_eq!(texts.restore(&[MARKER, 77], 1), Some(vec![MARKER]));
    }
}
