//! Protobuf, as Go writes and reads it.

pub(crate) mod canonical;
pub(crate) mod decode;
pub(crate) mod list;
pub(crate) mod list_fields;
pub(crate) mod messages;
pub(crate) mod metadata;
pub(crate) mod path;
pub(crate) mod projection;
pub(crate) mod to_json;
pub(crate) mod unknown;
pub(crate) mod value;
pub(crate) mod watch;
pub(crate) mod wire;
pub(crate) mod write;
pub(crate) mod zero;

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use self::list::ProtobufList;
use self::metadata::ProtobufMetadata;
use self::path::ValuesByNumber;
use self::watch::ProtobufWatch;
use self::wire::write_len;
use super::body_state::BodyState;
use super::codec::Codec;
use super::frame::Frame;
use super::item_ref::ItemRef;
use super::meta_parts::SingleFields;
use super::paths::{ProjectionRules, Steps};
use super::value::{Pieces, Place, PlaceForm};
use super::writer::{Layout, Writer, WrittenKind, ZeroMeta};
use crate::error::{DecodeErrorKind, Fault, ItemError};
use crate::meta::{ListMeta, MAGIC, Status, TypeMeta};
use crate::schema::Message;
use crate::wire::{Encoding, FieldFault};

pub(crate) struct Protobuf;

impl Codec for Protobuf {
    type Metadata<'a> = ProtobufMetadata<'a>;

    type Values<'a, 'p> = ValuesByNumber<'a, 'p>;

    const MAGIC: &'static [u8] = &MAGIC;

    const EMPTY: &'static [u8] = b"";

    type List = ProtobufList;

    type Watch = ProtobufWatch;

    fn list(list: BodyState) -> ProtobufList {
        ProtobufList::new(list)
    }

    fn watch() -> ProtobufWatch {
        ProtobufWatch::START
    }

    fn document(body: &[u8]) -> Result<(TypeMeta, &[u8]), DecodeErrorKind> {
        let fault = DecodeErrorKind::Malformed { field: "the envelope", fault: Fault::PastParent };
        messages::envelope(body).ok_or(fault)
    }

    fn merge_type_meta(frame: &mut Frame<'_>) -> Result<(), FieldFault> {
        frame.merge_type_meta(frame.type_meta)
    }

    fn status(bytes: &[u8]) -> Option<Status> {
        messages::status(bytes)
    }

    fn metadata<'a>(item: &ItemRef<'a>, single: &mut SingleFields<'a>) -> Result<ProtobufMetadata<'a>, ItemError> {
        metadata::read(item.bytes, single)
    }

    fn own_type_meta(_: &ItemRef<'_>) -> Result<Option<TypeMeta>, FieldFault> {
        Ok(None)
    }

    fn can_follow(path: Steps<'_>) -> bool {
        !path.numbers.is_empty() || path.names.is_empty()
    }

    fn values<'a, 'p>(item: &ItemRef<'a>, path: Steps<'p>) -> ValuesByNumber<'a, 'p> {
        ValuesByNumber::new(item.bytes, path)
    }

    fn project(item: &ItemRef<'_>, rules: ProjectionRules<'_>, copy: &mut Vec<u8>) -> Result<(), Fault> {
        projection::append(item.bytes, rules.by_number(), copy)
    }

    fn merge<M: prost::Message + Default>(message: &mut M, item: &ItemRef<'_>) -> Result<(), ItemError> {
        decode::merge(message, item)
    }

    fn deserialize<T: DeserializeOwned>(item: &ItemRef<'_>) -> Result<T, ItemError> {
        Err(ItemError::WrongEncoding { found: item.encoding, expected: Encoding::Json })
    }

    fn message<'a>(item: &ItemRef<'a>) -> Result<&'a [u8], ItemError> {
        Ok(item.bytes)
    }

    fn json<'a>(_: &ItemRef<'a>) -> Option<&'a [u8]> {
        None
    }

    fn json_form(item: &ItemRef<'_>) -> Result<Place, ItemError> {
        let message = Message::of_item(&item.type_meta.api_version, item.type_meta.item_kind())?;
        Ok(Place { form: PlaceForm::Message(message), pieces: Pieces::One(0..item.bytes.len()) })
    }

    fn to_json(item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        to_json::to_json(item, out)
    }

    fn to_list_item(item: &ItemRef<'_>, layout: Layout, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        match layout {
            Layout::Typed => to_json::to_list_item(item, out),
            Layout::Metadata | Layout::Unstructured => to_json::to_json(item, out),
        }
    }

    fn metadata_only(object: &[u8]) -> Result<Cow<'_, [u8]>, FieldFault> {
        write::metadata(object)
    }

    fn to_partial_metadata(item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        to_json::to_json(item, out)
    }

    fn with_version(object: &[u8], version: &str) -> Result<Vec<u8>, FieldFault> {
        write::with_version(object, version)
    }

    fn has_unknown_fields(item: &ItemRef<'_>) -> Result<bool, ItemError> {
        unknown::has_unknown_fields(item)
    }
}

impl Writer for Protobuf {
    const DECLARES_LENGTHS: bool = true;

    fn converts(item: Encoding) -> bool {
        match item {
            Encoding::Protobuf => true,
            Encoding::Json => false,
        }
    }

    fn item_len(len: u64) -> u64 {
        write::field_len(2, len)
    }

    fn write_list_head(kind: &WrittenKind, list_meta: &ListMeta, items_len: u64, out: &mut Vec<u8>) {
        let list_meta = write::list_meta(list_meta);
        write::write_envelope(&kind.list, write::field_len(1, list_meta.len() as u64) + items_len, out);
        if !kind.has_items_first() {
            write_len(1, &list_meta, out);
        }
    }

    fn write_item(
        kind: &WrittenKind,
        _: bool,
        bytes: &[u8],
        _: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    ) -> Result<u64, ItemError> {
        write_len(if kind.has_items_first() { 1 } else { 2 }, bytes, out);
        Ok(0)
    }

    fn write_list_tail(kind: &WrittenKind, _: bool, list_meta: &ListMeta, out: &mut Vec<u8>) {
        if kind.has_items_first() {
            write_len(2, &write::list_meta(list_meta), out);
        }
        out.extend_from_slice(write::ENVELOPE_TAIL);
    }

    fn write_object(
        kind: &WrittenKind,
        bytes: &[u8],
        _: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    ) -> Result<u64, ItemError> {
        write::write_object(&kind.type_meta, bytes, out);
        Ok(0)
    }

    fn write_event(
        event: &str,
        kind: &WrittenKind,
        bytes: &[u8],
        _: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    ) -> Result<u64, ItemError> {
        let is_written = write::write_frame(event, &kind.type_meta, bytes, out);
        is_written.ok_or(ItemError::Metadata { field: "the frame", fault: Fault::TooLong })?;
        Ok(0)
    }

    fn write_bookmark(
        kind: &WrittenKind,
        _: &ZeroMeta<'_>,
        bytes: &[u8],
        _: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    ) {
        // The frame is far shorter than its length allows, unless the version is very long.
        _ = write::write_frame("BOOKMARK", &kind.type_meta, bytes, out);
    }

    fn write_error(status: &Status, out: &mut Vec<u8>) {
        _ = write::write_frame("ERROR", &TypeMeta::new("v1", "Status"), &write::status(status), out);
    }

    fn write_status(status: &Status, out: &mut Vec<u8>) {
        write::write_object(&TypeMeta::new("v1", "Status"), &write::status(status), out);
    }
}
