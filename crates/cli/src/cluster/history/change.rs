//! A change by value, and who made it.

use jiff::Timestamp;
use listwatch::internal::chain;
use listwatch_history::{Gap, PastObject};
use serde_json::{Value, json};

use crate::cluster::watch::diff::{
    FieldChange, change_lines, comparable_json, find_changes, mask_secrets, most_chars_of_stdout,
};
use crate::failure::Failure;

/// Returns the values that differ between two states; `None` stands for an object that does not exist.
pub fn compare(
    old: Option<&PastObject>,
    new: Option<&PastObject>,
    shows_secrets: bool,
) -> Result<Vec<FieldChange>, Failure> {
    let json = |object: Option<&PastObject>| match object {
        None => Ok(Value::Object(serde_json::Map::new())),
        Some(object) => {
            comparable_json(&object.item()).map(|(json, _)| json).map_err(|error| unreadable(object, &error))
        }
    };
    let (mut old, mut new) = (json(old)?, json(new)?);
    if !shows_secrets {
        mask_secrets(&mut old, &mut new);
    }
    Ok(find_changes(&old, &new))
}

/// Appends a line for each changed value.
pub fn push_values(text: &mut String, changes: &[FieldChange]) {
    for line in change_lines(changes, most_chars_of_stdout()) {
        text.extend(["    ", &line, "\n"]);
    }
}

/// Returns a gap as JSON.
pub fn gap_json(gap: &Gap) -> Value {
    let end = |(version, time): &(String, Timestamp)| json!({"resourceVersion": version, "time": time.to_string()});
    json!({"type": "GAP", "from": end(&gap.from), "to": end(&gap.to)})
}

fn unreadable(object: &PastObject, error: &listwatch::ItemError) -> Failure {
    Failure::Error(format!("{}/{} cannot be read: {}", object.namespace(), object.name(), chain(error)))
}

/// Returns the object as JSON.
pub fn to_json(object: &PastObject) -> Result<Value, Failure> {
    let mut json = Vec::new();
    object.item().to_json(&mut json).map_err(|error| unreadable(object, &error))?;
    serde_json::from_slice(&json).map_err(|error| Failure::Error(error.to_string()))
}

/// A field manager whose entry changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Manager {
    pub name: String,
    /// The time that the server wrote into the object, in seconds.
    pub time: Option<String>,
}

/// Returns the field managers whose entries are new or newer in the second state.
pub fn managers(old: Option<&PastObject>, new: &PastObject) -> Result<Vec<Manager>, Failure> {
    let entries = |object: &PastObject| -> Result<Vec<Value>, Failure> {
        let json = to_json(object)?;
        Ok(json.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default())
    };
    let before = old.map(entries).transpose()?.unwrap_or_default();
    let changed = entries(new)?.into_iter().filter(|entry| !before.contains(entry));
    let mut managers = Vec::new();
    for entry in changed {
        let text = |member: &str| entry.get(member).and_then(Value::as_str).map(str::to_owned);
        let Some(name) = text("manager") else { continue };
        let manager = Manager { name, time: text("time") };
        if !managers.contains(&manager) {
            managers.push(manager);
        }
    }
    Ok(managers)
}
