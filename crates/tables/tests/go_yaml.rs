//! YAML as kubectl writes it.

use listwatch_tables::{write_go_yaml, write_go_yaml_item};
use serde_json::{Value, json};

fn yaml(value: &Value) -> String {
    let mut out = Vec::new();
    write_go_yaml(value, &mut out);
    String::from_utf8(out).unwrap()
}

/// The right sides of `go_yaml.json` are the output of `yaml.JSONToYAML` of `sigs.k8s.io/yaml` 1.6, for random values
/// of words that are difficult to quote, to fold or to sort.
#[test]
fn writes_what_kubectl_writes() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("go_yaml.json")).unwrap();
    for case in cases {
        assert_eq!(yaml(&case["json"]), case["yaml"].as_str().unwrap(), "{}", case["json"]);
    }
}

#[test]
fn an_item_of_a_list_is_not_indented() {
    let mut out = Vec::new();
    for item in [json!({"b": [1, {"c": "x\ny"}], "a": {}}), json!([]), json!("1")] {
        write_go_yaml_item(&item, &mut out);
    }
    let expected = "- a: {}\n  b:\n  - 1\n  - c: |-\n      x\n      y\n- []\n- \"1\"\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// Keys that no total order can sort are no reason to panic.
#[test]
fn writes_any_keys() {
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..200 {
        let key = |random: &mut fastrand::Rng| -> String {
            (0..random.usize(0..30))
                .map(|_| random.choice(['0', '1', '9', 'a', '{', '.', '\u{b2}', 'é']).unwrap())
                .collect()
        };
        let members = (0..100).map(|_| (key(&mut random), Value::Null)).collect();
        assert!(!yaml(&Value::Object(members)).is_empty());
    }
}
