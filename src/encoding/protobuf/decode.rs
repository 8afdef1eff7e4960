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
