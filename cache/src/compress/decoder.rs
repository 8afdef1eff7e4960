//! Decompresses objects for any number of threads.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use zstd_safe::DCtx;

use crate::compress::dictionary::{Dictionary, NamespaceDictionary};
use crate::compress::frame::{append_suffix, frame_start};
use crate::compress::pool::{DecoderContext, KEPT_LEN, Reference, ReferenceFrame, SharedPool};
use crate::sync::lock;

/// A compressed object, as its entry has it.
pub(crate) enum CompressedObject<'a> {
    Whole(StoredWhole<'a>),
    /// `suffix` is name, uid and resource version.
    Delta {
        reference: &'a Arc<Reference>,
        suffix: [Cow<'a, str>; 3],
        body: &'a [u8],
        wire_len: u32,
    },
    /// The object has the bytes of the reference.
    Reference(&'a Arc<Reference>),
}

/// An object that is compressed by itself.
#[derive(Clone, Copy)]
pub(crate) struct StoredWhole<'a> {
    pub(crate) shared: &'a Arc<NamespaceDictionary>,
    pub(crate) body: &'a [u8],
    pub(crate) wire_len: u32,
}

impl CompressedObject<'_> {
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
        match object {
            CompressedObject::Whole(whole) => self.decode_whole(*whole),
            CompressedObject::Delta { reference, suffix, body, wire_len } => {
                let [name, uid, version] = suffix;
                self.decode_delta(reference, [name.as_bytes(), uid.as_bytes(), version.as_bytes()], body, *wire_len)
            }
            CompressedObject::Reference(reference) => self.reference_bytes_of(reference).map(|bytes| bytes.to_vec()),
        }
    }

    pub(super) fn decode_whole(&self, whole: StoredWhole<'_>) -> Option<Vec<u8>> {
        let StoredWhole { shared, body, wire_len } = whole;
        let mut bytes = Vec::new();
        self.with_context(|context| {
            decompress(&mut context.whole, &mut bytes, body, wire_len, shared.dictionary.as_deref())
        })?;
        Some(bytes)
    }

    /// Makes a reference of an object that is stored whole.
    pub(super) fn new_reference(&self, whole: StoredWhole<'_>) -> Arc<Reference> {
        let NamespaceDictionary { namespace, dictionary } = &**whole.shared;
        let frame = ReferenceFrame { dictionary: dictionary.clone(), body: whole.body.into() };
        Reference::new(&self.0, Arc::clone(namespace), frame, whole.wire_len)
    }

    /// Returns the bytes of a reference.
    pub(super) fn reference_bytes_of(&self, reference: &Arc<Reference>) -> Option<Arc<Vec<u8>>> {
        if let Some(bytes) = lock(&self.0.pool).find(Arc::as_ptr(reference)) {
            return Some(bytes);
        }
        let mut bytes = Vec::new();
        self.with_context(|context| decompress_reference(&mut context.whole, &mut bytes, reference))?;
        let bytes = Arc::new(bytes);
        lock(&self.0.pool).keep(reference, &bytes);
        Some(bytes)
    }

    /// Returns the bytes of an object from its delta. `suffix` is what the encoder got.
    fn decode_delta(
        &self,
        reference: &Arc<Reference>,
        suffix: [&[u8]; 3],
        delta: &[u8],
        wire_len: u32,
    ) -> Option<Vec<u8>> {
        self.with_context(|context| {
            self.load_reference(context, reference)?;
            let DecoderContext { delta: delta_context, delta_dictionary, frame, .. } = context;
            delta_dictionary.truncate(reference.wire_len as usize);
            append_suffix(delta_dictionary, suffix);
            frame.clear();
            frame.extend_from_slice(&frame_start(wire_len, delta.len()));
            frame.extend_from_slice(delta);
            let mut bytes = Vec::with_capacity(wire_len as usize);
            let delta_context = delta_context.get_or_insert_with(DCtx::create);
            let done = delta_context.decompress_using_dict(&mut bytes, frame, delta_dictionary);
            if delta_dictionary.len() > KEPT_LEN {
                (context.reference, *delta_dictionary) = (Weak::new(), Vec::new());
            }
            frame.shrink_to(KEPT_LEN);
            (done.is_ok() && bytes.len() == wire_len as usize).then_some(bytes)
        })
    }

    /// Puts the bytes of a reference into the context, unless its last delta had the same reference.
    fn load_reference(&self, context: &mut DecoderContext, reference: &Arc<Reference>) -> Option<()> {
        if context.reference.as_ptr() == Arc::as_ptr(reference) {
            return Some(());
        }
        context.reference = Weak::new();
        let kept = lock(&self.0.pool).find(Arc::as_ptr(reference));
        if let Some(bytes) = kept {
            bytes.as_slice().clone_into(&mut context.delta_dictionary);
        } else {
            decompress_reference(&mut context.whole, &mut context.delta_dictionary, reference)?;
            lock(&self.0.pool).keep_largest(reference, &context.delta_dictionary);
        }
        context.reference = Arc::downgrade(reference);
        Some(())
    }

    fn with_context<R>(&self, run: impl FnOnce(&mut DecoderContext) -> R) -> R {
        let free = lock(&self.0.pool).contexts.pop();
        let mut context = free.unwrap_or_default();
        let result = run(&mut context);
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

/// Replaces `bytes` by the bytes of the reference.
fn decompress_reference(context: &mut Option<DCtx<'static>>, bytes: &mut Vec<u8>, reference: &Reference) -> Option<()> {
    let frame = reference.frame();
    decompress(context, bytes, &frame.body, reference.wire_len, frame.dictionary.as_deref())
}

/// Replaces `bytes` by the decompressed bytes.
fn decompress(
    context: &mut Option<DCtx<'static>>,
    bytes: &mut Vec<u8>,
    compressed: &[u8],
    wire_len: u32,
    dictionary: Option<&Dictionary>,
) -> Option<()> {
    bytes.clear();
    bytes.reserve(wire_len as usize);
    let context = context.get_or_insert_with(DCtx::create);
    let done = match dictionary {
        Some(dictionary) => context.decompress_using_ddict(bytes, compressed, &dictionary.decompress),
        None => context.decompress(bytes, compressed),
    };
    (done.is_ok() && bytes.len() == wire_len as usize).then_some(())
}
