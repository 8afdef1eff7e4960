//! Text that may not be UTF-8, as Go reads it.
//!
//! API servers store and serve strings without checking them, so a message that was cut within a character is enough to
//! get such text. Go replaces each byte that is not UTF-8 by U+FFFD where it reads or writes JSON, and kubectl prints
//! the result.

use std::borrow::Cow;

/// Returns the text, with U+FFFD in place of each byte that is not UTF-8. `from_utf8_lossy` would instead replace a
/// truncated character of several bytes by one.
#[inline]
pub(crate) fn replaced(text: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(text) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(replace(text)),
    }
}

#[cold]
fn replace(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for chunk in text.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    out
}

/// Returns JSON as Go reads it, with U+FFFD in place of each invalid part. Returns `None` if there is none.
///
/// Invalid are bytes that are not UTF-8, and escapes of half a surrogate pair.
pub(crate) fn repaired_json(json: &[u8]) -> Option<String> {
    let text = replaced(json);
    match replace_lone_surrogates(&text) {
        Some(repaired) => Some(repaired),
        None => match text {
            Cow::Owned(text) => Some(text),
            Cow::Borrowed(_) => None,
        },
    }
}

/// Returns the text with `\ufffd` in place of each escape of half a surrogate pair, or `None` if it contains none.
fn replace_lone_surrogates(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut kept = 0;
    let mut rest = 0;
    while let Some(at) = text.get(rest..).and_then(|ahead| ahead.find('\\')) {
        let at = rest + at;
        rest = at + 2;
        // An escape of one character. In malformed JSON it may have several bytes, and the search ends within them.
        let Some(unit) = escaped_unit(text, at) else { continue };
        rest = at + 6;
        match (unit, escaped_unit(text, rest)) {
            (0xd800..=0xdbff, Some(0xdc00..=0xdfff)) => rest += 6,
            (0xd800..=0xdfff, _) => {
                out.push_str(text.get(kept..at).unwrap_or_default());
                out.push_str("\\ufffd");
                kept = rest;
            }
            _ => {}
        }
    }
    if kept == 0 {
        return None;
    }
    out.push_str(text.get(kept..).unwrap_or_default());
    Some(out)
}

/// Returns the number in an escape `\uXXXX` at this place.
fn escaped_unit(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) { u16::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of Go's `json.Unmarshal` for these strings.
    #[test]
    fn replaces_as_go_does() {
        for (json, expected) in [
            (&br#""plain""#[..], None),
            ("\"é\"".as_bytes(), None),
            (br#""\\ud800 \ud83d\ude00""#, None),
            (b"\"a\xffb\"", Some("\"a\u{fffd}b\"")),
            // A character of four bytes without its last byte, and one of three bytes, overlong.
            (b"\"\xf0\x9f\x98\"", Some("\"\u{fffd}\u{fffd}\u{fffd}\"")),
            (b"\"\xe0\x80\x80\"", Some("\"\u{fffd}\u{fffd}\u{fffd}\"")),
            (b"\"\xed\xa0\x80\"", Some("\"\u{fffd}\u{fffd}\u{fffd}\"")),
            (b"\"\xc3\xc3\xa9\"", Some("\"\u{fffd}é\"")),
            (br#""\ud800""#, Some(r#""\ufffd""#)),
            (br#""\udc00x\ud83dy""#, Some(r#""\ufffdx\ufffdy""#)),
            (br#""\ud800\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (br#""\ud83d\ude00\ud83d\ude00 \ud800""#, Some(r#""\ud83d\ude00\ud83d\ude00 \ufffd""#)),
            (br#""\ud8""#, None),
            (b"\"\\", None),
        ] {
            assert_eq!(repaired_json(json).as_deref(), expected, "{}", String::from_utf8_lossy(json));
        }
    }
}
