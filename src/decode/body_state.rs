//! The state that the decoders of all encodings share: the position, the counts and the buffer of split items.

use crate::error::{DecodeError, DecodeErrorKind, Limit};
use crate::limits::Limits;
use crate::meta::{ListMeta, TypeMeta};

/// The progress of a decoder through a body, in any encoding.
#[derive(Default)]
pub(super) struct BodyState {
    pub(super) limits: Limits,
    /// True if JSON is accepted in addition to protobuf.
    pub(super) accepts_json: bool,
    /// True if items over the size limit are skipped.
    pub(super) skips_oversized: bool,
    /// Bytes consumed so far.
    pub(super) position: u64,
    /// The offset of the current field.
    pub(super) field_start: u64,
    /// The bytes of an item or a string that is split over chunks.
    pub(super) scratch: Vec<u8>,
    pub(super) type_meta: TypeMeta,
    pub(super) list_meta: ListMeta,
    pub(super) items: u64,
    pub(super) skipped: u64,
    /// The error of the last item over the size limit that was skipped.
    pub(super) oversized: Option<DecodeError>,
}

/// An [`Event`](super::event::Event) without the data that it borrows from the decoder.
#[derive(Clone, Copy)]
pub(super) enum FoundEvent<'i> {
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
    /// Returns the index of the next item.
    pub(super) fn index(&self) -> u64 {
        self.items + self.skipped
    }

    /// Returns an error at the current field.
    pub(super) fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(kind, self.field_start, None, self.items)
    }

    /// Returns an error at the current field, which is the next item.
    pub(super) fn item_error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(kind, self.field_start, Some(self.index()), self.items)
    }

    /// Skips the next item, which is over the size limit.
    pub(super) fn skip_oversized(&mut self, size: u64) -> FoundEvent<'static> {
        let kind = DecodeErrorKind::Limit { limit: Limit::ItemSize, size, max: self.limits.item_size };
        self.oversized = Some(self.item_error(kind));
        self.skipped += 1;
        FoundEvent::Oversized
    }

    /// Consumes up to `len` bytes.
    #[inline]
    pub(super) fn take<'i>(&mut self, len: u64, input: &mut &'i [u8]) -> &'i [u8] {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (taken, rest) = input.split_at_checked(len).unwrap_or((input, &[]));
        *input = rest;
        self.position += taken.len() as u64;
        taken
    }

    /// Appends a piece to `scratch`, which grows with the bytes received, up to the size of the whole. So the old and
    /// the new buffer, which exist together during a copy, take at most twice the whole.
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
