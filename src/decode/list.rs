//! The decoder of lists: what protobuf and JSON have in common, and the public API.
//!
//! Events are lent from `self`, and the borrow checker does not let a loop return one: `advance` returns what was found,
//! `event` lends it.
//!
//! ```text
//! Start ──┬──> Protobuf ──┬──> end: complete, or an error
//!         └──> Json ──────┘
//! ```

use std::ops::ControlFlow;
use std::{fmt, mem};

#[cfg(feature = "json")]
use super::list_json::Json;
use super::list_protobuf::{MAGIC, Protobuf};
use crate::error::{DecodeError, DecodeErrorKind, ItemError};
use crate::limits::{Limits, OnItemError};
use crate::meta::{ListMeta, TypeMeta};
use crate::object::ItemRef;
use crate::wire::{BodyFormat, Encoding};

/// Decodes the body of a list while it arrives: protobuf, and JSON where `accept_json` (feature `json`) allows it. The
/// first bytes decide which of the two a body is.
///
/// Bytes go in by [`decode`](Self::decode) or [`feed`](Self::feed), cut anywhere; [`Event`]s come out. After the last
/// byte [`finish`](Self::finish) says whether the list is complete: **without it, a list may be short.**
///
/// An item that lies whole in a chunk is lent from there; one that is split is put together in a buffer that is used
/// again and grows to the longest one (at worst to twice of it in JSON, which does not say lengths). Nothing else grows with
/// the list, and nothing is reserved for a length that is only claimed. A whole body in memory is decoded without copying
/// an item.
///
/// In JSON it finds where an item ends by its brackets and strings; whether the item is right otherwise is found by what
/// decodes it, `Json<T>` or the caller. Members may come in any order; where one comes twice the last
/// counts, as for Go. An item `null` is handed over as it is.
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
    body: Body,
    end: Option<Result<Box<ListEnd>, DecodeError>>,
    /// Set while a callback holds an event, so that a panic in it is not forgotten.
    borrowed: bool,
}

/// What happened next in the body of a list.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The type meta of the list, once and before all others.
    ///
    /// Of a JSON list it comes when `apiVersion` and `kind` have come both, which may be behind the items: so it is for
    /// custom resources, whose lists have their members in alphabetical order. It comes again if one of the two does.
    TypeMeta(&'a TypeMeta),
    /// The list meta, merged from what came so far: most servers send it whole and before the items, but they may send
    /// it in pieces or behind them. [`ListEnd`] has it in its final form.
    ListMeta(&'a ListMeta),
    /// An item.
    Item(ItemRef<'a>),
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

enum Body {
    /// The first bytes: which of the two it is.
    Start {
        list: Progress,
        matched: usize,
    },
    Protobuf(Protobuf),
    #[cfg(feature = "json")]
    Json(Json),
}

/// How far the walk through a list is, whatever its encoding.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) limits: Limits,
    /// Set only with the feature `json`.
    pub(super) accepts_json: bool,
    /// Bytes taken so far.
    pub(super) position: u64,
    /// Where the current field begins.
    pub(super) field_start: u64,
    /// The bytes of an item or a string that is split over chunks.
    pub(super) scratch: Vec<u8>,
    pub(super) type_meta: TypeMeta,
    pub(super) list_meta: ListMeta,
    pub(super) items: u64,
    pub(super) skipped: u64,
}

/// An [`Event`] that is not lent yet.
#[derive(Clone, Copy)]
pub(super) enum Found<'i> {
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
        let list = Progress { limits, ..Progress::default() };
        Self { body: Body::Start { list, matched: 0 }, end: None, borrowed: false }
    }

    /// Accepts lists in JSON in addition to protobuf, as API servers send them for custom resources.
    ///
    /// Otherwise a body in JSON is [`DecodeErrorKind::UnexpectedEncoding`], whatever cargo features are on.
    #[cfg(feature = "json")]
    #[must_use]
    pub fn accept_json(mut self) -> Self {
        self.body.list_mut().accepts_json = true;
        self
    }

    /// A decoder for what a server sends in place of a watch.
    pub(super) fn of_watch(watch: &Progress) -> Self {
        let mut decoder = Self::with_limits(watch.limits.items(u64::MAX).bytes(u64::MAX));
        decoder.body.list_mut().accepts_json = watch.accepts_json;
        decoder
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

    /// The callback form of [`decode`](Self::decode): takes bytes off the front of `input` and calls `on_event` for each event.
    ///
    /// After a `Break` the rest of the chunk is left in `input`, as it is after an error. A panic of the callback poisons the
    /// decoder.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use listwatch::{Event, ListDecoder};
    ///
    /// # let mut body: &[u8] = include_bytes!("../../fixtures/configmaps.pb");
    /// let mut decoder = ListDecoder::new();
    /// let third = decoder.feed(&mut body, |event| match event {
    ///     Event::Item(item) if item.index() == 2 => ControlFlow::Break(item.to_box()),
    ///     _ => ControlFlow::Continue(()),
    /// })?;
    /// assert!(third.is_break() && decoder.items() == 3 && !body.is_empty());
    /// # Ok::<(), listwatch::DecodeError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    pub fn feed<B>(
        &mut self,
        input: &mut &[u8],
        mut on_event: impl FnMut(Event<'_>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, DecodeError> {
        while let Some(flow) = self.decode_with(input, &mut on_event)? {
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The body has ended: says how, if the list is complete. May be called again.
    ///
    /// A protobuf list is complete when as many bytes came as its envelope announced and the body ended on a field
    /// boundary behind them. A cut behind the last item and on such a boundary cannot be told from the bytes; it lost no
    /// item. A JSON list is complete with its closing brace, behind which only whitespace may come.
    ///
    /// # Errors
    ///
    /// [`DecodeErrorKind::Incomplete`] when the body ended before the list did, or the error that
    /// [`decode`](Self::decode) returned before.
    pub fn finish(&mut self) -> Result<ListEnd, DecodeError> {
        self.check()?;
        if let Some(Ok(end)) = &self.end {
            return Ok(ListEnd::clone(end));
        }
        let list = self.body.list();
        if !self.body.is_complete() {
            let index = self.body.is_in_item().then(|| list.index());
            let error = DecodeError::new(DecodeErrorKind::Incomplete, list.position, index, list.items);
            return Err(self.fail(error));
        }
        let end = ListEnd {
            type_meta: list.type_meta.clone(),
            list_meta: list.list_meta.clone(),
            items: list.items,
            skipped: list.skipped,
            bytes: list.position,
        };
        self.end = Some(Ok(Box::new(end.clone())));
        Ok(end)
    }

    /// Bytes of the body taken so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.body.list().position
    }

    /// Where the last item ends, a few bytes before the body does; known as soon as the envelope announced it, which JSON
    /// has none to do.
    #[must_use]
    pub fn expected_bytes(&self) -> Option<u64> {
        if let Body::Protobuf(protobuf) = &self.body { protobuf.expected_bytes() } else { None }
    }

    /// The type meta, once [`Event::TypeMeta`] came.
    #[must_use]
    pub fn type_meta(&self) -> &TypeMeta {
        &self.body.list().type_meta
    }

    /// The list meta as it came so far.
    #[must_use]
    pub fn list_meta(&self) -> &ListMeta {
        &self.body.list().list_meta
    }

    /// Items delivered so far.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.body.list().items
    }

    /// Items left out so far.
    #[cfg(feature = "client")]
    pub(crate) fn skipped(&self) -> u64 {
        self.body.list().skipped
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.body.list_mut().limits = limits;
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
        self.borrowed = true;
        let returned = on_event(self.event(found));
        self.borrowed = false;
        Ok(Some(returned))
    }

    /// Refuses the item that was borrowed last: it counts as skipped, and its error is returned, or the error ends the list.
    pub(crate) fn refuse_item(&mut self, error: ItemError, what: OnItemError) -> Result<DecodeError, DecodeError> {
        let list = self.body.list_mut();
        list.items -= 1;
        let error = list.item_error(DecodeErrorKind::Item(error));
        match what {
            OnItemError::Skip => {
                list.skipped += 1;
                Ok(error)
            }
            OnItemError::Fail => Err(self.fail(error)),
        }
    }

    /// Counts the item that was borrowed last as skipped.
    pub(crate) fn skip_item(&mut self) {
        let list = self.body.list_mut();
        list.items -= 1;
        list.skipped += 1;
    }

    fn event<'s>(&'s self, found: Found<'s>) -> Event<'s> {
        let list = self.body.list();
        let item = |bytes| {
            let encoding = match self.body {
                #[cfg(feature = "json")]
                Body::Json(_) => Encoding::Json,
                _ => Encoding::Protobuf,
            };
            let index = list.index() - 1;
            let Progress { type_meta, field_start: offset, limits: Limits { decoded_size, .. }, .. } = list;
            Event::Item(ItemRef { bytes, encoding, type_meta, index, offset: *offset, decoded_size: *decoded_size })
        };
        match found {
            Found::TypeMeta => Event::TypeMeta(&list.type_meta),
            Found::ListMeta => Event::ListMeta(&list.list_meta),
            Found::Item(bytes) => item(bytes),
            Found::SplitItem => item(&list.scratch),
        }
    }

    fn check(&mut self) -> Result<(), DecodeError> {
        if self.borrowed {
            self.borrowed = false;
            let list = self.body.list();
            let error = DecodeError::new(DecodeErrorKind::Poisoned, list.position, None, list.items);
            self.fail(error);
        }
        match &self.end {
            Some(Err(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn fail(&mut self, error: DecodeError) -> DecodeError {
        self.body.list_mut().scratch = Vec::new();
        self.end = Some(Err(error.clone()));
        error
    }

    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeError> {
        self.check()?;
        if input.is_empty() {
            return Ok(None);
        }
        if self.end.is_some() {
            let list = self.body.list();
            let error = DecodeError::new(DecodeErrorKind::Finished, list.position, None, list.items);
            return Err(self.fail(error));
        }
        self.body.advance(input).map_err(|error| self.fail(error))
    }
}

impl Body {
    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, DecodeError> {
        while let Self::Start { list, matched } = self {
            let Some(&byte) = input.first() else { return Ok(None) };
            match byte {
                #[cfg(feature = "json")]
                b'{' | b'[' | b' ' | b'\t' | b'\n' | b'\r' if *matched == 0 && list.accepts_json => {
                    *self = Self::Json(Json::new(mem::take(list)));
                }
                byte if Some(&byte) == MAGIC.get(*matched) => {
                    list.take(1, input);
                    *matched += 1;
                    if *matched == MAGIC.len() {
                        *self = Self::Protobuf(Protobuf::new(mem::take(list)));
                    }
                }
                byte => {
                    let first = if *matched == 0 { byte } else { MAGIC[0] };
                    return Err(list.error(DecodeErrorKind::UnexpectedEncoding(BodyFormat::by_first_byte(first))));
                }
            }
        }
        match self {
            Self::Start { .. } => Ok(None),
            Self::Protobuf(protobuf) => protobuf.advance(input),
            #[cfg(feature = "json")]
            Self::Json(json) => json.advance(input),
        }
    }

    fn is_complete(&self) -> bool {
        match self {
            Self::Start { .. } => false,
            Self::Protobuf(protobuf) => protobuf.is_complete(),
            #[cfg(feature = "json")]
            Self::Json(json) => json.is_complete(),
        }
    }

    fn is_in_item(&self) -> bool {
        match self {
            Self::Start { .. } => false,
            Self::Protobuf(protobuf) => protobuf.is_in_item(),
            #[cfg(feature = "json")]
            Self::Json(json) => json.is_in_item(),
        }
    }

    fn list(&self) -> &Progress {
        match self {
            Self::Start { list, .. } => list,
            Self::Protobuf(protobuf) => &protobuf.list,
            #[cfg(feature = "json")]
            Self::Json(json) => &json.list,
        }
    }

    fn list_mut(&mut self) -> &mut Progress {
        match self {
            Self::Start { list, .. } => list,
            Self::Protobuf(protobuf) => &mut protobuf.list,
            #[cfg(feature = "json")]
            Self::Json(json) => &mut json.list,
        }
    }
}

impl Progress {
    /// The index of the next item.
    pub(super) fn index(&self) -> u64 {
        self.items + self.skipped
    }

    /// An error at the current field.
    pub(super) fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(kind, self.field_start, None, self.items)
    }

    /// An error at the current field, which is the next item.
    pub(super) fn item_error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(kind, self.field_start, Some(self.index()), self.items)
    }

    /// Takes up to `len` bytes.
    #[inline]
    pub(super) fn take<'i>(&mut self, len: u64, input: &mut &'i [u8]) -> &'i [u8] {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (taken, rest) = input.split_at_checked(len).unwrap_or((input, &[]));
        *input = rest;
        self.position += taken.len() as u64;
        taken
    }

    /// Puts a piece into `scratch`, which grows by bytes received, up to the size of the whole: old and new buffer, both
    /// alive while one is copied to the other, are then at most twice the whole.
    #[inline]
    pub(super) fn keep(&mut self, piece: &[u8], left: u64) {
        let needed = self.scratch.len() + piece.len();
        if needed > self.scratch.capacity() {
            let whole = usize::try_from(left).map_or(usize::MAX, |left| needed.saturating_add(left));
            let capacity = self.scratch.capacity().saturating_mul(2).clamp(needed, whole);
            self.scratch.reserve_exact(capacity - self.scratch.len());
        }
        self.scratch.extend_from_slice(piece);
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
            .field("position", &self.position())
            .field("items", &self.items())
            .field("skipped", &self.body.list().skipped)
            .finish_non_exhaustive()
    }
}
