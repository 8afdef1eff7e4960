//! The data of an item. `object/item_ref.rs` contains the methods that read an object from it.

use std::fmt;

use crate::error::ItemError;
use crate::meta::TypeMeta;
use crate::wire::Encoding;

/// The end of an object or array in scanned JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// The offset of the byte after the closing bracket, counted from the first scanned byte.
    pub(crate) at: u32,
    /// The number of the scanned value's brackets around this end: 0 for the scanned value itself.
    pub(crate) depth: u32,
}

/// An item of a list or the object of a watch event, borrowed from the decoder.
///
/// It consists of the bytes, their encoding and their place in the body. [`FieldPath`](crate::FieldPath) reads fields,
/// [`project`](Self::project) copies the item without some of them, and [`decode`](Self::decode) decodes it.
/// [`new`](Self::new) makes an item from bytes that the caller keeps.
#[derive(Clone, Copy)]
pub struct ItemRef<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) encoding: Encoding,
    pub(crate) type_meta: &'a TypeMeta,
    pub(crate) index: u64,
    pub(crate) offset: u64,
    /// [`Limits::decoded_size`](crate::Limits::decoded_size)
    pub(crate) decoded_size: u64,
    /// In JSON, the ends of the object and of values in it, if a scan found them.
    pub(crate) ends: &'a [End],
}

impl<'a> ItemRef<'a> {
    /// Makes an item from the bytes of an object that is in no body, such as a kept item. Its type meta is empty.
    #[must_use]
    pub fn new(encoding: Encoding, bytes: &'a [u8]) -> Self {
        static UNKNOWN: TypeMeta = TypeMeta { api_version: String::new(), kind: String::new() };
        let decoded_size = crate::Limits::DEFAULT_DECODED_SIZE;
        Self { bytes, encoding, type_meta: &UNKNOWN, index: 0, offset: 0, decoded_size, ends: &[] }
    }

    /// Returns the same item with this type meta, which is the object's or its list's.
    #[must_use]
    pub fn with_type_meta(self, type_meta: &'a TypeMeta) -> Self {
        Self { type_meta, ..self }
    }

    /// Returns the same item with this limit of [`Limits::decoded_size`](crate::Limits::decoded_size), in bytes.
    #[must_use]
    pub fn with_decoded_size(self, bytes: u64) -> Self {
        Self { decoded_size: bytes, ..self }
    }

    /// Returns the bytes of the item as the server sent them.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the encoding of [`bytes`](Self::bytes).
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the type meta of the list, or of the object itself in a watch.
    ///
    /// Items in a protobuf list have no type meta of their own; their kind is the list's kind without `List`. In a JSON
    /// list, the result contains only the members that precede the item in the body, and is empty otherwise. Lists of
    /// custom resources, for example, write `kind` after the items, but there each item contains its own `kind`.
    #[must_use]
    pub fn type_meta(&self) -> &'a TypeMeta {
        self.type_meta
    }

    /// Returns how many items, including skipped ones, precede this item in the list, or how many events in the watch.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns the offset of the item's field in the body, or of its frame in a watch.
    ///
    /// In protobuf, the field begins with a tag, a few bytes before [`bytes`](Self::bytes).
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the same item with other bytes in the same encoding.
    #[doc(hidden)]
    #[must_use]
    pub fn with_bytes<'b>(&self, bytes: &'b [u8]) -> ItemRef<'b>
    where
        'a: 'b,
    {
        ItemRef { bytes, ends: &[], ..*self }
    }

    /// Copies the bytes into one allocation of exactly their size.
    #[must_use]
    pub fn to_box(&self) -> Box<[u8]> {
        self.bytes.into()
    }

    /// Refuses an item that may take more memory than its limit when it is decoded, according to the estimate. Small
    /// items are not estimated, because none of them takes more than about 40 MB.
    ///
    /// # Errors
    ///
    /// [`ItemError::DecodedSize`].
    pub(crate) fn check_decoded_size(&self, estimate: impl FnOnce(&Self) -> u64) -> Result<(), ItemError> {
        if self.bytes.len() <= SMALL {
            return Ok(());
        }
        let (estimate, max) = (estimate(self), self.decoded_size);
        if estimate > max { Err(ItemError::DecodedSize { estimate, max }) } else { Ok(()) }
    }
}

/// Objects up to this size are not estimated.
const SMALL: usize = 16 << 10;

/// Shows the position of the item but not its bytes, which may be a Secret.
impl fmt::Debug for ItemRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemRef")
            .field("index", &self.index)
            .field("offset", &self.offset)
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}
