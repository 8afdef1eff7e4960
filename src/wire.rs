//! The encodings, how the first byte of a body tells them apart, and the faults that bytes can have.
//!
//! A `Content-Type` may be wrong, so it decides nothing.

use std::fmt;

/// The encoding of an item's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// The item as a protobuf message, without `k8s\0` and envelope.
    Protobuf,
    /// The item as JSON, without the whitespace around it.
    Json,
}

impl Encoding {
    const ALL: [Self; 2] = [Self::Protobuf, Self::Json];

    /// Returns the number that stands for the encoding in saved files. It never changes.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Protobuf => 0,
            Self::Json => 1,
        }
    }

    /// Returns the encoding of a [`number`](Self::number), or `None` for a number that this version does not know.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.number() == number)
    }

    /// Returns the media type of lists and objects, such as `application/json`.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Json => "application/json",
        }
    }

    /// Returns the content type of watches.
    #[must_use]
    pub const fn watch_media_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Self::Json => "application/json",
        }
    }

    /// Returns the encoding of a [`media_type`](Self::media_type) in lower case, without parameters.
    #[must_use]
    pub fn from_media_type(media_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.media_type() == media_type)
    }

    /// Returns true if objects name their fields, so that an object of any kind can be read and written.
    ///
    /// Protobuf only numbers the fields. Custom resources, whose fields are in no table, therefore have no protobuf
    /// form.
    #[must_use]
    pub const fn is_self_describing(self) -> bool {
        match self {
            Self::Protobuf => false,
            Self::Json => true,
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protobuf => "protobuf",
            Self::Json => "JSON",
        })
    }
}

/// What a body looks like, judged by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyFormat {
    /// JSON, which begins with `{` or `[`.
    Json,
    /// A protobuf watch, which begins with the length of its first frame.
    WatchStream,
    /// A list, an object or a `Status`, where a watch was expected.
    Document,
    /// gzip that the transport did not decompress.
    Gzip,
    /// CBOR with its self-describing tag, as API servers send it.
    Cbor,
    /// An HTML page, probably a proxy's.
    Html,
    /// Other text.
    Text,
    /// Anything else.
    Binary,
}

/// What a body begins with. White space may precede JSON, as Go's `encoding/json` allows, but a byte order mark may
/// not.
pub(crate) enum Beginning {
    /// The next byte decides.
    Space,
    /// The first byte of a body in this encoding. The rest of protobuf's [`MAGIC`](crate::meta::MAGIC) is not checked.
    Encoded(Encoding),
    Other(BodyFormat),
}

impl Beginning {
    /// Classifies the first byte of a list or an object, or the next byte after spaces.
    pub(crate) fn of(byte: u8, is_first: bool) -> Self {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => Self::Space,
            b'k' if is_first => Self::Encoded(Encoding::Protobuf),
            b'{' | b'[' => Self::Encoded(Encoding::Json),
            byte => Self::Other(BodyFormat::by_first_byte(byte)),
        }
    }

    /// Like [`of`](Self::of), for a watch.
    pub(crate) fn of_watch(byte: u8, is_first: bool) -> Self {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => Self::Space,
            // Only a frame under 150 MB begins with such a byte.
            0x00..=0x08 if is_first => Self::Encoded(Encoding::Protobuf),
            b'{' | b'[' => Self::Encoded(Encoding::Json),
            byte => Self::Other(BodyFormat::by_first_byte(byte)),
        }
    }

    /// Classifies a body, and returns its bytes after the spaces; `None` if there are no other bytes.
    pub(crate) fn find(body: &[u8]) -> Option<(Self, &[u8])> {
        let kinds = body.iter().enumerate().map(|(at, byte)| (at, Self::of(*byte, at == 0)));
        let (at, found) = kinds.into_iter().find(|(_, kind)| !matches!(kind, Self::Space))?;
        Some((found, body.get(at..)?))
    }
}

impl BodyFormat {
    /// Returns the format. Using only the first byte makes the result independent of how the body is split into chunks.
    pub(crate) fn by_first_byte(byte: u8) -> Self {
        match byte {
            b'{' | b'[' => Self::Json,
            // A frame's length, big-endian, is below 2²⁴.
            0x00 => Self::WatchStream,
            0x1f => Self::Gzip,
            0xd9 => Self::Cbor,
            b'<' => Self::Html,
            b'\t' | b'\n' | b'\r' | b' '..=b'~' => Self::Text,
            _ => Self::Binary,
        }
    }
}

impl fmt::Display for BodyFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "JSON",
            Self::WatchStream => "a watch stream",
            Self::Document => "a list or an object",
            Self::Gzip => "gzip",
            Self::Cbor => "CBOR",
            Self::Html => "HTML",
            Self::Text => "text",
            Self::Binary => "unknown binary data",
        })
    }
}

pub(crate) type FieldFault = (&'static str, Fault);

pub(crate) fn at(field: &'static str) -> impl Fn(Fault) -> FieldFault {
    move |fault| (field, fault)
}

/// What is wrong with the bytes of a field.
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
    /// A length that reaches past the end of its parent, or past 64 bits.
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
    /// A version, a kind or a token that is not UTF-8. Such text inside objects is read with U+FFFD instead.
    #[error("invalid UTF-8")]
    Utf8,
    /// `raw` before `typeMeta`, which contains the kind of `raw`.
    #[error("a value before its typeMeta")]
    Order,
    /// A second `raw` (in JSON, `items`), or a second `typeMeta`, after items were delivered.
    #[error("a second value")]
    Twice,
    /// No bytes, although even an empty list has metadata and every frame of a watch has an event.
    #[error("no bytes")]
    Empty,
    /// A content encoding or a content type of `raw`, although both must be empty.
    #[error("an unsupported value")]
    NotEmpty,
    /// A value without a JSON form.
    ///
    /// Examples are embedded text that is not JSON, a number that is not finite, a time outside the years 0 to 9999,
    /// and an empty quantity.
    #[error("a value without a JSON form")]
    Value,
    /// Something other than a valid Status of the API server, where only a Status is allowed.
    #[error("no valid Status")]
    Status,
    /// A byte that JSON does not allow there.
    #[error("invalid JSON")]
    Syntax,
    /// A JSON value of the wrong type for its field.
    #[error("a value of the wrong type")]
    Type,
    /// Messages nested deeper than 100, or JSON nested deeper than 10,000; both limits are Go's.
    #[error("nested too deep")]
    Depth,
    /// No value in a field that every list, event or object has.
    #[error("no value")]
    Missing,
    /// An event type other than `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` and `ERROR`.
    #[error("an unknown value")]
    Unknown,
    /// An object in a protobuf watch that does not begin with `k8s\0`.
    #[error("no k8s\\0 at the beginning")]
    Magic,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each encoding is in `ALL`, so that files and requests that name it are read.
    #[test]
    fn an_encoding_is_found_by_its_number_and_its_media_type() {
        for (at, encoding) in Encoding::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(encoding.number()), at);
            assert_eq!(Encoding::from_number(encoding.number()), Some(encoding));
            assert_eq!(Encoding::from_media_type(encoding.media_type()), Some(encoding));
        }
        let unknown = u8::try_from(Encoding::ALL.len()).unwrap();
        assert_eq!((Encoding::from_number(unknown), Encoding::from_media_type("text/html")), (None, None));
    }
}
