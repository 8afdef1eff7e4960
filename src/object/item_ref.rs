//! What one reads of an item, whatever its encoding.

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
    /// Returns the `apiVersion` and `kind` that the item itself has; `None` for an item in protobuf, which has none.
    /// A member that the item does not have is empty.
    ///
    /// The items of a JSON list need not have them: [`type_meta`](Self::type_meta) has those of the list.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when the item is malformed.
    pub fn own_type_meta(&self) -> Result<Option<TypeMeta>, ItemError> {
        with_codec!(self.encoding, C => C::own_type_meta(self))
            .map_err(|(field, fault)| ItemError::Metadata { field, fault })
    }

    /// Returns an object without any fields, with an empty type meta.
    #[must_use]
    pub fn empty(encoding: Encoding) -> ItemRef<'static> {
        ItemRef::new(encoding, with_codec!(encoding, C => C::EMPTY))
    }

    /// Checks that the item is in the encoding from which `T` is decoded, if there is only one.
    ///
    /// # Errors
    ///
    /// [`ItemError::WrongEncoding`].
    pub fn check_encoding<T: Item + ?Sized>(&self) -> Result<(), ItemError> {
        match T::ENCODING {
            Some(expected) if expected != self.encoding => {
                Err(ItemError::WrongEncoding { found: self.encoding, expected })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the bytes if they are a message of protobuf; `None` for an item in JSON.
    #[must_use]
    pub fn as_message(&self) -> Option<&'a [u8]> {
        with_codec!(self.encoding, C => C::message(self)).ok()
    }

    /// Returns the bytes if they are JSON; `None` for an item in protobuf, which [`to_json`](Self::to_json) converts.
    #[must_use]
    pub fn as_json(&self) -> Option<&'a [u8]> {
        with_codec!(self.encoding, C => C::json(self))
    }

    /// Reads its metadata, without decoding the rest.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when the object or its metadata is malformed, or when a single field of the metadata has
    /// the wrong type.
    pub fn meta(&self) -> Result<MetaView<'a>, ItemError> {
        MetaView::of(self)
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
        check_type(std::any::type_name::<M>(), self.type_meta)?;
        self.decode_unchecked()
    }

    /// Decodes it with prost, without a check of its kind.
    pub(super) fn decode_unchecked<M: prost::Message + Default + 'static>(&self) -> Result<Box<M>, ItemError> {
        let mut message = Box::<M>::default();
        self.merge_into(&mut *message)?;
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
        self.deserialize().map(Box::new)
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
        with_codec!(self.encoding, C => C::to_json(self, out))
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
        with_codec!(self.encoding, C => C::has_unknown_fields(self))
    }

    /// Decodes it with prost into a new message.
    pub(super) fn merge_into<M: prost::Message + Default + 'static>(&self, message: &mut M) -> Result<(), ItemError> {
        if is_wrapper::<M>() {
            return Err(ItemError::WrapperType(std::any::type_name::<M>()));
        }
        with_codec!(self.encoding, C => C::merge(message, self))
    }

    /// Decodes it with serde.
    pub(super) fn deserialize<T: DeserializeOwned>(&self) -> Result<T, ItemError> {
        with_codec!(self.encoding, C => C::deserialize(self))
    }
}

/// Returns true for a wrapper type, or a box of one, for which prost implements `Message` too. The compiler evaluates
/// it for each `M`.
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
