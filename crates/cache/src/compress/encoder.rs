//! zstd's contexts for writing, which one writer uses for one object after the other.

use std::sync::{Arc, Weak};

use zstd_safe::{CCtx, CDict};

use crate::compress::dictionary::{Dictionary, LEVEL};
use crate::compress::elide::ElidedObject;
use crate::compress::frame;
use crate::compress::pack::{self, KnownTexts, PackedObject, Packer};
use crate::compress::training::{train, trim_heap};

/// The level for deltas. zstd's default level would save 1 to 3 % of their length, but take a third more time and 0.3
/// MB more for its tables.
const DELTA_LEVEL: i32 = 1;

pub(crate) struct Encoder {
    /// The context is created when it is first needed, and so is `compress`, the current dictionary.
    context: Option<CCtx<'static>>,
    compress: Option<CDict<'static>>,
    current: Option<Arc<Dictionary>>,
    /// The dictionaries that stored objects may use.
    dictionaries: Vec<Weak<Dictionary>>,
    known: KnownTexts,
    packer: Packer,
    /// The object to compress next, and the length of its bytes as they arrived.
    packed: PackedObject,
    wire_len: u32,
    out: Vec<u8>,
    /// The body of the last object.
    body: Vec<u8>,
}

/// An object that was compressed whole. Its body may be longer than the object.
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
            known: KnownTexts::default(),
            packer: Packer::default(),
            packed: PackedObject::default(),
            wire_len: 0,
            out: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Creates an encoder with a dictionary of these samples, or without one if zstd cannot train it.
    pub(crate) fn trained_on(samples: impl Iterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut encoder = Self::new();
        encoder.train(samples);
        encoder
    }

    /// Trains the dictionary for objects that are compressed from now on. Returns false if zstd cannot train one, and
    /// keeps the current one.
    pub(super) fn train(&mut self, samples: impl Iterator<Item = impl AsRef<[u8]>>) -> bool {
        let dictionary = train(samples);
        let is_trained = dictionary.is_some();
        if let Some(dictionary) = dictionary {
            self.adopt(Arc::new(dictionary));
        }
        trim_heap();
        is_trained
    }

    pub(super) fn adopt(&mut self, dictionary: Arc<Dictionary>) {
        self.dictionaries.retain(|dictionary| dictionary.strong_count() > 0);
        self.dictionaries.push(Arc::downgrade(&dictionary));
        self.known = KnownTexts::of(&dictionary.bytes());
        self.current = Some(dictionary);
        self.compress = None;
    }

    pub(super) fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        self.current.as_ref()
    }

    /// Frees zstd's tables, about 1 MB, which the next compression creates again.
    pub(super) fn free_tables(&mut self) {
        (self.context, self.compress) = (None, None);
        (self.packer, self.packed) = (Packer::default(), PackedObject::default());
        (self.out, self.body) = (Vec::new(), Vec::new());
    }

    pub(super) fn pack(&mut self, object: &ElidedObject, is_grouped: bool) {
        self.wire_len = object.wire_len;
        let none = KnownTexts::default();
        let known = if is_grouped { &none } else { &self.known };
        self.packer.pack(&object.bytes, known, &mut self.packed);
    }

    /// Returns the buffer of the object to compress next, which the caller replaces by a packed object.
    pub(super) fn packed_mut(&mut self, wire_len: u32) -> &mut PackedObject {
        self.wire_len = wire_len;
        &mut self.packed
    }

    pub(super) fn packed(&self) -> &[u8] {
        &self.packed.bytes
    }

    pub(super) fn wire_len(&self) -> u32 {
        self.wire_len
    }

    /// Packs an object without regard to its group, and compresses it by itself.
    pub(crate) fn compress_alone(&mut self, object: &ElidedObject) -> Option<WholeFrame<'_>> {
        self.pack(object, false);
        self.compress_whole()
    }

    /// Compresses the object by itself. Returns `None` if zstd does not compress it.
    pub(super) fn compress_whole(&mut self) -> Option<WholeFrame<'_>> {
        if let Some(current) = &self.current
            && self.compress.is_none()
        {
            self.compress = CDict::try_create(&current.bytes(), LEVEL);
        }
        let context = self.context.get_or_insert_with(CCtx::create);
        let text = self.packed.text();
        self.out.clear();
        self.out.reserve(zstd_safe::compress_bound(text.len()));
        let done = match &self.current {
            Some(_) => context.compress_using_cdict(&mut self.out, text, self.compress.as_ref()?),
            None => context.compress(&mut self.out, text, LEVEL),
        };
        done.ok()?;
        self.write_body(true)?;
        Some(WholeFrame { body: &self.body, dictionary: self.current.clone() })
    }

    /// Compresses the object as a delta to the packed bytes of a reference.
    ///
    /// Returns the length of the delta, or `None` if zstd does not compress the object.
    pub(super) fn compress_delta(&mut self, reference: &[u8]) -> Option<usize> {
        let context = self.context.get_or_insert_with(CCtx::create);
        self.out.clear();
        self.out.reserve(zstd_safe::compress_bound(self.packed.bytes.len()));
        context.compress_using_dict(&mut self.out, &self.packed.bytes, reference, DELTA_LEVEL).ok()?;
        self.write_body(false)?;
        Some(self.body.len())
    }

    fn write_body(&mut self, is_whole: bool) -> Option<()> {
        let frame = frame::body(self.wire_len, &self.out)?;
        self.body.clear();
        pack::write_body(self.packed.values(), is_whole, frame, &mut self.body);
        Some(())
    }

    pub(super) fn last_delta(&self) -> &[u8] {
        &self.body
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
        let buffers = self.out.capacity()
            + self.body.capacity()
            + self.packed.bytes.capacity()
            + self.packer.capacity()
            + self.known.capacity();
        buffers + dictionaries.sum::<usize>() + self.dictionaries.capacity() * size_of::<Weak<Dictionary>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocated::assert_reports_what_it_allocates;

    /// An object of 200 words and 20 uids.
    fn object(seed: u64) -> ElidedObject {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut texts: Vec<_> = (0..200).map(|_| format!("word-{:x}", random.u16(..4000))).collect();
        texts.extend((0..20).map(|i| format!("{i:08x}-89ab-cdef-0123-{:012x}", random.u8(..4))));
        let bytes = texts.join(" ").into_bytes();
        ElidedObject { wire_len: bytes.len().try_into().unwrap(), bytes }
    }

    #[test]
    fn reports_its_buffers_and_the_memory_of_zstd() {
        let most = 8 << 20;
        let mut encoder = Encoder::new();
        assert_eq!((encoder.zstd_bytes(), encoder.buffer_bytes()), (0, 0));
        encoder.compress_alone(&object(0)).unwrap();
        assert!((10_000..most).contains(&encoder.zstd_bytes()), "{}", encoder.zstd_bytes());
        let create = || {
            let mut encoder = Encoder::trained_on((1..1000).map(object));
            encoder.compress_alone(&object(0)).unwrap();
            encoder
        };
        let mut encoder = assert_reports_what_it_allocates(create, Encoder::buffer_bytes);
        let (all, buffers) = (encoder.zstd_bytes(), encoder.buffer_bytes());
        encoder.free_tables();
        let (dictionary, len) = (encoder.zstd_bytes(), encoder.dictionary().unwrap().bytes().len());
        assert!(len < dictionary && dictionary + len + 10_000 < all && all < most, "{len} {dictionary} {all}");
        assert!(encoder.buffer_bytes() + object(0).bytes.len() < buffers);
        // The compression creates its tables again.
        assert!(encoder.compress_alone(&object(0)).unwrap().dictionary.is_some());
    }

    #[test]
    fn knows_the_dictionaries_that_objects_use() {
        let mut encoder = Encoder::trained_on((1..1000).map(object));
        let first = encoder.dictionary().cloned();
        assert!(encoder.train((1000..2000).map(object)));
        assert!(!Arc::ptr_eq(encoder.dictionary().unwrap(), first.as_ref().unwrap()));
        assert_eq!(encoder.dictionaries.len(), 2);
        drop(first);
        // The current dictionary is used until the next is adopted.
        assert!(encoder.train((2000..3000).map(object)));
        assert_eq!(encoder.dictionaries.len(), 2);
        // Nothing in common.
        assert!(!encoder.train((0..2).map(object)));
        assert_eq!(encoder.dictionaries.len(), 2);
    }
}
