//! Estimates from an object's bytes how much memory the decoded object may take.
//!
//! Decoding may take far more memory than the bytes: an empty element of two bytes becomes a struct of up to three kilobytes in
//! a `Vec` that doubles. This module does not know the type that an object is decoded to. It charges each value a constant, and
//! each value that could be a message more. For the types of k8s-pb the truth is at most five times the estimate; a test pins
//! that.

use crate::error::ItemError;
use crate::wire::Encoding;
use crate::wire::protobuf::{Fields, Value};

/// Smaller objects are not walked: none of them takes more than some 40 MB.
const SMALL: usize = 16 << 10;

/// Charged for a value that could be a message, and for an object of JSON.
const MESSAGE: u64 = 1 << 10;

/// Charged for a string, bytes or a message, and for any value of JSON; the length of text is added.
const VALUE: u64 = 64;

/// Charged for a number.
const NUMBER: u64 = 16;

/// prost decodes no deeper.
const MAX_DEPTH: usize = 100;

/// Refuses an object that may take more than `max` bytes. It allocates some words for each level of nesting.
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
        #[cfg(feature = "json")]
        Encoding::Json => of_json(object),
        #[cfg(not(feature = "json"))]
        Encoding::Json => 0,
    };
    if estimate > max { Err(ItemError::DecodedSize { estimate, max }) } else { Ok(()) }
}

/// Each byte is looked at once: either as part of a field's header or number, or as text at the end of a field that is no
/// message.
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
            // Text, or malformed. The charges for its inside stay: prost may allocate it before it finds the fault.
            Some(Err(_)) => {
                estimate += *len;
                messages.pop();
            }
        }
    }
    estimate
}

#[cfg(feature = "json")]
fn of_json(object: &[u8]) -> u64 {
    let objects = crate::wire::scan::count_brackets(object);
    // Also those in strings, where they are rare.
    let values = memchr::memchr_iter(b',', object).count() as u64;
    object.len() as u64 + objects * MESSAGE + values * VALUE
}
