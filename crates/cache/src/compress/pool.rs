//! References, and the pool of the means to decompress them: contexts of zstd, and the bytes of some references.
//!
//! Both are in one file, because a reference leaves the pool when it is dropped.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::available_parallelism;

use zstd_safe::DCtx;

use crate::compress::dictionary::{NamespaceDictionary, StoredWhole};
use crate::compress::pack::PackedObject;
use crate::sync::{Mutex, lock};

/// The limits of the references that are kept decompressed: their number, their bytes together, and the length of each.
const MOST_KEPT: usize = 256;
const MOST_KEPT_BYTES: usize = 1 << 20;
pub(super) const KEPT_LEN: usize = 64 << 10;

/// An object to which similar objects are stored as deltas, which keep it alive.
pub(crate) struct Reference {
    shared: Arc<NamespaceDictionary>,
    body: Box<[u8]>,
    wire_len: u32,
    shared_pool: Arc<SharedPool>,
}

impl Reference {
    pub(super) fn new(shared_pool: &Arc<SharedPool>, object: StoredWhole<'_>) -> Arc<Self> {
        let StoredWhole { shared, body, wire_len } = object;
        shared_pool.reference_bytes.fetch_add(Self::allocated(body.len()), Ordering::Relaxed);
        Arc::new(Self { shared: Arc::clone(shared), body: body.into(), wire_len, shared_pool: Arc::clone(shared_pool) })
    }

    /// Returns the memory of a reference whose compressed bytes have this length.
    pub(crate) fn allocated(body: usize) -> usize {
        2 * size_of::<usize>() + size_of::<Self>() + body
    }

    pub(crate) fn namespace(&self) -> &Arc<str> {
        &self.shared.namespace
    }

    pub(crate) fn object(&self) -> StoredWhole<'_> {
        StoredWhole { shared: &self.shared, body: &self.body, wire_len: self.wire_len }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.shared_pool.reference_bytes.fetch_sub(Self::allocated(self.body.len()), Ordering::Relaxed);
        lock(&self.shared_pool.pool).forget(std::ptr::from_ref(self));
    }
}

#[derive(Default)]
pub(super) struct SharedPool {
    pub(super) pool: Mutex<DecoderPool>,
    /// The bytes of all references.
    pub(super) reference_bytes: AtomicUsize,
}

pub(super) struct DecoderPool {
    /// The contexts that no thread uses.
    contexts: Vec<DecoderContext>,
    /// The most contexts that are kept. One per core is enough, because a context is only used while a thread computes.
    most_contexts: usize,
    /// The references that were used last, chosen by the algorithm CLOCK: a look-up marks a reference as used, and the
    /// hand, which goes around, clears marks and removes references without one.
    kept: Vec<KeptReference>,
    hand: usize,
    /// The length of the kept references' bytes.
    kept_bytes: usize,
}

/// The decompressed bytes of a reference that is alive.
struct KeptReference {
    reference: Weak<Reference>,
    packed: Arc<PackedObject>,
    is_used: bool,
}

/// The means to decompress one object at a time. After a change of the dictionary, zstd assumes that it is not in the
/// processor's caches, and decodes more slowly. Deltas therefore have a context of their own, which makes reading an
/// object of a small group a tenth faster.
#[derive(Default)]
pub(super) struct DecoderContext {
    pub(super) whole: Option<DCtx<'static>>,
    pub(super) delta: Option<DCtx<'static>>,
    /// A frame with its beginning, and the object in the frame, packed and elided.
    pub(super) frame: Vec<u8>,
    pub(super) packed: PackedObject,
    pub(super) elided: Vec<u8>,
}

impl Default for DecoderPool {
    fn default() -> Self {
        let most_contexts = available_parallelism().map_or(1, NonZero::get);
        Self { contexts: Vec::new(), most_contexts, kept: Vec::new(), hand: 0, kept_bytes: 0 }
    }
}

impl DecoderPool {
    pub(super) fn take_context(&mut self) -> Option<DecoderContext> {
        self.contexts.pop()
    }

    /// Keeps the context, or returns it if there are enough.
    pub(super) fn put_context(&mut self, context: DecoderContext) -> Option<DecoderContext> {
        if self.contexts.len() >= self.most_contexts {
            return Some(context);
        }
        self.contexts.push(context);
        None
    }

    fn place(&self, reference: *const Reference) -> Option<usize> {
        self.kept.iter().position(|kept| kept.reference.as_ptr() == reference)
    }

    pub(super) fn find(&mut self, reference: *const Reference) -> Option<Arc<PackedObject>> {
        let place = self.place(reference)?;
        let kept = self.kept.get_mut(place)?;
        kept.is_used = true;
        Some(Arc::clone(&kept.packed))
    }

    pub(super) fn keep(&mut self, reference: &Arc<Reference>, packed: &Arc<PackedObject>) {
        let len = packed.bytes.len();
        if len > KEPT_LEN || self.place(Arc::as_ptr(reference)).is_some() {
            return;
        }
        let is_full = |pool: &Self| pool.kept.len() >= MOST_KEPT || pool.kept_bytes + len > MOST_KEPT_BYTES;
        while !self.kept.is_empty() && is_full(self) {
            self.remove_unused();
        }
        self.kept_bytes += len;
        let (reference, packed) = (Arc::downgrade(reference), Arc::clone(packed));
        self.kept.push(KeptReference { reference, packed, is_used: false });
        // The new reference gets the place of the removed one, and the hand passes it. At the end of the list, the next
        // removal would move it to the hand, and the one after would remove it.
        let last = self.kept.len() - 1;
        if self.hand <= last {
            self.kept.swap(self.hand, last);
            self.hand += 1;
        }
    }

    /// Removes a reference that was not used since the hand passed it.
    fn remove_unused(&mut self) {
        loop {
            match self.kept.get_mut(self.hand) {
                None => self.hand = 0,
                Some(kept) if kept.is_used => {
                    kept.is_used = false;
                    self.hand += 1;
                }
                Some(_) => return self.remove(self.hand),
            }
        }
    }

    fn remove(&mut self, place: usize) {
        self.kept_bytes -= self.kept.swap_remove(place).packed.bytes.len();
    }

    fn forget(&mut self, reference: *const Reference) {
        if let Some(place) = self.place(reference) {
            self.remove(place);
        }
    }

    /// Returns the bytes from Rust's allocator.
    pub(super) fn buffer_bytes(&self) -> usize {
        let kept_bytes = self.kept.iter().map(|kept| kept.packed.bytes.len()).sum::<usize>();
        debug_assert_eq!(self.kept_bytes, kept_bytes, "the bytes of the references that are kept decompressed");
        let buffers = self.contexts.iter().flat_map(|context| [&context.frame, &context.packed.bytes, &context.elided]);
        buffers.map(Vec::capacity).sum::<usize>()
            + self.kept_bytes
            + self.kept.len() * size_of::<(usize, usize, PackedObject)>()
            + self.kept.capacity() * size_of::<KeptReference>()
    }

    pub(super) fn zstd_bytes(&self) -> usize {
        let contexts = self.contexts.iter().flat_map(|context| [&context.whole, &context.delta]);
        contexts.flatten().map(DCtx::sizeof).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocated::assert_reports_what_it_allocates;

    fn reference(shared: &Arc<SharedPool>) -> Arc<Reference> {
        let namespace = Arc::new(NamespaceDictionary { namespace: "ns".into(), dictionary: None });
        Reference::new(shared, StoredWhole { shared: &namespace, body: &[1, 2, 3], wire_len: 9 })
    }

    fn packed(len: usize) -> Arc<PackedObject> {
        Arc::new(PackedObject { bytes: vec![0; len], text_len: len })
    }

    fn keep(shared: &Arc<SharedPool>, len: usize) -> Arc<Reference> {
        let reference = reference(shared);
        lock(&shared.pool).keep(&reference, &packed(len));
        reference
    }

    fn has(shared: &Arc<SharedPool>, reference: &Arc<Reference>) -> bool {
        lock(&shared.pool).place(Arc::as_ptr(reference)).is_some()
    }

    fn find(shared: &Arc<SharedPool>, reference: &Arc<Reference>) -> bool {
        lock(&shared.pool).find(Arc::as_ptr(reference)).is_some()
    }

    #[test]
    fn bounds_the_number_and_the_bytes_of_kept_references() {
        // The last column is the number of references that are kept.
        for (len, count, kept) in [
            (1, 10, 10),
            (1, MOST_KEPT + 1, MOST_KEPT),
            (KEPT_LEN, 17, MOST_KEPT_BYTES / KEPT_LEN),
            (KEPT_LEN + 1, 3, 0),
            (MOST_KEPT_BYTES / 3 + 1, 3, 0),
        ] {
            let shared = Arc::new(SharedPool::default());
            let references: Vec<_> = (0..count).map(|_| keep(&shared, len)).collect();
            let found = references.iter().filter(|reference| find(&shared, reference)).count();
            assert_eq!((found, lock(&shared.pool).kept_bytes), (kept, kept * len), "{len} {count}");
        }
    }

    #[test]
    fn removes_references_that_were_not_used_since_the_hand_passed_them() {
        let shared = Arc::new(SharedPool::default());
        let references: Vec<_> = (0..MOST_KEPT).map(|_| keep(&shared, 1)).collect();
        let left = |shared| references.iter().map(|reference| has(shared, reference)).collect::<Vec<_>>();
        for reference in references.iter().step_by(2) {
            assert!(find(&shared, reference));
        }
        // As many as are unused.
        let newer: Vec<_> = (0..MOST_KEPT / 2).map(|_| keep(&shared, 1)).collect();
        assert_eq!(left(&shared), (0..MOST_KEPT).map(|at| at % 2 == 0).collect::<Vec<_>>());
        assert_eq!(newer.iter().filter(|reference| has(&shared, reference)).count(), MOST_KEPT / 2);
        // The hand clears the marks once it comes round: then the oldest leave, too.
        let more: Vec<_> = (0..MOST_KEPT).map(|_| keep(&shared, 1)).collect();
        assert!(more.iter().any(|reference| has(&shared, reference)));
        assert_eq!(left(&shared).iter().filter(|is_left| **is_left).count(), 0);
        assert_eq!(lock(&shared.pool).kept.len(), MOST_KEPT);
    }

    #[test]
    fn keeps_as_many_contexts_as_threads_can_use_at_once() {
        let mut pool = DecoderPool::default();
        let taken: Vec<_> = (0..1000).map(|_| pool.take_context().unwrap_or_default()).collect();
        let dropped = taken.into_iter().filter_map(|context| pool.put_context(context)).count();
        assert_eq!(1000 - dropped, available_parallelism().map_or(1, NonZero::get));
        assert!(pool.take_context().is_some());
    }

    #[test]
    fn a_dropped_reference_leaves_the_pool() {
        let shared = Arc::new(SharedPool::default());
        let (one, other) = (keep(&shared, 10), keep(&shared, 20));
        assert_eq!(shared.reference_bytes.load(Ordering::Relaxed), 2 * Reference::allocated(3));
        drop(one);
        assert_eq!(shared.reference_bytes.load(Ordering::Relaxed), Reference::allocated(3));
        {
            let mut pool = lock(&shared.pool);
            assert_eq!((pool.kept.len(), pool.kept_bytes), (1, 20));
            // A second copy is not kept.
            pool.keep(&other, &packed(20));
            assert_eq!((pool.kept.len(), pool.kept_bytes), (1, 20));
        }
        drop(other);
        {
            let pool = lock(&shared.pool);
            assert_eq!((pool.kept.len(), pool.kept_bytes), (0, 0));
        }
        assert_eq!(shared.reference_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn reports_its_buffers_and_what_it_keeps() {
        let shared = Arc::default();
        let namespace = Arc::new(NamespaceDictionary { namespace: "ns".into(), dictionary: None });
        let object = StoredWhole { shared: &namespace, body: &[1, 2, 3], wire_len: 9 };
        assert_reports_what_it_allocates(|| Reference::new(&shared, object), |_| Reference::allocated(3));
        let references: Vec<_> = (0..100).map(|_| reference(&shared)).collect();
        let create = || {
            let mut pool = DecoderPool::default();
            let (frame, elided) = (vec![0; 30_000], vec![0; 50_000]);
            let object = PackedObject { bytes: vec![0; 20_000], text_len: 0 };
            pool.put_context(DecoderContext { frame, packed: object, elided, ..Default::default() });
            for reference in &references {
                pool.keep(reference, &packed(70));
            }
            pool
        };
        let pool = assert_reports_what_it_allocates(create, DecoderPool::buffer_bytes);
        assert_eq!(pool.zstd_bytes(), 0);
    }
}
