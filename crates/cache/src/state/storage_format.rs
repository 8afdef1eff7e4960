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
    /// The store trains a dictionary while it grows, and another one when its objects have drifted from it. The write
    /// that trains takes about 0.1 s, and other writes wait for it. The next writes each compress a few objects again
    /// with the new dictionary, until none uses the old one. An object that compression does not make shorter is kept
    /// encoded, and so are the latest changes, which are compressed together. The chapter on caching has the sizes and
    /// costs.
    Compressed,
    /// Decoded. The bytes are not kept, so a reader of the bytes encodes the object again. [`Memory`](crate::Memory)
    /// and the budget can only estimate its memory.
    Decoded,
}
