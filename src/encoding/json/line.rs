//! Objects in JSON on one line: whole, or only their metadata in the order of Go's structs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem;

use serde::de::IgnoredAny;

use super::text::{write_compact, write_name, write_str};
use crate::encoding::json::reader::Reader;
use crate::encoding::utf8;
use crate::error::{Fault, ItemError};
use crate::meta::TypeMeta;
use crate::schema::{Field, Form, Message, Omit, Shape, Type};

/// Appends a JSON object on one line, with `kind` and `apiVersion` once each: the object's own, or else the list's.
///
/// They keep their place in the object, or come first if the object lacks them.
pub(crate) fn to_line(list: &TypeMeta, object: &[u8], out: &mut Vec<u8>) -> Result<(), ItemError> {
    let start = out.len();
    let repaired = utf8::repaired_json(object);
    let written = write_line(list, repaired.as_deref().map_or(object, str::as_bytes), out);
    written.map_err(|(field, fault)| {
        out.truncate(start);
        ItemError::Metadata { field, fault }
    })
}

fn write_line<'a>(list: &'a TypeMeta, object: &'a [u8], out: &mut Vec<u8>) -> Result<(), (&'static str, Fault)> {
    let at = |fault| ("the object", fault);
    // The reader checks only the object's own members, but the whole line must be valid JSON.
    serde_json::from_slice::<IgnoredAny>(object).map_err(|_| at(Fault::Syntax))?;
    if !object.trim_ascii_start().starts_with(b"{") {
        return Err(at(Fault::Type));
    }
    let named = |name, of_list: &'a str| Named { name, text: of_list.into(), is_own: false, is_written: false };
    let mut type_meta = [named("kind", list.item_kind()), named("apiVersion", &list.api_version)];
    let mut json = Reader::new(object, 0);
    let mut members = json.object().map_err(at)?;
    while let Some(name) = members.next(&mut json).map_err(at)? {
        let Some(named) = type_meta.iter_mut().find(|named| name == named.name) else {
            json.value().map_err(at)?;
            continue;
        };
        named.is_own = true;
        // As in Go, `null` sets nothing, and the last value counts.
        if let Some(text) = json.text().map_err(|fault| (named.name, fault))?.filter(|text| !text.is_empty()) {
            named.text = text;
        }
    }
    if let Some(named) = type_meta.iter().find(|named| named.text.is_empty()) {
        return Err((named.name, Fault::Missing));
    }

    out.push(b'{');
    type_meta.iter_mut().filter(|named| !named.is_own).for_each(|named| named.write(out));
    let mut json = Reader::new(object, 0);
    let mut members = json.object().map_err(at)?;
    while let Some(name) = members.next(&mut json).map_err(at)? {
        let value = json.value().map_err(at)?;
        if let Some(named) = type_meta.iter_mut().find(|named| name == named.name) {
            named.write(out);
        } else {
            write_name(&name, out);
            write_compact(value, out);
        }
    }
    out.push(b'}');
    Ok(())
}

/// `kind` or `apiVersion` of an object.
struct Named<'a> {
    name: &'static str,
    text: Cow<'a, str>,
    is_own: bool,
    is_written: bool,
}

impl Named<'_> {
    /// Appends the member at the first call, and nothing at later ones.
    fn write(&mut self, out: &mut Vec<u8>) {
        if !mem::replace(&mut self.is_written, true) {
            write_name(self.name, out);
            write_str(&self.text, out);
        }
    }
}

/// Appends a `PartialObjectMetadata` with the metadata of an object in JSON.
///
/// An object of a custom resource has its members in alphabetical order, but a `PartialObjectMetadata` is a Go struct,
/// so its members have the order of the table, and those that the table does not have are left out. Source:
/// `AsPartialObjectMetadata` in `k8s.io/apimachinery/pkg/api/meta/meta.go`.
pub(crate) fn to_partial_metadata(type_meta: &TypeMeta, object: &[u8], out: &mut Vec<u8>) -> Result<(), ItemError> {
    let message = Message::of_item(&type_meta.api_version, &type_meta.kind)?;
    let start = out.len();
    let repaired = utf8::repaired_json(object);
    let object = repaired.as_deref().map_or(object, str::as_bytes);
    let written = write_partial_metadata(type_meta, message, object, out);
    written.map_err(|fault| {
        out.truncate(start);
        ItemError::Metadata { field: "metadata", fault }
    })
}

fn write_partial_metadata(
    type_meta: &TypeMeta,
    message: &Message,
    object: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    out.push(b'{');
    for (name, text) in [("kind", &type_meta.kind), ("apiVersion", &type_meta.api_version)] {
        write_name(name, out);
        write_str(text, out);
    }
    let mut json = Reader::new(object, 0);
    let mut members = json.object()?;
    let mut metadata = &b"{}"[..];
    while let Some(name) = members.next(&mut json)? {
        let value = json.value()?;
        if name == "metadata" && value != b"null" {
            metadata = value;
        }
    }
    // The reader checks only the members that it reads, but the whole line must be valid JSON.
    serde_json::from_slice::<IgnoredAny>(metadata).map_err(|_| Fault::Syntax)?;
    write_name("metadata", out);
    if let Some(message) = message.field(1).and_then(Field::message) {
        write_struct(message, metadata, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// Writes an object in the order of the table. Only metadata is written this way, which has no inlined messages.
///
/// The recursion ends, because no message in metadata contains itself.
fn write_struct(message: &Message, object: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut found = Vec::new();
    let mut json = Reader::new(object, 0);
    let mut members = json.object()?;
    while let Some(name) = members.next(&mut json)? {
        let value = json.value()?;
        if value != b"null" {
            found.push((name, value));
        }
    }
    out.push(b'{');
    for field in message.fields() {
        // The last value counts.
        let value = match found.iter().rev().find(|(name, _)| name == field.name()) {
            Some((_, value)) => *value,
            None if field.omit == Omit::Never && field.of == Type::String => b"\"\"",
            None => continue,
        };
        if field.omit == Omit::Empty && is_empty(field.shape, field.of, value)? {
            continue;
        }
        write_name(field.name(), out);
        match (field.shape, field.of.message().filter(|message| message.form == Form::Object)) {
            (Shape::Single | Shape::Optional, Some(message)) => write_struct(message, value, out)?,
            (Shape::Repeated, Some(message)) => {
                let mut json = Reader::new(value, 0);
                let mut elements = json.array()?;
                out.push(b'[');
                while elements.next(&mut json)? {
                    if out.last() != Some(&b'[') {
                        out.push(b',');
                    }
                    write_struct(message, json.value()?, out)?;
                }
                out.push(b']');
            }
            (Shape::Map, _) => write_map(value, out)?,
            _ => write_compact(value, out),
        }
    }
    out.push(b'}');
    Ok(())
}

fn write_map(object: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut entries = BTreeMap::new();
    let mut json = Reader::new(object, 0);
    let mut members = json.object()?;
    while let Some(key) = members.next(&mut json)? {
        entries.insert(key, json.value()?);
    }
    out.push(b'{');
    for (key, value) in entries {
        write_name(&key, out);
        write_compact(value, out);
    }
    out.push(b'}');
    Ok(())
}

/// Returns true if `omitempty` omits the value.
fn is_empty(shape: Shape, of: Type, value: &[u8]) -> Result<bool, Fault> {
    let mut json = Reader::new(value, 0);
    Ok(match (shape, of) {
        (Shape::Optional, _) | (Shape::Single, Type::Message(_) | Type::Double) => false,
        (Shape::Single, Type::String | Type::Bytes) => value == b"\"\"",
        (Shape::Single, Type::Int32 | Type::Int64) => value == b"0",
        (Shape::Single, Type::Bool) => value == b"false",
        (Shape::Repeated, _) => !json.array()?.next(&mut json)?,
        (Shape::Map, _) => json.object()?.next(&mut json)?.is_none(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that Go's `omitempty` omits.
    #[test]
    fn empty_values_are_those_that_go_omits() {
        for (shape, of, json, expected) in [
            (Shape::Optional, Type::Bool, "false", false),
            (Shape::Single, Type::Bool, "false", true),
            (Shape::Single, Type::Bool, "true", false),
            (Shape::Single, Type::Int64, "0", true),
            (Shape::Single, Type::Int32, "1", false),
            (Shape::Single, Type::Double, "0", false),
            (Shape::Single, Type::String, r#""""#, true),
            (Shape::Single, Type::Bytes, r#""YQ==""#, false),
            (Shape::Repeated, Type::String, "[ ]", true),
            (Shape::Repeated, Type::Bool, "[false]", false),
            (Shape::Map, Type::String, "{}", true),
            (Shape::Map, Type::String, r#"{"":""}"#, false),
        ] {
            assert_eq!(is_empty(shape, of, json.as_bytes()), Ok(expected), "{json}");
        }
    }
}
