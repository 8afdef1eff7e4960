//! How one object is kept.

use std::borrow::Cow;
use std::sync::Arc;

#[cfg(feature = "zstd")]
use super::compress::Dictionary;
use crate::wire::Encoding;

/// Which object it is, and which state of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity<'a> {
    /// The namespace; empty for an object without one.
    pub namespace: Cow<'a, str>,
    /// The name.
    pub name: Cow<'a, str>,
    /// The uid.
    pub uid: Cow<'a, str>,
    /// The version.
    pub resource_version: Cow<'a, str>,
}

/// One state of an object. It is never changed.
pub(super) struct Entry<D> {
    /// The head, unless the form is `Encoded`; then the body.
    bytes: Box<[u8]>,
    form: Form<D>,
    encoding: Encoding,
    /// Length of the object's bytes as they came.
    wire_len: u32,
}

/// What the body is.
pub(super) enum Form<D> {
    /// The bytes as they came, with the identity in them.
    Encoded(Places),
    /// The bytes as they came, with escapes in the identity, as JSON may have them.
    EncodedBeside(Arc<str>),
    #[cfg(feature = "zstd")]
    Compressed(Arc<str>, Option<Arc<Dictionary>>),
    /// Nothing.
    Decoded(Arc<str>, Arc<D>),
}

/// Where namespace, name, uid and version are in the bytes.
pub(super) struct Places {
    starts: [u32; 4],
    lens: [u16; 4],
}

impl Places {
    /// `None` when a text is not in the bytes as it is.
    fn of(bytes: &[u8], identity: &Identity<'_>) -> Option<Self> {
        let Identity { namespace, name, uid, resource_version } = identity;
        let mut places = Self { starts: [0; 4], lens: [0; 4] };
        let texts = [namespace, name, uid, resource_version];
        for ((start, len), text) in places.starts.iter_mut().zip(&mut places.lens).zip(texts) {
            match text {
                text if text.is_empty() => {}
                Cow::Borrowed(text) => {
                    // It may be borrowed from other bytes, of which the address says nothing.
                    let at = text.as_ptr().addr().checked_sub(bytes.as_ptr().addr())?;
                    at.checked_add(text.len()).filter(|end| *end <= bytes.len())?;
                    *start = u32::try_from(at).ok()?;
                    *len = text_len(text);
                }
                Cow::Owned(_) => return None,
            }
        }
        Some(places)
    }

    fn texts<'a>(&self, bytes: &'a [u8]) -> [&'a [u8]; 4] {
        let (mut starts, mut lens) = (self.starts.into_iter(), self.lens.into_iter());
        [(); 4].map(|()| {
            let (start, len) = (starts.next().unwrap_or_default(), lens.next().unwrap_or_default());
            bytes.get(start as usize..).and_then(|bytes| bytes.get(..len.into())).unwrap_or_default()
        })
    }

    /// It looks at neither uid nor version.
    fn is(&self, bytes: &[u8], namespace: &str, name: &str) -> bool {
        let [held_namespace, held_name, _, _] = self.texts(bytes);
        held_name == name.as_bytes() && held_namespace == namespace.as_bytes()
    }

    fn identity<'a>(&self, bytes: &'a [u8]) -> Identity<'a> {
        let [namespace, name, uid, resource_version] =
            self.texts(bytes).map(|text| Cow::from(str::from_utf8(text).unwrap_or_default()));
        Identity { namespace, name, uid, resource_version }
    }
}

impl<D> Entry<D> {
    /// Keeps these bytes as they are. The identity is borrowed from them, as far as it can be.
    pub(super) fn encoded(
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
        namespace: impl FnOnce() -> Arc<str>,
    ) -> Self {
        match Places::of(bytes, identity) {
            Some(places) => {
                Self { bytes: bytes.into(), form: Form::Encoded(places), encoding, wire_len: wire_len(bytes) }
            }
            None => Self::beside(encoding, wire_len(bytes), identity, bytes, Form::EncodedBeside(namespace())),
        }
    }

    /// Keeps the identity before a body.
    pub(super) fn beside(
        encoding: Encoding,
        wire_len: u32,
        identity: &Identity<'_>,
        body: &[u8],
        form: Form<D>,
    ) -> Self {
        let texts = [&identity.name, &identity.uid, &identity.resource_version];
        let [name, uid, version] = texts.map(|text| text_len(text).to_le_bytes());
        let [name_text, uid_text, version_text] = texts.map(|text| text.as_bytes());
        let bytes = [&name[..], &uid, &version, name_text, uid_text, version_text, body].concat().into_boxed_slice();
        Self { bytes, form, encoding, wire_len }
    }

    pub(super) fn identity(&self) -> Identity<'_> {
        match &self.form {
            Form::Encoded(places) => places.identity(&self.bytes),
            Form::EncodedBeside(namespace) | Form::Decoded(namespace, _) => self.head(namespace).0,
            #[cfg(feature = "zstd")]
            Form::Compressed(namespace, _) => self.head(namespace).0,
        }
    }

    pub(super) fn is(&self, namespace: &str, name: &str) -> bool {
        if let Form::Encoded(places) = &self.form {
            return places.is(&self.bytes, namespace, name);
        }
        let identity = self.identity();
        identity.name == name && identity.namespace == namespace
    }

    /// The bytes behind the head, if there is one.
    pub(super) fn body(&self) -> &[u8] {
        match &self.form {
            Form::Encoded(_) => &self.bytes,
            _ => self.head("").1,
        }
    }

    fn head<'a>(&'a self, namespace: &'a str) -> (Identity<'a>, &'a [u8]) {
        // Written by `beside`.
        let ([name, uid, version], rest) = lengths(&self.bytes).unwrap_or_default();
        let (name, rest) = rest.split_at_checked(name).unwrap_or_default();
        let (uid, rest) = rest.split_at_checked(uid).unwrap_or_default();
        let (version, body) = rest.split_at_checked(version).unwrap_or_default();
        let text = |bytes: &'a [u8]| Cow::from(str::from_utf8(bytes).unwrap_or_default());
        let identity =
            Identity { namespace: namespace.into(), name: text(name), uid: text(uid), resource_version: text(version) };
        (identity, body)
    }

    pub(super) fn form(&self) -> &Form<D> {
        &self.form
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    pub(super) fn wire_len(&self) -> u32 {
        self.wire_len
    }

    /// Bytes of its two allocations: itself with the counts of its `Arc`, and its box.
    pub(super) fn allocated(&self) -> usize {
        Self::allocated_with(self.bytes.len())
    }

    /// The same of one whose box has this length.
    pub(super) fn allocated_with(boxed: usize) -> usize {
        2 * size_of::<usize>() + size_of::<Self>() + boxed
    }
}

/// The longest namespace, name, uid or version, in bytes. API servers allow 253 in a name.
pub(super) const MAX_TEXT: usize = u16::MAX as usize;

/// Longer ones are refused before.
#[expect(clippy::cast_possible_truncation)]
fn text_len(text: &str) -> u16 {
    text.len() as u16
}

/// Objects of 4 GiB are refused before.
pub(super) fn wire_len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn lengths(bytes: &[u8]) -> Option<([usize; 3], &[u8])> {
    let (lens, rest) = bytes.split_first_chunk::<6>()?;
    let (lens, _) = lens.as_chunks::<2>();
    let [name, uid, version] = *lens else { return None };
    Some(([name, uid, version].map(|len| u16::from_le_bytes(len).into()), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_an_identity_only_in_the_bytes_that_have_it() {
        let whole = b"a web-1 uid-1 7|a web-1 uid-1 7";
        let (bytes, other) = whole.split_at(16);
        let identity = |text: &'static str| {
            let mut texts = text.split(' ').map(Cow::Borrowed);
            let mut next = || texts.next().unwrap_or_default();
            Identity { namespace: next(), name: next(), uid: next(), resource_version: next() }
        };
        let here = identity(str::from_utf8(&bytes[..15]).unwrap());
        let entry = Entry::<()>::encoded(Encoding::Json, bytes, &here, || "a".into());
        assert!(matches!(entry.form(), Form::Encoded(_)));
        assert_eq!(entry.identity(), here);
        // The same text elsewhere in memory, behind the bytes and before them, is not in them.
        let elsewhere = identity(str::from_utf8(other).unwrap());
        for (bytes, identity) in [(bytes, &elsewhere), (other, &here), (&bytes[..14], &here)] {
            let entry = Entry::<()>::encoded(Encoding::Json, bytes, identity, || "a".into());
            assert!(matches!(entry.form(), Form::EncodedBeside(_)));
            assert_eq!(entry.identity(), *identity);
        }
    }
}
