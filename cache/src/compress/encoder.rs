//! zstd's contexts for writing, which one writer uses for one object after the other.

use std::mem;
use std::sync::{Arc, Weak};

use zstd_safe::{CCtx, CDict};

use crate::compress::dictionary::{Dictionary, LEVEL};
use crate::compress::elide::ElidedObject;
use crate::compress::frame;
use crate::compress::training::{train, trim_heap, unused_blocks};

/// The level of deltas. The default saves 1 to 3 % of them, and takes a third more time and 0.3 MB more for its tables.
const DELTA_LEVEL: i32 = 1;

/// The memory before zstd's tables that is left free for the objects of a list.
const GAP: usize = 6 << 20;
/// The tables are created again after this many bytes of objects, which are about a gap with their places in the table.
const STORED_IN_GAP: usize = GAP / 4 * 3;

/// Compresses, one object after the other.
pub(crate) struct Encoder {
    /// Created when it is needed, as is `compress`, the current dictionary.
    context: Option<CCtx<'static>>,
    compress: Option<CDict<'static>>,
    current: Option<Arc<Dictionary>>,
    /// The dictionaries that stored objects may use.
    dictionaries: Vec<Weak<Dictionary>>,
    out: Vec<u8>,
    /// Where the body of the last frame starts in `out`.
    start: usize,
    /// True before the first list ends, and after a training.
    is_untrimmed: bool,
    /// The bytes of new objects that were stored since the tables were created.
    stored: usize,
}

/// An object that was compressed whole. The body may be longer than the object.
pub(crate) struct WholeFrame<'e> {
    pub(crate) body: &'e [u8],
    pub(crate) dictionary: Option<Arc<Dictionary>>,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self {
            context: None,
            compress: None,
            current: None,
            dictionaries: Vec::new(),
            out: Vec::new(),
            start: 0,
            is_untrimmed: true,
            stored: 0,
        }
    }

    /// Creates an encoder with a dictionary of these samples, or without one if zstd cannot train it.
    pub(crate) fn trained_on(samples: impl Iterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut encoder = Self::new();
        encoder.train(samples);
        encoder
    }

    /// Trains the dictionary for objects that are compressed from now on. Keeps the current dictionary
    /// if zstd cannot train one.
    pub(super) fn train(&mut self, samples: impl Iterator<Item = impl AsRef<[u8]>>) {
        if let Some(dictionary) = train(samples) {
            self.adopt(Arc::new(dictionary));
        }
        trim_heap();
        self.is_untrimmed = true;
    }

    /// Uses a dictionary that was trained before.
    pub(super) fn adopt(&mut self, dictionary: Arc<Dictionary>) {
        self.dictionaries.retain(|dictionary| dictionary.strong_count() > 0);
        self.dictionaries.push(Arc::downgrade(&dictionary));
        self.current = Some(dictionary);
        self.compress = None;
    }

    /// Returns the dictionary for objects that are compressed from now on.
    pub(super) fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        self.current.as_ref()
    }

    /// Frees zstd's tables, about 1 MB, which the next compression creates again.
    pub(super) fn free_tables(&mut self) {
        (self.context, self.compress) = (None, None);
        self.out = Vec::new();
        if mem::take(&mut self.is_untrimmed) {
            trim_heap();
        }
    }

    /// Compresses an object by itself. Returns `None` if zstd does not compress it.
    pub(crate) fn compress_whole(&mut self, object: &ElidedObject) -> Option<WholeFrame<'_>> {
        let is_gap_full = self.is_untrimmed && self.stored >= STORED_IN_GAP;
        if let Some(current) = self.current.clone()
            && (self.compress.is_none() || is_gap_full)
        {
            self.create_tables(&current);
        }
        let context = self.context.get_or_insert_with(CCtx::create);
        self.out.clear();
        self.out.reserve(zstd_safe::compress_bound(object.bytes.len()));
        let done = match &self.current {
            Some(_) => context.compress_using_cdict(&mut self.out, &object.bytes, self.compress.as_ref()?),
            None => context.compress(&mut self.out, &object.bytes, LEVEL),
        };
        done.ok()?;
        let body = frame::body(object.wire_len, &self.out)?;
        Some(WholeFrame { body, dictionary: self.current.clone() })
    }

    /// Creates the tables for the dictionary, which are freed when the first list ends.
    ///
    /// Between the objects of the list, they would leave a hole of 0.5 MB in the heap. So they get a gap before them,
    /// which the next objects fill: it takes no memory until then. At the end of the heap, `trim_heap` returns them.
    /// Nothing else may be allocated after the gap: an object in its place would keep all of it.
    fn create_tables(&mut self, dictionary: &Dictionary) {
        let bytes = dictionary.bytes();
        let gap = self.is_untrimmed.then(|| unused_blocks(GAP));
        let tables = CDict::try_create(&bytes, LEVEL);
        drop(gap);
        self.compress = tables;
        self.stored = 0;
    }

    /// Records that a new object was stored in this many bytes.
    pub(super) fn record_stored(&mut self, bytes: usize) {
        self.stored += bytes;
    }

    /// Compresses the delta of an object to a reference. Returns the length; `None` if zstd does not compress it.
    pub(super) fn compress_delta(&mut self, reference: &[u8], object: &ElidedObject) -> Option<usize> {
        let context = self.context.get_or_insert_with(CCtx::create);
        self.out.clear();
        self.out.reserve(zstd_safe::compress_bound(object.bytes.len()));
        context.compress_using_dict(&mut self.out, &object.bytes, reference, DELTA_LEVEL).ok()?;
        let len = frame::body(object.wire_len, &self.out)?.len();
        self.start = self.out.len() - len;
        Some(len)
    }

    /// Returns the last delta.
    pub(super) fn last_delta(&self) -> &[u8] {
        self.out.get(self.start..).unwrap_or_default()
    }

    /// Returns the bytes that zstd has allocated, outside of Rust's allocator.
    pub(super) fn zstd_bytes(&self) -> usize {
        let dictionaries =
            self.dictionaries.iter().filter_map(Weak::upgrade).map(|dictionary| dictionary.decompress.sizeof());
        self.context.as_ref().map_or(0, CCtx::sizeof)
            + self.compress.as_ref().map_or(0, CDict::sizeof)
            + dictionaries.sum::<usize>()
    }

    /// Returns the bytes from Rust's allocator.
    pub(super) fn buffer_bytes(&self) -> usize {
        let dictionaries = self.dictionaries.iter().filter_map(Weak::upgrade).map(|dictionary| dictionary.packed_len());
        self.out.capacity() + dictionaries.sum::<usize>() + self.dictionaries.capacity() * size_of::<Weak<Dictionary>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_created_again_when_their_gap_is_full() {
        let object = |i: u32| ElidedObject {
            bytes: format!("limits cpu {i}m memory {}Mi, image registry.example.com/shop/web", i * 7919).into_bytes(),
            wire_len: 1000,
        };
        let mut encoder = Encoder::trained_on((0..1000).map(|i| object(i).into_bytes()));
        assert!(encoder.dictionary().is_some());
        let compress = |encoder: &mut Encoder, stored| {
            encoder.record_stored(stored);
            encoder.compress_whole(&object(7)).unwrap().body.to_vec()
        };
        let body = compress(&mut encoder, 0);
        for (stored, since) in [(STORED_IN_GAP - 1, STORED_IN_GAP - 1), (1, 0), (STORED_IN_GAP, 0)] {
            assert_eq!(compress(&mut encoder, stored), body);
            assert_eq!(encoder.stored, since);
        }
        // After the first list, objects replace others, and the heap has holes anyway.
        encoder.free_tables();
        for (stored, since) in [(1, 0), (STORED_IN_GAP, STORED_IN_GAP)] {
            assert_eq!(compress(&mut encoder, stored), body);
            assert_eq!(encoder.stored, since);
        }
    }
}
