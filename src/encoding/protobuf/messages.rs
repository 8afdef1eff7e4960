//! The messages around items in protobuf that are read whole.

use crate::encoding::protobuf::wire::{Fields, Value, write_len};
use crate::encoding::utf8;
use crate::meta::{MAGIC, MAX_CAUSES, Status, TypeMeta};

/// Returns the type meta and the object of the envelope of a single object.
pub(crate) fn envelope(body: &[u8]) -> Option<(TypeMeta, &[u8])> {
    let (mut type_meta, mut raw) = (TypeMeta::default(), None);
    for field in Fields::new(body.strip_prefix(&MAGIC)?) {
        let field = field.ok()?;
        match field.number {
            1 => {
                for field in Fields::new(field.value.bytes().ok()?) {
                    let field = field.ok()?;
                    match field.number {
                        1 => field.value.str().ok()?.clone_into(&mut type_meta.api_version),
                        2 => field.value.str().ok()?.clone_into(&mut type_meta.kind),
                        _ => {}
                    }
                }
            }
            2 => raw = Some(field.value.bytes().ok()?),
            // With a contentEncoding or a contentType, raw is not a plain object.
            3 | 4 if !field.value.bytes().ok()?.is_empty() => return None,
            _ => {}
        }
    }
    Some((type_meta, raw?))
}

/// Decodes a Status, with its first [`MAX_CAUSES`] causes. Returns `None` if the bytes are not a Status. Its message
/// may quote text that is not UTF-8, which is replaced by U+FFFD.
pub(crate) fn status(bytes: &[u8]) -> Option<Status> {
    let unchanged = |_, _: &[u8]| Some(Nested::Unchanged);
    let mut causes = 0;
    let copy = replaced(bytes, &[2, 3, 4], |number, value| match number {
        1 => replaced(value, &[2, 3], unchanged).map(Nested::Replaced),
        5 => {
            let details = replaced(value, &[1, 2, 3, 6], |number, value| {
                causes += usize::from(number == 4);
                match number {
                    4 if causes <= MAX_CAUSES => replaced(value, &[1, 2, 3], unchanged).map(Nested::Replaced),
                    4 => Some(Nested::LeftOut),
                    _ => Some(Nested::Unchanged),
                }
            });
            details.map(Nested::Replaced)
        }
        _ => Some(Nested::Unchanged),
    });
    <Status as prost::Message>::decode(&*copy?).ok()
}

/// The copy of a field that is not text, as [`replaced`] writes it.
enum Nested {
    Unchanged,
    LeftOut,
    Replaced(Vec<u8>),
}

/// Returns a copy of a message in which the fields with these numbers are UTF-8. Returns `None` if the message is
/// malformed, or if `nested` returns `None` for another field with a length.
fn replaced(message: &[u8], texts: &[u32], mut nested: impl FnMut(u32, &[u8]) -> Option<Nested>) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    for field in Fields::new(message) {
        let field = field.ok()?;
        let written = match field.value {
            Value::Len(text) if texts.contains(&field.number) => {
                Nested::Replaced(utf8::replaced(text).into_owned().into_bytes())
            }
            Value::Len(value) => nested(field.number, value)?,
            _ => Nested::Unchanged,
        };
        match written {
            Nested::Unchanged => copy.extend_from_slice(field.bytes),
            Nested::LeftOut => {}
            Nested::Replaced(value) => write_len(field.number, &value, &mut copy),
        }
    }
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_in_another_encoding_is_not_read() {
        for (rest, is_read) in [
            (&b""[..], true),
            (b"\x1a\x00\x22\x00", true),
            (b"\x1a\x04gzip", false),
            (b"\x22\x10application/json", false),
        ] {
            let body = [&MAGIC[..], b"\x12\x02\x0a\x00", rest].concat();
            assert_eq!(envelope(&body).is_some(), is_read, "{rest:?}");
        }
    }
}
