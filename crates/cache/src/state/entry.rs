//! One state of one object, in its storage format.

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use listwatch::{Encoding, ItemRef, MetaView};
use triomphe::ThinArc;

use crate::compress::decoder::{CompressedForm, CompressedObject};
use crate::compress::dictionary::{NamespaceDictionary, StoredWhole};
use crate::compress::pool::Reference;
use crate::error::StoreError;
use crate::key::Identity;
use crate::state::head::{Head, text};

/// The longest namespace, name, uid or resource version, in bytes. API servers allow 253 in a name.
pub(crate) const MAX_TEXT: usize = u16::MAX as usize;

/// The form in which a [`Store`](crate::Store) keeps objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StorageFormat {
    /// The bytes as they arrived, which readers decode.
    #[default]
    Encoded,
    /// Compressed with zstd, mostly as the delta to a similar object of the same owner. Readers decompress the object.
    ///
    /// The store trains a dictionary while it grows, and another one when its objects no longer resemble it. The write
    /// that trains takes about 0.1 s, and other writes wait for it. The next writes each compress a few objects again
    /// with the new dictionary, until none uses the old one. An object that does not become shorter is kept encoded,
    /// and so are the latest changes, which are compressed together. The chapter on caching has the sizes and costs.
    Compressed,
}

impl<'a> Identity<'a> {
    /// Reads the identity from the bytes of an object.
    pub(crate) fn of(object: ItemRef<'a>) -> Result<Self, StoreError> {
        Self::of_meta(&object.meta()?, object.bytes().len())
    }

    pub(crate) fn of_meta(meta: &MetaView<'a>, len: usize) -> Result<Self, StoreError> {
        let (namespace, name, uid, resource_version) =
            (meta.namespace(), meta.name(), meta.uid(), meta.resource_version());
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
        if u32::try_from(len).is_err() {
            return Err(StoreError::TooLong("the whole"));
        }
        Ok(Self { namespace, name, uid, resource_version })
    }
}

/// A counted reference to one state of an object. One allocation contains the count, the form, and the bytes with their
/// length: a [head](Head) and the body, or only the body if the form is `Encoded`.
///
/// A state is never changed, except for its [`Marks`].
#[derive(Clone)]
pub(crate) struct Entry(ThinArc<EntryForm, u8>);

/// The form of the body, in 16 bytes. Each form contains the encoding, the marks and the length of the object's bytes
/// as they arrived, because these fill the space before its pointer.
///
/// The head does not contain the namespace, so forms with a head do.
pub(crate) enum EntryForm {
    /// The bytes as they arrived, which contain the identity.
    Encoded { encoding: Encoding, marks: Marks, spans: Spans },
    /// The bytes as they arrived, if JSON escapes a part of the identity or it is far from the beginning.
    EncodedWithHead { encoding: Encoding, marks: Marks, wire_len: u32, namespace: Box<Arc<str>> },
    /// Compressed by itself.
    Whole { encoding: Encoding, marks: Marks, wire_len: u32, shared: Arc<NamespaceDictionary> },
    /// The delta to the reference, which contains the namespace. An empty body stands for the reference itself.
    Delta { encoding: Encoding, marks: Marks, wire_len: u32, reference: Arc<Reference> },
}

/// What is remembered about a state: [`UNDECODABLE`], and above it the number of the message as which the bytes were
/// checked and found canonical, or 0 if they were not checked.
#[derive(Default)]
pub(crate) struct Marks(AtomicU16);

/// A reader could not decode this state.
const UNDECODABLE: u16 = 1;

const CHECKED_SHIFT: u32 = 1;

impl Marks {
    fn is_undecodable(&self) -> bool {
        self.0.load(Ordering::Relaxed) & UNDECODABLE != 0
    }

    /// Returns false if the mark was set before.
    fn set_undecodable(&self) -> bool {
        self.0.fetch_or(UNDECODABLE, Ordering::Relaxed) & UNDECODABLE == 0
    }

    fn checked(&self) -> u16 {
        self.0.load(Ordering::Relaxed) >> CHECKED_SHIFT
    }

    /// Returns false if the number is too large.
    fn set_checked(&self, number: u16) -> bool {
        let shifted = number << CHECKED_SHIFT;
        let set = |marks| Some(marks & UNDECODABLE | shifted);
        shifted >> CHECKED_SHIFT == number && self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set).is_ok()
    }
}

/// The places of namespace, name, uid and resource version in the bytes.
pub(crate) struct Spans {
    starts: [u16; 4],
    lens: [u8; 4],
}

impl Spans {
    /// Returns `None` if a text is not borrowed from the bytes, begins after 64 KiB of them, or is longer than 255
    /// bytes.
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

    fn is(&self, bytes: &[u8], namespace: &str, name: &str) -> bool {
        let [held_namespace, held_name, _, _] = self.texts(bytes);
        held_name == name.as_bytes() && held_namespace == namespace.as_bytes()
    }
}

impl Entry {
    fn new(form: EntryForm, bytes: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice(form, bytes))
    }

    fn bytes(&self) -> &[u8] {
        &self.0.slice
    }

    /// Returns the address of the state, which no other state has while a reference to this one exists.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.address() == other.address()
    }

    pub(crate) fn references(&self) -> usize {
        ThinArc::strong_count(&self.0)
    }

    /// Keeps these bytes as they are. The identity should borrow from them.
    pub(crate) fn encoded(
        encoding: Encoding,
        bytes: &[u8],
        identity: &Identity<'_>,
        namespace: impl FnOnce() -> Arc<str>,
    ) -> Self {
        let marks = Marks::default();
        if let Some(spans) = Spans::of(bytes, identity) {
            return Self::new(EntryForm::Encoded { encoding, marks, spans }, bytes);
        }
        let (wire_len, namespace) = (wire_len(bytes), Box::new(namespace()));
        Self::new(EntryForm::EncodedWithHead { encoding, marks, wire_len, namespace }, &Head::write(identity, bytes))
    }

    /// Keeps the identity and a body that was compressed by itself.
    pub(crate) fn whole(
        encoding: Encoding,
        wire_len: u32,
        identity: &Identity<'_>,
        body: &[u8],
        shared: Arc<NamespaceDictionary>,
    ) -> Self {
        let form = EntryForm::Whole { encoding, marks: Marks::default(), wire_len, shared };
        Self::new(form, &Head::write(identity, body))
    }

    /// Keeps the identity and the delta to the reference.
    pub(crate) fn delta(
        encoding: Encoding,
        wire_len: u32,
        identity: &Identity<'_>,
        body: &[u8],
        reference: Arc<Reference>,
    ) -> Self {
        let form = EntryForm::Delta { encoding, marks: Marks::default(), wire_len, reference };
        Self::new(form, &Head::write(identity, body))
    }

    /// Keeps the same delta, to a reference with the same bytes.
    pub(crate) fn to_reference(&self, reference: Arc<Reference>) -> Self {
        let (encoding, wire_len) = (self.encoding(), self.wire_len());
        Self::new(EntryForm::Delta { encoding, marks: Marks::default(), wire_len, reference }, self.bytes())
    }

    pub(crate) fn key(&self) -> (&str, &str) {
        let namespace = match self.form() {
            EntryForm::Encoded { spans, .. } => {
                let [namespace, name, ..] = spans.texts(self.bytes()).map(text);
                return (namespace, name);
            }
            EntryForm::EncodedWithHead { namespace, .. } => namespace,
            EntryForm::Whole { shared, .. } => &shared.namespace,
            EntryForm::Delta { reference, .. } => reference.namespace(),
        };
        (namespace, self.head().name())
    }

    pub(crate) fn uid(&self) -> Cow<'_, str> {
        self.head().uid()
    }

    pub(crate) fn resource_version(&self) -> Cow<'_, str> {
        self.head().version()
    }

    /// Returns the number of the resource version, if it is a number.
    pub(crate) fn version_number(&self) -> Option<u64> {
        self.head().version_number()
    }

    pub(crate) fn identity(&self) -> Identity<'_> {
        let ((namespace, name), head) = (self.key(), self.head());
        Identity { namespace: namespace.into(), name: name.into(), uid: head.uid(), resource_version: head.version() }
    }

    pub(crate) fn is(&self, namespace: &str, name: &str) -> bool {
        if let EntryForm::Encoded { spans, .. } = self.form() {
            return spans.is(self.bytes(), namespace, name);
        }
        self.key() == (namespace, name)
    }

    /// Returns the bytes of the object as they arrived, if the entry has them.
    pub(crate) fn as_encoded(&self) -> Option<&[u8]> {
        match self.form() {
            EntryForm::Encoded { .. } => Some(self.bytes()),
            EntryForm::EncodedWithHead { .. } => Some(self.body()),
            EntryForm::Whole { .. } | EntryForm::Delta { .. } => None,
        }
    }

    /// Returns the object for a decoder, if it is compressed.
    pub(crate) fn compressed(&self) -> Option<CompressedObject<'_>> {
        let form = match self.form() {
            EntryForm::Whole { .. } => self.stored_whole().map(CompressedForm::Whole)?,
            EntryForm::Delta { reference, .. } => match self.body() {
                [] => CompressedForm::Reference(reference),
                body => CompressedForm::Delta { reference, body },
            },
            EntryForm::Encoded { .. } | EntryForm::EncodedWithHead { .. } => return None,
        };
        Some(CompressedObject { form, identity: self.identity(), wire_len: self.wire_len() })
    }

    /// Returns the object if it is compressed by itself.
    pub(crate) fn stored_whole(&self) -> Option<StoredWhole<'_>> {
        match self.form() {
            EntryForm::Whole { shared, wire_len, .. } => {
                Some(StoredWhole { shared, body: self.body(), wire_len: *wire_len })
            }
            _ => None,
        }
    }

    pub(crate) fn reference(&self) -> Option<&Arc<Reference>> {
        match self.form() {
            EntryForm::Delta { reference, .. } => Some(reference),
            _ => None,
        }
    }

    /// Brings the count, the form and the beginning of the bytes into the processor's caches.
    pub(crate) fn prefetch(&self) {
        black_box((self.wire_len(), self.bytes().get(32).copied()));
    }

    pub(crate) fn body(&self) -> &[u8] {
        self.head().body
    }

    /// Returns the head and the body. In the form `Encoded`, all bytes are the body, and it contains the texts.
    fn head(&self) -> Head<'_> {
        match self.form() {
            EntryForm::Encoded { spans, .. } => {
                let [_, name, uid, version] = spans.texts(self.bytes());
                Head::of_texts([name, uid, version], self.bytes())
            }
            _ => Head::read(self.bytes()),
        }
    }

    pub(crate) fn form(&self) -> &EntryForm {
        &self.0.header.header
    }

    pub(crate) fn encoding(&self) -> Encoding {
        match self.form() {
            EntryForm::Encoded { encoding, .. }
            | EntryForm::EncodedWithHead { encoding, .. }
            | EntryForm::Whole { encoding, .. }
            | EntryForm::Delta { encoding, .. } => *encoding,
        }
    }

    /// Returns the number of the message as which the bytes were checked and found canonical, or 0 if they were not
    /// checked.
    pub(crate) fn checked(&self) -> u16 {
        self.marks().checked()
    }

    /// Notes that this state cannot be decoded. Returns true at the first call.
    pub(crate) fn set_undecodable(&self) -> bool {
        self.marks().set_undecodable()
    }

    /// Notes that the bytes are canonical as this message. Returns false for a number of more than 15 bits, which does
    /// not fit.
    pub(crate) fn remember_checked(&self, message: u16) -> bool {
        self.marks().set_checked(message)
    }

    /// Copies the marks of another form of the same state.
    pub(crate) fn keep_marks_of(&self, old: &Self) {
        self.remember_checked(old.marks().checked());
        if old.marks().is_undecodable() {
            self.marks().set_undecodable();
        }
    }

    fn marks(&self) -> &Marks {
        match self.form() {
            EntryForm::Encoded { marks, .. }
            | EntryForm::EncodedWithHead { marks, .. }
            | EntryForm::Whole { marks, .. }
            | EntryForm::Delta { marks, .. } => marks,
        }
    }

    pub(crate) fn wire_len(&self) -> u32 {
        match self.form() {
            EntryForm::Encoded { .. } => wire_len(self.bytes()),
            EntryForm::EncodedWithHead { wire_len, .. }
            | EntryForm::Whole { wire_len, .. }
            | EntryForm::Delta { wire_len, .. } => *wire_len,
        }
    }

    /// Returns the bytes of the allocation, and of a box of the form.
    pub(crate) fn allocated(&self) -> usize {
        let form = match self.form() {
            EntryForm::EncodedWithHead { namespace, .. } => size_of_val(&**namespace),
            _ => 0,
        };
        Self::allocated_with(self.bytes().len()) + form
    }

    /// Returns the length of the allocation for this many bytes.
    pub(crate) fn allocated_with(bytes: usize) -> usize {
        2 * size_of::<usize>() + size_of::<EntryForm>() + bytes
    }
}

/// `Identity::of` refuses objects of 4 GiB.
pub(crate) fn wire_len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_takes_16_bytes() {
        assert_eq!(size_of::<EntryForm>(), 16);
    }

    #[test]
    fn marks_keep_each_other() {
        let marks = Marks::default();
        assert!(marks.set_checked(7) && !marks.is_undecodable());
        assert!(marks.set_undecodable() && !marks.set_undecodable());
        for number in [1, (1 << 15) - 1, 0] {
            assert!(marks.set_checked(number));
            assert_eq!((marks.checked(), marks.is_undecodable()), (number, true));
        }
        assert!(!marks.set_checked(1 << 15));
    }

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
        let entry = Entry::encoded(Encoding::Json, bytes, &here, || "a".into());
        assert!(matches!(entry.form(), EntryForm::Encoded { .. }));
        assert_eq!(entry.identity(), here);
        // The same text elsewhere in memory, after the bytes or before them.
        let elsewhere = identity(str::from_utf8(other).unwrap());
        for (bytes, identity) in [(bytes, &elsewhere), (other, &here), (&bytes[..14], &here)] {
            let entry = Entry::encoded(Encoding::Json, bytes, identity, || "a".into());
            assert!(matches!(entry.form(), EntryForm::EncodedWithHead { .. }));
            assert_eq!(entry.identity(), *identity);
        }
    }
}
