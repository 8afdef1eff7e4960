//! One item, borrowed from the decoder: what it is. `object/item_ref.rs` has what one reads of it.

use std::fmt;

use crate::error::ItemError;
use crate::meta::TypeMeta;
use crate::wire::Encoding;

/// The end of a scanned object or array, or of one within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// The offset of the byte after its closing bracket, from the first byte of the scanned value.
    pub(crate) at: u32,
    /// The number of the scanned value's brackets around it: 0 for the scanned value itself.
    pub(crate) depth: u32,
}

/// One item of a list, or the object of a watch event, borrowed: its bytes, their encoding and its place in the body.
///
/// [`FieldPath`](crate::FieldPath) reads its fields, [`project`](Self::project) copies it without some of them, and
/// [`decode`](Self::decode) decodes it. [`new`](Self::new) borrows bytes that the caller keeps.
#[derive(Clone, Copy)]
pub struct ItemRef<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) encoding: Encoding,
    pub(crate) type_meta: &'a TypeMeta,
    pub(crate) index: u64,
    pub(crate) offset: u64,
    /// [`Limits::decoded_size`](crate::Limits::decoded_size)
    pub(crate) decoded_size: u64,
    /// The ends of the object and of values in it that a scan has found, in JSON; or none.
    pub(crate) ends: &'a [End],
}

impl<'a> ItemRef<'a> {
    /// Borrows the bytes of an object that is not in a body, such as a kept item. Its type meta is empty.
    #[must_use]
    pub fn new(encoding: Encoding, bytes: &'a [u8]) -> Self {
        static UNKNOWN: TypeMeta = TypeMeta { api_version: String::new(), kind: String::new() };
        let decoded_size = crate::Limits::DEFAULT_DECODED_SIZE;
        Self { bytes, encoding, type_meta: &UNKNOWN, index: 0, offset: 0, decoded_size, ends: &[] }
    }

    /// Returns the same item with the type meta of the object or of its list.
    #[must_use]
    pub fn with_type_meta(self, type_meta: &'a TypeMeta) -> Self {
        Self { type_meta, ..self }
    }

    /// Returns the same item with the limit of [`Limits::decoded_size`](crate::Limits::decoded_size), in bytes.
    #[must_use]
    pub fn with_decoded_size(self, bytes: u64) -> Self {
        Self { decoded_size: bytes, ..self }
    }

    /// Returns the bytes of the item, as the server sent them.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the encoding of [`bytes`](Self::bytes).
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the type meta of the list. Items in protobuf have no type meta; their kind is the list's kind without
    /// `List`.
    ///
    /// In a JSON list it has the members that precede the item in the body, and empty strings for the others: lists of
    /// custom resources have `kind` after the items, which then have their own `kind`.
    ///
    /// In a watch it is the object's own type meta.
    #[must_use]
    pub fn type_meta(&self) -> &'a TypeMeta {
        self.type_meta
    }

    /// Returns the number of items before it in the list, including skipped items; in a watch, of events of all kinds.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns the offset of its field in the body: in protobuf, of the tag, a few bytes before [`bytes`](Self::bytes).
    /// In a watch, returns the offset of its frame.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the same item with other bytes, of the same encoding.
    #[doc(hidden)]
    #[must_use]
    pub fn with_bytes<'b>(&self, bytes: &'b [u8]) -> ItemRef<'b>
    where
        'a: 'b,
    {
        ItemRef { bytes, ends: &[], ..*self }
    }

    /// Copies the bytes into a box of exactly their size, in one allocation.
    #[must_use]
    pub fn to_box(&self) -> Box<[u8]> {
        self.bytes.into()
    }

    /// Refuses an item that may take more memory than its limit when it is decoded, by this estimate. It does not
    /// estimate small items, because none of them takes more than about 40 MB.
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

/// Shows the position of the item, but no bytes, which may be a Secret.
impl fmt::Debug for ItemRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemRef")
            .field("index", &self.index)
            .field("offset", &self.offset)
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}
