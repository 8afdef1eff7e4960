//! The state that the decoders of all encodings share: the position, the counts and the buffer of split items.

use crate::error::{DecodeError, DecodeErrorKind, Limit};
use crate::limits::Limits;
use crate::meta::{ListMeta, TypeMeta};
use crate::wire::Encoding;

/// The progress of a decoder through a body, in any encoding.
#[derive(Default)]
pub(crate) struct BodyState {
    pub(crate) limits: Limits,
    /// True if JSON is accepted in addition to protobuf.
    pub(crate) accepts_json: bool,
    /// True if items over the size limit are skipped.
    pub(crate) skips_oversized: bool,
    /// Bytes consumed so far.
    pub(crate) position: u64,
    /// The offset of the current field.
    pub(crate) field_start: u64,
    /// The bytes of an item or a string that is split over chunks.
    pub(crate) scratch: Vec<u8>,
    pub(crate) type_meta: TypeMeta,
    pub(crate) list_meta: ListMeta,
    pub(crate) items: u64,
    pub(crate) skipped: u64,
    /// The error of the last item over the size limit that was skipped.
    pub(crate) oversized: Option<DecodeError>,
}

/// An [`Event`](crate::Event) without the data that it borrows from the decoder.
#[derive(Clone, Copy)]
pub(crate) enum FoundEvent<'i> {
    TypeMeta,
    ListMeta,
    /// An item that is whole in the input.
    Item(&'i [u8]),
    /// An item in `scratch`.
    SplitItem,
    /// An item that was skipped, whose error is in `oversized`.
    Oversized,
}

impl BodyState {
    pub(crate) fn accepts(&self, encoding: Encoding) -> bool {
        match encoding {
            Encoding::Protobuf => true,
            Encoding::Json => self.accepts_json,
        }
    }

    pub(crate) fn index(&self) -> u64 {
        self.items + self.skipped
    }

    pub(crate) fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(kind, self.field_start, None, self.items)
    }

    /// Returns an error at the current field, which begins the next item.
    pub(crate) fn item_error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(kind, self.field_start, Some(self.index()), self.items)
    }

    pub(crate) fn unexpected_kind(&self) -> DecodeErrorKind {
        let TypeMeta { api_version, kind } = self.type_meta.clone();
        DecodeErrorKind::UnexpectedKind { api_version, kind }
    }

    pub(crate) fn skip_oversized(&mut self, size: u64) -> FoundEvent<'static> {
        let kind = DecodeErrorKind::Limit { limit: Limit::ItemSize, size, max: self.limits.item_size };
        self.oversized = Some(self.item_error(kind));
        self.skipped += 1;
        FoundEvent::Oversized
    }

    #[inline]
    pub(crate) fn take<'i>(&mut self, len: u64, input: &mut &'i [u8]) -> &'i [u8] {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (taken, rest) = input.split_at_checked(len).unwrap_or((input, &[]));
        *input = rest;
        self.position += taken.len() as u64;
        taken
    }

    /// Appends a piece to `scratch`, which grows with the received bytes, up to the size of the whole. During a copy,
    /// the old and the new buffer together take at most twice this size.
    #[inline]
    pub(crate) fn keep(&mut self, piece: &[u8], left: u64) {
        let needed = self.scratch.len() + piece.len();
        if needed > self.scratch.capacity() {
            let whole = usize::try_from(left).map_or(usize::MAX, |left| needed.saturating_add(left));
            let capacity = self.scratch.capacity().saturating_mul(2).clamp(needed, whole);
            self.scratch.reserve_exact(capacity - self.scratch.len());
        }
        self.scratch.extend_from_slice(piece);
    }
}
