//! Errors: what is wrong, where in the body, and how many items or events were delivered before.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::meta::Status;
use crate::wire::Encoding;
pub use crate::wire::{BodyFormat, Fault};

/// Why a body is not a complete list, or why a watch cannot go on.
///
/// The items or events delivered before it are exact; nothing says that they were all. A decoder that returned an error
/// returns it again from then on.
///
/// It is displayed on one line: kind, reason, offset and items or events delivered.
#[derive(Clone, Debug)]
pub struct DecodeError(Box<Inner>);

/// Boxed, so that a `Result` on the way of every item stays small.
#[derive(Clone, Debug)]
struct Inner {
    kind: DecodeErrorKind,
    offset: u64,
    index: Option<u64>,
    items: u64,
    /// Its items are events.
    of_watch: bool,
}

impl DecodeError {
    pub(crate) fn new(kind: DecodeErrorKind, offset: u64, index: Option<u64>, items: u64) -> Self {
        Self(Box::new(Inner { kind, offset, index, items, of_watch: false }))
    }

    pub(crate) fn of_watch(mut self) -> Self {
        self.0.of_watch = true;
        self
    }

    #[cfg(feature = "client")]
    pub(crate) fn kind_mut(&mut self) -> &mut DecodeErrorKind {
        &mut self.0.kind
    }

    #[cfg(feature = "client")]
    pub(crate) fn set_items(&mut self, items: u64) {
        self.0.items = items;
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> &DecodeErrorKind {
        &self.0.kind
    }

    /// Where in the (decompressed) body: the offset of the first byte of the faulty field (of the faulty byte itself for
    /// [`Fault::Syntax`] between the fields of JSON); the bytes received for
    /// [`Incomplete`](DecodeErrorKind::Incomplete); for an [`Api`](DecodeErrorKind::Api) error, where the Status begins.
    ///
    /// In a watch the offset of the first byte of the faulty frame: of its length, or of its object in JSON; the bytes
    /// received for [`CutFrame`](DecodeErrorKind::CutFrame).
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// The item at fault, counted from 0 and with the skipped ones, if it was one; in a watch, the event.
    #[must_use]
    pub fn index(&self) -> Option<u64> {
        self.0.index
    }

    /// How many items were delivered before; in a watch, events.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.0.items
    }

    /// Whether the body ended before the list, or the frame of a watch, did: the transport broke it off.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        matches!(self.0.kind, DecodeErrorKind::Incomplete | DecodeErrorKind::CutFrame)
    }

    /// The API server's own error, if it sent one in place of the list or the watch, or behind the items.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match &self.0.kind {
            DecodeErrorKind::Api(status) => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, offset, index, items, of_watch } = &*self.0;
        let unit = if *of_watch { "event" } else { "item" };
        write!(f, "{kind}")?;
        if let Some(index) = index {
            write!(f, " in {unit} {index}")?;
        }
        write!(f, ", at byte {offset}, {items} {unit}{} delivered", if *items == 1 { "" } else { "s" })
    }
}

impl Error for DecodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.kind.source()
    }
}

/// What can be wrong with the body of a list or a watch.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The body is neither Kubernetes protobuf, which begins with `k8s\0`, nor JSON that the decoder accepts.
    #[error("unexpected encoding: the body looks like {found}, not like a list{hint}", found = .0, hint = hint(*.0))]
    UnexpectedEncoding(BodyFormat),

    /// The body of a watch is neither frames of Kubernetes protobuf nor JSON objects that the decoder accepts.
    #[error("unexpected encoding: the body looks like {found}, not like a watch{hint}", found = .0, hint = hint(*.0))]
    UnexpectedWatchEncoding(BodyFormat),

    /// The bytes are not what they should be.
    #[error("malformed: {fault} in {field}")]
    Malformed {
        /// The field, as in the Kubernetes API: `raw`, `metadata.resourceVersion`, `items`; or what stands in its place.
        field: &'static str,
        /// What is wrong with it.
        fault: Fault,
    },

    /// The body ended before the list did.
    #[error("incomplete: the body ended before the list did")]
    Incomplete,

    /// The body of a watch ended inside a frame, or, in JSON, inside an object.
    #[error("incomplete: the body ended inside a frame")]
    CutFrame,

    /// The body is whole, but of something else: a single object, or a kind whose items are no objects.
    #[error(
        "not a list: the body is a {} of {api_version:?}{}",
        kind.escape_debug(),
        if kind == "Table" { TABLE } else { "" }
    )]
    NotAList {
        /// `apiVersion` of the envelope.
        api_version: String,
        /// `kind` of the envelope.
        kind: String,
    },

    /// What came in place of a watch is a list or a single object.
    #[error("not a watch: the body is a {} of {api_version:?}", kind.escape_debug())]
    NotAWatch {
        /// `apiVersion` of what came.
        api_version: String,
        /// `kind` of what came; `List` where a JSON list has it behind its items.
        kind: String,
    },

    /// The API server's own error, in place of the list or the watch, or behind the items of a list.
    #[error("API error: {0}")]
    Api(Arc<Status>),

    /// Something is larger than [`Limits`](crate::Limits) allow.
    #[error("limit: {limit} {size} is over the limit of {max}, which Limits::{} raises", limit.setter())]
    Limit {
        /// The cap.
        limit: Limit,
        /// The size that was declared or reached.
        size: u64,
        /// The largest that is allowed.
        max: u64,
    },

    /// The item could not be turned into what was asked for.
    #[error("item: {0}")]
    Item(#[source] ItemError),

    /// A callback panicked while it held an item, so that nobody can say whether it was delivered.
    #[error("poisoned: a callback panicked")]
    Poisoned,

    /// The caller fed bytes to a decoder after its `finish`.
    #[error("misuse: bytes after finish")]
    Finished,
}

const TABLE: &str = "; ask for the list, without as=Table";

/// What to do about an encoding that an API server sends only to those who ask for it.
fn hint(found: BodyFormat) -> &'static str {
    match found {
        BodyFormat::Cbor => "; ask for application/vnd.kubernetes.protobuf",
        BodyFormat::Json => ", which this decoder does not accept",
        _ => "",
    }
}

/// The caps of [`Limits`](crate::Limits), as errors name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::item_size`](crate::Limits::item_size)
    ItemSize,
    /// [`Limits::items`](crate::Limits::items)
    Items,
    /// [`Limits::bytes`](crate::Limits::bytes)
    Bytes,
    /// [`Limits::metadata_size`](crate::Limits::metadata_size)
    MetadataSize,
}

impl Limit {
    /// The setter of [`Limits`](crate::Limits) that raises it.
    #[must_use]
    pub fn setter(self) -> &'static str {
        match self {
            Self::ItemSize => "item_size",
            Self::Items => "items",
            Self::Bytes => "bytes",
            Self::MetadataSize => "metadata_size",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ItemSize => "an item's size in bytes of",
            Self::Items => "a number of items of",
            Self::Bytes => "a body's size in bytes of",
            Self::MetadataSize => "a metadata size in bytes of",
        })
    }
}

/// Why an item could not be turned into what was asked for.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ItemError {
    /// prost refuses it: invalid UTF-8, nesting deeper than 100, a wrong wire type.
    #[error("{0}")]
    Protobuf(#[from] prost::DecodeError),
    /// Its metadata cannot be read.
    #[error("{fault} in {field}")]
    Metadata {
        /// The field, as in the Kubernetes API.
        field: &'static str,
        /// What is wrong with it.
        fault: Fault,
    },
    /// What a [`FieldPath`](crate::FieldPath) leads to, or a message on the way, is malformed or of another type; or a
    /// field has no JSON form.
    #[error("{fault} in field {path}")]
    Field {
        /// The path: in numbers; for a JSON form in names, with the kind before them.
        path: Box<str>,
        /// What is wrong.
        fault: Fault,
    },
    /// The [table of fields](crate::schema) does not have the kind.
    #[error("the fields of {} of {api_version:?} are not known: ask the server for JSON", kind.escape_debug())]
    UnknownKind {
        /// `apiVersion` of the object.
        api_version: Box<str>,
        /// `kind` of the object.
        kind: Box<str>,
    },
    /// The object, or a message in it that a [`Projection`](crate::Projection) takes apart, is malformed.
    #[error("{0} in what is projected")]
    Projection(Fault),
    /// A field selector asks for a field that cannot be selected by in objects of this kind.
    #[error("field selector: {path} of {} is not supported", kind.escape_debug())]
    FieldSelector {
        /// The field, as the selector names it.
        path: Box<str>,
        /// The kind of the object.
        kind: Box<str>,
    },
    /// The item may take too much memory when it is decoded.
    #[error("decoding may take {estimate} bytes, over the limit of {max}, which Limits::decoded_size raises")]
    DecodedSize {
        /// What it may take, in bytes, as [`Limits::decoded_size`](crate::Limits::decoded_size) estimates it.
        estimate: u64,
        /// The most that is allowed.
        max: u64,
    },
    /// prost implements `Message` for this type as a wrapper: it would decode any object into garbage.
    #[error("{0} is a protobuf wrapper type, which no Kubernetes object is")]
    WrapperType(&'static str),
    /// `serde_json` refuses it. Its text may quote the value at fault.
    #[cfg(feature = "json")]
    #[error("{0}")]
    Json(#[source] Arc<serde_json::Error>),
    /// It is in another encoding than the one that is to be read: an API server has custom resources in JSON only, and
    /// others in the one that the request prefers.
    #[error("it is in {found}, where {expected} is to be read")]
    WrongEncoding {
        /// How it is encoded.
        found: Encoding,
        /// What the type that was asked for is decoded from.
        expected: Encoding,
    },
    /// What a closure of the caller's returned.
    #[error("{0}")]
    Other(Arc<dyn Error + Send + Sync>),
}

impl ItemError {
    /// An error of the caller's own, for closures that map items.
    pub fn other(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other(Arc::from(error.into()))
    }
}
