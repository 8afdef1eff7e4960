//! The part of the protobuf wire format that is needed to prepare a recorded list.

/// The wire type of strings, bytes and messages.
const LENGTH_DELIMITED: u64 = 2;

/// One field of a message.
pub(crate) struct Field<'a> {
    pub number: u64,
    /// Tag and value, as in the message.
    pub whole: &'a [u8],
    /// The content of a string, bytes or message field; empty for numbers.
    pub content: &'a [u8],
}

/// The bytes are not a protobuf message. Groups, which Kubernetes never uses, count as malformed.
#[derive(Debug)]
pub(crate) struct Malformed;

/// Yields the fields of `message`, of any wire type; ends after the first error.
pub(crate) fn fields(message: &[u8]) -> impl Iterator<Item = Result<Field<'_>, Malformed>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = take_field(&mut rest);
        if field.is_none() {
            rest = &[];
        }
        Some(field.ok_or(Malformed))
    })
}

/// Appends a length-delimited field.
pub(crate) fn put_field(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    put_header(out, number, content.len() as u64);
    out.extend_from_slice(content);
}

/// Appends tag and length of a length-delimited field. The caller appends the content.
pub(crate) fn put_header(out: &mut Vec<u8>, number: u64, length: u64) {
    put_varint(out, number << 3 | LENGTH_DELIMITED);
    put_varint(out, length);
}

fn take_field<'a>(rest: &mut &'a [u8]) -> Option<Field<'a>> {
    let start = *rest;
    let tag = take_varint(rest)?;
    let content = match tag & 7 {
        0 => take_varint(rest).map(|_| &[][..]),
        1 => take(rest, 8).map(|_| &[][..]),
        LENGTH_DELIMITED => {
            let length = take_varint(rest)?;
            take(rest, usize::try_from(length).ok()?)
        }
        5 => take(rest, 4).map(|_| &[][..]),
        _ => None,
    }?;
    let whole = &start[..start.len() - rest.len()];
    Some(Field { number: tag >> 3, whole, content })
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    rest.split_off(..length)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = rest.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}
