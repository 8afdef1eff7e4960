//! YAML as JSON.

use serde_json::Value;

/// Converts a document to JSON. Numbers and texts are read by the rules of YAML 1.2, which fit what kubectl and Go's
/// libraries write.
pub fn yaml_to_json(text: &str) -> Result<Vec<u8>, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    serde_json::to_vec(&value).map_err(|error| error.to_string())
}
