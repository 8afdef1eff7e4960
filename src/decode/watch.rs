//! The decoder of watches: the public API, and the events that frames become.
//!
//! - A frame is read only once it is whole, in the input or, if it was split, in `scratch`. So only `advance` and its
//!   callees must cope with input that ends after any byte.
//! - A frame is consumed before it is read, so an error of a frame names the offset of the frame.
//! - A watch has no end of its own, so `finish` only proves that the body did not end inside a frame.
//! - The first byte decides the encoding: protobuf frames begin with the high byte of their length, which is below
//!   0x09.
//! - A body that is not a watch is refused at once. The caller knows its first bytes and shows them.
//! - `watch.rs` of each encoding finds the ends of frames and reads a frame. In protobuf, a fast path reads the bytes
//!   that servers write, field by field in order, and a property test compares it with the plain code.
//! - Most events repeat the type meta, so its encoded form is kept in `known` and compared instead of parsed.
//!
//! ```text
//! Start ──┬──> Known     the state machine of an encoding
//!         └──> Magic     maybe a list or an object in protobuf
//! ```

use std::borrow::Cow;
use std::{fmt, mem};

use super::event::WatchEventRef;
use crate::encoding::body_state::BodyState;
use crate::encoding::codec::WatchBody as _;
use crate::encoding::frame::{FoundFrame, Frame, FrameType, malformed};
use crate::encoding::item_ref::ItemRef;
use crate::encoding::{AnyWatch, map_codec, with_codec};
use crate::error::{DecodeError, DecodeErrorKind, Fault, Limit};
use crate::limits::Limits;
use crate::meta::{EventType, MAGIC, Status, TypeMeta};
use crate::wire::{Beginning, BodyFormat, Encoding};

/// Decodes the body of a watch while it arrives, in protobuf or, after `accept_json`, in JSON.
///
/// [`decode`](Self::decode) consumes chunks of any size and returns a [`WatchEventRef`] for each frame. After the last
/// byte, [`finish`](Self::finish) checks that the body ended between two frames. The first bytes decide the encoding,
/// because servers send wrong content types.
///
/// A frame that is whole in a chunk is borrowed from the chunk. A frame that is split over chunks is assembled in one
/// reusable buffer, which grows with the received bytes to the size of the largest frame, or in JSON, which declares no
/// lengths, to at most twice that size. The buffer is freed when frames are small again. A frame over
/// [`Limits::item_size`] is refused as soon as its length is declared. Beyond that buffer and the Status of an error
/// event, the decoder allocates at most 8 KiB, for the ends of values in a JSON frame. They spare the event and
/// [projections](crate::ItemRef::project) of its object a second scan.
///
/// The decoder reads the type meta and the resource version of each object, and an added or modified object without a
/// version is an error. In JSON, the last value of a repeated member counts, as in Go. Other faults in an object
/// surface when it is decoded.
///
/// Sources: `metav1.WatchEvent`, `runtime.RawExtension` and `runtime.Unknown` in `k8s.io/apimachinery`, and its package
/// `pkg/runtime/serializer/protobuf` for the frames.
///
/// ```
/// use listwatch::{WatchDecoder, WatchEventRef};
///
/// # let body: &[u8] = include_bytes!("../../fixtures/watch-initial-events.pb");
/// # let mut added = 0;
/// let mut decoder = WatchDecoder::new();
/// for mut chunk in body.chunks(1000) {
///     while let Some(event) = decoder.decode(&mut chunk)? {
///         match event {
///             WatchEventRef::Added { object, resource_version, .. } | WatchEventRef::Modified { object, resource_version, .. } => {
///                 println!("{} at {resource_version}", object.meta()?.name());
/// #               added += 1;
///             }
///             WatchEventRef::Deleted { object, .. } => println!("{} was deleted", object.meta()?.name()),
///             WatchEventRef::Bookmark { resource_version, .. } => println!("up to date at {resource_version}"),
///             WatchEventRef::Error(status) => println!("the server ended the watch: {status}"),
///             _ => {}
///         }
///     }
/// }
/// decoder.finish()?;
/// # assert_eq!(added, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WatchDecoder {
    /// `items` counts the events; `field_start` is the offset of the current frame.
    watch: BodyState,
    body: WatchBodyDecoder,
    /// The encoded form of `type_meta`, to detect an unchanged type meta; empty in an encoding that has no such form.
    known: Vec<u8>,
    /// The Status of the last error event.
    status: Status,
    /// The last version that contained escapes.
    version: String,
    end: Option<Result<(), DecodeError>>,
}

enum WatchBodyDecoder {
    Start,
    /// In bytes that may begin a protobuf list or object.
    Magic {
        matched: usize,
    },
    Known(AnyWatch),
}

impl WatchDecoder {
    /// Creates a decoder with the default [`Limits`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// Creates a decoder with these limits.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self {
            watch: BodyState { limits, ..BodyState::default() },
            body: WatchBodyDecoder::Start,
            known: Vec::new(),
            status: Status::default(),
            version: String::new(),
            end: None,
        }
    }

    /// Accepts watches in JSON in addition to protobuf. API servers send custom resources only in JSON.
    ///
    /// Without this call, a body in JSON is [`DecodeErrorKind::UnexpectedEncoding`], whatever cargo features are
    /// enabled.
    #[must_use]
    pub fn accept_json(mut self) -> Self {
        self.watch.accepts_json = true;
        self
    }

    /// Consumes bytes from the front of `input` to the end of the next frame, and returns its event.
    ///
    /// `None` means that all of `input` is consumed and the decoder needs more.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the body is not a watch, or a frame is malformed or exceeds a limit. Every later call
    /// returns the same error. An error that the server sends as an event is [`WatchEventRef::Error`], but a body that
    /// consists of a Status, a list or an object is [`DecodeErrorKind::UnexpectedEncoding`].
    pub fn decode<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Result<Option<WatchEventRef<'s>>, DecodeError> {
        let Some(found) = self.advance(input)? else { return Ok(None) };
        let Self { watch, body, known, status, version, end } = self;
        // Only a known body has frames.
        let WatchBodyDecoder::Known(body) = body else { return Ok(None) };
        let BodyState { limits, field_start, scratch, items, type_meta, .. } = watch;
        let bytes = match found {
            FoundFrame::Whole(frame) => frame,
            FoundFrame::Split => scratch,
        };
        let mut frame = Frame::default();
        let is_read = body.read(bytes, &mut frame);
        let context = EventContext { encoding: body.encoding(), known, type_meta, index: *items, offset: *field_start };
        match is_read.map_err(malformed).and_then(|()| context.event(&mut frame, limits, status, version)) {
            Ok(event) => {
                *items += 1;
                Ok(Some(event))
            }
            Err(kind) => {
                let error = DecodeError::new(kind, *field_start, Some(*items), *items).of_watch();
                *end = Some(Err(error.clone()));
                Err(error)
            }
        }
    }

    /// Ends the body, and checks that it ended between two frames. It may be called again.
    ///
    /// An empty body is a watch without events. A JSON frame ends with its object, which a newline may follow.
    ///
    /// # Errors
    ///
    /// [`DecodeErrorKind::TruncatedFrame`] when the body ended inside a frame or after its length, or the error that
    /// [`decode`](Self::decode) returned.
    pub fn finish(&mut self) -> Result<(), DecodeError> {
        let is_between = self.is_between_frames();
        let end = self.end.get_or_insert_with(|| {
            let BodyState { position, items, .. } = self.watch;
            let truncated =
                || DecodeError::new(DecodeErrorKind::TruncatedFrame, position, Some(items), items).of_watch();
            if is_between { Ok(()) } else { Err(truncated()) }
        });
        end.clone()
    }

    /// Returns how many bytes of the body were consumed so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.watch.position
    }

    /// Returns how many bytes of an unfinished frame were received; 0 between two frames.
    pub(crate) fn frame_bytes(&self) -> u64 {
        if self.is_between_frames() { 0 } else { self.watch.position - self.watch.field_start }
    }

    fn is_between_frames(&self) -> bool {
        match &self.body {
            WatchBodyDecoder::Start => true,
            WatchBodyDecoder::Magic { .. } => false,
            WatchBodyDecoder::Known(body) => body.is_between_frames(),
        }
    }

    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundFrame<'i>>, DecodeError> {
        if let Some(Err(error)) = &self.end {
            return Err(error.clone());
        }
        let found = match (input.is_empty(), &self.end) {
            (true, _) => return Ok(None),
            (false, Some(_)) => Err(DecodeErrorKind::Finished),
            (false, None) => self.step(input),
        };
        found.map_err(|kind| self.fail(kind))
    }

    fn fail(&mut self, kind: DecodeErrorKind) -> DecodeError {
        let BodyState { field_start, position, items, .. } = self.watch;
        let (offset, index) = match &kind {
            DecodeErrorKind::Finished => (position, None),
            DecodeErrorKind::UnexpectedEncoding(_) => (field_start, None),
            _ => (field_start, Some(items)),
        };
        let error = DecodeError::new(kind, offset, index, items).of_watch();
        self.watch.scratch = Vec::new();
        self.end = Some(Err(error.clone()));
        error
    }

    fn step<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundFrame<'i>>, DecodeErrorKind> {
        while let Some(&byte) = input.first() {
            match &mut self.body {
                WatchBodyDecoder::Known(body) => {
                    if let Some(found) = body.step(&mut self.watch, input)? {
                        return Ok(Some(found));
                    }
                }
                WatchBodyDecoder::Start => self.start(byte, input)?,
                WatchBodyDecoder::Magic { matched } => {
                    if MAGIC.get(*matched) != Some(&byte) {
                        return Err(DecodeErrorKind::UnexpectedEncoding(BodyFormat::by_first_byte(MAGIC[0])));
                    }
                    self.watch.take(1, input);
                    *matched += 1;
                    if *matched == MAGIC.len() {
                        return Err(DecodeErrorKind::UnexpectedEncoding(BodyFormat::Document));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Decides the encoding by the first byte, or by the first byte after the spaces before JSON.
    fn start(&mut self, byte: u8, input: &mut &[u8]) -> Result<(), DecodeErrorKind> {
        let is_first = self.watch.position == 0;
        self.watch.field_start = self.watch.position;
        match Beginning::of_watch(byte, is_first) {
            Beginning::Space if self.watch.accepts(Encoding::Json) => _ = self.watch.take(1, input),
            Beginning::Encoded(encoding) if self.watch.accepts(encoding) => {
                self.body = WatchBodyDecoder::Known(map_codec!(encoding, C => C::watch()));
            }
            Beginning::Other(_) if is_first && byte == MAGIC[0] => self.body = WatchBodyDecoder::Magic { matched: 0 },
            _ => return Err(DecodeErrorKind::UnexpectedEncoding(BodyFormat::by_first_byte(byte))),
        }
        Ok(())
    }
}

struct EventContext<'s> {
    encoding: Encoding,
    /// The type meta of the last event, still encoded.
    known: &'s mut Vec<u8>,
    type_meta: &'s mut TypeMeta,
    index: u64,
    offset: u64,
}

impl<'f> EventContext<'f> {
    /// Checks the fields, and borrows the event.
    #[inline]
    fn event(
        self,
        frame: &mut Frame<'f>,
        limits: &Limits,
        status: &'f mut Status,
        version: &'f mut String,
    ) -> Result<WatchEventRef<'f>, DecodeErrorKind> {
        let missing = |field| malformed((field, Fault::Missing));
        check_sizes(frame, limits)?;
        let Self { encoding, known, type_meta, index, offset } = self;
        let event = frame.event.ok_or_else(|| missing("type"))?;
        // Some servers send bookmarks without an object.
        let bytes = match frame.object {
            None if event == FrameType::Bookmark => &[],
            object => object.ok_or_else(|| missing("object"))?,
        };
        // A type meta that was merged from pieces is never the known one.
        let is_plain = frame.api_version.is_empty() && frame.kind.is_empty() && !frame.type_meta.is_empty();
        let is_known = is_plain && frame.type_meta == &**known;
        if !is_known || event == FrameType::Error {
            with_codec!(encoding, C => C::merge_type_meta(frame)).map_err(malformed)?;
        }
        if event == FrameType::Error {
            *status = status_of(frame, bytes, encoding, limits)?;
            return Ok(WatchEventRef::Error(status));
        }
        let resource_version = match mem::take(&mut frame.resource_version) {
            Cow::Borrowed(version) => version,
            Cow::Owned(escaped) => {
                *version = escaped;
                version
            }
        };
        if resource_version.is_empty() && matches!(event, FrameType::Change(EventType::Added | EventType::Modified)) {
            return Err(missing("metadata.resourceVersion"));
        }
        if !is_known {
            set(&mut type_meta.api_version, &frame.api_version);
            set(&mut type_meta.kind, &frame.kind);
            known.clear();
            if is_plain {
                known.extend_from_slice(frame.type_meta);
            }
        }
        let object =
            ItemRef { bytes, encoding, type_meta, index, offset, decoded_size: limits.decoded_size, ends: frame.ends };
        Ok(match event {
            FrameType::Change(EventType::Added) => WatchEventRef::Added { object, resource_version },
            FrameType::Change(EventType::Modified) => WatchEventRef::Modified { object, resource_version },
            FrameType::Change(EventType::Deleted) => WatchEventRef::Deleted { object, resource_version },
            FrameType::Bookmark => {
                WatchEventRef::Bookmark { resource_version, ends_initial_events: frame.ends_initial_events }
            }
            FrameType::Error | FrameType::Unknown => return Err(malformed(("type", Fault::Unknown))),
        })
    }
}

#[inline]
fn check_sizes(frame: &Frame<'_>, limits: &Limits) -> Result<(), DecodeErrorKind> {
    // The decoder keeps these texts for the duration of the watch.
    let max = limits.metadata_size;
    for len in [frame.type_meta.len(), frame.api_version.len(), frame.kind.len(), frame.resource_version.len()] {
        let size = len as u64;
        if size > max {
            return Err(DecodeErrorKind::Limit { limit: Limit::MetadataSize, size, max });
        }
    }
    Ok(())
}

fn status_of(frame: &Frame<'_>, bytes: &[u8], encoding: Encoding, limits: &Limits) -> Result<Status, DecodeErrorKind> {
    let is_status = frame.kind == "Status" || frame.kind.is_empty();
    let (size, max) = (bytes.len() as u64, limits.metadata_size);
    if is_status && size > max {
        return Err(DecodeErrorKind::Limit { limit: Limit::MetadataSize, size, max });
    }
    let read = with_codec!(encoding, C => C::status(bytes));
    read.filter(|_| is_status).ok_or_else(|| malformed(("object", Fault::Status)))
}

/// Sets a text, which is usually the same as for the last event.
fn set(place: &mut String, text: &str) {
    if place != text {
        text.clone_into(place);
    }
}

impl Default for WatchDecoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows the position but no bytes of objects, because these may be Secrets.
impl fmt::Debug for WatchDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchDecoder")
            .field("position", &self.position())
            .field("events", &self.watch.items)
            .finish_non_exhaustive()
    }
}
