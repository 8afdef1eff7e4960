//! The changes between two states of an object, for `--diff`.
//!
//! | file | does |
//! |---|---|
//! | `previous` | keeps the previous state of each object, compressed, and compares |
//! | `compare` | finds the changes between two values in JSON |
//! | `merge_key` | finds the member that names the items of a list |
//! | `secret` | masks the values of Secrets |
//! | `print` | prints changes, as lines or as a JSON patch |
//!
//! - A change is what a JSON patch would do, so applying the changes in turn to the old object gives the new one. Only
//!   the text descends into an added or removed object.
//! - Nothing of a server reaches a terminal without being escaped, and no value of a Secret unless the user wants it.

mod compare;
mod merge_key;
mod previous;
mod print;
mod secret;

pub use self::compare::{FieldChange, find_changes};
pub use self::previous::{EncodedObject, PreviousObjects, comparable_json};
pub use self::print::{change_lines, most_chars_of_stdout, path_text, to_patch};
pub use self::secret::mask_secrets;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::compare::find_changes;
    use super::secret::mask_secrets;
    use super::{change_lines, to_patch};

    /// Applies a JSON patch of the operations `add`, `remove` and `replace`, and checks the old values.
    fn apply(mut document: Value, patch: &Value) -> Value {
        for step in patch.as_array().unwrap() {
            let pointer = step["path"].as_str().unwrap();
            let Some((parent, token)) = pointer.rsplit_once('/') else {
                document = step["value"].clone();
                continue;
            };
            let old = document.pointer(pointer).cloned();
            let parent = document.pointer_mut(parent).unwrap_or_else(|| panic!("{step} has no parent"));
            let token = token.replace("~1", "/").replace("~0", "~");
            match (step["op"].as_str().unwrap(), parent) {
                ("add", Value::Array(items)) => items.insert(token.parse().unwrap(), step["value"].clone()),
                ("add", parent) => parent[token] = step["value"].clone(),
                (op, parent) => {
                    assert_eq!(old, step.get("oldValue").cloned(), "{step}");
                    match parent {
                        Value::Array(items) if op == "remove" => drop(items.remove(token.parse().unwrap())),
                        Value::Array(items) => items[token.parse::<usize>().unwrap()] = step["value"].clone(),
                        parent if op == "remove" => drop(parent.as_object_mut().unwrap().remove(&token)),
                        parent => parent[token] = step["value"].clone(),
                    }
                }
            }
        }
        document
    }

    fn container(name: &str, image: &str) -> Value {
        json!({ "name": name, "image": image })
    }

    #[test]
    fn a_change_is_a_line_and_a_patch() {
        let port = |number: u16, protocol: &str| json!({ "containerPort": number, "protocol": protocol });
        for (old, new, expected) in [
            (json!({ "a": 1 }), json!({ "a": 1 }), &[][..]),
            (json!({ "spec": { "replicas": 3 } }), json!({ "spec": { "replicas": 5 } }), &["spec.replicas: 3 → 5"]),
            (
                json!({ "metadata": {} }),
                json!({ "metadata": { "labels": { "foo": "bar" } } }),
                &["metadata.labels.foo: (none) → bar"],
            ),
            (
                json!({ "labels": { "app.kubernetes.io/name": "a~b", "x": "1" } }),
                json!({ "labels": { "x": "" } }),
                &["labels[app.kubernetes.io/name]: a~b → (none)", "labels.x: \"1\" → \"\""],
            ),
            (
                json!({ "containers": [container("app", "a:1"), container("log", "l:1"), container("old", "o:1")] }),
                json!({ "containers": [container("new", "n:1"), container("app", "a:2"), container("log", "l:1")] }),
                &[
                    "containers[name=old].image: o:1 → (none)",
                    "containers[name=old].name: old → (none)",
                    "containers[name=new].image: (none) → n:1",
                    "containers[name=new].name: (none) → new",
                    "containers[name=app].image: a:1 → a:2",
                ],
            ),
            (
                json!({ "conditions": [{ "type": "Ready", "status": "False" }] }),
                json!({ "conditions": [{ "type": "Ready", "status": "True" }] }),
                &["conditions[type=Ready].status: False → True"],
            ),
            (
                json!({ "ports": [port(80, "TCP"), port(81, "TCP")] }),
                json!({ "ports": [port(81, "UDP")] }),
                &[
                    "ports[containerPort=80].containerPort: 80 → (none)",
                    "ports[containerPort=80].protocol: TCP → (none)",
                    "ports[containerPort=81].protocol: TCP → UDP",
                ],
            ),
            // The same key twice names nothing.
            (
                json!({ "ports": [port(80, "TCP"), port(80, "UDP")] }),
                json!({ "ports": [port(80, "TCP"), port(80, "SCTP"), port(82, "TCP")] }),
                &[
                    "ports[2].containerPort: (none) → 82",
                    "ports[2].protocol: (none) → TCP",
                    "ports[1].protocol: UDP → SCTP",
                ],
            ),
            // Another order is a change of the list.
            (
                json!({ "hooks": [{ "name": "a" }, { "name": "b" }] }),
                json!({ "hooks": [{ "name": "b" }, { "name": "a" }] }),
                &[r#"hooks: [{"name":"a"},{"name":"b"}] → [{"name":"b"},{"name":"a"}]"#],
            ),
            (json!({ "args": ["a"] }), json!({ "args": ["a", "b"] }), &[r#"args: ["a"] → ["a","b"]"#]),
            (json!({ "a": [1] }), json!({ "a": { "b": null } }), &[r#"a: [1] → {"b":null}"#]),
            (json!({ "a/b": {} }), json!({ "a/b": { "~": {} } }), &["[a/b][~]: (none) → {}"]),
        ] {
            let changes = find_changes(&old, &new);
            assert_eq!(change_lines(&changes, None), expected, "{old} {new}");
            assert_eq!(apply(old.clone(), &to_patch(&changes)), new, "{old}");
        }
    }

    #[test]
    fn random_patches_give_the_new_object() {
        fn value(random: &mut fastrand::Rng, depth: u32) -> Value {
            match random.u32(0..if depth == 0 { 3 } else { 6 }) {
                0 => json!(random.u32(0..3)),
                1 => json!(["", "a", "b/c~d"][random.usize(0..3)]),
                2 => Value::Null,
                3 => (0..random.usize(0..4)).map(|_| value(random, depth - 1)).collect(),
                4 => (0..random.usize(0..4))
                    .map(|n| (["name", "a", "b/~", "type"][n].to_owned(), value(random, depth - 1)))
                    .collect(),
                _ => {
                    let mut names = vec!["w", "x", "y", "z"];
                    random.shuffle(&mut names);
                    names.truncate(random.usize(0..5));
                    names.into_iter().map(|name| json!({ "name": name, "v": value(random, depth - 1) })).collect()
                }
            }
        }
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..2000 {
            let (old, new) = (json!({ "ports": value(&mut random, 3) }), json!({ "ports": value(&mut random, 3) }));
            let changes = find_changes(&old, &new);
            assert_eq!(apply(old.clone(), &to_patch(&changes)), new, "seed {seed}: {old}");
            assert_eq!(changes.is_empty(), old == new, "seed {seed}: {old} {new}");
        }
    }

    #[test]
    fn a_value_is_escaped_quoted_and_shortened() {
        for (new, most, expected) in [
            ("plain text", None, "a: (none) → plain text"),
            ("true", None, r#"a: (none) → "true""#),
            ("5", None, r#"a: (none) → "5""#),
            ("(none)", None, r#"a: (none) → "(none)""#),
            (" x", None, r#"a: (none) → " x""#),
            ("x → y", None, r#"a: (none) → "x → y""#),
            ("{x", None, r#"a: (none) → "{x""#),
            ("a\n- web/b 9\u{1b}[2J\u{9b}", None, r#"a: (none) → "a\n- web/b 9\u001b[2J\u{9b}""#),
            ("ééééé", Some(5), "a: (none) → ééééé"),
            ("éééééé", Some(5), "a: (none) → ééééé… (6 characters)"),
        ] {
            let changes = find_changes(&json!({}), &json!({ "a": new }));
            assert_eq!(change_lines(&changes, most), [expected]);
        }
        let changes = find_changes(&json!({}), &json!({ "a\u{1b}[2J": ["\u{9b}"], "": 1 }));
        assert_eq!(change_lines(&changes, None), [r#"[""]: (none) → 1"#, r#"["a\u001b[2J"]: (none) → ["\u{9b}"]"#]);
    }

    /// `kubectl diff` prints the same masks.
    #[test]
    fn values_of_secrets_are_masked() {
        let secret = |data: Value, applied: &str| {
            let annotations = json!({ "kubectl.kubernetes.io/last-applied-configuration": applied, "x": "y" });
            json!({ "kind": "Secret", "apiVersion": "v1", "metadata": { "annotations": annotations }, "data": data })
        };
        let mut old = secret(json!({ "gone": "Zw==", "kept": "aw==", "other": "bw==" }), "one");
        let mut new = secret(json!({ "added": "YQ==", "kept": "aw==", "other": "bg==" }), "two");
        mask_secrets(&mut old, &mut new);
        let applied = "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]";
        let expected = [
            "data.added: (none) → ***",
            "data.gone: *** → (none)",
            "data.other: *** (before) → *** (after)",
            &format!("{applied}: *** (before) → *** (after)"),
        ];
        assert_eq!(change_lines(&find_changes(&old, &new), None), expected);
        let mut whole = secret(json!({ "a": "YQ==" }), "x");
        whole["kind"] = json!("ConfigMap");
        let (mut old, mut new) = (whole.clone(), whole.clone());
        new["data"]["a"] = json!("Yg==");
        mask_secrets(&mut old, &mut new);
        assert_eq!(change_lines(&find_changes(&old, &new), None), ["data.a: YQ== → Yg=="]);
    }
}
