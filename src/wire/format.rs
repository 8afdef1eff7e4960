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

/// The beginning of a body. White space may precede JSON, as Go's `encoding/json` allows, but no byte order mark.
pub(crate) enum Beginning {
    /// The next byte decides.
    Space,
    /// The first byte of [`MAGIC`](crate::meta::MAGIC), if it is the first byte of the body.
    Protobuf,
    Json,
    Other(BodyFormat),
}

impl Beginning {
    /// Returns the kind of the first byte of a body, or of the next byte after spaces.
    pub(crate) fn of(byte: u8, is_first: bool) -> Self {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => Self::Space,
            b'k' if is_first => Self::Protobuf,
            b'{' | b'[' => Self::Json,
            byte => Self::Other(BodyFormat::by_first_byte(byte)),
        }
    }

    /// Returns the beginning of a body, and its bytes after the spaces; `None` for a body without other bytes.
    pub(crate) fn find(body: &[u8]) -> Option<(Self, &[u8])> {
        let kinds = body.iter().enumerate().map(|(at, byte)| (at, Self::of(*byte, at == 0)));
        let (at, found) = kinds.into_iter().find(|(_, kind)| !matches!(kind, Self::Space))?;
        Some((found, body.get(at..)?))
    }
}

impl BodyFormat {
    /// Returns the format. It uses only the first byte, so the result does not depend on how the body is split into
    /// chunks.
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
