//! One frame of a watch, as the bodies of all encodings find and read it.

use std::borrow::Cow;

use super::body_state::BodyState;
use super::item_ref::End;
use crate::error::DecodeErrorKind;
use crate::meta::EventType;
use crate::wire::FieldFault;

/// The size above which a buffer for split frames is freed when most of it is unused.
const KEPT_SCRATCH: usize = 64 << 10;

pub(crate) enum FoundFrame<'i> {
    Whole(&'i [u8]),
    /// A frame in `scratch`.
    Split,
}

#[derive(Default)]
pub(crate) struct Frame<'f> {
    pub(crate) event: Option<FrameType>,
    pub(crate) object: Option<&'f [u8]>,
    /// The encoded type meta of a protobuf frame, which is not read yet.
    pub(crate) type_meta: &'f [u8],
    pub(crate) api_version: Cow<'f, str>,
    pub(crate) kind: Cow<'f, str>,
    pub(crate) resource_version: Cow<'f, str>,
    pub(crate) ends_initial_events: bool,
    /// In JSON, the ends of the object and of values in it. May be empty.
    pub(crate) ends: &'f [End],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameType {
    Change(EventType),
    Bookmark,
    Error,
    Unknown,
}

pub(crate) fn malformed((field, fault): FieldFault) -> DecodeErrorKind {
    DecodeErrorKind::Malformed { field, fault }
}

impl BodyState {
    /// Begins a frame at the position. Frees `scratch` if frames have become small again, because one huge object must
    /// not cost memory for hours.
    pub(crate) fn begin_frame(&mut self) {
        self.field_start = self.position;
        let scratch = &mut self.scratch;
        if scratch.capacity() > KEPT_SCRATCH && scratch.len() < scratch.capacity() / 4 {
            *scratch = Vec::new();
        }
        scratch.clear();
    }

    /// Returns the frame that ends with this piece.
    pub(crate) fn end_frame<'i>(&mut self, piece: &'i [u8]) -> FoundFrame<'i> {
        if self.scratch.is_empty() {
            return FoundFrame::Whole(piece);
        }
        self.keep(piece, 0);
        FoundFrame::Split
    }
}

impl FrameType {
    pub(crate) fn of(name: &[u8]) -> Self {
        match name {
            b"ADDED" => Self::Change(EventType::Added),
            b"MODIFIED" => Self::Change(EventType::Modified),
            b"DELETED" => Self::Change(EventType::Deleted),
            b"BOOKMARK" => Self::Bookmark,
            b"ERROR" => Self::Error,
            _ => Self::Unknown,
        }
    }
}
