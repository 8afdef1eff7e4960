//! `listwatch get` against a server: what it requests and prints, and how it ends. `e2e` compares it with kubectl.

use listwatch_testserver::{Answer, Body, RecordedRequest};
use serde_json::{Value, json};

use crate::support::api::{Api, status};
use crate::support::{stderr, stdout};

fn json_body(body: &Value) -> Answer {
    Answer::ok(Body::replay(body.to_string())).content_type("application/json")
}

/// A Table of objects with these names and texts.
fn table(rows: &[(&str, &str)], next: &str) -> Answer {
    let row = |(name, text): &(&str, &str)| {
        let metadata = json!({ "name": name, "namespace": "default", "labels": { "app": name } });
        json!({ "cells": [name, text, 7], "object": { "kind": "PartialObjectMetadata", "metadata": metadata } })
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let columns = json!([
        { "name": "Name", "type": "string", "format": "name", "priority": 0 },
        { "name": "Text", "type": "string", "priority": 0 },
        { "name": "Extra", "type": "integer", "priority": 1 }]);
    let rows = if rows.is_empty() { Value::Null } else { rows.into() };
    json_body(&json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "continue": next, "resourceVersion": "7" }, "columnDefinitions": columns, "rows": rows }))
}

/// A list of objects in JSON, or of their metadata. Its kind comes after its items, as after a sort of its fields.
fn list(request: &RecordedRequest, kind: &str, names: &[&str]) -> Answer {
    let items: Vec<_> = names.iter().map(|name| json!({ "metadata": { "name": name, "managedFields": [] } })).collect();
    let is_metadata = accepts(request, "PartialObjectMetadata");
    let (kind, version) = if is_metadata { ("PartialObjectMetadataList", "meta.k8s.io/v1") } else { (kind, "v1") };
    json_body(&json!({ "kind": kind, "apiVersion": version, "metadata": { "resourceVersion": "7" }, "items": items }))
}

fn accepts(request: &RecordedRequest, what: &str) -> bool {
    request.headers.get("accept").is_some_and(|accept| accept.to_str().unwrap().contains(what))
}

fn not_found() -> Answer {
    status(404, "NotFound", "not found")
}

/// A category with Pods, whose Table has one page.
const CATEGORY: &str = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[
    {"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["list"],"categories":["all"]},
    {"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap","verbs":["list"],"categories":["all"]}]}"#;

/// Pods `a` and `bbbbbbbb`, a Service `s`, and no ConfigMaps.
fn cluster() -> Api {
    Api::by(|request: &RecordedRequest, _| {
        let is_table =
            request.headers.get("accept").is_some_and(|accept| accept.to_str().unwrap().contains("as=Table"));
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let resource = path.trim_start_matches("/api/v1/").trim_start_matches("namespaces/default/");
        match (resource, is_table) {
            ("/api", _) => json_body(&json!({ "kind": "APIVersions", "versions": ["v1"] })),
            ("/apis", _) => json_body(&json!({ "kind": "APIGroupList", "groups": [] })),
            ("/api/v1", _) => Answer::ok(Body::replay(CATEGORY)).content_type("application/json"),
            ("pods", true) if query.contains("continue=") => table(&[("bbbbbbbb", "x")], ""),
            ("pods", true) if query.contains("includeObject=Object") => {
                table(&[("bbbbbbbb", "x"), ("a", "a long text")], "")
            }
            ("pods", true) => table(&[("a", "a long text")], "next"),
            ("pods/a", true) => table(&[("a", "a long text")], ""),
            ("services", true) => table(&[("s", "1\n2")], ""),
            ("configmaps" | "secrets", true) => table(&[], ""),
            ("pods", false) => list(request, "PodList", &["a", "bbbbbbbb"]),
            ("services", false) => list(request, "ServiceList", &["s"]),
            ("configmaps", false) => list(request, "ConfigMapList", &[]),
            ("pods/a", false) => json_body(&json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "a" } })),
            _ => not_found(),
        }
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn prints_what_kubectl_prints() {
    let no_pod = "error: API error: 404 NotFound: not found\n";
    let nothing = "No resources found in default namespace.\n";
    let empty_list = "{
    \"apiVersion\": \"v1\",
    \"items\": [],
    \"kind\": \"List\",
    \"metadata\": {
        \"resourceVersion\": \"\"
    }
}
";
    let one = "{
    \"apiVersion\": \"v1\",
    \"kind\": \"Pod\",
    \"metadata\": {
        \"name\": \"a\"
    }
}
";
    let item = |text: &str| text.trim_end().replace('\n', "\n        ");
    let two = empty_list.replace(
        "[]",
        &format!("[\n        {},\n        {}\n    ]", item(one), item(&one.replace("\"a\"", "\"bbbbbbbb\""))),
    );
    let one_of_list = empty_list.replace("[]", &format!("[\n        {}\n    ]", item(one)));
    for (args, expected, errors, code) in [
        ("pods", "NAME       TEXT\na          a long text\nbbbbbbbb   x\n", "", 0),
        ("pods --no-headers", "a          a long text\nbbbbbbbb   x\n", "", 0),
        ("pod/a -o wide", "NAME   TEXT          EXTRA\na      a long text   7\n", "", 0),
        ("pod/a -L app --show-labels", "NAME   TEXT          APP   LABELS\na      a long text   a     app=a\n", "", 0),
        ("pod/a --show-kind", "NAME    TEXT\npod/a   a long text\n", "", 0),
        ("pod/a svc", "", "write TYPE NAME or TYPE/NAME, not both\n", 2),
        (
            "cm,po,svc",
            "NAME           TEXT\npod/a          a long text\npod/bbbbbbbb   x\n\nNAME        TEXT\nservice/s   1...\n",
            "",
            0,
        ),
        ("svc,cm -o name", "service/s\n", "", 0),
        ("pods -o keys", "a\nbbbbbbbb\n", "", 0),
        ("pods -o json", &two, "", 0),
        ("pod/a -o json", one, "", 0),
        ("pods a none -o json", &one_of_list, no_pod, 1),
        ("pods a none -o json --ignore-not-found", &one_of_list, "", 0),
        ("pods none -o json", "", no_pod, 1),
        ("pods none -o json --ignore-not-found", "", "", 0),
        ("cm -o json", empty_list, "", 0),
        ("cm -o json --ignore-not-found", "", "", 0),
        ("cm", "", nothing, 0),
        ("cm,secrets -A", "", "No resources found\n", 0),
        ("cm --ignore-not-found", "", "", 0),
        ("pods a none", "NAME   TEXT\na      a long text\n", no_pod, 1),
        ("pods none", "", no_pod, 1),
        ("pods none --ignore-not-found", "", "", 0),
        ("pod/a -o yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n", "", 0),
        (
            "svc -o yaml",
            "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata:\n    name: s\nkind: List\nmetadata:\n  \
             resourceVersion: \"\"\n",
            "",
            0,
        ),
        ("cm -o yaml", "apiVersion: v1\nitems: []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n", "", 0),
        ("pods -o jsonpath={.items[*].metadata.name}", "a bbbbbbbb", "", 0),
        ("pods -o jsonpath={.items[*]['metadata.name','kind']},{.kind}", "a bbbbbbbb Pod Pod,List", "", 0),
        ("pods -o jsonpath={.items[-1:].metadata.name}", "bbbbbbbb", "", 0),
        ("pods -o jsonpath={.items[2].metadata.name}", "", "out of bounds: index 2, length 2", 1),
        ("pods -o jsonpath={.*}", "", "needs all items at once", 2),
        ("pod/a -o jsonpath={.metadata.name}", "a", "", 0),
        ("pods -o jsonpath-as-json={.items[*].kind}", "[\n    \"Pod\",\n    \"Pod\"\n]\n", "", 0),
        ("pods -o custom-columns=N:.metadata.name,K:.kind", "N          K\na          Pod\nbbbbbbbb   Pod\n", "", 0),
        ("pods -o custom-columns=N:.metadata.name,K:.x --no-headers", "a          <none>\nbbbbbbbb   <none>\n", "", 0),
        ("cm -o custom-columns=N:.metadata.name", "N\n", "", 0),
        ("pods,svc -o name --sort-by .metadata.name", "pod/a\npod/bbbbbbbb\nservice/s\n", "", 0),
        ("svc,pods -o custom-columns=N:.metadata.name --sort-by {.metadata.name}", "N\na\nbbbbbbbb\ns\n", "", 0),
        ("svc,pods -o jsonpath={.items[*].kind} --sort-by .metadata.name", "Pod Pod Service", "", 0),
        ("pods -o name --sort-by .spec.none", "", "no object in the list has the field of --sort-by", 1),
        ("cm -o name --sort-by .spec.none", "", "", 0),
        ("pods --sort-by .metadata.name", "NAME       TEXT\na          a long text\nbbbbbbbb   x\n", "", 0),
        ("pods --sort-by .spec.none", "", "no object in the list has the field of --sort-by", 1),
        ("pod/a --sort-by .spec.none", "NAME   TEXT\na      a long text\n", "", 0),
        ("all", "NAME           TEXT\npod/a          a long text\npod/bbbbbbbb   x\n", "", 0),
        (
            "pods --server-print=false --no-headers=0",
            "NAME       AGE\na          <unknown>\nbbbbbbbb   <unknown>\n",
            "",
            0,
        ),
        ("pods --no-headers=maybe", "", "expected true or false", 2),
        (
            "--raw /api/v1/namespaces/default/pods/a",
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#,
            "",
            0,
        ),
        ("--raw /none", "", "404", 1),
        ("--raw none", "", "expected a path", 2),
        ("pod/a --subresource scale -o json", "", no_pod, 1),
        ("pods --subresource scale", "", "--subresource is for objects with names", 2),
        ("pod/a -o yaml --clean", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n", "", 0),
        ("pods --clean", "", "--clean is for -o json and yaml", 2),
        ("-k .", "", "kubectl kustomize DIR | listwatch get -f -", 2),
        ("pods --template {{.}}", "", "-o jsonpath=", 2),
        ("pods --kuberc x", "", "--kuberc is not supported", 2),
        ("-f https://example.com/x.yaml", "", "curl URL | listwatch get -f -", 1),
        ("pods -o go-template={{.}}", "", "Go templates are not supported: use jsonpath=", 2),
        ("pods -o kyaml", "", "kyaml is not supported: use yaml", 2),
        ("cm -A -A --ignore-not-found --ignore-not-found", "", "", 0),
        ("pods a -l app=x", "", "names cannot be used with a selector", 2),
        ("pods a -A", "", "an object cannot be named in all namespaces", 1),
    ] {
        let output = cluster().run(&[&["get"][..], &args.split(' ').collect::<Vec<_>>()].concat());
        assert_eq!((stdout(&output), output.status.code()), (expected, Some(code)), "{args}: {}", stderr(&output));
        match errors {
            "" => assert_eq!(stderr(&output), "", "{args}"),
            errors => assert!(stderr(&output).contains(errors), "{args}: {}", stderr(&output)),
        }
    }
}

#[test]
fn requests_pages_of_kubectl_and_follows_its_flags() {
    for (args, expected) in [
        ("pods", "/api/v1/namespaces/default/pods?limit=500"),
        ("pods -n web -n shop", "/api/v1/namespaces/shop/pods?limit=500"),
        ("pods -n web -A", "/api/v1/pods?limit=500"),
        ("nodes -n web", "/api/v1/nodes?limit=500"),
        (
            "pods -l a=b --field-selector x=y",
            "/api/v1/namespaces/default/pods?labelSelector=a%3Db&fieldSelector=x%3Dy&limit=500",
        ),
        ("pods p", "/api/v1/namespaces/default/pods/p"),
        ("pods --sort-by .a", "/api/v1/namespaces/default/pods?limit=100&includeObject=Object"),
        ("pods --resource-version 0", "/api/v1/namespaces/default/pods?limit=500&resourceVersion=0"),
        ("deploy d --subresource scale", "/apis/apps/v1/namespaces/default/deployments/d/scale"),
    ] {
        let api = Api::by(|_, _| table(&[], ""));
        api.run(&[&["get"][..], &args.split(' ').collect::<Vec<_>>()].concat());
        assert_eq!(api.paths(), [expected], "{args}");
    }
    let api = cluster();
    api.run(&["get", "po"]);
    assert_eq!(
        api.paths(),
        ["/api/v1/namespaces/default/pods?limit=500", "/api/v1/namespaces/default/pods?limit=500&continue=next"]
    );
}

/// Pods `p0`, `p1` and so on in pages, counted unless selected, and as many Services in one page, whatever was
/// requested.
fn counted(count: usize) -> Api {
    Api::by(move |request: &RecordedRequest, _| {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let number = |key: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(key));
            value.map(|value| value.parse::<usize>().unwrap())
        };
        let start = number("continue=").unwrap_or(0);
        let size = number("limit=").filter(|_| path.ends_with("/pods")).unwrap_or(count);
        let end = (start + size).min(count);
        let names: Vec<_> = (start..end).map(|at| format!("p{at}")).collect();
        let mut metadata = json!({ "resourceVersion": "7" });
        if end < count {
            metadata["continue"] = end.to_string().into();
            if !query.contains("Selector") {
                metadata["remainingItemCount"] = (count - end).into();
            }
        }
        let object = |name: &String| json!({ "metadata": { "name": name, "namespace": "default" } });
        if accepts(request, "as=Table") {
            let text = |name: &str| "x".repeat(if name == format!("p{}", count - 1) { 9 } else { 1 });
            let rows: Vec<_> =
                names.iter().map(|name| json!({ "cells": [name, text(name), 1], "object": object(name) })).collect();
            let columns = json!([{ "name": "Name", "type": "string", "format": "name" },
                { "name": "Text", "type": "string" }, { "name": "N", "type": "integer" }]);
            return json_body(&json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "columnDefinitions": columns, "rows": rows }));
        }
        let items: Vec<_> = names.iter().map(object).collect();
        let kind = if path.ends_with("/pods") { "PodList" } else { "ServiceList" };
        let is_metadata = accepts(request, "PartialObjectMetadata");
        let (kind, version) = if is_metadata { ("PartialObjectMetadataList", "meta.k8s.io/v1") } else { (kind, "v1") };
        json_body(&json!({ "kind": kind, "apiVersion": version, "metadata": metadata, "items": items }))
    })
}

/// Each case has the number of requests, the objects that are printed, and stderr.
#[test]
fn a_limit_says_what_it_leaves_out() {
    for (args, requests, printed, expected) in [
        ("pods --limit 2", 1, 2, "2 of 5 shown\n"),
        ("pods --limit 2 -o wide", 1, 2, "2 of 5 shown\n"),
        ("pods --limit 2 -o name", 1, 2, "2 of 5 shown\n"),
        ("pods --limit 2 -o keys", 1, 2, "2 of 5 shown\n"),
        ("pods --limit 2 -o jsonl", 1, 2, "2 of 5 shown\n"),
        ("pods --limit 3 --limit 2", 1, 2, "2 of 5 shown\n"),
        ("pods --limit 3 --chunk-size 2", 2, 3, "3 of 5 shown\n"),
        ("pods --limit 3 --chunk-size 2 -o name", 2, 3, "3 of 5 shown\n"),
        ("pods --limit 2 -l a=b", 1, 2, "2 shown, and there may be more\n"),
        ("pods --limit 2 -l a=b -o name", 1, 2, "2 shown, and there may be more\n"),
        ("pods --limit 2 --field-selector a=b", 1, 2, "2 shown, and there may be more\n"),
        ("pods --limit 5", 1, 5, ""),
        ("pods --limit 5 -o name", 1, 5, ""),
        ("pods --limit 5 --chunk-size 2 -o name", 3, 5, ""),
        ("pods --limit 9", 1, 5, ""),
        ("pods --limit 9 -l a=b -o name", 1, 5, ""),
        ("services --limit 2", 1, 2, "2 of 5 shown\n"),
        ("services --limit 2 -o name", 1, 2, "2 of 5 shown\n"),
        ("services --limit 2 -o name -l a=b", 1, 2, "2 of 5 shown\n"),
    ] {
        let api = counted(5);
        let output = api.run(&[&["get"][..], &args.split(' ').collect::<Vec<_>>()].concat());
        assert_eq!((stderr(&output), output.status.code()), (expected, Some(0)), "{args}");
        let names: Vec<_> =
            (0..5).map(|at| format!("p{at}")).filter(|name| stdout(&output).contains(&**name)).collect();
        assert_eq!((api.paths().len(), names.len()), (requests, printed), "{args}: {}", stdout(&output));
    }
    for args in ["pods,svc --limit 2", "pod/a --limit 2", "pods a b --limit 2"] {
        let api = counted(5);
        let output = api.run(&[&["get"][..], &args.split(' ').collect::<Vec<_>>()].concat());
        assert!(stderr(&output).contains("--limit is for the objects of one resource, without names"), "{args}");
        assert_eq!((api.paths().len(), output.status.code()), (0, Some(2)), "{args}");
    }
}

/// The token continues after the objects that are printed. Without one, the count shows that objects are missing.
#[test]
fn a_list_with_a_limit_does_not_look_complete() {
    for (args, names, expected) in [
        ("pods --limit 2", 2, json!({ "continue": "2", "remainingItemCount": 3, "resourceVersion": "" })),
        (
            "pods --limit 3 --chunk-size 2",
            3,
            json!({ "continue": "3", "remainingItemCount": 2, "resourceVersion": "" }),
        ),
        ("pods --limit 2 -l a=b", 2, json!({ "continue": "2", "resourceVersion": "" })),
        ("pods --limit 5", 5, json!({ "resourceVersion": "" })),
        ("pods --limit 9", 5, json!({ "resourceVersion": "" })),
        ("pods --chunk-size 2", 5, json!({ "resourceVersion": "" })),
        ("services --limit 2", 2, json!({ "remainingItemCount": 3, "resourceVersion": "" })),
    ] {
        let output = counted(5).run(&[&["get", "-o", "json"][..], &args.split(' ').collect::<Vec<_>>()].concat());
        let list: Value = serde_json::from_str(stdout(&output)).unwrap();
        assert_eq!((&list["metadata"], list["items"].as_array().unwrap().len()), (&expected, names), "{args}");
    }
    let output = counted(5).run(&["get", "pods", "-o", "json", "--limit", "1"]);
    let end = "\n    ],
    \"kind\": \"List\",
    \"metadata\": {
        \"continue\": \"1\",
        \"remainingItemCount\": 4,
        \"resourceVersion\": \"\"
    }
}
";
    assert!(stdout(&output).ends_with(end), "{}", stdout(&output));
}

/// Only the last row has a long text, which widens the columns of its page. kubectl aligns 100 lines at a time.
#[test]
fn columns_follow_the_chunk_size() {
    let names = (0..101).map(|at| format!("pod/p{at}\n")).collect::<Vec<_>>().concat();
    for (args, header, queries) in [
        ("pods", "NAME   TEXT        N\n", &["?limit=500"][..]),
        ("pods --chunk-size 0", "NAME   TEXT        N\n", &[""]),
        ("pods --chunk-size 9 --chunk-size 100", "NAME   TEXT   N\n", &["?limit=100", "?limit=100&continue=100"]),
        ("pods --limit 100", "NAME   TEXT   N\n", &["?limit=100"]),
        ("pods --chunk-size 100 -o name", "pod/p0\n", &["?limit=100", "?limit=100&continue=100"]),
        ("pods --chunk-size 0 -o name", "pod/p0\n", &[""]),
    ] {
        let api = counted(101);
        let output = api.run(&[&["get"][..], &args.split(' ').collect::<Vec<_>>()].concat());
        assert!(stdout(&output).starts_with(header), "{args}: {} {}", stdout(&output), stderr(&output));
        assert!(!args.contains("-o name") || stdout(&output) == names, "{args}: {}", stdout(&output));
        let path = |query: &&str| format!("/api/v1/namespaces/default/pods{query}");
        let sent: Vec<_> = api.paths().iter().map(|path| path.trim_end_matches('?').to_owned()).collect();
        assert_eq!(sent, queries.iter().map(path).collect::<Vec<_>>(), "{args}");
    }
}

/// What was printed is never valid JSON.
#[test]
fn a_failed_list_leaves_json_unterminated() {
    let api = Api::by(|request: &RecordedRequest, _| {
        let is_pods = request.path.contains("/pods");
        if is_pods { list(request, "PodList", &["a"]) } else { status(403, "Forbidden", "no") }
    });
    let output = api.run(&["get", "pods,secrets", "-o", "json"]);
    assert!(stdout(&output).contains("\"name\": \"a\""), "{} {}", stdout(&output), stderr(&output));
    assert!(serde_json::from_str::<Value>(stdout(&output)).is_err(), "{}", stdout(&output));
    assert_eq!((stderr(&output), output.status.code()), ("error: API error: 403 Forbidden: no\n", Some(1)));
}

/// A server without Tables sends objects, which are printed as kubectl prints them.
#[test]
fn a_server_without_tables_gets_names_and_ages() {
    let api = Api::by(|request: &RecordedRequest, _| match &*request.path {
        path if path.contains("/pods/") => json_body(&json!({ "kind": "Pod", "metadata": { "name": "a" } })),
        path if path.contains("/services") => list(request, "ServiceList", &["s"]),
        _ => list(request, "PodList", &["a", "bbbbbbbb"]),
    });
    for (args, expected) in [
        ("pods", "NAME       AGE\na          <unknown>\nbbbbbbbb   <unknown>\n"),
        ("pod/a -L app", "NAME   AGE         APP\na      <unknown>   \n"),
        (
            "svc,pods -A",
            "NAMESPACE   NAME        AGE\n            service/s   <unknown>\n\nNAMESPACE   NAME           AGE\n            pod/a          <unknown>\n            pod/bbbbbbbb   <unknown>\n",
        ),
    ] {
        let output = api.run(&[&["get"][..], &args.split(' ').collect::<Vec<_>>()].concat());
        assert_eq!((stdout(&output), stderr(&output), output.status.code()), (expected, "", Some(0)), "{args}");
    }
}

/// The watch begins at the version of the list, and prints rows as wide as before.
#[test]
fn a_watch_prints_changes_until_it_ends() {
    let event = |kind: &str, name: &str, version: u32| {
        let metadata = json!({ "name": name, "namespace": "web", "labels": { "app": "x" }, "resourceVersion": version.to_string() });
        (kind.to_owned(), metadata)
    };
    let events = [event("MODIFIED", "a", 8), event("ADDED", "much-longer", 9), event("DELETED", "a", 10)];
    let frames = |form: &str| {
        let object = |metadata: &Value| match form {
            "Table" => json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1",
                "metadata": { "resourceVersion": metadata["resourceVersion"] },
                "rows": [{ "cells": [metadata["name"], "y", 7], "object": { "metadata": metadata } }] }),
            "ConfigMap" => json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata }),
            _ => json!({ "kind": form, "apiVersion": "meta.k8s.io/v1", "metadata": metadata }),
        };
        let frame =
            |(kind, metadata): &(String, Value)| json!({ "type": kind, "object": object(metadata) }).to_string() + "\n";
        events.iter().map(frame).collect::<String>()
    };
    let expired = crate::support::api::expired();
    for (args, expected) in [
        ("-w", "NAME   TEXT\na      x\na      y\nmuch-longer   y\na             y\n"),
        ("--watch-only", "NAME   TEXT\na      y\nmuch-longer   y\na             y\n"),
        (
            "-w --output-watch-events --no-headers",
            "ADDED      a     x\nMODIFIED   a     y\nADDED      much-longer   y\nDELETED    a             y\n",
        ),
        ("-w -o name", "configmap/a\nconfigmap/a\nconfigmap/much-longer\nconfigmap/a\n"),
        ("--watch-only -o jsonpath={.metadata.name}; --sort-by .metadata.name", "a;much-longer;a;"),
        (
            "-w -o jsonpath={.type}-{.object.metadata.name}; --output-watch-events",
            "ADDED-a;MODIFIED-a;ADDED-much-longer;DELETED-a;",
        ),
        ("-w -o custom-columns=N:.metadata.name", "N\na\na\nmuch-longer\na\n"),
    ] {
        let all = ["Table", "PartialObjectMetadata", "ConfigMap"].map(|form| (form, frames(form)));
        let expired = expired.clone();
        let api = Api::by(move |request: &RecordedRequest, _| {
            let is_table = accepts(request, "as=Table");
            match &*request.path {
                path if path.contains("resourceVersion=7") => {
                    let (_, frames) = all.iter().find(|(form, _)| accepts(request, form)).unwrap_or(&all[2]);
                    Answer::ok(Body::replay([&**frames, &*expired].concat())).content_type("application/json")
                }
                path if path.contains("watch=") => status(410, "Expired", "too old"),
                _ if is_table => table(&[("a", "x")], ""),
                _ => list(request, "ConfigMapList", &["a"]),
            }
        });
        let output = api.run(&[&["get", "cm"][..], &args.split(' ').collect::<Vec<_>>()].concat());
        assert_eq!(
            (stdout(&output), output.status.code()),
            (expected, Some(1)),
            "{args}: {} {:?}",
            stderr(&output),
            api.paths()
        );
        assert!(stderr(&output).contains("410"), "{args}: {}", stderr(&output));
    }
}

/// The tables that arrived are printed, as by kubectl, and the error is reported.
#[test]
fn a_failed_table_is_an_error_after_the_others() {
    let api = Api::by(|request: &RecordedRequest, _| match &*request.path {
        path if path.contains("/pods") && path.contains("continue=") => status(410, "Expired", "too old"),
        path if path.contains("/pods") => table(&[("a", "x")], "next"),
        path if path.contains("/services") => json_body(&json!({ "kind": "Status", "status": "Success" })),
        _ => table(&[("c", "x")], ""),
    });
    let output = api.run(&["get", "pods,svc,cm"]);
    assert_eq!(stdout(&output), "NAME    TEXT\npod/a   x\n\nNAME          TEXT\nconfigmap/c   x\n");
    let error = stderr(&output);
    assert!(error.contains("too old") && error.contains("\"Status\" in place of a Table"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}
