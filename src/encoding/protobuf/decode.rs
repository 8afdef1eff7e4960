//! Decoding by prost, within a limit of memory that is estimated from an object's bytes.
//!
//! A decoded object may take far more memory than its bytes: an empty element of two bytes becomes a struct of up to
//! three kilobytes in a `Vec` that doubles. This module does not know the type that an object is decoded to. Where the
//! table of fields has the kind, it charges what a struct with the fields of each message takes, so that for the types
//! of k8s-pb the estimate is an upper bound, as a test checks. Otherwise it charges a constant for each value, and more
//! for a value that could be a message.

use std::sync::OnceLock;

use super::canonical::repaired;
use super::wire::{Fields, MAX_DEPTH, Value};
use crate::encoding::item_ref::ItemRef;
use crate::error::ItemError;
use crate::schema::{Message, Shape, Type};

/// Decodes an object into a new `message`, unless it may take too much memory.
///
/// Go allows text that is not UTF-8, which a `String` cannot contain. An object with such text is therefore decoded
/// from a copy with U+FFFD, if its kind is in the table of fields.
pub(crate) fn merge<M: prost::Message + Default>(message: &mut M, item: &ItemRef<'_>) -> Result<(), ItemError> {
    item.check_decoded_size(estimate)?;
    let Err(error) = message.merge(item.bytes) else { return Ok(()) };
    let repaired = repaired(item.type_meta, item.bytes).ok_or(error)?;
    *message = M::default();
    Ok(message.merge(&*repaired)?)
}

/// The charge for a value of an unknown kind that could be a message.
const OBJECT: u64 = 1 << 10;

/// The charge for a string, bytes or a message of an unknown kind. The length of text is added.
const VALUE: u64 = 64;

/// The charge for a number of an unknown kind.
const NUMBER: u64 = 32;

/// The least that an allocation takes.
const ALLOCATION: u64 = 16;

/// Estimates how much memory the decoded object may take. The estimate allocates a few words for each level of nesting.
pub(crate) fn estimate(item: &ItemRef<'_>) -> u64 {
    match Message::of(&item.type_meta.api_version, item.type_meta.item_kind()) {
        Some(message) => of_message(message, item.bytes, 0),
        None => of_unknown(item.bytes),
    }
}

/// Estimates how much the fields of a message allocate, without the message itself. Nothing after a malformed field
/// counts, because it is never decoded.
fn of_message(message: &Message, bytes: &[u8], depth: usize) -> u64 {
    let fields = Fields::new(bytes).map_while(Result::ok);
    fields.fold(0, |estimate, read| match message.field(read.number) {
        Some(field) => estimate + of_field(field.shape, field.of, read.value, depth),
        None => estimate,
    })
}

fn of_field(shape: Shape, of: Type, value: Value<'_>, depth: usize) -> u64 {
    let own = size_of_value(of);
    match (shape, value) {
        (Shape::Map, Value::Len(entry)) => {
            let entry = Fields::new(entry).map_while(Result::ok);
            let contents =
                entry.map(|read| of_value(if read.number == 1 { Type::String } else { of }, read.value, depth));
            in_vec(size_of_value(Type::String) + own) + contents.sum::<u64>()
        }
        (Shape::Repeated, Value::Len(packed)) if matches!(of, Type::Bool | Type::Int32 | Type::Int64) => {
            packed.len() as u64 * in_vec(own)
        }
        (Shape::Repeated, value) => in_vec(own) + of_value(of, value, depth),
        // The value is in the struct, or boxed if the type contains itself.
        (_, value) => own + of_value(of, value, depth),
    }
}

/// Estimates how much a value allocates in addition to its place in a struct.
fn of_value(of: Type, value: Value<'_>, depth: usize) -> u64 {
    match (of, value) {
        (Type::String | Type::Bytes, Value::Len(text)) => text.len() as u64 + ALLOCATION,
        (Type::Message(_), Value::Len(bytes)) if depth < MAX_DEPTH => {
            of.message().map_or(0, |message| of_message(message, bytes, depth + 1))
        }
        _ => 0,
    }
}

/// Returns the memory for an element of a `Vec`. Small elements have four places from the first one on, and a `Vec`
/// that doubles has the old and the new elements at once.
fn in_vec(element: u64) -> u64 {
    if element > 1024 { 3 * element } else { 4 * element }
}

fn size_of_value(of: Type) -> u64 {
    static SIZES: OnceLock<Vec<u64>> = OnceLock::new();

    let place = match of {
        Type::String | Type::Bytes => return 24,
        Type::Bool | Type::Int32 | Type::Int64 | Type::Double => return 16,
        Type::Message(place) => place,
    };
    let sizes = SIZES.get_or_init(|| {
        let mut sizes = vec![None; Message::all().len()];
        (0..Message::all().len()).for_each(|place| _ = add_size(place, &mut sizes));
        sizes.into_iter().map(Option::unwrap_or_default).collect()
    });
    sizes.get(usize::from(place)).copied().unwrap_or_default()
}

/// Adds the size of a message, which includes its single messages and whether each is present. A message that contains
/// itself is boxed.
fn add_size(place: usize, sizes: &mut [Option<u64>]) -> u64 {
    if let Some(known) = sizes.get(place).copied().flatten() {
        return known;
    }
    let set = |sizes: &mut [Option<u64>], size| sizes.get_mut(place).into_iter().for_each(|known| *known = Some(size));
    // This is the size of a message that contains itself, within itself.
    set(sizes, 8);
    let fields = Message::all().get(place).map(Message::fields).unwrap_or_default();
    let size = fields.iter().fold(8, |size, field| match (field.shape, field.of) {
        (Shape::Single | Shape::Optional, Type::Message(inner)) => size + add_size(usize::from(inner), sizes),
        (Shape::Single | Shape::Optional, of) => size + size_of_value(of),
        (Shape::Repeated, _) => size + 24,
        (Shape::Map, _) => size + 48,
    });
    set(sizes, size);
    size
}

/// Estimates an object of an unknown kind. It walks every value that could be a message, and reads each byte at most
/// once.
fn of_unknown(object: &[u8]) -> u64 {
    let mut estimate = 0;
    let mut messages = vec![(Fields::new(object), object.len() as u64)];
    while let Some((fields, len)) = messages.last_mut() {
        match fields.next() {
            Some(Ok(field)) => match field.value {
                Value::Len(value) => {
                    estimate += VALUE;
                    if messages.len() < MAX_DEPTH {
                        messages.push((Fields::new(value), value.len() as u64));
                    }
                }
                _ => estimate += NUMBER,
            },
            None => {
                estimate += OBJECT;
                messages.pop();
            }
            // The value is text or malformed. The charges for its contents stay, because prost may allocate them before
            // it finds the fault.
            Some(Err(_)) => {
                estimate += *len;
                messages.pop();
            }
        }
    }
    estimate
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::TypeMeta;
    use crate::wire::Encoding;

    fn estimate_of(kind: &str, object: &[u8]) -> u64 {
        let type_meta = TypeMeta::new("v1", kind);
        estimate(&ItemRef::new(Encoding::Protobuf, object).with_type_meta(&type_meta))
    }

    fn wrapped(tag: u8, bytes: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    #[test]
    fn an_estimate_charges_for_the_fields_of_a_known_kind() {
        let address = wrapped(0x0a, &wrapped(0x0a, b"1"));
        for (kind, object, expected) in [
            ("ConfigMap", &[][..], 0),
            // A field that the table does not have.
            ("ConfigMap", &[0x78, 1], 0),
            ("ConfigMap", &[0x20, 1], 16),
            ("ConfigMap", b"\x12\x07\x0a\x01k\x12\x02vv", 4 * (24 + 24) + (1 + 16) + (2 + 16)),
            ("ConfigMap", b"\x12\x07\x0a\x01k\x12\x02vv\x20\x01", 4 * (24 + 24) + (1 + 16) + (2 + 16) + 16),
            // Nothing counts after a malformed field.
            ("ConfigMap", b"\x0f\x20\x01", 0),
            // A subset has three lists, and an address has three texts and a reference of seven.
            ("Endpoints", b"\x12\x00", 4 * 80),
            ("Endpoints", &wrapped(0x12, &address), 4 * 80 + 4 * (80 + 176) + 24 + (1 + 16)),
        ] {
            assert_eq!(estimate_of(kind, object), expected, "{kind} {object:?}");
        }
        for (kind, without, with, expected) in [
            // Two maps.
            ("PersistentVolumeClaim", wrapped(0x12, b""), wrapped(0x12, b"\x12\x00"), 8 + 2 * 48),
            ("PersistentVolumeClaim", wrapped(0x12, b""), wrapped(0x12, b"\x0a\x03RWO"), 4 * 24 + 3 + 16),
            // An entry of a map, whose value is a message with a text.
            (
                "PersistentVolumeClaim",
                wrapped(0x12, b"\x12\x00"),
                wrapped(0x12, &wrapped(0x12, b"\x12\x08\x0a\x01k\x12\x03\x0a\x015")),
                4 * (24 + 8 + 24) + (1 + 16) + 24 + (1 + 16),
            ),
            // Packed numbers, of which each byte may be one.
            ("Pod", wrapped(0x12, b"\x72\x00"), wrapped(0x12, &wrapped(0x72, b"\x22\x03\x01\x02\x03")), 3 * 4 * 16),
        ] {
            assert_eq!(estimate_of(kind, &with) - estimate_of(kind, &without), expected, "{kind} {with:?}");
        }
        assert_eq!([in_vec(1024), in_vec(1025)], [4 * 1024, 3 * 1025]);
    }

    /// prost decodes no message beyond this depth.
    #[test]
    fn an_estimate_counts_no_message_that_is_nested_too_deeply() {
        let type_meta = TypeMeta::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let of_nested = |depth| {
            let within = |inner: Vec<u8>, number: u32| {
                let mut outer = Vec::new();
                prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut outer);
                prost::encoding::encode_varint(inner.len() as u64, &mut outer);
                [outer, inner].concat()
            };
            // `not` in `spec.versions.schema.openAPIV3Schema`.
            let object = std::iter::repeat_n(28, depth).chain([1, 4, 7, 2]).fold(Vec::new(), within);
            estimate(&ItemRef::new(Encoding::Protobuf, &object).with_type_meta(&type_meta))
        };
        assert!(of_nested(96) < of_nested(97));
        assert_eq!(of_nested(97), of_nested(98));
    }

    #[test]
    fn an_estimate_of_an_unknown_kind_charges_for_whatever_may_be_a_message() {
        let mut nested = Vec::new();
        for _ in 0..MAX_DEPTH + 9 {
            let mut outer = vec![0x0a];
            prost::encoding::encode_varint(nested.len() as u64, &mut outer);
            outer.append(&mut nested);
            nested = outer;
        }
        for (object, expected) in [
            (&[][..], OBJECT),
            (&[0x08, 1, 0x10, 2], OBJECT + 2 * NUMBER),
            (b"\x0a\x00\x12\x00", OBJECT + 2 * (VALUE + OBJECT)),
            // Text, of which nothing is a field.
            (b"\x0a\x03www", OBJECT + VALUE + 3),
            (&nested, MAX_DEPTH as u64 * (OBJECT + VALUE)),
        ] {
            assert_eq!(estimate_of("Widget", object), expected, "{object:?}");
        }
        assert_eq!((OBJECT, VALUE, NUMBER), (1024, 64, 32));
    }
}
