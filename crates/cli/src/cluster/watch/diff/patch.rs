//! Changes as a JSON patch.

use serde_json::{Value, json};

use super::compare::{FieldChange, PathStep};

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
