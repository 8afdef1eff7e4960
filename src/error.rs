//! Errors of bodies and items, with their position and the number of items or events delivered before.
//!
//! Each error displays itself and its causes on one line. Its `source()` skips the causes that the text already shows,
//! so printing a chain of sources repeats nothing.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::meta::Status;
use crate::wire::BodyFormat;
use crate::wire::Encoding;
pub(crate) use crate::wire::Fault;

/// Returns the text of an error without the numbers that Rust appends to the system's messages.
///
/// `/a: No such file or directory (os error 2)` becomes `/a: no such file or directory`.
pub fn without_os_numbers(error: impl fmt::Display) -> String {
    const MARK: &str = " (os error ";
    let text = error.to_string();
    let (mut plain, mut rest) = (String::with_capacity(text.len()), &*text);
    while let Some((before, after)) = rest.split_once(MARK) {
        match after.split_once(')') {
            Some((number, after)) if number.parse::<i32>().is_ok() => {
                let start = before.rfind(": ").map_or(0, |colon| colon + 2);
                let (head, message) = before.split_at(start);
                plain.push_str(head);
                // Windows ends its messages with a full stop.
                let mut letters = message.trim_end_matches('.').chars();
                plain.extend(letters.next().into_iter().flat_map(char::to_lowercase).chain(letters));
                rest = after;
            }
            _ => {
                plain.push_str(before);
                plain.push_str(MARK);
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// The error of a body that is not a complete list or a well-formed watch.
///
/// The items or events that were delivered before the error are correct, but the body may contain more. After an error,
/// a decoder returns the same error from every later call.
///
/// The text says on one line what happened, at which offset, after how many items or events, and, if an item caused the
/// error, its [`ItemError`]. [`source`](Error::source) is the source of that `ItemError`.
#[derive(Clone, Debug)]
pub struct DecodeError(Box<DecodeErrorParts>);

/// Boxed, so that the `Result`s of each item stay small.
#[derive(Clone, Debug)]
struct DecodeErrorParts {
    kind: DecodeErrorKind,
    offset: u64,
    index: Option<u64>,
    items: u64,
    /// True if `items` counts events.
    of_watch: bool,
}

pub(crate) type SkipHook = Box<dyn FnMut(&DecodeError) + Send>;

impl DecodeError {
    pub(crate) fn new(kind: DecodeErrorKind, offset: u64, index: Option<u64>, items: u64) -> Self {
        Self(Box::new(DecodeErrorParts { kind, offset, index, items, of_watch: false }))
    }

    pub(crate) fn of_watch(mut self) -> Self {
        self.0.of_watch = true;
        self
    }

    pub(crate) fn kind_mut(&mut self) -> &mut DecodeErrorKind {
        &mut self.0.kind
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &DecodeErrorKind {
        &self.0.kind
    }

    /// Returns the position of the fault in the decompressed body.
    ///
    /// In a list, this is the offset of the first byte of the faulty field. There are three exceptions: for
    /// [`Fault::Syntax`] between the fields of JSON it is the faulty byte itself, for
    /// [`Incomplete`](DecodeErrorKind::Incomplete) the number of received bytes, and for [`Api`](DecodeErrorKind::Api)
    /// the offset of the Status.
    ///
    /// In a watch, this is the offset of the faulty frame, which begins with its length, or in JSON with its object.
    /// For [`TruncatedFrame`](DecodeErrorKind::TruncatedFrame) it is the number of received bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// Returns the index of the faulty item or event, or `None` if the fault is not in an item.
    ///
    /// Indexes start at 0 and count skipped items.
    #[must_use]
    pub fn index(&self) -> Option<u64> {
        self.0.index
    }

    /// Returns how many items of the list, or events of the watch, were delivered before the error.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.0.items
    }

    /// Returns true if the body ended before the end of the list, or inside a frame of the watch.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        // Without `_`, so that a new kind of truncation must be decided here. The client, kube and the command ask only
        // this function.
        match self.0.kind {
            DecodeErrorKind::Incomplete | DecodeErrorKind::TruncatedFrame => true,
            DecodeErrorKind::UnexpectedEncoding(_)
            | DecodeErrorKind::Malformed { .. }
            | DecodeErrorKind::UnexpectedKind { .. }
            | DecodeErrorKind::WrongKind { .. }
            | DecodeErrorKind::Api(_)
            | DecodeErrorKind::Limit { .. }
            | DecodeErrorKind::Item(_)
            | DecodeErrorKind::Poisoned
            | DecodeErrorKind::Finished => false,
        }
    }

    /// Returns the limit that the body, or decoding one of its items, exceeds. The [`kind`](Self::kind) contains the
    /// sizes.
    ///
    /// ```
    /// use listwatch::{Limit, Limits, ListReader};
    ///
    /// # let body = &include_bytes!("../fixtures/configmaps.pb")[..];
    /// let mut items = ListReader::new::<[u8]>(body).limits(Limits::default().items(5));
    /// let Some(Err(listwatch::ListError::Decode(error))) = items.nth(5) else { panic!("the sixth item is an error") };
    /// assert_eq!(error.limit(), Some(Limit::Items));
    /// ```
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        match self.0.kind {
            DecodeErrorKind::Limit { limit, .. } => Some(limit),
            DecodeErrorKind::Item(ItemError::DecodedSize { .. }) => Some(Limit::DecodedSize),
            _ => None,
        }
    }

    /// Returns the error that the API server sent in place of the list or after its items, if there is one.
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
        self.fmt_place(f)?;
        self.fmt_cause(f)
    }
}

impl DecodeError {
    /// Writes the error of the item after a colon, if an item caused the error.
    pub(crate) fn fmt_cause(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            DecodeErrorKind::Item(error) => write!(f, ": {error}"),
            _ => Ok(()),
        }
    }

    /// Writes what happened and where, without the error of an item.
    pub(crate) fn fmt_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DecodeErrorParts { kind, offset, index, items, of_watch } = &*self.0;
        let (unit, expected) = if *of_watch { ("event", "watch") } else { ("item", "list") };
        match (kind, index) {
            (DecodeErrorKind::UnexpectedKind { api_version, kind }, _) => {
                write!(f, "not a {expected}: the body has the kind {kind:?} of {api_version:?}")?;
            }
            (DecodeErrorKind::UnexpectedEncoding(BodyFormat::Json), _) => {
                write!(f, "{kind}, which the decoder does not accept")?;
            }
            (DecodeErrorKind::UnexpectedEncoding(_), _) => write!(f, "{kind}, not like a {expected}")?,
            (DecodeErrorKind::Item(_), Some(index)) => write!(f, "cannot read {unit} {index}")?,
            (DecodeErrorKind::Item(_), None) => write!(f, "cannot read the {unit}")?,
            (DecodeErrorKind::Limit { limit: Limit::ItemSize, size, max }, Some(index)) => {
                write!(f, "{unit} {index} is {}, over the limit of {}", Bytes(*size), Bytes(*max))?;
            }
            (DecodeErrorKind::Limit { limit: Limit::MetadataSize, size, max }, Some(index)) => {
                let (size, max) = (Bytes(*size), Bytes(*max));
                write!(f, "the metadata of {unit} {index} is {size}, over the limit of {max}")?;
            }
            (DecodeErrorKind::Limit { .. }, _) | (_, None) => write!(f, "{kind}")?,
            (_, Some(index)) => write!(f, "{kind} in {unit} {index}")?,
        }
        write!(f, ", at byte {offset}, {items} {unit}{} delivered", if *items == 1 { "" } else { "s" })
    }
}

impl Error for DecodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.kind.source()
    }
}

/// The kind of a [`DecodeError`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The body is in an encoding that the decoder does not accept, or a watch decoder received a list or an object.
    ///
    /// The decoder accepts Kubernetes protobuf, which begins with `k8s\0` or, in a watch, with the length of a frame,
    /// and JSON if the caller allows it. API servers send the encoding that the `Accept` header of the request prefers.
    #[error("unexpected encoding: the body looks like {0}")]
    UnexpectedEncoding(BodyFormat),

    /// A field has invalid bytes or an invalid value.
    #[error("malformed: {fault} in {field}")]
    Malformed {
        /// The field as the Kubernetes API names it, such as `metadata.resourceVersion`, or the part of the body.
        field: &'static str,
        /// What is wrong with it.
        fault: Fault,
    },

    /// The body ended before the list did.
    #[error("incomplete: the body ended before the list did")]
    Incomplete,

    /// The body of a watch ended inside a frame, or in JSON inside an object.
    #[error("incomplete: the body ended inside a frame")]
    TruncatedFrame,

    /// The body is not a list of objects.
    ///
    /// It is a single object, a `Table` (which servers send for `as=Table`), or a list of something other than objects.
    #[error("unexpected kind: the body has the kind {kind:?} of {api_version:?}")]
    UnexpectedKind {
        /// The `apiVersion` of the body.
        api_version: String,
        /// The `kind` of the body.
        kind: String,
    },

    /// The type reads another kind than the list contains.
    #[error("unexpected kind: the list has objects of the kind {found}, the type reads a {expected}")]
    WrongKind {
        /// The kind and the API version of the list's items.
        found: Box<str>,
        /// The kind and the API version that the type reads.
        expected: Box<str>,
    },

    /// The API server sent an error in place of the list or after its items.
    ///
    /// An error event of a watch is [`WatchEventRef::Error`](crate::WatchEventRef::Error) instead.
    #[error("API error: {0}")]
    Api(Arc<Status>),

    /// The body exceeds one of the [`Limits`](crate::Limits).
    #[error("{}", exceeded(*limit, *size, *max))]
    Limit {
        /// Which limit.
        limit: Limit,
        /// The size that was declared or reached.
        size: u64,
        /// The largest size that is allowed.
        max: u64,
    },

    /// The type or the closure refused an item.
    #[error(transparent)]
    Item(ItemError),

    /// A callback panicked while it held an item, so nobody knows whether the item was delivered.
    #[error("poisoned: a callback panicked")]
    Poisoned,

    /// The caller fed bytes to a decoder after its `finish`.
    #[error("misuse: bytes after finish")]
    Finished,
}

fn exceeded(limit: Limit, size: u64, max: u64) -> String {
    let (bytes, max_bytes) = (Bytes(size), Bytes(max));
    match limit {
        Limit::ItemSize => format!("the item is {bytes}, over the limit of {max_bytes}"),
        Limit::Items => format!("the list has at least {size} items, over the limit of {max}"),
        Limit::Bytes => format!("the body is at least {bytes}, over the limit of {max_bytes}"),
        Limit::MetadataSize => format!("the metadata is {bytes}, over the limit of {max_bytes}"),
        Limit::DecodedSize => format!("decoding may allocate {bytes}, over the limit of {max_bytes}"),
    }
}

/// Displays a number of bytes without rounding: `16 MiB`, `16777217 bytes`.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(f, "{} {unit}", bytes >> shift),
            None => write!(f, "{bytes} byte{}", if bytes == 1 { "" } else { "s" }),
        }
    }
}

/// The error of input that the caller must correct, because nothing was sent.
///
/// The input is a selector, a field path, a shard, the name of a resource, or a parameter of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidInput {
    message: Box<str>,
    text: Box<str>,
}

impl InvalidInput {
    /// `message` quotes the text.
    pub(crate) fn new(message: impl Into<Box<str>>, text: &str) -> Self {
        Self { message: message.into(), text: text.into() }
    }

    pub(crate) fn of(what: &str, text: &str, reason: impl fmt::Display) -> Self {
        Self::new(format!("invalid {what} {text:?}: {reason}"), text)
    }

    /// Returns the whole input; empty if the fault is not in a text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// One of the [`Limits`](crate::Limits).
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
    /// [`Limits::decoded_size`](crate::Limits::decoded_size)
    DecodedSize,
}

/// Why a type or a closure could not read an item.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ItemError {
    /// prost refuses the item.
    ///
    /// The item has the wrong wire type, is nested deeper than 100 messages, or contains text that is not UTF-8 while
    /// its kind is not in the [table of fields](crate::schema).
    ///
    /// The inner type belongs to the version of prost on which this crate depends. Messages that you decode use the
    /// same version, so `?` converts their errors in a closure.
    #[error("cannot decode the protobuf: {}", without_library(.0))]
    Protobuf(prost::DecodeError),
    /// The metadata of the item cannot be read.
    #[error("{fault} in {field}")]
    Metadata {
        /// The name of the field in the Kubernetes API.
        field: &'static str,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A field on a [`FieldPath`](crate::FieldPath) is malformed or of the wrong type, or a field has no JSON form.
    #[error("{fault} in field {path}")]
    Field {
        /// The path in names or numbers; for a JSON form, the kind and names.
        path: Box<str>,
        /// What is wrong with the field.
        fault: Fault,
    },
    /// The object, or a message in it, is malformed, so it has no [`View`](crate::view::View).
    #[error("{fault} in {path}, at byte {offset} of the object")]
    View {
        /// The kind and the names of the fields, down to the faulty field.
        path: Box<str>,
        /// The offset of the faulty field in the object.
        offset: u64,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The item is valid but not [canonical](crate::view::Canonical), and a borrowed item cannot be rewritten in place.
    ///
    /// View its [`canonical`](crate::ItemRef::canonical) form instead.
    #[error(
        "not canonical: the object has fields in another order than API servers send them, or text that is not UTF-8"
    )]
    NotCanonical,
    /// The type or the [`View`](crate::view::View) reads another kind than the object's.
    #[error("unexpected kind: the object is a {found}, the type reads a {expected}")]
    WrongKind {
        /// The kind and the API version of the object.
        found: Box<str>,
        /// The kind and the API version that the type reads.
        expected: Box<str>,
    },
    /// The object is in JSON, which views do not read.
    ///
    /// Decode it with serde instead, as [`Json<T>`](crate::Item) or by `ItemRef::decode_json`.
    #[error("unexpected encoding: views read protobuf, and the object is in JSON: decode it with serde")]
    ViewOfJson,
    /// The kind is not in the [table of fields](crate::schema), so only JSON would tell the names of its fields.
    #[error("unknown fields: no table for the kind {kind:?} of {api_version:?}")]
    UnknownKind {
        /// The `apiVersion` of the object.
        api_version: Box<str>,
        /// The `kind` of the object.
        kind: Box<str>,
    },
    /// The object, or a message on a path of a [`Projection`](crate::Projection), is malformed.
    #[error("{0} in the projected fields")]
    Projection(Fault),
    /// A field selector names a field by which objects of this kind cannot be selected.
    #[error("unsupported field selector: {path:?} of {kind:?}")]
    FieldSelector {
        /// The name of the field in the selector.
        path: Box<str>,
        /// The kind of the object.
        kind: Box<str>,
    },
    /// Decoding the item may take too much memory.
    #[error("{}", exceeded(Limit::DecodedSize, *estimate, *max))]
    DecodedSize {
        /// The estimated memory in bytes: see [`Limits::decoded_size`](crate::Limits::decoded_size).
        estimate: u64,
        /// The largest estimate that is allowed.
        max: u64,
    },
    /// prost implements `Message` for this type as a protobuf wrapper, which would decode any object into garbage.
    #[error("{0} is a protobuf wrapper type, not a Kubernetes object")]
    WrapperType(&'static str),
    /// `serde_json` refuses the item. The text may quote the faulty value.
    #[error("cannot decode the JSON: {0}")]
    Json(Arc<serde_json::Error>),
    /// The item is not in the encoding that the type or the path reads.
    ///
    /// API servers send custom resources only in JSON, and other resources in the encoding that the request prefers.
    #[error("unexpected encoding: the item is in {found}, expected {expected}")]
    WrongEncoding {
        /// The encoding of the item.
        found: Encoding,
        /// The encoding that the type or the path reads.
        expected: Encoding,
    },
    /// An error that the caller's closure returned. [`source`](Error::source) is its source.
    #[error(transparent)]
    Other(Arc<dyn Error + Send + Sync>),
}

impl From<prost::DecodeError> for ItemError {
    fn from(error: prost::DecodeError) -> Self {
        Self::Protobuf(error)
    }
}

/// Returns prost's description of the field and its fault, without prost's own prefix.
fn without_library(error: &prost::DecodeError) -> String {
    let text = error.to_string();
    text.strip_prefix("failed to decode Protobuf message: ").map(str::to_owned).unwrap_or(text)
}

impl ItemError {
    /// Wraps an error of the caller, for closures that read items.
    pub fn other(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other(Arc::from(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (512, "512 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (16 << 20, "16 MiB"),
            ((16 << 20) + 1, "16777217 bytes"),
            (3 << 30, "3 GiB"),
            (u64::MAX, "18446744073709551615 bytes"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), expected);
        }
    }

    #[test]
    fn texts_name_no_number_of_the_system() {
        let missing = std::fs::read("/none").unwrap_err();
        let plain = "no such file or directory";
        for (text, expected) in [
            (missing.to_string(), plain.to_owned()),
            (std::io::Error::other(missing).to_string(), plain.to_owned()),
            ("/a: B: Is a directory (os error 21)".to_owned(), "/a: B: is a directory".to_owned()),
            // As tempfile writes it.
            ("No such file or directory (os error 2) at path \"/a\"".to_owned(), format!("{plain} at path \"/a\"")),
            ("It fails. (os error -3), and: It fails (os error 4)".to_owned(), "it fails, and: it fails".to_owned()),
            ("Odd (os error x) (os error 7".to_owned(), "Odd (os error x) (os error 7".to_owned()),
            (String::new(), String::new()),
        ] {
            assert_eq!(without_os_numbers(&text), expected, "{text}");
        }
    }

    /// An error of a caller, with a cause of its own.
    #[derive(Debug, thiserror::Error)]
    #[error("cannot copy")]
    struct Copy(#[source] std::io::Error);

    #[test]
    fn each_cause_is_displayed_once() {
        let json = serde_json::from_str::<bool>("7").map_err(Arc::new).unwrap_err();
        let protobuf = <String as prost::Message>::decode(&b"\x0a\x01\xff"[..]).unwrap_err();
        for (item, expected) in [
            (
                ItemError::Json(json),
                ": cannot decode the JSON: invalid type: integer `7`, expected a boolean at line 1 column 1",
            ),
            (protobuf.into(), ": cannot decode the protobuf: invalid string value: data is not UTF-8 encoded"),
            (ItemError::other(Copy(std::io::Error::other("disk on fire"))), ": cannot copy, disk on fire"),
        ] {
            for (index, what) in [(Some(2), "item 2"), (None, "the item")] {
                let mut error: &(dyn Error + 'static) =
                    &DecodeError::new(DecodeErrorKind::Item(item.clone()), 7, index, 2);
                let mut texts = vec![error.to_string()];
                while let Some(source) = error.source() {
                    texts.push(source.to_string());
                    error = source;
                }
                let expected = format!("cannot read {what}, at byte 7, 2 items delivered{expected}");
                assert_eq!(texts.join(", "), expected);
            }
        }
    }
}
