//! A reader of JSON, which walks the members of objects and finds the ends of values.
//!
//! [`Reader`] consumes values from the front of JSON that is whole in memory, and returns borrowed values.
//! [`scan::Scan`] finds the end of a value that arrives in pieces. Both find the end of a nested value by its brackets
//! and strings only, so the contents of a value that is not read are not checked.

use std::borrow::Cow;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

use super::scan::{SHALLOW, Scan};
use crate::encoding::item_ref::End;
use crate::encoding::utf8;
use crate::wire::Fault;

pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// The number of brackets around the position, including the body's.
    depth: u32,
    /// Known ends of values after the position, and some before it.
    ends: &'a [End],
    /// The offset of the end of the JSON, counted from the same place as the offsets in `ends`.
    end: usize,
}

/// A string, which is borrowed if it has no escapes and is UTF-8. serde would copy a plain `Cow` in maps and lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JsonText<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `serde_json` checks neither UTF-8 nor pairs of surrogates in bytes.
        deserializer.deserialize_bytes(TextVisitor).map(Self)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_bytes<E>(self, text: &'de [u8]) -> Result<Self::Value, E> {
        Ok(utf8::replaced(text))
    }

    fn visit_bytes<E>(self, text: &[u8]) -> Result<Self::Value, E> {
        Ok(utf8::replaced(text).into_owned().into())
    }
}

impl<'a> Reader<'a> {
    /// Creates a reader of JSON inside `outer_depth` brackets, which count towards the allowed depth.
    pub(crate) fn new(json: &'a [u8], outer_depth: u32) -> Self {
        Self { rest: json, depth: outer_depth, ends: &[], end: 0 }
    }

    /// Creates a reader of an object or an array whose ends a scan has found.
    ///
    /// The scan may also have been of a value around this one. The last of `ends` is the end of this value. Without
    /// ends, the reader is inside no brackets.
    pub(crate) fn with_ends(json: &'a [u8], ends: &'a [End]) -> Self {
        let End { at, depth } = ends.last().copied().unwrap_or_default();
        Self { rest: json, depth, ends, end: at as usize }
    }

    /// Returns the next byte that is not whitespace, without consuming it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Begins an object, whose members [`Members::next`] then returns. `null` is an object without members, as in Go.
    ///
    /// # Errors
    ///
    /// [`Fault::Type`] for any other value, [`Fault::Syntax`] if no value begins.
    pub(crate) fn object(&mut self) -> Result<Members, Fault> {
        self.begin(b'{').map(|is_there| Members { is_first: true, is_open: is_there })
    }

    /// Begins an array, in which [`Elements::next`] then moves to each element. `null` is an empty array.
    ///
    /// # Errors
    ///
    /// The same as [`object`](Self::object).
    pub(crate) fn array(&mut self) -> Result<Elements, Fault> {
        self.begin(b'[').map(|is_there| Elements(Members { is_first: true, is_open: is_there }))
    }

    fn begin(&mut self, bracket: u8) -> Result<bool, Fault> {
        match self.peek() {
            Some(byte) if byte == bracket => {
                self.take(1);
                self.depth += 1;
                Ok(true)
            }
            Some(b'n') => self.value().map(|_| false),
            Some(byte) if begins_value(byte) => Err(Fault::Type),
            _ => Err(Fault::Syntax),
        }
    }

    /// Consumes a value and returns its text, without the whitespace around it.
    ///
    /// # Errors
    ///
    /// [`Fault::Syntax`] if no value begins or it does not end, or a number or literal is malformed; [`Fault::Depth`].
    pub(crate) fn value(&mut self) -> Result<&'a [u8], Fault> {
        let first = self.peek().filter(|byte| begins_value(*byte)).ok_or(Fault::Syntax)?;
        if first == b'"' {
            return self.string();
        }
        if matches!(first, b'{' | b'[')
            && let Some(len) = self.known_len()
        {
            return Ok(self.take(len));
        }
        let mut scan = Scan::new(first, self.depth);
        match scan.end(self.rest)? {
            Some(end) => Ok(self.take(end)),
            None if scan.may_end() => Ok(self.take(self.rest.len())),
            None => Err(Fault::Syntax),
        }
    }

    /// Returns the length of the object or array at the position, if its end is known.
    fn known_len(&mut self) -> Option<usize> {
        if self.depth > SHALLOW {
            return None;
        }
        let position = self.end.checked_sub(self.rest.len())?;
        while let &[End { at, depth }, ref later @ ..] = self.ends {
            let len = (at as usize).saturating_sub(position);
            // The value ends at the first bracket after the position that leaves no more brackets open than are around
            // it.
            if len > 0 && depth <= self.depth {
                return (depth == self.depth).then_some(len);
            }
            self.ends = later;
        }
        None
    }

    /// Consumes a string, or `null`, which sets nothing and for which it returns `None`.
    ///
    /// # Errors
    ///
    /// [`Fault::Type`] for any other value; [`Fault::Syntax`].
    pub(crate) fn text(&mut self) -> Result<Option<Cow<'a, str>>, Fault> {
        match self.peek() {
            Some(b'"') => self.string().and_then(text).map(Some),
            Some(b'n') => self.value().map(|_| None),
            Some(byte) if begins_value(byte) => Err(Fault::Type),
            _ => Err(Fault::Syntax),
        }
    }

    /// Like [`text`](Self::text), but for a version, a kind or a token, which is used as it is.
    ///
    /// # Errors
    ///
    /// Also [`Fault::Utf8`].
    pub(crate) fn exact_text(&mut self) -> Result<Option<Cow<'a, str>>, Fault> {
        if self.peek() == Some(b'"') && utf8::repaired_json(Self { ..*self }.string()?).is_some() {
            return Err(Fault::Utf8);
        }
        self.text()
    }

    /// Consumes a value and deserializes it. Returns `None` for `null`.
    ///
    /// # Errors
    ///
    /// [`Fault::Type`] if serde refuses it, or the errors of [`value`](Self::value).
    pub(crate) fn parse<T: Deserialize<'a>>(&mut self) -> Result<Option<T>, Fault> {
        serde_json::from_slice(self.value()?).map_err(|error| if error.is_data() { Fault::Type } else { Fault::Syntax })
    }

    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        if self.peek().is_none() { Ok(()) } else { Err(Fault::Syntax) }
    }

    /// Consumes a string, and returns it with its quotes.
    fn string(&mut self) -> Result<&'a [u8], Fault> {
        if self.peek() != Some(b'"') {
            return Err(Fault::Syntax);
        }
        let mut end = 1;
        loop {
            let rest = self.rest.get(end..).unwrap_or_default();
            end += memchr::memchr2(b'"', b'\\', rest).ok_or(Fault::Syntax)? + 1;
            if self.rest.get(end - 1) == Some(&b'"') {
                return Ok(self.take(end));
            }
            end += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.peek() != Some(byte) {
            return Err(Fault::Syntax);
        }
        self.take(1);
        Ok(())
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, &[]));
        self.rest = rest;
        taken
    }
}

/// The position in an object that a [`Reader`] walks.
pub(crate) struct Members {
    is_first: bool,
    is_open: bool,
}

impl Members {
    /// Consumes the name of the next member, whose value the caller must consume. Returns `None` at the end of the
    /// object.
    pub(crate) fn next<'a>(&mut self, reader: &mut Reader<'a>) -> Result<Option<Cow<'a, str>>, Fault> {
        if !self.advance(reader, b'}')? {
            return Ok(None);
        }
        let name = text(reader.string()?)?;
        reader.expect(b':')?;
        Ok(Some(name))
    }

    /// Moves to the next member or element. Returns false at the closing bracket, which it consumes.
    fn advance(&mut self, reader: &mut Reader<'_>, bracket: u8) -> Result<bool, Fault> {
        if !self.is_open {
            return Ok(false);
        }
        let next = reader.peek();
        if next == Some(bracket) {
            reader.take(1);
            reader.depth -= 1;
            self.is_open = false;
            return Ok(false);
        }
        if !self.is_first {
            reader.expect(b',')?;
        }
        self.is_first = false;
        Ok(true)
    }
}

/// The position in an array that a [`Reader`] walks.
pub(crate) struct Elements(Members);

impl Elements {
    /// Moves to the next element, which the caller must consume. Returns false at the end of the array.
    pub(crate) fn next(&mut self, reader: &mut Reader<'_>) -> Result<bool, Fault> {
        self.0.advance(reader, b']')
    }
}

pub(crate) fn begins_value(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n')
}

/// Returns the text of a string with its quotes, with U+FFFD in place of each byte that is not UTF-8 and of each half
/// of a surrogate pair, as Go does.
pub(crate) fn text(string: &[u8]) -> Result<Cow<'_, str>, Fault> {
    match string {
        [b'"', text @ .., b'"'] if is_plain(text) => Ok(utf8::replaced(text)),
        _ => {
            let text = serde_json::from_slice(string).ok().or_else(|| {
                let repaired = utf8::repaired_json(string)?;
                serde_json::from_str(&repaired).ok()
            });
            text.map(Cow::Owned).ok_or(Fault::Syntax)
        }
    }
}

/// Returns true if the contents of a string contain no quotes, escapes and control characters.
///
/// Eight bytes are checked at a time, in the way in which "Bit Twiddling Hacks" (Anderson) finds a byte below a bound.
/// A test compares the result with a check of each byte.
fn is_plain(text: &[u8]) -> bool {
    const LOW: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let has_below = |word: u64, bound: u8| word.wrapping_sub(LOW * u64::from(bound)) & !word & HIGH != 0;
    let has = |word: u64, byte: u8| has_below(word ^ (LOW * u64::from(byte)), 1);
    let (words, rest) = text.as_chunks::<8>();
    let is_plain = |word| !(has_below(word, b' ') || has(word, b'"') || has(word, b'\\'));
    words.iter().all(|word| is_plain(u64::from_ne_bytes(*word))) && rest.iter().copied().all(is_plain_byte)
}

fn is_plain_byte(byte: u8) -> bool {
    !matches!(byte, ..b' ' | b'\\' | b'"')
}

/// Returns the text of a string, a number or a literal. Fails with [`Fault::Type`] for an object or an array.
pub(crate) fn scalar(value: &[u8]) -> Result<Cow<'_, str>, Fault> {
    match value.first() {
        Some(b'"') => text(value),
        Some(b'{' | b'[') => Err(Fault::Type),
        _ => Ok(utf8::replaced(value)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn words_are_plain_if_all_their_bytes_are(
            mut text in prop::collection::vec(prop_oneof![any::<u8>(), b' '..b'~', Just(0x80), Just(0xff)], 0..40),
            keeps in prop::bool::weighted(0.1),
        ) {
            if !keeps {
                text.retain(|byte| is_plain_byte(*byte));
            }
            prop_assert_eq!(is_plain(&text), text.iter().copied().all(is_plain_byte));
            for at in 0..text.len() {
                for byte in [0, 0x1f, b' ', b'"', b'#', b'\\', 0x7f, 0x80, 0x9f, 0xa2, 0xdc] {
                    let before = std::mem::replace(&mut text[at], byte);
                    prop_assert_eq!(is_plain(&text), text.iter().copied().all(is_plain_byte));
                    text[at] = before;
                }
            }
        }
    }
}
