//! The memory of a store, by part.

use crate::state::entry::{Entry, EntryForm};

/// The memory of a [`Store`](crate::Store) in bytes, by part, as requested from the allocators, without their rounding.
///
/// It leaves out objects that only callers and subscribers hold, for example replaced states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Objects kept encoded: their bytes, and 32 bytes more for each (and about 25 in the tables).
    pub encoded: usize,
    /// Objects kept compressed: their compressed bytes, and 32 bytes and the identity for each; and the references
    /// of delta groups.
    pub compressed: usize,
    /// Objects kept decoded. An estimate, eight times the encoded length, because the heap memory of a decoded object
    /// is unknown: Pods of k8s-pb take 6 to 10 times their encoded length.
    pub decoded: usize,
    /// The tables that find objects by key, by namespace and by delta group, and the buffers of compression.
    pub table: usize,
    /// Indexes, without the heap memory of their values.
    pub indexes: usize,
    /// The change log: replaced and deleted states, and encoded frames.
    pub log: usize,
    /// Tombstones, and the objects that an uncommitted relist has set aside.
    pub relist: usize,
    /// zstd's contexts and dictionaries, which are outside of Rust's allocator.
    pub zstd: usize,
}

impl Memory {
    /// Returns the sum of all parts.
    #[must_use]
    pub fn total(&self) -> usize {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the name of each part, and its bytes.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, usize); 8] {
        let Self { encoded, compressed, decoded, table, indexes, log, relist, zstd } = *self;
        [
            ("compressed", compressed),
            ("encoded", encoded),
            ("decoded", decoded),
            ("table", table),
            ("indexes", indexes),
            ("log", log),
            ("relist", relist),
            ("zstd", zstd),
        ]
    }
}

/// Bytes of the objects of a store, by form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) encoded: usize,
    pub(crate) compressed: usize,
    pub(crate) decoded: usize,
}

impl Usage {
    /// Counts all entries from scratch.
    pub(crate) fn of_all<'e, D: 'e>(entries: impl Iterator<Item = &'e Entry<D>>) -> Self {
        entries.fold(Self::default(), |mut usage, entry| {
            usage.add(entry);
            usage
        })
    }

    pub(crate) fn add<D>(&mut self, entry: &Entry<D>) {
        *self.part(entry) += Self::of(entry);
    }

    pub(crate) fn subtract<D>(&mut self, entry: &Entry<D>) {
        *self.part(entry) -= Self::of(entry);
    }

    fn part<D>(&mut self, entry: &Entry<D>) -> &mut usize {
        match entry.form() {
            EntryForm::Encoded { .. } | EntryForm::EncodedWithHead { .. } => &mut self.encoded,
            EntryForm::Whole { .. } | EntryForm::Delta { .. } => &mut self.compressed,
            EntryForm::Decoded { .. } => &mut self.decoded,
        }
    }

    pub(crate) fn of<D>(entry: &Entry<D>) -> usize {
        let decoded = match entry.form() {
            EntryForm::Decoded { .. } => Self::of_decoded(entry.wire_len()),
            _ => 0,
        };
        entry.allocated().saturating_add(decoded)
    }

    /// Estimates the bytes of a decoded object from its encoded length.
    pub(crate) fn of_decoded(wire_len: u32) -> usize {
        usize::try_from(8 * u64::from(wire_len)).unwrap_or(usize::MAX)
    }

    pub(crate) fn total(&self) -> usize {
        self.encoded + self.compressed + self.decoded
    }
}
