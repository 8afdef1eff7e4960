//! Masks the values of Secrets, as kubectl diff does (`Masker` in `kubectl/pkg/cmd/diff/diff.go`).

use serde_json::{Map, Value};

/// The members whose values are masked.
const MASKED: [&str; 2] = ["data", "stringData"];

/// kubectl apply writes the whole object into it. kubectl diff does not mask it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Masks the values of two states of a Secret, so that their changes show only which values differ. Other objects are
/// unchanged.
pub fn mask_secrets(old: &mut Value, new: &mut Value) {
    if [&*old, &*new].iter().all(|object| object["kind"] != "Secret" || object["apiVersion"] != "v1") {
        return;
    }
    for member in MASKED {
        mask_members(old.get_mut(member), new.get_mut(member), |_| true);
    }
    let [old, new] = [old, new].map(|object| object.pointer_mut("/metadata/annotations"));
    mask_members(old, new, |name| name == LAST_APPLIED);
}

fn mask_members(old: Option<&mut Value>, new: Option<&mut Value>, is_masked: impl Fn(&str) -> bool) {
    let (mut no_old, mut no_new) = (Map::new(), Map::new());
    let old = old.and_then(Value::as_object_mut).unwrap_or(&mut no_old);
    let new = new.and_then(Value::as_object_mut).unwrap_or(&mut no_new);
    for (name, value) in old.iter_mut().filter(|(name, _)| is_masked(name)) {
        let (before, after) = match new.get(name) {
            Some(now) if now != value => ("*** (before)", "*** (after)"),
            _ => ("***", "***"),
        };
        *value = before.into();
        if let Some(now) = new.get_mut(name) {
            *now = after.into();
        }
    }
    for (_, value) in new.iter_mut().filter(|(name, _)| is_masked(name) && !old.contains_key(*name)) {
        *value = "***".into();
    }
}
