//! One frame of a watch: its fields, and the event that they form.

use std::borrow::Cow;
use std::mem;

use super::event::WatchEventRef;
use crate::encoding::json::scan::End;
use crate::encoding::protobuf::messages;
use crate::encoding::protobuf::wire::{Fields, Value, WireField, entry};
use crate::error::{DecodeErrorKind, Fault, Limit};
use crate::limits::Limits;
use crate::meta::{EventType, INITIAL_EVENTS_END, MAGIC, Status, TypeMeta};
use crate::object::ItemRef;
use crate::wire::{Encoding, FieldFault, at};

/// The fields of a frame.
#[derive(Default)]
pub(super) struct Frame<'f> {
    pub(super) event: Option<FrameType>,
    pub(super) object: Option<&'f [u8]>,
    /// The encoded type meta, in protobuf, which is not read yet.
    pub(super) type_meta: &'f [u8],
    pub(super) api_version: Cow<'f, str>,
    pub(super) kind: Cow<'f, str>,
    pub(super) resource_version: Cow<'f, str>,
    pub(super) ends_initial_events: bool,
    /// The ends of the object and of values in it, in JSON; or none.
    pub(super) ends: &'f [End],
}

/// The `type` of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameType {
    Change(EventType),
    Bookmark,
    Error,
    Unknown,
}

pub(super) fn malformed((field, fault): FieldFault) -> DecodeErrorKind {
    DecodeErrorKind::Malformed { field, fault }
}

/// The state of the watch that an event needs.
pub(super) struct EventContext<'s> {
    pub(super) encoding: Encoding,
    /// The type meta of the last event, still encoded, in protobuf.
    pub(super) known: &'s mut Vec<u8>,
    pub(super) type_meta: &'s mut TypeMeta,
    pub(super) index: u64,
    pub(super) offset: u64,
}

/// Reads a protobuf frame.
///
/// A frame in the form that servers write is read by its raw tags, in the order of its fields, which reduced the time
/// for an event of a Pod by a third. Other frames, and the rest of a frame, are read field by field. A test compares
/// the two.
impl<'f> Frame<'f> {
    /// Reads a frame into `self`, which is empty. Returning a new `Frame` would copy it.
    #[inline]
    pub(super) fn merge(&mut self, frame: &'f [u8]) -> Result<(), FieldFault> {
        if self.usual_frame(frame).is_none() {
            self.any_frame(frame)?;
        }
        // The first field of a Status is a ListMeta.
        if self.event != Some(FrameType::Error) {
            let mut fields = Fields::new(self.object.unwrap_or_default());
            // metadata, spec, status
            if let Some(metadata) = fields.tagged(0x0a) {
                self.merge_metadata(metadata)?;
            }
            _ = (fields.tagged(0x12), fields.tagged(0x1a));
            for field in fields {
                let WireField { number, value, .. } = field.map_err(at("the object"))?;
                if number == 1 {
                    self.merge_metadata(value.bytes().map_err(at("metadata"))?)?;
                }
            }
        }
        Ok(())
    }

    /// Reads a frame that has each field once, in order, and no other fields. Returns `None` for any other frame.
    fn usual_frame(&mut self, frame: &'f [u8]) -> Option<()> {
        let mut frame = Fields::new(frame);
        let event = FrameType::of(frame.tagged(0x0a)?);
        let mut envelope = Fields::new(Fields::new(frame.sole(0x12)?).sole(0x0a)?.strip_prefix(&MAGIC)?);
        let (type_meta, object) = (envelope.tagged(0x0a)?, envelope.tagged(0x12)?);
        // contentEncoding and contentType, empty.
        let is_all = envelope.rest == b"\x1a\0\x22\0";
        is_all.then(|| (self.event, self.object, self.type_meta) = (Some(event), Some(object), type_meta))
    }

    fn any_frame(&mut self, frame: &'f [u8]) -> Result<(), FieldFault> {
        let mut raw = None;
        for field in Fields::new(frame) {
            let WireField { number, value, .. } = field.map_err(at("the frame"))?;
            match number {
                1 => self.event = Some(FrameType::of(value.bytes().map_err(at("type"))?)),
                2 => raw = last(value, 1).map_err(at("object"))?.or(raw),
                _ => {}
            }
        }
        let Some(raw) = raw else { return Ok(()) };
        let envelope = raw.strip_prefix(&MAGIC).ok_or(("object", Fault::Magic))?;
        let mut object = &b""[..];
        for field in Fields::new(envelope) {
            let WireField { number, value, .. } = field.map_err(at("object"))?;
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

    fn merge_type_meta(&mut self, encoded: &'f [u8]) -> Result<(), FieldFault> {
        for field in Fields::new(encoded) {
            let WireField { number, value, .. } = field.map_err(at("typeMeta"))?;
            match number {
                1 => self.api_version = Cow::Borrowed(value.str().map_err(at("apiVersion"))?),
                2 => self.kind = Cow::Borrowed(value.str().map_err(at("kind"))?),
                _ => {}
            }
        }
        Ok(())
    }

    fn merge_metadata(&mut self, metadata: &'f [u8]) -> Result<(), FieldFault> {
        let mut fields = Fields::new(metadata);
        // The first fields, in order: name to uid, the version, a generation of 0, and creationTimestamp.
        for tag in [0x0a, 0x12, 0x1a, 0x22, 0x2a] {
            fields.tagged(tag);
        }
        if let Some(version) = fields.tagged(0x32) {
            self.set_version(Value::Len(version))?;
        }
        fields.rest = fields.rest.strip_prefix(b"\x38\0").unwrap_or(fields.rest);
        fields.tagged(0x42);
        for field in fields {
            let WireField { number, value, .. } = field.map_err(at("metadata"))?;
            match number {
                6 => self.set_version(value)?,
                12 if self.event == Some(FrameType::Bookmark) => {
                    let (key, value) = entry(value).map_err(at("metadata.annotations"))?;
                    if key == INITIAL_EVENTS_END.as_bytes() {
                        self.ends_initial_events = value == b"true";
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn set_version(&mut self, version: Value<'f>) -> Result<(), FieldFault> {
        self.resource_version = Cow::Borrowed(version.str().map_err(at("metadata.resourceVersion"))?);
        Ok(())
    }

    /// Checks the fields, and borrows the event.
    #[inline]
    pub(super) fn event(
        &mut self,
        context: EventContext<'f>,
        limits: &Limits,
        status: &'f mut Status,
        version: &'f mut String,
    ) -> Result<WatchEventRef<'f>, DecodeErrorKind> {
        let missing = |field| malformed((field, Fault::Missing));
        self.check_sizes(limits)?;
        let event = self.event.ok_or_else(|| missing("type"))?;
        // Some servers send bookmarks without an object.
        let bytes = match self.object {
            None if event == FrameType::Bookmark => &[],
            object => object.ok_or_else(|| missing("object"))?,
        };
        // A type meta that was merged from pieces is never the known one.
        let is_plain = self.api_version.is_empty() && self.kind.is_empty() && !self.type_meta.is_empty();
        let is_known = is_plain && self.type_meta == &**context.known;
        if !is_known || event == FrameType::Error {
            self.merge_type_meta(self.type_meta).map_err(malformed)?;
        }
        if event == FrameType::Error {
            *status = self.status(bytes, context.encoding, limits)?;
            return Ok(WatchEventRef::Error(status));
        }
        let resource_version = match mem::take(&mut self.resource_version) {
            Cow::Borrowed(version) => version,
            Cow::Owned(escaped) => {
                *version = escaped;
                version
            }
        };
        if resource_version.is_empty() && matches!(event, FrameType::Change(EventType::Added | EventType::Modified)) {
            return Err(missing("metadata.resourceVersion"));
        }
        let EventContext { encoding, known, type_meta, index, offset } = context;
        if !is_known {
            set(&mut type_meta.api_version, &self.api_version);
            set(&mut type_meta.kind, &self.kind);
            known.clear();
            if is_plain {
                known.extend_from_slice(self.type_meta);
            }
        }
        let object =
            ItemRef { bytes, encoding, type_meta, index, offset, decoded_size: limits.decoded_size, ends: self.ends };
        Ok(match event {
            FrameType::Change(EventType::Added) => WatchEventRef::Added { object, resource_version },
            FrameType::Change(EventType::Modified) => WatchEventRef::Modified { object, resource_version },
            FrameType::Change(EventType::Deleted) => WatchEventRef::Deleted { object, resource_version },
            FrameType::Bookmark => {
                WatchEventRef::Bookmark { resource_version, ends_initial_events: self.ends_initial_events }
            }
            FrameType::Error | FrameType::Unknown => return Err(malformed(("type", Fault::Unknown))),
        })
    }

    #[inline]
    fn check_sizes(&self, limits: &Limits) -> Result<(), DecodeErrorKind> {
        // The decoder keeps these texts for the duration of the watch.
        let max = limits.metadata_size;
        for len in [self.type_meta.len(), self.api_version.len(), self.kind.len(), self.resource_version.len()] {
            let size = len as u64;
            if size > max {
                return Err(DecodeErrorKind::Limit { limit: Limit::MetadataSize, size, max });
            }
        }
        Ok(())
    }

    /// Reads the object of an error event.
    fn status(&self, bytes: &[u8], encoding: Encoding, limits: &Limits) -> Result<Status, DecodeErrorKind> {
        let is_status = self.kind == "Status" || self.kind.is_empty();
        let (size, max) = (bytes.len() as u64, limits.metadata_size);
        if is_status && size > max {
            return Err(DecodeErrorKind::Limit { limit: Limit::MetadataSize, size, max });
        }
        let read = match encoding {
            Encoding::Protobuf => messages::status(bytes),
            Encoding::Json => crate::encoding::json::messages::status(bytes),
        };
        read.filter(|_| is_status).ok_or_else(|| malformed(("object", Fault::Status)))
    }
}

impl FrameType {
    pub(super) fn of(name: &[u8]) -> Self {
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

/// Returns the bytes of the last field with this number.
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

fn expect_empty(value: Value<'_>) -> Result<(), Fault> {
    if value.bytes()?.is_empty() { Ok(()) } else { Err(Fault::NotEmpty) }
}

/// Sets a text, which is usually the same as for the last event.
fn set(place: &mut String, text: &str) {
    if place != text {
        text.clone_into(place);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding::encode_varint;

    use super::*;

    /// Reads the frame field by field.
    fn plain<'f>(frame: &mut Frame<'f>, bytes: &'f [u8]) -> Result<(), FieldFault> {
        frame.any_frame(bytes)?;
        for field in Fields::new(frame.object.filter(|_| frame.event != Some(FrameType::Error)).unwrap_or_default()) {
            let WireField { number, value, .. } = field.map_err(at("the object"))?;
            let metadata = if number == 1 { value.bytes().map_err(at("metadata"))? } else { &[] };
            for field in Fields::new(metadata) {
                let WireField { number, value, .. } = field.map_err(at("metadata"))?;
                if number == 6 {
                    frame.set_version(value)?;
                }
                if number == 12 && frame.event == Some(FrameType::Bookmark) {
                    let (key, value) = entry(value).map_err(at("metadata.annotations"))?;
                    if key == INITIAL_EVENTS_END.as_bytes() {
                        frame.ends_initial_events = value == b"true";
                    }
                }
            }
        }
        Ok(())
    }

    /// Event, object, texts of the type meta and version, end of the initial events.
    type Outcome<'f> = (Option<FrameType>, Option<&'f [u8]>, [String; 3], bool);

    /// Returns all fields that `merge` reads of a frame, and the type meta.
    fn read<'f>(
        bytes: &'f [u8],
        merge: impl FnOnce(&mut Frame<'f>, &'f [u8]) -> Result<(), FieldFault>,
    ) -> Result<Outcome<'f>, FieldFault> {
        let mut frame = Frame::default();
        merge(&mut frame, bytes)?;
        frame.merge_type_meta(frame.type_meta)?;
        let texts = [frame.api_version, frame.kind, frame.resource_version].map(Cow::into_owned);
        Ok((frame.event, frame.object, texts, frame.ends_initial_events))
    }

    fn field(tag: u8, value: &[u8]) -> Vec<u8> {
        let mut field = vec![tag];
        encode_varint(value.len() as u64, &mut field);
        [&field, value].concat()
    }

    /// Generates most of these fields, mostly in their order.
    fn message(fields: Vec<BoxedStrategy<Vec<u8>>>) -> impl Strategy<Value = Vec<u8>> {
        let swaps = prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..2);
        (fields, swaps, prop::option::weighted(0.2, any::<prop::sample::Index>())).prop_map(
            |(mut fields, swaps, left_out)| {
                for (a, b) in swaps {
                    let (a, b) = (a.index(fields.len()), b.index(fields.len()));
                    fields.swap(a, b);
                }
                if let Some(left_out) = left_out {
                    let _ = fields.remove(left_out.index(fields.len()));
                }
                fields.concat()
            },
        )
    }

    fn text(tag: u8, pattern: &'static str) -> BoxedStrategy<Vec<u8>> {
        pattern.prop_map(move |text: String| field(tag, text.as_bytes())).boxed()
    }

    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let bookmark = field(0x62, &[field(0x0a, INITIAL_EVENTS_END.as_bytes()), field(0x12, b"true")].concat());
        let metadata = message(vec![
            text(0x0a, "[a-z]{0,9}"),
            text(0x12, "[a-z]{0,3}"),
            text(0x1a, "[a-z]{0,200}"),
            text(0x2a, "[a-z]{0,9}"),
            text(0x32, "[0-9]{0,9}"),
            Just(b"\x38\0".to_vec()).boxed(),
            Just(field(0x42, b"\x08\x01")).boxed(),
            Just(bookmark).boxed(),
        ]);
        let metadata = metadata.prop_map(|metadata| field(0x0a, &metadata)).boxed();
        let object = message(vec![metadata, text(0x12, "[a-z]{0,20}"), text(0x1a, "[a-z]{0,3}")]);
        let type_meta = message(vec![text(0x0a, "v1"), text(0x12, "Pod|Status")]);
        let envelope = message(vec![
            type_meta.prop_map(|type_meta| field(0x0a, &type_meta)).boxed(),
            object.prop_map(|object| field(0x12, &object)).boxed(),
            Just(b"\x1a\0".to_vec()).boxed(),
            Just(b"\x22\0".to_vec()).boxed(),
        ]);
        let raw = envelope.prop_map(|envelope| field(0x12, &field(0x0a, &[&MAGIC[..], &envelope].concat()))).boxed();
        let frame = message(vec![text(0x0a, "ADDED|MODIFIED|BOOKMARK|ERROR|DONE"), raw]);
        let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2);
        (frame, edits).prop_map(|(mut frame, edits)| {
            for (at, byte) in edits {
                if !frame.is_empty() {
                    let at = at.index(frame.len());
                    frame[at] = byte;
                }
            }
            frame
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_fast_path_reads_the_same_as_the_plain_code(bytes in frame()) {
            prop_assert_eq!(read(&bytes, Frame::merge), read(&bytes, plain));
        }
    }

    #[test]
    fn a_servers_frame_takes_the_fast_path() {
        let metadata = [field(0x0a, b"name"), field(0x32, b"7")].concat();
        let object = [field(0x0a, &metadata), field(0x12, b""), field(0x1a, b"")].concat();
        let type_meta = [field(0x0a, b"v1"), field(0x12, b"Pod")].concat();
        let envelope = [&MAGIC[..], &field(0x0a, &type_meta), &field(0x12, &object), b"\x1a\0\x22\0"].concat();
        let bytes = [field(0x0a, b"ADDED"), field(0x12, &field(0x0a, &envelope))].concat();
        let mut frame = Frame::default();
        assert_eq!(frame.usual_frame(&bytes), Some(()));
        assert_eq!(frame.object, Some(&object[..]));
    }
}
