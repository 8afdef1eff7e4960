//! Objects that differ from the stored bytes: their metadata alone, and another resource version.

use std::borrow::Cow;

use crate::encoding::json::reader::Reader;
use crate::encoding::json::text::write_str;
use crate::encoding::protobuf::wire::{Fields, WireField, write_len};
use crate::error::ItemError;
use crate::wire::{Encoding, Fault, FieldFault, at};

/// Returns a `PartialObjectMetadata` in protobuf: field 1 of the object, which every kind has.
///
/// It borrows the field, unless the object has it in several pieces, which no API server sends.
pub(super) fn metadata(object: &[u8]) -> Result<Cow<'_, [u8]>, ItemError> {
    let mut metadata = Cow::Borrowed(&b""[..]);
    for field in Fields::new(object) {
        let field = field.map_err(|fault| error(("the object", fault)))?;
        if field.number == 1 {
            field.value.bytes().map_err(|fault| error(("metadata", fault)))?;
            if metadata.is_empty() {
                metadata = Cow::Borrowed(field.bytes);
            } else {
                metadata.to_mut().extend_from_slice(field.bytes);
            }
        }
    }
    Ok(metadata)
}

/// Returns the object with this resource version in its metadata, and otherwise the same bytes.
pub(super) fn with_version(encoding: Encoding, object: &[u8], version: &str) -> Result<Vec<u8>, ItemError> {
    match encoding {
        Encoding::Protobuf => protobuf_with_version(object, version),
        Encoding::Json => json_with_version(object, version),
    }
    .map_err(error)
}

fn protobuf_with_version(object: &[u8], version: &str) -> Result<Vec<u8>, FieldFault> {
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

fn json_with_version(object: &[u8], version: &str) -> Result<Vec<u8>, FieldFault> {
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

fn error((field, fault): FieldFault) -> ItemError {
    ItemError::Metadata { field, fault }
}
