//! The types that items and the objects of a store are decoded as.
//!
//! Both traits are here, and not one of them in `listwatch-cache`, because only this crate may implement a trait for all
//! messages and for [`Json`].

use std::any::type_name;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::encoding::item_ref::ItemRef;
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
    /// The types of k8s-pb know their kind, and so do the types of k8s-openapi in [`Json`](Json), and all types
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

/// Decodes the items of a JSON list as `Box<T>`, for any `T` that serde deserializes.
///
/// Servers send lists of custom resources in JSON only. An item in protobuf is an error, and so is an item that is
/// nested deeper than the 128 levels that `serde_json` allows.
///
/// serde does not tell which kind a type reads. So only the types of k8s-openapi are [checked](Item::check_kind):
/// another type may read objects of any kind, if their fields fit. For types that derive `kube::CustomResource`, `Kube`
/// of `listwatch-kube` checks the kind, too.
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

/// A type that the objects of a store are decoded as: any prost message, [`Json<T>`](Json), or `[u8]`
/// for objects that are not decoded.
///
/// It differs from an [`Item`] in two ways: readers may share a decoded value, so it is not boxed; and it can be encoded
/// again, for callers who write decoded objects to a cache.
///
/// prost drops fields that the message does not have, so an object that is encoded again may lack some of its fields.
pub trait StoreType: Item + 'static {
    /// The decoded object: `M` for a message `M`, `T` for `Json<T>`, and a copy of the bytes for `[u8]`.
    type Decoded: Send + Sync + 'static;

    /// Decodes an object. The item has the type meta of the store, if it is known, and the limit of the store.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the object cannot be decoded.
    fn decode(item: ItemRef<'_>) -> Result<Self::Decoded, ItemError>;

    /// Encodes an object, in the encoding that it was decoded from.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when it cannot be encoded.
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
