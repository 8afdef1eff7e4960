//! The state machine that walks the protobuf body of a list.
//!
//! For maintainers: only `step` consumes bytes from the front of the input. It must be correct when the input ends
//! after any byte, so [`ProtobufListState`] holds everything that is half read. Each declared length is checked against
//! the enclosing message at once, so the position never runs past `self.walked.end`. Code that finishes a field must
//! call `end_field`, which leaves the messages that end there.
//!
//! ```text
//! Tag ──┬──> Length ──┬──> Item ────┐
//!  ^    │             ├──> Collect ─┤   (a string, or a whole Status)
//!  │    ├──> Value ───┤             │
//!  │    ├─────────────┴──> Skip ────┤
//!  │    └──> Appended ──> Tag of a new envelope
//!  └────────────────────────────────┘
//! ```

use std::mem;

use super::list_fields::{ListField, ListMessage, ListShape, ListText};
use super::messages;
use crate::encoding::body_state::{BodyState, FoundEvent};
use crate::encoding::codec::ListBody;
use crate::encoding::protobuf::wire::{MAX_GROUP_DEPTH, Tag, Varint, WireType};
use crate::error::{DecodeError, DecodeErrorKind, Fault, Limit};
use crate::limits::Limits;
use crate::meta::{MAGIC, TypeMeta};

const MAX_ITEM_LEN: u64 = i32::MAX as u64;

pub(crate) struct ProtobufList {
    /// Invariant: `list.position <= walked.end`. `field_start` is the offset of the current field's tag.
    pub(crate) list: BodyState,
    state: ProtobufListState,
    /// The innermost message at the position; `parents` are the enclosing messages.
    walked: Walked,
    parents: Vec<Walked>,
    /// The unknown groups at the position. Invariant: no more than [`MAX_GROUP_DEPTH`].
    groups: Vec<u32>,
    /// The offset of the end of `raw`, once the envelope has been read.
    raw_end: Option<u64>,
    /// The offset of a Status that the API server appended: a new envelope begins there.
    appended_at: Option<u64>,
}

enum ProtobufListState {
    Tag(Varint),
    Length {
        field: Option<ListField>,
        varint: Varint,
    },
    Value {
        field: Option<ListField>,
        varint: Varint,
    },
    Skip {
        left: u64,
        /// True for an item over the size limit.
        is_item: bool,
    },
    Collect {
        what: Collected,
        left: u64,
    },
    Item {
        left: u64,
    },
    /// After a `k` at a field boundary: either `k8s\0` and a Status, or an unknown group with the number 13.
    Appended {
        matched: usize,
    },
}

#[derive(Clone, Copy)]
enum Collected {
    Text(ListText),
    Status,
}

/// A message and the offset of its end.
#[derive(Clone, Copy)]
struct Walked {
    message: ListMessage,
    end: u64,
}

impl ProtobufList {
    pub(crate) fn new(list: BodyState) -> Self {
        Self {
            list,
            state: ProtobufListState::Tag(Varint::default()),
            walked: Walked::ENVELOPE,
            parents: Vec::new(),
            groups: Vec::new(),
            raw_end: None,
            appended_at: None,
        }
    }

    /// Returns an error at the current field, with its index if the field is an item.
    fn error(&self, field: Option<ListField>, kind: DecodeErrorKind) -> DecodeError {
        if field == Some(ListField::Items) { self.list.item_error(kind) } else { self.list.error(kind) }
    }

    fn malformed(&self, field: Option<ListField>, fault: Fault) -> DecodeError {
        let name = field.map_or("an unknown field", ListField::name);
        self.error(field, DecodeErrorKind::Malformed { field: name, fault })
    }

    fn over(&self, field: Option<ListField>, limit: Limit, size: u64, max: u64) -> DecodeError {
        self.error(field, DecodeErrorKind::Limit { limit, size, max })
    }

    /// Advances by one state. `input` is not empty.
    fn step<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        match self.state {
            ProtobufListState::Tag(varint) => self.tag(varint, input),
            ProtobufListState::Length { field, varint } => self.length(field, varint, input),
            ProtobufListState::Value { field, mut varint } => {
                let Some(value) = self.varint(&mut varint, field, input)? else {
                    self.state = ProtobufListState::Value { field, varint };
                    return Ok(None);
                };
                if field == Some(ListField::RemainingItemCount) {
                    self.list.list_meta.remaining_item_count = Some(value.cast_signed());
                }
                Ok(self.end_field())
            }
            ProtobufListState::Skip { left, is_item } => {
                let taken = self.list.take(left, input).len() as u64;
                Ok(self.skip(left - taken, is_item))
            }
            ProtobufListState::Collect { what, left } => self.collect(what, left, input),
            ProtobufListState::Item { left } => Ok(self.item(left, input)),
            ProtobufListState::Appended { matched } => self.appended(matched, input),
        }
    }

    fn tag<'i>(&mut self, mut varint: Varint, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        if varint.is_empty() {
            self.list.field_start = self.list.position;
        }
        let Some(tag) = self.varint(&mut varint, None, input)? else {
            self.state = ProtobufListState::Tag(varint);
            return Ok(None);
        };
        let tag = Tag::new(tag).map_err(|fault| self.malformed(None, fault))?;
        let field = if self.groups.is_empty() { self.walked.message.field(tag.number) } else { None };
        if field.is_some_and(|field| field.wire_type() != tag.wire_type) {
            return Err(self.malformed(field, Fault::WireType));
        }
        match tag.wire_type {
            WireType::Varint => self.state = ProtobufListState::Value { field, varint: Varint::default() },
            WireType::Len => return self.length(field, Varint::default(), input),
            WireType::Fixed64 => return self.begin(None, 8, input),
            WireType::Fixed32 => return self.begin(None, 4, input),
            WireType::StartGroup if self.may_be_appended(tag) => {
                self.state = ProtobufListState::Appended { matched: 1 }
            }
            WireType::StartGroup => self.start_group(tag.number)?,
            WireType::EndGroup if self.groups.pop() == Some(tag.number) => return Ok(self.end_field()),
            WireType::EndGroup => return Err(self.malformed(None, Fault::EndGroup)),
        }
        Ok(None)
    }

    fn length<'i>(
        &mut self,
        field: Option<ListField>,
        mut varint: Varint,
        input: &mut &'i [u8],
    ) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        let Some(len) = self.varint(&mut varint, field, input)? else {
            self.state = ProtobufListState::Length { field, varint };
            return Ok(None);
        };
        self.begin(field, len, input)
    }

    fn start_group(&mut self, number: u32) -> Result<(), DecodeError> {
        if self.groups.len() == MAX_GROUP_DEPTH {
            return Err(self.malformed(None, Fault::GroupDepth));
        }
        self.groups.push(number);
        self.state = ProtobufListState::Tag(Varint::default());
        Ok(())
    }

    /// Returns true if the tag is a `k` where the server may append a Status: between the fields of the list or
    /// envelope.
    fn may_be_appended(&self, tag: Tag) -> bool {
        let is_k = tag.number == u32::from(MAGIC[0] >> 3) && self.list.position - self.list.field_start == 1;
        let between =
            matches!(self.walked.message, ListMessage::Envelope | ListMessage::List(_)) && self.groups.is_empty();
        is_k && between && self.appended_at.is_none()
    }

    fn appended<'i>(&mut self, matched: usize, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        if input.first() == MAGIC.get(matched) {
            self.list.take(1, input);
            self.state = ProtobufListState::Appended { matched: matched + 1 };
            if matched + 1 == MAGIC.len() {
                self.appended_at = Some(self.list.field_start);
                self.list.type_meta = TypeMeta::default();
                (self.walked, self.parents) = (Walked::ENVELOPE, Vec::new());
                self.state = ProtobufListState::Tag(Varint::default());
            }
            return Ok(None);
        }
        // It is a group, so the bytes that matched the magic are walked again.
        let mut again = MAGIC.get(1..matched).unwrap_or_default();
        self.list.position -= again.len() as u64;
        self.start_group(u32::from(MAGIC[0] >> 3))?;
        while !again.is_empty() {
            self.step(&mut again)?;
        }
        Ok(None)
    }

    /// Begins the value of a length-delimited or fixed-size field, and checks its declared length.
    fn begin<'i>(
        &mut self,
        field: Option<ListField>,
        len: u64,
        input: &mut &'i [u8],
    ) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        if field == Some(ListField::Items) && len > MAX_ITEM_LEN {
            return Err(self.malformed(field, Fault::TooLong));
        }
        let end = match self.list.position.checked_add(len) {
            Some(end) if end <= self.walked.end => end,
            _ => return Err(self.malformed(field, Fault::PastParent)),
        };
        if end > self.list.limits.bytes {
            return Err(self.over(field, Limit::Bytes, end, self.list.limits.bytes));
        }
        match field {
            None | Some(ListField::RemainingItemCount) => Ok(self.skip(len, false)),
            Some(ListField::Content(_)) if len > 0 => Err(self.malformed(field, Fault::NotEmpty)),
            Some(ListField::Content(_)) => Ok(self.end_field()),
            Some(ListField::TypeMeta) if self.raw_end.is_some() && self.appended_at.is_none() => {
                Err(self.malformed(field, Fault::Twice))
            }
            Some(ListField::TypeMeta) => Ok(self.enter(ListMessage::TypeMeta, end)),
            Some(ListField::Raw) => self.begin_raw(end, input),
            Some(ListField::ListMeta) => Ok(self.enter(ListMessage::ListMeta, end)),
            Some(ListField::ShardInfo) => {
                self.list.list_meta.shard_info.get_or_insert_default();
                Ok(self.enter(ListMessage::ShardInfo, end))
            }
            Some(ListField::Text(text)) => self.begin_collecting(field, Collected::Text(text), len, input),
            Some(ListField::Items) => self.begin_item(len, input),
        }
    }

    fn begin_raw<'i>(&mut self, end: u64, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        let field = Some(ListField::Raw);
        if self.raw_end.is_some() && self.appended_at.is_none() {
            return Err(self.malformed(field, Fault::Twice));
        }
        if self.list.type_meta.kind.is_empty() {
            return Err(self.malformed(field, Fault::Order));
        }
        if end == self.list.position {
            return Err(self.malformed(field, Fault::Empty));
        }
        if self.list.type_meta.is("v1", "Status") {
            return self.begin_collecting(field, Collected::Status, end - self.list.position, input);
        }
        if self.appended_at.is_some() {
            return Err(self.malformed(field, Fault::Status));
        }
        let Some(shape) = ListShape::of(&self.list.type_meta) else {
            return Err(self.error(field, self.list.unexpected_kind()));
        };
        self.raw_end = Some(end);
        self.enter(ListMessage::List(shape), end);
        Ok(Some(FoundEvent::TypeMeta))
    }

    fn begin_item<'i>(&mut self, len: u64, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        let Limits { items, item_size, .. } = self.list.limits;
        let field = Some(ListField::Items);
        if self.list.index() >= items {
            return Err(self.over(field, Limit::Items, self.list.index() + 1, items));
        }
        if len > item_size {
            if !self.list.skips_oversized {
                return Err(self.over(field, Limit::ItemSize, len, item_size));
            }
            let found = self.list.skip_oversized(len);
            self.skip(len, true);
            return Ok(Some(found));
        }
        self.list.scratch.clear();
        Ok(self.item(len, input))
    }

    fn item<'i>(&mut self, left: u64, input: &mut &'i [u8]) -> Option<FoundEvent<'i>> {
        let piece = self.list.take(left, input);
        let left = left - piece.len() as u64;
        if left > 0 {
            self.list.keep(piece, left);
            self.state = ProtobufListState::Item { left };
            return None;
        }
        self.list.items += 1;
        self.end_field();
        if self.list.scratch.is_empty() {
            return Some(FoundEvent::Item(piece));
        }
        self.list.keep(piece, 0);
        Some(FoundEvent::SplitItem)
    }

    fn begin_collecting<'i>(
        &mut self,
        field: Option<ListField>,
        what: Collected,
        len: u64,
        input: &mut &'i [u8],
    ) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        let max = self.list.limits.metadata_size;
        if len > max {
            return Err(self.over(field, Limit::MetadataSize, len, max));
        }
        self.list.scratch.clear();
        self.collect(what, len, input)
    }

    fn collect<'i>(
        &mut self,
        what: Collected,
        left: u64,
        input: &mut &'i [u8],
    ) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        let piece = self.list.take(left, input);
        let left = left - piece.len() as u64;
        self.list.keep(piece, left);
        if left > 0 {
            self.state = ProtobufListState::Collect { what, left };
            return Ok(None);
        }
        match what {
            Collected::Text(text) => {
                let Ok(value) = str::from_utf8(&self.list.scratch) else {
                    return Err(self.malformed(Some(ListField::Text(text)), Fault::Utf8));
                };
                let value = value.to_owned();
                match text {
                    ListText::ApiVersion => self.list.type_meta.api_version = value,
                    ListText::Kind => self.list.type_meta.kind = value,
                    ListText::ResourceVersion => self.list.list_meta.resource_version = value,
                    ListText::Continue => self.list.list_meta.continue_token = value,
                    ListText::Selector => self.list.list_meta.shard_info.get_or_insert_default().selector = value,
                }
                Ok(self.end_field())
            }
            Collected::Status => {
                let status = messages::status(&self.list.scratch)
                    .ok_or_else(|| self.malformed(Some(ListField::Raw), Fault::Status))?;
                let kind = DecodeErrorKind::Api(status.into());
                Err(DecodeError::new(kind, self.appended_at.unwrap_or(0), None, self.list.items))
            }
        }
    }

    fn skip<'i>(&mut self, left: u64, is_item: bool) -> Option<FoundEvent<'i>> {
        if left == 0 {
            return self.end_field();
        }
        self.state = ProtobufListState::Skip { left, is_item };
        None
    }

    fn enter<'i>(&mut self, message: ListMessage, end: u64) -> Option<FoundEvent<'i>> {
        self.parents.push(mem::replace(&mut self.walked, Walked { message, end }));
        self.end_field()
    }

    /// Ends a field, and leaves the messages that end with it.
    fn end_field<'i>(&mut self) -> Option<FoundEvent<'i>> {
        self.state = ProtobufListState::Tag(Varint::default());
        let mut found = None;
        while self.list.position == self.walked.end && self.groups.is_empty() {
            let Some(parent) = self.parents.pop() else { break };
            if self.walked.message == ListMessage::ListMeta {
                found = Some(FoundEvent::ListMeta);
            }
            self.walked = parent;
        }
        found
    }

    /// Reads a varint, which must end within its message. Returns `None` if it continues in the next chunk.
    fn varint(
        &mut self,
        varint: &mut Varint,
        field: Option<ListField>,
        input: &mut &[u8],
    ) -> Result<Option<u64>, DecodeError> {
        while let Some((&byte, rest)) = input.split_first() {
            if self.list.position >= self.walked.end {
                return Err(self.malformed(field, Fault::PastParent));
            }
            if self.list.position >= self.list.limits.bytes {
                return Err(self.over(field, Limit::Bytes, self.list.position + 1, self.list.limits.bytes));
            }
            *input = rest;
            self.list.position += 1;
            if let Some(value) = varint.push(byte).map_err(|fault| self.malformed(field, fault))? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

impl ListBody for ProtobufList {
    fn is_complete(&self) -> bool {
        matches!(self.state, ProtobufListState::Tag(varint) if varint.is_empty())
            && self.parents.is_empty()
            && self.groups.is_empty()
            && self.raw_end.is_some()
            && self.appended_at.is_none()
    }

    fn unfinished_item(&self) -> Option<u64> {
        match self.state {
            ProtobufListState::Item { .. } => Some(self.list.index()),
            // An oversized item counts as skipped as soon as its length is known.
            ProtobufListState::Skip { is_item: true, .. } => self.list.index().checked_sub(1),
            _ => None,
        }
    }

    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        while !input.is_empty() {
            if let Some(found) = self.step(input)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn expected_bytes(&self) -> Option<u64> {
        self.raw_end
    }

    fn list(&self) -> &BodyState {
        &self.list
    }

    fn list_mut(&mut self) -> &mut BodyState {
        &mut self.list
    }
}

impl Walked {
    const ENVELOPE: Self = Self { message: ListMessage::Envelope, end: u64::MAX };
}
