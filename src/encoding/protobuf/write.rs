//! Envelopes, frames and the messages around items in protobuf.
//!
//! Go's generated `Marshal` writes each string and number that is not a pointer, even if it is empty, in the order of
//! the field numbers.

use std::borrow::Cow;

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use crate::encoding::protobuf::wire::{Fields, WireField, write_len, write_len_head};
use crate::meta::{ListMeta, MAGIC, Status, StatusCause, StatusDetails, TypeMeta};
use crate::wire::{Fault, FieldFault, at};

/// The end of an envelope: an empty content encoding and an empty content type.
pub(crate) const ENVELOPE_TAIL: &[u8] = b"\x1a\0\x22\0";

pub(crate) fn field_len(number: u32, len: u64) -> u64 {
    (key_len(number) + encoded_len_varint(len)) as u64 + len
}

fn write_text(number: u32, text: &str, out: &mut Vec<u8>) {
    write_len(number, text.as_bytes(), out);
}

fn write_int(number: u32, value: i64, out: &mut Vec<u8>) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value.cast_unsigned(), out);
}

/// Appends the beginning of an envelope, up to the `raw` of this length. [`ENVELOPE_TAIL`] follows `raw`.
pub(crate) fn write_envelope(type_meta: &TypeMeta, raw_len: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    write_len_head(1, type_meta_len(type_meta), out);
    write_text(1, &type_meta.api_version, out);
    write_text(2, &type_meta.kind, out);
    write_len_head(2, raw_len, out);
}

fn type_meta_len(type_meta: &TypeMeta) -> u64 {
    field_len(1, type_meta.api_version.len() as u64) + field_len(2, type_meta.kind.len() as u64)
}

pub(crate) fn write_object(type_meta: &TypeMeta, object: &[u8], out: &mut Vec<u8>) {
    write_envelope(type_meta, object.len() as u64, out);
    out.extend_from_slice(object);
    out.extend_from_slice(ENVELOPE_TAIL);
}

/// Appends a frame of a watch: its length in 4 bytes, and a `WatchEvent`. Returns `None` if the length does not fit.
pub(crate) fn write_frame(event: &str, type_meta: &TypeMeta, object: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let envelope = (MAGIC.len() + ENVELOPE_TAIL.len()) as u64
        + field_len(1, type_meta_len(type_meta))
        + field_len(2, object.len() as u64);
    // WatchEvent.object is a RawExtension, whose field 1 has the bytes.
    let extension = field_len(1, envelope);
    let frame = field_len(1, event.len() as u64) + field_len(2, extension);
    out.extend_from_slice(&u32::try_from(frame).ok()?.to_be_bytes());
    write_text(1, event, out);
    write_len_head(2, extension, out);
    write_len_head(1, envelope, out);
    write_object(type_meta, object, out);
    Some(())
}

pub(crate) fn list_meta(list_meta: &ListMeta) -> Vec<u8> {
    let ListMeta { resource_version, continue_token, remaining_item_count, shard_info } = list_meta;
    let mut out = Vec::new();
    // selfLink, which no server sets since 1.20.
    write_text(1, "", &mut out);
    write_text(2, resource_version, &mut out);
    write_text(3, continue_token, &mut out);
    if let Some(count) = remaining_item_count {
        write_int(4, *count, &mut out);
    }
    if let Some(shard_info) = shard_info {
        let mut selector = Vec::new();
        write_text(1, &shard_info.selector, &mut selector);
        write_len(5, &selector, &mut out);
    }
    out
}

pub(crate) fn status(status: &Status) -> Vec<u8> {
    let Status { metadata, status, message, reason, details: status_details, code } = status;
    let mut out = Vec::new();
    write_len(1, &list_meta(metadata.as_ref().unwrap_or(&ListMeta::default())), &mut out);
    write_text(2, status, &mut out);
    write_text(3, message, &mut out);
    write_text(4, reason, &mut out);
    if let Some(status_details) = status_details {
        write_len(5, &details(status_details), &mut out);
    }
    write_int(6, (*code).into(), &mut out);
    out
}

fn details(details: &StatusDetails) -> Vec<u8> {
    let StatusDetails { name, group, kind, causes, retry_after_seconds, uid } = details;
    let mut out = Vec::new();
    write_text(1, name, &mut out);
    write_text(2, group, &mut out);
    write_text(3, kind, &mut out);
    for StatusCause { reason, message, field } in causes {
        let mut cause = Vec::new();
        write_text(1, reason, &mut cause);
        write_text(2, message, &mut cause);
        write_text(3, field, &mut cause);
        write_len(4, &cause, &mut out);
    }
    write_int(5, (*retry_after_seconds).into(), &mut out);
    write_text(6, uid, &mut out);
    out
}

/// Returns a `PartialObjectMetadata` in protobuf, which is field 1 of an object of any kind.
///
/// The field is borrowed, unless the object has it in several pieces, which no API server sends.
pub(crate) fn metadata(object: &[u8]) -> Result<Cow<'_, [u8]>, FieldFault> {
    let mut metadata = Cow::Borrowed(&b""[..]);
    for field in Fields::new(object) {
        let field = field.map_err(at("the object"))?;
        if field.number == 1 {
            field.value.bytes().map_err(at("metadata"))?;
            if metadata.is_empty() {
                metadata = Cow::Borrowed(field.bytes);
            } else {
                metadata.to_mut().extend_from_slice(field.bytes);
            }
        }
    }
    Ok(metadata)
}

pub(crate) fn with_version(object: &[u8], version: &str) -> Result<Vec<u8>, FieldFault> {
    let mut out = Vec::with_capacity(object.len() + version.len());
    let mut is_set = false;
    for field in Fields::new(object) {
        let WireField { number, value, bytes } = field.map_err(at("the object"))?;
        if number != 1 {
            out.extend_from_slice(bytes);
            continue;
        }
        let metadata = value.bytes().map_err(at("metadata"))?;
        let mut replaced = Vec::with_capacity(metadata.len() + version.len());
        for field in Fields::new(metadata) {
            let field = field.map_err(at("metadata"))?;
            if field.number == 6 {
                write_len(6, version.as_bytes(), &mut replaced);
                is_set = true;
            } else {
                replaced.extend_from_slice(field.bytes);
            }
        }
        write_len(1, &replaced, &mut out);
    }
    if is_set { Ok(out) } else { Err(("metadata.resourceVersion", Fault::Missing)) }
}
