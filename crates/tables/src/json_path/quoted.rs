//! Quoted strings, with the escapes of Go.

use super::JsonPathError;

/// Returns the length of the quoted string that `text` begins with, with its quotes.
pub(super) fn length(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut escaped = false;
    for (at, next) in text.char_indices().skip(1) {
        match next {
            _ if escaped => escaped = false,
            '\n' => return None,
            '\\' => escaped = true,
            _ if next == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Returns the offset of the first character outside of quotes that is wanted. An unclosed quote hides none.
pub(super) fn find_unquoted(text: &str, wanted: impl Fn(char) -> bool) -> Option<usize> {
    let mut position = 0;
    while let Some(rest) = text.get(position..) {
        let next = rest.chars().next()?;
        let quoted = if matches!(next, '"' | '\'') { length(rest)? } else { 0 };
        if quoted == 0 && wanted(next) {
            return Some(position);
        }
        position += quoted.max(next.len_utf8());
    }
    None
}

/// Removes the quotes, and replaces escapes.
pub(super) fn unquote(text: &str, position: usize) -> Result<String, JsonPathError> {
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    let quote = text.chars().next();
    let mut unquoted = String::with_capacity(inner.len());
    let mut rest = inner.char_indices();
    while let Some((at, next)) = rest.next() {
        if next != '\\' {
            unquoted.push(next);
            continue;
        }
        let invalid = || JsonPathError::syntax(position + 1 + at, "invalid escape");
        let (_, kind) = rest.next().ok_or_else(invalid)?;
        let mut number = |first: &str, digits: usize, radix: u32| {
            let mut text = String::from(first);
            text.extend(rest.by_ref().take(digits).map(|(_, digit)| digit));
            u32::from_str_radix(&text, radix).ok().filter(|_| text.len() == first.len() + digits)
        };
        let character = match kind {
            'a' => Some('\u{7}'),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            '\\' => Some('\\'),
            '\'' | '"' => Some(kind).filter(|kind| Some(*kind) == quote),
            // Bytes: the output is UTF-8.
            'x' => number("", 2, 16).filter(|byte| *byte < 0x80).and_then(char::from_u32),
            '0'..='7' => {
                number(kind.encode_utf8(&mut [0; 4]), 2, 8).filter(|byte| *byte < 0x80).and_then(char::from_u32)
            }
            'u' => number("", 4, 16).and_then(char::from_u32),
            'U' => number("", 8, 16).and_then(char::from_u32),
            _ => None,
        };
        unquoted.push(character.ok_or_else(invalid)?);
    }
    Ok(unquoted)
}
