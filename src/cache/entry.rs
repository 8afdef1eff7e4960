//! How one object is kept.

use std::borrow::Cow;
use std::sync::Arc;

#[cfg(feature = "zstd")]
use super::compress::Dictionary;
use crate::decode::Encoding;
use crate::item::MetaView;

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
    /// Protobuf as it came, off which the identity is read.
    Encoded,
    /// JSON as it came, which would have to be parsed to its end for the identity.
    EncodedJson(Arc<str>),
    #[cfg(feature = "zstd")]
    Compressed(Arc<str>, Option<Arc<Dictionary>>),
    /// Nothing.
    Decoded(Arc<str>, Arc<D>),
}

impl<D> Entry<D> {
    /// Keeps these bytes as they are.
    pub(super) fn encoded(encoding: Encoding, bytes: &[u8], identity: &Identity<'_>, namespace: Arc<str>) -> Self {
        match encoding {
            Encoding::Protobuf => {
                Self { bytes: bytes.into(), form: Form::Encoded, encoding, wire_len: wire_len(bytes) }
            }
            Encoding::Json => Self::beside(encoding, wire_len(bytes), identity, bytes, Form::EncodedJson(namespace)),
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
        let [name, uid, version] = texts.map(|text| Self::text_len(text).to_le_bytes());
        let [name_text, uid_text, version_text] = texts.map(|text| text.as_bytes());
        let bytes = [&name[..], &uid, &version, name_text, uid_text, version_text, body].concat().into_boxed_slice();
        Self { bytes, form, encoding, wire_len }
    }

    /// No text of a head is longer than `MAX_TEXT`.
    #[expect(clippy::cast_possible_truncation)]
    fn text_len(text: &str) -> u16 {
        text.len() as u16
    }

    pub(super) fn identity(&self) -> Identity<'_> {
        match &self.form {
            // It was read when the object came.
            Form::Encoded => MetaView::new(&self.bytes).map(MetaView::into_identity).unwrap_or_default(),
            Form::EncodedJson(namespace) | Form::Decoded(namespace, _) => self.head(namespace).0,
            #[cfg(feature = "zstd")]
            Form::Compressed(namespace, _) => self.head(namespace).0,
        }
    }

    pub(super) fn is(&self, namespace: &str, name: &str) -> bool {
        let identity = self.identity();
        identity.name == name && identity.namespace == namespace
    }

    /// The bytes behind the head, if there is one.
    pub(super) fn body(&self) -> &[u8] {
        match &self.form {
            Form::Encoded => &self.bytes,
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
        2 * size_of::<usize>() + size_of::<Self>() + self.bytes.len()
    }
}

/// The longest name, uid or version that a head has room for, in bytes. API servers allow 253 in a name.
pub(super) const MAX_TEXT: usize = u16::MAX as usize;

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
