//! Estimates from an object's bytes how much memory the decoded object may take.
//!
//! A decoded object may take far more memory than its bytes: an empty element of two bytes becomes a struct of up to
//! three kilobytes in a `Vec` that doubles. This module does not know the type that an object is decoded to. It charges
//! a constant for each value, and more for a value that could be a message. For a Pod of k8s-pb the actual memory is at
//! most five times the estimate, as a test checks.

use crate::error::ItemError;
use crate::wire::Encoding;
use crate::wire::protobuf::{Fields, Value};
use crate::wire::scan::Brackets;

/// Objects up to this size are not walked, because none of them takes more than about 40 MB.
const SMALL: usize = 16 << 10;

/// Charged for a value that could be a message, and for an object or array of JSON.
const MESSAGE: u64 = 1 << 10;

/// Charged for an empty object that is a member of a JSON object, such as most fields in `managedFields`: a map of an
/// untyped value takes less for it than for an object with members. A type with a map of large structs takes more, up
/// to about ten times.
const EMPTY_MEMBER: u64 = 256;

/// Charged for a string, bytes or a message, and for any value of JSON; the length of text is added.
const VALUE: u64 = 64;

/// Charged for a number.
const NUMBER: u64 = 16;

/// The depth at which prost stops.
const MAX_DEPTH: usize = 100;

/// Refuses an object that may take more than `max` bytes. It allocates a few words for each level of nesting.
///
/// # Errors
///
/// [`ItemError::DecodedSize`].
pub(crate) fn check(encoding: Encoding, object: &[u8], max: u64) -> Result<(), ItemError> {
    if object.len() <= SMALL {
        return Ok(());
    }
    let estimate = match encoding {
        Encoding::Protobuf => of_protobuf(object),
        Encoding::Json => of_json(object),
    };
    if estimate > max { Err(ItemError::DecodedSize { estimate, max }) } else { Ok(()) }
}

/// Estimates a protobuf object. It walks every value that could be a message, and reads each byte at most once.
fn of_protobuf(object: &[u8]) -> u64 {
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
                estimate += MESSAGE;
                messages.pop();
            }
            // Text, or malformed. The charges for its contents stay: prost may allocate them before it finds the fault.
            Some(Err(_)) => {
                estimate += *len;
                messages.pop();
            }
        }
    }
    estimate
}

fn of_json(object: &[u8]) -> u64 {
    let Brackets { values, empty_members } = Brackets::count(object);
    // Counts commas in strings too, where they are rare.
    let commas = memchr::memchr_iter(b',', object).count() as u64;
    object.len() as u64 + values * MESSAGE + empty_members * EMPTY_MEMBER + commas * VALUE
}
