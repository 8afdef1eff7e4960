//! The values at the end of a path of names.

use std::borrow::Cow;
use std::vec;

use super::reader::{Reader, scalar};
use crate::encoding::codec::{Value, Values};
use crate::encoding::paths::Steps;
use crate::error::Fault;

/// All values at the end of a path, in their order. All are found before the first is returned. A fault comes last.
pub(crate) struct ValuesByName<'a>(vec::IntoIter<Result<&'a [u8], Fault>>);

#[derive(Clone, Copy)]
pub(crate) struct JsonValue<'a>(&'a [u8]);

impl<'a> ValuesByName<'a> {
    pub(crate) fn new(mut json: Reader<'a>, path: Steps<'_>) -> Self {
        let names = path.names().collect::<Vec<_>>();
        let mut found = Vec::new();
        if !names.is_empty()
            && let Err(fault) = find(&mut json, &names, &mut found).and_then(|()| json.end())
        {
            found.push(Err(fault));
        }
        Self(found.into_iter())
    }
}

impl<'a> Values<'a> for ValuesByName<'a> {
    type Value = JsonValue<'a>;

    fn next(&mut self) -> Option<Result<JsonValue<'a>, Fault>> {
        self.0.next().map(|value| value.map(JsonValue))
    }
}

/// Appends the values at the end of these names. It recurs at most once for each name, and once more for an array at
/// that name.
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

impl<'a> Value<'a> for JsonValue<'a> {
    fn to_str(self) -> Result<Cow<'a, str>, Fault> {
        Reader::new(self.0, 0).text()?.ok_or(Fault::Type)
    }

    fn to_bytes(self) -> Result<&'a [u8], Fault> {
        Ok(self.0)
    }

    fn to_int(self) -> Result<i64, Fault> {
        match self.0 {
            b"true" => Ok(1),
            b"false" => Ok(0),
            value => Reader::new(value, 0).parse()?.ok_or(Fault::Type),
        }
    }

    fn to_text(self, _is_bool: bool) -> Result<Cow<'a, str>, Fault> {
        scalar(self.0)
    }
}
