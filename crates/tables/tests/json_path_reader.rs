//! What paths find in the parts of objects that they need, they would find in the whole objects.

use listwatch::{Encoding, Event, ItemRef, ListDecoder, TypeMeta};
use listwatch_tables::json_path::{JsonPath, JsonPathTemplate, ObjectReader};
use serde_json::{Value, json};

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/json_path.rs"]
mod target;

const LISTS: [&[u8]; 12] = [
    include_bytes!("../../../fixtures/pods-namespace.pb"),
    include_bytes!("../../../fixtures/pods.json"),
    include_bytes!("../../../fixtures/nodes.pb"),
    include_bytes!("../../../fixtures/services.pb"),
    include_bytes!("../../../fixtures/configmaps.pb"),
    include_bytes!("../../../fixtures/clusterroles.pb"),
    include_bytes!("../../../fixtures/apiservices.pb"),
    include_bytes!("../../../fixtures/customresourcedefinitions.pb"),
    include_bytes!("../../../fixtures/leases.pb"),
    include_bytes!("../../../fixtures/namespaces.pb"),
    include_bytes!("../../../fixtures/widgets-negotiated.json"),
    include_bytes!("../../../fixtures/pods-metadata.pb"),
];

/// Steps that meet all fields, and the special forms of some.
const PATHS: [&str; 52] = [
    ".metadata.name",
    ".metadata.namespace",
    ".kind",
    ".apiVersion",
    ".kind[0]",
    ".kind.x",
    ".spec.nodeName",
    ".status.phase",
    ".metadata.labels",
    ".metadata.labels.app",
    r".metadata.labels.app\.kubernetes\.io/name",
    r".metadata.labels['app\.kubernetes\.io/name','tier']",
    ".metadata.labels.app.x",
    ".metadata.labels[0].x",
    ".metadata.labels[?(@.x==\"y\")].z",
    ".metadata.annotations.*",
    ".metadata.creationTimestamp",
    ".metadata.creationTimestamp.seconds",
    ".metadata.creationTimestamp[0]",
    ".metadata.managedFields[0].fieldsV1",
    ".metadata.managedFields[*].fieldsV1.f:metadata",
    ".metadata.managedFields[*].fieldsV1.Raw",
    ".metadata.ownerReferences[?(@.controller==true)].name",
    ".metadata.none",
    ".none.none",
    ".metadata",
    ".spec.containers[*].name",
    ".spec.containers[0].image",
    ".spec.containers[-1:].image",
    ".spec.containers[0:2].ports[*].containerPort",
    ".spec.containers[*].resources.requests.memory",
    ".spec.containers[*].resources.requests.memory.string",
    ".spec.containers[*].resources.limits",
    ".spec.containers[*].livenessProbe.httpGet.port",
    ".spec.containers[*].livenessProbe.httpGet.port.intVal",
    ".spec.containers.name",
    ".spec.containers[*].env[?(@.name==\"POD_NAME\")].valueFrom.fieldRef.fieldPath",
    ".spec.volumes[*]['name','configMap.name']",
    ".spec.volumes[?(@.configMap)].configMap.name",
    ".spec['nodeName','hostNetwork']",
    ".spec.tolerations[*].tolerationSeconds",
    ".spec.tolerations[?(1==1)].key",
    ".spec.containers[9]\"text\"",
    ".spec.versions[*].schema.openAPIV3Schema.properties.spec",
    ".spec.versions[0].schema.openAPIV3Schema.properties.spec.x-kubernetes-preserve-unknown-fields",
    ".status.conditions[?(@.type==\"Ready\")].status",
    ".status.conditions[?(@.lastTransitionTime>\"2020\")].type",
    ".status.containerStatuses[*].restartCount",
    ".status.containerStatuses[*].state.*.startedAt",
    ".rules[*].verbs[0]",
    "..name",
    ".*",
];

const TEMPLATES: [&str; 10] = [
    "{.metadata.name}{\"\\t\"}{.spec.nodeName}{\"\\n\"}",
    "{range .spec.containers[*]}{.name}={.image} {range .ports[*]}{.containerPort}{end}{\"\\n\"}{end}",
    "{range .metadata.labels}{.app}{end}",
    "{range .status.conditions[?(@.status!=\"True\")]}{.type}{.message}{end}",
    "{range .spec.containers[*]}{.resources['requests','limits'].memory} {2}{end}",
    "{.spec.containers[*]['name','image']}",
    "{@}",
    "{range @}{.metadata.uid}{end}",
    "{\"text\"}",
    "{.spec.containers[5].name}",
];

const LIST_TEMPLATES: [&str; 3] = [
    "{.items[?(@.status.phase==\"Running\")].metadata.labels.app}",
    "{range .items[*].spec.containers[*]}{.name}{end}",
    "{range .items[*]}{.metadata.name}{.status.conditions[0].type}{end}",
];

fn is_thorough() -> bool {
    std::env::var_os("LISTWATCH_THOROUGH").is_some()
}

/// Calls `check` with the first items of each list.
fn each_item(mut check: impl FnMut(&ItemRef<'_>)) {
    let items = if is_thorough() { u64::MAX } else { 4 };
    for mut list in LISTS {
        let mut decoder = ListDecoder::new().accept_json();
        while let Some(event) = decoder.decode(&mut list).unwrap() {
            if let Event::Item(item) = event
                && item.index() < items
            {
                check(&item);
            }
        }
    }
}

fn whole(item: &ItemRef<'_>) -> Option<Value> {
    let mut json = Vec::new();
    item.to_json(&mut json).ok()?;
    serde_json::from_slice(&json).ok()
}

/// Compares what a path finds in the part that it needs and in the whole object.
fn compare(path: &JsonPath, reader: &mut ObjectReader, item: &ItemRef<'_>, whole: &Value) {
    let (part, _) = reader.read(item).unwrap();
    assert_eq!(path.find(&part), path.find(whole), "{path:?} in {whole}");
}

#[test]
fn paths_find_the_same_in_the_parts_that_they_need() {
    let mut paths =
        PATHS.map(|path| JsonPath::parse(path).unwrap()).map(|path| (ObjectReader::of_paths([&path]), path));
    let all: Vec<_> = PATHS[..50].iter().map(|path| JsonPath::parse(path).unwrap()).collect();
    let mut of_all = ObjectReader::of_paths(&all);
    let mut found = [0; PATHS.len()];
    each_item(|item| {
        let whole = whole(item).unwrap();
        for ((reader, path), found) in paths.iter_mut().zip(&mut found) {
            compare(path, reader, item, &whole);
            *found += path.find(&whole).map_or(0, |found| found.len());
        }
        for path in &all {
            compare(path, &mut of_all, item, &whole);
        }
    });
    let unmet: Vec<_> = PATHS.iter().zip(found).filter(|(_, found)| *found == 0).map(|(path, _)| path).collect();
    assert!(unmet.len() < 20, "{unmet:?}");
}

#[test]
fn templates_print_the_same_of_the_parts_that_they_need() {
    let parse = |text: &str| JsonPathTemplate::parse(text).unwrap();
    let mut templates: Vec<_> = TEMPLATES.map(parse).into();
    templates.extend(TEMPLATES.map(|text| parse(text).with_required_keys()));
    let mut readers: Vec<_> = templates.iter().map(ObjectReader::of_template).collect();
    let items = TEMPLATES.iter().chain(&LIST_TEMPLATES).map(|text| parse(text).for_items().unwrap());
    let mut items: Vec<_> = items.map(|items| (ObjectReader::of_items(&items), items)).collect();
    each_item(|item| {
        let whole = whole(item).unwrap();
        for (template, reader) in templates.iter().zip(&mut readers) {
            let print = |value: &Value| {
                let mut out = Vec::new();
                template.write(value, &mut out).map(|()| out)
            };
            assert_eq!(print(&reader.read(item).unwrap().0), print(&whole), "{template:?} of {whole}");
        }
        for (reader, items) in &mut items {
            let print = |value: &Value| {
                let mut out = Vec::new();
                items.write_item(value, &mut out).map(|printed| (printed, out))
            };
            assert_eq!(print(&reader.read(item).unwrap().0), print(&whole), "{items:?} of {whole}");
        }
    });
}

/// Appends a step that fits the value, or nearly, and walks on.
fn random_path(random: &mut fastrand::Rng, value: &Value, path: &mut Vec<String>) {
    const STEPS: [&str; 6] = [".*", "..name", "[0]", "[-1:]", ".none", "[?(@.name)]"];
    if random.u8(..) < 25 {
        return;
    }
    if random.u8(..) < 20 {
        path.push((*random.choice(&STEPS).unwrap()).to_owned());
        return;
    }
    match value {
        Value::Object(object) => {
            let Some((key, child)) = random.choice(object) else { return };
            let key = key.replace('.', "\\.");
            match random.u8(0..12) {
                0 => path.push(format!("['{key}','name']")),
                _ => path.push(format!(".{key}")),
            }
            random_path(random, child, path);
        }
        Value::Array(elements) => {
            let Some(child) = random.choice(elements) else { return };
            let index = random.usize(0..=elements.len());
            let filter = child.as_object().and_then(|child| random.choice(child)).map(|(key, value)| {
                let literal = match value {
                    Value::String(text) => format!("==\"{}\"", text.escape_default()),
                    Value::Number(_) | Value::Bool(_) => format!("=={value}"),
                    _ => String::new(),
                };
                format!("[?(@.{}{literal})]", key.replace('.', "\\."))
            });
            path.push(match random.u8(0..6) {
                0 => format!("[{index}]"),
                1 => format!("[{}:]", index / 2),
                2 | 3 => filter.unwrap_or_else(|| "[*]".to_owned()),
                _ => "[*]".to_owned(),
            });
            random_path(random, child, path);
        }
        _ => {}
    }
}

#[test]
fn random_paths_find_the_same_in_the_parts_that_they_need() {
    let cases = if is_thorough() { 1000 } else { 20 };
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    each_item(|item| {
        let whole = whole(item).unwrap();
        for _ in 0..cases {
            let mut steps = Vec::new();
            random_path(&mut random, &whole, &mut steps);
            if let Ok(path) = JsonPath::parse(&steps.concat()) {
                compare(&path, &mut ObjectReader::of_paths([&path]), item, &whole);
            }
        }
    });
}

#[test]
fn damaged_objects_are_errors_or_the_same() {
    let paths = PATHS.map(|path| JsonPath::parse(path).unwrap());
    let mut reader = ObjectReader::of_paths(&paths[..50]);
    let cases = if is_thorough() { 200 } else { 2 };
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    each_item(|item| {
        for _ in 0..cases {
            let mut bytes = item.bytes().to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(0..bytes.len());
                match random.u8(0..4) {
                    0 => bytes[at] = random.u8(..),
                    1 => bytes[at] ^= 1 << random.u8(0..8),
                    2 => drop(bytes.remove(at)),
                    _ => bytes.truncate(at.max(1)),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            let item = item.with_bytes(&bytes);
            let (read, whole) = (reader.read(&item), whole(&item));
            // A damaged field that no path needs is not found.
            if let Some(whole) = whole {
                let (part, _) = read.unwrap();
                for path in &paths[..50] {
                    assert_eq!(path.find(&part), path.find(&whole), "{path:?} in {whole}");
                }
            }
        }
    });
}

#[test]
fn reads_objects_of_several_kinds_and_odd_names() {
    let object = json!({
        "kind": "Widget", "apiVersion": "example.com/v1",
        "metadata": {"name": "a", "labels": {"a.b": "1"}},
        "spec": {"a.b": {"c": 1, "d": 2}, "0": {"x": 1}, "[": 2, "": {"": 3}, "nested": [[{"x": 1}], [{"x": 2}]],
                 "list": [1, {"x": 2}, null, "x"], "null": null},
    });
    let bytes = object.to_string().into_bytes();
    for (text, expected) in [
        (r".spec.a\.b.c", json!([1])),
        (".spec.0.x", json!([1])),
        (r".spec.\[", json!([2])),
        (".spec.nested[*][*].x", json!([1, 2])),
        (".spec.nested[1][0].x", json!([2])),
        (".spec.list[*].x", json!([2])),
        (".spec.list[3]", json!(["x"])),
        (".spec.null", json!([null])),
        (".spec.null.x", json!([])),
        (".spec..x", json!([1, 2, 1, 2])),
        (r".metadata.labels.a\.b", json!(["1"])),
        (".kind", json!(["Widget"])),
    ] {
        let path = JsonPath::parse(text).unwrap();
        let mut reader = ObjectReader::of_paths([&path]);
        for type_meta in
            [TypeMeta::default(), TypeMeta::new("example.com/v1", "WidgetList"), TypeMeta::new("v1", "Pod")]
        {
            let item = ItemRef::new(Encoding::Json, &bytes).with_type_meta(&type_meta);
            let (part, unknown_fields) = reader.read(&item).unwrap();
            let mut found = path.find(&part).unwrap();
            found.sort_by_key(ToString::to_string);
            let mut expected = expected.as_array().unwrap().iter().collect::<Vec<_>>();
            expected.sort_by_key(ToString::to_string);
            assert_eq!(found, expected, "{text}");
            assert_eq!(path.find(&part), path.find(&object), "{text}");
            assert_eq!(unknown_fields, 0);
        }
    }
    let path = JsonPath::parse(".spec.nodeName").unwrap();
    let mut reader = ObjectReader::of_paths([&path]);
    for (kind, bytes, expected) in
        [("Pod", &b"\x12\x05\x52\x03abc"[..], json!(["abc"])), ("Node", b"\x12\x03\x0a\x01b", json!([]))]
    {
        let type_meta = TypeMeta::new("v1", kind);
        let (part, _) = reader.read(&ItemRef::new(Encoding::Protobuf, bytes).with_type_meta(&type_meta)).unwrap();
        assert_eq!(json!(path.find(&part).unwrap()), expected);
    }
    let type_meta = TypeMeta::new("example.com/v1", "Widget");
    let unknown = reader.read(&ItemRef::new(Encoding::Protobuf, b"\x12\x00").with_type_meta(&type_meta));
    assert!(unknown.unwrap_err().to_string().contains("Widget"));
}

#[test]
fn reads_only_what_is_needed() {
    let template = |text: &str| JsonPathTemplate::parse(text).unwrap();
    let mut of_path =
        ObjectReader::of_paths([&JsonPath::parse(".status.conditions[?(@.type==\"Ready\")].status").unwrap()]);
    let mut of_template = ObjectReader::of_template(&template("{range .spec.containers[*]}{.name}{end}"));
    let mut unions = "{.spec".to_owned() + &"['a','b']".repeat(30) + "}";
    unions.push_str("{.kind}");
    let mut of_unions = ObjectReader::of_template(&template(&unions));
    let (mut read, mut all) = ([0; 3], 0);
    each_item(|item| {
        if item.type_meta().item_kind() == "Pod" {
            for (reader, read) in [&mut of_path, &mut of_template, &mut of_unions].into_iter().zip(&mut read) {
                *read += reader.read(item).unwrap().0.to_string().len();
            }
            all += whole(item).unwrap().to_string().len();
        }
    });
    assert!(read[0] < all / 10 && read[1] < all / 10 && read[2] == all, "{read:?} of {all}");
}

/// Runs the fuzz target over its corpus and its regressions, and over damaged inputs of the corpus.
#[test]
fn fuzz() {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for (name, input) in
        corpus::inputs(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz"), "json_path")
    {
        println!("{name}");
        target::run(&input);
        for _ in 0..if is_thorough() { 1000 } else { 20 } {
            let mut damaged = input.clone();
            for _ in 0..random.usize(1..4) {
                // The template comes first.
                let at = random.usize(..damaged.len()) / random.usize(1..20);
                match random.u32(..4) {
                    0 => damaged[at] = random.u8(32..127),
                    1 => damaged.insert(at, b"{}[].*?@'\"\\,:-1"[random.usize(..15)]),
                    2 => damaged[at] = damaged[random.usize(..damaged.len())],
                    _ => drop(damaged.remove(at)),
                }
            }
            let result = std::panic::catch_unwind(|| target::run(&damaged));
            assert!(result.is_ok(), "{name}, seed {seed}: {}", String::from_utf8_lossy(&damaged));
        }
    }
}
