//! `listwatch stats`: its sizes match prost and `serde_json`, and its page shows the text of objects as text.

mod live;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Output;

use k8s_pb::api::core::v1::{Pod, PodList};
use k8s_pb::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta, OwnerReference};
use k8s_pb::apimachinery::pkg::runtime::{TypeMeta, Unknown};
use prost::Message;
use prost::encoding::{encoded_len_varint, message, string};
use serde_json::Value;

use crate::support::{FIXTURES, fixture, listwatch, piped, pods, stderr, stdout, with_stdin};

/// Runs `stats` on a body from stdin.
fn stats(args: &[&str], body: &[u8]) -> Output {
    with_stdin(&[&["stats", "--from", "-"], args].concat(), body)
}

/// Returns the report of `-o json` in which all fields, namespaces and objects are named.
fn report(args: &[&str], body: &[u8]) -> Value {
    let output = stats(&[&["-o", "json", "--top", "60000"], args].concat(), body);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The sizes of a report's fields by their paths.
fn sizes(report: &Value) -> BTreeMap<&str, u64> {
    let fields = report["fields"].as_array().unwrap().iter().filter(|field| field.get("others").is_none());
    fields.map(|field| (field["path"].as_str().unwrap(), field["bytes"].as_u64().unwrap())).collect()
}

/// The body of a list.
fn body(api_version: &str, kind: &str, list: &impl Message) -> Vec<u8> {
    let type_meta = TypeMeta { api_version: Some(api_version.to_owned()), kind: Some(kind.to_owned()) };
    let envelope = Unknown { type_meta: Some(type_meta), raw: Some(list.encode_to_vec()), ..Unknown::default() };
    [b"k8s\0", &*envelope.encode_to_vec()].concat()
}

fn pod_list(metas: impl IntoIterator<Item = ObjectMeta>) -> Vec<u8> {
    let items = metas.into_iter().map(|meta| Pod { metadata: Some(meta), ..Pod::default() }).collect();
    body("v1", "PodList", &PodList { metadata: Some(ListMeta::default()), items })
}

fn sum<T>(items: &[T], size: impl Fn(&T) -> usize) -> u64 {
    items.iter().map(size).sum::<usize>() as u64
}

#[test]
fn sizes_of_fields_match_prost() {
    let pods = pods(&fixture("pods.pb"));
    let meta = |pod: &Pod| pod.metadata.clone().unwrap();
    let annotation = |pod: &Pod, key: &str| {
        let Some(value) = meta(pod).annotations.remove(key) else { return 0 };
        let entry = string::encoded_len(1, &key.to_owned()) + string::encoded_len(2, &value);
        1 + encoded_len_varint(entry as u64) + entry
    };
    let spec = |pod: &Pod| pod.spec.clone().unwrap();
    let config_maps = |pod: &Pod| {
        let sources = spec(pod).volumes.into_iter().filter_map(|volume| volume.volume_source?.config_map);
        sources.collect::<Vec<_>>()
    };
    let expected = BTreeMap::from([
        ("metadata", sum(&pods, |pod| message::encoded_len(1, &meta(pod)))),
        ("metadata.managedFields", sum(&pods, |pod| message::encoded_len_repeated(17, &meta(pod).managed_fields))),
        ("metadata.ownerReferences", sum(&pods, |pod| message::encoded_len_repeated(13, &meta(pod).owner_references))),
        ("metadata.annotations[\"checksum/config\"]", sum(&pods, |pod| annotation(pod, "checksum/config"))),
        ("metadata.annotations[\"prometheus.io/port\"]", sum(&pods, |pod| annotation(pod, "prometheus.io/port"))),
        ("spec", sum(&pods, |pod| message::encoded_len(2, &spec(pod)))),
        ("spec.containers", sum(&pods, |pod| message::encoded_len_repeated(2, &spec(pod).containers))),
        ("spec.nodeName", sum(&pods, |pod| string::encoded_len(10, &spec(pod).node_name.unwrap()))),
        // JSON inlines the message of each of these fields.
        ("spec.volumes.configMap", sum(&pods, |pod| message::encoded_len_repeated(19, &config_maps(pod)))),
        (
            "spec.volumes.configMap.name",
            sum(&pods, |pod| {
                let names =
                    config_maps(pod).into_iter().map(|source| source.local_object_reference.unwrap().name.unwrap());
                names.map(|name| string::encoded_len(1, &name)).sum()
            }),
        ),
        ("status", sum(&pods, |pod| message::encoded_len(3, pod.status.as_ref().unwrap()))),
    ]);
    for name in ["pods.pb", "pods-gzip.pb.gz"] {
        let report = report(&["--depth", "4"], &fixture(name));
        let found = sizes(&report);
        for (path, bytes) in &expected {
            assert_eq!(found.get(path), Some(bytes), "{name} {path}");
            assert!(*bytes > 0, "{path}");
        }
        let of_items = sum(&pods, Message::encoded_len);
        assert_eq!((report["items"].as_u64(), report["bytes"].as_u64()), (Some(120), Some(of_items)));
        // Nothing is lost or counted twice.
        assert_eq!(found["metadata"] + found["spec"] + found["status"], of_items);
        assert_eq!(report["bodyBytes"], 1_019_272);
    }
}

#[test]
fn stops_at_the_requested_depth() {
    for (depth, deepest) in [("1", 0), ("2", 1), ("4", 3)] {
        let report = report(&["--depth", depth], &fixture("pods.pb"));
        let dots = |path: &&str| path.split('[').next().unwrap_or_default().matches('.').count();
        assert_eq!(sizes(&report).into_keys().map(|path| dots(&path)).max(), Some(deepest), "{depth}");
        let annotations = sizes(&report).into_keys().filter(|path| path.starts_with("metadata.annotations[")).count();
        assert_eq!(annotations, if depth == "1" { 0 } else { 5 }, "{depth}");
        // A time, a quantity and their like are single values in JSON.
        let inside = [".seconds", ".string", ".intVal", ".strVal", ".Raw"];
        assert!(sizes(&report).into_keys().all(|path| inside.iter().all(|inside| !path.ends_with(inside))), "{depth}");
    }
}

#[test]
fn counts_sizes_namespaces_and_the_largest_objects() {
    let pods = pods(&fixture("pods.pb"));
    let mut all: Vec<_> = pods.iter().map(|pod| pod.encoded_len() as u64).collect();
    all.sort_unstable();
    let report = report(&[], &fixture("pods.pb"));

    let found = |name: &str| report["sizes"][name].as_u64().unwrap();
    assert_eq!((found("smallest"), found("largest")), (all[0], all[119]));
    assert_eq!(found("mean"), all.iter().sum::<u64>() / 120);
    for (name, rank) in [("p50", 60), ("p90", 108), ("p99", 119)] {
        assert!(
            found(name).abs_diff(all[rank - 1]) <= all[rank - 1] / 1000,
            "{name} {} {}",
            found(name),
            all[rank - 1]
        );
    }
    let bins = report["sizes"]["histogram"].as_array().unwrap();
    let bin = |at: usize, name: &str| bins[at][name].as_u64().unwrap();
    assert_eq!((bin(0, "from"), bin(bins.len() - 1, "to")), (all[0], all[119]));
    assert!((1..bins.len()).all(|at| bin(at, "from") == bin(at - 1, "to") + 1));
    assert_eq!((0..bins.len()).map(|at| bin(at, "items")).sum::<u64>(), 120);

    let mut namespaces = BTreeMap::<_, (u64, u64)>::new();
    for pod in &pods {
        let count = namespaces.entry(pod.metadata.clone().unwrap().namespace.unwrap()).or_default();
        *count = (count.0 + 1, count.1 + pod.encoded_len() as u64);
    }
    let found = report["namespaces"].as_array().unwrap().iter();
    let count = |found: &Value| (found["items"].as_u64().unwrap(), found["bytes"].as_u64().unwrap());
    assert_eq!(
        found.map(|found| (found["namespace"].as_str().unwrap().into(), count(found))).collect::<BTreeMap<String, _>>(),
        namespaces
    );

    let largest: Vec<_> =
        report["largest"].as_array().unwrap().iter().map(|object| object["bytes"].as_u64().unwrap()).collect();
    assert_eq!(largest, all.into_iter().rev().collect::<Vec<_>>());
    // With a small --top, the rest is summed.
    let few = stats(&["-o", "json", "--top", "3"], &fixture("pods.pb"));
    let few: Value = serde_json::from_slice(&few.stdout).unwrap();
    assert_eq!(few["largest"].as_array().unwrap()[..], report["largest"].as_array().unwrap()[..3]);
    let others = few["namespaces"].as_array().unwrap().last().unwrap();
    assert_eq!((&others["others"], &others["items"]), (&Value::Bool(true), &Value::from(120 - 18)));
}

#[test]
fn savings_match_objects_without_the_fields() {
    let kept = |change: fn(&mut Pod)| {
        let mut pods = pods(&fixture("pods.pb"));
        let before = sum(&pods, Message::encoded_len);
        pods.iter_mut().for_each(change);
        before - sum(&pods, Message::encoded_len)
    };
    let no_managers = |pod: &mut Pod| pod.metadata.as_mut().unwrap().managed_fields.clear();
    let cases: [(&str, u64); 6] = [
        ("metadata.managedFields", kept(no_managers)),
        ("1.17", kept(no_managers)),
        ("status", kept(|pod| pod.status = None)),
        (
            r#"metadata.annotations["checksum/config"]"#,
            kept(|pod| _ = pod.metadata.as_mut().unwrap().annotations.remove("checksum/config")),
        ),
        (
            "spec.containers.image",
            kept(|pod| pod.spec.as_mut().unwrap().containers.iter_mut().for_each(|container| container.image = None)),
        ),
        ("metadata", kept(|pod| pod.metadata = None)),
    ];
    for (path, bytes) in &cases {
        let report = report(&["--drop", path], &fixture("pods.pb"));
        assert_eq!(report["drop"], serde_json::json!([{"path": path, "bytes": bytes, "items": 120}]), "{path}");
        assert!(*bytes > 0, "{path}");
    }
    // A field inside another dropped field is not counted twice.
    let report = report(&["--drop", "metadata", "--drop", "status", "--drop", "1.17"], &fixture("pods.pb"));
    assert_eq!(report["drop"][3]["bytes"], cases[5].1 + cases[2].1);
}

/// The savings are the difference to objects without the fields.
#[test]
fn counts_custom_resources_as_serde_json_does() {
    let list: Value = serde_json::from_slice(&fixture("widgets-page-1.json")).unwrap();
    let items = list["items"].as_array().unwrap();
    let size = |value: &Value| value.to_string().len();
    let member = |parents: &[&str], name: &str| {
        sum(items, |item| name.len() + 4 + size(&parents.iter().fold(item, |value, name| &value[name])[name]))
    };
    let drops = ["metadata.managedFields", "spec.nested.items", "spec", "metadata.managedFields.fieldsV1"];
    let args: Vec<_> = drops.iter().flat_map(|path| ["--drop", path]).collect();
    let report = report(&args, &fixture("widgets-page-1.json"));
    let found = sizes(&report);
    for (path, expected) in [
        ("metadata", member(&[], "metadata")),
        ("metadata.managedFields", member(&["metadata"], "managedFields")),
        ("spec", member(&[], "spec")),
        ("spec.text", member(&["spec"], "text")),
        ("kind", member(&[], "kind")),
    ] {
        assert_eq!(found.get(path), Some(&expected), "{path}");
    }
    assert_eq!(
        (&report["kind"], &report["encoding"], &report["items"]),
        (&"WidgetList".into(), &"JSON".into(), &20.into())
    );
    assert_eq!(report["bytes"], sum(items, size));

    let without = |paths: &[&str]| {
        let mut items = items.clone();
        for path in paths {
            for item in &mut items {
                let (parents, name) =
                    path.rsplit_once('.').map_or((vec![], *path), |(a, b)| (a.split('.').collect(), b));
                let mut parent = Some(item);
                for name in parents {
                    parent = parent.and_then(|value| value.get_mut(name));
                }
                match parent {
                    Some(Value::Array(elements)) => {
                        for element in elements {
                            element.as_object_mut().unwrap().remove(name);
                        }
                    }
                    Some(Value::Object(object)) => _ = object.remove(name),
                    _ => {}
                }
            }
        }
        sum(items.as_slice(), size)
    };
    let before = without(&[]);
    for (at, path) in drops.iter().enumerate() {
        assert_eq!(report["drop"][at]["bytes"], before - without(&[path]), "{path}");
    }
    assert_eq!(report["drop"][drops.len()]["bytes"], before - without(&drops));
}

#[test]
fn json_and_protobuf_agree() {
    let mut decode = listwatch(&["get", "pods", "-A", "-o", "jsonl", "--from", &format!("{FIXTURES}pods.pb")]);
    let items = String::from_utf8(decode.output().unwrap().stdout).unwrap();
    let items = items.lines().collect::<Vec<_>>().join(",");
    let json =
        format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"525"}},"items":[{items}]}}"#);
    let [protobuf, json] = [fixture("pods.pb"), json.into_bytes()].map(|body| report(&["--depth", "3"], &body));
    for what in ["kind", "apiVersion", "resourceVersion", "items"] {
        assert_eq!(protobuf[what], json[what], "{what}");
    }
    let namespaces = |report: &Value| -> BTreeMap<String, u64> {
        let namespaces = report["namespaces"].as_array().unwrap().iter();
        namespaces.map(|found| (found["namespace"].to_string(), found["items"].as_u64().unwrap())).collect()
    };
    assert_eq!(namespaces(&protobuf), namespaces(&json));
    // JSON omits empty fields, and has the type meta in each item.
    let paths = |report| sizes(report).into_keys().map(str::to_owned).collect::<BTreeSet<_>>();
    let only_json: Vec<_> = paths(&json).difference(&paths(&protobuf)).cloned().collect();
    assert_eq!(only_json, ["apiVersion", "kind"]);
    for path in [
        "metadata.annotations[\"checksum/config\"]",
        "metadata.labels[\"app.kubernetes.io/name\"]",
        "spec.containers.image",
    ] {
        assert!(sizes(&json).contains_key(path), "{path}");
    }
}

/// Several values of a field in one item count once.
#[test]
fn counts_the_items_that_have_a_field() {
    let meta = |name: &str, annotations: &[&str], owners: usize| ObjectMeta {
        name: Some(name.to_owned()),
        annotations: annotations.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect(),
        owner_references: vec![OwnerReference { uid: Some("u".to_owned()), ..OwnerReference::default() }; owners],
        ..ObjectMeta::default()
    };
    let protobuf = pod_list([meta("a", &["k", "l"], 2), meta("b", &["k"], 0), meta("c", &[], 0)]);
    let json = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[
        {"metadata":{"name":"a","annotations":{"k":"x","l":"x"},"ownerReferences":[{"uid":"u"},{"uid":"u"}]}},
        {"metadata":{"name":"b","annotations":{"k":"x"}}},{"metadata":{"name":"c"}}]}"#;
    let args = ["--depth", "3", "--drop", "metadata.annotations", "--drop", "metadata.ownerReferences"];
    for body in [&*protobuf, json.as_bytes()] {
        let report = report(&args, body);
        let items = |rows: &str| -> BTreeMap<String, u64> {
            let rows = report[rows].as_array().unwrap().iter();
            rows.map(|row| (row["path"].as_str().unwrap().to_owned(), row["items"].as_u64().unwrap())).collect()
        };
        let expected = [
            ("metadata", 3),
            ("metadata.annotations", 2),
            ("metadata.annotations[\"k\"]", 2),
            ("metadata.annotations[\"l\"]", 1),
            ("metadata.name", 3),
            ("metadata.ownerReferences", 1),
            ("metadata.ownerReferences.uid", 1),
        ];
        assert_eq!(items("fields"), expected.map(|(path, items)| (path.to_owned(), items)).into());
        let dropped = [("all of them", 2), ("metadata.annotations", 2), ("metadata.ownerReferences", 1)];
        assert_eq!(items("drop"), dropped.map(|(path, items)| (path.to_owned(), items)).into());
    }
    // The number of items that have any of the others is unknown.
    let output = stats(&["--top", "1"], &protobuf);
    assert!(stdout(&output).lines().any(|line| line.trim().starts_with("others") && line.trim().ends_with(" B")));
}

#[test]
fn counts_selected_items() {
    let namespace = |pod: &Pod| pod.metadata.clone().unwrap().namespace.unwrap() == "team-07";
    let selected: Vec<_> = pods(&fixture("pods.pb")).into_iter().filter(namespace).collect();
    let (items, bytes) = (selected.len(), sum(&selected, Message::encoded_len));
    let report = report(&["-n", "team-07"], &fixture("pods.pb"));
    assert_eq!((&report["items"], &report["ofItems"]), (&items.into(), &120.into()));
    assert_eq!((&report["bytes"], report["namespaces"].as_array().unwrap().len()), (&bytes.into(), 1));
    for (args, expected) in [
        (&[][..], "PodList at version 525: 120 items, "),
        (&["-n", "team-07"], "PodList at version 525: 6 of 120 items, "),
        (&["-n", "none"], "PodList at version 525: 0 of 120 items, 0 B\n"),
        (&["-n", "team-07", "-l", "app.kubernetes.io/name=checkout"], "PodList at version 525: 2 of 120 items, "),
    ] {
        let output = stats(args, &fixture("pods.pb"));
        assert!(stdout(&output).starts_with(expected), "{args:?}: {}", stdout(&output));
        assert_eq!((stderr(&output), output.status.code()), ("", Some(0)), "{args:?}");
    }
}

#[test]
fn prints_tables() {
    let meta = |namespace: &str, name: &str| ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        annotations: BTreeMap::from([("a/b".to_owned(), "x".repeat(100))]),
        ..ObjectMeta::default()
    };
    let body = pod_list([meta("web", "one"), meta("web", "a\n\u{1b}b"), meta("", "none")]);
    let output = stats(&["--drop", "metadata.annotations"], &body);
    let expected = "\
PodList: 3 items, 362 B of protobuf

 MEAN     P50     P90     P99   LARGEST
120 B   121 B   122 B   122 B     122 B

FIELD           BYTES    SHARE   PER ITEM   ITEMS
metadata        362 B   100.0%      120 B       3
  annotations   327 B    90.3%      109 B       3
    [\"a/b\"]     327 B    90.3%      109 B       3
  name           17 B     4.7%        5 B       3
  namespace      12 B     3.3%        4 B       3

WITHOUT                SAVES   SHARE   PER ITEM   ITEMS
metadata.annotations   327 B   90.3%      109 B       3

NAMESPACE   BYTES   SHARE   PER ITEM   ITEMS
web         243 B   67.1%      121 B       2
(none)      119 B   32.9%      119 B       1

OBJECT           BYTES
web/a\\n\\u{1b}b   122 B
web/one          121 B
none             119 B
";
    assert_eq!((stdout(&output), stderr(&output), output.status.code()), (expected, "", Some(0)));
}

#[test]
fn reports_lists_without_items_namespaces_or_known_fields() {
    assert_eq!(stdout(&stats(&[], &fixture("pods-empty.pb"))), "PodList at version 525: 0 items, 0 B\n");
    assert_eq!(report(&[], &fixture("pods-empty.pb"))["sizes"], Value::Null);

    let roles = stats(&[], &fixture("clusterroles.pb"));
    assert!(!stdout(&roles).contains("NAMESPACE") && stdout(&roles).contains("OBJECT"), "{}", stdout(&roles));

    // The metadata of an unknown kind is known. An empty item is counted too.
    let maps = fixture("configmaps.pb");
    let at = maps.windows(13).position(|window| window == b"ConfigMapList").unwrap();
    let unknown = [&maps[..at], b"GadgetizeList", &maps[at + 13..]].concat();
    assert!(sizes(&report(&[], &unknown)).keys().any(|path| *path == "metadata.managedFields"));
    assert!(sizes(&report(&[], &unknown)).keys().any(|path| *path == "2"));
    let empty = body("v1", "PodList", &PodList { metadata: Some(ListMeta::default()), items: vec![Pod::default()] });
    let report = report(&[], &empty);
    assert_eq!((&report["items"], &report["sizes"]["histogram"][0]["items"]), (&1.into(), &1.into()));
}

/// The report names at most 10,000 namespaces and fields, and sums the rest, so that memory stays constant.
#[test]
fn bounds_the_number_of_distinct_names() {
    let own = |n: usize| ObjectMeta {
        namespace: Some(format!("namespace-{n}")),
        annotations: BTreeMap::from([(format!("annotation-{n}"), String::new())]),
        ..ObjectMeta::default()
    };
    let report = report(&[], &pod_list((0..11_000).map(own)));
    let namespaces = report["namespaces"].as_array().unwrap();
    assert_eq!((namespaces.len(), &namespaces[10_000]["items"]), (10_001, &1000.into()));
    let fields = report["fields"].as_array().unwrap();
    let others = fields.iter().find(|field| field.get("others").is_some()).unwrap();
    assert_eq!(others["path"], "metadata.annotations");
    let found = sizes(&report);
    let keys = found.iter().filter(|(path, _)| path.starts_with("metadata.annotations["));
    let of_keys = keys.clone().map(|(_, bytes)| bytes).sum::<u64>() + others["bytes"].as_u64().unwrap();
    assert!(keys.count() < 10_000);
    assert_eq!(of_keys, found["metadata.annotations"]);
}

#[test]
fn reports_errors() {
    let pods = fixture("pods.pb");
    let lines = with_stdin(&["get", "pods", "-A", "-o", "jsonl", "--from", "-"], &pods).stdout;
    let single = "error: stdin: not a list: the body has the kind \"Pod\" of \"v1\", at byte 6355, 0 items delivered; the file has single objects: to save a list, use `record`\n";
    // A list of one Pod, whose spec is not a message.
    let bad_spec = b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x09\x0a\0\x12\x05\x12\x03\x0a\x09a";
    for (args, body, expected, code) in [
        (
            &[][..],
            &pods[..500_000],
            "error: stdin: incomplete: the body ended before the list did in item 58, at byte ",
            1,
        ),
        (
            &[],
            &fixture("single-configmap.pb"),
            "error: stdin: not a list: the body has the kind \"ConfigMap\" of \"v1\"",
            1,
        ),
        (
            &[],
            &fixture("watch-configmaps.json"),
            "error: stdin: unexpected encoding: the body looks like a watch stream",
            1,
        ),
        (&[], &lines, single, 1),
        (&[], bad_spec, "error: stdin: cannot read item 0, at byte ", 1),
        (
            &["--drop", "spec.nodename"],
            &pods,
            "error: --drop: invalid field path \"spec.nodename\": Pod has no such field; did you mean spec.nodeName?\n",
            2,
        ),
        (
            &["--drop", "spec[\"a\"]"],
            &pods,
            "error: --drop: invalid field path \"spec[\\\"a\\\"]\": not a map, so it has no keys\n",
            2,
        ),
        (
            &["--drop", "metadata.annotations[a]"],
            &pods,
            "error: --drop: invalid field path \"metadata.annotations[a]\": expected a key as [\"KEY\"] at the end; put the",
            2,
        ),
        (&["--depth", "0"], &pods, "error: invalid value '0' for '--depth <N>': it must be at least 1\n", 2),
        (&["--depth", "33"], &pods, "error: invalid value '33' for '--depth <N>': it must be at most 32\n", 2),
        (&["--top", "abc"], &pods, "error: invalid value 'abc' for '--top <N>': it is not a number\n", 2),
        (&["--html", "/no/directory/page.html"], &pods, "error: cannot write /no/directory/page.html: ", 1),
    ] {
        let output = stats(args, body);
        assert!(stderr(&output).starts_with(expected), "{args:?} {expected}: {}", stderr(&output));
        assert_eq!((stdout(&output), output.status.code()), ("", Some(code)), "{args:?} {expected}");
    }
    let output = listwatch(&["stats", "--from", "no/such/file"]).output().unwrap();
    assert_eq!(stderr(&output), "error: cannot read no/such/file: no such file or directory\n");
    let output = listwatch(&["stats"]).output().unwrap();
    assert!(stderr(&output).contains("<RESOURCE>") && output.status.code() == Some(2), "{}", stderr(&output));
}

#[test]
fn warns_of_a_single_page() {
    let output = stats(&[], &fixture("pods-page-1.pb"));
    assert_eq!(stderr(&output), "warning: the body is one page of a longer list\n");
    assert!(stdout(&output).starts_with("PodList at version 525: 50 items"), "{}", stdout(&output));
}

#[test]
fn html_page_escapes_text_and_loads_nothing() {
    let hostile = ObjectMeta {
        namespace: Some("<script>alert(1)</script>".to_owned()),
        name: Some("\"><img src=x onerror=alert(1)>".to_owned()),
        annotations: BTreeMap::from([("</style><script>\u{1b}[31m\" onload=\"x".to_owned(), "a".to_owned())]),
        ..ObjectMeta::default()
    };
    let list = PodList { metadata: Some(ListMeta::default()), items: pods(&pod_list([hostile])) };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("page.html");
    let html = || std::fs::read_to_string(&file).unwrap();
    let args = ["--html", file.to_str().unwrap(), "--drop", "metadata.labels"];

    assert_eq!(stats(&args, &body("v1", "<b>List", &list)).status.code(), Some(0));
    let page = html();
    for tag in ["<script", "<img", "<b>", "\u{1b}", "\" onload"] {
        assert!(!page.contains(tag), "{tag}: {page}");
    }
    for text in [
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "&lt;img src=x onerror=alert(1)&gt;",
        "&lt;/style&gt;",
        "&lt;b&gt;List",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }

    assert_eq!(stats(&args, &fixture("pods.pb")).status.code(), Some(0));
    let page = html();
    for text in [
        "managedFields (120 items)",
        "metadata.labels (120 items)",
        "60.5%",
        "checksum/config",
        "team-06/checkout-5a7cf68e-00056",
        "Namespaces",
        "Without",
        // A screen reader finds the numbers in tables with headers, and a description of the plot.
        r#"<html lang="en">"#,
        r#"<th scope="col">Bytes</th>"#,
        r#"<th scope="row""#,
        r#"<div class="histogram" role="img" aria-label="Number of items by size, from "#,
        "<title>PodList at version 525 of stdin, all namespaces, read on 20",
    ] {
        assert!(page.contains(text), "{text}");
    }
    for outside in ["src=", "href=", "url(", "@import", "http:", "https:"] {
        assert!(!page.contains(outside), "{outside}");
    }
    // An incomplete list does not change the page.
    assert_eq!(stats(&args, &fixture("pods.pb")[..500_000]).status.code(), Some(1));
    assert_eq!(html(), page);
    assert_eq!(directory.path().read_dir().unwrap().count(), 1, "no other file is left");
}

#[test]
fn exits_quietly_with_0_on_a_closed_pipe() {
    let mut child = piped(&["stats", "--from", "-"]).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&fixture("pods.pb")).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
}
