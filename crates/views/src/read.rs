//! Reads the fields of messages that were checked: valid, and their numbers ascend.
//!
//! A malformed message cannot get here, because only `listwatch` creates [`Canonical`] bytes. Nothing here panics on
//! one: the rest of the message then reads as absent, and a string that is not UTF-8 as empty.

use std::fmt;
use std::iter::{self, FusedIterator};
use std::marker::PhantomData;

use listwatch::view::Canonical;

/// The bytes of a message.
#[derive(Clone, Copy, Default)]
pub struct Raw<'a>(&'a [u8]);

/// The value of a field on the wire.
pub trait Wire<'a>: Sized {
    /// Reads the value after a tag, and returns the bytes after the value.
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])>;
}

impl<'a> Wire<'a> for u64 {
    #[inline]
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        varint(bytes)
    }
}

impl<'a> Wire<'a> for &'a [u8] {
    #[inline]
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (len, rest) = varint(bytes)?;
        rest.split_at_checked(usize::try_from(len).ok()?)
    }
}

impl<'a> Wire<'a> for [u8; 8] {
    #[inline]
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        bytes.split_first_chunk().map(|(bits, rest)| (*bits, rest))
    }
}

/// A type that the field of a message can have: a view, text, a number. The default is the value of an absent field.
///
/// Only this crate implements it.
pub trait Element<'a>: Default {
    #[doc(hidden)]
    type Wire: Wire<'a>;

    #[doc(hidden)]
    fn read(wire: Self::Wire) -> Self;
}

/// Reads a varint, which usually has one byte, sometimes two.
#[inline]
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    match *bytes {
        [byte @ ..0x80, ref rest @ ..] => Some((byte.into(), rest)),
        [low, high @ ..0x80, ref rest @ ..] => Some((u64::from(low & 0x7f) | u64::from(high) << 7, rest)),
        _ => long_varint(bytes),
    }
}

#[cold]
fn long_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let len = bytes.iter().take(10).position(|byte| *byte < 0x80)? + 1;
    let (varint, rest) = bytes.split_at_checked(len)?;
    let value = varint.iter().rev().fold(0_u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    Some((value, rest))
}

/// Returns the bytes after the value of this tag.
#[inline]
fn skip(tag: u64, after: &[u8]) -> Option<&[u8]> {
    match tag & 7 {
        0 => u64::take(after).map(|(_, rest)| rest),
        1 => after.get(8..),
        2 => <&[u8]>::take(after).map(|(_, rest)| rest),
        5 => after.get(4..),
        _ => None,
    }
}

impl<'a> Raw<'a> {
    #[inline]
    pub(crate) fn of(object: Canonical<'a>) -> Self {
        Self(object.bytes())
    }

    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the message from the first field of this number or a larger one on.
    fn from(self, number: u32) -> &'a [u8] {
        let mut rest = self.0;
        while let Some((tag, after)) = varint(rest)
            && tag >> 3 < u64::from(number)
        {
            rest = skip(tag, after).unwrap_or_default();
        }
        rest
    }

    /// Returns the message from the first field of this number on, without its tag; `None` if the message does not have
    /// the field.
    #[inline]
    fn find(self, number: u32) -> Option<&'a [u8]> {
        value(self.from(number), number)
    }

    /// Returns the value of a field that is always present in Go.
    #[inline]
    pub(crate) fn get<T: Element<'a>>(self, number: u32) -> T {
        self.opt(number).unwrap_or_default()
    }

    /// Returns the value of a field that is a pointer in Go.
    #[inline]
    pub(crate) fn opt<T: Element<'a>>(self, number: u32) -> Option<T> {
        let (wire, _) = Wire::take(self.find(number)?)?;
        Some(T::read(wire))
    }

    #[inline]
    pub(crate) fn list<T: Element<'a>>(self, number: u32) -> List<'a, T> {
        let from = self.from(number);
        let rest = if value(from, number).is_some() { from } else { &[] };
        List { rest, number, of: PhantomData }
    }

    #[inline]
    pub(crate) fn map<T: Element<'a>>(self, number: u32) -> Map<'a, T> {
        Map(self.list(number))
    }
}

/// Returns the bytes after the tag of the first field; `None` if the first field has another number.
#[inline]
fn value(bytes: &[u8], number: u32) -> Option<&[u8]> {
    let (tag, after) = varint(bytes)?;
    (tag >> 3 == u64::from(number)).then_some(after)
}

impl<'a> Element<'a> for Raw<'a> {
    type Wire = &'a [u8];

    #[inline]
    fn read(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Element<'a> for &'a [u8] {
    type Wire = Self;

    #[inline]
    fn read(bytes: Self) -> Self {
        bytes
    }
}

impl<'a> Element<'a> for &'a str {
    type Wire = &'a [u8];

    #[inline]
    fn read(text: &'a [u8]) -> Self {
        str::from_utf8(text).unwrap_or_default()
    }
}

impl Element<'_> for i64 {
    type Wire = u64;

    #[inline]
    fn read(int: u64) -> Self {
        int.cast_signed()
    }
}

impl Element<'_> for i32 {
    type Wire = u64;

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "protobuf takes the low bits")]
    fn read(int: u64) -> Self {
        int as Self
    }
}

impl Element<'_> for bool {
    type Wire = u64;

    #[inline]
    fn read(int: u64) -> Self {
        int != 0
    }
}

impl Element<'_> for f64 {
    type Wire = [u8; 8];

    #[inline]
    fn read(bits: [u8; 8]) -> Self {
        Self::from_le_bytes(bits)
    }
}

/// The values of a repeated field: `for container in pod.spec().containers()`.
///
/// `len` and `get` walk over the values.
pub struct List<'a, T> {
    /// Begins with the first value, and ends with the parent.
    rest: &'a [u8],
    number: u32,
    of: PhantomData<fn() -> T>,
}

impl<'a, T: Element<'a>> List<'a, T> {
    /// Iterates over the values.
    #[inline]
    #[must_use]
    pub fn iter(self) -> Iter<'a, T> {
        Iter(self)
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(self) -> usize {
        let mut list = self;
        iter::from_fn(|| list.take()).count()
    }

    /// Returns true if there are no values.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the first value.
    #[inline]
    #[must_use]
    pub fn first(self) -> Option<T> {
        self.iter().next()
    }

    /// Returns the value at this index, counted from 0.
    #[must_use]
    pub fn get(self, index: usize) -> Option<T> {
        self.iter().nth(index)
    }

    /// Consumes the first value.
    #[inline]
    fn take(&mut self) -> Option<T::Wire> {
        let (wire, after) = Wire::take(value(self.rest, self.number)?)?;
        self.rest = after;
        Some(wire)
    }
}

/// An iterator over the values of a [`List`].
pub struct Iter<'a, T>(List<'a, T>);

impl<'a, T: Element<'a>> Iterator for Iter<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.0.take().map(T::read)
    }
}

impl<'a, T: Element<'a>> FusedIterator for Iter<'a, T> {}

impl<'a, T: Element<'a>> IntoIterator for List<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    #[inline]
    fn into_iter(self) -> Iter<'a, T> {
        Iter(self)
    }
}

impl<T> Clone for List<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        Self { rest: &[], number: 0, of: PhantomData }
    }
}

/// The value of some maps is a list of strings, which protobuf wraps in a message.
impl<'a> Element<'a> for List<'a, &'a str> {
    type Wire = &'a [u8];

    #[inline]
    fn read(bytes: &'a [u8]) -> Self {
        Raw(bytes).list(1)
    }
}

/// A map with keys of text, in the order of the keys: `pod.metadata().labels().get("app")`.
///
/// `get` walks over the entries, and stops where the key would be.
pub struct Map<'a, T>(List<'a, T>);

impl<'a, T: Element<'a>> Map<'a, T> {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(self, key: &str) -> Option<T> {
        for entry in self.entries() {
            let found: &[u8] = entry.get(1);
            if found >= key.as_bytes() {
                return (found == key.as_bytes()).then(|| entry.get(2));
            }
        }
        None
    }

    /// Returns true if the map has the key.
    #[must_use]
    pub fn contains_key(self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Iterates over the entries.
    #[inline]
    #[must_use]
    pub fn iter(self) -> Entries<'a, T> {
        Entries(self.entries(), PhantomData)
    }

    /// Iterates over the keys.
    #[inline]
    pub fn keys(self) -> impl Iterator<Item = &'a str> {
        self.entries().map(|entry| entry.get(1))
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no entries.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    fn entries(self) -> Iter<'a, Raw<'a>> {
        Iter(List { rest: self.0.rest, number: self.0.number, of: PhantomData })
    }
}

/// An iterator over the entries of a [`Map`].
pub struct Entries<'a, T>(Iter<'a, Raw<'a>>, PhantomData<fn() -> T>);

impl<'a, T: Element<'a>> Iterator for Entries<'a, T> {
    type Item = (&'a str, T);

    #[inline]
    fn next(&mut self) -> Option<(&'a str, T)> {
        self.0.next().map(|entry| (entry.get(1), entry.get(2)))
    }
}

impl<'a, T: Element<'a>> FusedIterator for Entries<'a, T> {}

impl<'a, T: Element<'a>> IntoIterator for Map<'a, T> {
    type Item = (&'a str, T);
    type IntoIter = Entries<'a, T>;

    #[inline]
    fn into_iter(self) -> Entries<'a, T> {
        self.iter()
    }
}

impl<T> Clone for Map<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Map<'_, T> {}

/// Shows the number of values, but no values, which may be of a Secret.
impl<'a, T: Element<'a>> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List({})", self.len())
    }
}

/// Shows the number of entries, but no values, which may be of a Secret.
impl<'a, T: Element<'a>> fmt::Debug for Map<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Map({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A field, and its number.
    fn field() -> impl Strategy<Value = (u32, Vec<u8>)> {
        let varint = |mut value: u64, out: &mut Vec<u8>| {
            while value > 0x7f {
                out.push(value.to_le_bytes()[0] | 0x80);
                value >>= 7;
            }
            out.push(value.to_le_bytes()[0]);
        };
        let number = prop_oneof![1..20_u32, 1..300_u32, 2000..3000_u32, 1..100_000_u32];
        (number, 0..6_u64, any::<u64>(), 0..64_u32, 0..20_000_usize).prop_map(move |(number, kind, int, shift, len)| {
            let mut field = Vec::new();
            let wire_type = [0, 2, 2, 1, 5, 2][usize::try_from(kind).unwrap()];
            varint(u64::from(number) << 3 | wire_type, &mut field);
            match wire_type {
                0 => varint(int >> shift, &mut field),
                1 => field.extend([0xff; 8]),
                5 => field.extend([0xff; 4]),
                _ => {
                    let len = if kind == 5 { len } else { len % 100 };
                    varint(len as u64, &mut field);
                    field.resize(field.len() + len, 0x82);
                }
            }
            (number, field)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn finds_the_first_field_that_is_not_smaller(fields in prop::collection::vec(field(), 0..8), number in 1..100_000_u32) {
            let message = fields.iter().flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>();
            for number in [number, 15, 16, 127, 128, 255, 2048] {
                let before = fields.iter().take_while(|(other, _)| *other < number).map(|(_, bytes)| bytes.len()).sum::<usize>();
                prop_assert_eq!(Raw(&message).from(number), &message[before..]);
            }
        }

        /// A view of bytes that were not checked cannot be created; if it were, nothing would panic.
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, number in 0..40_u32) {
            let raw = Raw(&bytes);
            _ = (raw.get::<&str>(number), raw.get::<i64>(number), raw.opt::<bool>(number), raw.get::<f64>(number));
            _ = (raw.list::<&str>(number).iter().count(), raw.map::<&str>(number).iter().count());
            _ = raw.map::<&[u8]>(number).get("a");
        }
    }
}
