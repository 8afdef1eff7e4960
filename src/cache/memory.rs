//! What a store takes.

/// The memory of a [`Store`](super::Store) in bytes, by part, as its allocators were asked for it: their own rounding comes
/// on top. What only callers hold, as objects that were replaced since, is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Objects held encoded: their bytes, and about 90 more for each.
    pub encoded: usize,
    /// Objects held compressed, as well.
    pub compressed: usize,
    /// Objects held decoded, and those that are kept decoded because they are hot. Estimated as eight times their encoded
    /// length, for nothing tells what a decoded object has on the heap.
    pub decoded: usize,
    /// What finds objects by key.
    pub table: usize,
    /// Indexes, without what their values have on the heap.
    pub indexes: usize,
    /// What an uncommitted replace has put aside, and tombstones.
    pub replace: usize,
    /// zstd's contexts and dictionaries, which are not of Rust's allocator.
    pub zstd: usize,
}

impl Memory {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> usize {
        let Self { encoded, compressed, decoded, table, indexes, replace, zstd } = self;
        encoded + compressed + decoded + table + indexes + replace + zstd
    }
}
