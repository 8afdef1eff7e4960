//! Values of the JSON form of an object, read off its bytes: what they are. `object/value.rs` has what one reads of
//! them.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use crate::meta::TypeMeta;
use crate::schema::{Field, Message};

/// A value of an object's JSON form. Arrays and objects are only their place: their contents are read when one asks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer of protobuf.
    Int(i64),
    /// A number of protobuf with a fraction. It is finite.
    Double(f64),
    /// The text of a number in JSON.
    Number(&'a str),
    /// A string, with U+FFFD in place of what is not Unicode.
    String(Cow<'a, str>),
    /// A list.
    Array(Array<'a>),
    /// A message, a map, or an object in JSON.
    Object(Object<'a>),
}

/// The name of a member of an [`Object`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Key<'a> {
    /// The name of a field in the [table of fields](crate::schema).
    Field(&'static str),
    /// A key of a map, or a name in JSON.
    Text(Cow<'a, str>),
}

/// An object within an item: a message, a map, or an object in JSON. Each read walks only its own members.
#[derive(Clone)]
pub struct Object<'a> {
    pub(crate) root: &'a [u8],
    pub(crate) place: Place,
    /// Of the whole item: `kind` and `apiVersion`, unless the object has its own.
    pub(crate) type_meta: Option<&'a TypeMeta>,
}

/// A list within an item. Each read walks only its own elements.
#[derive(Clone)]
pub struct Array<'a> {
    pub(crate) root: &'a [u8],
    pub(crate) place: Place,
}

/// The place of an [`Object`] or an [`Array`] in the bytes of its item, without a borrow of the bytes.
#[derive(Clone, Debug)]
pub struct Place {
    pub(crate) form: PlaceForm,
    pub(crate) pieces: Pieces,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum PlaceForm {
    /// The pieces are the pieces of the message.
    Message(&'static Message),
    /// The pieces are parts of the parent, which contain all entries and may contain other fields.
    Map(&'static Field),
    /// As for a map.
    Repeated(&'static Field),
    /// One piece.
    Json,
}

/// Parts of the bytes of an item.
#[derive(Clone, Debug)]
pub(crate) enum Pieces {
    None,
    One(Range<usize>),
    Many(Box<[Range<usize>]>),
}

impl Pieces {
    /// Returns where a part of the root is in it.
    pub(crate) fn range_in(root: &[u8], part: &[u8]) -> Range<usize> {
        let start = part.as_ptr().addr().wrapping_sub(root.as_ptr().addr());
        start..start.saturating_add(part.len())
    }

    pub(crate) fn one(root: &[u8], part: &[u8]) -> Self {
        Self::One(Self::range_in(root, part))
    }

    pub(crate) fn from_ranges(mut ranges: impl ExactSizeIterator<Item = Range<usize>>) -> Self {
        match (ranges.len(), ranges.next()) {
            (_, None) => Self::None,
            (1, Some(range)) => Self::One(range),
            (_, Some(first)) => Self::Many(std::iter::once(first).chain(ranges).collect()),
        }
    }

    fn ranges(&self) -> &[Range<usize>] {
        match self {
            Self::None => &[],
            Self::One(range) => std::slice::from_ref(range),
            Self::Many(ranges) => ranges,
        }
    }

    /// Returns the bytes of each piece. A range outside of the root is empty.
    pub(crate) fn slices<'a, 's>(&'s self, root: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a, 's> {
        self.ranges().iter().map(|range| root.get(range.clone()).unwrap_or_default())
    }
}

/// Shows no contents, which may be a Secret's.
impl fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Shows no contents, which may be a Secret's.
impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Key<'_> {
    /// Returns its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Field(name) => name,
            Self::Text(text) => text,
        }
    }
}
