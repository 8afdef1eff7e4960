//! `listwatch decode` of recorded bodies: what it prints, and how it ends.

use std::io::{Read, Write};
use std::process::Output;

use flate2::read::MultiGzDecoder;
use k8s_pb::api::core::v1::Pod;
use k8s_pb::api::rbac::v1::ClusterRoleList;
use prost::Message;

use crate::support::protobuf::{config_map_list, envelope, later_config_map};
use crate::support::{FIXTURES, fixture, list, listwatch, names, piped, pods, stderr, stdout, with_stdin};

const ONE_PAGE: &str = "warning: the body is one page of a longer list\n";

/// Decodes a body given on stdin.
fn decode(args: &[&str], body: &[u8]) -> Output {
    with_stdin(&[&["decode"], args].concat(), body)
}

/// Returns the row of a table, without the age: namespace, name, version and size.
fn cells(pod: &Pod) -> [String; 4] {
    let meta = pod.metadata.clone().unwrap();
    let size = pod.encoded_len().to_string();
    [meta.namespace.unwrap(), meta.name.unwrap(), meta.resource_version.unwrap(), size]
}

fn gunzip(body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    MultiGzDecoder::new(body).read_to_end(&mut plain).unwrap();
    plain
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut gzipped = Vec::new();
    flate2::read::GzEncoder::new(body, flate2::Compression::fast()).read_to_end(&mut gzipped).unwrap();
    gzipped
}

#[test]
fn prints_names_of_plain_and_gzipped_bodies() {
    let two_members = |body: &[u8]| [gzip(&body[..70_000]), gzip(&body[70_000..])].concat();
    let plain = fixture("pods.pb");
    for (name, body) in [
        ("pods.pb", plain.clone()),
        ("pods-gzip.pb.gz", fixture("pods-gzip.pb.gz")),
        ("in two gzip members", two_members(&plain)),
        ("pods-page-3.pb", fixture("pods-page-3.pb")),
        ("pods-empty.pb", fixture("pods-empty.pb")),
    ] {
        let plain = if body.starts_with(b"k8s") { body.clone() } else { gunzip(&body) };
        let expected = names(&pods(&plain));
        let output = decode(&[], &body);
        assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*expected, "", Some(0)), "{name}");
    }
}

#[test]
fn prints_names_without_a_namespace_from_a_file() {
    let expected: String = list::<ClusterRoleList>(&fixture("clusterroles.pb"))
        .items
        .into_iter()
        .map(|role| role.metadata.unwrap().name.unwrap() + "\n")
        .collect();
    let output = listwatch(&["decode", &format!("{FIXTURES}clusterroles.pb")]).output().unwrap();
    assert_eq!((stdout(&output), output.status.code()), (&*expected, Some(0)));
}

#[test]
fn prints_an_aligned_table() {
    let pods = pods(&fixture("pods.pb"));
    let output = decode(&["-o", "table", "-"], &fixture("pods.pb"));
    let rows: Vec<Vec<&str>> = stdout(&output).lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAMESPACE", "NAME", "VERSION", "AGE", "SIZE"]);
    for (row, pod) in rows[1..].iter().zip(&pods) {
        assert_eq!([row[0], row[1], row[2], row[4]], cells(pod));
    }
    assert_eq!(rows.len(), 121);
    // The columns are aligned: sizes end where their header does.
    let end = stdout(&output).find('\n').unwrap();
    assert!(stdout(&output).lines().all(|line| line.len() == end));

    let output = decode(&["-o", "table", "--show-labels"], &fixture("pods.pb"));
    assert!(stdout(&output).lines().next().unwrap().ends_with("   LABELS"));
    let labels = pods[0].metadata.clone().unwrap().labels;
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(stdout(&output).lines().nth(1).unwrap().split_whitespace().last().unwrap(), labels.join(","));

    let output = decode(&["-o", "table"], &fixture("clusterroles.pb"));
    assert_eq!(
        stdout(&output).split_whitespace().take(5).collect::<Vec<_>>(),
        ["NAME", "VERSION", "AGE", "SIZE", "admin"]
    );
    assert_eq!(stdout(&decode(&["-o", "table"], &fixture("pods-empty.pb"))), "NAME   VERSION   AGE   SIZE\n");
    let output = decode(&["-o", "table", "--show-labels"], &fixture("pods-empty.pb"));
    assert_eq!(stdout(&output), "NAME   VERSION   AGE   SIZE   LABELS\n");
    let output = decode(&["-o", "table", "--no-headers"], &fixture("pods-empty.pb"));
    assert_eq!((stdout(&output), stderr(&output), output.status.code()), ("", "", Some(0)));
}

#[test]
fn prints_the_same_json_from_both_encodings() {
    let parse = |output: &Output| -> Vec<serde_json::Value> {
        assert!(["", ONE_PAGE].contains(&stderr(output)) && output.status.success(), "{}", stderr(output));
        stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let [protobuf, json] = ["pods.pb", "pods.json"].map(|name| parse(&decode(&["-o", "json"], &fixture(name))));
    assert_eq!((protobuf.len(), json.len()), (120, 30));
    assert!(protobuf[..30] == json);
    assert_eq!((&json[0]["kind"], &json[0]["apiVersion"]), (&"Pod".into(), &"v1".into()));

    let widgets = parse(&decode(&["-o", "json"], &fixture("widgets-page-1.json")));
    assert!(!widgets.is_empty() && widgets.iter().all(|widget| widget["kind"] == "Widget"));
}

#[test]
fn warns_of_a_single_page_in_each_format() {
    for (name, expected) in [
        ("pods-page-1.pb", ONE_PAGE),
        ("pods-page-3.pb", ""),
        ("pods.json", ONE_PAGE),
        ("widgets-page-1.json", ONE_PAGE),
    ] {
        for format in ["name", "table", "wide", "json", "yaml", "summary"] {
            let output = decode(&["-o", format], &fixture(name));
            assert_eq!((stderr(&output), output.status.code()), (expected, Some(0)), "{name} {format}");
        }
    }
    // The rest of the page was not read.
    let output = decode(&["--limit", "3"], &fixture("pods-page-1.pb"));
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
    // The object may be on another page.
    let output = decode(&["-", "web/none"], &fixture("pods-page-1.pb"));
    assert_eq!(stderr(&output), format!("{ONE_PAGE}error: stdin has no web/none\n"));
}

#[test]
fn prints_wide_and_label_columns() {
    let body = fixture("pods.pb");
    let rows = |args: &[&str]| -> Vec<Vec<String>> {
        let output = decode(args, &body);
        assert_eq!((stderr(&output), output.status.code()), ("", Some(0)), "{args:?}");
        stdout(&output).lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let wide = rows(&["-o", "wide", "-L", "app,app.kubernetes.io/version"]);
    let header = "NAMESPACE NAME VERSION AGE SIZE PHASE NODE IP OWNER UID APP VERSION";
    assert_eq!(wide[0].join(" "), header);
    let or_none = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "<none>".to_owned());
    for (row, pod) in wide[1..].iter().zip(pods(&body)) {
        let (meta, spec, status) = (pod.metadata.unwrap(), pod.spec.unwrap(), pod.status.unwrap());
        let owner = meta.owner_references.iter().find(|owner| owner.controller == Some(true));
        let owner = owner.map(|owner| format!("{}/{}", owner.kind.clone().unwrap(), owner.name.clone().unwrap()));
        let label = |key: &str| or_none(meta.labels.get(key).cloned());
        let expected = [
            or_none(status.phase),
            or_none(spec.node_name),
            or_none(status.pod_ip),
            or_none(owner),
            meta.uid.clone().unwrap(),
        ];
        assert_eq!(row[5..10], expected);
        assert_eq!(row[10..], [label("app"), label("app.kubernetes.io/version")]);
    }
    assert_eq!(rows(&["-o", "wide", "-L", "app,app.kubernetes.io/version", "--no-headers"]), wide[1..]);
    assert_eq!(rows(&["-o", "table", "--limit", "3", "--no-headers"]).len(), 3);
    // The columns of Pods are not shown for other kinds.
    let output = decode(&["-o", "wide"], &fixture("clusterroles.pb"));
    assert_eq!(
        stdout(&output).lines().next().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["NAME", "VERSION", "AGE", "SIZE", "OWNER", "UID"]
    );
}

/// kubectl prints `<unknown>` for the zero time, and `<invalid>` for an age that it cannot compute.
#[test]
fn prints_an_age_for_each_time() {
    let times = [
        ("null", "<unknown>"),
        (r#""0001-01-01T00:00:00Z""#, "<unknown>"),
        (r#""9999-12-31T23:59:59Z""#, "<invalid>"),
        (r#""10000-01-01T00:00:00Z""#, "<invalid>"),
        (r#""yesterday""#, "<invalid>"),
        (r#""""#, "<invalid>"),
        ("7", "<invalid>"),
    ];
    let items: Vec<_> = times
        .iter()
        .enumerate()
        .map(|(index, (time, _))| format!(r#"{{"metadata":{{"name":"w-{index}","creationTimestamp":{time}}}}}"#))
        .collect();
    let body = format!(
        r#"{{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#,
        items.join(",")
    );
    let output = decode(&["-o", "table", "-L", "app", "--no-headers"], body.as_bytes());
    let rows: Vec<_> = stdout(&output).lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    let expected: Vec<_> = times.iter().enumerate().map(|(index, (_, age))| (format!("w-{index}"), *age)).collect();
    let printed: Vec<_> = rows.iter().map(|row| (row[0].to_owned(), row[1])).collect();
    assert_eq!((printed, output.status.code()), (expected, Some(0)), "{}", stderr(&output));
    assert_eq!(decode(&["-o", "name"], body.as_bytes()).status.code(), Some(0));
}

/// A YAML parser reads the same objects as a JSON parser.
#[test]
fn prints_yaml() {
    for name in ["pods.pb", "pods.json", "configmaps.pb", "widgets-page-1.json"] {
        let json = decode(&["-o", "json"], &fixture(name));
        let json: Vec<serde_json::Value> =
            stdout(&json).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let output = decode(&["-o", "yaml"], &fixture(name));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let yaml: Vec<serde_json::Value> = serde_saphyr::from_multiple(stdout(&output)).unwrap();
        assert!(yaml == json, "{name}");
        assert!(stdout(&output).starts_with("---\napiVersion: ") && !stdout(&output).contains("managedFields:"));
    }
}

#[test]
fn prints_objects_by_name() {
    let all = names(&pods(&fixture("pods.pb")));
    let all: Vec<_> = all.lines().collect();
    let output = decode(&["-", all[7], all[3]], &fixture("pods.pb"));
    assert_eq!(
        (stdout(&output), stderr(&output), output.status.code()),
        (&*format!("{}\n{}\n", all[3], all[7]), "", Some(0))
    );
    // The rest of the body is not read.
    let output = decode(&["-", all[0]], &fixture("pods.pb")[..9000]);
    assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*format!("{}\n", all[0]), "", Some(0)));
    let output = decode(&["-", "--limit", "1", all[7], all[3]], &fixture("pods.pb"));
    assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*format!("{}\n", all[3]), "", Some(0)));
    let output = decode(&["-", "web/none", all[3], "none"], &fixture("pods.pb"));
    let expected = "error: stdin has no none, web/none\n";
    assert_eq!(
        (stdout(&output), stderr(&output), output.status.code()),
        (&*format!("{}\n", all[3]), expected, Some(1))
    );
    for selected in [&[all[3]][..], &["-n", "web"]] {
        let output = decode(&[&["-", "-o", "summary"], selected].concat(), &fixture("pods.pb"));
        assert_eq!((stdout(&output), output.status.code()), ("", Some(2)), "{selected:?}");
    }
    let roles = stdout(&decode(&[], &fixture("clusterroles.pb"))).lines().next().unwrap().to_owned();
    assert_eq!(stdout(&decode(&["-", &roles], &fixture("clusterroles.pb"))), format!("{roles}\n"));
}

#[test]
fn explains_missing_names() {
    let body = fixture("pods.pb");
    let all = names(&pods(&body));
    let [first, last] = [all.lines().next().unwrap(), all.lines().last().unwrap()];
    let name = first.split_once('/').unwrap().1;
    let hint = format!("stdin has no object {name} without a namespace; write NAMESPACE/NAME, for example {first}");
    let incomplete =
        "stdin: incomplete: the body ended before the list did in item 58, at byte 500000, 58 items delivered";
    for (args, bytes, expected) in [
        (&[name][..], body.len(), hint.clone()),
        (&[name, "web/none", "none"], body.len(), format!("{hint}; stdin has no none, web/none")),
        (&[last, "a"], 500_000, format!("{incomplete}; a, {last} may be in the missing part")),
        (&[name], 500_000, format!("{incomplete}; {hint}")),
        (&[name, "-n", "web"], body.len(), format!("stdin has no web/{name}")),
    ] {
        let output = decode(&[&["-"], args].concat(), &body[..bytes]);
        assert_eq!(stderr(&output), format!("error: {expected}\n"), "{args:?}");
        assert_eq!((stdout(&output), output.status.code()), ("", Some(1)), "{args:?}");
    }
    let output = decode(&["-", last], &fixture("pods-gzip.pb.gz")[..50_000]);
    assert!(stderr(&output).ends_with(&format!("; {last} may be in the missing part\n")), "{}", stderr(&output));
}

#[test]
fn selects_by_namespace_and_labels() {
    let body = fixture("pods.pb");
    let pods = pods(&body);
    let namespace = |pod: &Pod| pod.metadata.clone().unwrap().namespace.unwrap();
    #[cfg(feature = "cluster")]
    let app = |pod: &Pod| pod.metadata.clone().unwrap().labels.get("app.kubernetes.io/name").cloned();
    #[cfg(feature = "cluster")]
    let checkout = Some("checkout".to_owned());
    let inside = namespace(&pods[3]);
    let by = |selects: &dyn Fn(&Pod) -> bool| {
        let selected = pods.iter().filter(|pod| selects(pod)).cloned().collect::<Vec<_>>();
        assert!((1..120).contains(&selected.len()));
        names(&selected)
    };
    let one = names(&pods[3..4]);
    for (args, expected) in [
        (vec!["-n", &inside], by(&|pod| namespace(pod) == inside)),
        (vec!["-n", &inside, one.trim_end().split_once('/').unwrap().1], one.clone()),
        (vec!["-n", "none"], String::new()),
        #[cfg(feature = "cluster")]
        (vec!["-l", "app.kubernetes.io/name in (checkout)"], by(&|pod| app(pod) == checkout)),
        #[cfg(feature = "cluster")]
        (vec!["-n", &inside, "-l", "!none,app.kubernetes.io/name!=checkout"], {
            by(&|pod| namespace(pod) == inside && app(pod) != checkout)
        }),
    ] {
        let output = decode(&[&["-"], &args[..]].concat(), &body);
        assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*expected, "", Some(0)), "{args:?}");
    }
}

#[test]
fn stops_at_the_limit() {
    let expected: String = names(&pods(&fixture("pods.pb"))).split_inclusive('\n').take(5).collect();
    let output = decode(&["--limit", "5"], &fixture("pods.pb"));
    assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*expected, "", Some(0)));
    // The rest of the body is not read.
    let output = decode(&["--limit", "1"], &fixture("pods.pb")[..9000]);
    assert_eq!((stdout(&output).lines().count(), stderr(&output), output.status.code()), (1, "", Some(0)));
    let output = decode(&["--limit", "1", "-o", "summary"], &fixture("pods.pb"));
    assert_eq!((stdout(&output), output.status.code()), ("", Some(2)));
}

#[test]
fn warns_of_unknown_fields() {
    let map = || later_config_map("a", 1);
    let config_maps = config_map_list("7", &[map(), [map(), vec![0x38, 1]].concat()]);
    let output = decode(&["-o", "json"], &config_maps);
    let metadata = r#"{"name":"a","namespace":"web","uid":"a","resourceVersion":"1"}"#;
    let line = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata}}}"#);
    assert_eq!(stdout(&output), format!("{line}\n{line}\n"));
    let expected = "warning: left out 3 fields that this version does not know; JSON from the server has them\n";
    assert_eq!((stderr(&output), output.status.code()), (expected, Some(0)));
    let output = decode(&["-o", "summary"], &config_maps);
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));

    let output = decode(&["-o", "json"], &envelope("WidgetList", b"\x0a\0\x12\0"));
    let expected = r#"unknown fields: no table for the kind "Widget" of "v1"; request JSON from the server"#;
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn drops_fields_from_json() {
    let parse = |output: &Output| -> Vec<serde_json::Value> {
        assert!(output.status.success(), "{output:?}");
        stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let key = r#"metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]"#;
    let drops = ["--drop", "metadata.managedFields", "--drop", "spec.containers.env", "--drop", key];
    for name in ["pods.pb", "pods.json"] {
        let mut whole = parse(&decode(&["-o", "json", "--show-managed-fields"], &fixture(name)));
        let mut dropped = 0;
        for pod in &mut whole {
            let metadata = pod["metadata"].as_object_mut().unwrap();
            dropped += usize::from(metadata.remove("managedFields").is_some());
            if let Some(annotations) = metadata.get_mut("annotations") {
                let annotations = annotations.as_object_mut().unwrap();
                dropped +=
                    usize::from(annotations.remove("kubectl.kubernetes.io/last-applied-configuration").is_some());
            }
            for container in pod["spec"]["containers"].as_array_mut().unwrap() {
                dropped += usize::from(container.as_object_mut().unwrap().remove("env").is_some());
            }
        }
        assert!(dropped > 2 * whole.len());
        assert!(parse(&decode(&[&["-o", "json"], &drops[..]].concat(), &fixture(name))) == whole, "{name}");
    }
    let widgets = parse(&decode(&["-o", "json", "--drop", ".spec", "--drop", "none"], &fixture("widgets-page-1.json")));
    assert!(widgets.iter().all(|widget| widget.get("spec").is_none() && widget.get("metadata").is_some()));
    for (args, expected, code) in [
        (
            &["-o", "json", "--drop", "spec.x"][..],
            "error: --drop: invalid field path \"spec.x\": Pod has no such field\n",
            2,
        ),
        (
            &["-o", "yaml", "--drop", "statu", "--skip-bad-items"],
            "error: --drop: invalid field path \"statu\": Pod has no such field; did you mean status?\n",
            2,
        ),
        (
            &["--show-managed-fields"],
            "error: --show-managed-fields is for -o json and yaml: no other format prints fields\n",
            2,
        ),
        (&["-L", "app"], "error: --label-columns is for -o table and wide\n", 2),
        (&["-o", "json", "--show-labels"], "error: --show-labels is for -o table and wide\n", 2),
        (&["--no-headers"], "error: --no-headers is for -o table and wide\n", 2),
        (&["-o", "json", "--drop", "1.17"], "error: --drop 1.17: expected names of fields, not numbers\n", 2),
        (&["-o", "json", "--drop", "metadata.managedField"], "; did you mean metadata.managedFields?\n", 2),
        (&["-o", "json", "--drop", ".spec.volumes.configmap.name"], "; did you mean spec.volumes.configMap.name?\n", 2),
        (
            &["-o", "json", "--drop", r"metadata.annotations.x\.y"],
            "; write 'metadata.annotations[\"x.y\"]', with the quotes for the shell\n",
            2,
        ),
        (&["--drop", "status"], "error: --drop is for -o json and yaml: no other format prints fields\n", 2),
    ] {
        let output = decode(args, &fixture("pods.pb"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(expected) && output.status.code() == Some(code), "{args:?}: {stderr}");
    }
}

#[test]
fn prints_summaries() {
    for (name, expected) in [
        (
            "pods.pb",
            r#"{"apiVersion":"v1","kind":"PodList","resourceVersion":"525","continue":null,"remainingItemCount":null,"items":120,"bytes":1019272}"#,
        ),
        (
            "pods-gzip.pb.gz",
            r#"{"apiVersion":"v1","kind":"PodList","resourceVersion":"525","continue":null,"remainingItemCount":null,"items":120,"bytes":1019272}"#,
        ),
        (
            "pods-page-1.pb",
            r#"{"apiVersion":"v1","kind":"PodList","resourceVersion":"525","continue":"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NTI1LCJzdGFydCI6Ii90ZWFtLTA4L2NoZWNrb3V0LTU3M2M2M2ZjLTAwMDA4XHUwMDAwIn0","remainingItemCount":70,"items":50,"bytes":425241}"#,
        ),
        (
            "clusterroles.pb",
            r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleList","resourceVersion":"525","continue":null,"remainingItemCount":null,"items":69,"bytes":47995}"#,
        ),
    ] {
        let output = decode(&["-o", "summary"], &fixture(name));
        let expected = format!("{expected}\n");
        assert_eq!((stdout(&output), output.status.code()), (&*expected, Some(0)), "{name}: {}", stderr(&output));
    }
}

#[test]
fn reports_each_error_on_one_line_and_exits_with_1() {
    let pods = fixture("pods.pb");
    let truncated = |at: usize| pods[..at].to_vec();
    let gzipped = fixture("pods-gzip.pb.gz");
    let mut bad_checksum = gzipped.clone();
    *bad_checksum.iter_mut().nth_back(7).unwrap() ^= 1;
    for (what, args, body, error, items) in [
        ("an empty body", &[][..], vec![], " is empty: expected the body of a list", 0),
        (
            "truncated in item 58",
            &[],
            truncated(500_000),
            ": incomplete: the body ended before the list did in item 58, at byte 500000, 58 items delivered",
            58,
        ),
        (
            "truncated in item 1",
            &[],
            truncated(9000),
            ": incomplete: the body ended before the list did in item 1, at byte 9000, 1 item delivered",
            1,
        ),
        (
            "a single object",
            &[],
            fixture("single-configmap.pb"),
            r#": not a list: the body has the kind "ConfigMap" of "v1", at byte 21, 0 items delivered; the file has single objects: to save a list, use `record`"#,
            0,
        ),
        (
            "an API error",
            &[],
            fixture("error-403.pb"),
            r#": API error: 403 Forbidden: pods is forbidden: User "nobody" cannot list resource "pods" in API group "" at the cluster scope, at byte 0, 0 items delivered"#,
            0,
        ),
        (
            "a table",
            &[],
            fixture("pods-table.json"),
            r#": not a list: the body has the kind "Table" of "meta.k8s.io/v1", at byte 16, 0 items delivered; request the list without as=Table"#,
            0,
        ),
        (
            "a watch",
            &[],
            fixture("watch-expired.pb"),
            ": unexpected encoding: the body looks like a watch stream, not like a list, at byte 0, 0 items delivered",
            0,
        ),
        (
            "text that controls the terminal",
            &[],
            b"no\x1b[31m\nlist".to_vec(),
            ": unexpected encoding: the body looks like text, not like a list, at byte 0, 0 items delivered",
            0,
        ),
        (
            "an item over the limit",
            &["--max-item-size", "8600B"],
            pods.clone(),
            ": item 1 is 8700 bytes, over the limit of 8600 bytes, at byte 8501, 1 item delivered; --max-item-size raises the limit",
            1,
        ),
        (
            "too many items",
            &["--max-items", "3"],
            pods.clone(),
            ": the list has at least 4 items, over the limit of 3, at byte 25553, 3 items delivered; --max-items raises the limit",
            3,
        ),
        (
            "a gzip bomb",
            &["--max-bytes", "1kB"],
            gzipped.clone(),
            ": the body is at least 1019268 bytes, over the limit of 1000 bytes, at byte 19, 0 items delivered; --max-bytes raises the limit",
            0,
        ),
        (
            "truncated gzip",
            &[],
            gzipped[..50_000].to_vec(),
            ": cannot read the body: unexpected end of file, at byte 397313, 46 items delivered",
            46,
        ),
        (
            "gzip with a bad checksum",
            &[],
            bad_checksum,
            ": cannot read the body: CRC computed does not match, at byte 1019272, 120 items delivered",
            120,
        ),
    ] {
        let output = decode(args, &body);
        assert_eq!(stderr(&output), format!("error: stdin{error}\n"), "{what}");
        assert_eq!((stdout(&output).lines().count(), output.status.code()), (items, Some(1)), "{what}");
        // The items before the error are the first of the list. Only a complete list has a summary.
        let names = decode(&[], &pods);
        assert!(stdout(&names).starts_with(stdout(&output)), "{what}");
        assert_eq!(stdout(&decode(&[args, &["-o", "summary"]].concat(), &body)), "", "{what}");
    }
}

#[test]
fn refuses_items_that_are_not_objects() {
    let null = "cannot read item 0, at byte 45, 0 items delivered: a value of the wrong type in the object";
    let other = "malformed: a value of the wrong type in items in item 0, at byte 45, 0 items delivered";
    for (item, error) in [("null", null), ("7", other), ("\"pod\"", other), ("[]", other), ("true", other)] {
        let body = format!(r#"{{"kind":"PodList","apiVersion":"v1","items":[{item}]}}"#);
        for format in ["name", "table", "wide", "json", "yaml"] {
            let output = decode(&["-o", format], body.as_bytes());
            let error = format!("error: stdin: {error}\n");
            assert_eq!((stderr(&output), output.status.code()), (&*error, Some(1)), "{item} with -o {format}");
        }
    }
}

#[test]
fn reports_an_expired_token_on_one_line() {
    let output = decode(&[], &fixture("error-410-continue.pb"));
    let error = stderr(&output);
    assert!(
        error.starts_with("error: stdin: API error: 410 Expired: The provided continue parameter is too old"),
        "{error}"
    );
    assert!(error.ends_with(", at byte 0, 0 items delivered\n"), "{error}");
    assert_eq!((error.lines().count(), output.status.code()), (1, Some(1)));
}

#[test]
fn names_the_file_that_it_cannot_read() {
    let output = listwatch(&["decode", "no/such/file"]).output().unwrap();
    assert_eq!(stderr(&output), "error: cannot read no/such/file: No such file or directory (os error 2)\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn skips_and_counts_bad_items() {
    let pods = fixture("pods.pb");
    let small = crate::support::pods(&pods).iter().filter(|pod| pod.encoded_len() <= 8600).count();
    let output = decode(&["--skip-bad-items", "--max-item-size", "8600B"], &pods);
    assert_eq!((stdout(&output).lines().count(), output.status.code()), (small, Some(0)));
    assert_eq!(stderr(&output), format!("skipped: {} bad items\n", 120 - small));
}

#[test]
fn escapes_control_characters_in_names() {
    // Two items without namespaces, the second with a name that is not UTF-8.
    let body = b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x15\x0a\0\x12\x08\x0a\x06\x0a\x04a\n\x1bb\x12\x07\x0a\x05\x0a\x03\xff\xff\xff";
    let output = decode(&["--skip-bad-items"], body);
    assert_eq!((stdout(&output), stderr(&output)), ("a\\n\\u{1b}b\n", "skipped: 1 bad item\n"));
    let output = decode(&[], body);
    assert_eq!(stdout(&output), "a\\n\\u{1b}b\n");
    assert_eq!(
        stderr(&output),
        "error: stdin: cannot read item 1, at byte 33, 1 item delivered: invalid UTF-8 in metadata.name\n"
    );
}

#[test]
fn exits_with_2_on_wrong_usage() {
    for (args, expected) in [
        (&["-o", "xml"][..], "invalid value 'xml'"),
        (&["--no-such-option"], "unexpected argument '--no-such-option'"),
        (&["--max-item-size", "much"], "invalid value 'much'"),
        (&["--max-items", "much"], "invalid value 'much' for '--max-items <N>': it is not a number\n"),
        (&["--limit", "0"], "invalid value '0' for '--limit <N>': it must be at least 1\n"),
        (&["--limit", "99999999999999999999"], "': it must be at most 18446744073709551615\n"),
    ] {
        let output = decode(args, b"");
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn exits_quietly_with_0_on_a_closed_pipe() {
    let mut child = piped(&["decode"]).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    _ = stdin.write_all(&fixture("pods.pb"));
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
}

#[test]
fn prints_names_before_the_body_ends() {
    let body = fixture("pods.pb");
    let expected = names(&pods(&body)[..58]);
    let mut child = piped(&["decode"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&body[..500_000]).unwrap();
    let mut names = vec![0; expected.len()];
    child.stdout.take().unwrap().read_exact(&mut names).unwrap();
    assert_eq!(str::from_utf8(&names).unwrap(), expected);
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[cfg(unix)]
#[test]
fn exits_with_130_on_an_interrupt() {
    let mut child = piped(&["decode"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&fixture("pods.pb")[..9000]).unwrap();
    // The command handles signals before it prints the first name.
    let mut first = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    crate::support::signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(stderr(&output), "interrupted: at byte 9000, 1 item delivered\n");
    assert_eq!(output.status.code(), Some(130));
    drop(stdin);
}
