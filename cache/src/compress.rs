//! Compression by zstd: with a dictionary that is trained on the collection itself, or as the difference to a similar object.

use std::hint::black_box;
use std::iter::once;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use zstd_safe::{CCtx, CDict, DCtx, DDict};

use crate::sync::{Mutex, RwLock, RwLockReadGuard, lock, read, write};

/// zstd's default. Higher levels take several times as long and save a few percent.
const LEVEL: i32 = 3;
/// The level of differences. The default saves 1 to 3 % of them, and takes a third more time and 0.3 MB more for its tables.
const DIFFERENCE_LEVEL: i32 = 1;
/// zstd's default for the length of a dictionary. Where objects have families, it compresses bases mostly: 512 KiB saves 3 to 9 % of them,
/// less than its copies take. 64 KiB makes Pods without a family a tenth longer.
const DICTIONARY_LEN: usize = 112_640;
/// The longest sample, which is the beginning of an object, and the most bytes of all samples together.
const SAMPLE_LEN: usize = 128 << 10;
const SAMPLES_LEN: usize = 4 << 20;
/// The first dictionary is trained once objects and bases that were compressed without one take this many bytes. A dictionary saves about
/// half of them, and takes a quarter of a megabyte. A list begins with a few namespaces and workloads, so a later training has samples
/// from more of the collection.
pub(super) const UNTRAINED: usize = 1536 << 10;
/// The fewest objects for a training.
pub(super) const FEW_SAMPLES: usize = 64;
/// The number of compressed objects over which the ratio is measured.
const WINDOW: u32 = 4096;
/// The ratio has drifted when it exceeds 5 / 4 of the ratio after the training.
const DRIFT: (u64, u64) = (5, 4);
/// The beginning of each frame of zstd.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The longest object that zstd compresses as one block.
const BLOCK: u32 = 128 << 10;
/// The number of bases of large families that are kept decompressed, and the longest of them.
const LARGEST: usize = 16;
const KEPT_LEN: usize = 64 << 10;

/// A trained dictionary. The objects that were compressed with it keep it alive.
pub(super) struct Dictionary {
    /// The bytes from which it was created, compressed, and their length.
    packed: Box<[u8]>,
    len: usize,
    decompress: DDict<'static>,
}

impl Dictionary {
    /// Returns `None` if zstd refuses the bytes.
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let mut packed = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
        zstd_safe::compress(&mut packed, bytes, LEVEL).ok()?;
        Some(Self { packed: packed.into(), len: bytes.len(), decompress: DDict::try_create(bytes)? })
    }

    /// Returns the bytes from which it was created.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        // They were compressed by `new`.
        _ = zstd_safe::decompress(&mut bytes, &self.packed);
        bytes
    }
}

/// The namespace and the dictionary of compressed objects, which share it.
pub(super) struct Common {
    pub(super) namespace: Arc<str>,
    pub(super) dictionary: Option<Arc<Dictionary>>,
}

/// The object to which similar objects are stored as differences. They keep it alive.
pub(super) struct Base {
    /// The namespace of the members.
    pub(super) namespace: Arc<str>,
    packed: RwLock<Packed>,
    pub(super) wire_len: u32,
    shared: Arc<Shared>,
}

/// The compressed bytes of a base. They are replaced once, when the first dictionary is trained.
pub(super) struct Packed {
    pub(super) dictionary: Option<Arc<Dictionary>>,
    pub(super) body: Box<[u8]>,
}

impl Base {
    pub(super) fn allocated(body: usize) -> usize {
        2 * size_of::<usize>() + size_of::<Self>() + body
    }

    pub(super) fn packed(&self) -> RwLockReadGuard<'_, Packed> {
        read(&self.packed)
    }

    /// Keeps the same bytes, compressed in another way.
    pub(super) fn repack(&self, body: &[u8], dictionary: Option<Arc<Dictionary>>) {
        let mut packed = write(&self.packed);
        self.shared.bases.fetch_add(body.len(), Ordering::Relaxed);
        self.shared.bases.fetch_sub(packed.body.len(), Ordering::Relaxed);
        *packed = Packed { dictionary, body: body.into() };
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        self.shared.bases.fetch_sub(Self::allocated(self.packed().body.len()), Ordering::Relaxed);
        lock(&self.shared.pool).forget(std::ptr::from_ref(self));
    }
}

/// Compresses, one object after the other.
pub(super) struct Compressor {
    /// Created when it is needed, as is `compress`, the current dictionary.
    context: Option<CCtx<'static>>,
    compress: Option<CDict<'static>>,
    current: Option<Arc<Dictionary>>,
    /// The dictionaries that stored objects may use.
    dictionaries: Vec<Weak<Dictionary>>,
    out: Vec<u8>,
    /// Where the last difference starts in `out`.
    start: usize,
    prefix: Vec<u8>,
    /// True before the first list ends, and after a training.
    is_untrimmed: bool,
    /// Bytes that were compressed without a dictionary since the last attempt to train one, and how many lead to the next attempt;
    /// doubled by each failure.
    untrained: usize,
    until_attempt: usize,
    window: Window,
    /// The first window after the training.
    baseline: Option<Window>,
}

/// Sizes before and after compression.
#[derive(Clone, Copy, Default)]
struct Window {
    objects: u32,
    wire: u64,
    compressed: u64,
}

impl Compressor {
    pub(super) fn new() -> Self {
        Self {
            context: None,
            compress: None,
            current: None,
            dictionaries: Vec::new(),
            out: Vec::new(),
            start: 0,
            prefix: Vec::new(),
            is_untrimmed: true,
            untrained: 0,
            until_attempt: UNTRAINED,
            window: Window::default(),
            baseline: None,
        }
    }

    /// Returns true if a training is due.
    pub(super) fn is_due(&mut self) -> bool {
        if self.current.is_some() {
            return self.has_drifted();
        }
        let is_due = self.untrained >= self.until_attempt;
        if is_due {
            self.untrained = 0;
        }
        is_due
    }

    /// Trains the dictionary for objects that are compressed from now on. Keeps the current dictionary if zstd cannot train one,
    /// because the samples are too few or have nothing in common.
    pub(super) fn train(&mut self, samples: impl Iterator<Item = impl AsRef<[u8]>>) {
        let (mut all, mut lens) = (Vec::new(), Vec::new());
        for sample in samples {
            let sample = sample.as_ref();
            let sample = sample.get(..SAMPLE_LEN).unwrap_or(sample);
            if all.len() + sample.len() > SAMPLES_LEN {
                break;
            }
            all.extend_from_slice(sample);
            lens.push(sample.len());
        }
        let mut dictionary = Vec::with_capacity(DICTIONARY_LEN);
        if zstd_safe::train_from_buffer(&mut dictionary, &all, &lens).is_ok()
            && let Some(dictionary) = Dictionary::new(&dictionary)
        {
            self.adopt(Arc::new(dictionary));
        }
        drop(all);
        trim();
        self.is_untrimmed = true;
        if self.current.is_none() {
            self.until_attempt *= 2;
        }
    }

    /// Measures the ratio after a training from now on.
    pub(super) fn restart_window(&mut self) {
        self.window = Window::default();
        self.baseline = None;
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
    pub(super) fn rest(&mut self) {
        (self.context, self.compress) = (None, None);
        (self.out, self.prefix) = (Vec::new(), Vec::new());
        if mem::take(&mut self.is_untrimmed) {
            trim();
        }
    }

    /// Returns the compressed bytes and their dictionary; `None` if they would not be shorter.
    pub(super) fn compress(&mut self, bytes: &[u8]) -> Option<(&[u8], Option<Arc<Dictionary>>)> {
        let context = self.context.get_or_insert_with(CCtx::create);
        self.out.clear();
        self.out.reserve(zstd_safe::compress_bound(bytes.len()));
        let done = match &self.current {
            Some(current) => {
                if self.compress.is_none() {
                    self.compress = CDict::try_create(&current.bytes(), LEVEL);
                }
                context.compress_using_cdict(&mut self.out, bytes, self.compress.as_ref()?)
            }
            None => context.compress(&mut self.out, bytes, LEVEL),
        };
        self.window.objects += 1;
        self.window.wire += bytes.len() as u64;
        self.window.compressed += self.out.len() as u64;
        let is_shorter = done.is_ok() && self.out.len() < bytes.len();
        if self.current.is_none() {
            self.untrained += self.out.len().min(bytes.len());
        }
        is_shorter.then(|| (&self.out[..], self.current.clone()))
    }

    /// Compresses the difference of an object to a base. The base is followed by name, uid and resource version of the object, which
    /// its entry has anyway. Returns the length; `None` if zstd does not compress the object at all.
    pub(super) fn difference(&mut self, base: &[u8], head: [&[u8]; 3], bytes: &[u8]) -> Option<usize> {
        let context = self.context.get_or_insert_with(CCtx::create);
        base.clone_into(&mut self.prefix);
        append(&mut self.prefix, head);
        self.out.clear();
        self.out.reserve(zstd_safe::compress_bound(bytes.len()));
        context.compress_using_dict(&mut self.out, bytes, &self.prefix, DIFFERENCE_LEVEL).ok()?;
        let wire_len = bytes.len().try_into().ok()?;
        self.start = start(wire_len, 0).len();
        let difference = self.out.get(self.start..)?.len();
        self.out.starts_with(&start(wire_len, difference)).then_some(difference)
    }

    /// Returns the last difference.
    pub(super) fn last_difference(&self) -> &[u8] {
        self.out.get(self.start..).unwrap_or_default()
    }

    /// Returns true if objects compress so much worse than after the training that another training is due.
    fn has_drifted(&mut self) -> bool {
        if self.window.objects < WINDOW {
            return false;
        }
        let window = mem::take(&mut self.window);
        let Window { wire, compressed, .. } = *self.baseline.get_or_insert(window);
        // Compares compressed / wire of this window with compressed / wire of the first window.
        let (drifted, allowed) = DRIFT;
        window.compressed * wire * allowed > compressed * window.wire * drifted
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
        let dictionaries = self.dictionaries.iter().filter_map(Weak::upgrade).map(|dictionary| dictionary.packed.len());
        self.out.capacity()
            + self.prefix.capacity()
            + dictionaries.sum::<usize>()
            + self.dictionaries.capacity() * size_of::<Weak<Dictionary>>()
    }
}

/// Returns the beginning of the frame of a difference, which is not stored because it follows from two lengths: the header of the frame
/// and of its only block. If the object is longer than a block, the beginning is the magic number.
///
/// Sources: RFC 8878, sections 3.1.1.1 (the header of a frame: one segment, with its length) and 3.1.1.2 (the header of a block: the last
/// one, compressed).
fn start(wire_len: u32, difference_len: usize) -> SmallVec<[u8; 12]> {
    let mut start = SmallVec::from_slice(&MAGIC);
    if wire_len > BLOCK {
        return start;
    }
    let [short, middle, ..] = wire_len.wrapping_sub(256).to_le_bytes();
    match wire_len {
        ..256 => start.extend([0x20, wire_len.to_le_bytes()[0]]),
        256..65_792 => start.extend([0x60, short, middle]),
        _ => start.extend(once(0xa0).chain(wire_len.to_le_bytes())),
    }
    let block = difference_len << 3 | 0b101;
    start.extend(block.to_le_bytes().into_iter().take(3));
    start
}

/// Returns true if the object at this place of a collection is a sample. `len` is the total length of its objects in bytes. The places of
/// samples are spread over the collection without a period, because the objects may have one.
pub(super) fn is_sample(place: u32, len: usize) -> bool {
    u64::from(place.wrapping_mul(0x9e37_79b9)) * len as u64 <= (SAMPLES_LEN as u64) << 32
}

/// Makes the allocator return the free memory at the end of its heap.
///
/// A training frees blocks of 4 MiB. From then on, glibc keeps up to 8 MiB at the end of the heap (`M_TRIM_THRESHOLD` in mallopt(3)),
/// unless a program frees more than that at once. This function does so, with blocks that are shorter than `M_MMAP_THRESHOLD` and whose
/// pages are not used. It takes 0.5 ms.
fn trim() {
    let blocks: Vec<Vec<u8>> = (0..128).map(|_| Vec::with_capacity(100 << 10)).collect();
    drop(black_box(blocks));
}

fn append(prefix: &mut Vec<u8>, head: [&[u8]; 3]) {
    for text in head {
        prefix.extend_from_slice(text);
    }
}

/// Decompresses for any number of threads: each borrows a context, or creates one if all are in use.
#[derive(Default)]
pub(super) struct Decompressor(Arc<Shared>);

/// What a decompressor shares with its bases.
#[derive(Default)]
struct Shared {
    pool: Mutex<Pool>,
    /// The bytes of all bases.
    bases: AtomicUsize,
}

#[derive(Default)]
struct Pool {
    contexts: Vec<Context>,
    /// The base that was used last, because the objects of a family are mostly neighbours.
    last: Option<Known>,
    /// Bases by their address; of two with the same place, the one with more members. They serve random reads.
    largest: [Option<Known>; LARGEST],
}

/// A base that is alive, and its bytes.
struct Known {
    base: Weak<Base>,
    bytes: Arc<Vec<u8>>,
}

impl Pool {
    fn place(&mut self, base: *const Base) -> Option<&mut Option<Known>> {
        // Spreads the address.
        let at = (base.addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.largest.get_mut(usize::try_from(at).unwrap_or_default() % LARGEST)
    }

    fn find(&mut self, base: *const Base) -> Option<Arc<Vec<u8>>> {
        let is = |known: &&Known| known.base.as_ptr() == base;
        let last = self.last.as_ref().filter(is).map(|known| Arc::clone(&known.bytes));
        last.or_else(|| self.place(base)?.as_ref().filter(is).map(|known| Arc::clone(&known.bytes)))
    }

    /// Keeps the bytes of the base that a writer or a reader of bases used last.
    fn keep(&mut self, base: &Arc<Base>, bytes: &Arc<Vec<u8>>) {
        if bytes.len() <= KEPT_LEN && !self.keep_largest(base, bytes) {
            self.last = Some(Known { base: Arc::downgrade(base), bytes: Arc::clone(bytes) });
        }
    }

    /// Keeps a copy of the bytes if the base has more members than the base in its place. Returns true if it did.
    fn keep_largest(&mut self, base: &Arc<Base>, bytes: &[u8]) -> bool {
        let members = Arc::strong_count(base);
        match self.place(Arc::as_ptr(base)) {
            Some(place)
                if bytes.len() <= KEPT_LEN
                    && place.as_ref().is_none_or(|other| other.base.strong_count() < members) =>
            {
                *place = Some(Known { base: Arc::downgrade(base), bytes: Arc::new(bytes.to_vec()) });
                true
            }
            _ => false,
        }
    }

    fn forget(&mut self, base: *const Base) {
        self.known().for_each(|known| _ = known.take_if(|known| known.base.as_ptr() == base));
    }

    fn known(&mut self) -> impl Iterator<Item = &mut Option<Known>> {
        self.largest.iter_mut().chain([&mut self.last])
    }
}

/// What decompresses one object at a time. After a change of the dictionary, zstd assumes that the processor's caches lack it, and decodes
/// slower. So differences have a context of their own, which takes a tenth off the time to read an object of a small family.
#[derive(Default)]
struct Context {
    whole: Option<DCtx<'static>>,
    differences: Option<DCtx<'static>>,
    /// The base of the difference that was decompressed last, and its bytes, followed by the texts of the object.
    base: Weak<Base>,
    prefix: Vec<u8>,
    frame: Vec<u8>,
}

/// Replaces `bytes` by the bytes of the base.
fn unpack(context: &mut Option<DCtx<'static>>, bytes: &mut Vec<u8>, base: &Base) -> Option<()> {
    let packed = base.packed();
    decompress(context, bytes, &packed.body, base.wire_len, packed.dictionary.as_deref())
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

impl Decompressor {
    /// Returns the object's bytes; `None` when this crate did not compress them.
    pub(super) fn decompress(
        &self,
        compressed: &[u8],
        wire_len: u32,
        dictionary: Option<&Dictionary>,
    ) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.with_context(|context| decompress(&mut context.whole, &mut bytes, compressed, wire_len, dictionary))?;
        Some(bytes)
    }

    /// Makes a base of a compressed object.
    pub(super) fn new_base(&self, common: &Arc<Common>, body: &[u8], wire_len: u32) -> Arc<Base> {
        self.0.bases.fetch_add(Base::allocated(body.len()), Ordering::Relaxed);
        let Common { namespace, dictionary } = &**common;
        let packed = RwLock::new(Packed { dictionary: dictionary.clone(), body: body.into() });
        Arc::new(Base { namespace: Arc::clone(namespace), packed, wire_len, shared: Arc::clone(&self.0) })
    }

    /// Returns the bytes of a base.
    pub(super) fn base(&self, base: &Arc<Base>) -> Option<Arc<Vec<u8>>> {
        if let Some(bytes) = lock(&self.0.pool).find(Arc::as_ptr(base)) {
            return Some(bytes);
        }
        let mut bytes = Vec::new();
        self.with_context(|context| unpack(&mut context.whole, &mut bytes, base))?;
        let bytes = Arc::new(bytes);
        lock(&self.0.pool).keep(base, &bytes);
        Some(bytes)
    }

    /// Returns the bytes of an object from its difference to a base. `head` is what [`Compressor::difference`] got.
    pub(super) fn restore(
        &self,
        base: &Arc<Base>,
        head: [&[u8]; 3],
        difference: &[u8],
        wire_len: u32,
    ) -> Option<Vec<u8>> {
        self.with_context(|context| {
            let Context { whole, differences, prefix, frame, .. } = context;
            if context.base.as_ptr() != Arc::as_ptr(base) {
                context.base = Weak::new();
                let known = lock(&self.0.pool).find(Arc::as_ptr(base));
                if let Some(bytes) = known {
                    bytes.as_slice().clone_into(prefix);
                } else {
                    unpack(whole, prefix, base)?;
                    lock(&self.0.pool).keep_largest(base, prefix);
                }
                context.base = Arc::downgrade(base);
            }
            prefix.truncate(base.wire_len as usize);
            append(prefix, head);
            frame.clear();
            frame.extend_from_slice(&start(wire_len, difference.len()));
            frame.extend_from_slice(difference);
            let mut bytes = Vec::with_capacity(wire_len as usize);
            let differences = differences.get_or_insert_with(DCtx::create);
            let done = differences.decompress_using_dict(&mut bytes, frame, prefix);
            if prefix.len() > KEPT_LEN {
                (context.base, *prefix) = (Weak::new(), Vec::new());
            }
            frame.shrink_to(KEPT_LEN);
            (done.is_ok() && bytes.len() == wire_len as usize).then_some(bytes)
        })
    }

    fn with_context<R>(&self, run: impl FnOnce(&mut Context) -> R) -> R {
        let free = lock(&self.0.pool).contexts.pop();
        let mut context = free.unwrap_or_default();
        let result = run(&mut context);
        lock(&self.0.pool).contexts.push(context);
        result
    }

    /// Returns the bytes of all bases.
    pub(super) fn base_bytes(&self) -> usize {
        self.0.bases.load(Ordering::Relaxed)
    }

    /// Returns the other bytes from Rust's allocator.
    pub(super) fn buffer_bytes(&self) -> usize {
        let mut pool = lock(&self.0.pool);
        let contexts = pool.contexts.iter().map(|context| context.prefix.capacity() + context.frame.capacity());
        let contexts = contexts.sum::<usize>();
        let known = pool.known().flatten();
        contexts + known.map(|known| size_of::<(usize, usize, Vec<u8>)>() + known.bytes.capacity()).sum::<usize>()
    }

    /// Returns the bytes that zstd has allocated.
    pub(super) fn zstd_bytes(&self) -> usize {
        lock(&self.0.pool)
            .contexts
            .iter()
            .flat_map(|context| [&context.whole, &context.differences])
            .flatten()
            .map(DCtx::sizeof)
            .sum()
    }
}
