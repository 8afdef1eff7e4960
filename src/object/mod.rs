//! One object's bytes: borrowed items, and how to read, copy, filter and decode them.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod item_ref;
mod json;
mod json_meta;
mod meta_parts;
pub(crate) mod meta_view;
pub mod path;
mod projection;
mod selector;
pub(crate) mod shard;
mod store_type;
pub(crate) mod version;
pub mod view;

use std::any::TypeId;

use prost::bytes::Bytes;

pub use self::item_ref::ItemRef;
pub use self::json::Json;
pub use self::meta_parts::{ManagedFieldsEntry, OwnerReference, Time};
pub use self::meta_view::MetaView;
pub use self::path::FieldPath;
pub use self::projection::Projection;
pub use self::selector::{FieldSelector, LabelSelector};
pub use self::shard::Shard;
pub use self::store_type::StoreType;
pub use self::version::compare_resource_versions;
use crate::error::ItemError;
use crate::limits::estimate;
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

    /// The encoding from which it is decoded; `None` for any encoding. A client requests this encoding from the server, and an
    /// adapter accepts JSON only if this is [`Encoding::Json`] or the caller accepts JSON.
    const ENCODING: Option<Encoding> = None;

    /// Decodes the borrowed item.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the item cannot be decoded.
    fn from_ref(item: ItemRef<'_>) -> Result<Self::Owned, ItemError>;
}

impl<M: prost::Message + Default + 'static> Item for M {
    type Owned = Box<M>;

    const ENCODING: Option<Encoding> = Some(Encoding::Protobuf);

    fn from_ref(item: ItemRef<'_>) -> Result<Box<M>, ItemError> {
        item.decode()
    }
}

/// Copies the item into one allocation of exactly its size. [`ItemRef::encoding`] is the encoding of the bytes.
impl Item for [u8] {
    type Owned = Box<[u8]>;

    fn from_ref(item: ItemRef<'_>) -> Result<Box<[u8]>, ItemError> {
        Ok(item.to_box())
    }
}

/// Decodes into `message`, unless it may take more than `max` bytes.
pub(crate) fn merge<M: prost::Message + 'static>(message: &mut M, bytes: &[u8], max: u64) -> Result<(), ItemError> {
    if is_wrapper::<M>() {
        return Err(ItemError::WrapperType(std::any::type_name::<M>()));
    }
    estimate::check(Encoding::Protobuf, bytes, max)?;
    Ok(message.merge(bytes)?)
}

/// Deserializes JSON, unless it may take more than `max` bytes.
///
/// JSON that is UTF-8 as a whole is deserialized as text, which saves a fifth of the time: otherwise `serde_json` checks each string by
/// itself. Other JSON may still be valid for a type that ignores the field with the invalid string. A test compares the two.
pub(crate) fn deserialize<T: serde::de::DeserializeOwned>(bytes: &[u8], max: u64) -> Result<T, ItemError> {
    estimate::check(Encoding::Json, bytes, max)?;
    let decoded = match str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(bytes),
    };
    decoded.map_err(|error| ItemError::Json(error.into()))
}

/// Returns true for a wrapper type, or a box of one, for which prost implements `Message` too. The compiler evaluates it for each `M`.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::de::IgnoredAny;

    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Named {
        name: String,
        labels: Option<BTreeMap<String, String>>,
        ignored: Option<IgnoredAny>,
    }

    #[test]
    fn json_that_is_deserialized_as_text_gives_the_same_as_bytes() {
        for json in [
            &br#"{"name":"a","labels":{"b":"\u00e9\n"},"more":[1]}"#[..],
            "{\"name\":\"é\",\"labels\":{\"日\":\"本\"}}".as_bytes(),
            b"{\"name\":\"\xff\"}",
            b"{\"name\":\"a\",\"labels\":{\"\xff\":\"b\"}}",
            b"{\"name\":\"a\",\"ignored\":\"\xff\"}",
            b"{\"name\":\"a\",\"more\":{\"\xff\":1}}",
            b"{\"name\":\"a\"}\xff",
            "{\"name\":\"é\",\"name\":7}".as_bytes(),
            "{\"name\":\"é\"".as_bytes(),
            "{\"name\":\"é\",\n\"labels\":[]}".as_bytes(),
            b"",
        ] {
            let expected = serde_json::from_slice::<Named>(json).map_err(|error| error.to_string());
            let deserialized = deserialize::<Named>(json, u64::MAX).map_err(|error| match error {
                ItemError::Json(error) => error.to_string(),
                other => panic!("{other}"),
            });
            assert_eq!(deserialized, expected, "{}", String::from_utf8_lossy(json));
        }
    }
}
