//! Finds the changes between two values in JSON.

use serde_json::{Map, Value};

use super::merge_key::{ListKeys, item_keys};

/// A step from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    Member(String),
    Item {
        /// The index at the time at which the change is applied, after the changes before it.
        index: usize,
        /// The member that names the item, and its value, such as `name=app`; `None` if none does.
        key: Option<String>,
    },
}

/// A value that was added, replaced or removed.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    pub path: Vec<PathStep>,
    /// `None` if it was added.
    pub old: Option<Value>,
    /// `None` if it was removed.
    pub new: Option<Value>,
}

/// Returns the changes from the old to the new value. Applied in turn to the old value, they give the new one.
pub fn find_changes(old: &Value, new: &Value) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare_values(old, new, &mut Vec::new(), &mut changes);
    changes
}

fn compare_values(old: &Value, new: &Value, path: &mut Vec<PathStep>, changes: &mut Vec<FieldChange>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => compare_objects(old, new, path, changes),
        (Value::Array(old), Value::Array(new)) if is_of_objects(old) && is_of_objects(new) => {
            compare_lists(old, new, path, changes);
        }
        _ if old != new => add_change(path, Some(old), Some(new), changes),
        _ => {}
    }
}

fn compare_objects(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    path: &mut Vec<PathStep>,
    changes: &mut Vec<FieldChange>,
) {
    let added = new.iter().filter(|(name, _)| !old.contains_key(*name)).map(|(name, _)| name);
    let mut names: Vec<_> = old.keys().chain(added).collect();
    names.sort_unstable();
    for name in names {
        path.push(PathStep::Member(name.clone()));
        match (old.get(name), new.get(name)) {
            (Some(old), Some(new)) => compare_values(old, new, path, changes),
            (old, new) => add_change(path, old, new, changes),
        }
        path.pop();
    }
}

/// Compares lists of objects. It compares items of the same key, or of the same index if items have no keys.
///
/// Removals come first, from the end, then additions, from the start. So the indexes of all further changes are those
/// of the new list. If the items that stay have another order, the list is replaced.
fn compare_lists(old: &[Value], new: &[Value], path: &mut Vec<PathStep>, changes: &mut Vec<FieldChange>) {
    let field = path.iter().rev().find_map(|step| match step {
        PathStep::Member(name) => Some(name.as_str()),
        PathStep::Item { .. } => None,
    });
    let keys = item_keys(field.unwrap_or_default(), old, new);
    let ListKeys { old: old_keys, new: new_keys, .. } = &keys;
    let kept = |keys: &[String], others: &[String]| -> Vec<String> {
        keys.iter().filter(|key| others.contains(key)).cloned().collect()
    };
    if kept(old_keys, new_keys) != kept(new_keys, old_keys) {
        let [old, new] = [old, new].map(|items| Value::Array(items.to_vec()));
        return add_change(path, Some(&old), Some(&new), changes);
    }
    let step = |index, key: &String| PathStep::Item { index, key: keys.is_named.then(|| key.clone()) };
    for (index, key) in old_keys.iter().enumerate().rev().filter(|(_, key)| !new_keys.contains(key)) {
        path.push(step(index, key));
        add_change(path, old.get(index), None, changes);
        path.pop();
    }
    let was_present = |key: &String| old_keys.iter().position(|other| other == key);
    for (index, key) in new_keys.iter().enumerate().filter(|(_, key)| was_present(key).is_none()) {
        path.push(step(index, key));
        add_change(path, None, new.get(index), changes);
        path.pop();
    }
    for (index, key) in new_keys.iter().enumerate() {
        let old = was_present(key).and_then(|index| old.get(index));
        if let (Some(old), Some(new)) = (old, new.get(index)) {
            path.push(step(index, key));
            compare_values(old, new, path, changes);
            path.pop();
        }
    }
}

fn is_of_objects(list: &[Value]) -> bool {
    list.iter().all(Value::is_object)
}

fn add_change(path: &[PathStep], old: Option<&Value>, new: Option<&Value>, changes: &mut Vec<FieldChange>) {
    changes.push(FieldChange { path: path.to_vec(), old: old.cloned(), new: new.cloned() });
}
