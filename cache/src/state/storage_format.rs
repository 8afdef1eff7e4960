//! The form in which a store keeps objects.

/// The form in which a [`Store`](crate::Store) keeps objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StorageFormat {
    /// The bytes as they arrived. A reader decodes them.
    #[default]
    Encoded,
    /// Compressed by zstd (feature `zstd`), as the difference to an object of the same family: of the same controlling
    /// owner, or without one of the same `generateName`. An object without a family, or unlike it, is compressed by
    /// itself. Once such objects take 1.5 MiB, the store trains a dictionary of 110 KiB on samples of them, which takes
    /// about 0.2 s, and compresses them again. It trains another when objects compress worse. An object that
    /// compression does not make shorter is kept encoded. An object that changes is kept encoded too, until 64 objects
    /// have changed, or 512 KiB of them: to compress them together takes a fraction of the time. A store with a budget
    /// or a change log compresses each at once.
    Compressed,
    /// Decoded. The bytes are not kept, so a reader of the bytes encodes the object again. [`Memory`](crate::Memory)
    /// and the budget can only estimate its memory.
    Decoded,
}
