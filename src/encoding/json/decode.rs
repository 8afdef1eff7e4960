//! Decoding by `serde_json`, within a limit of memory.

use memchr::memchr_iter;
use serde::de::DeserializeOwned;

use super::scan::Brackets;
use crate::encoding::item_ref::ItemRef;
use crate::encoding::utf8;
use crate::error::ItemError;

/// Deserializes an object, unless it may take too much memory.
///
/// JSON that is UTF-8 as a whole is deserialized as text, which saves a fifth of the time: otherwise `serde_json`
/// checks each string by itself. Other JSON is read as Go reads it, with U+FFFD in place of each byte that is not UTF-8
/// and of each half of a surrogate pair.
pub(crate) fn deserialize<T: DeserializeOwned>(item: &ItemRef<'_>) -> Result<T, ItemError> {
    item.check_decoded_size(estimate)?;
    let bytes = item.bytes;
    let decoded = match str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_str(&utf8::replaced(bytes)),
    };
    decoded.or_else(|error| {
        let repaired = if error.is_syntax() { utf8::repaired_json(bytes) } else { None };
        repaired.and_then(|json| serde_json::from_str(&json).ok()).ok_or_else(|| ItemError::Json(error.into()))
    })
}

/// The charge for an object. A map of untyped values takes 632 bytes for up to 11 members.
const OBJECT: u64 = 1 << 10;

const ARRAY: u64 = 160;

/// The charge for an empty object that is a member of an object, such as most fields in `managedFields`. A map of
/// untyped values takes less for it than for an object with members. A type with a map of large structs takes more, up
/// to about ten times.
const EMPTY_MEMBER: u64 = 256;

const COMMA: u64 = 112;

/// Estimates how much memory the decoded object may take, from the numbers of its brackets and commas.
fn estimate(item: &ItemRef<'_>) -> u64 {
    let object = item.bytes;
    let Brackets { objects, arrays, empty_members } = Brackets::count(object);
    // Commas in strings are counted too, but they are rare.
    let commas = memchr_iter(b',', object).count() as u64;
    object.len() as u64 + objects * OBJECT + arrays * ARRAY + empty_members * EMPTY_MEMBER + commas * COMMA
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::de::IgnoredAny;

    use super::*;
    use crate::wire::Encoding;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Named {
        name: String,
        labels: Option<BTreeMap<String, String>>,
        ignored: Option<IgnoredAny>,
    }

    #[test]
    fn an_estimate_charges_for_text_brackets_and_commas() {
        for (json, charges) in [
            ("{}", 1024),
            (r#"{"a":1,"b":"c,"}"#, 1024 + 2 * 112),
            (r#"{"a":[1,2]}"#, 1024 + 160 + 112),
            (r#"{"a":{},"b":{"c":[]}}"#, 2 * 1024 + 2 * 256 + 112),
        ] {
            let item = ItemRef::new(Encoding::Json, json.as_bytes());
            assert_eq!(estimate(&item), json.len() as u64 + charges, "{json}");
        }
    }

    /// As Go's `json.Unmarshal` reads it.
    #[test]
    fn json_that_is_not_unicode_is_read_with_replacements() {
        let named = |json| deserialize::<Named>(&ItemRef::new(Encoding::Json, json)).map(|named| named.name);
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
