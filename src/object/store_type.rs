//! The types that a store decodes its objects as. They are here, and not in `listwatch-cache`, because only this crate
//! may implement a trait for all messages and for [`Json`].

use super::decoding::{deserialize, merge};
use super::item::Item;
use super::item_ref::ItemRef;
use super::json::Json;
use crate::error::ItemError;

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
        merge(&mut message, &item.undecoded())?;
        Ok(message)
    }

    fn encode(decoded: &M) -> Result<Vec<u8>, ItemError> {
        Ok(decoded.encode_to_vec())
    }
}

impl<T: serde::de::DeserializeOwned + serde::Serialize + Send + Sync + 'static> StoreType for Json<T> {
    type Decoded = T;

    fn decode(item: ItemRef<'_>) -> Result<T, ItemError> {
        deserialize(&item.undecoded())
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
