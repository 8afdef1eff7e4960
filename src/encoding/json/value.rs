//! Values within JSON.

use std::borrow::Cow;
use std::collections::HashMap;

use super::reader::{Reader, text};
use crate::encoding::value::{Array, Object, Pieces, Place, PlaceForm, Value};
use crate::error::Fault;

/// The members of an object in their order, each name once with its last value.
type Members<'a> = Vec<(Cow<'a, str>, &'a [u8])>;

/// Returns the value of this text, which is a part of the root.
pub(crate) fn value<'a>(root: &'a [u8], json: &'a [u8]) -> Result<Value<'a>, Fault> {
    let place = || Place { form: PlaceForm::Json, pieces: Pieces::one(root, json) };
    Ok(match json.first() {
        Some(b'{') => Value::Object(Object { root, place: place(), type_meta: None }),
        Some(b'[') => Value::Array(Array { root, place: place() }),
        Some(b'"') => Value::String(text(json)?),
        Some(b'n') => Value::Null,
        Some(b't') => Value::Bool(true),
        Some(b'f') => Value::Bool(false),
        Some(_) => Value::Number(str::from_utf8(json).map_err(|_| Fault::Syntax)?),
        None => return Err(Fault::Syntax),
    })
}

/// Returns the value of JSON within protobuf, which is a part of the root.
pub(crate) fn whole<'a>(root: &'a [u8], json: &'a [u8]) -> Result<Value<'a>, Fault> {
    let mut reader = Reader::new(json, 0);
    let found = reader.value()?;
    reader.end()?;
    value(root, found)
}

/// Returns the member of this name: the last one, as Python and most of Go read it.
pub(crate) fn member<'a>(object: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, Fault> {
    let mut json = Reader::new(object, 0);
    let mut members = json.object()?;
    let mut found = None;
    while let Some(of_member) = members.next(&mut json)? {
        let value = json.value()?;
        if of_member == name {
            found = Some(value);
        }
    }
    json.end()?;
    Ok(found)
}

/// Returns all members.
pub(crate) fn members(object: &[u8]) -> Result<Members<'_>, Fault> {
    let mut json = Reader::new(object, 0);
    let mut walk = json.object()?;
    let mut found = Members::new();
    let mut is_sorted = true;
    while let Some(name) = walk.next(&mut json)? {
        let value = json.value()?;
        // API servers write the members of custom resources in order, so that none is there twice.
        is_sorted &= found.last().is_none_or(|(last, _)| *last < name);
        found.push((name, value));
    }
    json.end()?;
    Ok(if is_sorted { found } else { without_duplicates(found) })
}

fn without_duplicates(found: Members<'_>) -> Members<'_> {
    let mut places = HashMap::with_capacity(found.len());
    let mut unique = Members::with_capacity(found.len());
    for (name, value) in found {
        let place = *places.entry(name.clone()).or_insert(unique.len());
        match unique.get_mut(place) {
            Some((_, earlier)) => *earlier = value,
            None => unique.push((name, value)),
        }
    }
    unique
}

/// Calls `each` with every element of an array.
pub(crate) fn elements<'a, E: From<Fault>>(
    array: &'a [u8],
    mut each: impl FnMut(&'a [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut json = Reader::new(array, 0);
    let mut walk = json.array()?;
    while walk.next(&mut json)? {
        each(json.value()?)?;
    }
    Ok(json.end()?)
}
