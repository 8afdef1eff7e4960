//! Decoding by prost and `serde_json`, within the limit of memory.

use std::any::TypeId;

use prost::bytes::Bytes;

use crate::encoding::protobuf::canonical::repaired;
use crate::encoding::protobuf::estimate::check_decoded_size;
use crate::encoding::utf8;
use crate::error::ItemError;
use crate::meta::TypeMeta;
use crate::wire::Encoding;

/// Decodes an item in protobuf into a new `message`, unless it may take too much memory.
///
/// A `String` cannot hold text that is not UTF-8, which Go allows. So an object with such text is decoded from a copy
/// with U+FFFD, if its kind is in the table of fields.
pub(super) fn merge<M>(message: &mut M, object: &Undecoded<'_>) -> Result<(), ItemError>
where
    M: prost::Message + Default + 'static,
{
    if is_wrapper::<M>() {
        return Err(ItemError::WrapperType(std::any::type_name::<M>()));
    }
    object.check(Encoding::Protobuf)?;
    let Err(error) = message.merge(object.bytes) else { return Ok(()) };
    let repaired = repaired(object.type_meta, object.bytes).ok_or(error)?;
    *message = M::default();
    Ok(message.merge(&*repaired)?)
}

/// Deserializes an item in JSON, unless it may take too much memory.
///
/// JSON that is UTF-8 as a whole is deserialized as text, which saves a fifth of the time: otherwise `serde_json`
/// checks each string by itself. Other JSON is read as Go reads it, with U+FFFD in place of each byte that is not UTF-8
/// and of each half of a surrogate pair.
pub(super) fn deserialize<T: serde::de::DeserializeOwned>(object: &Undecoded<'_>) -> Result<T, ItemError> {
    object.check(Encoding::Json)?;
    let bytes = object.bytes;
    let decoded = match str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_str(&utf8::replaced(bytes)),
    };
    decoded.or_else(|error| {
        let repaired = if error.is_syntax() { utf8::repaired_json(bytes) } else { None };
        repaired.and_then(|json| serde_json::from_str(&json).ok()).ok_or_else(|| ItemError::Json(error.into()))
    })
}

/// An object that is to be decoded.
pub(super) struct Undecoded<'a> {
    pub(super) encoding: Encoding,
    /// Empty if it is unknown.
    pub(super) type_meta: &'a TypeMeta,
    pub(super) bytes: &'a [u8],
    /// [`Limits::decoded_size`](crate::Limits::decoded_size)
    pub(super) max: u64,
}

impl Undecoded<'_> {
    /// Checks the encoding, and the memory that it may take.
    fn check(&self, expected: Encoding) -> Result<(), ItemError> {
        let Self { encoding: found, type_meta, bytes, max } = *self;
        if found != expected {
            return Err(ItemError::WrongEncoding { found, expected });
        }
        check_decoded_size(found, type_meta, bytes, max)
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

    /// As Go's `json.Unmarshal` reads it.
    #[test]
    fn json_that_is_not_unicode_is_read_with_replacements() {
        let type_meta = TypeMeta::default();
        let named = |json| {
            let object = Undecoded { encoding: Encoding::Json, type_meta: &type_meta, bytes: json, max: u64::MAX };
            deserialize::<Named>(&object).map(|named| named.name)
        };
        for (json, name) in [
            (&b"{\"name\":\"a\"}"[..], Some("a")),
            ("{\"name\":\"é\",\"labels\":{\"日\":\"本\"}}".as_bytes(), Some("é")),
            (b"{\"name\":\"\xf0\x9f\"}", Some("\u{fffd}\u{fffd}")),
            (b"{\"name\":\"a\",\"labels\":{\"\xff\":\"b\"}}", Some("a")),
            (b"{\"name\":\"a\",\"ignored\":\"\xff\"}", Some("a")),
            (br#"{"name":"\ud800","labels":{"a":"\udc00"}}"#, Some("\u{fffd}")),
            (b"{\"name\":\"a\"}\xff", None),
            (b"{\"name\":\"\xff\",\"labels\":[]}", None),
            (br#"{"name":"\ud8"}"#, None),
            (b"", None),
        ] {
            assert_eq!(named(json).ok().as_deref(), name, "{}", String::from_utf8_lossy(json));
        }
    }
}
