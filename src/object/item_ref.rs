//! One item, borrowed from the decoder.

use std::fmt;

use super::decoding::{Undecoded, deserialize, merge};
use super::meta_view::MetaView;
use crate::encoding::json::line::to_line;
use crate::encoding::json::scan::{End, Ends};
use crate::encoding::protobuf::{to_json, unknown};
use crate::error::ItemError;
use crate::meta::TypeMeta;
use crate::schema;
use crate::wire::Encoding;

/// One item of a list, or the object of a watch event, borrowed: its bytes, their encoding and its place in the body.
///
/// [`FieldPath`](super::FieldPath) reads its fields, [`project`](Self::project) copies it without some of them, and
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

    /// Reads its metadata, without decoding the rest.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when the object or its metadata is malformed, or when a single field of the metadata has
    /// the wrong type.
    pub fn meta(&self) -> Result<MetaView<'a>, ItemError> {
        MetaView::new(self.encoding, self.bytes, self.ends)
    }

    /// Decodes it with prost. A type of k8s-pb must be of the item's [type meta](Self::type_meta), unless that is
    /// unknown or `PartialObjectMetadata`. Text that is not UTF-8 gets U+FFFD in place of each such byte, as in Go's
    /// JSON, if the item's kind is in the [table of fields](crate::schema).
    ///
    /// # Errors
    ///
    /// [`ItemError::WrongKind`] for an item of another kind than the type's, [`ItemError::Protobuf`] when prost refuses
    /// it, [`ItemError::DecodedSize`] when it may take too much memory, [`ItemError::WrapperType`] when `M` is one of
    /// prost's wrapper types, [`ItemError::WrongEncoding`] for an item in JSON.
    pub fn decode<M: prost::Message + Default + 'static>(&self) -> Result<Box<M>, ItemError> {
        schema::check_type(std::any::type_name::<M>(), self.type_meta)?;
        self.decode_unchecked()
    }

    /// Decodes it with prost, without a check of its kind.
    pub(super) fn decode_unchecked<M: prost::Message + Default + 'static>(&self) -> Result<Box<M>, ItemError> {
        let mut message = Box::<M>::default();
        merge(&mut *message, &self.undecoded())?;
        Ok(message)
    }

    /// Decodes it with `serde_json`. Text that is not Unicode gets U+FFFD, as in Go: in place of each byte that is not
    /// UTF-8, and of each half of a surrogate pair.
    ///
    /// # Errors
    ///
    /// [`ItemError::Json`] when `serde_json` refuses it, [`ItemError::DecodedSize`] when it may take too much memory,
    /// [`ItemError::WrongEncoding`] for an item in protobuf.
    pub fn decode_json<T: serde::de::DeserializeOwned>(&self) -> Result<Box<T>, ItemError> {
        deserialize(&self.undecoded()).map(Box::new)
    }

    /// Appends it to `out` as JSON on one line, with `kind` and `apiVersion` at the beginning, or in their place if it
    /// has them.
    ///
    /// For an item in protobuf it appends the output of Go's `json.Marshal` for the object as client-go decodes it,
    /// with `kind` and `apiVersion` first: the same fields in the same order, with the same escapes. A quantity stays
    /// as the server sent it. Where releases of Go's types differ in the order of fields, or in which empty fields they
    /// omit, it follows the newest release in the [table of fields](crate::schema). A field that not all releases have
    /// is omitted if the object does not have it. Text gets U+FFFD in place of each byte that is not UTF-8. For an item
    /// in JSON it appends the same members without whitespace.
    ///
    /// Returns the number of fields that are left out because the table does not have them, as Go's clients leave out
    /// unknown fields; 0 for JSON.
    ///
    /// For protobuf it allocates a tree of the object, a few times the object's size.
    ///
    /// ```
    /// use listwatch::{ItemError, ListReader};
    ///
    /// # let body = &include_bytes!("../../fixtures/configmaps.pb")[..];
    /// let lines = ListReader::with(body, |item| {
    ///     let mut line = Vec::new();
    ///     item.to_json(&mut line)?;
    ///     Ok::<_, ItemError>(line)
    /// });
    /// for line in lines {
    ///     println!("{}", String::from_utf8(line?)?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `out` is unchanged after an error. For protobuf: [`ItemError::UnknownKind`] when the table does not have the
    /// kind; [`ItemError::DecodedSize`] when the tree may take too much memory; [`ItemError::Field`] when a field is
    /// malformed, has a value without a JSON form, or is nested deeper than 100 messages. For JSON:
    /// [`ItemError::Metadata`] when the item is not a JSON object, or neither the item nor the list so far has a kind.
    pub fn to_json(&self, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        match self.encoding {
            Encoding::Protobuf => to_json::to_json(self.type_meta, self.bytes, self.decoded_size, out),
            Encoding::Json => to_line(self.type_meta, self.bytes, out).map(|()| 0),
        }
    }

    /// Returns true if the object has a field, at any depth, that the [table of fields](crate::schema) does not have.
    /// Then `to_json` leaves it out and returns a number over 0. Always false for JSON.
    ///
    /// It stops at the first such field and allocates nothing. It does not check the values of known fields.
    ///
    /// # Errors
    ///
    /// [`ItemError::UnknownKind`] when the table does not have the kind; [`ItemError::Field`] when a message is
    /// malformed or nested deeper than 100 messages.
    pub fn has_unknown_fields(&self) -> Result<bool, ItemError> {
        match self.encoding {
            Encoding::Protobuf => unknown::has_unknown_fields(self.type_meta, self.bytes),
            Encoding::Json => Ok(false),
        }
    }

    pub(super) fn undecoded(&self) -> Undecoded<'a> {
        let Self { encoding, type_meta, bytes, decoded_size: max, .. } = *self;
        Undecoded { encoding, type_meta, bytes, max }
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

    /// Returns the same item with the ends of the values in its JSON, so that reads need not scan it.
    #[doc(hidden)]
    #[must_use]
    pub fn with_ends(self, ends: &'a Ends) -> Self {
        Self { ends: ends.found(), ..self }
    }

    /// Copies the bytes into a box of exactly their size, in one allocation.
    #[must_use]
    pub fn to_box(&self) -> Box<[u8]> {
        self.bytes.into()
    }
}

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
