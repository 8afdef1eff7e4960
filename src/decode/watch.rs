//! The decoder of watches: their frames, and the public API.
//!
//! Advice for those who change it. A frame is taken whole, from the input or, when it is split, from `scratch`, before
//! anything in it is looked at: only `advance` and what it calls must be correct when the input ends after any byte.
//!
//! ```text
//! Start ──┬──> Length <──> Frame       protobuf: each frame is led by its length
//!         ├──> Opening ──┬──> Object   JSON: each frame is an object
//!         └──────────────┴──> Other    no watch: the decoder of lists finds out what it is
//! ```

use std::borrow::Cow;
use std::fmt;
use std::mem;

use super::list::{Event, ListDecoder, Progress};
use super::list_protobuf::MAGIC;
#[cfg(feature = "json")]
use super::watch_json;
use crate::error::{DecodeError, DecodeErrorKind, Fault, Limit};
use crate::limits::Limits;
use crate::meta::{Status, TypeMeta};
use crate::object::ItemRef;
use crate::object::meta_view::entry;
use crate::wire::BodyFormat;
use crate::wire::Encoding;
use crate::wire::protobuf::{Field, Fields, Value};
#[cfg(feature = "json")]
use crate::wire::scan::Scan;

/// The buffer of split frames is given back when it is larger than this and was not needed.
const KEPT_SCRATCH: usize = 64 << 10;

/// The annotation of the bookmark that ends the initial events (KEP-3157).
pub(super) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Decodes the body of a watch while it arrives: frames of protobuf, and objects of JSON where
/// `accept_json` (feature `json`) allows it. The first bytes decide which of the two a body is, not the content type, which
/// servers get wrong.
///
/// Bytes go in by [`decode`](Self::decode), cut anywhere; a [`WatchEvent`] comes out for each frame. When the body has
/// ended, [`finish`](Self::finish) says whether that was between two frames.
///
/// A frame that lies whole in a chunk is lent from there; one that is split is put together in a buffer that is used
/// again, grows by bytes received to the longest frame (at worst to twice of it in JSON, which does not say lengths), and
/// shrinks when frames are small again. Events allocate nothing else, but for those that carry a Status. A frame over
/// [`Limits::item_size`] is refused when its length is declared.
///
/// Of an object it reads the type meta and the resourceVersion, without which an event is an error. In JSON it reads the
/// members of the event, of the object and of its metadata, of which the last of a name counts, as for Go; whether the
/// object is right otherwise is found by what decodes it.
///
/// Sources: `metav1.WatchEvent`, `runtime.RawExtension` and `runtime.Unknown` in `k8s.io/apimachinery`, and its package
/// `pkg/runtime/serializer/protobuf` for the frames.
///
/// ```
/// use listwatch::{WatchDecoder, WatchEvent};
///
/// # let body: &[u8] = include_bytes!("../../fixtures/watch-initial-events.pb");
/// # let mut added = 0;
/// let mut decoder = WatchDecoder::new();
/// for mut chunk in body.chunks(1000) {
///     while let Some(event) = decoder.decode(&mut chunk)? {
///         match event {
///             WatchEvent::Added { object, resource_version, .. } | WatchEvent::Modified { object, resource_version, .. } => {
///                 println!("{} at {resource_version}", object.meta()?.name());
/// #               added += 1;
///             }
///             WatchEvent::Deleted { object, .. } => println!("{} is gone", object.meta()?.name()),
///             WatchEvent::Bookmark { resource_version, .. } => println!("up to date at {resource_version}"),
///             WatchEvent::Error(status) => println!("the server ends the watch: {status}"),
///             _ => {}
///         }
///     }
/// }
/// decoder.finish()?;
/// # assert_eq!(added, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WatchDecoder {
    /// Its items are the events; its `field_start` is where the current frame begins.
    watch: Progress,
    state: State,
    /// What `type_meta` is of, still encoded, in protobuf: it is the same for nearly all events.
    known: Vec<u8>,
    /// What the last error event held.
    status: Status,
    /// The last version that had escapes in its JSON.
    version: String,
    end: Option<Result<(), DecodeError>>,
}

/// What happened in a collection, or to the watch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum WatchEvent<'a> {
    /// An object was created, or existed already when the watch began (an initial event).
    #[non_exhaustive]
    Added {
        /// The object, under its own type meta.
        object: ItemRef<'a>,
        /// The version of the object, never empty.
        resource_version: &'a str,
    },
    /// An object was changed.
    #[non_exhaustive]
    Modified {
        /// The object, under its own type meta.
        object: ItemRef<'a>,
        /// The version of the object, never empty.
        resource_version: &'a str,
    },
    /// An object was deleted, or no longer matches the watch's selectors.
    #[non_exhaustive]
    Deleted {
        /// The object as it was before, under its own type meta.
        object: ItemRef<'a>,
        /// The version of the object, never empty. It may be older than the deletion.
        resource_version: &'a str,
    },
    /// Nothing happened, up to this version.
    #[non_exhaustive]
    Bookmark {
        /// The version from which a watch can resume.
        resource_version: &'a str,
        /// Whether all initial events came before it: the annotation `k8s.io/initial-events-end`. A server also sets it on
        /// the first bookmark of a watch from version 0.
        ends_initial_events: bool,
    },
    /// The server's error, after which the server ends the watch.
    Error(&'a Status),
}

enum State {
    Start,
    /// In the length of a frame, of which so many bytes came.
    Length {
        so_far: u32,
        bytes: u8,
    },
    /// In a frame.
    Frame {
        left: u64,
    },
    /// In the first JSON document, which may be an event or a whole body. So far it is in `scratch`, without the spaces before
    /// the first name.
    #[cfg(feature = "json")]
    Opening(Box<ListDecoder>),
    /// Before the object of a frame.
    #[cfg(feature = "json")]
    Between,
    /// In the object of a frame.
    #[cfg(feature = "json")]
    Object(Scan),
    Other(Box<ListDecoder>),
}

/// A frame that is not lent yet.
enum Found<'i> {
    Whole(&'i [u8]),
    /// It is in `scratch`.
    Split,
}

/// What a frame says.
#[derive(Default)]
pub(super) struct Frame<'f> {
    pub(super) event: Option<EventType>,
    pub(super) object: Option<&'f [u8]>,
    /// What of the type meta is not read yet, in protobuf.
    pub(super) type_meta: &'f [u8],
    pub(super) api_version: Cow<'f, str>,
    pub(super) kind: Cow<'f, str>,
    pub(super) resource_version: Cow<'f, str>,
    pub(super) ends_initial_events: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
    Unknown,
}

/// A field of a frame, and what is wrong with it.
pub(super) type Unread = (&'static str, Fault);

impl WatchDecoder {
    /// A decoder with the default [`Limits`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// A decoder with limits of the caller's choice.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self {
            watch: Progress { limits, ..Progress::default() },
            state: State::Start,
            known: Vec::new(),
            status: Status::default(),
            version: String::new(),
            end: None,
        }
    }

    /// Accepts watches in JSON in addition to protobuf, as API servers send them for custom resources.
    ///
    /// Otherwise a body in JSON is [`DecodeErrorKind::UnexpectedEncoding`], whatever cargo features are on.
    #[cfg(feature = "json")]
    #[must_use]
    pub fn accept_json(mut self) -> Self {
        self.watch.accepts_json = true;
        self
    }

    /// Takes bytes off the front of `input` up to the end of the next frame. `None`: all of `input` is taken, more is
    /// needed.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the body is no watch, or a frame is malformed or over a limit. From then on every call returns
    /// the same error. What the server itself has to say comes as [`WatchEvent::Error`]; only where it is the body in place
    /// of a watch is it [`DecodeErrorKind::Api`].
    pub fn decode<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Result<Option<WatchEvent<'s>>, DecodeError> {
        let Some(found) = self.advance(input)? else { return Ok(None) };
        let Self { watch, state, known, status, version, end } = self;
        let Progress { limits, field_start, scratch, type_meta, items, .. } = watch;
        let frame = match found {
            Found::Whole(frame) => frame,
            Found::Split => scratch,
        };
        let mut read = Frame::default();
        let (encoding, is_read) = match state {
            #[cfg(feature = "json")]
            State::Between => (Encoding::Json, watch_json::read(frame).map(|event| read = event)),
            _ => (Encoding::Protobuf, read.merge(frame)),
        };
        let place = Place { encoding, known, type_meta, index: *items, offset: *field_start };
        match is_read.map_err(malformed).and_then(|()| read.lend(place, limits, status, version)) {
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

    /// The body has ended: says whether between two frames. May be called again.
    ///
    /// A body without any bytes is a watch without any events. In JSON a frame ends with its object; a newline may follow.
    ///
    /// # Errors
    ///
    /// [`DecodeErrorKind::TruncatedFrame`] when the body ended inside a frame or behind its length, or the error that
    /// [`decode`](Self::decode) returned before.
    pub fn finish(&mut self) -> Result<(), DecodeError> {
        let end = self.end.get_or_insert_with(|| {
            let is_between = match &self.state {
                State::Start => true,
                State::Length { bytes, .. } => *bytes == 0,
                State::Frame { .. } | State::Other(_) => false,
                #[cfg(feature = "json")]
                State::Opening(_) | State::Object(_) => false,
                #[cfg(feature = "json")]
                State::Between => true,
            };
            let Progress { position, items, .. } = self.watch;
            let cut = || DecodeError::new(DecodeErrorKind::TruncatedFrame, position, Some(items), items).of_watch();
            if is_between { Ok(()) } else { Err(cut()) }
        });
        end.clone()
    }

    /// Bytes of the body taken so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.watch.position
    }

    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeError> {
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
        let Progress { field_start, position, items, .. } = self.watch;
        let (offset, index) = match (&kind, &self.state) {
            (DecodeErrorKind::Finished, _) => (position, None),
            (_, State::Length { .. } | State::Frame { .. }) => (field_start, Some(items)),
            #[cfg(feature = "json")]
            (_, State::Between | State::Object(_)) => (field_start, Some(items)),
            _ => (field_start, None),
        };
        let error = DecodeError::new(kind, offset, index, items).of_watch();
        self.watch.scratch = Vec::new();
        self.end = Some(Err(error.clone()));
        error
    }

    /// Goes on to the end of a frame, or of the input.
    fn step<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeErrorKind> {
        while let Some(&byte) = input.first() {
            let found = match &mut self.state {
                &mut State::Length { so_far, bytes } => self.length(so_far, bytes, input)?,
                &mut State::Frame { left } => self.frame(left, input),
                #[cfg(feature = "json")]
                State::Between => {
                    self.between(input)?;
                    None
                }
                #[cfg(feature = "json")]
                State::Object(_) => self.object(input)?,
                #[cfg(feature = "json")]
                State::Start if self.watch.accepts_json && matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => {
                    self.watch.take(1, input);
                    None
                }
                State::Start => {
                    self.start(byte);
                    None
                }
                #[cfg(feature = "json")]
                State::Opening(_) => {
                    self.open(input)?;
                    None
                }
                State::Other(list) => {
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

    /// By the first byte, but for spaces before JSON.
    fn start(&mut self, byte: u8) {
        self.watch.field_start = self.watch.position;
        // Whose items and bytes nobody counts.
        let list = || Box::new(ListDecoder::of_watch(&self.watch));
        match byte {
            // No other encoding begins so, nor does a frame of 150 MB or more. Spaces were skipped for JSON only.
            0x00..=0x08 if self.watch.position == 0 => self.state = State::Length { so_far: 0, bytes: 0 },
            #[cfg(feature = "json")]
            b'{' if self.watch.accepts_json => self.state = State::Opening(list()),
            _ => self.state = State::Other(list()),
        }
    }

    /// `so_far` is what so many bytes of the length say.
    fn length<'i>(
        &mut self,
        mut so_far: u32,
        mut bytes: u8,
        input: &mut &'i [u8],
    ) -> Result<Option<Found<'i>>, DecodeErrorKind> {
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
                    self.state = State::Length { so_far, bytes };
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

    fn frame<'i>(&mut self, left: u64, input: &mut &'i [u8]) -> Option<Found<'i>> {
        let piece = self.watch.take(left, input);
        let left = left - piece.len() as u64;
        if left > 0 {
            self.watch.keep(piece, left);
            self.state = State::Frame { left };
            return None;
        }
        self.state = State::Length { so_far: 0, bytes: 0 };
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

    /// The last piece of a frame.
    fn found<'i>(&mut self, piece: &'i [u8]) -> Found<'i> {
        if self.watch.scratch.is_empty() {
            return Found::Whole(piece);
        }
        self.watch.keep(piece, 0);
        Found::Split
    }

    /// Finds out whether the first document is an event.
    #[cfg(feature = "json")]
    fn open(&mut self, input: &mut &[u8]) -> Result<(), DecodeErrorKind> {
        let State::Opening(list) = &mut self.state else { return Ok(()) };
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
                // It does not end in there.
                scan.end(&self.watch.scratch).map_err(|fault| malformed(("the frame", fault)))?;
                self.state = State::Object(scan);
            }
            Some(false) => {
                if let State::Opening(list) = mem::replace(&mut self.state, State::Start) {
                    self.state = State::Other(list);
                }
            }
        }
        Ok(())
    }

    #[cfg(feature = "json")]
    fn between(&mut self, input: &mut &[u8]) -> Result<(), DecodeErrorKind> {
        let spaces = input.chunks(1).take_while(|byte| is_space(byte)).count();
        self.watch.take(spaces as u64, input);
        match input.first() {
            None => Ok(()),
            Some(b'{') => {
                self.begin_frame();
                self.state = State::Object(Scan::new(b'{', 0));
                Ok(())
            }
            Some(_) => {
                self.begin_frame();
                Err(malformed(("the frame", Fault::Syntax)))
            }
        }
    }

    #[cfg(feature = "json")]
    fn object<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeErrorKind> {
        let State::Object(scan) = &mut self.state else { return Ok(None) };
        let max = self.watch.limits.item_size;
        let left = max.saturating_sub(self.watch.position - self.watch.field_start);
        let window = usize::try_from(left).ok().and_then(|left| input.get(..=left)).unwrap_or(input);
        let end = scan.end(window).map_err(|fault| malformed(("the frame", fault)))?;
        let piece = self.watch.take(end.unwrap_or(window.len()) as u64, input);
        if self.watch.position - self.watch.field_start > max {
            return Err(DecodeErrorKind::Limit { limit: Limit::ItemSize, size: max + 1, max });
        }
        if end.is_none() {
            self.watch.keep(piece, left - piece.len() as u64);
            return Ok(None);
        }
        self.state = State::Between;
        Ok(Some(self.found(piece)))
    }
}

impl Default for WatchDecoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Says where it is; what is in a half-received object is nobody's business.
impl fmt::Debug for WatchDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchDecoder")
            .field("position", &self.position())
            .field("events", &self.watch.items)
            .finish_non_exhaustive()
    }
}

fn malformed((field, fault): Unread) -> DecodeErrorKind {
    DecodeErrorKind::Malformed { field, fault }
}

pub(super) fn at(field: &'static str) -> impl Fn(Fault) -> Unread {
    move |fault| (field, fault)
}

/// Goes on with a body that is no watch: the error says what it is.
fn other(list: &mut ListDecoder, input: &mut &[u8]) -> Result<(), DecodeErrorKind> {
    let type_meta = loop {
        match list.decode(input) {
            Ok(None) => return Ok(()),
            Ok(Some(Event::ListMeta(_))) => {}
            Ok(Some(Event::TypeMeta(type_meta))) => break type_meta,
            Ok(Some(Event::Item(item))) => break item.type_meta(),
            Err(error) => {
                return Err(match error.kind().clone() {
                    DecodeErrorKind::NotAList { api_version, kind } => DecodeErrorKind::NotAWatch { api_version, kind },
                    // Its events are not on a line each.
                    DecodeErrorKind::UnexpectedEncoding(BodyFormat::WatchStream) => {
                        malformed(("the frame", Fault::Syntax))
                    }
                    DecodeErrorKind::UnexpectedEncoding(found) => DecodeErrorKind::UnexpectedWatchEncoding(found),
                    kind => kind,
                });
            }
        }
    };
    let TypeMeta { api_version, kind } = type_meta.clone();
    let kind = if kind.is_empty() { "List".to_owned() } else { kind };
    Err(DecodeErrorKind::NotAWatch { api_version, kind })
}

/// Where an event is, and the type meta to set.
struct Place<'s> {
    encoding: Encoding,
    known: &'s mut Vec<u8>,
    type_meta: &'s mut TypeMeta,
    index: u64,
    offset: u64,
}

impl<'f> Frame<'f> {
    /// Reads a protobuf frame into this, which is empty: returned, it would be copied.
    fn merge(&mut self, frame: &'f [u8]) -> Result<(), Unread> {
        if self.as_servers_write(frame).is_none() {
            self.in_any_order(frame)?;
        }
        // The first field of a Status is another kind of metadata.
        if self.event != Some(EventType::Error) {
            let mut fields = Fields::new(self.object.unwrap_or_default());
            // As servers write them: the loop would do the same, later.
            if let Some(metadata) = fields.tagged(0x0a) {
                self.merge_metadata(metadata)?;
            }
            _ = (fields.tagged(0x12), fields.tagged(0x1a));
            for field in fields {
                let Field { number, value, .. } = field.map_err(at("the object"))?;
                if number == 1 {
                    self.merge_metadata(value.bytes().map_err(at("metadata"))?)?;
                }
            }
        }
        Ok(())
    }

    /// What [`Self::in_any_order`] makes of a frame that has each field once, in order, and nothing else: the same, sooner.
    fn as_servers_write(&mut self, frame: &'f [u8]) -> Option<()> {
        let mut frame = Fields::new(frame);
        let event = EventType::of(frame.tagged(0x0a)?);
        let mut envelope = Fields::new(Fields::new(frame.sole(0x12)?).sole(0x0a)?.strip_prefix(&MAGIC)?);
        let (type_meta, object) = (envelope.tagged(0x0a)?, envelope.tagged(0x12)?);
        // contentEncoding and contentType, empty.
        let is_all = envelope.rest == b"\x1a\0\x22\0";
        is_all.then(|| (self.event, self.object, self.type_meta) = (Some(event), Some(object), type_meta))
    }

    fn in_any_order(&mut self, frame: &'f [u8]) -> Result<(), Unread> {
        let mut raw = None;
        for field in Fields::new(frame) {
            let Field { number, value, .. } = field.map_err(at("the frame"))?;
            match number {
                1 => self.event = Some(EventType::of(value.bytes().map_err(at("type"))?)),
                2 => raw = last(value, 1).map_err(at("object"))?.or(raw),
                _ => {}
            }
        }
        let raw = raw.ok_or(("object", Fault::Missing))?;
        let envelope = raw.strip_prefix(&MAGIC).ok_or(("object", Fault::Magic))?;
        let mut object = &b""[..];
        for field in Fields::new(envelope) {
            let Field { number, value, .. } = field.map_err(at("object"))?;
            match number {
                1 => {
                    let encoded = value.bytes().map_err(at("typeMeta"))?;
                    let before = mem::replace(&mut self.type_meta, encoded);
                    self.merge_type_meta(before)?;
                }
                2 => object = value.bytes().map_err(at("raw"))?,
                3 => expect_empty(value).map_err(at("contentEncoding"))?,
                4 => expect_empty(value).map_err(at("contentType"))?,
                _ => {}
            }
        }
        self.object = Some(object);
        Ok(())
    }

    fn merge_type_meta(&mut self, encoded: &'f [u8]) -> Result<(), Unread> {
        for field in Fields::new(encoded) {
            let Field { number, value, .. } = field.map_err(at("typeMeta"))?;
            match number {
                1 => self.api_version = Cow::Borrowed(value.str().map_err(at("apiVersion"))?),
                2 => self.kind = Cow::Borrowed(value.str().map_err(at("kind"))?),
                _ => {}
            }
        }
        Ok(())
    }

    fn merge_metadata(&mut self, metadata: &'f [u8]) -> Result<(), Unread> {
        let mut fields = Fields::new(metadata);
        // As servers write them: name to uid, the version, the generation of what has none, and creationTimestamp.
        for tag in [0x0a, 0x12, 0x1a, 0x22, 0x2a] {
            fields.tagged(tag);
        }
        if let Some(version) = fields.tagged(0x32) {
            self.set_version(Value::Len(version))?;
        }
        fields.rest = fields.rest.strip_prefix(b"\x38\0").unwrap_or(fields.rest);
        fields.tagged(0x42);
        for field in fields {
            let Field { number, value, .. } = field.map_err(at("metadata"))?;
            match number {
                6 => self.set_version(value)?,
                12 if self.event == Some(EventType::Bookmark) => {
                    let (key, value) = entry(value).map_err(at("metadata.annotations"))?;
                    if key == INITIAL_EVENTS_END {
                        self.ends_initial_events = value == "true";
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn set_version(&mut self, version: Value<'f>) -> Result<(), Unread> {
        self.resource_version = Cow::Borrowed(version.str().map_err(at("metadata.resourceVersion"))?);
        Ok(())
    }

    /// Judges what was read.
    fn lend(
        &mut self,
        place: Place<'f>,
        limits: &Limits,
        status: &'f mut Status,
        version: &'f mut String,
    ) -> Result<WatchEvent<'f>, DecodeErrorKind> {
        let missing = |field| malformed((field, Fault::Missing));
        // They are kept for as long as the watch lasts.
        let max = limits.metadata_size;
        for len in [self.type_meta.len(), self.api_version.len(), self.kind.len(), self.resource_version.len()] {
            let size = len as u64;
            if size > max {
                return Err(DecodeErrorKind::Limit { limit: Limit::MetadataSize, size, max });
            }
        }
        let event = self.event.ok_or_else(|| missing("type"))?;
        let bytes = self.object.ok_or_else(|| missing("object"))?;
        // One that was merged with another is none that is known.
        let is_plain = self.api_version.is_empty() && self.kind.is_empty() && !self.type_meta.is_empty();
        let is_known = is_plain && self.type_meta == &**place.known;
        if !is_known || event == EventType::Error {
            self.merge_type_meta(self.type_meta).map_err(malformed)?;
        }
        if event == EventType::Error {
            let is_status = self.kind == "Status";
            let (size, max) = (bytes.len() as u64, limits.metadata_size);
            if is_status && size > max {
                return Err(DecodeErrorKind::Limit { limit: Limit::MetadataSize, size, max });
            }
            let read = match place.encoding {
                Encoding::Protobuf => Status::read(bytes),
                #[cfg(feature = "json")]
                Encoding::Json => crate::meta::json::status(bytes),
                #[cfg(not(feature = "json"))]
                Encoding::Json => None,
            };
            *status = read.filter(|_| is_status).ok_or_else(|| malformed(("object", Fault::Status)))?;
            return Ok(WatchEvent::Error(status));
        }
        let resource_version = match mem::take(&mut self.resource_version) {
            Cow::Borrowed(version) => version,
            Cow::Owned(escaped) => {
                *version = escaped;
                version
            }
        };
        if resource_version.is_empty() {
            return Err(missing("metadata.resourceVersion"));
        }
        let Place { encoding, known, type_meta, index, offset } = place;
        if !is_known {
            set(&mut type_meta.api_version, &self.api_version);
            set(&mut type_meta.kind, &self.kind);
            known.clear();
            if is_plain {
                known.extend_from_slice(self.type_meta);
            }
        }
        let object = ItemRef { bytes, encoding, type_meta, index, offset, decoded_size: limits.decoded_size };
        Ok(match event {
            EventType::Added => WatchEvent::Added { object, resource_version },
            EventType::Modified => WatchEvent::Modified { object, resource_version },
            EventType::Deleted => WatchEvent::Deleted { object, resource_version },
            EventType::Bookmark => {
                WatchEvent::Bookmark { resource_version, ends_initial_events: self.ends_initial_events }
            }
            EventType::Error | EventType::Unknown => return Err(malformed(("type", Fault::Unknown))),
        })
    }
}

impl EventType {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"ADDED" => Self::Added,
            b"MODIFIED" => Self::Modified,
            b"DELETED" => Self::Deleted,
            b"BOOKMARK" => Self::Bookmark,
            b"ERROR" => Self::Error,
            _ => Self::Unknown,
        }
    }
}

/// The bytes of the last field of this number.
fn last(message: Value<'_>, number: u32) -> Result<Option<&[u8]>, Fault> {
    let mut last = None;
    for field in Fields::new(message.bytes()?) {
        let field = field?;
        if field.number == number {
            last = Some(field.value.bytes()?);
        }
    }
    Ok(last)
}

#[cfg(feature = "json")]
fn is_space(byte: &[u8]) -> bool {
    matches!(byte, b" " | b"\t" | b"\n" | b"\r")
}

fn expect_empty(value: Value<'_>) -> Result<(), Fault> {
    if value.bytes()?.is_empty() { Ok(()) } else { Err(Fault::NotEmpty) }
}

/// The same as for the last event, most of the time.
fn set(place: &mut String, text: &str) {
    if place != text {
        text.clone_into(place);
    }
}
