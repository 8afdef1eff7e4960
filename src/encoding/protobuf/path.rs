//! The values at the end of a path of numbers.

use std::borrow::Cow;

use super::wire::{self, Fields, key_of};
use crate::encoding::codec::{Value, Values};
use crate::encoding::paths::Steps;
use crate::error::Fault;

/// A walk to all values at the end of a path, in their order.
pub(crate) struct ValuesByNumber<'a, 'p> {
    numbers: &'p [u32],
    key: Option<&'p str>,
    /// The enclosing messages, and the current message. Invariant: at most one for each number, or one if there are no
    /// numbers.
    messages: Vec<Fields<'a>>,
}

impl<'a, 'p> ValuesByNumber<'a, 'p> {
    pub(crate) fn new(object: &'a [u8], path: Steps<'p>) -> Self {
        Self { numbers: path.numbers, key: path.key, messages: vec![Fields::new(object)] }
    }
}

impl<'a> Values<'a> for ValuesByNumber<'a, '_> {
    type Value = wire::Value<'a>;

    fn next(&mut self) -> Option<Result<wire::Value<'a>, Fault>> {
        let Self { numbers, key, messages } = self;
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
                return Some(found);
            }
        }
    }
}

/// Returns the value of a map's entry, if the entry has this key.
fn value_of<'a>(key: &str, entry: &'a [u8]) -> Result<Option<wire::Value<'a>>, Fault> {
    let mut found = wire::Value::Len(&[]);
    for field in Fields::new(entry) {
        let field = field?;
        if field.number == 2 {
            found = field.value;
        }
    }
    Ok((key_of(entry)? == key.as_bytes()).then_some(found))
}

impl<'a> Value<'a> for wire::Value<'a> {
    fn to_str(self) -> Result<Cow<'a, str>, Fault> {
        self.text()
    }

    fn to_bytes(self) -> Result<&'a [u8], Fault> {
        self.bytes()
    }

    fn to_int(self) -> Result<i64, Fault> {
        self.int()
    }

    fn to_text(self, is_bool: bool) -> Result<Cow<'a, str>, Fault> {
        if is_bool { Ok((self.int()? != 0).to_string().into()) } else { self.text() }
    }
}
