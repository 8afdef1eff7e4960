//! The JSON form of a protobuf object equals Go's byte for byte, or is an error.
//!
//! The program in e2e/apiserver/fields writes the expected JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;

use flate2::read::GzDecoder;
use listwatch::schema::{Field, Message};
use listwatch::value::{self, Value};
use listwatch::{Encoding, Fault, ItemError, ItemRef, ListReader, TypeMeta};

use crate::support::{len_field as field, lists};

pub fn expected(name: &str) -> Vec<u8> {
    let mut content = Vec::new();
    let path = format!("{}/tests/core/json_form/{name}.gz", env!("CARGO_MANIFEST_DIR"));
    GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut content).unwrap();
    content
}

/// Compares all items of these bodies with lines of JSON; returns the number of items.
fn compare<'a>(bodies: impl IntoIterator<Item = (String, &'a [u8])>, expected: &[u8]) -> usize {
    let mut lines = expected.strip_suffix(b"\n").unwrap().split(|&byte| byte == b'\n');
    let mut items = 0;
    for (name, body) in bodies {
        let mut reader = ListReader::with(body, |item| {
            let mut json = Vec::new();
            let unknown_fields = item.to_json(&mut json)?;
            assert_eq!(unknown_fields, 0);
            assert!(!item.has_unknown_fields()?);
            assert_read_as(&item, &json);
            Ok::<_, ItemError>((item.index(), json))
        });
        for item in &mut reader {
            let (index, json) = item.unwrap_or_else(|error| panic!("{name}: {error}"));
            let line = lines.next().unwrap();
            let [json, line] = [&json, line].map(String::from_utf8_lossy);
            let differ = json.bytes().zip(line.bytes()).take_while(|(a, b)| a == b).count().saturating_sub(60);
            assert!(
                json == line,
                "item {index} of {name} differs from Go's JSON, from byte {differ}:\n{}\nGo:\n{}",
                &json[differ..],
                &line[differ..]
            );
            items += 1;
        }
    }
    assert_eq!(lines.next(), None);
    items
}

/// Checks that reads of single members, and of all, return what the JSON has.
fn assert_read_as(item: &ItemRef<'_>, json: &[u8]) {
    let expected = parse(json);
    let form = item.json_form().unwrap();
    assert_same(&Value::Object(form.clone()), &expected, item.bytes());
    // Go's order too, in which servers write the members of an object.
    let mut names = Vec::new();
    form.try_for_each(|key, _| {
        names.push(key.as_str().to_owned());
        Ok::<_, Fault>(())
    })
    .unwrap();
    let places: Vec<_> =
        names.iter().map(|name| str::find(str::from_utf8(json).unwrap(), &format!("\"{name}\":"))).collect();
    assert!(places.is_sorted(), "{names:?}");
}

/// Parses JSON in which managed fields may have half of a surrogate pair.
fn parse(json: &[u8]) -> serde_json::Value {
    *ItemRef::new(Encoding::Json, json).decode_json().unwrap()
}

fn assert_same(value: &Value<'_>, expected: &serde_json::Value, root: &[u8]) {
    match (value, expected) {
        (Value::Object(object), serde_json::Value::Object(expected)) => {
            let mut count = 0;
            object
                .try_for_each(|key, value| {
                    count += 1;
                    let expected = expected.get(key.as_str()).unwrap_or_else(|| panic!("{key:?} is not in Go's JSON"));
                    assert_same(&value, expected, root);
                    // Each look-up walks the object, so that all of them would take minutes.
                    if count < 6 {
                        assert_eq!(format!("{:?}", object.get(key.as_str())?.unwrap()), format!("{value:?}"));
                    }
                    Ok::<_, Fault>(())
                })
                .unwrap();
            assert_eq!((count, object.len(), object.is_empty()), (expected.len(), Ok(count), Ok(count == 0)));
            assert!(object.get("no such member").unwrap().is_none());
            assert_eq!(value::Object::at(root, object.place().clone()).as_json(), object.as_json());
        }
        (Value::Array(array), serde_json::Value::Array(expected)) => {
            let array = value::Array::at(root, array.place().clone());
            let mut at = 0;
            array
                .try_for_each(|value| {
                    assert_same(&value, &expected[at], root);
                    if at < 4 {
                        assert_eq!(format!("{:?}", array.get(at)?.unwrap()), format!("{value:?}"));
                    }
                    at += 1;
                    Ok::<_, Fault>(())
                })
                .unwrap();
            assert_eq!((at, array.len(), array.is_empty()), (expected.len(), Ok(at), Ok(at == 0)));
            assert!(array.get(at).unwrap().is_none());
        }
        (Value::Null, serde_json::Value::Null) => {}
        (Value::Bool(value), expected) => assert_eq!(Some(*value), expected.as_bool()),
        (Value::Int(value), expected) => assert_eq!(Some(*value), expected.as_i64()),
        (Value::Double(value), expected) => assert_eq!(Some(*value), expected.as_f64()),
        (Value::Number(text), expected) => assert_eq!(text.parse().ok(), expected.as_f64()),
        (Value::String(text), expected) => assert_eq!(Some(&**text), expected.as_str()),
        (value, expected) => panic!("{value:?} is not {expected}"),
    }
}

#[test]
fn recorded_objects_equal_gos_json() {
    let mut lists = lists();
    lists.retain(|(name, _)| name != "pods-rv0.pb"); // byte for byte pods.pb
    lists.sort();
    let items = compare(lists.iter().map(|(name, body)| (name.clone(), &body[..])), &expected("recorded.ndjson"));
    assert!(items > 500, "{items}");
}

#[test]
fn an_item_in_json_has_the_type_meta_of_its_list_unless_it_has_its_own() {
    let of_list = TypeMeta::new("v1", "ConfigMapList");
    for (json, expected) in [
        (r#"{"data":{}}"#, r#"{"kind":"ConfigMap","apiVersion":"v1","data":{}}"#),
        (r#"{"kind":null,"apiVersion":"","data":{}}"#, r#"{"kind":"ConfigMap","apiVersion":"v1","data":{}}"#),
        (r#"{"kind":"Own","apiVersion":"x/v1","data":{}}"#, r#"{"kind":"Own","apiVersion":"x/v1","data":{}}"#),
        (r#"{"apiVersion":1}"#, r#"{"kind":"ConfigMap","apiVersion":1}"#),
        // As in Go, the last member of a name counts.
        (r#"{"b":2,"b":3}"#, r#"{"kind":"ConfigMap","apiVersion":"v1","b":3}"#),
        (r#"{"kind":"Own","apiVersion":"v1","a":1,"b":2,"b":3}"#, r#"{"kind":"Own","apiVersion":"v1","a":1,"b":3}"#),
    ] {
        let item = ItemRef::new(Encoding::Json, json.as_bytes()).with_type_meta(&of_list);
        let expected = parse(expected.as_bytes());
        let form = item.json_form().unwrap();
        let mut members = serde_json::Map::new();
        form.try_for_each(|key, value| {
            let own = expected[key.as_str()].clone();
            assert_same(&value, &own, item.bytes());
            assert_same(&form.get(key.as_str())?.unwrap(), &own, item.bytes());
            assert!(members.insert(key.as_str().to_owned(), own).is_none(), "{json}: {key:?} twice");
            Ok::<_, Fault>(())
        })
        .unwrap();
        assert_eq!(serde_json::Value::Object(members), expected, "{json}");
    }
    for json in ["[]", r#""x""#, ""] {
        let error = ItemRef::new(Encoding::Json, json.as_bytes()).json_form().unwrap_err();
        assert!(matches!(error, ItemError::Metadata { .. }), "{json}: {error}");
    }
}

/// Checks that a look-up finds a member of these names exactly if the object lists it.
fn assert_finds_what_is_listed(object: &value::Object<'_>) {
    let mut listed = BTreeMap::new();
    object
        .try_for_each(|key, value| {
            listed.insert(key.as_str().to_owned(), format!("{value:?}"));
            if let Value::Object(inner) = value {
                assert_finds_what_is_listed(&inner);
            }
            Ok::<_, Fault>(())
        })
        .unwrap();
    for name in [
        "metadata",
        "spec",
        "status",
        "data",
        "binaryData",
        "immutable",
        "type",
        "creationTimestamp",
        "generation",
        "containers",
        "nodeName",
        "hostNetwork",
        "tolerations",
        "priority",
        "securityContext",
        "supplementalGroups",
        "a",
        "k",
        "\u{fffd}",
    ] {
        let found = object.get(name).unwrap().map(|value| format!("{value:?}"));
        assert_eq!(found.as_ref(), listed.get(name), "{name}");
    }
}

#[test]
fn unusual_objects_are_read_as_they_are_written() {
    let len = |number, parts: &[&[u8]]| field(number, &parts.concat());
    let groups = |packed: &[&[u8]]| len(2, &[&len(14, &[packed.concat().as_slice()])]);
    let entry = |key: &[u8], value: &[u8]| len(2, &[&len(1, &[key]), &len(2, &[value])]);
    for (kind, object, expected) in [
        ("ConfigMap", vec![], r#"{"metadata":{}}"#),
        // Entries without a value, out of order, and twice.
        ("ConfigMap", len(2, &[&len(1, &[b"k"])]), r#"{"metadata":{},"data":{"k":""}}"#),
        ("Secret", len(2, &[&len(1, &[b"k"])]), r#"{"metadata":{},"data":{"k":""}}"#),
        (
            "ConfigMap",
            [entry(b"k", b"1"), entry(b"a", b"2"), entry(b"k", b"3")].concat(),
            r#"{"metadata":{},"data":{"a":"2","k":"3"}}"#,
        ),
        ("ConfigMap", [entry(b"k", b"1"), entry(b"a", b"2")].concat(), r#"{"metadata":{},"data":{"a":"2","k":"1"}}"#),
        ("ConfigMap", [entry(b"a", b"1"), entry(b"a", b"2")].concat(), r#"{"metadata":{},"data":{"a":"2"}}"#),
        // A key that is not UTF-8 is found by what JSON writes in its place.
        ("ConfigMap", entry(b"\xff", b"1"), r#"{"metadata":{},"data":{"\ufffd":"1"}}"#),
        // Some encoders write only the low 32 bits of a negative number.
        (
            "Pod",
            len(2, &[b"\xc8\x01\xff\xff\xff\xff\x0f"]),
            r#"{"metadata":{},"spec":{"containers":null,"priority":-1},"status":{}}"#,
        ),
        // Packed numbers, of which there may be none.
        (
            "Pod",
            groups(&[&len(4, &[])]),
            r#"{"metadata":{},"spec":{"containers":null,"securityContext":{}},"status":{}}"#,
        ),
        (
            "Pod",
            groups(&[&len(4, &[&[1, 0x80, 1]]), &[0x20, 2]]),
            r#"{"metadata":{},"spec":{"containers":null,"securityContext":{"supplementalGroups":[1,128,2]}},"status":{}}"#,
        ),
    ] {
        let type_meta = TypeMeta::new("v1", kind);
        let item = ItemRef::new(Encoding::Protobuf, &object).with_type_meta(&type_meta);
        let mut json = Vec::new();
        item.to_json(&mut json).unwrap();
        let mut written = parse(&json);
        assert_read_as(&item, &json);
        let form = item.json_form().unwrap();
        assert_finds_what_is_listed(&form);
        if let Some(Value::Object(data)) = form.get("data").unwrap() {
            let mut keys = Vec::new();
            data.try_for_each(|key, _| {
                keys.push(key.as_str().to_owned());
                Ok::<_, Fault>(())
            })
            .unwrap();
            assert!(keys.is_sorted(), "{keys:?}");
        }
        let members = written.as_object_mut().unwrap();
        assert_eq!([members.remove("kind").unwrap(), members.remove("apiVersion").unwrap()], [kind, "v1"]);
        assert_eq!(without_times(written), parse(expected.as_bytes()), "{object:x?}");
    }
    // A packed number that does not end.
    let object = groups(&[&len(4, &[&[1, 0x80]])]);
    let type_meta = TypeMeta::new("v1", "Pod");
    let form = ItemRef::new(Encoding::Protobuf, &object).with_type_meta(&type_meta).json_form().unwrap();
    let Value::Object(spec) = form.get("spec").unwrap().unwrap() else { panic!() };
    let Value::Object(context) = spec.get("securityContext").unwrap().unwrap() else { panic!() };
    let Value::Array(groups) = context.get("supplementalGroups").unwrap().unwrap() else { panic!() };
    assert_eq!(groups.try_for_each(|_| Ok::<_, Fault>(())), Err(Fault::PastParent));
}

/// Removes the creation timestamp, which releases write in different ways if it is absent.
fn without_times(mut object: serde_json::Value) -> serde_json::Value {
    object["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
    object
}

/// The objects range from empty to full, with unusual values in every field of every kind.
#[test]
fn objects_of_every_kind_equal_gos_json() {
    let bodies = expected("filled.pb");
    let items = compare(frames(&bodies).map(|body| (kind(body), body)), &expected("filled.ndjson"));
    assert!(items > 700, "{items}");
}

/// Returns the type meta of a list's items, as text.
fn kind(body: &[u8]) -> String {
    ListReader::with(body, |item| Ok::<_, ItemError>(format!("{:?}", item.type_meta()))).next().unwrap().unwrap()
}

/// The objects are Kubernetes' own test objects of each release since 1.31, with a value in every field.
#[test]
fn objects_of_every_release_equal_gos_json() {
    let bodies = expected("releases.pb");
    let items = compare(frames(&bodies).map(|body| (kind(body), body)), &expected("releases.ndjson"));
    assert!(items > 300, "{items}");
}

/// Splits a file into bodies: the length of each body precedes it.
pub fn frames(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, after) = rest.split_first_chunk()?;
        let (body, after) = after.split_at(u32::from_be_bytes(*len) as usize);
        rest = after;
        Some(body)
    })
}

/// Returns the JSON of an object, and the number of unknown fields, which it omits.
fn convert(kind: &str, object: &[u8]) -> Result<(String, u64), String> {
    let api_version = if kind == "CustomResourceDefinition" { "apiextensions.k8s.io/v1" } else { "v1" };
    let type_meta = TypeMeta::new(api_version, kind);
    let mut out = b"before".to_vec();
    let item = ItemRef::new(Encoding::Protobuf, object).with_type_meta(&type_meta);
    let result = item.to_json(&mut out);
    if let Ok(unknown_fields) = result {
        assert_eq!(item.has_unknown_fields().unwrap(), unknown_fields > 0);
    }
    let json = String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned();
    assert!(result.is_ok() || json.is_empty(), "an error left output: {json}");
    result.map(|unknown_fields| (json, unknown_fields)).map_err(|error| error.to_string())
}

fn json(kind: &str, object: &[u8]) -> Result<String, String> {
    convert(kind, object).map(|(json, unknown_fields)| {
        assert_eq!(unknown_fields, 0);
        json
    })
}

#[test]
fn pieces_are_merged_and_the_last_value_wins() {
    let name = |name: &str| field(1, &field(1, name.as_bytes()));
    let data = |key: &str, value: &str| field(2, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat());
    let object =
        [name("a"), data("z", "1"), data("b", "2"), field(1, &field(3, b"ns")), name("c"), data("z", "3")].concat();
    assert_eq!(
        json("ConfigMap", &object).unwrap(),
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","namespace":"ns"},"data":{"b":"2","z":"3"}}"#
    );
    // An entry without a value, and an empty entry.
    assert_eq!(
        json("ConfigMap", &[field(2, &field(1, b"k")), field(3, &[])].concat()).unwrap(),
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{},"data":{"k":""},"binaryData":{"":""}}"#
    );
}

#[test]
fn reads_packed_numbers() {
    // spec.securityContext.supplementalGroups
    for groups in [&b"\x20\x01\x20\xac\x02"[..], b"\x22\x03\x01\xac\x02"] {
        let json = json("Pod", &field(2, &field(14, groups))).unwrap();
        assert!(json.contains(r#""supplementalGroups":[1,300]"#), "{json}");
    }
}

/// Protobuf specifies this, and Go and prost do the same.
#[test]
fn an_int32_keeps_its_low_bits() {
    // spec.priority: 2^32 + 7
    let json = json("Pod", &field(2, b"\xc8\x01\x87\x80\x80\x80\x10")).unwrap();
    assert!(json.contains(r#""priority":7"#), "{json}");
}

/// A Go client that is older than the server omits them, too.
#[test]
fn unknown_fields_are_omitted_and_counted() {
    let head = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"#;
    for (object, rest, unknown_fields) in [
        (vec![0x30, 0], "}}", 1),
        ([field(1, &field(1, b"a")), field(2047, b"\xff"), vec![0x30, 0]].concat(), r#""name":"a"}}"#, 2),
        // In the metadata, and in a map's entry.
        (field(1, &[field(1, b"a"), field(99, b"")].concat()), r#""name":"a"}}"#, 1),
        (field(2, &[field(1, b"k"), field(3, b"")].concat()), r#"},"data":{"k":""}}"#, 1),
        // A group counts as one field, whatever it contains.
        (b"\x33\x08\x01\x10\x02\x34".to_vec(), "}}", 1),
    ] {
        let expected = (format!("{head}{rest}"), unknown_fields);
        assert_eq!(convert("ConfigMap", &object).unwrap(), expected, "{object:x?}");
    }
}

/// Go's `encoding/json` writes an escape for each byte, also where several bytes begin one character. It does not look
/// into the raw JSON of managed fields; whoever reads that gets U+FFFD.
#[test]
fn text_that_is_not_utf8_is_replaced_as_in_go() {
    let metadata = |parts: &[u8]| field(1, parts);
    let entry = |key: &[u8], value: &[u8]| field(11, &[field(1, key), field(2, value)].concat());
    for (object, expected) in [
        (metadata(&field(1, b"a\xffb")), r#""name":"a\ufffdb""#.to_owned()),
        (metadata(&field(1, b"a\xf0\x9f\x98<")), r#""name":"a\ufffd\ufffd\ufffd\u003c""#.to_owned()),
        // Two keys that read the same stay two.
        (
            metadata(&[entry(b"\xff", b"\xe2\x82"), entry(b"\xfe", b"b")].concat()),
            r#""labels":{"\ufffd":"b","\ufffd":"\ufffd\ufffd"}"#.to_owned(),
        ),
        (
            metadata(&field(17, &field(7, &field(1, b"{\"f:\xff\": {}}")))),
            "\"fieldsV1\":{\"f:\u{fffd}\":{}}".to_owned(),
        ),
    ] {
        let (json, _) = convert("ConfigMap", &object).unwrap();
        assert!(json.contains(&expected), "{json} has no {expected}");
    }
    let item = b"{\"kind\":\"W\",\"apiVersion\":\"v1\",\"a\xff\":[\"\xe2\x82\", \"\\ud800\"]}";
    let mut line = Vec::new();
    ItemRef::new(Encoding::Json, item).to_json(&mut line).unwrap();
    let expected = "{\"kind\":\"W\",\"apiVersion\":\"v1\",\"a\u{fffd}\":[\"\u{fffd}\u{fffd}\",\"\\ufffd\"]}";
    assert_eq!(String::from_utf8(line).unwrap(), expected);
}

#[test]
fn unknown_kinds_and_malformed_fields_are_errors() {
    let fields_v1 = |text: &[u8]| field(1, &field(17, &field(7, &field(1, text))));
    for (kind, object, expected) in [
        ("Widget", vec![], r#"unknown fields: no table for the kind "Widget" of "v1""#),
        // An unknown field that ends after its message.
        ("Pod", field(2, b"\xfa\x7f\x05ab"), "a length past the end of its parent in field Pod.spec"),
        ("Pod", vec![0x10, 0], "the wrong wire type in field Pod.spec"),
        ("Pod", field(2, b"\x52\x05node"), "a length past the end of its parent in field Pod.spec"),
        ("Pod", field(2, b"\x0b\x0c"), "the wrong wire type in field Pod.spec.volumes"),
        (
            "Pod",
            field(2, &field(14, b"\x22\x01\x80")),
            "a length past the end of its parent in field Pod.spec.securityContext.supplementalGroups",
        ),
        ("Pod", fields_v1(b"{"), "a value without a JSON form in field Pod.metadata.managedFields.fieldsV1"),
        ("Pod", fields_v1(b"\xa1aba"), "a value without a JSON form in field Pod.metadata.managedFields.fieldsV1"),
        // targetPort is neither a number nor a string
        (
            "Service",
            field(2, &field(1, &field(4, b"\x08\x02"))),
            "a value without a JSON form in field Service.spec.ports.targetPort",
        ),
        // capacity
        (
            "Node",
            field(3, &field(1, &field(2, &field(1, b"")))),
            "a value without a JSON form in field Node.status.capacity",
        ),
        // year 10000
        (
            "Pod",
            field(1, &field(8, b"\x08\x80\xdc\xe4\xd1\xb2\x07")),
            "a value without a JSON form in field Pod.metadata.creationTimestamp",
        ),
    ] {
        assert_eq!(json(kind, &object).unwrap_err(), expected, "{object:x?}");
    }
}

#[test]
fn nesting_is_bounded() {
    let crd = Message::of("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
    let path = crd.path("spec.versions.schema.openAPIV3Schema.not").unwrap();
    let numbers: Vec<_> = path.into_iter().map(Field::number).collect();
    let [to_schema @ .., not] = &numbers[..] else { unreachable!() };
    let object = |depth| {
        let schema = (0..depth).fold(Vec::new(), |schema, _| field(*not, &schema));
        to_schema.iter().rev().fold(schema, |inner, &number| field(number, &inner))
    };
    let json = |depth| json("CustomResourceDefinition", &object(depth));
    // The object and the four messages down to the schema count as well.
    assert_eq!(json(95).unwrap().matches(r#""not":{"#).count(), 95);
    let type_meta = TypeMeta::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    for depth in [96, 200, 3000] {
        let error = json(depth).unwrap_err();
        let expected = "nested too deep in field CustomResourceDefinition.spec.versions.schema";
        assert!(error.starts_with(expected), "{error}");
        let object = object(depth);
        let item = ItemRef::new(Encoding::Protobuf, &object).with_type_meta(&type_meta);
        assert!(matches!(item.has_unknown_fields(), Err(ItemError::Field { .. })), "{depth}");
    }
}

fn read_all(value: &Value<'_>, depth: usize) -> Result<(), Fault> {
    match value {
        _ if depth > 100 => Ok(()),
        Value::Object(object) => object.try_for_each(|_, value| read_all(&value, depth + 1)),
        Value::Array(array) => array.try_for_each(|value| read_all(&value, depth + 1)),
        _ => Ok(()),
    }
}

/// Edited bytes cause no panic, and the output is JSON or empty. Fields that are left out are found without the JSON,
/// too.
#[test]
fn mutated_objects_give_json_or_an_error() {
    let (mut converted, mut refused) = (0, 0);
    for body in frames(&expected("filled.pb")) {
        let reader = ListReader::with(body, |item| {
            let mut object = item.to_box();
            for at in (0..object.len()).step_by(1 + object.len() / 20) {
                let byte = object[at];
                object[at] = byte.wrapping_mul(31).wrapping_add(17);
                let mut out = Vec::new();
                let edited = ItemRef::new(Encoding::Protobuf, &object).with_type_meta(item.type_meta());
                if let Ok(unknown_fields) = edited.to_json(&mut out) {
                    assert_eq!(edited.has_unknown_fields().unwrap(), unknown_fields > 0, "{object:x?}");
                    let written = parse(&out);
                    // Keys that are not UTF-8 may read the same.
                    if !str::from_utf8(&out).unwrap().contains(r"\ufffd") {
                        assert_same(&Value::Object(edited.json_form().unwrap()), &written, &object);
                    }
                    converted += 1;
                } else {
                    assert!(out.is_empty());
                    _ = read_all(&Value::Object(edited.json_form().unwrap()), 0);
                    refused += 1;
                }
                object[at] = byte;
            }
            Ok::<_, ItemError>(())
        });
        for item in reader {
            item.unwrap();
        }
    }
    assert!(converted > 500 && refused > 500, "{converted} {refused}");
}
