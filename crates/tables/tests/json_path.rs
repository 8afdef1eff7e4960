//! Templates print what kubectl prints.

use listwatch_tables::json_path::{JsonPath, JsonPathTemplate};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The outputs are of client-go 0.37's package jsonpath; `None` is an error.
#[derive(Deserialize)]
struct Recorded {
    documents: Map<String, Value>,
    cases: Vec<(String, String, bool, Option<String>)>,
}

fn print(template: &str, required_keys: bool, value: &Value) -> Option<String> {
    let template = JsonPathTemplate::parse(template).ok()?;
    let template = if required_keys { template.with_required_keys() } else { template };
    let mut out = Vec::new();
    template.write(value, &mut out).ok()?;
    Some(String::from_utf8(out).expect("output is not UTF-8"))
}

fn words(text: Option<&str>) -> Vec<&str> {
    let mut words: Vec<_> = text.unwrap_or_default().split(' ').collect();
    words.sort_unstable();
    words
}

#[test]
fn prints_what_kubectl_prints() {
    let recorded: Recorded = serde_json::from_str(include_str!("json_path.json")).unwrap();
    let mut wrong = Vec::new();
    for (document, template, required_keys, expected) in recorded.cases {
        let printed = print(&template, required_keys, &recorded.documents[&document]);
        // kubectl's order of the fields of an object is random.
        let ordered = !template.contains("..") && !template.contains(".*");
        if printed != expected && (ordered || words(printed.as_deref()) != words(expected.as_deref())) {
            wrong.push(format!("{document} {template}: {printed:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn differs_from_kubectl() {
    let value = json!({"pods": [{"ports": [1]}, {"ports": []}, {"ports": [2.5]}, {"name": "b)"}], "n": "ab"});
    for (template, expected) in [
        // kubectl prints `1`: its search ends at the empty array.
        ("{.pods[*].ports[*]}", Some("1 2.5")),
        // kubectl cannot compare an integer with a float.
        ("{.pods[*].ports[?(@>=1)]}", Some("1 2.5")),
        // kubectl's order is random, and a string has bytes in it.
        ("{.n.*}", Some("")),
        // kubectl ends the filter, the key, and the string too early.
        (r#"{.pods[?(@['name']=="b)")].name}"#, Some("b)")),
        (r#"{.pods[0]["ports"][ 0 ]}"#, Some("1")),
        (r#"{"\\"}"#, Some("\\")),
        // kubectl prints what is in the range once more.
        ("{range .pods[*]}a", None),
        // These are no errors of kubectl without an element.
        ("{range .none[*]}{word}{end}", None),
        ("{.none[?(@.a<>1)]}", None),
        ("{.none[?(@.a==)]}", None),
        (r#"{"\xff"}"#, None),
    ] {
        assert_eq!(print(template, false, &value).as_deref(), expected, "{template}");
    }
}

#[test]
fn finds_values_by_relaxed_paths() {
    let value = json!({"a": {"b": [1, 2]}, "c.d": 3});
    for (path, expected) in [
        (".a.b", json!([[1, 2]])),
        ("a.b", json!([[1, 2]])),
        ("{a.b[*]}", json!([1, 2])),
        ("{.a.b[1]}", json!([2])),
        ("$.a.b[0]", json!([1])),
        ("['c\\.d']", json!([3])),
        (".missing", json!([])),
    ] {
        let path = JsonPath::parse(path).unwrap();
        assert_eq!(json!(path.find(&value).unwrap()), expected, "{path:?}");
    }
}

#[test]
fn errors_have_the_position() {
    for (template, position, message) in [
        ("{.a[x]}", 4, "invalid array index x at byte 4"),
        ("{.a[0,x]}", 6, "invalid array index x at byte 6"),
        ("{.a['b!c d']}", 9, "unrecognized identifier d at byte 9"),
        ("text {end}", 5, "not in range, nothing to end at byte 5"),
        ("{range .a}{.b}", 0, "range without {end} at byte 0"),
        ("{.a[?(@.b<>1)]}", 9, "unrecognized filter operator <> at byte 9"),
        ("{.a", 3, "unclosed action at byte 3"),
        ("{.ä ö}", 5, "unrecognized identifier ö at byte 5"),
    ] {
        let error = JsonPathTemplate::parse(template).unwrap_err();
        assert_eq!((error.position(), error.to_string().as_str()), (Some(position), message), "{template}");
    }
    for (path, message) in [
        ("", "expected a path like name1.name2, .name1.name2, {name1.name2} or {.name1.name2} at byte 0"),
        ("{.a}{.b}", "expected a path like name1.name2, .name1.name2, {name1.name2} or {.name1.name2} at byte 0"),
        ("{.a[x]}", "invalid array index x at byte 4"),
        ("a[x]", "invalid array index x at byte 2"),
    ] {
        assert_eq!(JsonPath::parse(path).unwrap_err().to_string(), message);
    }
    let error = JsonPath::parse(".a[1]").unwrap().find(&json!({"a": [1]})).map(drop).unwrap_err();
    assert_eq!((error.position(), error.to_string().as_str()), (None, "array index out of bounds: index 1, length 1"));
}

#[test]
fn hostile_templates_are_errors() {
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!({"a": [deep], "b": "text"});
    }
    let doubled = format!("{{.a{}}}", "[0,0]".repeat(64));
    for template in ["{...*...*...*...*...*...*...*}", doubled.as_str()] {
        let mut nested = json!(1);
        for _ in 0..64 {
            nested = json!([nested]);
        }
        let value = json!({"a": nested, "b": deep.clone()});
        let template = JsonPathTemplate::parse(template).unwrap();
        let error = template.write(&value, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "the template visits more than 10000000 values");
    }
    let ranges = "{range .a[*]}".repeat(1000) + &"{end}".repeat(1000);
    assert!(JsonPathTemplate::parse(&ranges).is_err());
    for open in ["{", "[", "[?(", "[?(@[?(", "{range ", "['", "\\", "{.a[?(@['b"] {
        let _ = JsonPathTemplate::parse(&open.repeat(10_000));
        let _ = JsonPathTemplate::parse(&format!("{{.a{}", open.repeat(10_000)));
    }
}

#[test]
fn no_part_of_a_template_panics() {
    let recorded: Recorded = serde_json::from_str(include_str!("json_path.json")).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    for (document, template, required_keys, _) in &recorded.cases {
        let characters: Vec<char> = template.chars().collect();
        for end in 0..characters.len() {
            let prefix: String = characters.iter().take(end).collect();
            print(&prefix, *required_keys, &recorded.documents[document]);
            let mut changed = characters.clone();
            changed[end] = *random.choice("{}[]()?@.*:,'\"\\-0a<=\u{e4} ".chars().collect::<Vec<_>>().iter()).unwrap();
            print(&changed.iter().collect::<String>(), *required_keys, &recorded.documents[document]);
        }
    }
}

#[test]
fn prints_items_as_they_arrive() {
    let items = [
        json!({"a": {"b": 1}, "k": "1", "list": [{"n": 1}, {"n": 2}]}),
        json!({"a": {}, "k": "2"}),
        json!({"a": {"b": "x"}, "k": "3", "list": [{"n": 2}, {"n": 3}]}),
    ];
    let list = json!({"items": items});
    for template in [
        "{range .items[*]}{.a.b}{\"\\n\"}{end}",
        "first {\"<\"}{range .items[*]}[{.a.b}]{end}> last",
        "{.items[*].a.b}",
        "all: {.items[*].a.b}{\"\\n\"}",
        "{.items[?(@.a.b)].a.b}",
        "{.items[?(@.k!=\"2\")].k}",
        "{range .items[?(@.k==\"2\")]}{.k}{\"\\n\"}{end}",
        "{range .items[*].list[*]}{.n};{end}",
        "{range .items[?(@.k>\"1\")].list[?(@.n>1)]}{.n} {end}",
        "{range .items[?(@.none==\"1\")]}{.k}{end}",
        "{.items[*].a}",
    ] {
        let parsed = JsonPathTemplate::parse(template).unwrap();
        let mut expected = Vec::new();
        parsed.write(&list, &mut expected).unwrap();
        let streamed = parsed.for_items().unwrap();
        let mut out = streamed.before().to_vec();
        let mut separator: &[u8] = b"";
        for item in &items {
            let mut text = Vec::new();
            if streamed.write_item(item, &mut text).unwrap() {
                out.extend_from_slice(separator);
                separator = streamed.separator();
            }
            out.extend_from_slice(&text);
        }
        out.extend_from_slice(streamed.after());
        assert_eq!(String::from_utf8(out), String::from_utf8(expected), "{template}");
    }
    let lines = JsonPathTemplate::parse("{.a.b}!").unwrap().for_items().unwrap();
    let mut out = Vec::new();
    for item in &items {
        assert!(lines.write_item(item, &mut out).unwrap());
    }
    assert_eq!(String::from_utf8(out).unwrap(), "1!\n!\nx!\n");
    for template in [
        "{.items[0].a}",
        "{.items}",
        "{.kind}{.items[*].a}",
        "{.items[*].a}{.items[*].b}",
        "{range .items[0]}{end}",
        "{range .items[*]['a','k']}{end}",
        "{.items[?(@.k==\"1\")]['a','k']}",
        "{.items[*]['a','b']}",
        "{.items[*].a['b','c']}",
        "{.items[*]\"text\"}",
    ] {
        let error = JsonPathTemplate::parse(template).unwrap().for_items().unwrap_err().to_string();
        assert!(error.contains("needs the whole list"), "{template}: {error}");
    }
}
