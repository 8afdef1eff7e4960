//! What each format prints.

use std::process::Output;

use k8s_pb::api::rbac::v1::ClusterRoleList;

use super::*;
use crate::support::protobuf::{config_map_list, envelope, later_config_map};
use crate::support::{FIXTURES, fixture, list, listwatch, names, pods, stderr, stdout};

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
    assert_eq!(rows[0], ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "BYTES"]);
    for (row, pod) in rows[1..].iter().zip(&pods) {
        let meta = pod.metadata.as_ref().unwrap();
        let size = pod.encoded_len().to_string();
        assert_eq!([row[0], row[1], row[row.len() - 1]], [meta.namespace(), meta.name(), &size]);
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
    assert_eq!(stdout(&output).split_whitespace().take(4).collect::<Vec<_>>(), ["NAME", "AGE", "BYTES", "admin"]);
    assert_eq!(stdout(&decode(&["-o", "table"], &fixture("pods-empty.pb"))), "NAME   AGE   BYTES\n");
    let output = decode(&["-o", "table", "--show-labels"], &fixture("pods-empty.pb"));
    assert_eq!(stdout(&output), "NAME   AGE   BYTES   LABELS\n");
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
    let header = "NAMESPACE NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES BYTES RESOURCE-VERSION \
                  OWNER UID APP VERSION";
    assert_eq!(wide[0].join(" "), header);
    let or_none = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "<none>".to_owned());
    for (row, pod) in wide[1..].iter().zip(pods(&body)) {
        let (meta, spec, status) = (pod.metadata.unwrap(), pod.spec.unwrap(), pod.status.unwrap());
        let owner = meta.owner_references.iter().find(|owner| owner.controller == Some(true));
        let owner = owner.map(|owner| format!("{}/{}", owner.kind.clone().unwrap(), owner.name.clone().unwrap()));
        let label = |key: &str| or_none(meta.labels.get(key).cloned());
        assert_eq!(row[2].split_once('/').unwrap().1, spec.containers.len().to_string());
        assert_eq!(row[6..8], [or_none(status.pod_ip), or_none(spec.node_name)]);
        assert_eq!(row[11..14], [meta.resource_version.clone().unwrap(), or_none(owner), meta.uid.clone().unwrap()]);
        assert_eq!(row[14..], [label("app"), label("app.kubernetes.io/version")]);
    }
    assert_eq!(rows(&["-o", "wide", "-L", "app,app.kubernetes.io/version", "--no-headers"]), wide[1..]);
    assert_eq!(rows(&["-o", "table", "--limit", "3", "--no-headers"]).len(), 3);
}

/// The columns of the kind are kubectl's, without the name.
#[test]
fn prints_the_columns_of_each_kind() {
    for (body, table, wide) in [
        ("clusterroles.pb", "NAME AGE BYTES", "NAME AGE BYTES RESOURCE-VERSION OWNER UID"),
        ("configmaps.pb", "NAMESPACE NAME DATA AGE BYTES", "NAMESPACE NAME DATA AGE BYTES RESOURCE-VERSION OWNER UID"),
        ("namespaces.pb", "NAME STATUS AGE BYTES", "NAME STATUS AGE BYTES RESOURCE-VERSION OWNER UID"),
        (
            "nodes.pb",
            "NAME STATUS ROLES AGE VERSION BYTES",
            "NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME BYTES \
             RESOURCE-VERSION OWNER UID",
        ),
        (
            "services.pb",
            "NAMESPACE NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE BYTES",
            "NAMESPACE NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE SELECTOR BYTES RESOURCE-VERSION OWNER UID",
        ),
        ("pods-metadata.pb", "NAMESPACE NAME AGE BYTES", "NAMESPACE NAME AGE BYTES RESOURCE-VERSION OWNER UID"),
        ("widgets-page-1.json", "NAMESPACE NAME AGE BYTES", "NAMESPACE NAME AGE BYTES RESOURCE-VERSION OWNER UID"),
    ] {
        for (format, expected) in [("table", table), ("wide", wide)] {
            let output = decode(&["-o", format], &fixture(body));
            let header: Vec<_> = stdout(&output).lines().next().unwrap().split_whitespace().collect();
            assert_eq!(header.join(" "), expected, "{body}");
        }
    }
}

/// The first object decides of the columns. Others have their own metadata in them.
#[test]
fn prints_a_list_of_several_kinds() {
    let item = |api_version: &str, kind: &str, name: &str, rest: &str| {
        format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"name":"{name}"}}{rest}}}"#)
    };
    let items = [
        item("v1", "ConfigMap", "a", r#","data":{"k":"1","l":"2"}"#),
        item("v1", "Secret", "b", r#","type":"Opaque","data":{"k":"MQ=="}"#),
        item("example.com/v1", "ConfigMap", "c", r#","data":7"#),
        item("v1", "ConfigMap", "d", ""),
    ];
    let sizes = items.each_ref().map(String::len);
    let body = format!(r#"{{"apiVersion":"v1","kind":"List","metadata":{{}},"items":[{}]}}"#, items.join(","));
    let output = decode(&["-o", "table"], body.as_bytes());
    let rows =
        ["a      2      <unknown>", "b             <unknown>", "c             <unknown>", "d      0      <unknown>"];
    let rows = rows.iter().zip(sizes).map(|(row, size)| format!("{row}   {size:>5}\n"));
    let expected = "NAME   DATA   AGE         BYTES\n".to_owned() + &rows.collect::<String>();
    assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*expected, "", Some(0)));
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
        // As kubectl does, the command leaves a text plain that only this parser takes for a number: an infinite one.
        let quoted = |line: &str| match line.rsplit_once(' ') {
            Some((start, value)) if value.contains('e') && value.parse::<f64>().is_ok_and(f64::is_infinite) => {
                format!("{start} \"{value}\"\n")
            }
            _ => format!("{line}\n"),
        };
        let text: String = stdout(&output).lines().map(quoted).collect();
        let yaml: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
        assert!(yaml == json, "{name}");
        assert!(stdout(&output).starts_with("---\napiVersion: ") && !stdout(&output).contains("managedFields:"));
    }
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

/// What kubectl prints of the same list.
#[test]
fn prints_templates_and_custom_columns() {
    let body = br#"{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"9"},"items":[
        {"metadata":{"name":"a","labels":{"x.y/z":"1"}},"spec":{"n":[1,{"b":true}]}},
        {"metadata":{"name":"b"},"spec":{}}]}"#;
    for (format, expected) in [
        ("jsonpath={.items[*].metadata.name}", "a b"),
        ("jsonpath={.items[*].spec.n}", "[1,{\"b\":true}]"),
        ("jsonpath=[{range .items[*]}{.metadata.name}{\",\"}{end}]", "[a,b,]"),
        ("jsonpath={.metadata.name}", "a\nb\n"),
        (
            "custom-columns=NAME:.metadata.name,L:.metadata.labels.x\\.y/z,n:.spec.n[*],N:{.spec.n}",
            "NAME   L        n               N\na      1        1,map[b:true]   [1 map[b:true]]\n\
             b      <none>   <none>          <none>\n",
        ),
    ] {
        let output = decode(&["-o", format], body);
        assert_eq!((stdout(&output), output.status.code()), (expected, Some(0)), "{format}: {}", stderr(&output));
    }
    let directory = tempfile::tempdir().unwrap();
    for (option, text, expected) in [
        ("jsonpath-file", "{.items[*].metadata.name}", "a b"),
        ("custom-columns-file", "A   B\n.metadata.name   .kind\n", "A     B\na     Widget\nb     Widget\n"),
    ] {
        let file = directory.path().join(option);
        std::fs::write(&file, text).unwrap();
        let output = decode(&["-o", &format!("{option}={}", file.to_str().unwrap())], body);
        assert_eq!((stdout(&output), output.status.code()), (expected, Some(0)), "{option}: {}", stderr(&output));
    }
    let empty = br#"{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{},"items":[]}"#;
    assert_eq!(stdout(&decode(&["-o", "jsonpath=<{.items[*].metadata.name}>"], empty)), "<>");
    // A beginning that is the separator of values.
    assert_eq!(stdout(&decode(&["-o", "jsonpath= {.items[*].metadata.name}"], empty)), " ");
    // Not `<none>`: the path is wrong, or the object is.
    for (format, expected) in [
        ("custom-columns=N:.spec.n[5]", "column \"N\": array index out of bounds: index 5, length 2"),
        ("jsonpath={.items[*].metadata[0]}", "an object is not an array"),
    ] {
        let output = decode(&["-o", format], body);
        assert!(stderr(&output).contains(expected), "{format}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(1), "{format}");
    }
    for (format, expected) in [
        ("jsonpath", "expected jsonpath=VALUE"),
        ("jsonpath={.a", "unclosed"),
        ("jsonpath={.items[0].metadata.name}", "the template needs the whole list"),
        ("custom-columns=a", "\"a\" is no column: expected HEADER:PATH"),
        ("custom-columns=A:.b[", "column \"A\": "),
        ("custom-columns-file=/nowhere", "cannot read /nowhere: "),
        ("xml", "expected one of name, table, wide, json, yaml, summary, jsonpath=, custom-columns="),
    ] {
        let output = decode(&["-o", format], body);
        assert!(stderr(&output).contains(expected), "{format}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{format}");
    }
}
