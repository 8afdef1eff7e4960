//! `listwatch count` against a server: what it requests, counts and sums, and how it ends. `e2e` compares it with
//! kubectl.

use listwatch_testserver::{Answer, Body, RecordedRequest};
use serde_json::{Value, json};

use crate::support::api::{Api, ok, status};
use crate::support::{stderr, stdout};

const MEMORY: &str = ".spec.containers[*].resources.requests.memory";

fn json_body(body: &Value) -> Answer {
    Answer::ok(Body::replay(body.to_string())).content_type("application/json")
}

fn accept(request: &RecordedRequest) -> String {
    request.headers.get("accept").map(|accept| accept.to_str().unwrap().to_owned()).unwrap_or_default()
}

/// A Pod on a node, with the memory of each of its containers.
fn pod(name: &str, node: Option<&str>, memory: &[Value]) -> Value {
    let containers: Vec<_> =
        memory.iter().map(|memory| json!({"resources": {"requests": {"memory": memory}}})).collect();
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "web", "labels": {"app.kubernetes.io/name": "a,\"b\""}},
        "spec": {"nodeName": node, "containers": containers}, "status": {"phase": "Running"},
    })
}

fn pods(request: &RecordedRequest) -> Answer {
    let items = [
        pod("a", Some("n1"), &[json!("1Gi"), json!("512Mi")]),
        pod("b", Some("n2"), &[json!("1.5Gi")]),
        pod("c", Some("n1"), &[json!("256Mi"), json!(null)]),
        pod("d", None, &[]),
    ];
    let is_metadata = accept(request).contains("PartialObjectMetadata");
    let (kind, version) = if is_metadata { ("PartialObjectMetadataList", "meta.k8s.io/v1") } else { ("PodList", "v1") };
    json_body(&json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "7"}, "items": items}))
}

#[test]
fn prints_groups_in_each_format() {
    let api = Api::by(|request, _| pods(request));
    let by_node = ["count", "pods", "-A", "--by", ".spec.nodeName"];
    let table = "NODENAME   COUNT\nn1             2\n<none>         1\nn2             1\n";
    let sums =
        "NODENAME   COUNT   MEMORY\nn1             2   1792Mi\nn2             1   1536Mi\n<none>         1        0\n";
    let csv = ".spec.nodeName,.metadata.labels.app\\.kubernetes\\.io/name,count\nn1,\"a,\"\"b\"\"\",2\n<none>,\"a,\"\"b\"\"\",1\n\
               n2,\"a,\"\"b\"\"\",1\n";
    let json = "[\n{\".spec.nodeName\":\"n1\",\"count\":2,\"sum(.spec.x)\":0},\n{\".spec.nodeName\":null,\"count\":1,\
                \"sum(.spec.x)\":0},\n{\".spec.nodeName\":\"n2\",\"count\":1,\"sum(.spec.x)\":0}\n]\n";
    for (options, expected) in [
        (&[][..], table),
        (&["--no-headers"], table.split_once('\n').unwrap().1),
        (&["--sum", MEMORY], sums),
        (&["-o", "csv", "--by", r".metadata.labels.app\.kubernetes\.io/name"], csv),
        (&["-o", "json", "--sum", ".spec.x"], json),
    ] {
        let output = api.run(&[&by_node[..], options].concat());
        // Columns without headers are narrower.
        let squeeze = |text: &str| {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        if options == ["--no-headers"] {
            assert_eq!(squeeze(stdout(&output)), squeeze(expected));
        } else {
            assert_eq!(stdout(&output), expected, "{options:?}");
        }
        assert_eq!((stderr(&output), output.status.code()), ("", Some(0)), "{options:?}");
    }
    for (options, expected, notice) in [
        (
            &["--by", ".spec.nodeName", "--top", "1"][..],
            "NODENAME   COUNT\nn1             2\n",
            "1 of 3 groups shown\n",
        ),
        (&["--by", ".spec.nodeName", "--top", "3", "-o", "csv"], ".spec.nodeName,count\nn1,2\n<none>,1\nn2,1\n", ""),
        (&["--sum", MEMORY], "COUNT   MEMORY\n    4     3328Mi\n", ""),
        (
            &["--sum", MEMORY, "-o", "json"],
            "[\n{\"count\":4,\"sum(.spec.containers[*].resources.requests.memory)\":\"3328Mi\"}\n]\n",
            "",
        ),
        (
            &["--by", ".spec.containers[*].resources.requests.memory"],
            "MEMORY        COUNT\n<none>            1\n1.5Gi             1\n1Gi,512Mi         1\n256Mi,<nil>       1\n",
            "",
        ),
    ] {
        let output = api.run(&[&["count", "pods", "-A"], options].concat());
        let lines = |text: &str| {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(lines(stdout(&output)), lines(expected), "{options:?}");
        assert_eq!((stderr(&output), output.status.code()), (notice, Some(0)), "{options:?}");
    }
}

#[test]
fn prints_the_number_that_the_server_counts() {
    let page = |count: u64, remaining: Value| {
        let items: Vec<_> = (0..count).map(|at| json!({"metadata": {"name": at.to_string()}})).collect();
        let token = if remaining.is_null() { "" } else { "next" };
        json_body(&json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": items,
            "metadata": {"resourceVersion": "7", "continue": token, "remainingItemCount": remaining}}))
    };
    let api = Api::by(move |_, _| page(1, json!(1_999_999)));
    for (options, expected) in [
        (&["pods", "-A"][..], "2000000\n"),
        (&["pods", "-n", "a,b,a"], "4000000\n"),
        (&["nodes", "-o", "csv"], "count\n2000000\n"),
        (&["pods", "-o", "json"], "[\n{\"count\":2000000}\n]\n"),
    ] {
        let output = api.run(&[&["count"], options].concat());
        assert_eq!((stdout(&output), stderr(&output), output.status.code()), (expected, "", Some(0)), "{options:?}");
    }
    let paths: Vec<_> = api.paths().into_iter().map(|path| path.split('?').next().unwrap().to_owned()).collect();
    let expected = [
        "/api/v1/pods",
        "/api/v1/namespaces/a/pods",
        "/api/v1/namespaces/b/pods",
        "/api/v1/nodes",
        "/api/v1/namespaces/default/pods",
    ];
    assert_eq!(paths, expected);
    assert!(
        api.server
            .requests()
            .iter()
            .all(|request| request.path.contains("limit=1") && accept(request).contains("PartialObjectMetadata"))
    );
    let api = Api::by(move |_, _| page(3, Value::Null));
    assert_eq!(stdout(&api.run(&["count", "pods", "-A", "-l", "app=web"])), "3\n");
    let output = Api::by(|_, _| status(403, "Forbidden", "no access")).run(&["count", "pods", "-A"]);
    assert_eq!((stdout(&output), stderr(&output)), ("", "error: API error: 403 Forbidden: no access\n"));
}

#[test]
fn requests_no_more_than_the_paths_need() {
    for (options, wanted) in [
        (&["--by", ".metadata.namespace"][..], "PartialObjectMetadataList"),
        (&["--by", ".status.phase", "--sum", MEMORY], "application/vnd.kubernetes.protobuf"),
        (
            &["--by", r".metadata.labels.a\.b", "--by", ".status.conditions[?(@.type==\"Ready\")].status"],
            "application/vnd.kubernetes.protobuf",
        ),
        (&["--by", ".spec.fieldOfANewerRelease"], "application/json"),
        (&["--by", ".spec"], "application/json"),
        (&["--by", "..name"], "application/json"),
    ] {
        let api = Api::by(|request, _| pods(request));
        let output = api.run(
            &[
                &["count", "pods", "-A", "--chunk-size", "500", "-l", "a=b", "--field-selector", "spec.nodeName!=x"],
                options,
            ]
            .concat(),
        );
        assert_eq!((stderr(&output), output.status.code()), ("", Some(0)), "{options:?}");
        let requests = api.server.requests();
        let path = &requests[0].path;
        assert!(path.starts_with("/api/v1/pods?") && path.contains("limit=500"), "{path}");
        assert!(path.contains("labelSelector=a") && path.contains("fieldSelector=spec.nodeName"), "{path}");
        let first = accept(&requests[0]).split(',').next().unwrap().to_owned();
        assert!(first.contains(wanted), "{options:?}: {first}");
    }
}

#[test]
fn counts_the_same_in_protobuf_and_json() {
    let protobuf = Api::by(|_, _| ok("pods.pb"));
    let lines = protobuf.run(&["get", "pods", "-A", "-o", "jsonl"]);
    let items: Vec<Value> = stdout(&lines).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let body = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items});
    let json = Api::by(move |_, _| json_body(&body));
    for options in [
        &["--by", ".status.phase", "--sum", MEMORY][..],
        &["--by", ".metadata.namespace", "--sum", ".status.containerStatuses[*].restartCount"],
        &["--by", ".spec.containers[*].image", "--by", ".kind", "-o", "csv"],
        &["--by", ".metadata.labels", "--by", ".kind", "-o", "json"],
    ] {
        let args = [&["count", "pods", "-A"], options].concat();
        let (of_protobuf, of_json) = (protobuf.run(&args), json.run(&args));
        assert_eq!(stdout(&of_protobuf), stdout(&of_json), "{options:?}");
        assert!(of_protobuf.status.success() && stdout(&of_protobuf).lines().count() > 1, "{options:?}");
    }
    let phases = protobuf.run(&["count", "pods", "-A", "--by", ".status.phase", "-o", "json"]);
    let groups: Vec<Value> = serde_json::from_str(stdout(&phases)).unwrap();
    assert_eq!(groups.iter().map(|group| group["count"].as_u64().unwrap()).sum::<u64>(), 120);
}

#[test]
fn prints_nothing_but_an_error() {
    let api = Api::by(|request, _| pods(request));
    for (options, code, expected) in [
        (
            &["--sum", ".metadata.name"][..],
            1,
            "error: --sum .metadata.name: \"a\" is not a number or a quantity that can be summed exactly, in web/a\n",
        ),
        (
            &["--sum", ".spec.containers"],
            1,
            "error: --sum .spec.containers: a list cannot be summed: add [*] for its elements, in web/a\n",
        ),
        (&["--by", ".spec.nodeName[0]"], 1, "error: --by .spec.nodeName[0]: a string is not an array, in web/a\n"),
        (
            &["--by", ".metadata.name", "--max-memory", "300B"],
            1,
            "error: more than 2 groups take more than 300 B of memory: group by paths with fewer values, or raise --max-memory\n",
        ),
        (&["--by", ".a", "--by", "a"], 2, "error: --by .a is given twice\n"),
    ] {
        let output = api.run(&[&["count", "pods", "-A"], options].concat());
        assert_eq!((stdout(&output), stderr(&output), output.status.code()), ("", expected, Some(code)), "{options:?}");
    }
    for (options, expected) in [
        (&["--top", "3"][..], "--by <PATH>"),
        (&["--by", ".a[x]"], "invalid array index x at byte 3"),
        (&["-o", "yaml"], "possible values: table, csv, json"),
    ] {
        let output = api.run(&[&["count", "pods", "-A"], options].concat());
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert_eq!((stdout(&output), output.status.code()), ("", Some(2)), "{options:?}");
    }
    let list = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"a"}},{"meta"#;
    let truncated = Api::by(|_, _| Answer::ok(Body::replay(list.to_owned())).content_type("application/json"));
    let output = truncated.run(&["count", "pods", "-A", "--by", ".kind"]);
    assert_eq!((stdout(&output), output.status.code()), ("", Some(1)));
    assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
}
