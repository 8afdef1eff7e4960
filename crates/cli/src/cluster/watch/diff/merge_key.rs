//! The members that name the items of a list.

use std::collections::HashSet;

use serde_json::Value;

/// The keys of lists whose items have another key than `name`, `type` or `key`, by the name of the field.
///
/// Sources: the tags `patchMergeKey` of `k8s.io/api`, which strategic merge patches use, and the first `listMapKey` of
/// `devices` and `resources`. `e2e/apiserver/fields` checks the tags. A field that is named twice has both in turn.
const BY_FIELD: &[(&str, &str)] = &[
    ("devices", "device"),
    ("healthConditions", "status"),
    ("hostAliases", "ip"),
    ("hostIPs", "ip"),
    ("nodeAllocatableResourceClaimStatuses", "resourceClaimName"),
    ("ownerReferences", "uid"),
    ("podIPs", "ip"),
    ("ports", "containerPort"),
    ("ports", "port"),
    ("reservedFor", "uid"),
    ("resources", "resourceID"),
    ("topologySpreadConstraints", "topologyKey"),
    ("volumeDevices", "devicePath"),
    ("volumeMounts", "mountPath"),
    ("x-kubernetes-validations", "rule"),
];

/// The keys of all other lists, also of custom resources.
const COMMON: [&str; 3] = ["name", "type", "key"];

/// The key of each item of two lists.
pub struct ListKeys {
    /// False if the keys are indexes, because no member names the items.
    pub is_named: bool,
    pub old: Vec<String>,
    pub new: Vec<String>,
}

/// Returns the keys of the items: of the first member that each item has, and that is different in all items of a list.
pub fn item_keys(field: &str, old: &[Value], new: &[Value]) -> ListKeys {
    let of_field = BY_FIELD.iter().filter(|(name, _)| *name == field).map(|(_, key)| *key);
    let named = of_field
        .chain(COMMON)
        .find_map(|member| Some(ListKeys { is_named: true, old: keys_by(member, old)?, new: keys_by(member, new)? }));
    let indexes = |items: &[Value]| (0..items.len()).map(|index| index.to_string()).collect();
    named.unwrap_or_else(|| ListKeys { is_named: false, old: indexes(old), new: indexes(new) })
}

fn keys_by(member: &str, items: &[Value]) -> Option<Vec<String>> {
    let mut seen = HashSet::new();
    let key = |item: &Value| {
        let value = match item.get(member)? {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        seen.insert(value.clone()).then(|| format!("{member}={value}"))
    };
    items.iter().map(key).collect()
}
