//! Decompresses objects for any number of threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use zstd_safe::DCtx;

use crate::compress::dictionary::{Dictionary, NamespaceDictionary};
use crate::compress::elide::{ElidedTexts, longest_elided};
use crate::compress::frame;
use crate::compress::pool::{DecoderContext, KEPT_LEN, Reference, ReferenceFrame, SharedPool};
use crate::key::Identity;
use crate::sync::lock;

/// A compressed object, as its entry has it.
pub(crate) struct CompressedObject<'a> {
    pub(crate) form: CompressedForm<'a>,
    pub(crate) identity: Identity<'a>,
    pub(crate) wire_len: u32,
}

/// The form of a compressed object.
#[derive(Clone, Copy)]
pub(crate) enum CompressedForm<'a> {
    Whole(StoredWhole<'a>),
    Delta {
        reference: &'a Arc<Reference>,
        body: &'a [u8],
    },
    /// The object has the bytes of the reference, except for its identity.
    Reference(&'a Arc<Reference>),
}

/// An object that is compressed by itself.
#[derive(Clone, Copy)]
pub(crate) struct StoredWhole<'a> {
    pub(crate) shared: &'a Arc<NamespaceDictionary>,
    pub(crate) body: &'a [u8],
    pub(crate) wire_len: u32,
}

impl CompressedForm<'_> {
    /// Returns the length of what was compressed by itself and without a dictionary.
    pub(crate) fn untrained_len(&self) -> usize {
        match self {
            Self::Whole(whole) if whole.shared.dictionary.is_none() => whole.body.len(),
            Self::Reference(reference) => {
                let frame = reference.frame();
                if frame.dictionary.is_none() { frame.body.len() } else { 0 }
            }
            Self::Whole(_) | Self::Delta { .. } => 0,
        }
    }
}

/// Decompresses for any number of threads: each borrows a context, or creates one if all are in use. Clones share the
/// contexts.
#[derive(Clone, Default)]
pub(crate) struct Decoder(Arc<SharedPool>);

impl Decoder {
    /// Returns the object's bytes; `None` when this crate did not compress them.
    pub(crate) fn decode(&self, object: &CompressedObject<'_>) -> Option<Vec<u8>> {
        let texts = ElidedTexts::of(&object.identity);
        let restore = |elided: &[u8]| texts.restore(elided, object.wire_len as usize);
        if let CompressedForm::Reference(reference) = object.form {
            return restore(&self.reference_bytes_of(reference)?);
        }
        self.with_elided(object, restore)?
    }

    /// Returns the object's bytes without what its identity has. Of a reference it keeps nothing for readers.
    pub(crate) fn decode_elided(&self, object: &CompressedObject<'_>) -> Option<Vec<u8>> {
        self.with_elided(object, <[u8]>::to_vec)
    }

    fn with_elided<R>(&self, object: &CompressedObject<'_>, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match object.form {
            CompressedForm::Reference(reference) => Some(read(&self.decode_reference(reference)?)),
            CompressedForm::Whole(whole) => self.with_context(|context| {
                let DecoderContext { whole: whole_context, frame, elided, .. } = context;
                decompress_whole(whole_context, frame, elided, whole)?;
                Some(read(elided))
            }),
            CompressedForm::Delta { reference, body } => {
                let bytes = self.reference_bytes_of(reference)?;
                self.with_context(|context| {
                    let DecoderContext { delta, frame, elided, .. } = context;
                    frame::restore(object.wire_len, body, frame);
                    elided.clear();
                    elided.reserve(longest_elided(object.wire_len as usize));
                    delta.get_or_insert_with(DCtx::create).decompress_using_dict(elided, frame, &bytes).ok()?;
                    Some(read(elided))
                })
            }
        }
    }

    /// Returns the elided bytes of an object that is stored whole.
    pub(super) fn decode_whole(&self, whole: StoredWhole<'_>) -> Option<Vec<u8>> {
        let mut elided = Vec::new();
        self.with_context(|context| decompress_whole(&mut context.whole, &mut context.frame, &mut elided, whole))?;
        Some(elided)
    }

    /// Makes a reference of an object that is stored whole.
    pub(super) fn new_reference(&self, whole: StoredWhole<'_>) -> Arc<Reference> {
        let NamespaceDictionary { namespace, dictionary } = &**whole.shared;
        let frame = ReferenceFrame { dictionary: dictionary.clone(), body: whole.body.into() };
        Reference::new(&self.0, Arc::clone(namespace), frame, whole.wire_len)
    }

    /// Returns the elided bytes of a reference, and keeps them for the next reads.
    fn reference_bytes_of(&self, reference: &Arc<Reference>) -> Option<Arc<Vec<u8>>> {
        if let Some(bytes) = lock(&self.0.pool).find(Arc::as_ptr(reference)) {
            return Some(bytes);
        }
        let mut bytes = self.decode_reference(reference)?;
        bytes.shrink_to_fit();
        let bytes = Arc::new(bytes);
        lock(&self.0.pool).keep(reference, &bytes);
        Some(bytes)
    }

    /// Decompresses the elided bytes of a reference.
    pub(super) fn decode_reference(&self, reference: &Reference) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.with_context(|context| {
            let frame = reference.frame();
            let DecoderContext { whole, frame: buffer, .. } = context;
            decompress(whole, buffer, &mut bytes, &frame.body, reference.wire_len, frame.dictionary.as_deref())
        })?;
        Some(bytes)
    }

    fn with_context<R>(&self, run: impl FnOnce(&mut DecoderContext) -> Option<R>) -> Option<R> {
        let free = lock(&self.0.pool).contexts.pop();
        let mut context = free.unwrap_or_default();
        let result = run(&mut context);
        context.frame.shrink_to(KEPT_LEN);
        context.elided.shrink_to(KEPT_LEN);
        lock(&self.0.pool).contexts.push(context);
        result
    }

    /// Returns the bytes of all references.
    pub(super) fn reference_bytes(&self) -> usize {
        self.0.reference_bytes.load(Ordering::Relaxed)
    }

    /// Returns the other bytes from Rust's allocator.
    pub(super) fn buffer_bytes(&self) -> usize {
        lock(&self.0.pool).buffer_bytes()
    }

    /// Returns the bytes that zstd has allocated.
    pub(super) fn zstd_bytes(&self) -> usize {
        lock(&self.0.pool).zstd_bytes()
    }
}

fn decompress_whole(
    context: &mut Option<DCtx<'static>>,
    frame: &mut Vec<u8>,
    elided: &mut Vec<u8>,
    StoredWhole { shared, body, wire_len }: StoredWhole<'_>,
) -> Option<()> {
    decompress(context, frame, elided, body, wire_len, shared.dictionary.as_deref())
}

/// Replaces `elided` by the decompressed bytes of a body. `frame` is a buffer.
fn decompress(
    context: &mut Option<DCtx<'static>>,
    frame: &mut Vec<u8>,
    elided: &mut Vec<u8>,
    body: &[u8],
    wire_len: u32,
    dictionary: Option<&Dictionary>,
) -> Option<()> {
    frame::restore(wire_len, body, frame);
    elided.clear();
    elided.reserve(longest_elided(wire_len as usize));
    let context = context.get_or_insert_with(DCtx::create);
    let done = match dictionary {
        Some(dictionary) => context.decompress_using_ddict(elided, frame, &dictionary.decompress),
        None => context.decompress(elided, frame),
    };
    done.ok().map(|_| ())
}
