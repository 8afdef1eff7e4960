//! One state of one object, in its storage format.

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

#[cfg(feature = "zstd")]
use super::compress::{Base, Common};
use super::error::StoreError;
use super::head::{Head, text};
use super::key::Identity;
use crate::object::MetaView;
use crate::wire::Encoding;

/// The longest namespace, name, uid or resource version, in bytes. API servers allow 253 in a name.
pub(super) const MAX_TEXT: usize = u16::MAX as usize;

impl<'a> Identity<'a> {
    /// Reads the identity off the bytes of an object.
    pub(super) fn of(encoding: Encoding, bytes: &'a [u8]) -> Result<Self, StoreError> {
        let [namespace, name, uid, resource_version] = MetaView::new(encoding, bytes)?.into_identity();
        if name.is_empty() {
            return Err(StoreError::NoName);
        }
        for (what, text) in
            [("namespace", &namespace), ("name", &name), ("uid", &uid), ("resource version", &resource_version)]
        {
            if text.len() > MAX_TEXT {
                return Err(StoreError::TooLong(what));
            }
        }
        if u32::try_from(bytes.len()).is_err() {
            return Err(StoreError::TooLong("the whole"));
        }
        Ok(Self { namespace, name, uid, resource_version })
    }
}

/// One state of an object. It is never changed, except that it remembers a check.
pub(super) struct Entry<D> {
    /// A [head](Head), unless the form is `Encoded`; then the body.
    bytes: Box<[u8]>,
    form: Form<D>,
    encoding: Encoding,
    /// The number of the message as which the bytes were checked and are canonical; 0 if they were not checked.
    checked: AtomicU16,
    /// Length of the object's bytes as they arrived.
    wire_len: u32,
}

/// The form of the body. The head does not contain the namespace, so forms with a head hold it. Each form is at most 16 bytes long.
pub(super) enum Form<D> {
    /// The bytes as they arrived. They contain the identity.
    Encoded(Spans),
    /// The bytes as they arrived. Their JSON escapes a part of the identity, or it is far from their beginning.
    EncodedWithHead(Box<Arc<str>>),
    #[cfg(feature = "zstd")]
    Compressed(Arc<Common>),
    /// The difference to the base, which holds the namespace. An empty body is the base itself.
    #[cfg(feature = "zstd")]
    Member(Arc<Base>),
    /// An empty body, and the decoded object.
    Decoded(Box<(Arc<str>, Arc<D>)>),
}

/// The places of namespace, name, uid and resource version in the bytes.
pub(super) struct Spans {
    starts: [u16; 4],
    lens: [u8; 4],
}

impl Spans {
    /// Returns `None` if a text is not borrowed from the bytes, if it begins after 64 KiB of them, or if it is longer than 255 bytes.
    fn of(bytes: &[u8], identity: &Identity<'_>) -> Option<Self> {
        let Identity { namespace, name, uid, resource_version } = identity;
        let mut spans = Self { starts: [0; 4], lens: [0; 4] };
        let texts = [namespace, name, uid, resource_version];
        for ((start, len), text) in spans.starts.iter_mut().zip(&mut spans.lens).zip(texts) {
            match text {
                text if text.is_empty() => {}
                Cow::Borrowed(text) => {
                    // A text that is borrowed from other memory has an address outside of `bytes`.
                    let at = text.as_ptr().addr().checked_sub(bytes.as_ptr().addr())?;
                    at.checked_add(text.len()).filter(|end| *end <= bytes.len())?;
                    *start = at.try_into().ok()?;
                    *len = text.len().try_into().ok()?;
                }
                Cow::Owned(_) => return None,
            }
        }
        Some(spans)
    }

    fn texts<'a>(&self, bytes: &'a [u8]) -> [&'a [u8]; 4] {
        let (mut starts, mut lens) = (self.starts.into_iter(), self.lens.into_iter());
        [(); 4].map(|()| {
            let (start, len) = (starts.next().unwrap_or_default(), lens.next().unwrap_or_default());
            bytes.get(start.into()..).and_then(|bytes| bytes.get(..len.into())).unwrap_or_default()
        })
    }

    /// Compares namespace and name.
    fn is(&self, bytes: &[u8], namespace: &str, name: &str) -> bool {
        let [held_namespace, held_name, _, _] = self.texts(bytes);
        held_name == name.as_bytes() && held_namespace == namespace.as_bytes()
    }
}

impl<D> Entry<D> {
    /// Keeps these bytes as they are. The identity should be borrowed from them.
    pub(super) fn encoded(
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
        namespace: impl FnOnce() -> Arc<str>,
    ) -> Self {
        if let Some(spans) = Spans::of(bytes, identity) {
            let (form, checked) = (Form::Encoded(spans), AtomicU16::new(0));
            return Self { bytes: bytes.into(), form, encoding, checked, wire_len: wire_len(bytes) };
        }
        let form = Form::EncodedWithHead(Box::new(namespace()));
        Self::with_head(encoding, wire_len(bytes), identity, bytes, form)
    }

    /// Keeps the identity in a head before the body.
    pub(super) fn with_head(
        encoding: Encoding,
        wire_len: u32,
        identity: &Identity<'_>,
        body: &[u8],
        form: Form<D>,
    ) -> Self {
        let bytes = Head::write(identity, body).into_boxed_slice();
        Self { bytes, form, encoding, checked: AtomicU16::new(0), wire_len }
    }

    /// Returns namespace, name and resource version.
    pub(super) fn texts(&self) -> [&str; 3] {
        let namespace = match &self.form {
            Form::Encoded(spans) => {
                let [namespace, name, _, version] = spans.texts(&self.bytes).map(text);
                return [namespace, name, version];
            }
            Form::EncodedWithHead(namespace) => namespace,
            Form::Decoded(decoded) => &decoded.0,
            #[cfg(feature = "zstd")]
            Form::Compressed(common) => &common.namespace,
            #[cfg(feature = "zstd")]
            Form::Member(base) => &base.common.namespace,
        };
        let head = self.head();
        [namespace, head.name(), head.version()]
    }

    pub(super) fn uid(&self) -> Cow<'_, str> {
        match &self.form {
            Form::Encoded(spans) => {
                let [_, _, uid, _] = spans.texts(&self.bytes);
                text(uid).into()
            }
            _ => self.head().uid(),
        }
    }

    pub(super) fn identity(&self) -> Identity<'_> {
        let [namespace, name, resource_version] = self.texts().map(Cow::from);
        Identity { namespace, name, uid: self.uid(), resource_version }
    }

    /// Returns namespace and name.
    pub(super) fn key(&self) -> (&str, &str) {
        let [namespace, name, _] = self.texts();
        (namespace, name)
    }

    pub(super) fn resource_version(&self) -> &str {
        let [_, _, resource_version] = self.texts();
        resource_version
    }

    pub(super) fn is(&self, namespace: &str, name: &str) -> bool {
        if let Form::Encoded(spans) = &self.form {
            return spans.is(&self.bytes, namespace, name);
        }
        self.key() == (namespace, name)
    }

    /// Returns the bytes of the object as they arrived, if the entry has them.
    pub(super) fn as_encoded(&self) -> Option<&[u8]> {
        match &self.form {
            Form::Encoded(_) => Some(&self.bytes),
            Form::EncodedWithHead(_) => Some(self.body()),
            #[cfg(feature = "zstd")]
            Form::Compressed(_) | Form::Member(_) => None,
            Form::Decoded(_) => None,
        }
    }

    /// Brings the counts of the `Arc`, the entry and the beginning of its bytes into the processor's caches.
    pub(super) fn prefetch(self: &Arc<Self>) {
        black_box((Arc::strong_count(self), self.bytes.first().copied()));
    }

    /// Returns the bytes after the head.
    pub(super) fn body(&self) -> &[u8] {
        self.head().body
    }

    /// Returns the head and the body, unless the form is `Encoded`.
    pub(super) fn head(&self) -> Head<'_> {
        Head::read(&self.bytes)
    }

    pub(super) fn form(&self) -> &Form<D> {
        &self.form
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the number of the message as which the bytes were checked and are canonical; 0 if they were not checked.
    pub(super) fn checked(&self) -> u16 {
        self.checked.load(Ordering::Relaxed)
    }

    /// Remembers that the bytes are canonical as this message. An entry without bytes may be encoded differently each time, so it
    /// remembers nothing, and this returns false.
    pub(super) fn remember_checked(&self, message: u16) -> bool {
        let has_bytes = !matches!(self.form, Form::Decoded(_));
        if has_bytes {
            self.checked.store(message, Ordering::Relaxed);
        }
        has_bytes
    }

    pub(super) fn wire_len(&self) -> u32 {
        self.wire_len
    }

    /// Returns the bytes of the allocations: the entry with the counts of its `Arc`, the box, and a box of the form.
    pub(super) fn allocated(&self) -> usize {
        let form = match &self.form {
            Form::EncodedWithHead(namespace) => size_of_val(&**namespace),
            Form::Decoded(decoded) => size_of_val(&**decoded),
            _ => 0,
        };
        Self::allocated_with(self.bytes.len()) + form
    }

    /// Returns the bytes of the entry and of a box of this length.
    pub(super) fn allocated_with(boxed: usize) -> usize {
        2 * size_of::<usize>() + size_of::<Self>() + boxed
    }
}

/// `Identity::of` refuses objects of 4 GiB.
pub(super) fn wire_len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
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
        // The same text elsewhere in memory, after the bytes or before them.
        let elsewhere = identity(str::from_utf8(other).unwrap());
        for (bytes, identity) in [(bytes, &elsewhere), (other, &here), (&bytes[..14], &here)] {
            let entry = Entry::<()>::encoded(Encoding::Json, bytes, identity, || "a".into());
            assert!(matches!(entry.form(), Form::EncodedWithHead(_)));
            assert_eq!(entry.identity(), *identity);
        }
    }
}
