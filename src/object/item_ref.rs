//! One item, borrowed from the decoder.

use std::fmt;

use super::{MetaView, Projection};
use crate::error::ItemError;
use crate::meta::TypeMeta;
use crate::wire::Encoding;

/// One item of a list, or the object of a watch event, lent: its bytes and its place.
#[derive(Clone, Copy)]
pub struct ItemRef<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) encoding: Encoding,
    pub(crate) type_meta: &'a TypeMeta,
    pub(crate) index: u64,
    pub(crate) offset: u64,
    /// [`Limits::decoded_size`](crate::Limits::decoded_size)
    pub(crate) decoded_size: u64,
}

impl<'a> ItemRef<'a> {
    /// An object that came alone, under its own type meta.
    #[cfg(feature = "client")]
    pub(crate) fn single(bytes: &'a [u8], encoding: Encoding, type_meta: &'a TypeMeta) -> Self {
        Self { bytes, encoding, type_meta, index: 0, offset: 0, decoded_size: crate::Limits::DEFAULT_DECODED_SIZE }
    }

    /// The same item, at its place in a list with this limit.
    #[cfg(feature = "client")]
    pub(crate) fn at(self, index: u64, offset: u64, decoded_size: u64) -> Self {
        Self { index, offset, decoded_size, ..self }
    }

    /// [`Limits::decoded_size`](crate::Limits::decoded_size) of its list.
    #[cfg(feature = "client")]
    pub(crate) fn decoded_size(&self) -> u64 {
        self.decoded_size
    }

    /// The bytes of the item, as they came.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How [`bytes`](Self::bytes) are encoded.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The type meta of the list. Items in protobuf carry none of their own; their kind is this one's without `List`.
    ///
    /// Of a JSON list it is what came before the item, and empty strings for the rest: lists of custom resources have
    /// `kind` behind the items, which then carry their own.
    ///
    /// In a watch it is the object's own.
    #[must_use]
    pub fn type_meta(&self) -> &'a TypeMeta {
        self.type_meta
    }

    /// How many items of this list came before it, skipped ones included; in a watch, events of all kinds.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Where in the body its field begins: in protobuf at the tag, a few bytes before [`bytes`](Self::bytes). In a watch,
    /// where its frame begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its metadata, read off the bytes without decoding the rest.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when they cannot be read.
    pub fn meta(&self) -> Result<MetaView<'a>, ItemError> {
        match self.encoding {
            Encoding::Protobuf => MetaView::new(self.bytes),
            #[cfg(feature = "json")]
            Encoding::Json => MetaView::from_json(self.bytes),
            #[cfg(not(feature = "json"))]
            Encoding::Json => Err(ItemError::WrongEncoding { found: Encoding::Json, expected: Encoding::Protobuf }),
        }
    }

    /// Decodes it with prost.
    ///
    /// # Errors
    ///
    /// [`ItemError::Protobuf`] when prost refuses it, [`ItemError::DecodedSize`] when it may take too much memory,
    /// [`ItemError::WrapperType`] when `M` is no message of its own, [`ItemError::WrongEncoding`] on an item in JSON.
    pub fn decode<M: prost::Message + Default + 'static>(&self) -> Result<Box<M>, ItemError> {
        self.expect(Encoding::Protobuf)?;
        let mut message = Box::<M>::default();
        super::merge(&mut *message, self.bytes, self.decoded_size)?;
        Ok(message)
    }

    /// Decodes it with `serde_json`.
    ///
    /// # Errors
    ///
    /// [`ItemError::Json`] when `serde_json` refuses it, [`ItemError::DecodedSize`] when it may take too much memory,
    /// [`ItemError::WrongEncoding`] on an item in protobuf.
    #[cfg(feature = "json")]
    pub fn decode_json<T: serde::de::DeserializeOwned>(&self) -> Result<Box<T>, ItemError> {
        self.expect(Encoding::Json)?;
        super::deserialize(self.bytes, self.decoded_size).map(Box::new)
    }

    /// Appends it to `out` as JSON on one line, with `kind` and `apiVersion` at its beginning or where it has its own.
    ///
    /// Of an item in protobuf it is the [JSON form](crate::schema::to_json), of one in JSON the same without whitespace.
    ///
    /// Returns the number of fields that are left out because the [table of fields](crate::schema) does not have them; 0 for JSON.
    ///
    /// # Errors
    ///
    /// Those of [`to_json`](crate::schema::to_json); [`ItemError::Metadata`] for an item that is no JSON, or has no kind
    /// where its list has none either, so far. `out` is then as it was.
    #[cfg(feature = "json")]
    pub fn to_json(&self, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        match self.encoding {
            Encoding::Protobuf => crate::schema::to_json(self.type_meta, self.bytes, out),
            Encoding::Json => crate::schema::to_line(self.type_meta, self.bytes, out).map(|()| 0),
        }
    }

    /// Copies the bytes without what the projection drops, as [`Projection::apply`] does.
    ///
    /// # Errors
    ///
    /// Those of [`Projection::apply`].
    pub fn project(&self, projection: &Projection) -> Result<Box<[u8]>, ItemError> {
        projection.apply(self.bytes)
    }

    /// The same item with other bytes, of the same encoding.
    pub(crate) fn with_bytes<'b>(&self, bytes: &'b [u8]) -> ItemRef<'b>
    where
        'a: 'b,
    {
        ItemRef { bytes, ..*self }
    }

    /// Copies the bytes into a box of exactly their size, in one allocation.
    #[must_use]
    pub fn to_box(&self) -> Box<[u8]> {
        self.bytes.into()
    }

    fn expect(&self, expected: Encoding) -> Result<(), ItemError> {
        if self.encoding == expected {
            return Ok(());
        }
        Err(ItemError::WrongEncoding { found: self.encoding, expected })
    }
}

/// Says which item it is, not what is in it: that may be a Secret.
impl fmt::Debug for ItemRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemRef")
            .field("index", &self.index)
            .field("offset", &self.offset)
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}
