//! An object of a kind without any values, as Go encodes it for a bookmark.

use prost::encoding::{WireType, encode_key};

use crate::encoding::protobuf::wire::write_len;
use crate::encoding::writer::ZeroMeta;
use crate::schema::{Field, Form, Message, Omit, Shape, Type};

/// Returns the protobuf of an object of this kind that has only this metadata.
///
/// Go's generated `Marshal` writes every field that is neither a pointer, a slice nor a map, even if it is zero, in the
/// order of the field numbers. The table contains the fields of all its releases, so a field that it marks as
/// [`Omit::Absent`] is left out, because only some releases have it.
pub(crate) fn zero_object(kind: &Message, meta: &ZeroMeta<'_>) -> Vec<u8> {
    let mut object = Vec::new();
    write_message(kind, Some(meta), &mut object);
    object
}

/// Appends the fields of a message. `meta` is for the kind itself and for its metadata.
fn write_message(message: &Message, meta: Option<&ZeroMeta<'_>>, out: &mut Vec<u8>) {
    let mut fields: Vec<&Field> = message.fields().iter().collect();
    fields.sort_by_key(|field| field.number);
    let meta_of_object = meta.filter(|_| message.name() == "ObjectMeta");
    for field in fields {
        match (meta_of_object, field.name()) {
            (Some(meta), "resourceVersion") => write_text(field, meta.resource_version, out),
            (Some(ZeroMeta { annotation: Some((key, value)), .. }), "annotations") => {
                let mut entry = Vec::new();
                write_len(1, key.as_bytes(), &mut entry);
                write_len(2, value.as_bytes(), &mut entry);
                write_len(field.number(), &entry, out);
            }
            _ if field.shape == Shape::Single && field.omit != Omit::Absent => write_field(field, meta, out),
            _ => {}
        }
    }
}

fn write_field(field: &Field, meta: Option<&ZeroMeta<'_>>, out: &mut Vec<u8>) {
    match field.of {
        Type::String => write_text(field, "", out),
        // A nil slice.
        Type::Bytes => {}
        Type::Bool | Type::Int32 | Type::Int64 => {
            encode_key(field.number(), WireType::Varint, out);
            out.push(0);
        }
        Type::Double => {
            encode_key(field.number(), WireType::SixtyFourBit, out);
            out.extend_from_slice(&[0; 8]);
        }
        Type::Message(_) => {
            let mut value = Vec::new();
            match field.of.message() {
                // A zero time is a message without fields.
                Some(Message { form: Form::Time | Form::MicroTime, .. }) | None => {}
                Some(Message { form: Form::Quantity, .. }) => write_len(1, b"0", &mut value),
                Some(message) => {
                    let is_meta = message.name() == "ObjectMeta";
                    write_message(message, meta.filter(|_| is_meta), &mut value);
                }
            }
            write_len(field.number(), &value, out);
        }
    }
}

fn write_text(field: &Field, text: &str, out: &mut Vec<u8>) {
    write_len(field.number(), text.as_bytes(), out);
}
