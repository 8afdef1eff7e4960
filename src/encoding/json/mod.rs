//! JSON, as Go writes and reads it.

pub(crate) mod decode;
pub(crate) mod line;
pub(crate) mod list;
pub(crate) mod messages;
pub(crate) mod metadata;
pub(crate) mod path;
pub(crate) mod projection;
pub(crate) mod reader;
pub(crate) mod scan;
pub(crate) mod text;
pub(crate) mod value;
pub(crate) mod watch;
pub(crate) mod write;

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use self::list::JsonList;
use self::metadata::JsonMetadata;
use self::path::ValuesByName;
use self::reader::Reader;
use self::watch::JsonWatch;
use super::body_state::BodyState;
use super::codec::Codec;
use super::frame::Frame;
use super::item_ref::ItemRef;
use super::meta_parts::SingleFields;
use super::paths::{ProjectionRules, Steps};
use super::value::{Pieces, Place, PlaceForm};
use super::writer::{Layout, Writer, WrittenKind, ZeroMeta};
use crate::error::{DecodeErrorKind, Fault, ItemError};
use crate::meta::{ListMeta, Status, TypeMeta};
use crate::wire::{Encoding, FieldFault};

pub(crate) struct Json;

impl Codec for Json {
    type Metadata<'a> = JsonMetadata<'a>;

    type Values<'a, 'p> = ValuesByName<'a>;

    const MAGIC: &'static [u8] = b"";

    const EMPTY: &'static [u8] = b"{}";

    type List = JsonList;

    type Watch = JsonWatch;

    fn list(list: BodyState) -> JsonList {
        JsonList::new(list)
    }

    fn watch() -> JsonWatch {
        JsonWatch::new()
    }

    fn document(body: &[u8]) -> Result<(TypeMeta, &[u8]), DecodeErrorKind> {
        let found = messages::type_meta(body);
        let malformed = |(field, fault)| DecodeErrorKind::Item(ItemError::Metadata { field, fault });
        Ok((found.map_err(malformed)?, body))
    }

    fn merge_type_meta(_: &mut Frame<'_>) -> Result<(), FieldFault> {
        Ok(())
    }

    fn status(bytes: &[u8]) -> Option<Status> {
        messages::status(bytes)
    }

    fn metadata<'a>(item: &ItemRef<'a>, single: &mut SingleFields<'a>) -> Result<JsonMetadata<'a>, ItemError> {
        metadata::read(item, single)
    }

    fn own_type_meta(item: &ItemRef<'_>) -> Result<Option<TypeMeta>, FieldFault> {
        messages::type_meta(item.bytes).map(Some)
    }

    fn can_follow(path: Steps<'_>) -> bool {
        !path.names.is_empty() || path.numbers.is_empty()
    }

    fn values<'a>(item: &ItemRef<'a>, path: Steps<'_>) -> ValuesByName<'a> {
        ValuesByName::new(Reader::with_ends(item.bytes, item.ends), path)
    }

    fn project(item: &ItemRef<'_>, rules: ProjectionRules<'_>, copy: &mut Vec<u8>) -> Result<(), Fault> {
        copy.reserve_exact(item.bytes.len());
        projection::append(Reader::with_ends(item.bytes, item.ends), rules.by_name(), copy)
    }

    fn merge<M: prost::Message + Default>(_: &mut M, item: &ItemRef<'_>) -> Result<(), ItemError> {
        Err(ItemError::WrongEncoding { found: item.encoding, expected: Encoding::Protobuf })
    }

    fn deserialize<T: DeserializeOwned>(item: &ItemRef<'_>) -> Result<T, ItemError> {
        decode::deserialize(item)
    }

    fn message<'a>(_: &ItemRef<'a>) -> Result<&'a [u8], ItemError> {
        Err(ItemError::ViewOfJson)
    }

    fn json<'a>(item: &ItemRef<'a>) -> Option<&'a [u8]> {
        Some(item.bytes)
    }

    fn json_form(item: &ItemRef<'_>) -> Result<Place, ItemError> {
        match item.bytes.first() {
            Some(b'{') => Ok(Place { form: PlaceForm::Json, pieces: Pieces::One(0..item.bytes.len()) }),
            _ => Err(ItemError::Metadata { field: "the object", fault: Fault::Type }),
        }
    }

    fn to_json(item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        line::to_line(item.type_meta, item.bytes, out).map(|()| 0)
    }

    fn to_list_item(item: &ItemRef<'_>, _: Layout, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        write::copy(item.bytes, out);
        Ok(0)
    }

    fn metadata_only(object: &[u8]) -> Result<Cow<'_, [u8]>, FieldFault> {
        Ok(Cow::Borrowed(object))
    }

    fn to_partial_metadata(item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        line::to_partial_metadata(item.type_meta, item.bytes, out).map(|()| 0)
    }

    fn with_version(object: &[u8], version: &str) -> Result<Vec<u8>, FieldFault> {
        write::with_version(object, version)
    }

    fn has_unknown_fields(_: &ItemRef<'_>) -> Result<bool, ItemError> {
        Ok(false)
    }
}

impl Writer for Json {
    const DECLARES_LENGTHS: bool = false;

    fn converts(item: Encoding) -> bool {
        match item {
            Encoding::Protobuf | Encoding::Json => true,
        }
    }

    fn item_len(_: u64) -> u64 {
        0
    }

    fn write_list_head(kind: &WrittenKind, list_meta: &ListMeta, _: u64, out: &mut Vec<u8>) {
        write::write_list_head(kind.layout, &kind.list, list_meta, out);
    }

    fn write_item(
        _: &WrittenKind,
        is_first: bool,
        _: &[u8],
        to_json: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    ) -> Result<u64, ItemError> {
        out.push(if is_first { b'[' } else { b',' });
        to_json(out)
    }

    fn write_list_tail(kind: &WrittenKind, is_empty: bool, list_meta: &ListMeta, out: &mut Vec<u8>) {
        let end: &[u8] = match (is_empty, kind.layout) {
            (false, _) => b"]",
            // The server appends items to a nil slice, and allocates all others.
            (true, Layout::Metadata) => b"null",
            (true, Layout::Typed | Layout::Unstructured) => b"[]",
        };
        out.extend_from_slice(end);
        write::write_list_tail(kind.layout, &kind.list, list_meta, out);
    }

    fn write_object(
        _: &WrittenKind,
        _: &[u8],
        to_json: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    ) -> Result<u64, ItemError> {
        let unknown_fields = to_json(out)?;
        out.push(b'\n');
        Ok(unknown_fields)
    }

    fn write_event(
        event: &str,
        _: &WrittenKind,
        _: &[u8],
        to_json: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    ) -> Result<u64, ItemError> {
        write::write_event_head(event, out);
        let unknown_fields = to_json(out)?;
        out.extend_from_slice(write::EVENT_TAIL);
        Ok(unknown_fields)
    }

    fn write_bookmark(
        kind: &WrittenKind,
        meta: &ZeroMeta<'_>,
        _: &[u8],
        to_json: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    ) {
        write::write_event_head("BOOKMARK", out);
        if kind.layout == Layout::Unstructured || to_json(out).is_err() {
            write::write_bookmark(&kind.type_meta, meta, out);
        }
        out.extend_from_slice(write::EVENT_TAIL);
    }

    fn write_error(status: &Status, out: &mut Vec<u8>) {
        write::write_event_head("ERROR", out);
        write::write_status(status, out);
        out.extend_from_slice(write::EVENT_TAIL);
    }

    fn write_status(status: &Status, out: &mut Vec<u8>) {
        write::write_status(status, out);
        out.push(b'\n');
    }
}
