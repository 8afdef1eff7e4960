//! Field selectors, as a server applies them.

use listwatch::{ItemError, LabelSelector};
use serde_json::Value;

use super::objects::Object;
use super::request::ListQuery;

/// Returns true if the selectors select the object.
///
/// A server has a fixed set of fields for each resource. A source compares any field by its path, so
/// that the fields of events work as well. A field that an object does not have counts as the empty text.
pub fn selects(query: &ListQuery, object: &Object) -> Result<bool, String> {
    let item = object.item();
    let text = |error: ItemError| listwatch::internal::chain(&error);
    if !matches_labels(&query.labels, object)? {
        return Ok(false);
    }
    if query.fields.is_empty() {
        return Ok(true);
    }
    match query.fields.matches(&item) {
        Err(ItemError::FieldSelector { .. }) => {}
        matched => return matched.map_err(text),
    }
    let json: Value = serde_json::from_slice(&object.json()?).map_err(|error| error.to_string())?;
    Ok(query.field_text.split(',').all(|term| matches_term(&json, term)))
}

fn matches_labels(labels: &LabelSelector, object: &Object) -> Result<bool, String> {
    if labels.is_empty() {
        return Ok(true);
    }
    let meta = object.item().meta().map_err(|error| error.to_string())?;
    labels.matches(&meta).map_err(|error| error.to_string())
}

fn matches_term(json: &Value, term: &str) -> bool {
    let (path, value, is_equal) = match (term.split_once("!="), term.split_once('=')) {
        (Some((path, value)), _) => (path, value, false),
        (None, Some((path, value))) => (path, value.strip_prefix('=').unwrap_or(value), true),
        (None, None) => return term.trim().is_empty(),
    };
    let found = path.trim().split('.').try_fold(json, |value, name| value.get(name));
    let text = match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    (text == value) == is_equal
}
