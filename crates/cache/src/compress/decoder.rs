//! Decompresses objects for any number of threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use zstd_safe::DCtx;

use crate::compress::dictionary::StoredWhole;
use crate::compress::elide::{ElidedTexts, longest_elided};
use crate::compress::frame;
use crate::compress::pack::{self, PackedObject};
use crate::compress::pool::{DecoderContext, KEPT_LEN, Reference, SharedPool};
use crate::key::Identity;
use crate::sync::lock;

/// A compressed object, as its entry has it.
pub(crate) struct CompressedObject<'a> {
    pub(crate) form: CompressedForm<'a>,
    pub(crate) identity: Identity<'a>,
    pub(crate) wire_len: u32,
}

#[derive(Clone, Copy)]
pub(crate) enum CompressedForm<'a> {
    Whole(StoredWhole<'a>),
    Delta {
        reference: &'a Arc<Reference>,
        body: &'a [u8],
    },
    /// The object has the same bytes as the reference, except for its identity.
    Reference(&'a Arc<Reference>),
}

impl CompressedForm<'_> {
    /// Returns the length of the body if it was compressed by itself and without a dictionary.
    pub(crate) fn untrained_len(&self) -> usize {
        let whole = match self {
            Self::Whole(whole) => *whole,
            Self::Reference(reference) => reference.object(),
            Self::Delta { .. } => return 0,
        };
        if whole.shared.dictionary.is_none() { whole.body.len() } else { 0 }
    }
}

/// Decompresses objects for any number of threads.
///
/// A thread borrows a context, or creates one if all are in use. As many contexts are kept as the machine has cores,
/// and clones share them.
#[derive(Clone, Default)]
pub(crate) struct Decoder(Arc<SharedPool>);

impl Decoder {
    /// Returns the object's bytes, or `None` if this crate did not compress them.
    pub(crate) fn decode(&self, object: &CompressedObject<'_>) -> Option<Vec<u8>> {
        let texts = ElidedTexts::of(&object.identity);
        let restore = |elided: &[u8]| texts.restore(elided, object.wire_len as usize);
        if let CompressedForm::Reference(reference) = object.form {
            let packed = self.packed_reference(reference)?;
            return self.with_context(|context| {
                pack::unpack(&packed, longest_elided(object.wire_len as usize), &mut context.elided)?;
                restore(&context.elided)
            });
        }
        self.with_elided(object, restore)?
    }

    /// Returns the object's bytes after the elision. A reference that is decompressed for this is not kept for readers.
    pub(crate) fn decode_elided(&self, object: &CompressedObject<'_>) -> Option<Vec<u8>> {
        self.with_elided(object, <[u8]>::to_vec)
    }

    fn with_elided<R>(&self, object: &CompressedObject<'_>, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let unpack = |context: &mut DecoderContext| {
            pack::unpack(&context.packed, longest_elided(object.wire_len as usize), &mut context.elided)?;
            Some(read(&context.elided))
        };
        let whole = match object.form {
            CompressedForm::Whole(whole) => whole,
            CompressedForm::Reference(reference) => reference.object(),
            CompressedForm::Delta { reference, body } => {
                // The reference comes before the context, because reading a reference takes a context too.
                let reference = self.packed_reference(reference)?;
                return self.with_context(|context| {
                    read_delta(context, object.wire_len, body, &reference.bytes)?;
                    unpack(context)
                });
            }
        };
        self.with_context(|context| {
            read_whole(context, whole)?;
            unpack(context)
        })
    }

    /// Replaces `packed` by an object that is stored whole.
    pub(super) fn read_whole(&self, whole: StoredWhole<'_>, packed: &mut PackedObject) -> Option<()> {
        self.with_context(|context| {
            read_whole(context, whole)?;
            packed.copy_from(&context.packed);
            Some(())
        })
    }

    pub(crate) fn new_reference(&self, whole: StoredWhole<'_>) -> Arc<Reference> {
        Reference::new(&self.0, whole)
    }

    /// Returns a reference, and keeps it for the next reads.
    fn packed_reference(&self, reference: &Arc<Reference>) -> Option<Arc<PackedObject>> {
        if let Some(packed) = lock(&self.0.pool).find(Arc::as_ptr(reference)) {
            return Some(packed);
        }
        let mut packed = PackedObject::default();
        self.read_whole(reference.object(), &mut packed)?;
        let packed = Arc::new(packed);
        lock(&self.0.pool).keep(reference, &packed);
        Some(packed)
    }

    fn with_context<R>(&self, run: impl FnOnce(&mut DecoderContext) -> Option<R>) -> Option<R> {
        let free = lock(&self.0.pool).take_context();
        let mut context = free.unwrap_or_default();
        let result = run(&mut context);
        for buffer in [&mut context.frame, &mut context.packed.bytes, &mut context.elided] {
            buffer.shrink_to(KEPT_LEN);
        }
        // A surplus context is dropped after the lock is released.
        let _surplus = lock(&self.0.pool).put_context(context);
        result
    }

    pub(super) fn reference_bytes(&self) -> usize {
        self.0.reference_bytes.load(Ordering::Relaxed)
    }

    /// Returns the other bytes from Rust's allocator.
    pub(super) fn buffer_bytes(&self) -> usize {
        lock(&self.0.pool).buffer_bytes()
    }

    pub(super) fn zstd_bytes(&self) -> usize {
        lock(&self.0.pool).zstd_bytes()
    }
}

/// Replaces the context's packed object by an object that is stored whole.
pub(super) fn read_whole(context: &mut DecoderContext, object: StoredWhole<'_>) -> Option<()> {
    let (values_len, body) = pack::split(object.body)?;
    let (values, body) = body.split_at_checked(values_len)?;
    let DecoderContext { whole, frame, packed, .. } = context;
    restore(object.wire_len, body, frame, packed);
    let whole = whole.get_or_insert_with(DCtx::create);
    let text_len = match &object.shared.dictionary {
        Some(dictionary) => whole.decompress_using_ddict(&mut packed.bytes, frame, &dictionary.decompress),
        None => whole.decompress(&mut packed.bytes, frame),
    };
    packed.text_len = text_len.ok()?;
    packed.bytes.extend_from_slice(values);
    Some(())
}

/// Replaces the context's packed object by the delta to a reference.
pub(super) fn read_delta(context: &mut DecoderContext, wire_len: u32, body: &[u8], reference: &[u8]) -> Option<()> {
    let (values_len, body) = pack::split(body)?;
    let DecoderContext { delta, frame, packed, .. } = context;
    restore(wire_len, body, frame, packed);
    let delta = delta.get_or_insert_with(DCtx::create);
    let len = delta.decompress_using_dict(&mut packed.bytes, frame, reference).ok()?;
    packed.text_len = len.checked_sub(values_len)?;
    Some(())
}

/// Restores a frame, and makes room for its contents.
fn restore(wire_len: u32, body: &[u8], frame: &mut Vec<u8>, packed: &mut PackedObject) {
    frame::restore(wire_len, body, frame);
    packed.bytes.clear();
    packed.bytes.reserve(longest_elided(wire_len as usize));
}
