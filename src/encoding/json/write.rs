//! Lists, events and the messages around items in JSON.
//!
//! Go writes a struct in the order of its fields without the empty fields, and a map in the order of its keys.

use super::reader::Reader;
use super::text::{write_compact, write_name, write_str};
use crate::encoding::writer::{Layout, ZeroMeta};
use crate::meta::{ListMeta, Status, StatusCause, StatusDetails, TypeMeta};
use crate::wire::{Fault, FieldFault, at};

pub(crate) const EVENT_TAIL: &[u8] = b"}\n";

pub(crate) fn write_event_head(event: &str, out: &mut Vec<u8>) {
    out.push(b'{');
    write_text("type", event, out);
    write_name("object", out);
}

pub(crate) fn write_list_head(layout: Layout, list: &TypeMeta, list_meta: &ListMeta, out: &mut Vec<u8>) {
    out.push(b'{');
    if layout == Layout::Unstructured {
        write_text("apiVersion", &list.api_version, out);
    } else {
        write_text("kind", &list.kind, out);
        write_text("apiVersion", &list.api_version, out);
        write_list_meta(list_meta, out);
    }
    write_name("items", out);
}

pub(crate) fn write_list_tail(layout: Layout, list: &TypeMeta, list_meta: &ListMeta, out: &mut Vec<u8>) {
    if layout == Layout::Unstructured {
        write_text("kind", &list.kind, out);
        write_name("metadata", out);
        out.push(b'{');
        // `UnstructuredList` has these two even if they are empty.
        write_name("continue", out);
        write_str(&list_meta.continue_token, out);
        if let Some(count) = list_meta.remaining_item_count {
            write_name("remainingItemCount", out);
            out.extend_from_slice(count.to_string().as_bytes());
        }
        write_name("resourceVersion", out);
        write_str(&list_meta.resource_version, out);
        out.push(b'}');
    }
    out.extend_from_slice(b"}\n");
}

/// Appends an object of a custom resource that has only a resource version and an annotation.
pub(crate) fn write_bookmark(type_meta: &TypeMeta, meta: &ZeroMeta<'_>, out: &mut Vec<u8>) {
    out.push(b'{');
    write_text("apiVersion", &type_meta.api_version, out);
    write_text("kind", &type_meta.kind, out);
    write_name("metadata", out);
    out.push(b'{');
    if let Some((key, value)) = meta.annotation {
        write_name("annotations", out);
        out.push(b'{');
        write_text(key, value, out);
        out.push(b'}');
    }
    write_text("resourceVersion", meta.resource_version, out);
    out.extend_from_slice(b"}}");
}

/// Appends an item without its whitespace.
pub(crate) fn copy(item: &[u8], out: &mut Vec<u8>) {
    write_compact(item, out);
}

pub(crate) fn write_status(status: &Status, out: &mut Vec<u8>) {
    let Status { metadata, status, message, reason, details, code } = status;
    out.push(b'{');
    write_text("kind", "Status", out);
    write_text("apiVersion", "v1", out);
    write_list_meta(metadata.as_ref().unwrap_or(&ListMeta::default()), out);
    write_text("status", status, out);
    write_text("message", message, out);
    write_text("reason", reason, out);
    if let Some(details) = details {
        write_details(details, out);
    }
    write_int("code", (*code).into(), out);
    out.push(b'}');
}

fn write_details(details: &StatusDetails, out: &mut Vec<u8>) {
    let StatusDetails { name, group, kind, causes, retry_after_seconds, uid } = details;
    write_name("details", out);
    out.push(b'{');
    write_text("name", name, out);
    write_text("group", group, out);
    write_text("kind", kind, out);
    write_text("uid", uid, out);
    if !causes.is_empty() {
        write_name("causes", out);
        out.push(b'[');
        for (index, StatusCause { reason, message, field }) in causes.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
            write_text("reason", reason, out);
            write_text("message", message, out);
            write_text("field", field, out);
            out.push(b'}');
        }
        out.push(b']');
    }
    write_int("retryAfterSeconds", (*retry_after_seconds).into(), out);
    out.push(b'}');
}

fn write_list_meta(list_meta: &ListMeta, out: &mut Vec<u8>) {
    let ListMeta { resource_version, continue_token, remaining_item_count, shard_info } = list_meta;
    write_name("metadata", out);
    out.push(b'{');
    write_text("resourceVersion", resource_version, out);
    write_text("continue", continue_token, out);
    if let Some(count) = remaining_item_count {
        write_name("remainingItemCount", out);
        out.extend_from_slice(count.to_string().as_bytes());
    }
    if let Some(shard_info) = shard_info {
        write_name("shardInfo", out);
        out.push(b'{');
        write_name("selector", out);
        write_str(&shard_info.selector, out);
        out.push(b'}');
    }
    out.push(b'}');
}

fn write_text(name: &str, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        write_name(name, out);
        write_str(text, out);
    }
}

fn write_int(name: &str, value: i64, out: &mut Vec<u8>) {
    if value != 0 {
        write_name(name, out);
        out.extend_from_slice(value.to_string().as_bytes());
    }
}

pub(crate) fn with_version(object: &[u8], version: &str) -> Result<Vec<u8>, FieldFault> {
    let mut json = Reader::new(object, 0);
    let position = |json: &Reader<'_>| object.len() - json.rest().len();
    let mut found = None;
    let mut members = json.object().map_err(at("the object"))?;
    while let Some(name) = members.next(&mut json).map_err(at("the object"))? {
        if name != "metadata" {
            json.value().map_err(at("the object"))?;
            continue;
        }
        let mut members = json.object().map_err(at("metadata"))?;
        while let Some(name) = members.next(&mut json).map_err(at("metadata"))? {
            json.peek();
            let start = position(&json);
            json.value().map_err(at("metadata"))?;
            if name == "resourceVersion" {
                found = Some((start, position(&json)));
            }
        }
    }
    let parts = found.and_then(|(start, end)| Some((object.get(..start)?, object.get(end..)?)));
    let (before, after) = parts.ok_or(("metadata.resourceVersion", Fault::Missing))?;
    let mut out = Vec::with_capacity(object.len() + version.len());
    out.extend_from_slice(before);
    write_str(version, &mut out);
    out.extend_from_slice(after);
    Ok(out)
}
