//! JSON objects, taken apart and left otherwise as they are.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A member of a JSON object.
pub struct Member<'a> {
    pub name: Cow<'a, str>,
    /// With its quotes and escapes.
    written: &'a RawValue,
    pub value: &'a RawValue,
}

impl Member<'_> {
    /// In bytes, with the colon and a comma.
    pub fn size(&self) -> usize {
        self.written.get().len() + self.value.get().len() + 2
    }
}

/// Calls it for each member of a JSON object.
pub fn members<'a>(
    object: &'a [u8],
    each: impl FnMut(Member<'a>) -> Result<(), serde_json::Error>,
) -> Result<(), serde_json::Error> {
    serde_json::Deserializer::from_slice(object).deserialize_map(Members(each))
}

/// Calls it for the JSON object, or for each in the array of them.
pub fn objects(
    value: &RawValue,
    mut each: impl FnMut(&[u8]) -> Result<(), serde_json::Error>,
) -> Result<(), serde_json::Error> {
    if is_object(value) {
        return each(value.get().as_bytes());
    }
    if is_array(value) {
        let elements: Vec<&RawValue> = serde_json::from_str(value.get())?;
        return elements
            .into_iter()
            .filter(|value| is_object(value))
            .try_for_each(|value| each(value.get().as_bytes()));
    }
    Ok(())
}

/// The names of members that lead to a field, of `metadata.labels["app"]` the key in the map too.
pub fn names(path: &str) -> Vec<&str> {
    let (path, key) = match path.strip_suffix("\"]").and_then(|path| path.split_once("[\"")) {
        Some((path, key)) => (path, Some(key)),
        None => (path, None),
    };
    path.split('.').chain(key).collect()
}

/// Appends a JSON object without what is at these paths, also where these lead through arrays.
pub fn without(object: &[u8], paths: &[&[&str]], out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    out.push(b'{');
    let start = out.len();
    members(object, |member| {
        let inside = inside(&member, paths);
        if inside.iter().any(|path| path.is_empty()) {
            return Ok(());
        }
        if out.len() > start {
            out.push(b',');
        }
        out.extend_from_slice(member.written.get().as_bytes());
        out.push(b':');
        value_without(member.value, &inside, out)
    })?;
    out.push(b'}');
    Ok(())
}

fn value_without(value: &RawValue, paths: &[&[&str]], out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    if paths.is_empty() || !(is_object(value) || is_array(value)) {
        out.extend_from_slice(value.get().as_bytes());
        return Ok(());
    }
    if is_object(value) {
        return without(value.get().as_bytes(), paths, out);
    }
    out.push(b'[');
    let elements: Vec<&RawValue> = serde_json::from_str(value.get())?;
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        value_without(element, paths, out)?;
    }
    out.push(b']');
    Ok(())
}

/// What the paths through this member lead along in it; an empty one means all of it.
pub fn inside<'p, 's>(member: &Member<'_>, paths: &[&'p [&'s str]]) -> Vec<&'p [&'s str]> {
    paths
        .iter()
        .filter_map(|path| path.split_first())
        .filter(|(first, _)| **first == member.name)
        .map(|(_, rest)| rest)
        .collect()
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

fn is_array(value: &RawValue) -> bool {
    value.get().starts_with('[')
}

struct Members<F>(F);

impl<'de, F: FnMut(Member<'de>) -> Result<(), serde_json::Error>> Visitor<'de> for Members<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((written, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            let name = match written.get() {
                escaped if escaped.contains('\\') => serde_json::from_str(escaped).map_err(A::Error::custom)?,
                plain => plain.trim_matches('"').into(),
            };
            (self.0)(Member { name, written, value }).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_without_a_path() {
        let object = r#"{"kind":"Pod","metadata":{"name":"a","labels":{"a.b/c":"x","d":"y"}},"spec":{"containers":[{"name":"b","image":"i"},null,{"image":"<\u003c"}]}}"#;
        for (paths, expected) in [
            (&[][..], object),
            (&["none", "kind.none", "metadata.name.none"], object),
            (&["metadata", "spec"], r#"{"kind":"Pod"}"#),
            (&["kind", "metadata.labels[\"a.b/c\"]", "spec"], r#"{"metadata":{"name":"a","labels":{"d":"y"}}}"#),
            (
                &["metadata.labels[\"d\"]", "metadata.labels[\"a.b/c\"]", "metadata.name", "kind", "spec"],
                r#"{"metadata":{"labels":{}}}"#,
            ),
            (
                &["metadata", "kind", "spec.containers.name"],
                r#"{"spec":{"containers":[{"image":"i"},null,{"image":"<\u003c"}]}}"#,
            ),
            (&["kind", "metadata", "spec"], "{}"),
        ] {
            let names: Vec<_> = paths.iter().map(|path| names(path)).collect();
            let mut out = Vec::new();
            without(object.as_bytes(), &names.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{paths:?}");
        }
    }
}
