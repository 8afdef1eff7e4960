//! Prints changes: as lines such as `spec.replicas: 3 → 5`, and as a JSON patch.

use std::io::{IsTerminal as _, stdout};

use serde_json::{Map, Value, json};

use super::compare::{FieldChange, PathStep, find_changes};
use crate::escape::escape_controls;

/// What stands for the old value of an added field, and for the new value of a removed one.
const ABSENT: &str = "(none)";

/// Returns how many characters of a value stdout shows; `None` for all of them, if it is no terminal.
pub fn most_chars_of_stdout() -> Option<usize> {
    stdout().is_terminal().then_some(100)
}

/// Returns a line for each changed value, without a line break. Values of more than `most_chars` characters are
/// shortened.
pub fn change_lines(changes: &[FieldChange], most_chars: Option<usize>) -> Vec<String> {
    let mut lines = Vec::new();
    for change in changes {
        add_lines(change, most_chars, &mut lines);
    }
    lines
}

/// An object that was added or removed has a line for each value in it.
fn add_lines(change: &FieldChange, most_chars: Option<usize>, lines: &mut Vec<String>) {
    let FieldChange { path, old, new } = change;
    let is_whole = |value: &Option<Value>| matches!(value, Some(Value::Object(members)) if !members.is_empty());
    if (old.is_none() && is_whole(new)) || (new.is_none() && is_whole(old)) {
        let nothing = Value::Object(Map::new());
        for inner in find_changes(old.as_ref().unwrap_or(&nothing), new.as_ref().unwrap_or(&nothing)) {
            let path = path.iter().cloned().chain(inner.path).collect();
            add_lines(&FieldChange { path, old: inner.old, new: inner.new }, most_chars, lines);
        }
        return;
    }
    let [old, new] = [old, new].map(|value| value_text(value.as_ref(), most_chars));
    lines.push(format!("{}: {old} → {new}", path_text(path)));
}

/// Returns a path as `spec.containers[name=app].image`. Names with other characters are in brackets.
pub fn path_text(path: &[PathStep]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            PathStep::Member(name) if is_plain(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            PathStep::Member(name) => text.extend(["[", &bracketed(name), "]"]),
            PathStep::Item { key: Some(key), .. } => text.extend(["[", &bracketed(key), "]"]),
            PathStep::Item { index, key: None } => text.extend(["[", &index.to_string(), "]"]),
        }
    }
    text
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$'))
}

fn bracketed(text: &str) -> String {
    let is_ambiguous = text.is_empty() || text.contains(['[', ']', '"', ' ']) || text.contains(char::is_control);
    if is_ambiguous { quoted(text) } else { text.to_owned() }
}

/// Returns a value in JSON. A string has quotes only if it would be ambiguous without them.
fn value_text(value: Option<&Value>, most_chars: Option<usize>) -> String {
    let text = match value {
        None => return ABSENT.to_owned(),
        Some(Value::String(text)) if is_unambiguous(text) => text.clone(),
        Some(Value::String(text)) => quoted(text),
        Some(value) => escape_controls(&value.to_string()).into_owned(),
    };
    let cut = most_chars.and_then(|most| text.char_indices().nth(most));
    match cut {
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.chars().count()),
        None => text,
    }
}

/// Returns true for a text that looks like no other value, and that has no control characters.
fn is_unambiguous(text: &str) -> bool {
    let begins_as_json = text.starts_with(['{', '[', '"']) || serde_json::from_str::<Value>(text).is_ok();
    let is_padded = text.is_empty() || text.trim() != text;
    !begins_as_json && !is_padded && text != ABSENT && !text.contains('→') && !text.contains(char::is_control)
}

/// Returns the text as a string in JSON, in which control characters are escaped.
fn quoted(text: &str) -> String {
    escape_controls(&Value::from(text).to_string()).into_owned()
}

/// Returns the changes as a JSON patch (RFC 6902). An operation also has the replaced or removed value, as `oldValue`.
/// By section 4, a reader of patches ignores members that it does not know.
pub fn to_patch(changes: &[FieldChange]) -> Value {
    changes.iter().map(to_operation).collect()
}

fn to_operation(change: &FieldChange) -> Value {
    let FieldChange { path, old, new } = change;
    let path: String = path.iter().flat_map(|step| ["/".to_owned(), pointer_token(step)]).collect();
    match (old, new) {
        (None, new) => json!({ "op": "add", "path": path, "value": new }),
        (old, None) => json!({ "op": "remove", "path": path, "oldValue": old }),
        (old, new) => json!({ "op": "replace", "path": path, "value": new, "oldValue": old }),
    }
}

/// Returns a token of a JSON pointer (RFC 6901).
fn pointer_token(step: &PathStep) -> String {
    match step {
        PathStep::Member(name) => name.replace('~', "~0").replace('/', "~1"),
        PathStep::Item { index, .. } => index.to_string(),
    }
}
