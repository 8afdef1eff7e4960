//! The decoder of lists: the public API over the state machines of protobuf and JSON.
//!
//! - Only `finish` proves that a list is complete, because a body whose input has ended may be truncated.
//! - After an error, every call returns the same error, which is kept in `end`. The buffer of a split item is freed at
//!   once.
//! - `borrowed` is true while a callback holds an item. If it is still true at the next call, the callback panicked.
//!   The decoder is then poisoned, because nobody knows whether the item was delivered.
//! - The first bytes decide the encoding, because servers send wrong content types.
//! - `encoding/protobuf/list.rs` and `encoding/json/list.rs` know where in the body the input ended; this file decides
//!   what that means.
//! - An item that is whole in the chunk is borrowed from the chunk. A split item is copied to `scratch`, whatever its
//!   encoding.
//! - `items` counts an item before the callback runs, so `refuse_item` and `skip_item` subtract it again.
//! - An event borrows from `self`, and the borrow checker does not let a loop return such a borrow. Therefore `advance`
//!   returns a [`FoundEvent`] that borrows only from the input, and `event` adds the data of `self`.
//! - A declared length is compared with the limits before memory is allocated, and memory grows with received bytes.
//!
//! ```text
//! Start ──> Known ──> end: complete, or an error
//! ```

use std::ops::ControlFlow;
use std::{fmt, mem};

use super::event::{Event, ListEnd};
use crate::encoding::body_state::{BodyState, FoundEvent};
use crate::encoding::codec::ListBody as _;
use crate::encoding::item_ref::ItemRef;
use crate::encoding::{AnyList, map_codec, with_codec};
use crate::error::{DecodeError, DecodeErrorKind, ItemError, Limit};
use crate::limits::Limits;
use crate::meta::{ListMeta, TypeMeta};
use crate::wire::{Beginning, BodyFormat, Encoding};

/// Decodes the body of a list while it arrives, in protobuf or, after `accept_json`, in JSON.
///
/// [`decode`](Self::decode) and [`feed`](Self::feed) consume chunks of any size and return [`Event`]s. After the last
/// byte, [`finish`](Self::finish) checks that the list is complete: **without this call, a list may be short.** The
/// first bytes of the body decide its encoding, and JSON may follow white space.
///
/// An item that is whole in a chunk is borrowed from the chunk, so decoding a body that is in memory copies nothing. An
/// item that is split over chunks is assembled in one reusable buffer, which grows to the size of the largest item, or
/// in JSON, which declares no lengths, to at most twice that size. Nothing else grows with the list, and no memory is
/// reserved for a length that the body only declares.
///
/// In JSON, the decoder finds the end of an item by brackets and strings alone; other faults in the item surface when
/// `Json<T>` or the caller decodes it. Members may come in any order, and the last value of a repeated member counts,
/// as in Go. An item `null` is delivered as it is.
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
/// #           names.push(item.meta()?.name().into_owned());
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
    body: ListBodyDecoder,
    end: Option<Result<Box<ListEnd>, DecodeError>>,
    /// True while a callback holds an event, so that `check` detects a panic in it.
    borrowed: bool,
}

enum ListBodyDecoder {
    /// The first bytes, which decide the encoding.
    Start {
        list: BodyState,
        /// The encoding whose magic bytes are being matched.
        encoding: Encoding,
        matched: usize,
    },
    Known(AnyList),
}

impl ListDecoder {
    /// Creates a decoder with the default [`Limits`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// Creates a decoder with these limits.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        let list = BodyState { limits, ..BodyState::default() };
        Self {
            body: ListBodyDecoder::Start { list, encoding: Encoding::Protobuf, matched: 0 },
            end: None,
            borrowed: false,
        }
    }

    /// Accepts lists in JSON in addition to protobuf. API servers send custom resources only in JSON.
    ///
    /// Without this call, a body in JSON is [`DecodeErrorKind::UnexpectedEncoding`], whatever cargo features are
    /// enabled.
    #[must_use]
    pub fn accept_json(mut self) -> Self {
        self.body.list_mut().accepts_json = true;
        self
    }

    /// Sets whether to skip items over [`Limits::item_size`] instead of ending the list in an error.
    ///
    /// A skipped item is delivered as [`Event::Skipped`] and counted in [`ListEnd::skipped`]. By default, the list ends
    /// in an error that names the item. An item that declares more than 2³¹-1 bytes, which protobuf does not allow, is
    /// always an error.
    #[must_use]
    pub fn skip_item_errors(mut self, skip: bool) -> Self {
        self.set_skips(skip);
        self
    }

    /// Consumes bytes from the front of `input` and returns the next event.
    ///
    /// `None` means that all of `input` is consumed and the decoder needs more.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the body is not a list, is malformed, exceeds a limit, or contains an error of the API
    /// server. Every later call returns the same error.
    pub fn decode<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Result<Option<Event<'s>>, DecodeError> {
        Ok(self.advance(input)?.map(|found| self.event(found)))
    }

    /// Consumes bytes from the front of `input` and calls `on_event` for each event.
    ///
    /// This is the callback form of [`decode`](Self::decode). After a `Break` or an error, the rest of the chunk stays
    /// in `input`. If the callback panics, the decoder is poisoned.
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
    /// The same as [`decode`](Self::decode).
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

    /// Ends the body, and returns the metadata and the counts if the list is complete. It may be called again.
    ///
    /// A protobuf list is complete when the body contains as many bytes as its envelope declared and then ends on a
    /// field boundary. Such an end cannot lose an item: kube-apiserver writes two empty fields after the list, which
    /// another server may omit. A JSON list is complete at its closing brace, after which only white space may follow.
    ///
    /// # Errors
    ///
    /// [`DecodeErrorKind::Incomplete`] when the body ended before the list did, or the error that
    /// [`decode`](Self::decode) returned.
    pub fn finish(&mut self) -> Result<ListEnd, DecodeError> {
        self.check()?;
        if let Some(Ok(end)) = &self.end {
            return Ok(ListEnd::clone(end));
        }
        let list = self.body.list();
        if !self.body.is_complete() {
            let index = self.body.unfinished_item();
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

    /// Returns how many bytes of the body were consumed so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.body.list().position
    }

    /// Returns the offset at which the list should end, a few bytes before the end of the body.
    ///
    /// The offset is known once the envelope was read. JSON declares no lengths, so for JSON it is always `None`.
    #[must_use]
    pub fn expected_bytes(&self) -> Option<u64> {
        match &self.body {
            ListBodyDecoder::Start { .. } => None,
            ListBodyDecoder::Known(body) => body.expected_bytes(),
        }
    }

    /// Returns the type meta, which is empty until [`Event::TypeMeta`].
    #[must_use]
    pub fn type_meta(&self) -> &TypeMeta {
        &self.body.list().type_meta
    }

    /// Returns the list meta that was read so far.
    #[must_use]
    pub fn list_meta(&self) -> &ListMeta {
        &self.body.list().list_meta
    }

    /// Returns how many items were delivered so far.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.body.list().items
    }

    pub(crate) fn skipped(&self) -> u64 {
        self.body.list().skipped
    }

    pub(crate) fn encoding(&self) -> Option<Encoding> {
        match &self.body {
            ListBodyDecoder::Start { .. } => None,
            ListBodyDecoder::Known(body) => Some(body.encoding()),
        }
    }

    /// Returns the bytes of the magic number that were read, while nothing else was.
    pub(crate) fn magic_read(&self) -> &'static [u8] {
        let ListBodyDecoder::Start { encoding, matched, .. } = self.body else { return &[] };
        magic(encoding).get(..matched).unwrap_or_default()
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.body.list_mut().limits = limits;
    }

    pub(crate) fn set_skips(&mut self, skips: bool) {
        self.body.list_mut().skips_oversized = skips;
    }

    /// Calls `on_event` with the next event. If `on_event` panics, the decoder is poisoned.
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

    /// Refuses the item that was borrowed last: counts it as skipped and returns its error, or ends the list in the
    /// error.
    pub(crate) fn refuse_item(&mut self, error: ItemError, skips: bool) -> Result<DecodeError, DecodeError> {
        let list = self.body.list_mut();
        list.items -= 1;
        let error = list.item_error(DecodeErrorKind::Item(error));
        if !skips {
            return Err(self.fail(error));
        }
        list.skipped += 1;
        Ok(error)
    }

    /// Ends the list in an error, because the type reads items of another kind.
    pub(crate) fn refuse_kind(&mut self, error: ItemError) -> DecodeError {
        let kind = match error {
            ItemError::WrongKind { found, expected } => DecodeErrorKind::WrongKind { found, expected },
            error => DecodeErrorKind::Item(error),
        };
        let error = self.body.list().error(kind);
        self.fail(error)
    }

    pub(crate) fn skip_item(&mut self) {
        let list = self.body.list_mut();
        list.items -= 1;
        list.skipped += 1;
    }

    fn event<'s>(&'s self, found: FoundEvent<'s>) -> Event<'s> {
        let list = self.body.list();
        let item = |bytes| {
            let encoding = self.encoding().unwrap_or(Encoding::Protobuf);
            let index = list.index() - 1;
            let BodyState { type_meta, field_start: offset, limits: Limits { decoded_size, .. }, .. } = list;
            Event::Item(ItemRef {
                bytes,
                encoding,
                type_meta,
                index,
                offset: *offset,
                decoded_size: *decoded_size,
                ends: &[],
            })
        };
        match found {
            FoundEvent::TypeMeta => Event::TypeMeta(&list.type_meta),
            FoundEvent::ListMeta => Event::ListMeta(&list.list_meta),
            FoundEvent::Item(bytes) => item(bytes),
            FoundEvent::SplitItem => item(&list.scratch),
            FoundEvent::Oversized => list.oversized.as_ref().map_or(Event::ListMeta(&list.list_meta), Event::Skipped),
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

    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
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

impl ListBodyDecoder {
    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        while let Self::Start { list, encoding, matched } = self {
            let Some(&byte) = input.first() else { return Ok(None) };
            let unexpected = |found| DecodeErrorKind::UnexpectedEncoding(found);
            if *matched == 0 {
                match Beginning::of(byte, list.position == 0) {
                    Beginning::Space if list.position < list.limits.bytes => {
                        list.take(1, input);
                        continue;
                    }
                    Beginning::Space => {
                        let max = list.limits.bytes;
                        return Err(list.error(DecodeErrorKind::Limit { limit: Limit::Bytes, size: max + 1, max }));
                    }
                    Beginning::Encoded(found) if list.accepts(found) => *encoding = found,
                    Beginning::Encoded(_) | Beginning::Other(_) => {
                        return Err(list.error(unexpected(BodyFormat::by_first_byte(byte))));
                    }
                }
            } else if magic(*encoding).get(*matched) != Some(&byte) {
                let first = magic(*encoding).first().copied().unwrap_or_default();
                return Err(list.error(unexpected(BodyFormat::by_first_byte(first))));
            }
            if *matched < magic(*encoding).len() {
                list.take(1, input);
                *matched += 1;
            }
            if *matched == magic(*encoding).len() {
                let list = mem::take(list);
                *self = Self::Known(map_codec!(*encoding, C => C::list(list)));
            }
        }
        match self {
            Self::Start { .. } => Ok(None),
            Self::Known(body) => body.advance(input),
        }
    }

    fn is_complete(&self) -> bool {
        match self {
            Self::Start { .. } => false,
            Self::Known(body) => body.is_complete(),
        }
    }

    fn unfinished_item(&self) -> Option<u64> {
        match self {
            Self::Start { .. } => None,
            Self::Known(body) => body.unfinished_item(),
        }
    }

    fn list(&self) -> &BodyState {
        match self {
            Self::Start { list, .. } => list,
            Self::Known(body) => body.list(),
        }
    }

    fn list_mut(&mut self) -> &mut BodyState {
        match self {
            Self::Start { list, .. } => list,
            Self::Known(body) => body.list_mut(),
        }
    }
}

fn magic(encoding: Encoding) -> &'static [u8] {
    with_codec!(encoding, C => C::MAGIC)
}

impl Default for ListDecoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows the position but no bytes of items, because these may be Secrets.
impl fmt::Debug for ListDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListDecoder")
            .field("position", &self.position())
            .field("items", &self.items())
            .field("skipped", &self.body.list().skipped)
            .finish_non_exhaustive()
    }
}
