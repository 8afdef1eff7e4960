//! `listwatch cache` against a server: what it stores, prints and serves, and how it ends.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr};

use listwatch_testserver::{Answer, Body, leak};
use serde_json::{Value, json};

use crate::support::api::{Api, config_map, event, expired, initial_end, ok, status};
use crate::support::protobuf::{config_map_list, later_config_map};
use crate::support::{FIXTURES, listwatch, stderr, stdout};

/// The running command. Dropping it kills the process.
struct Running {
    child: Child,
    /// The lines on stderr before `serving:`.
    loaded: Vec<String>,
    lines: Lines<BufReader<ChildStderr>>,
    address: SocketAddr,
}

struct Response {
    code: u16,
    /// In lower case.
    head: String,
    body: String,
}

impl Running {
    fn start(api: &Api, args: &[&str]) -> Self {
        let args = [&["cache"], args, &["--listen", "127.0.0.1:0"]].concat();
        let mut child = api.command(&args).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut loaded = Vec::new();
        let address = loop {
            let line = lines.next().unwrap().unwrap();
            match line.strip_prefix("serving: http://") {
                Some(address) => break address.parse().unwrap(),
                None => loaded.push(line),
            }
        };
        Self { child, loaded, lines, address }
    }

    fn next_line(&mut self) -> String {
        let line = self.lines.next().unwrap().unwrap();
        assert_eq!(leak(line.as_bytes()), None);
        line
    }

    /// Sends a request in HTTP/1.0, which has no chunks.
    fn request(&self, method: &str, path: &str, host: &str) -> Response {
        let mut connection = TcpStream::connect(self.address).unwrap();
        write!(connection, "{method} {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").expect(&response);
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { code, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn get(&self, path: &str) -> Response {
        self.request("GET", path, &self.address.to_string())
    }

    /// Returns the JSON of a 200 response.
    fn json(&self, path: &str) -> Value {
        let Response { code, head, body } = self.get(path);
        assert!(code == 200 && head.contains("content-type: application/json"), "{path}: {head}\n{body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    /// Sends a signal, and returns the exit code and the rest of stderr.
    fn end(&mut self, signal: &str) -> (Option<i32>, Vec<String>) {
        crate::support::signal(&self.child, signal);
        let rest = self.lines.by_ref().map(Result::unwrap).collect();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Sends this body, and then stalls.
fn stalled(body: impl Into<Vec<u8>>) -> Answer {
    let body = body.into();
    let length = body.len() as u64;
    Answer::ok(Body::replay(body).stall_at(length))
}

fn document(text: &str) -> Answer {
    Answer::ok(Body::replay(text.to_owned())).content_type("application/json")
}

fn sorted(array: &Value) -> Vec<String> {
    let mut texts: Vec<_> = array.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect();
    texts.sort();
    texts
}

/// A server with 120 Pods, in protobuf.
fn pods() -> Api {
    Api::new([ok("pods.pb"), stalled("")])
}

const PODS: [&str; 4] = ["pods", "-A", "--strategy", "list-then-watch"];

/// The command serves the same objects as `decode` prints.
#[test]
fn serves_keys_objects_and_indexes() {
    let decoded =
        listwatch(&["decode", "-o", "json", "--show-managed-fields", &format!("{FIXTURES}pods.pb")]).output().unwrap();
    let pods: Vec<Value> = stdout(&decoded).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys = |which: &dyn Fn(&Value) -> bool| {
        let mut keys: Vec<_> = pods.iter().filter(|pod| which(pod)).map(key).collect();
        keys.sort();
        keys
    };
    let first = &pods[0];
    let text = |pointer| first.pointer(pointer).unwrap().as_str().unwrap();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let in_namespace = keys(&|pod| pod["metadata"]["namespace"] == namespace);
    let node = text("/spec/nodeName");
    let on_node = keys(&|pod| pod["spec"]["nodeName"] == node);
    let image = text("/spec/containers/0/image");
    let has_image = |container: &Value| container["image"] == image;
    let with_image = keys(&|pod| pod["spec"]["containers"].as_array().unwrap().iter().any(has_image));
    let app = text("/metadata/labels/app.kubernetes.io~1name");
    let of_app = keys(&|pod| pod["metadata"]["labels"]["app.kubernetes.io/name"] == app);
    assert!(image.contains('/') && in_namespace.len() < 120 && with_image.len() < 120 && of_app.len() < 120);

    let api = self::pods();
    let indexes = [
        ["--index", "node=spec.nodeName"],
        ["--index", "image=spec.containers.image"],
        ["--index", "app=metadata.labels[\"app.kubernetes.io/name\"]"],
        ["--index", "created=metadata.creationTimestamp"],
        ["--index", "cpu=spec.containers.resources.requests[\"cpu\"]"],
        ["--index", "ready=status.containerStatuses.ready"],
    ]
    .concat();
    let mut running = Running::start(&api, &[&PODS[..], &indexes].concat());
    let synced = running.next_line();
    assert!(synced.starts_with("synced: 120 objects at version "), "{synced}");

    assert_eq!(running.json("/healthz")["objects"], 120);
    for (path, expected) in [
        ("/keys", &keys(&|_| true)),
        (&format!("/keys?namespace={namespace}"), &in_namespace),
        ("/keys?namespace=missing", &vec![]),
        (&format!("/indexes/node/{node}"), &on_node),
        (&format!("/indexes/image/{image}"), &with_image),
        (&format!("/indexes/image/{}", image.replace('/', "%2F")), &with_image),
        (&format!("/indexes/app/{app}"), &of_app),
        ("/indexes/node/missing", &vec![]),
    ] {
        assert_eq!(sorted(&running.json(path)), *expected, "{path}");
        let objects = path.replace("/keys", "/objects") + if path.contains("/indexes") { "?objects" } else { "" };
        let found = running.json(&objects);
        assert_eq!(sorted(&found.as_array().unwrap().iter().map(key).collect()), *expected, "{objects}");
    }
    let escaped = name.replacen('-', "%2D", 1);
    assert_eq!(running.json(&format!("/objects/{namespace}/{escaped}")), *first);
    assert_eq!(running.json("/indexes")[0], json!({"name": "node", "path": "spec.nodeName", "errors": 0}));
    for (index, value, expected) in [
        ("node", node, on_node.len()),
        ("created", text("/metadata/creationTimestamp"), 1),
        ("cpu", text("/spec/containers/0/resources/requests/cpu"), 1),
        ("ready", "true", 1),
    ] {
        let count = running.json(&format!("/indexes/{index}"))[value].as_u64().unwrap_or_default();
        assert!(count >= expected as u64, "{index} has {value} {count} times");
    }
}

fn key(pod: &Value) -> String {
    let [namespace, name] = ["namespace", "name"].map(|field| pod["metadata"][field].as_str().unwrap());
    format!("{namespace}/{name}")
}

#[test]
fn refuses_other_paths_methods_and_hosts() {
    let api = pods();
    let mut running = Running::start(&api, &PODS);
    running.next_line();
    for (method, path, host, code, expected) in [
        ("GET", "/", "localhost", 404, "the paths are /healthz, "),
        ("GET", "/objects/web/missing", "localhost:1", 404, "not found: web/missing"),
        ("GET", "/objects/missing", "[::1]:80", 404, "not found: missing"),
        ("GET", "/objects/a/b/c", "127.0.0.2", 404, "the paths are /keys, "),
        ("GET", "/indexes/none", "LOCALHOST", 404, "not found: index none"),
        ("GET", "/keys/%ff", "localhost", 400, "not UTF-8"),
        ("POST", "/keys", "localhost", 405, "only GET and HEAD"),
        ("DELETE", "/objects/a/b", "localhost", 405, "only GET and HEAD"),
        ("GET", "/keys", "listwatch.example.com", 403, "not loopback"),
        ("GET", "/metrics", "localhost.example.com:8002", 403, "not loopback"),
        ("GET", "/healthz", "10.0.0.1", 403, "not loopback"),
        ("GET", "/keys", "", 403, "not loopback"),
    ] {
        let Response { code: found, head, body } = running.request(method, path, host);
        let error: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(found, code, "{method} {path} of {host}");
        assert!(error["error"].as_str().unwrap().contains(expected), "{method} {path} of {host}: {body}");
        assert_eq!(head.contains("allow: get, head"), code == 405);
    }
    for path in ["/healthz", "/metrics", "/keys", "/objects"] {
        let head = running.request("HEAD", path, "localhost");
        assert_eq!((head.code, &*head.body), (200, ""), "{path}");
    }
}

#[test]
fn exports_metrics() {
    for format in ["encoded", "compressed"] {
        let api = pods();
        let args = [&PODS[..], &["--format", format, "--index", "node=spec.nodeName"]].concat();
        let mut running = Running::start(&api, &args);
        running.next_line();
        let metrics = metrics(&running);
        for (name, labels, expected) in [
            ("listwatch_cache_objects", "", 120..=120),
            ("listwatch_cache_synced", "", 1..=1),
            ("listwatch_cache_events_total", "", 120..=120),
            ("listwatch_cache_errors_total", "", 0..=0),
            ("listwatch_cache_syncs_total", "", 1..=1),
            ("listwatch_cache_relists_total", "", 0..=0),
            ("listwatch_cache_lag_seconds", "", 0..=600),
            ("listwatch_cache_bytes", &format!(",part=\"{format}\""), 10_000..=10_000_000),
            ("listwatch_cache_bytes", ",part=\"indexes\"", 1000..=1_000_000),
            ("listwatch_cache_index_errors", ",index=\"node\"", 0..=0),
        ] {
            let name = format!("{name}{{resource=\"pods\"{labels}}}");
            let found =
                metrics.iter().find(|(found, _)| *found == name).unwrap_or_else(|| panic!("no {name}: {metrics:?}"));
            #[expect(clippy::cast_possible_truncation)]
            let value = found.1 as i64;
            assert!(expected.contains(&value), "{name} is {value}");
        }
    }
}

/// Returns the names with labels, and the values. As in `OpenMetrics`, the help and type of a family must precede its values.
fn metrics(running: &Running) -> Vec<(String, f64)> {
    let Response { code, head, body } = running.get("/metrics");
    assert_eq!(code, 200);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    let (mut family, mut values) = (("", ""), Vec::new());
    let lines = body.strip_suffix("# EOF\n").unwrap().lines();
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap();
        if word != "#" {
            let suffix = if family.1 == "counter" { "_total" } else { "" };
            assert_eq!(word.split('{').next(), Some(&*format!("{}{suffix}", family.0)), "{line}");
            values.push((word.to_owned(), rest.parse().unwrap()));
        } else if let Some(text) = rest.strip_prefix("TYPE ") {
            assert!(text.starts_with(family.0), "{line}");
            family = text.split_once(' ').unwrap();
            assert!(["counter", "gauge"].contains(&family.1), "{line}");
        } else {
            family = (rest.strip_prefix("HELP ").unwrap().split(' ').next().unwrap(), "");
        }
    }
    values
}

#[test]
fn serves_nothing_before_the_first_sync() {
    let api = Api::new([stalled(event("ADDED", "a", 8, ""))]);
    let mut running = Running::start(&api, &["cm", "-n", "web"]);
    for path in ["/healthz", "/keys", "/objects/web/a", "/indexes"] {
        let Response { code, body, .. } = running.get(path);
        assert_eq!((code, &*body), (503, "{\"error\":\"the collection is not complete yet\"}\n"), "{path}");
    }
    let metrics = metrics(&running);
    assert!(metrics.contains(&("listwatch_cache_synced{resource=\"configmaps\"}".to_owned(), 0.0)));
    assert!(!metrics.iter().any(|(name, _)| name.contains("lag")));
    let (code, rest) = running.end("-INT");
    assert_eq!((code, rest.len()), (Some(0), 1), "{rest:?}");
    assert!(rest[0].contains(" objects not synced yet (watch list), ") && rest[0].ends_with("0 relists, 0 errors"));
}

/// Syncs and errors are printed too.
#[test]
fn prints_totals_and_exits_with_0_on_signals() {
    for signal in ["-INT", "-TERM"] {
        let changes = [event("ADDED", "a", 8, ""), initial_end(8)].concat();
        let again = [event("ADDED", "a", 8, ""), event("ADDED", "b", 20, ""), initial_end(21)].concat();
        let api = Api::new([Answer::ok(Body::replay(changes + &expired())), stalled(again)]);
        let mut running = Running::start(&api, &["cm", "-n", "web"]);
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.starts_with("synced: 2")) {
            lines.push(running.next_line());
        }
        assert!(lines[0].starts_with("retrying: ") && lines[0].contains("too old"), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "synced: 2 objects at version 21");
        assert_eq!(sorted(&running.json("/keys")), ["web/a", "web/b"]);
        let (code, rest) = running.end(signal);
        assert_eq!((code, &*rest), (Some(0), &["2 objects at version 21, 3 events, 1 relist, 1 error".to_owned()][..]));
    }
}

#[test]
fn resumes_from_its_file_and_refuses_a_foreign_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config-maps");
    let file = file.to_str().unwrap();
    let a = config_map("a", 8, "");
    let cold = [event("ADDED", "a", 8, ""), initial_end(9)].concat();
    let loaded = ["loaded: 1 objects at version 9".to_owned()];
    let runs = [
        (vec![stalled(cold)], &[][..], vec!["web/a"]),
        (vec![document(&a), stalled(event("ADDED", "b", 12, ""))], &loaded[..], vec!["web/a", "web/b"]),
    ];
    for (answers, loaded, keys) in runs {
        let api = Api::new(answers);
        let mut running = Running::start(&api, &["cm", "-n", "web", "--file", file]);
        assert_eq!(running.loaded, loaded);
        assert!(running.next_line().starts_with("synced: "));
        while running.get("/healthz").code != 200 || sorted(&running.json("/keys")) != keys {
            std::thread::yield_now();
        }
        assert_eq!(running.end("-INT").0, Some(0));
    }
    let refused = |args: &[&str], expected: &str| {
        let output =
            Api::new([stalled("")]).run(&[&["cache"], args, &["--file", file, "--listen", "127.0.0.1:0"]].concat());
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
    };
    let before = std::fs::read(file).unwrap();
    refused(&["pods", "-n", "web"], "the file holds /api/v1/namespaces/web/configmaps?");
    assert_eq!(std::fs::read(file).unwrap(), before);
    std::fs::write(file, "something else").unwrap();
    refused(&["cm", "-n", "web"], "the file was not written by");
    assert_eq!(std::fs::read(file).unwrap(), b"something else");
}

#[test]
fn fails_on_an_exceeded_budget() {
    let output = pods().run(&[&["cache"], &PODS[..], &["--budget", "0", "--listen", "127.0.0.1:0"]].concat());
    assert!(stderr(&output).contains("does not fit into the store's budget of 0 bytes"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

/// Custom resources arrive as JSON, and have no schema.
#[test]
fn serves_and_indexes_custom_resources() {
    let widget = |name: &str, spec: &str| {
        format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"{name}","namespace":"web","uid":"{name}","resourceVersion":"5"}},"spec":{spec}}}"#
        )
    };
    let items = [
        widget("a", r#"{"size":3,"parts":[{"name":"x"},{"name":"y"}]}"#),
        widget("b", r#"{"size":3,"on":true,"parts":[{"name":"y"}]}"#),
        widget("c", r#"{"on":{"since":1}}"#),
    ];
    let list = format!(
        r#"{{"apiVersion":"example.com/v1","items":[{}],"kind":"WidgetList","metadata":{{"resourceVersion":"7"}}}}"#,
        items.join(",")
    );
    let api = Api::by(move |request, _| match &*request.path {
        "/api" => document(r#"{"kind":"APIVersions","versions":[]}"#),
        "/apis" => document(
            r#"{"kind":"APIGroupList","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1",
            "version":"v1"}],"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}}]}"#,
        ),
        "/apis/example.com/v1" => document(
            r#"{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[{"name":"widgets",
            "singularName":"widget","namespaced":true,"kind":"Widget","verbs":["list","watch"]}]}"#,
        ),
        path if path.contains("watch=") => stalled(""),
        _ => document(&list),
    });
    let args = ["widgets", "-n", "web", "--strategy", "list-then-watch"];
    let indexes = ["--index", "size=spec.size", "--index", "part=spec.parts.name", "--index", "on=spec.on"];
    let mut running = Running::start(&api, &[&args[..], &indexes].concat());
    assert_eq!(running.next_line(), "synced: 3 objects at version 7");
    assert_eq!(running.json("/objects/web/a"), serde_json::from_str::<Value>(&items[0]).unwrap());
    assert_eq!(running.json("/indexes/size"), json!({"": 1, "3": 2}));
    assert_eq!(running.json("/indexes/part"), json!({"": 1, "x": 1, "y": 2}));
    assert_eq!(sorted(&running.json("/indexes/part/y")), ["web/a", "web/b"]);
    assert_eq!(running.json("/indexes/size/"), json!(["web/c"]));
    assert_eq!(running.json("/indexes/on"), json!({"": 1, "true": 1}));
    assert_eq!(running.json("/indexes")[2]["errors"], 1);

    for request in api.server.requests().iter().filter(|request| request.path.contains("/widgets")) {
        assert!(!request.headers["accept"].to_str().unwrap().contains("protobuf"), "{}", request.path);
    }

    let mut running = Running::start(&api, &[&args[..], &["--drop", "spec"]].concat());
    assert_eq!(running.next_line(), "synced: 3 objects at version 7");
    let mut expected: Value = serde_json::from_str(&items[0]).unwrap();
    expected.as_object_mut().unwrap().remove("spec").unwrap();
    assert_eq!(running.json("/objects/web/a"), expected);
}

#[test]
fn drops_fields_before_it_stores_objects() {
    let api = pods();
    let drop = ["--drop", "status", "--drop", "metadata.managedFields"];
    let mut running = Running::start(&api, &[&PODS[..], &drop].concat());
    running.next_line();
    for pod in running.json("/objects").as_array().unwrap() {
        assert!(pod["metadata"]["managedFields"].is_null() && pod["status"]["phase"].is_null(), "{pod}");
        assert!(pod["spec"]["containers"][0]["image"].is_string());
    }
}

#[test]
fn fails_on_a_forbidden_collection() {
    let api = Api::new([status(403, "Forbidden", "no")]);
    let output = api.run(&["cache", "pods", "--listen", "127.0.0.1:0"]);
    assert!(stderr(&output).ends_with("error: API error: 403 Forbidden: no\n"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn rejects_wrong_usage() {
    let api = Api::new([status(403, "Forbidden", "no")]);
    for (args, expected) in [
        (vec!["--listen", "0.0.0.0:8002"], "expected a loopback address"),
        (vec!["--listen", "8002"], "expected an address with a port"),
        (vec!["--format", "decoded"], "invalid value"),
        (vec!["--index", "node"], "expected NAME=PATH"),
        (vec!["--index", "a/b=spec.nodeName"], "without a slash in NAME"),
        (vec!["--index", "node=spec.node"], "Pod has no such field"),
        (vec!["--index", "node=2.10"], "expected names of fields, not numbers"),
        (vec!["--index", "spec=spec"], "spec is not a single value"),
        (vec!["--index", "labels=metadata.labels"], "metadata.labels is not a single value"),
        (vec!["--index", "a=metadata.name", "--index", "a=metadata.uid"], "the name is used twice"),
        (vec!["--drop", "spec.node"], "Pod has no such field"),
        (vec!["--limit", "7"], "unexpected argument"),
    ] {
        let output = api.run(
            &[&["cache", "pods", "--listen", "127.0.0.1:0"][..if args[0] == "--listen" { 2 } else { 4 }], &args]
                .concat(),
        );
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = listwatch(&["cache", "pods", "--listen", &address]).output().unwrap();
    assert!(stderr(&output).starts_with(&format!("error: cannot listen on {address}: ")), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
#[cfg(unix)]
fn warns_once_of_fields_that_are_not_served() {
    let list = config_map_list("7", &[later_config_map("a", 5), later_config_map("b", 6)]);
    let list = Answer::ok(Body::replay(list)).content_type("application/vnd.kubernetes.protobuf");
    let api = Api::new([list, stalled("")]);
    let mut running = Running::start(&api, &["cm", "-n", "web", "--strategy", "list-then-watch"]);
    assert!(running.next_line().starts_with("synced: "));
    for _ in 0..2 {
        let objects = running.json("/objects");
        assert_eq!(objects.as_array().unwrap().len(), 2, "{objects}");
    }
    let (_, rest) = running.end("-INT");
    let warnings: Vec<_> = rest.iter().filter(|line| line.starts_with("warning: ")).collect();
    assert_eq!(warnings, ["warning: left out 1 field that this version does not know; JSON from the server has them"]);
}
