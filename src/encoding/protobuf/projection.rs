//! The copy of a message, made by one walk that measures it and a second one that writes it.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use crate::encoding::paths::{Action, Rules};
use crate::encoding::protobuf::wire::{Fields, WireField, key_of};
use crate::error::Fault;

/// Appends the copy of a message, with one allocation of its size.
pub(crate) fn append(message: &[u8], rules: Rules<'_, u32>, copy: &mut Vec<u8>) -> Result<(), Fault> {
    let mut sizes = Sizes::default();
    let size = measure(message, rules, &mut sizes)?;
    copy.reserve_exact(size);
    sizes.next = 0;
    write(message, rules, &mut sizes, copy)
}

/// Returns the action for a field, and the message in it if this is projected.
fn action<'a, 'p>(rules: Rules<'p, u32>, field: &WireField<'a>) -> Result<(Action<'p, u32>, &'a [u8]), Fault> {
    let action = rules.action(&field.number);
    let Action::Project(inner) = action else { return Ok((action, &[])) };
    let message = field.value.bytes()?;
    let action = if inner.has_keys() { inner.of_key(key_of(message)?) } else { action };
    Ok((action, message))
}

/// The measured sizes of the first projected messages, in their order. The sizes of later messages are measured again,
/// so that the memory does not grow with an item.
#[derive(Default)]
struct Sizes {
    known: [usize; 16],
    next: usize,
}

impl Sizes {
    fn take(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }
}

/// Returns the size of the copy that [`write`] makes. The recursion is no deeper than the paths.
fn measure(message: &[u8], rules: Rules<'_, u32>, sizes: &mut Sizes) -> Result<usize, Fault> {
    let mut size = 0;
    for field in Fields::new(message) {
        let field = field?;
        let (action, inner) = action(rules, &field)?;
        size += match action {
            Action::Drop => 0,
            Action::Keep => field.bytes.len(),
            Action::Project(rules) => {
                let index = sizes.take();
                let left = measure(inner, rules, sizes)?;
                if let Some(known) = sizes.known.get_mut(index) {
                    *known = left;
                }
                if left == inner.len() {
                    // `write` copies this message whole, and so does not use the sizes of messages within it.
                    sizes.next = index + 1;
                    field.bytes.len()
                } else {
                    key_len(field.number) + encoded_len_varint(left as u64) + left
                }
            }
        };
    }
    Ok(size)
}

fn write(message: &[u8], rules: Rules<'_, u32>, sizes: &mut Sizes, copy: &mut Vec<u8>) -> Result<(), Fault> {
    for field in Fields::new(message) {
        let field = field?;
        let (action, inner) = action(rules, &field)?;
        match action {
            Action::Drop => {}
            Action::Keep => copy.extend_from_slice(field.bytes),
            Action::Project(rules) => {
                let index = sizes.take();
                let left = match sizes.known.get(index) {
                    Some(known) => *known,
                    None => measure(inner, rules, &mut Sizes::default())?,
                };
                // An equal size means that nothing in the message is dropped.
                if left == inner.len() {
                    copy.extend_from_slice(field.bytes);
                } else {
                    encode_key(field.number, WireType::LengthDelimited, copy);
                    encode_varint(left as u64, copy);
                    write(inner, rules, sizes, copy)?;
                }
            }
        }
    }
    Ok(())
}
