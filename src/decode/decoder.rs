//! The state machine that walks a list while it arrives.
//!
//! Advice for those who change it. `step` takes bytes off the front of the input and is the only place that does; it
//! must be correct when the input ends after any byte, so whatever is half read lives in [`State`]. All lengths are
//! checked against the message they are in when they are declared, so the position never runs past `self.walked.end`;
//! whatever finishes a field must go through `end_field`, which leaves the messages that end there. Events are lent
//! from `self`, and the borrow checker does not let a loop return one: `advance` returns what was found, `event` lends it.
//!
//! ```text
//! Magic ──> Tag ──┬──> Length ──┬──> Item ────┐
//!            ^    │             ├──> Collect ─┤   (a string, or a whole Status)
//!            │    ├──> Value ───┤             │
//!            │    ├─────────────┴──> Skip ────┤
//!            │    └──> Appended ──> Tag of a new envelope
//!            └────────────────────────────────┘   any ──> Failed; Tag ──> Finished
//! ```

use std::ops::ControlFlow;
use std::{fmt, mem};

use prost::Message as _;

use super::schema::{Field, ListShape, Message, Text};
use super::sniff::Sniffed;
use super::wire::{MAX_GROUP_DEPTH, Tag, Varint, WireType};
use crate::error::{DecodeError, DecodeErrorKind, Fault, ItemError, Limit};
use crate::item::{self, ListMeta, MetaView, Projection, Status, TypeMeta};
use crate::limits::{Limits, OnItemError};

/// What every Kubernetes protobuf body begins with (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`).
const MAGIC: [u8; 4] = *b"k8s\0";

const MAX_ITEM_LEN: u64 = i32::MAX as u64;

/// Decodes the protobuf body of a list while it arrives.
///
/// Bytes go in by [`decode`](Self::decode) or [`feed`](Self::feed), cut anywhere; [`Event`]s come out. After the last
/// byte [`finish`](Self::finish) says whether the list is complete: **without it, a list may be short.**
///
/// An item that lies whole in a chunk is lent from there; one that is split is put together in a buffer that is used
/// again and grows to the longest one. Nothing else grows with the list, and nothing is reserved
/// for a length that is only claimed. A whole body in memory is decoded without copying an item.
///
/// ```
/// use listwatch::{Event, ListDecoder};
///
/// # let body: &[u8] = include_bytes!("../../fixtures/configmaps.pb");
/// # let mut names = Vec::new();
/// let mut decoder = ListDecoder::new();
/// for mut chunk in body.chunks(1000) {
///     while let Some(event) = decoder.decode(&mut chunk)? {
///         if let Event::Item(item) = event {
///             println!("{}", item.meta()?.name());
/// #           names.push(item.meta()?.name().to_owned());
///         }
///     }
/// }
/// let end = decoder.finish()?;
/// println!("{} items at version {}", end.items, end.list_meta.resource_version);
/// # assert_eq!((end.items, end.list_meta.resource_version.as_str()), (13, "525"));
/// # assert_eq!(names[0], "config-1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ListDecoder {
    limits: Limits,
    state: State,
    /// Bytes taken so far. Invariant: `position <= walked.end`.
    position: u64,
    /// Where the tag of the current field begins.
    field_start: u64,
    /// The innermost message that the position is in, and those around it.
    walked: Walked,
    parents: Vec<Walked>,
    /// The unknown groups that the position is in. Invariant: no more than [`MAX_GROUP_DEPTH`].
    groups: Vec<u32>,
    /// The bytes of an item or a string that is split over chunks.
    scratch: Vec<u8>,
    type_meta: TypeMeta,
    list_meta: ListMeta,
    /// Where the items end, as soon as that is known.
    raw_end: Option<u64>,
    /// Where the API server appended a Status, if it did: from there on a new envelope is walked.
    appended_at: Option<u64>,
    items: u64,
    skipped: u64,
    /// Set while a callback holds an event, so that a panic in it is not forgotten.
    lent: bool,
}

/// What happened next in the body of a list.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The type meta of the list, once and before all others.
    TypeMeta(&'a TypeMeta),
    /// The list meta, merged from what came so far: most servers send it whole and before the items, but they may send
    /// it in pieces or behind them. [`ListEnd`] has it in its final form.
    ListMeta(&'a ListMeta),
    /// An item.
    Item(ItemRef<'a>),
}

/// One item, lent: its bytes and its place.
#[derive(Clone, Copy)]
pub struct ItemRef<'a> {
    bytes: &'a [u8],
    type_meta: &'a TypeMeta,
    index: u64,
    offset: u64,
}

/// How the bytes of an item are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// The protobuf message of the item, without `k8s\0` and envelope.
    Protobuf,
}

/// How a complete list ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ListEnd {
    /// The type meta of the list: `v1` and `PodList`.
    pub type_meta: TypeMeta,
    /// The list meta in its final form.
    pub list_meta: ListMeta,
    /// Items delivered.
    pub items: u64,
    /// Items left out because the caller chose [`OnItemError::Skip`].
    pub skipped: u64,
    /// Length of the body in bytes, after decompression.
    pub bytes: u64,
}

#[derive(Debug)]
enum State {
    Magic {
        matched: usize,
    },
    Tag(Varint),
    Length {
        field: Option<Field>,
        varint: Varint,
    },
    Value {
        field: Option<Field>,
        varint: Varint,
    },
    Skip {
        left: u64,
    },
    Collect {
        what: Collected,
        left: u64,
    },
    Item {
        left: u64,
    },
    /// At a field boundary came a `k`: either `k8s\0` and a Status, or an unknown group with the number 13.
    Appended {
        matched: usize,
    },
    Failed(DecodeError),
    Finished(Box<ListEnd>),
}

#[derive(Clone, Copy, Debug)]
enum Collected {
    Text(Text),
    Status,
}

/// A message and the position where it ends.
#[derive(Clone, Copy, Debug)]
struct Walked {
    message: Message,
    end: u64,
}

/// An [`Event`] that is not lent yet.
#[derive(Clone, Copy)]
enum Found<'i> {
    TypeMeta,
    ListMeta,
    /// An item that lies whole in the input.
    Item(&'i [u8]),
    /// An item in `scratch`.
    SplitItem,
}

impl ListDecoder {
    /// A decoder with the default [`Limits`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// A decoder with limits of the caller's choice.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Magic { matched: 0 },
            position: 0,
            field_start: 0,
            walked: Walked::ENVELOPE,
            parents: Vec::new(),
            groups: Vec::new(),
            scratch: Vec::new(),
            type_meta: TypeMeta::default(),
            list_meta: ListMeta::default(),
            raw_end: None,
            appended_at: None,
            items: 0,
            skipped: 0,
            lent: false,
        }
    }

    /// Takes bytes off the front of `input` up to the next event. `None`: all of `input` is taken, more is needed.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the body is not a list, malformed or over a limit, or holds the API server's error. From
    /// then on every call returns the same error.
    pub fn decode<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Result<Option<Event<'s>>, DecodeError> {
        Ok(self.advance(input)?.map(|found| self.event(found)))
    }

    /// The callback form of [`decode`](Self::decode): feeds one chunk and calls `on_event` for each event in it.
    ///
    /// After a `Break` the chunk is taken up to [`position`](Self::position); to go on, feed the rest of it. A panic of
    /// the callback poisons the decoder.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    pub fn feed<B>(
        &mut self,
        mut chunk: &[u8],
        mut on_event: impl FnMut(Event<'_>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, DecodeError> {
        while let Some(flow) = self.decode_with(&mut chunk, &mut on_event)? {
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// As [`feed`](Self::feed), for a callback that may fail: its first error ends the call.
    ///
    /// # Errors
    ///
    /// The callback's own, and those of [`decode`](Self::decode) turned into it.
    pub fn try_feed<E: From<DecodeError>>(
        &mut self,
        mut chunk: &[u8],
        mut on_event: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(result) = self.decode_with(&mut chunk, &mut on_event)? {
            result?;
        }
        Ok(())
    }

    /// The body has ended: says how, if the list is complete. May be called again.
    ///
    /// A list is complete when as many bytes came as its envelope announced and the body ended on a field boundary
    /// behind them. A cut behind the last item and on such a boundary cannot be told from the bytes; it lost no item.
    ///
    /// # Errors
    ///
    /// [`DecodeErrorKind::Incomplete`] when the body ended before the list did, or the error that
    /// [`decode`](Self::decode) returned before.
    pub fn finish(&mut self) -> Result<ListEnd, DecodeError> {
        self.check()?;
        match &self.state {
            State::Finished(end) => return Ok(ListEnd::clone(end)),
            State::Tag(varint)
                if varint.is_empty()
                    && self.parents.is_empty()
                    && self.groups.is_empty()
                    && self.raw_end.is_some()
                    && self.appended_at.is_none() => {}
            state => {
                let index = matches!(state, State::Item { .. }).then(|| self.index());
                let error = DecodeError::new(DecodeErrorKind::Incomplete, self.position, index, self.items);
                return Err(self.fail(error));
            }
        }
        let end = ListEnd {
            type_meta: self.type_meta.clone(),
            list_meta: self.list_meta.clone(),
            items: self.items,
            skipped: self.skipped,
            bytes: self.position,
        };
        self.state = State::Finished(Box::new(end.clone()));
        Ok(end)
    }

    /// Bytes of the body taken so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where the last item ends, a few bytes before the body does; known as soon as the envelope announced it.
    #[must_use]
    pub fn expected_bytes(&self) -> Option<u64> {
        self.raw_end
    }

    /// The type meta, once [`Event::TypeMeta`] came.
    #[must_use]
    pub fn type_meta(&self) -> &TypeMeta {
        &self.type_meta
    }

    /// The list meta as it came so far.
    #[must_use]
    pub fn list_meta(&self) -> &ListMeta {
        &self.list_meta
    }

    /// Items delivered so far.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Items left out so far.
    #[cfg(feature = "client")]
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// As `decode`, with the event lent to `on_event`; a panic in there poisons the decoder.
    pub(crate) fn decode_with<T>(
        &mut self,
        input: &mut &[u8],
        on_event: impl FnOnce(Event<'_>) -> T,
    ) -> Result<Option<T>, DecodeError> {
        let Some(found) = self.advance(input)? else {
            return Ok(None);
        };
        self.lent = true;
        let returned = on_event(self.event(found));
        self.lent = false;
        Ok(Some(returned))
    }

    /// The item lent last was refused: it counts as skipped, or ends the list, as the caller chose.
    pub(crate) fn refuse_item(&mut self, error: ItemError, what: OnItemError) -> Result<(), DecodeError> {
        self.items -= 1;
        match what {
            OnItemError::Skip => {
                self.skipped += 1;
                Ok(())
            }
            OnItemError::Fail => {
                let error = self.error(Some(Field::Items), DecodeErrorKind::Item(error));
                Err(self.fail(error))
            }
        }
    }

    fn event<'s>(&'s self, found: Found<'s>) -> Event<'s> {
        let item = |bytes| {
            let index = self.index() - 1;
            Event::Item(ItemRef { bytes, type_meta: &self.type_meta, index, offset: self.field_start })
        };
        match found {
            Found::TypeMeta => Event::TypeMeta(&self.type_meta),
            Found::ListMeta => Event::ListMeta(&self.list_meta),
            Found::Item(bytes) => item(bytes),
            Found::SplitItem => item(&self.scratch),
        }
    }

    /// The index of the next item.
    fn index(&self) -> u64 {
        self.items + self.skipped
    }

    fn check(&mut self) -> Result<(), DecodeError> {
        if self.lent {
            self.lent = false;
            let error = DecodeError::new(DecodeErrorKind::Poisoned, self.position, None, self.items);
            self.fail(error);
        }
        match &self.state {
            State::Failed(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn fail(&mut self, error: DecodeError) -> DecodeError {
        self.scratch = Vec::new();
        self.state = State::Failed(error.clone());
        error
    }

    /// An error at the current field, which names the item if it is one.
    fn error(&self, field: Option<Field>, kind: DecodeErrorKind) -> DecodeError {
        let index = (field == Some(Field::Items)).then(|| self.index());
        DecodeError::new(kind, self.field_start, index, self.items)
    }

    fn malformed(&self, field: Option<Field>, fault: Fault) -> DecodeError {
        let name = field.map_or("an unknown field", Field::name);
        self.error(field, DecodeErrorKind::Malformed { field: name, fault })
    }

    fn over(&self, field: Option<Field>, limit: Limit, size: u64, max: u64) -> DecodeError {
        self.error(field, DecodeErrorKind::Limit { limit, size, max })
    }

    // ---- the walk ----

    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeError> {
        self.check()?;
        while !input.is_empty() {
            match self.step(input) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(error) => return Err(self.fail(error)),
            }
        }
        Ok(None)
    }

    /// One state further. `input` is not empty.
    fn step<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeError> {
        match self.state {
            State::Magic { matched } => self.magic(matched, input),
            State::Tag(varint) => self.tag(varint, input),
            State::Length { field, mut varint } => {
                let Some(len) = self.varint(&mut varint, field, input)? else {
                    self.state = State::Length { field, varint };
                    return Ok(None);
                };
                self.begin(field, len, input)
            }
            State::Value { field, mut varint } => {
                let Some(value) = self.varint(&mut varint, field, input)? else {
                    self.state = State::Value { field, varint };
                    return Ok(None);
                };
                if field == Some(Field::RemainingItemCount) {
                    self.list_meta.remaining_item_count = Some(value.cast_signed());
                }
                Ok(self.end_field())
            }
            State::Skip { left } => {
                let taken = self.take(left, input).len() as u64;
                Ok(self.skip(left - taken))
            }
            State::Collect { what, left } => self.collect(what, left, input),
            State::Item { left } => Ok(self.item(left, input)),
            State::Appended { matched } => self.appended(matched, input),
            State::Finished(_) => Err(DecodeError::new(DecodeErrorKind::Finished, self.position, None, self.items)),
            State::Failed(ref error) => Err(error.clone()),
        }
    }

    fn magic<'i>(&mut self, matched: usize, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeError> {
        let byte = self.take(1, input).first();
        if byte != MAGIC.get(matched) {
            let first = if matched == 0 { byte } else { MAGIC.first() };
            let sniffed = Sniffed::by_first_byte(first.copied().unwrap_or_default());
            return Err(self.error(None, DecodeErrorKind::UnexpectedEncoding(sniffed)));
        }
        let matched = matched + 1;
        self.state = if matched < MAGIC.len() { State::Magic { matched } } else { State::Tag(Varint::default()) };
        Ok(None)
    }

    fn tag<'i>(&mut self, mut varint: Varint, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeError> {
        if varint.is_empty() {
            self.field_start = self.position;
            if self.position >= self.limits.bytes {
                return Err(self.over(None, Limit::Bytes, self.position + 1, self.limits.bytes));
            }
        }
        let Some(tag) = self.varint(&mut varint, None, input)? else {
            self.state = State::Tag(varint);
            return Ok(None);
        };
        let tag = Tag::new(tag).map_err(|fault| self.malformed(None, fault))?;
        let field = if self.groups.is_empty() { self.walked.message.field(tag.number) } else { None };
        if field.is_some_and(|field| field.wire_type() != tag.wire_type) {
            return Err(self.malformed(field, Fault::WireType));
        }
        match tag.wire_type {
            WireType::Varint => self.state = State::Value { field, varint: Varint::default() },
            WireType::Len => self.state = State::Length { field, varint: Varint::default() },
            WireType::Fixed64 => return self.begin(None, 8, input),
            WireType::Fixed32 => return self.begin(None, 4, input),
            WireType::StartGroup if self.may_be_appended(tag) => self.state = State::Appended { matched: 1 },
            WireType::StartGroup => self.start_group(tag.number)?,
            WireType::EndGroup if self.groups.pop() == Some(tag.number) => return Ok(self.end_field()),
            WireType::EndGroup => return Err(self.malformed(None, Fault::EndGroup)),
        }
        Ok(None)
    }

    fn start_group(&mut self, number: u32) -> Result<(), DecodeError> {
        if self.groups.len() == MAX_GROUP_DEPTH {
            return Err(self.malformed(None, Fault::GroupDepth));
        }
        self.groups.push(number);
        self.state = State::Tag(Varint::default());
        Ok(())
    }

    /// Whether the tag is a `k`, where the server may append a Status: between the fields of the list or the envelope.
    fn may_be_appended(&self, tag: Tag) -> bool {
        let is_k = tag.number == u32::from(MAGIC[0] >> 3) && self.position - self.field_start == 1;
        let between = matches!(self.walked.message, Message::Envelope | Message::List(_)) && self.groups.is_empty();
        is_k && between && self.appended_at.is_none()
    }

    fn appended<'i>(&mut self, matched: usize, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeError> {
        if input.first() == MAGIC.get(matched) {
            self.take(1, input);
            self.state = State::Appended { matched: matched + 1 };
            if matched + 1 == MAGIC.len() {
                self.appended_at = Some(self.field_start);
                self.type_meta = TypeMeta::default();
                (self.walked, self.parents) = (Walked::ENVELOPE, Vec::new());
                self.state = State::Tag(Varint::default());
            }
            return Ok(None);
        }
        // A group after all: what was taken for the magic is walked again.
        let mut again = MAGIC.get(1..matched).unwrap_or_default();
        self.position -= again.len() as u64;
        self.start_group(u32::from(MAGIC[0] >> 3))?;
        while !again.is_empty() {
            self.step(&mut again)?;
        }
        Ok(None)
    }

    /// The value of a length-delimited or fixed-size field begins. Whatever it claims is checked here.
    fn begin<'i>(
        &mut self,
        field: Option<Field>,
        len: u64,
        input: &mut &'i [u8],
    ) -> Result<Option<Found<'i>>, DecodeError> {
        if field == Some(Field::Items) && len > MAX_ITEM_LEN {
            return Err(self.malformed(field, Fault::TooLong));
        }
        let end = match self.position.checked_add(len) {
            Some(end) if end <= self.walked.end => end,
            _ => return Err(self.malformed(field, Fault::PastParent)),
        };
        if end > self.limits.bytes {
            return Err(self.over(field, Limit::Bytes, end, self.limits.bytes));
        }
        match field {
            None | Some(Field::RemainingItemCount) => Ok(self.skip(len)),
            Some(Field::Content(_)) if len > 0 => Err(self.malformed(field, Fault::NotEmpty)),
            Some(Field::Content(_)) => Ok(self.end_field()),
            Some(Field::TypeMeta) if self.raw_end.is_some() && self.appended_at.is_none() => {
                Err(self.malformed(field, Fault::Order))
            }
            Some(Field::TypeMeta) => Ok(self.enter(Message::TypeMeta, end)),
            Some(Field::Raw) => self.begin_raw(end, input),
            Some(Field::ListMeta) => Ok(self.enter(Message::ListMeta, end)),
            Some(Field::ShardInfo) => {
                self.list_meta.shard_info.get_or_insert_default();
                Ok(self.enter(Message::ShardInfo, end))
            }
            Some(Field::Text(text)) => self.begin_collecting(field, Collected::Text(text), len, input),
            Some(Field::Items) => self.begin_item(len, input),
        }
    }

    fn begin_raw<'i>(&mut self, end: u64, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeError> {
        let field = Some(Field::Raw);
        if self.raw_end.is_some() && self.appended_at.is_none() {
            return Err(self.malformed(field, Fault::Twice));
        }
        if self.type_meta.kind.is_empty() {
            return Err(self.malformed(field, Fault::Order));
        }
        if end == self.position {
            return Err(self.malformed(field, Fault::Empty));
        }
        if self.type_meta.is("v1", "Status") {
            return self.begin_collecting(field, Collected::Status, end - self.position, input);
        }
        if self.appended_at.is_some() {
            return Err(self.malformed(field, Fault::Status));
        }
        let shape = ListShape::of(&self.type_meta).map_err(|kind| self.error(field, kind))?;
        self.raw_end = Some(end);
        self.enter(Message::List(shape), end);
        Ok(Some(Found::TypeMeta))
    }

    fn begin_item<'i>(&mut self, len: u64, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeError> {
        let Limits { items, item_size, on_oversized, .. } = self.limits;
        let field = Some(Field::Items);
        if self.index() >= items {
            return Err(self.over(field, Limit::Items, self.index() + 1, items));
        }
        if len > item_size {
            if on_oversized == OnItemError::Fail {
                return Err(self.over(field, Limit::ItemSize, len, item_size));
            }
            self.skipped += 1;
            return Ok(self.skip(len));
        }
        self.scratch.clear();
        Ok(self.item(len, input))
    }

    fn item<'i>(&mut self, left: u64, input: &mut &'i [u8]) -> Option<Found<'i>> {
        let piece = self.take(left, input);
        let left = left - piece.len() as u64;
        if left > 0 {
            self.keep(piece, left);
            self.state = State::Item { left };
            return None;
        }
        self.items += 1;
        self.end_field();
        if self.scratch.is_empty() {
            return Some(Found::Item(piece));
        }
        self.keep(piece, 0);
        Some(Found::SplitItem)
    }

    fn begin_collecting<'i>(
        &mut self,
        field: Option<Field>,
        what: Collected,
        len: u64,
        input: &mut &'i [u8],
    ) -> Result<Option<Found<'i>>, DecodeError> {
        let max = self.limits.metadata_size;
        if len > max {
            return Err(self.over(field, Limit::MetadataSize, len, max));
        }
        self.scratch.clear();
        self.collect(what, len, input)
    }

    fn collect<'i>(
        &mut self,
        what: Collected,
        left: u64,
        input: &mut &'i [u8],
    ) -> Result<Option<Found<'i>>, DecodeError> {
        let piece = self.take(left, input);
        let left = left - piece.len() as u64;
        self.keep(piece, left);
        if left > 0 {
            self.state = State::Collect { what, left };
            return Ok(None);
        }
        match what {
            Collected::Text(text) => {
                let Ok(value) = str::from_utf8(&self.scratch) else {
                    return Err(self.malformed(Some(Field::Text(text)), Fault::Utf8));
                };
                let value = value.to_owned();
                match text {
                    Text::ApiVersion => self.type_meta.api_version = value,
                    Text::Kind => self.type_meta.kind = value,
                    Text::ResourceVersion => self.list_meta.resource_version = value,
                    Text::Continue => self.list_meta.continue_token = value,
                    Text::Selector => self.list_meta.shard_info.get_or_insert_default().selector = value,
                }
                Ok(self.end_field())
            }
            Collected::Status => {
                let status = Status::decode(self.scratch.as_slice())
                    .map_err(|_| self.malformed(Some(Field::Raw), Fault::Status))?;
                let kind = DecodeErrorKind::Api(Box::new(status));
                Err(DecodeError::new(kind, self.appended_at.unwrap_or(0), None, self.items))
            }
        }
    }

    /// Puts a piece into `scratch`, which grows by bytes received, up to the size of the whole: old and new buffer, both
    /// alive while one is copied to the other, are then at most twice the whole.
    fn keep(&mut self, piece: &[u8], left: u64) {
        let needed = self.scratch.len() + piece.len();
        if needed > self.scratch.capacity() {
            let whole = usize::try_from(left).map_or(usize::MAX, |left| needed.saturating_add(left));
            let capacity = self.scratch.capacity().saturating_mul(2).clamp(needed, whole);
            self.scratch.reserve_exact(capacity - self.scratch.len());
        }
        self.scratch.extend_from_slice(piece);
    }

    fn skip<'i>(&mut self, left: u64) -> Option<Found<'i>> {
        if left == 0 {
            return self.end_field();
        }
        self.state = State::Skip { left };
        None
    }

    fn enter<'i>(&mut self, message: Message, end: u64) -> Option<Found<'i>> {
        self.parents.push(mem::replace(&mut self.walked, Walked { message, end }));
        self.end_field()
    }

    /// A field is through: leaves the messages that end with it.
    fn end_field<'i>(&mut self) -> Option<Found<'i>> {
        self.state = State::Tag(Varint::default());
        let mut found = None;
        while self.position == self.walked.end && self.groups.is_empty() {
            let Some(parent) = self.parents.pop() else { break };
            if self.walked.message == Message::ListMeta {
                found = Some(Found::ListMeta);
            }
            self.walked = parent;
        }
        found
    }

    /// Goes on with a varint, which must end within its message. `None`: it goes on in the next chunk.
    fn varint(
        &mut self,
        varint: &mut Varint,
        field: Option<Field>,
        input: &mut &[u8],
    ) -> Result<Option<u64>, DecodeError> {
        while let Some((&byte, rest)) = input.split_first() {
            if self.position >= self.walked.end {
                return Err(self.malformed(field, Fault::PastParent));
            }
            *input = rest;
            self.position += 1;
            if let Some(value) = varint.push(byte).map_err(|fault| self.malformed(field, fault))? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Takes up to `len` bytes.
    fn take<'i>(&mut self, len: u64, input: &mut &'i [u8]) -> &'i [u8] {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (taken, rest) = input.split_at_checked(len).unwrap_or((input, &[]));
        *input = rest;
        self.position += taken.len() as u64;
        taken
    }
}

impl Default for ListDecoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Says where it is; what is in a half-received item is nobody's business.
impl fmt::Debug for ListDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListDecoder")
            .field("position", &self.position)
            .field("items", &self.items)
            .field("skipped", &self.skipped)
            .finish_non_exhaustive()
    }
}

impl Walked {
    const ENVELOPE: Self = Self { message: Message::Envelope, end: u64::MAX };
}

impl<'a> ItemRef<'a> {
    /// An object that came alone, under its own type meta.
    #[cfg(feature = "client")]
    pub(crate) fn single(bytes: &'a [u8], type_meta: &'a TypeMeta) -> Self {
        Self { bytes, type_meta, index: 0, offset: 0 }
    }

    /// The bytes of the item, as they came.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How [`bytes`](Self::bytes) are encoded.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        Encoding::Protobuf
    }

    /// The type meta of the list. The items carry none of their own; their kind is this one's without `List`.
    #[must_use]
    pub fn type_meta(&self) -> &'a TypeMeta {
        self.type_meta
    }

    /// How many items of this list came before it, skipped ones included.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Where in the body its field begins: at the tag, a few bytes before [`bytes`](Self::bytes).
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its metadata, read off the bytes without decoding the rest.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when they cannot be read.
    pub fn meta(&self) -> Result<MetaView<'a>, ItemError> {
        MetaView::new(self.bytes)
    }

    /// Decodes it with prost.
    ///
    /// # Errors
    ///
    /// [`ItemError::Protobuf`] when prost refuses it, [`ItemError::WrapperType`] when `M` is no message of its own.
    pub fn decode<M: prost::Message + Default + 'static>(&self) -> Result<Box<M>, ItemError> {
        item::decode(self.bytes)
    }

    /// Copies the bytes without what the projection drops, into a box of exactly their size, in one allocation.
    ///
    /// # Errors
    ///
    /// [`ItemError::Projection`] when they are malformed.
    pub fn project(&self, projection: &Projection) -> Result<Box<[u8]>, ItemError> {
        match self.encoding() {
            Encoding::Protobuf => projection.apply(self.bytes),
        }
    }

    /// The same item with other bytes, of the same encoding.
    pub(crate) fn with_bytes<'b>(&self, bytes: &'b [u8]) -> ItemRef<'b>
    where
        'a: 'b,
    {
        ItemRef { bytes, ..*self }
    }

    /// Copies the bytes into a box of exactly their size, in one allocation.
    #[must_use]
    pub fn to_box(&self) -> Box<[u8]> {
        self.bytes.into()
    }
}

/// Says which item it is, not what is in it: that may be a Secret.
impl fmt::Debug for ItemRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemRef")
            .field("index", &self.index)
            .field("offset", &self.offset)
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}
