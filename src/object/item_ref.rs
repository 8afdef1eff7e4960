//! What can be read from an item, whatever its encoding.

use std::any::TypeId;

use prost::bytes::Bytes;
use serde::de::DeserializeOwned;

use super::item::Item;
use super::meta_view::MetaView;
use crate::encoding::item_ref::ItemRef;
use crate::encoding::with_codec;
use crate::error::ItemError;
use crate::meta::TypeMeta;
use crate::schema::check_type;
use crate::wire::Encoding;

impl<'a> ItemRef<'a> {
    /// Returns the type meta that the item itself contains; `None` for an item in protobuf, which contains none.
    ///
    /// The items of a JSON list may leave out both members, which are then empty: [`type_meta`](Self::type_meta)
    /// returns the list's.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when the item is malformed.
    pub fn own_type_meta(&self) -> Result<Option<TypeMeta>, ItemError> {
        with_codec!(self.encoding, C => C::own_type_meta(self))
            .map_err(|(field, fault)| ItemError::Metadata { field, fault })
    }

    /// Returns an object without any fields and with an empty type meta.
    #[must_use]
    pub fn empty(encoding: Encoding) -> ItemRef<'static> {
        ItemRef::new(encoding, with_codec!(encoding, C => C::EMPTY))
    }

    /// Checks that the item is in the encoding from which `T` is decoded, if `T` has only one.
    ///
    /// # Errors
    ///
    /// [`ItemError::WrongEncoding`] when the item is in another encoding.
    pub fn check_encoding<T: Item + ?Sized>(&self) -> Result<(), ItemError> {
        match T::ENCODING {
            Some(expected) if expected != self.encoding => {
                Err(ItemError::WrongEncoding { found: self.encoding, expected })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the bytes if they are a protobuf message; `None` for an item in JSON.
    #[must_use]
    pub fn as_message(&self) -> Option<&'a [u8]> {
        with_codec!(self.encoding, C => C::message(self)).ok()
    }

    /// Returns the bytes if they are JSON; `None` for an item in protobuf, which [`to_json`](Self::to_json) converts.
    #[must_use]
    pub fn as_json(&self) -> Option<&'a [u8]> {
        with_codec!(self.encoding, C => C::json(self))
    }

    /// Reads the metadata without decoding the rest.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when the object or its metadata is malformed, or a single field of the metadata has the
    /// wrong type.
    pub fn meta(&self) -> Result<MetaView<'a>, ItemError> {
        MetaView::of(self)
    }

    /// Decodes the item with prost.
    ///
    /// A type of k8s-pb accepts only items whose [type meta](Self::type_meta) is its own, unknown, or
    /// `PartialObjectMetadata`. If the item's kind is in the [table of fields](crate::schema), each byte of text that
    /// is not UTF-8 becomes U+FFFD, as in Go's JSON.
    ///
    /// # Errors
    ///
    /// [`ItemError::WrongKind`] when the type reads another kind, [`ItemError::Protobuf`] when prost refuses the item,
    /// [`ItemError::DecodedSize`] when it may take too much memory, [`ItemError::WrapperType`] when `M` is one of
    /// prost's wrapper types, and [`ItemError::WrongEncoding`] for an item in JSON.
    pub fn decode<M: prost::Message + Default + 'static>(&self) -> Result<Box<M>, ItemError> {
        check_type(std::any::type_name::<M>(), self.type_meta)?;
        self.decode_unchecked()
    }

    pub(super) fn decode_unchecked<M: prost::Message + Default + 'static>(&self) -> Result<Box<M>, ItemError> {
        let mut message = Box::<M>::default();
        self.merge_into(&mut *message)?;
        Ok(message)
    }

    /// Decodes the item with `serde_json`.
    ///
    /// As in Go, each byte that is not UTF-8 and each half of a surrogate pair becomes U+FFFD.
    ///
    /// # Errors
    ///
    /// [`ItemError::Json`] when `serde_json` refuses the item, [`ItemError::DecodedSize`] when it may take too much
    /// memory, and [`ItemError::WrongEncoding`] for an item in protobuf.
    pub fn decode_json<T: serde::de::DeserializeOwned>(&self) -> Result<Box<T>, ItemError> {
        self.deserialize().map(Box::new)
    }

    /// Appends the item to `out` as one line of JSON that includes `kind` and `apiVersion`.
    ///
    /// An item in protobuf becomes what Go's `json.Marshal` writes for the object as client-go decodes it, with `kind`
    /// and `apiVersion` first: the same fields in the same order, with the same escapes. There are a few differences: a
    /// quantity stays as the server sent it, each byte of text that is not UTF-8 becomes U+FFFD, and a field that not
    /// all releases know is omitted if the object does not contain it. Where releases differ in the order of fields or
    /// in the empty fields that they omit, the newest release in the [table of fields](crate::schema) decides. An item
    /// in JSON keeps its members, without white space.
    ///
    /// Returns how many fields were left out because the table does not know them, as Go's clients leave out unknown
    /// fields. For JSON this is 0.
    ///
    /// Converting from protobuf allocates a tree of the object, which takes a few times the object's size.
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
    /// After an error, `out` is unchanged.
    ///
    /// For an item in protobuf: [`ItemError::UnknownKind`] when the kind is not in the table;
    /// [`ItemError::DecodedSize`] when the tree may take too much memory; [`ItemError::Field`] when a field is
    /// malformed, has a value without a JSON form, or is nested deeper than 100 messages.
    ///
    /// For an item in JSON: [`ItemError::Metadata`] when it is not a JSON object, or when neither the item nor the list
    /// so far has a kind.
    pub fn to_json(&self, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        with_codec!(self.encoding, C => C::to_json(self, out))
    }

    /// Returns true if the object has a field, at any depth, that is not in the [table of fields](crate::schema).
    ///
    /// `to_json` leaves such a field out. The search stops at the first one, allocates nothing, and does not check the
    /// values of known fields. For JSON the result is always false.
    ///
    /// # Errors
    ///
    /// [`ItemError::UnknownKind`] when the kind is not in the table; [`ItemError::Field`] when a message is malformed
    /// or nested deeper than 100 messages.
    pub fn has_unknown_fields(&self) -> Result<bool, ItemError> {
        with_codec!(self.encoding, C => C::has_unknown_fields(self))
    }

    pub(super) fn merge_into<M: prost::Message + Default + 'static>(&self, message: &mut M) -> Result<(), ItemError> {
        if is_wrapper::<M>() {
            return Err(ItemError::WrapperType(std::any::type_name::<M>()));
        }
        with_codec!(self.encoding, C => C::merge(message, self))
    }

    pub(super) fn deserialize<T: DeserializeOwned>(&self) -> Result<T, ItemError> {
        with_codec!(self.encoding, C => C::deserialize(self))
    }
}

/// Returns the JSON form of the object that is a whole body, such as that of a POST; `None` if it cannot be read.
#[must_use]
pub fn json_of_body(encoding: Encoding, body: &[u8]) -> Option<Vec<u8>> {
    if !with_codec!(encoding, C => body.starts_with(C::MAGIC)) {
        return None;
    }
    let (type_meta, object) = with_codec!(encoding, C => C::document(body)).ok()?;
    let mut json = Vec::new();
    ItemRef::new(encoding, object).with_type_meta(&type_meta).to_json(&mut json).ok()?;
    Some(json)
}

/// Returns true for a wrapper type, or a box of one, because prost implements `Message` for boxes too. The compiler
/// evaluates this for each `M`.
fn is_wrapper<M: 'static>() -> bool {
    fn is<M: 'static, T: 'static>() -> bool {
        [TypeId::of::<T>(), TypeId::of::<Box<T>>(), TypeId::of::<Box<Box<T>>>()].contains(&TypeId::of::<M>())
    }
    is::<M, ()>()
        || is::<M, bool>()
        || is::<M, u32>()
        || is::<M, u64>()
        || is::<M, i32>()
        || is::<M, i64>()
        || is::<M, f32>()
        || is::<M, f64>()
        || is::<M, String>()
        || is::<M, Vec<u8>>()
        || is::<M, Bytes>()
}
