//! The memory of a store, by part.

use crate::state::entry::{Entry, EntryForm};

/// The memory of a [`Store`](crate::Store) in bytes, by part, as requested from the allocators before they round up.
///
/// Objects that only callers and subscribers hold, such as replaced states, are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Objects that are kept encoded: their bytes and 32 more for each, besides about 25 in the tables.
    pub encoded: usize,
    /// Objects that are kept compressed, and the references of delta groups.
    ///
    /// An object takes its compressed bytes, its identity and 32 bytes.
    pub compressed: usize,
    /// The tables that find objects by key, namespace and delta group, and the buffers of compression.
    pub table: usize,
    /// Indexes, without the heap memory of their values.
    pub indexes: usize,
    /// The change log: replaced and deleted states, and encoded frames.
    pub log: usize,
    /// Tombstones, and the objects that an uncommitted relist has set aside.
    pub relist: usize,
    /// zstd's contexts and dictionaries, which are not in Rust's allocator.
    pub zstd: usize,
}

impl Memory {
    /// Returns the sum of all parts.
    #[must_use]
    pub fn total(&self) -> usize {
        self.parts().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the name and the bytes of each part.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, usize)> + use<> {
        let Self { encoded, compressed, table, indexes, log, relist, zstd } = *self;
        [
            ("compressed", compressed),
            ("encoded", encoded),
            ("table", table),
            ("indexes", indexes),
            ("log", log),
            ("relist", relist),
            ("zstd", zstd),
        ]
        .into_iter()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) encoded: usize,
    pub(crate) compressed: usize,
}

impl Usage {
    pub(crate) fn of_all<'e>(entries: impl Iterator<Item = &'e Entry>) -> Self {
        entries.fold(Self::default(), |mut usage, entry| {
            usage.add(entry);
            usage
        })
    }

    pub(crate) fn add(&mut self, entry: &Entry) {
        *self.part(entry) += entry.allocated();
    }

    pub(crate) fn subtract(&mut self, entry: &Entry) {
        *self.part(entry) -= entry.allocated();
    }

    fn part(&mut self, entry: &Entry) -> &mut usize {
        match entry.form() {
            EntryForm::Encoded { .. } | EntryForm::EncodedWithHead { .. } => &mut self.encoded,
            EntryForm::Whole { .. } | EntryForm::Delta { .. } => &mut self.compressed,
        }
    }

    pub(crate) fn total(&self) -> usize {
        self.encoded + self.compressed
    }
}
