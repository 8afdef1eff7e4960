//! YAML as values of JSON, as client-go reads it (`sigs.k8s.io/yaml`).
//!
//! The crate granit-parser parses the text into events and limits their nesting. This file turns them into values: it
//! resolves aliases, merge keys, and scalars by the core schema of YAML 1.2. A repeated key replaces the earlier one.

use std::collections::HashMap;

use base64::prelude::{BASE64_STANDARD, Engine};
use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Number, Value};

/// How much aliases may add to a text, in bytes and values, so that a short text cannot take much memory.
const MAX_ALIASED: usize = 1 << 20;

/// Where a text is malformed. It quotes nothing, because the text contains credentials.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) struct Malformed {
    /// The line, from 1.
    pub(in crate::client) line: usize,
    /// The column, from 1.
    pub(in crate::client) column: usize,
}

impl Malformed {
    fn at(marker: &Marker) -> Self {
        Self { line: marker.line(), column: marker.col() + 1 }
    }
}

impl From<ScanError> for Malformed {
    fn from(error: ScanError) -> Self {
        Self::at(error.marker())
    }
}

/// Returns the documents of a text. An empty document is null.
pub(in crate::client) fn parse_yaml(text: &str) -> Result<Vec<Value>, Malformed> {
    let mut loader = Loader::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event?;
        loader.add(event).ok_or_else(|| Malformed::at(&span.start))?;
    }
    Ok(loader.documents)
}

#[derive(Default)]
struct Loader {
    documents: Vec<Value>,
    /// The incomplete collections, outermost first.
    open: Vec<Collection>,
    /// The complete values with an anchor.
    anchors: HashMap<usize, Value>,
    /// How much aliases have added.
    aliased: usize,
}

struct Collection {
    anchor: usize,
    content: Content,
}

enum Content {
    Sequence(Vec<Value>),
    Mapping {
        values: Map<String, Value>,
        /// The values of merge keys, in their order.
        merged: Vec<Value>,
        /// The key whose value follows.
        key: Option<Key>,
    },
}

enum Key {
    Name(String),
    Merge,
}

impl Loader {
    /// Adds an event; `None` if it does not fit.
    fn add(&mut self, event: Event<'_>) -> Option<()> {
        match event {
            Event::DocumentStart(..) => self.anchors.clear(),
            Event::SequenceStart(_, anchor, _) => {
                self.open.push(Collection { anchor, content: Content::Sequence(Vec::new()) });
            }
            Event::MappingStart(_, anchor, _) => {
                let content = Content::Mapping { values: Map::new(), merged: Vec::new(), key: None };
                self.open.push(Collection { anchor, content });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Collection { anchor, content } = self.open.pop()?;
                let value = match content {
                    Content::Sequence(values) => Value::Array(values),
                    Content::Mapping { values, merged, .. } => Value::Object(merge(values, merged)?),
                };
                self.add_value(value, anchor)?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                if let Some(Collection { content: Content::Mapping { key: key @ None, .. }, .. }) = self.open.last_mut()
                {
                    let is_merge = &*text == "<<" && style == ScalarStyle::Plain && tag.is_none();
                    *key = Some(if is_merge { Key::Merge } else { Key::Name(text.clone().into_owned()) });
                    if anchor != 0 {
                        self.anchors.insert(anchor, Value::String(text.into_owned()));
                    }
                    return Some(());
                }
                let value = scalar(&text, style, tag.as_deref())?;
                self.add_value(value, anchor)?;
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor)?.clone();
                self.aliased = self.aliased.saturating_add(size(&value));
                if self.aliased > MAX_ALIASED {
                    return None;
                }
                self.add_value(value, 0)?;
            }
            _ => {}
        }
        Some(())
    }

    /// Adds a complete value to the innermost collection, or as a document.
    fn add_value(&mut self, value: Value, anchor: usize) -> Option<()> {
        if anchor != 0 {
            // A copy, like that of an alias.
            self.aliased = self.aliased.saturating_add(size(&value));
            if self.aliased > MAX_ALIASED {
                return None;
            }
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut().map(|collection| &mut collection.content) {
            None => self.documents.push(value),
            Some(Content::Sequence(values)) => values.push(value),
            Some(Content::Mapping { values, merged, key }) => match (key.take(), value) {
                (Some(Key::Name(name)), value) => drop(values.insert(name, value)),
                (Some(Key::Merge), value) => merged.push(value),
                (None, Value::String(name)) => *key = Some(Key::Name(name)),
                // Only strings can be keys of JSON.
                (None, _) => return None,
            },
        }
        Some(())
    }
}

/// Adds the entries of merged mappings, except for keys that the mapping contains itself.
fn merge(mut values: Map<String, Value>, merged: Vec<Value>) -> Option<Map<String, Value>> {
    for source in merged {
        let sources = match source {
            Value::Array(sources) => sources,
            source => vec![source],
        };
        for source in sources {
            let Value::Object(source) = source else { return None };
            for (key, value) in source {
                values.entry(key).or_insert(value);
            }
        }
    }
    Some(values)
}

/// Returns the value of a scalar; `None` if it does not fit its tag.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Option<Value> {
    let tag = tag.and_then(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:"));
    match tag.as_deref() {
        Some("str") => Some(Value::String(text.to_owned())),
        Some("binary") => {
            let text: String = text.split_ascii_whitespace().collect();
            String::from_utf8(BASE64_STANDARD.decode(text).ok()?).ok().map(Value::String)
        }
        None if style != ScalarStyle::Plain => Some(Value::String(text.to_owned())),
        _ => Some(plain(text)),
    }
}

fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        text => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(Number::from);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return u64::from_str_radix(digits, 8).ok().map(Number::from);
    }
    // Rust's parser of numbers also reads `inf` and `nan`.
    let is_number = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && unsigned.contains(|digit: char| digit.is_ascii_digit());
    if !is_number {
        return None;
    }
    let integer = text.parse::<i64>().map(Number::from).ok().or_else(|| text.parse::<u64>().map(Number::from).ok());
    integer.or_else(|| text.parse().ok().and_then(Number::from_f64))
}

fn size(value: &Value) -> usize {
    let (mut total, mut rest) = (0_usize, vec![value]);
    while let Some(value) = rest.pop() {
        total += 1;
        match value {
            Value::String(text) => total += text.len(),
            Value::Array(values) => rest.extend(values),
            Value::Object(values) => {
                total += values.keys().map(String::len).sum::<usize>();
                rest.extend(values.values());
            }
            _ => {}
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_yaml_as_json() {
        for (text, expected) in [
            ("", vec![]),
            ("---\n---\na: 1\n...\n", vec![Value::Null, json!({"a": 1})]),
            (
                "[a, 'b', \"c\\td\", 1, -2, 0x1f, 0o17, 1.5, 1e3, 18446744073709551615]",
                vec![json!(["a", "b", "c\td", 1, -2, 31, 15, 1.5, 1000.0, 18_446_744_073_709_551_615_u64])],
            ),
            (
                "[~, null, Null, true, FALSE, yes, on, y, '', '1', 'true', nan, inf, -a, 1_0, 1.2.3]",
                vec![json!([
                    null, null, null, true, false, "yes", "on", "y", "", "1", "true", "nan", "inf", "-a", "1_0",
                    "1.2.3"
                ])],
            ),
            (
                "{!!str a: !!str 1, b: !!binary YWJj, 1: !custom x, d: !!int '7', ? e : f, g: }",
                vec![json!({
                    "a": "1", "b": "abc", "1": "x", "d": 7, "e": "f", "g": null
                })],
            ),
            ("a: |\n  one\n  two\nb: >-\n  one\n  two\n", vec![json!({"a": "one\ntwo\n", "b": "one two"})]),
            ("a: 1\na: 2\n", vec![json!({"a": 2})]),
            ("x: &x [1, &y k]\ny: *x\n*y : z\n", vec![json!({"x": [1, "k"], "y": [1, "k"], "k": "z"})]),
            (
                "a: &a {k: 1, l: 1}\nb: &b {l: 2, m: 2}\nc: {k: 3, <<: *a}\nd: {<<: [*b, *a], n: 4}\ne: {'<<': 1}\n",
                vec![json!({
                    "a": {"k": 1, "l": 1}, "b": {"l": 2, "m": 2}, "c": {"k": 3, "l": 1},
                    "d": {"k": 1, "l": 2, "m": 2, "n": 4}, "e": {"<<": 1}
                })],
            ),
            ("{\"a\": [1, {\"b\": null}]}", vec![json!({"a": [1, {"b": null}]})]),
        ] {
            assert_eq!(parse_yaml(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn names_the_place_of_what_it_refuses() {
        for (text, expected) in [
            ("a: [", None),
            ("a: 1\n b: 2\n", None),
            ("a: *unknown", None),
            ("a: &a [*a]", None),
            ("a: 1\nb: {<<: 1}\n", Some((2, 10))),
            ("? [a]\n: b\n", Some((1, 5))),
            ("a: !!binary '!'", Some((1, 13))),
        ] {
            let Malformed { line, column } = parse_yaml(text).unwrap_err();
            if let Some(expected) = expected {
                assert_eq!((line, column), expected, "{text}");
            }
        }
    }

    /// Each of the lists has ten times the values of the list before it.
    #[test]
    fn limits_what_aliases_add_and_how_deep_values_nest() {
        let lists = (1..10).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", ")));
        let text: String = ["a0: &a0 [x]\n".to_owned()].into_iter().chain(lists).collect();
        assert!(parse_yaml(&text).is_err());
        let small: String = text.split_inclusive('\n').take(5).collect();
        assert!(parse_yaml(&small).is_ok());
        assert!(parse_yaml(&"[".repeat(100_000)).is_err());
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(parse_yaml(&deep).is_ok());
    }
}
