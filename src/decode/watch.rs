//! The decoder of watches: their frames, and the public API.
//!
//! Read this before a change.
//!
//! - A frame is read only when it is whole: in the input or, if it is split, in `scratch`.
//!   So only `advance` and its callees must be correct when the input ends after any byte.
//! - A frame is consumed before it is read. An error of a frame therefore names the offset of the frame.
//! - A watch has no end of its own. `finish` only proves that the body did not end inside a frame.
//! - The first byte decides the encoding: protobuf frames begin with the high byte of their length, under 0x09.
//! - A body that is no watch goes to a decoder of lists, which has the best error for it.
//!   The first JSON document goes to both until its first name is known (`Opening`).
//! - `watch_frame` and `watch_json` read one frame. A fast path reads the bytes that servers write, field by field in
//!   order. A property test compares it with the plain code.
//! - The type meta is the same in most events. Its encoded form is kept in `known` and compared instead of parsed.
//! - In JSON one scan finds the end of a frame and the ends of the values in it (`ends`).
//!   Readers and projections of this frame use them instead of a scan of their own.
//! - `scratch` is freed when frames become small again. One huge object must not cost memory for hours.
//!
//! ```text
//! Start ──┬──> Length <──> Frame       protobuf: each frame begins with its length
//!         ├──> Opening ──┬──> Object   JSON: each frame is an object
//!         └──────────────┴──> Other    not a watch: the decoder of lists names the body
//! ```

use std::fmt;
use std::mem;

use super::event::{Event, WatchEventRef};
use super::list::ListDecoder;
use super::watch_frame::{EventContext, Frame, malformed};
use super::watch_json;
use crate::encoding::body_state::BodyState;
use crate::encoding::json::scan::{Ends, Scan};
use crate::error::{DecodeError, DecodeErrorKind, Fault, Limit};
use crate::limits::Limits;
use crate::meta::{Status, TypeMeta};
use crate::wire::BodyFormat;
use crate::wire::Encoding;

/// A buffer of split frames that is larger than this is freed when most of it is unused.
const KEPT_SCRATCH: usize = 64 << 10;

/// Decodes the body of a watch while it arrives: frames of protobuf, and objects of JSON if `accept_json` allows
/// it. The first bytes of a body decide its encoding, not the content type, which servers get wrong.
///
/// [`decode`](Self::decode) consumes bytes in chunks of any size and returns a [`WatchEventRef`] for each frame. After
/// the last byte [`finish`](Self::finish) checks that the body ended between two frames.
///
/// A frame that is whole in a chunk is borrowed from the chunk. A frame that is split over chunks is assembled in one
/// reusable buffer. The buffer grows with the bytes received to the size of the longest frame; in JSON, which declares
/// no lengths, to at most twice that size. It is freed when frames are small again. A frame over [`Limits::item_size`]
/// is refused when its length is declared.
///
/// Apart from events with a Status, the decoder allocates only up to 8 KiB, for the ends of values in a frame of JSON.
/// Reading the frame and [projecting](crate::ItemRef::project) its object then need not scan the values again.
///
/// The decoder reads the type meta and the resource version of each object. An added or modified object without a
/// resource version is an error. In JSON the decoder reads the members of the event, of the object and of its metadata;
/// the last value of a repeated member counts, as in Go. The code that decodes the object detects other faults in it.
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
    state: WatchBodyState,
    /// The encoded form of `type_meta`, in protobuf, to detect an unchanged type meta.
    known: Vec<u8>,
    /// The Status of the last error event.
    status: Status,
    /// The last version that had escapes in JSON.
    version: String,
    /// The ends of values in the current frame, in JSON.
    ends: Ends,
    end: Option<Result<(), DecodeError>>,
}

enum WatchBodyState {
    Start,
    /// In the length of a frame, after its first `bytes` bytes.
    Length {
        so_far: u32,
        bytes: u8,
    },
    /// In a frame.
    Frame {
        left: u64,
    },
    /// In the first JSON document, which may be an event or a whole body. `scratch` holds the bytes so far, without the
    /// spaces before the first name.
    Opening(Box<ListDecoder>),
    /// Before the object of a frame.
    Between,
    /// In the object of a frame.
    Object(Scan),
    Other(Box<ListDecoder>),
}

/// A complete frame.
enum FoundFrame<'i> {
    Whole(&'i [u8]),
    /// A frame in `scratch`.
    Split,
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
            state: WatchBodyState::Start,
            known: Vec::new(),
            status: Status::default(),
            version: String::new(),
            ends: Ends::default(),
            end: None,
        }
    }

    /// Accepts watches in JSON in addition to protobuf, as API servers send them for custom resources.
    ///
    /// Otherwise a body in JSON is [`DecodeErrorKind::UnexpectedEncoding`], whatever cargo features are enabled.
    #[must_use]
    pub fn accept_json(mut self) -> Self {
        self.watch.accepts_json = true;
        self
    }

    /// Consumes bytes from the front of `input` up to the end of the next frame. `None`: all of `input` is consumed,
    /// and more is needed.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the body is not a watch, or a frame is malformed or over a limit. From then on every call
    /// returns the same error. The server's own error is [`WatchEventRef::Error`]; it is [`DecodeErrorKind::Api`] only
    /// where it is the whole body.
    pub fn decode<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Result<Option<WatchEventRef<'s>>, DecodeError> {
        let Some(found) = self.advance(input)? else { return Ok(None) };
        let Self { watch, state, known, status, version, ends, end } = self;
        let BodyState { limits, field_start, scratch, type_meta, items, .. } = watch;
        let frame = match found {
            FoundFrame::Whole(frame) => frame,
            FoundFrame::Split => scratch,
        };
        let mut read = Frame::default();
        let (encoding, is_read) = match state {
            WatchBodyState::Between => {
                (Encoding::Json, watch_json::read(frame, ends.found()).map(|event| read = event))
            }
            _ => (Encoding::Protobuf, read.merge(frame)),
        };
        let context = EventContext { encoding, known, type_meta, index: *items, offset: *field_start };
        match is_read.map_err(malformed).and_then(|()| read.event(context, limits, status, version)) {
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
    /// A body without any bytes is a watch without any events. In JSON a frame ends with its object; a newline may
    /// follow.
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

    /// Returns the number of bytes of the body consumed so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.watch.position
    }

    /// Returns the number of bytes so far of a frame that has not ended; 0 between two frames.
    pub(crate) fn frame_bytes(&self) -> u64 {
        if self.is_between_frames() { 0 } else { self.watch.position - self.watch.field_start }
    }

    fn is_between_frames(&self) -> bool {
        match &self.state {
            WatchBodyState::Start | WatchBodyState::Between => true,
            WatchBodyState::Length { bytes, .. } => *bytes == 0,
            WatchBodyState::Frame { .. }
            | WatchBodyState::Other(_)
            | WatchBodyState::Opening(_)
            | WatchBodyState::Object(_) => false,
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
        let (offset, index) = match (&kind, &self.state) {
            (DecodeErrorKind::Finished, _) => (position, None),
            (
                _,
                WatchBodyState::Length { .. }
                | WatchBodyState::Frame { .. }
                | WatchBodyState::Between
                | WatchBodyState::Object(_),
            ) => (field_start, Some(items)),
            _ => (field_start, None),
        };
        let error = DecodeError::new(kind, offset, index, items).of_watch();
        self.watch.scratch = Vec::new();
        self.end = Some(Err(error.clone()));
        error
    }

    /// Consumes bytes to the end of a frame, or of the input.
    fn step<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundFrame<'i>>, DecodeErrorKind> {
        while let Some(&byte) = input.first() {
            let found = match &mut self.state {
                &mut WatchBodyState::Length { so_far, bytes } => self.length(so_far, bytes, input)?,
                &mut WatchBodyState::Frame { left } => self.frame(left, input),
                WatchBodyState::Between => {
                    self.between(input)?;
                    None
                }
                WatchBodyState::Object(_) => self.object(input)?,
                WatchBodyState::Start if self.watch.accepts_json && matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => {
                    self.watch.take(1, input);
                    None
                }
                WatchBodyState::Start => {
                    self.start(byte);
                    None
                }
                WatchBodyState::Opening(_) => {
                    self.open(input)?;
                    None
                }
                WatchBodyState::Other(list) => {
                    let before = input.len();
                    let result = other(list, input);
                    self.watch.position += (before - input.len()) as u64;
                    result?;
                    None
                }
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Decides the encoding by the first byte; before JSON, by the first byte after spaces.
    fn start(&mut self, byte: u8) {
        self.watch.field_start = self.watch.position;
        // `of_watch` removes the limits on items and bytes.
        let list = || Box::new(ListDecoder::of_watch(&self.watch));
        match byte {
            // Only a frame under 150 MB begins with such a byte. Spaces were skipped for JSON only.
            0x00..=0x08 if self.watch.position == 0 => self.state = WatchBodyState::Length { so_far: 0, bytes: 0 },
            b'{' if self.watch.accepts_json => self.state = WatchBodyState::Opening(list()),
            _ => self.state = WatchBodyState::Other(list()),
        }
    }

    /// Reads the length of a frame. `so_far` is the value of its first `bytes` bytes.
    fn length<'i>(
        &mut self,
        mut so_far: u32,
        mut bytes: u8,
        input: &mut &'i [u8],
    ) -> Result<Option<FoundFrame<'i>>, DecodeErrorKind> {
        if bytes == 0 {
            self.begin_frame();
        }
        match input.first_chunk() {
            Some(length) if bytes == 0 => {
                self.watch.take(4, input);
                so_far = u32::from_be_bytes(*length);
            }
            _ => {
                let taken = self.watch.take(4 - u64::from(bytes), input);
                so_far = taken.iter().fold(so_far, |so_far, byte| so_far << 8 | u32::from(*byte));
                bytes += u8::try_from(taken.len()).unwrap_or(4);
                if bytes < 4 {
                    self.state = WatchBodyState::Length { so_far, bytes };
                    return Ok(None);
                }
            }
        }
        let (len, max) = (u64::from(so_far), self.watch.limits.item_size);
        if len == 0 {
            return Err(malformed(("the frame", Fault::Empty)));
        }
        if len > max {
            return Err(DecodeErrorKind::Limit { limit: Limit::ItemSize, size: len, max });
        }
        Ok(self.frame(len, input))
    }

    fn frame<'i>(&mut self, left: u64, input: &mut &'i [u8]) -> Option<FoundFrame<'i>> {
        let piece = self.watch.take(left, input);
        let left = left - piece.len() as u64;
        if left > 0 {
            self.watch.keep(piece, left);
            self.state = WatchBodyState::Frame { left };
            return None;
        }
        self.state = WatchBodyState::Length { so_far: 0, bytes: 0 };
        Some(self.found(piece))
    }

    fn begin_frame(&mut self) {
        self.watch.field_start = self.watch.position;
        let scratch = &mut self.watch.scratch;
        if scratch.capacity() > KEPT_SCRATCH && scratch.len() < scratch.capacity() / 4 {
            *scratch = Vec::new();
        }
        scratch.clear();
    }

    /// Returns the frame that ends with this piece.
    fn found<'i>(&mut self, piece: &'i [u8]) -> FoundFrame<'i> {
        if self.watch.scratch.is_empty() {
            return FoundFrame::Whole(piece);
        }
        self.watch.keep(piece, 0);
        FoundFrame::Split
    }

    /// Decides whether the first document is an event.
    fn open(&mut self, input: &mut &[u8]) -> Result<(), DecodeErrorKind> {
        let WatchBodyState::Opening(list) = &mut self.state else { return Ok(()) };
        let mut decided = if list.position() == 0 { watch_json::is_event(input) } else { None };
        while decided.is_none() && !input.is_empty() {
            let mut byte = self.watch.take(1, input);
            if self.watch.scratch != b"{" || !is_space(byte) {
                self.watch.scratch.extend_from_slice(byte);
            }
            other(list, &mut byte)?;
            decided = watch_json::is_event(&self.watch.scratch);
        }
        match decided {
            None => {}
            Some(true) => {
                let mut scan = Scan::new(b'{', 0);
                // The event does not end within these bytes.
                scan.end_with(&self.watch.scratch, &mut self.ends).map_err(|fault| malformed(("the frame", fault)))?;
                self.state = WatchBodyState::Object(scan);
            }
            Some(false) => {
                if let WatchBodyState::Opening(list) = mem::replace(&mut self.state, WatchBodyState::Start) {
                    self.state = WatchBodyState::Other(list);
                }
            }
        }
        Ok(())
    }

    fn between(&mut self, input: &mut &[u8]) -> Result<(), DecodeErrorKind> {
        let spaces = input.chunks(1).take_while(|byte| is_space(byte)).count();
        self.watch.take(spaces as u64, input);
        match input.first() {
            None => Ok(()),
            Some(b'{') => {
                self.begin_frame();
                self.ends.clear();
                self.state = WatchBodyState::Object(Scan::new(b'{', 0));
                Ok(())
            }
            Some(_) => {
                self.begin_frame();
                Err(malformed(("the frame", Fault::Syntax)))
            }
        }
    }

    fn object<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundFrame<'i>>, DecodeErrorKind> {
        let WatchBodyState::Object(scan) = &mut self.state else { return Ok(None) };
        let max = self.watch.limits.item_size;
        let left = max.saturating_sub(self.watch.position - self.watch.field_start);
        let window = usize::try_from(left).ok().and_then(|left| input.get(..=left)).unwrap_or(input);
        let end = scan.end_with(window, &mut self.ends).map_err(|fault| malformed(("the frame", fault)))?;
        let piece = self.watch.take(end.unwrap_or(window.len()) as u64, input);
        if self.watch.position - self.watch.field_start > max {
            return Err(DecodeErrorKind::Limit { limit: Limit::ItemSize, size: max + 1, max });
        }
        if end.is_none() {
            self.watch.keep(piece, left - piece.len() as u64);
            return Ok(None);
        }
        self.state = WatchBodyState::Between;
        Ok(Some(self.found(piece)))
    }
}

impl Default for WatchDecoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows the position, but no bytes of objects, which may be Secrets.
impl fmt::Debug for WatchDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchDecoder")
            .field("position", &self.position())
            .field("events", &self.watch.items)
            .finish_non_exhaustive()
    }
}

/// Decodes a body that is not a watch as a list, to return an error with its kind.
fn other(list: &mut ListDecoder, input: &mut &[u8]) -> Result<(), DecodeErrorKind> {
    let type_meta = loop {
        match list.decode(input) {
            Ok(None) => return Ok(()),
            Ok(Some(Event::ListMeta(_) | Event::Skipped(_))) => {}
            Ok(Some(Event::TypeMeta(type_meta))) => break type_meta,
            Ok(Some(Event::Item(item))) => break item.type_meta(),
            Err(error) => {
                return Err(match error.kind().clone() {
                    // The first member is neither `type` nor `object`, but `object` follows.
                    DecodeErrorKind::UnexpectedEncoding(BodyFormat::WatchStream) => {
                        malformed(("the frame", Fault::Syntax))
                    }
                    kind => kind,
                });
            }
        }
    };
    let TypeMeta { api_version, kind } = type_meta.clone();
    let kind = if kind.is_empty() { "List".to_owned() } else { kind };
    Err(DecodeErrorKind::UnexpectedKind { api_version, kind })
}

fn is_space(byte: &[u8]) -> bool {
    matches!(byte, b" " | b"\t" | b"\n" | b"\r")
}
