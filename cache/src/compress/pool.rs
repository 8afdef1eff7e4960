//! References, and the pool of what decompresses them: contexts of zstd, and the bytes of some references.
//!
//! The two are one file because a reference leaves the pool when it is dropped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use zstd_safe::DCtx;

use crate::compress::dictionary::Dictionary;
use crate::sync::{Mutex, RwLock, RwLockReadGuard, lock, read, write};

/// The number of references of large groups that are kept decompressed, and the longest of them.
const LARGEST: usize = 16;
pub(super) const KEPT_LEN: usize = 64 << 10;

/// The object to which similar objects are stored as deltas. They keep it alive.
pub(crate) struct Reference {
    /// The namespace of the deltas.
    pub(crate) namespace: Arc<str>,
    frame: RwLock<ReferenceFrame>,
    pub(crate) wire_len: u32,
    shared: Arc<SharedPool>,
}

/// The compressed bytes of a reference. They are replaced once, when the first dictionary is trained.
pub(crate) struct ReferenceFrame {
    pub(crate) dictionary: Option<Arc<Dictionary>>,
    pub(crate) body: Box<[u8]>,
}

impl Reference {
    pub(super) fn new(
        shared: &Arc<SharedPool>,
        namespace: Arc<str>,
        frame: ReferenceFrame,
        wire_len: u32,
    ) -> Arc<Self> {
        shared.reference_bytes.fetch_add(Self::allocated(frame.body.len()), Ordering::Relaxed);
        Arc::new(Self { namespace, frame: RwLock::new(frame), wire_len, shared: Arc::clone(shared) })
    }

    /// Returns the memory of a reference whose compressed bytes have this length.
    pub(crate) fn allocated(body: usize) -> usize {
        2 * size_of::<usize>() + size_of::<Self>() + body
    }

    pub(crate) fn frame(&self) -> RwLockReadGuard<'_, ReferenceFrame> {
        read(&self.frame)
    }

    /// Keeps the same bytes, compressed in another way.
    pub(super) fn replace_frame(&self, body: &[u8], dictionary: Option<Arc<Dictionary>>) {
        let mut frame = write(&self.frame);
        self.shared.reference_bytes.fetch_add(body.len(), Ordering::Relaxed);
        self.shared.reference_bytes.fetch_sub(frame.body.len(), Ordering::Relaxed);
        *frame = ReferenceFrame { dictionary, body: body.into() };
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.shared.reference_bytes.fetch_sub(Self::allocated(self.frame().body.len()), Ordering::Relaxed);
        lock(&self.shared.pool).forget(std::ptr::from_ref(self));
    }
}

/// What a decoder shares with its references.
#[derive(Default)]
pub(super) struct SharedPool {
    pub(super) pool: Mutex<DecoderPool>,
    /// The bytes of all references.
    pub(super) reference_bytes: AtomicUsize,
}

#[derive(Default)]
pub(super) struct DecoderPool {
    pub(super) contexts: Vec<DecoderContext>,
    /// The reference that was used last, because the objects of a group are mostly neighbours.
    last_used: Option<KeptReference>,
    /// References by their address; of two with the same place, the one with more deltas. They serve random reads.
    largest: [Option<KeptReference>; LARGEST],
}

/// A reference that is alive, and its bytes.
pub(super) struct KeptReference {
    reference: Weak<Reference>,
    pub(super) bytes: Arc<Vec<u8>>,
}

/// What decompresses one object at a time. After a change of the dictionary, zstd assumes that the processor's caches
/// lack it, and decodes slower. So deltas have a context of their own, which takes a tenth off the time to read an
/// object of a small group.
#[derive(Default)]
pub(super) struct DecoderContext {
    pub(super) whole: Option<DCtx<'static>>,
    pub(super) delta: Option<DCtx<'static>>,
    /// The reference of the delta that was decompressed last, and its bytes, followed by the texts of the object.
    pub(super) reference: Weak<Reference>,
    pub(super) delta_dictionary: Vec<u8>,
    pub(super) frame: Vec<u8>,
}

impl DecoderPool {
    fn place(&mut self, reference: *const Reference) -> Option<&mut Option<KeptReference>> {
        // Spreads the address.
        let at = (reference.addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.largest.get_mut(usize::try_from(at).unwrap_or_default() % LARGEST)
    }

    /// Returns the bytes of a reference, if they are kept.
    pub(super) fn find(&mut self, reference: *const Reference) -> Option<Arc<Vec<u8>>> {
        let is = |kept: &&KeptReference| kept.reference.as_ptr() == reference;
        let last_used = self.last_used.as_ref().filter(is).map(|kept| Arc::clone(&kept.bytes));
        last_used.or_else(|| self.place(reference)?.as_ref().filter(is).map(|kept| Arc::clone(&kept.bytes)))
    }

    /// Keeps the bytes of the reference that a writer or a reader of references used last.
    pub(super) fn keep(&mut self, reference: &Arc<Reference>, bytes: &Arc<Vec<u8>>) {
        if bytes.len() <= KEPT_LEN && !self.keep_largest(reference, bytes) {
            self.last_used = Some(KeptReference { reference: Arc::downgrade(reference), bytes: Arc::clone(bytes) });
        }
    }

    /// Keeps a copy of the bytes if the reference has more deltas than the reference in its place. Returns true if it
    /// did.
    pub(super) fn keep_largest(&mut self, reference: &Arc<Reference>, bytes: &[u8]) -> bool {
        let deltas = Arc::strong_count(reference);
        match self.place(Arc::as_ptr(reference)) {
            Some(place)
                if bytes.len() <= KEPT_LEN
                    && place.as_ref().is_none_or(|other| other.reference.strong_count() < deltas) =>
            {
                *place = Some(KeptReference { reference: Arc::downgrade(reference), bytes: Arc::new(bytes.to_vec()) });
                true
            }
            _ => false,
        }
    }

    fn forget(&mut self, reference: *const Reference) {
        self.kept().for_each(|kept| _ = kept.take_if(|kept| kept.reference.as_ptr() == reference));
    }

    fn kept(&mut self) -> impl Iterator<Item = &mut Option<KeptReference>> {
        self.largest.iter_mut().chain([&mut self.last_used])
    }

    /// Returns the bytes from Rust's allocator.
    pub(super) fn buffer_bytes(&mut self) -> usize {
        let contexts =
            self.contexts.iter().map(|context| context.delta_dictionary.capacity() + context.frame.capacity());
        let contexts = contexts.sum::<usize>();
        let kept = self.kept().flatten();
        contexts + kept.map(|kept| size_of::<(usize, usize, Vec<u8>)>() + kept.bytes.capacity()).sum::<usize>()
    }

    /// Returns the bytes that zstd has allocated.
    pub(super) fn zstd_bytes(&self) -> usize {
        let contexts = self.contexts.iter().flat_map(|context| [&context.whole, &context.delta]);
        contexts.flatten().map(DCtx::sizeof).sum()
    }
}
