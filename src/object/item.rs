//! The types that items are decoded as.

use std::any::type_name;

use super::item_ref::ItemRef;
use crate::error::ItemError;
use crate::meta::TypeMeta;
use crate::schema::check_type;
use crate::wire::Encoding;

/// A type that items are decoded as: `Box<M>` for a prost message, `Box<[u8]>` for `[u8]`, `Box<T>` for `Json<T>`.
///
/// It is implemented for every prost message: the Pods of `k8s-pb`, your own messages, and messages with only the two
/// fields that you need (prost skips the others). Where you need no type, pass a closure to `with` of the adapters.
///
/// prost also implements its `Message` for `()`, `bool`, numbers, `String`, `Vec<u8>` and `Bytes`, as protobuf's
/// wrapper types. They would decode a Pod into garbage and are refused with [`ItemError::WrapperType`]. For an item's
/// bytes use `[u8]`: protobuf, or JSON in a JSON list.
pub trait Item {
    /// The decoded item. It owns its data and does not borrow from the chunk of the body.
    type Owned: Send + 'static;

    /// The encoding from which it is decoded; `None` for any encoding. A client requests this encoding from the server,
    /// and an adapter accepts JSON only if this is [`Encoding::Json`] or the caller accepts JSON.
    const ENCODING: Option<Encoding> = None;

    /// Checks that objects of this type meta, or of its list, can be decoded as this type. Adapters and clients call it
    /// once for a list, a watch or an object. Types that do not know their kind accept every kind, as does this
    /// default.
    ///
    /// The types of k8s-pb know their kind, and so do the types of k8s-openapi in [`Json`](super::Json), and all types
    /// in `Kube` of `listwatch-kube`, also those that derive `kube::CustomResource`. They also accept
    /// `PartialObjectMetadata`, which has the metadata of any kind, and an empty kind, which is unknown.
    ///
    /// # Errors
    ///
    /// [`ItemError::WrongKind`].
    fn check_kind(type_meta: &TypeMeta) -> Result<(), ItemError> {
        let _ = type_meta;
        Ok(())
    }

    /// Decodes the borrowed item, without a check of its kind.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the item cannot be decoded.
    fn from_ref(item: ItemRef<'_>) -> Result<Self::Owned, ItemError>;
}

impl<M: prost::Message + Default + 'static> Item for M {
    type Owned = Box<M>;

    const ENCODING: Option<Encoding> = Some(Encoding::Protobuf);

    fn check_kind(type_meta: &TypeMeta) -> Result<(), ItemError> {
        check_type(type_name::<M>(), type_meta)
    }

    fn from_ref(item: ItemRef<'_>) -> Result<Box<M>, ItemError> {
        item.decode_unchecked()
    }
}

/// Copies the item into one allocation of exactly its size. [`ItemRef::encoding`] is the encoding of the bytes.
impl Item for [u8] {
    type Owned = Box<[u8]>;

    fn from_ref(item: ItemRef<'_>) -> Result<Box<[u8]>, ItemError> {
        Ok(item.to_box())
    }
}
