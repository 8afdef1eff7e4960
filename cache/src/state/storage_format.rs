//! The form in which a store keeps objects.

/// The form in which a [`Store`](crate::Store) keeps objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StorageFormat {
    /// The bytes as they arrived. A reader decodes them.
    #[default]
    Encoded,
    /// Compressed by zstd, mostly as the delta to a similar object of the same owner. A reader decompresses the object.
    ///
    /// The store trains its dictionary while it grows. An object that compression does not make shorter is kept
    /// encoded, and so are the latest changes, which are compressed together. The chapter on caching has the sizes and
    /// costs.
    Compressed,
    /// Decoded. The bytes are not kept, so a reader of the bytes encodes the object again. [`Memory`](crate::Memory)
    /// and the budget can only estimate its memory.
    Decoded,
}
