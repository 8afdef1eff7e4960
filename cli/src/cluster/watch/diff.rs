//! The top-level fields of objects, compared for `--diff`.

use std::hash::{DefaultHasher, Hash, Hasher};

use listwatch::{ItemError, ItemRef};
use serde_json::{Map, Value};

/// A hash of each top-level field of an object, by name.
pub type FieldHashes = Vec<(String, u64)>;

/// Returns a hash of each top-level field of an object, and the number of unknown fields, which no hash includes.
pub fn hash_fields(item: &ItemRef<'_>) -> Result<(FieldHashes, u64), ItemError> {
    let mut json = Vec::new();
    let unknown_fields = item.to_json(&mut json)?;
    let mut object: Map<String, Value> = serde_json::from_slice(&json).map_err(ItemError::other)?;
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for bookkeeping in ["resourceVersion", "generation", "managedFields"] {
            metadata.remove(bookkeeping);
        }
    }
    let hash = |value: &Value| {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    };
    Ok((object.iter().map(|(name, value)| (name.clone(), hash(value))).collect(), unknown_fields))
}

/// Returns the names of the fields that were added, modified or removed.
pub fn changed_fields(before: &[(String, u64)], now: &[(String, u64)]) -> Vec<String> {
    let differs = now.iter().filter(|field| !before.contains(field));
    let gone = before.iter().filter(|(name, _)| !now.iter().any(|(other, _)| other == name));
    differs.chain(gone).map(|(name, _)| name.clone()).collect()
}

/// Returns the names of changed fields as one word, `-` if nothing was compared.
pub fn field_names(changed: Option<Vec<String>>) -> String {
    match changed {
        None => "-".to_owned(),
        Some(changed) if changed.is_empty() => "none".to_owned(),
        Some(changed) => changed.join(","),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn finds_added_modified_and_removed_fields() {
        let fields =
            |fields: &[(&str, u64)]| fields.iter().map(|(name, hash)| ((*name).to_owned(), *hash)).collect::<Vec<_>>();
        let before = fields(&[("kind", 1), ("spec", 2), ("status", 3)]);
        for (now, expected) in [
            (vec![("kind", 1), ("spec", 2), ("status", 3)], vec![]),
            (vec![("kind", 1), ("spec", 2), ("status", 4)], vec!["status"]),
            (vec![("kind", 1), ("status", 4)], vec!["status", "spec"]),
            (vec![("data", 1), ("kind", 1), ("spec", 2), ("status", 3)], vec!["data"]),
        ] {
            assert_eq!(super::changed_fields(&before, &fields(&now)), expected, "{now:?}");
        }
    }
}
