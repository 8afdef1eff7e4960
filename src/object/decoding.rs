//! Decoding by prost and `serde_json`, within the limit of memory.

use std::any::TypeId;

use prost::bytes::Bytes;

use crate::error::ItemError;
use crate::limits::estimate;
use crate::wire::Encoding;

/// Decodes into `message`, unless it may take more than `max` bytes.
pub(super) fn merge<M: prost::Message + 'static>(message: &mut M, bytes: &[u8], max: u64) -> Result<(), ItemError> {
    if is_wrapper::<M>() {
        return Err(ItemError::WrapperType(std::any::type_name::<M>()));
    }
    estimate::check(Encoding::Protobuf, bytes, max)?;
    Ok(message.merge(bytes)?)
}

/// Deserializes JSON, unless it may take more than `max` bytes.
///
/// JSON that is UTF-8 as a whole is deserialized as text, which saves a fifth of the time: otherwise `serde_json`
/// checks each string by itself. Other JSON may still be valid for a type that ignores the field with the invalid
/// string. A test compares the two.
pub(super) fn deserialize<T: serde::de::DeserializeOwned>(bytes: &[u8], max: u64) -> Result<T, ItemError> {
    estimate::check(Encoding::Json, bytes, max)?;
    let decoded = match str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(bytes),
    };
    decoded.map_err(|error| ItemError::Json(error.into()))
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
