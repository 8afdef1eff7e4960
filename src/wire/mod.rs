//! The encodings, independent of Kubernetes: varints, tags and fields of protobuf, and the ends of JSON values.

mod format;
pub(crate) mod json;
pub(crate) mod protobuf;
pub(crate) mod scan;
pub(crate) mod utf8;

use std::fmt;

pub(crate) use self::format::Beginning;
pub use self::format::BodyFormat;

/// The encoding of an item's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// The item as a protobuf message, without `k8s\0` and envelope.
    Protobuf,
    /// The item as JSON, without the whitespace around it.
    Json,
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protobuf => "protobuf",
            Self::Json => "JSON",
        })
    }
}

/// A field and its fault.
pub(crate) type FieldFault = (&'static str, Fault);

/// Returns a function that adds this field to a fault.
pub(crate) fn at(field: &'static str) -> impl Fn(Fault) -> FieldFault {
    move |fault| (field, fault)
}

/// The fault in the bytes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A varint over ten bytes or over 64 bits.
    #[error("a varint over 64 bits")]
    Varint,
    /// Field number 0 or over 2²⁹-1, or wire type 6 or 7.
    #[error("an invalid tag")]
    Tag,
    /// A known field with the wrong wire type.
    #[error("the wrong wire type")]
    WireType,
    /// A length past the end of its parent, or past 64 bits.
    #[error("a length past the end of its parent")]
    PastParent,
    /// An item of more than 2³¹-1 bytes, which protobuf does not allow.
    #[error("a length over 2³¹-1")]
    TooLong,
    /// The end of a group without its beginning.
    #[error("the end of a group that was not begun")]
    EndGroup,
    /// Groups nested deeper than 100.
    #[error("groups nested deeper than 100")]
    GroupDepth,
    /// A version, a kind or a token that is not UTF-8. Texts of objects are read with U+FFFD instead.
    #[error("invalid UTF-8")]
    Utf8,
    /// `raw` before `typeMeta`, which has the kind of `raw`.
    #[error("a value before its typeMeta")]
    Order,
    /// A second `raw` (in JSON, `items`) after the items of the first were delivered, or a second `typeMeta` after
    /// them.
    #[error("a second value")]
    Twice,
    /// No bytes: even an empty list has metadata, and every frame of a watch has an event.
    #[error("no bytes")]
    Empty,
    /// A content encoding or a content type of `raw`, which must be empty.
    #[error("an unsupported value")]
    NotEmpty,
    /// A value without a JSON form: embedded text that is not JSON, a number that is not finite, a time outside the
    /// years 0 to 9999, an empty quantity.
    #[error("a value without a JSON form")]
    Value,
    /// No Status, or a Status that cannot be decoded, where only the API server's Status is allowed.
    #[error("no valid Status")]
    Status,
    /// A byte that JSON does not allow in its place.
    #[error("invalid JSON")]
    Syntax,
    /// A JSON value of another type than the field's.
    #[error("a value of the wrong type")]
    Type,
    /// Messages nested deeper than 100, or JSON nested deeper than 10,000, as in Go.
    #[error("nested too deep")]
    Depth,
    /// No value of a field that every list, event or object has.
    #[error("no value")]
    Missing,
    /// An event type other than `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` and `ERROR`.
    #[error("an unknown value")]
    Unknown,
    /// An object in a protobuf watch that does not begin with `k8s\0`.
    #[error("no k8s\\0 at the beginning")]
    Magic,
}
