//! Detects the format of a body by its first byte, because a `Content-Type` may be wrong.

use std::fmt;

/// The format of a body, detected by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyFormat {
    /// JSON, which begins with `{` or `[`.
    Json,
    /// A protobuf watch stream, which begins with the length of its first frame.
    WatchStream,
    /// gzip that the transport did not decompress.
    Gzip,
    /// CBOR with its self-describing tag, as API servers send it.
    Cbor,
    /// An HTML page, probably a proxy's.
    Html,
    /// Other text.
    Text,
    /// None of these.
    Binary,
}

impl BodyFormat {
    /// Returns the format. It uses only the first byte, so the result does not depend on how the body is split into chunks.
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
            Self::Gzip => "gzip",
            Self::Cbor => "CBOR",
            Self::Html => "HTML",
            Self::Text => "text",
            Self::Binary => "unknown binary data",
        })
    }
}
