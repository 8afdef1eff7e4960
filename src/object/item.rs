//! The types that items, and the objects of a store, are decoded into.
//!
//! Both traits are in this crate, because only this crate may implement a trait for all messages and for [`Json`].

use std::any::type_name;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::encoding::item_ref::ItemRef;
use crate::error::ItemError;
use crate::meta::TypeMeta;
use crate::schema::check_type;
use crate::wire::Encoding;

/// A type that items are decoded into, such as a message of k8s-pb, `Json<T>` or `[u8]`.
///
/// Every prost message is such a type: the Pods of `k8s-pb`, your own messages, and messages with only the two fields
/// that you need, because prost skips the others. `[u8]` copies the bytes of an item, and [`Json<T>`](Json) uses serde.
/// Where you need no type, pass a closure to `with` of the adapters.
///
/// prost also implements its `Message` for `()`, `bool`, numbers, `String`, `Vec<u8>` and `Bytes`, as protobuf's
/// wrapper types. These would decode a Pod into garbage, so they are refused with [`ItemError::WrapperType`].
pub trait Item {
    /// The decoded item, which does not borrow from the chunk of the body.
    type Owned: Send + 'static;

    /// The encoding from which items are decoded; `None` for any.
    ///
    /// A client requests this encoding from the server. An adapter accepts JSON only if this is [`Encoding::Json`], or
    /// if the caller accepts JSON.
    const ENCODING: Option<Encoding> = None;

    /// Checks that objects with this type meta, or the items of a list with it, can be decoded as this type.
    ///
    /// Adapters and clients call this once for a list, a watch or an object. A type that does not know its kind accepts
    /// every kind, which is the default. The types of k8s-pb know their kind, and so do the types of k8s-openapi in
    /// [`Json`](Json) and every type in `Kube` of `listwatch-kube`, including those that derive `kube::CustomResource`.
    /// They also accept `PartialObjectMetadata`, which is the metadata of any kind, and an empty kind, which is
    /// unknown.
    ///
    /// # Errors
    ///
    /// [`ItemError::WrongKind`] when the type reads another kind.
    fn check_kind(type_meta: &TypeMeta) -> Result<(), ItemError> {
        let _ = type_meta;
        Ok(())
    }

    /// Decodes the item, without checking its kind.
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

/// Copies the item in one allocation of exactly its size. [`ItemRef::encoding`] tells the encoding of the bytes.
impl Item for [u8] {
    type Owned = Box<[u8]>;

    fn from_ref(item: ItemRef<'_>) -> Result<Box<[u8]>, ItemError> {
        Ok(item.to_box())
    }
}

/// Decodes the items of a JSON list as `Box<T>`, for any `T` that serde deserializes.
///
/// API servers send custom resources only in JSON. An item in protobuf is an error, and so is an item that is nested
/// deeper than the 128 levels that `serde_json` allows.
///
/// serde does not say which kind a type reads, so only the types of k8s-openapi are [checked](Item::check_kind). Any
/// other type reads objects of any kind whose fields fit. For types that derive `kube::CustomResource`, `Kube` of
/// `listwatch-kube` checks the kind as well.
///
/// ```
/// use listwatch::{Json, ListReader};
///
/// #[derive(serde::Deserialize)]
/// struct Widget {
///     spec: Spec,
/// }
///
/// #[derive(serde::Deserialize)]
/// struct Spec {
///     size: u32,
/// }
///
/// # let body = &include_bytes!("../../fixtures/widgets-page-1.json")[..];
/// let mut size = 0;
/// for widget in ListReader::new::<Json<Widget>>(body) {
///     size += widget?.spec.size;
/// }
/// # assert_eq!(size, 336);
/// # Ok::<(), listwatch::ListError<std::io::Error>>(())
/// ```
pub struct Json<T>(PhantomData<fn() -> T>);

impl<T: DeserializeOwned + Send + 'static> Item for Json<T> {
    type Owned = Box<T>;

    const ENCODING: Option<Encoding> = Some(Encoding::Json);

    fn check_kind(type_meta: &TypeMeta) -> Result<(), ItemError> {
        check_type(type_name::<T>(), type_meta)
    }

    fn from_ref(item: ItemRef<'_>) -> Result<Box<T>, ItemError> {
        item.decode_json()
    }
}

/// A type that the objects of a store are decoded into: any prost message, [`Json<T>`](Json), or `[u8]` for bytes.
///
/// It differs from [`Item`] in two ways: readers may share a decoded value, so the value is not boxed, and a caller who
/// writes decoded objects to a cache can encode them again. prost drops fields that a message does not know, so an
/// object that was encoded again may lack fields.
pub trait StoreType: Item + 'static {
    /// The decoded object: `M` for a message `M`, `T` for `Json<T>`, and a copy of the bytes for `[u8]`.
    type Decoded: Send + Sync + 'static;

    /// Decodes an object.
    ///
    /// The item has the type meta of the store, if it is known, and the store's limit on decoded memory.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the object cannot be decoded.
    fn decode(item: ItemRef<'_>) -> Result<Self::Decoded, ItemError>;

    /// Encodes an object in the encoding from which it was decoded.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the object cannot be encoded.
    fn encode(decoded: &Self::Decoded) -> Result<Vec<u8>, ItemError>;
}

impl<M: prost::Message + Default + 'static> StoreType for M {
    type Decoded = M;

    fn decode(item: ItemRef<'_>) -> Result<M, ItemError> {
        let mut message = M::default();
        item.merge_into(&mut message)?;
        Ok(message)
    }

    fn encode(decoded: &M) -> Result<Vec<u8>, ItemError> {
        Ok(decoded.encode_to_vec())
    }
}

impl<T: serde::de::DeserializeOwned + serde::Serialize + Send + Sync + 'static> StoreType for Json<T> {
    type Decoded = T;

    fn decode(item: ItemRef<'_>) -> Result<T, ItemError> {
        item.deserialize()
    }

    fn encode(decoded: &T) -> Result<Vec<u8>, ItemError> {
        serde_json::to_vec(decoded).map_err(|error| ItemError::Json(error.into()))
    }
}

impl StoreType for [u8] {
    type Decoded = Box<[u8]>;

    fn decode(item: ItemRef<'_>) -> Result<Box<[u8]>, ItemError> {
        Ok(item.to_box())
    }

    fn encode(decoded: &Box<[u8]>) -> Result<Vec<u8>, ItemError> {
        Ok(decoded.to_vec())
    }
}
