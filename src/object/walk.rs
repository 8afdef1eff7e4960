//! The walk to all values at the end of a path, in either encoding.

use std::borrow::Cow;

use crate::encoding::json::reader::Reader;
use crate::encoding::protobuf::wire::{Fields, Value, key_of};
use crate::error::Fault;

/// A value at the end of a path.
#[derive(Clone, Copy)]
pub(super) enum PathValue<'a> {
    Protobuf(Value<'a>),
    Json(&'a [u8]),
}

impl<'a> PathValue<'a> {
    pub(super) fn str(self) -> Result<Cow<'a, str>, Fault> {
        match self {
            Self::Protobuf(value) => value.text(),
            Self::Json(value) => Reader::new(value, 0).text()?.ok_or(Fault::Type),
        }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], Fault> {
        match self {
            Self::Protobuf(value) => value.bytes(),
            Self::Json(value) => Ok(value),
        }
    }

    pub(super) fn int(self) -> Result<i64, Fault> {
        match self {
            Self::Protobuf(value) => value.int(),
            Self::Json(b"true") => Ok(1),
            Self::Json(b"false") => Ok(0),
            Self::Json(value) => Reader::new(value, 0).parse()?.ok_or(Fault::Type),
        }
    }
}

/// A walk to all values at the end of a path, in their order.
pub(super) enum Walk<'a, 'p> {
    /// The enclosing messages, and the current message. Invariant: at most one for each number, or one if there are no
    /// numbers.
    Protobuf {
        numbers: &'p [u32],
        key: Option<&'p str>,
        messages: Vec<Fields<'a>>,
    },
    Json(std::vec::IntoIter<Result<&'a [u8], Fault>>),
}

impl<'a, 'p> Walk<'a, 'p> {
    pub(super) fn protobuf(numbers: &'p [u32], key: Option<&'p str>, object: &'a [u8]) -> Self {
        Self::Protobuf { numbers, key, messages: vec![Fields::new(object)] }
    }

    pub(super) fn json(names: &[&str], mut json: Reader<'a>) -> Self {
        let mut found = Vec::new();
        if !names.is_empty()
            && let Err(fault) = find(&mut json, names, &mut found).and_then(|()| json.end())
        {
            found.push(Err(fault));
        }
        Self::Json(found.into_iter())
    }

    pub(super) fn next(&mut self) -> Option<Result<PathValue<'a>, Fault>> {
        let (numbers, key, messages) = match self {
            Self::Protobuf { numbers, key, messages } => (*numbers, *key, messages),
            Self::Json(found) => return found.next().map(|value| value.map(PathValue::Json)),
        };
        loop {
            let depth = messages.len();
            let Some(field) = messages.last_mut()?.next() else {
                messages.pop();
                continue;
            };
            let step = field.and_then(|field| {
                if numbers.get(depth - 1) != Some(&field.number) {
                    return Ok(None);
                }
                if depth < numbers.len() {
                    messages.push(Fields::new(field.value.bytes()?));
                    return Ok(None);
                }
                match key {
                    None => Ok(Some(field.value)),
                    Some(key) => value_of(key, field.value.bytes()?),
                }
            });
            if let Some(found) = step.transpose() {
                return Some(found.map(PathValue::Protobuf));
            }
        }
    }
}

/// Appends the values at the end of these names. It recurs at most once for each name, and once more for an array at
/// each name.
fn find<'a>(json: &mut Reader<'a>, names: &[&str], found: &mut Vec<Result<&'a [u8], Fault>>) -> Result<(), Fault> {
    match (json.peek(), names.split_first()) {
        (Some(b'n'), _) => _ = json.value()?,
        (Some(b'['), _) => {
            let mut elements = json.array()?;
            while elements.next(json)? {
                match json.peek() {
                    Some(b'[') => return Err(Fault::Type),
                    _ => find(json, names, found)?,
                }
            }
        }
        (_, None) => found.push(Ok(json.value()?)),
        (Some(b'{'), Some((first, rest))) => {
            let mut members = json.object()?;
            while let Some(name) = members.next(json)? {
                if name == **first {
                    find(json, rest, found)?;
                } else {
                    json.value()?;
                }
            }
        }
        // A string or a number has no fields.
        (_, Some(_)) => _ = json.value()?,
    }
    Ok(())
}

/// Returns the value of a map's entry, if the entry has this key.
fn value_of<'a>(key: &str, entry: &'a [u8]) -> Result<Option<Value<'a>>, Fault> {
    let mut found = Value::Len(&[]);
    for field in Fields::new(entry) {
        let field = field?;
        if field.number == 2 {
            found = field.value;
        }
    }
    Ok((key_of(entry)? == key.as_bytes()).then_some(found))
}
