//! The fields of an object that the table does not have.

use super::wire::MAX_DEPTH;
use crate::encoding::item_ref::ItemRef;
use crate::encoding::protobuf::wire::{Fields, Value};
use crate::error::{Fault, ItemError};
use crate::schema::{Message, Shape, Type};

/// Returns true if the object has a field that its JSON form leaves out: see
/// [`ItemRef::has_unknown_fields`](crate::ItemRef::has_unknown_fields).
pub(crate) fn has_unknown_fields(item: &ItemRef<'_>) -> Result<bool, ItemError> {
    let kind = item.type_meta.item_kind();
    let message = Message::of_item(&item.type_meta.api_version, kind)?;
    is_in_message(message, item.bytes, 0).map_err(|fault| ItemError::Field { path: kind.into(), fault })
}

fn is_in_message(message: &Message, bytes: &[u8], depth: usize) -> Result<bool, Fault> {
    if depth == MAX_DEPTH {
        return Err(Fault::Depth);
    }
    for read in Fields::new(bytes) {
        let read = read?;
        let Some(field) = message.field(read.number) else { return Ok(true) };
        let is_unknown = match field.shape {
            Shape::Map => is_in_entry(field.of, read.value, depth)?,
            Shape::Single | Shape::Optional | Shape::Repeated => is_in_value(field.of, read.value, depth)?,
        };
        if is_unknown {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_in_value(of: Type, value: Value<'_>, depth: usize) -> Result<bool, Fault> {
    match of.message() {
        Some(message) => is_in_message(message, value.bytes()?, depth + 1),
        None => Ok(false),
    }
}

fn is_in_entry(of: Type, entry: Value<'_>, depth: usize) -> Result<bool, Fault> {
    for read in Fields::new(entry.bytes()?) {
        let read = read?;
        if read.number > 2 || read.number == 2 && is_in_value(of, read.value, depth)? {
            return Ok(true);
        }
    }
    Ok(false)
}
