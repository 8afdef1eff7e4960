//! Field selectors, as a server applies them.

use listwatch::{Encoding, ItemError, ItemRef, LabelSelector, TypeMeta};

use super::objects::Object;
use super::request::ListQuery;

/// A version of no built-in kind, whose objects can be selected by any field.
const ANY_GROUP: &str = "listwatch.invalid/v1";

/// Returns true if the selectors select the object.
///
/// A server has a fixed set of fields for each resource. A source compares any field of the object in JSON, as a server
/// does with custom resources, so that the fields of events work as well.
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
    let json = object.json()?;
    let any_kind = TypeMeta::new(ANY_GROUP, &object.type_meta.kind);
    query.fields.matches(&ItemRef::new(Encoding::Json, &json).with_type_meta(&any_kind)).map_err(text)
}

fn matches_labels(labels: &LabelSelector, object: &Object) -> Result<bool, String> {
    if labels.is_empty() {
        return Ok(true);
    }
    let meta = object.item().meta().map_err(|error| error.to_string())?;
    labels.matches(&meta).map_err(|error| error.to_string())
}
