//! `listwatch mirror` against a server: what it stores, prints and serves, and how it ends.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use listwatch_testserver::{Answer, Body, leak};
use serde_json::Value;

use crate::support::api::{Api, config_map, event, expired, initial_end, ok, status};
use crate::support::{fixture, listwatch, pods as decoded, stderr, stdout};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";

/// The running command. Dropping it kills the process.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
    /// The lines on stderr before `serving:`.
    before: Vec<String>,
    address: SocketAddr,
}

struct Response {
    code: u16,
    /// In lower case.
    head: String,
    body: Vec<u8>,
}

impl Running {
    /// Starts the command, and waits until it is synced.
    fn start(api: &Api, args: &[&str]) -> Self {
        let (child, mut lines) = spawn(api, args);
        let mut before = Vec::new();
        let address = loop {
            let line = lines.next().unwrap_or_else(|| panic!("the command ended: {before:?}")).unwrap();
            assert_eq!(leak(line.as_bytes()), None);
            match line.strip_prefix("serving: http://") {
                Some(address) => break address.parse().unwrap(),
                None => before.push(line),
            }
        };
        assert_eq!(lines.next().unwrap().unwrap(), format!("try: kubectl --server http://{address} get pods -A"));
        Self { child, lines, before, address }
    }

    fn get(&self, accept: &str, path: &str) -> Response {
        get(self.address, accept, path)
    }

    fn json(&self, path: &str) -> Value {
        let Response { code, head, body } = self.get(JSON, path);
        assert!(code == 200 && head.contains("content-type: application/json"), "{path}: {head}");
        serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{path}: {error}"))
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

fn spawn(api: &Api, args: &[&str]) -> (Child, Lines<BufReader<ChildStderr>>) {
    let args = [&["mirror"], args, &["--listen", "127.0.0.1:0"]].concat();
    spawn_command(api.command(&args))
}

fn spawn_command(mut command: Command) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    (child, lines)
}

/// Sends a GET, and returns the connection.
fn send(address: SocketAddr, accept: &str, path: &str) -> TcpStream {
    let mut connection = TcpStream::connect(address).unwrap();
    // HTTP/1.0 has no chunks.
    write!(connection, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n").unwrap();
    connection
}

fn get(address: SocketAddr, accept: &str, path: &str) -> Response {
    let mut response = Vec::new();
    send(address, accept, path).read_to_end(&mut response).unwrap();
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(response[..end].to_vec()).unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { code, head: head.to_lowercase(), body: response[end + 4..].to_vec() }
}

/// Sends this body, and then stalls.
fn stalled(body: impl Into<Vec<u8>>) -> Answer {
    let body = body.into();
    let length = body.len() as u64;
    Answer::ok(Body::replay(body).stall_at(length))
}

fn document(text: &str) -> Answer {
    Answer::ok(Body::replay(text.to_owned())).content_type(JSON)
}

/// A server with 120 Pods, in protobuf, and with two ConfigMaps.
fn pods() -> Api {
    Api::by(|request, _| match &*request.path {
        path if path.contains("watch=") && path.contains("/configmaps") => {
            stalled([event("ADDED", "a", 8, ""), event("ADDED", "b", 9, ""), initial_end(9)].concat())
        }
        path if path.contains("watch=") => stalled(""),
        path if path.contains("/pods") => ok("pods.pb"),
        _ => status(404, "NotFound", "no such path"),
    })
}

const PODS: [&str; 3] = ["pods", "--strategy", "list-then-watch"];

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn serves_the_list_of_the_server_byte_for_byte() {
    for format in ["encoded", "compressed"] {
        let api = pods();
        let running = Running::start(&api, &[&PODS[..], &["--format", format]].concat());
        assert!(running.before.last().unwrap().starts_with("synced: pods: 120 objects at version "));
        let Response { code, head, body } = running.get(PROTOBUF, "/api/v1/pods?resourceVersion=0");
        assert!(code == 200 && head.contains(PROTOBUF) && head.contains("listwatch-lag-seconds: "), "{head}");
        assert!(body == fixture("pods.pb"), "{format}: other bytes");
    }
}

#[test]
fn serves_objects_and_selected_lists() {
    let api = pods();
    let running = Running::start(&api, &[&PODS[..], &["--stale-reads", "--index", "pods:spec.nodeName"]].concat());
    let pods = decoded(&fixture("pods.pb"));
    let meta = pods[0].metadata.clone().unwrap();
    let (namespace, name) = (meta.namespace.unwrap(), meta.name.unwrap());
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let object = running.json(&format!("{path}/{name}"));
    assert_eq!((&object["metadata"]["name"], &object["kind"]), (&name.into(), &"Pod".into()));
    assert_eq!(running.get(JSON, &format!("{path}/missing")).code, 404);

    let node = pods[0].spec.as_ref().unwrap().node_name.clone().unwrap();
    let on_node = |pod: &&k8s_pb::api::core::v1::Pod| pod.spec.as_ref().unwrap().node_name.as_ref() == Some(&node);
    let selected = running.json(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}"));
    assert_eq!(names(&selected).len(), pods.iter().filter(on_node).count());
    let in_namespace =
        |pod: &&k8s_pb::api::core::v1::Pod| pod.metadata.as_ref().unwrap().namespace.as_ref() == Some(&namespace);
    assert_eq!(names(&running.json(&path)).len(), pods.iter().filter(in_namespace).count());
}

#[test]
fn sends_changes_to_watches_of_readers() {
    let objects = [event("ADDED", "a", 8, ""), initial_end(9)].concat();
    let later = event("MODIFIED", "a", 12, r#","data":{"x":"y"}"#);
    let api = Api::new([stalled(objects + &later)]);
    let running = Running::start(&api, &["cm", "-n", "web"]);
    let path = "/api/v1/namespaces/web/configmaps?watch=1&resourceVersion=9";
    let mut lines = BufReader::new(send(running.address, JSON, path)).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains(" 200 "));
    let event: Value = serde_json::from_str(&lines.find(|line| line.starts_with('{')).unwrap()).unwrap();
    assert_eq!(event["type"], "MODIFIED");
    assert_eq!(event["object"]["data"]["x"], "y");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], "12");
}

/// A path of Pods only, and an index of Pods only, apply to them.
#[test]
fn mirrors_several_resources_within_one_budget() {
    let api = Api::by(|request, _| match &*request.path {
        path if path.contains("watch=") => stalled(""),
        path if path.contains("/pods") => ok("pods.pb"),
        _ => document(&format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#,
            config_map("a", 8, r#","data":{"x":"y"}"#)
        )),
    });
    let options = ["--strategy", "list-then-watch", "--budget", "64", "--drop", "spec.containers", "--stale-reads"];
    let running = Running::start(&api, &[&["pods,cm", "--index", "spec.nodeName"], &options[..]].concat());
    let synced: Vec<_> = running.before.iter().filter(|line| line.starts_with("synced: ")).collect();
    assert!(
        synced[0].starts_with("synced: pods: 120 ") && synced[1].starts_with("synced: configmaps: 1 "),
        "{synced:?}"
    );
    let pods = running.json("/api/v1/pods");
    assert!(names(&pods).len() == 120 && pods["items"][0]["spec"]["containers"][0].is_null());
    assert_eq!(running.json("/api/v1/configmaps")["items"][0]["data"]["x"], "y");
    for path in ["/readyz", "/readyz/pods", "/readyz/configmaps"] {
        assert_eq!(running.get(JSON, path).code, 200, "{path}");
    }
}

/// The command itself reads from the mirror.
#[test]
fn reviews_readers_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(file("tls.crt"), certified.cert.pem()).unwrap();
    std::fs::write(file("tls.key"), certified.signing_key.serialize_pem()).unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let reviews_fail = Arc::clone(&fails);
    let api = Api::by(move |request, _| match &*request.path {
        path if path.ends_with("/tokenreviews") && reviews_fail.load(Ordering::Relaxed) => {
            status(403, "Forbidden", "no")
        }
        path if path.ends_with("/tokenreviews") => {
            document(r#"{"status":{"authenticated":true,"user":{"username":"reader"}}}"#)
        }
        path if path.ends_with("/subjectaccessreviews") => document(r#"{"status":{"allowed":true}}"#),
        path if path.contains("watch=") => stalled(""),
        _ => ok("pods.pb"),
    });
    let files = ["--tls-cert", &file("tls.crt"), "--tls-key", &file("tls.key")];
    let options = ["--stale-reads", "--write-kubeconfig", &file("kubeconfig")];
    let (mut child, mut lines) = spawn(&api, &[&PODS[..], &files, &options].concat());
    assert!(lines.any(|line| line.unwrap().starts_with("serving: https://127.0.0.1:")));
    let list_command = |args: &[&str]| {
        let mut command = listwatch(&["get", "pods", "-A", "-o", "keys", "--kubeconfig", &file("kubeconfig")]);
        command.args(args);
        command
    };
    let list = |args: &[&str]| list_command(args).output().unwrap();
    let output = list(&["--token", "of-a-reader"]);
    assert_eq!(stdout(&output).lines().count(), 120, "{}", stderr(&output));
    let output = list(&[]);
    assert!(stderr(&output).contains("401 Unauthorized"), "{}", stderr(&output));
    fails.store(true, Ordering::Relaxed);
    let mut reader = list_command(&["--token", "of-another-reader"]).stderr(Stdio::null()).spawn().unwrap();
    let warning = lines.map(Result::unwrap).find(|line| line.starts_with("warning: cannot review a reader: ")).unwrap();
    assert!(warning.contains("403") && !warning.contains("of-another-reader"), "{warning}");
    for child in [&mut reader, &mut child] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// The mirror may open 64 files once it has raised its limit, and 48 until then. Connections leave some for others.
#[cfg(target_os = "linux")]
#[test]
fn raises_its_limit_of_open_files_and_warns_at_it() {
    let api = pods();
    let mirror = api.command(&["mirror", "pods", "--strategy", "list-then-watch", "--listen", "127.0.0.1:0"]);
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -Sn 48 && ulimit -Hn 64 && exec "$@""#, "sh"]).arg(mirror.get_program());
    command.args(mirror.get_args()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in mirror.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let (mut child, mut lines) = spawn_command(command);
    let mut lines = lines.by_ref().map(Result::unwrap);
    let limit = lines.find(|line| line.starts_with("warning: ")).unwrap();
    assert_eq!(limit, "warning: the limit of 64 open files allows only 32 connections of readers");
    let address: SocketAddr =
        lines.find_map(|line| Some(line.strip_prefix("serving: http://")?.parse().unwrap())).unwrap();
    // Not from `/metrics`: what reads them may raise the limit, too.
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    assert_eq!(limit.split_whitespace().collect::<Vec<_>>(), ["64", "64", "files"]);
    let connections: Vec<_> = (0..80).map(|_| TcpStream::connect(address).unwrap()).collect();
    let is_warning = |line: &String| line.starts_with("warning: many connections: idle ones make room");
    assert!(lines.any(|line| is_warning(&line)));
    // While all of them are open.
    assert_eq!(get(address, JSON, "/livez").code, 200);
    drop(connections);
    child.kill().unwrap();
    child.wait().unwrap();
    // It is the same warning each time.
    assert_eq!(lines.find(is_warning), None);
}

#[test]
fn refuses_other_methods_hosts_and_paths() {
    let api = pods();
    let running = Running::start(&api, &PODS);
    let address = running.address;
    for (method, path, host, expected) in [
        ("GET", "/keys", address.to_string(), 404),
        ("GET", "/objects", address.to_string(), 404),
        ("GET", "/api/v1/secrets", address.to_string(), 403),
        ("POST", "/api/v1/pods", address.to_string(), 405),
        ("DELETE", "/api/v1/namespaces/a/pods/b", address.to_string(), 405),
        ("GET", "/api/v1/pods?resourceVersion=0", "listwatch.example.com".to_owned(), 403),
        ("GET", "/livez", address.to_string(), 200),
        ("GET", "/metrics", address.to_string(), 200),
    ] {
        let mut connection = TcpStream::connect(address).unwrap();
        write!(connection, "{method} {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();
        let code: u16 = response.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(code, expected, "{method} {path} of {host}: {response}");
    }
}

/// The kubeconfig exists before the collection is complete.
#[test]
fn answers_503_before_the_first_sync() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let api = Api::new([stalled(event("ADDED", "a", 8, ""))]);
    let (mut child, mut lines) = spawn(&api, &["cm", "-n", "web", "--write-kubeconfig", file.to_str().unwrap()]);
    while !file.exists() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    let address = server(&file).strip_prefix("http://").unwrap().parse().unwrap();
    assert_eq!(get(address, JSON, "/livez").code, 200);
    assert_eq!(get(address, JSON, "/readyz").code, 503);
    for path in ["/api/v1/namespaces/web/configmaps?resourceVersion=0", "/api/v1/namespaces/web/configmaps/a"] {
        let Response { code, body, .. } = get(address, JSON, path);
        assert_eq!(code, 503, "{path}");
        assert!(String::from_utf8(body).unwrap().contains("configmaps: not synced"), "{path}");
    }
    crate::support::signal(&child, "-INT");
    let rest: Vec<_> = lines.by_ref().map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(rest[0].contains("configmaps: ") && rest[0].contains("not synced yet (watch list)"), "{rest:?}");
}

/// Returns the address of the server in a kubeconfig.
fn server(kubeconfig: &Path) -> String {
    let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
    config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
}

/// The command itself reads from a mirror, by its kubeconfig.
#[test]
fn writes_a_kubeconfig_that_only_its_owner_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let file = file.to_str().unwrap();
    let api = pods();
    let running = Running::start(&api, &[&PODS[..], &["--stale-reads", "--write-kubeconfig", file]].concat());
    assert_eq!(server(Path::new(file)), format!("http://{}", running.address));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let output = listwatch(&["get", "pods", "-A", "-o", "keys", "--kubeconfig", file]).output().unwrap();
    assert_eq!(stdout(&output).lines().count(), 120, "{}", stderr(&output));
}

/// Syncs and errors are printed too.
#[test]
fn prints_totals_and_exits_with_0_on_signals() {
    for signal in ["-INT", "-TERM"] {
        let changes = [event("ADDED", "a", 8, ""), initial_end(8)].concat();
        let again = [event("ADDED", "a", 8, ""), event("ADDED", "b", 20, ""), initial_end(21)].concat();
        let api = Api::new([Answer::ok(Body::replay(changes + &expired())), stalled(again)]);
        let mut running = Running::start(&api, &["cm", "-n", "web"]);
        let mut lines = running.before.clone();
        while lines.last().is_none_or(|line: &String| !line.starts_with("synced: configmaps: 2")) {
            lines.push(running.lines.next().unwrap().unwrap());
        }
        let retries = |line: &String| line.starts_with("retrying: configmaps: ") && line.contains("too old");
        assert!(lines.iter().any(retries), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "synced: configmaps: 2 objects at version 21");
        // A watch of a reader ends, and does not delay the end.
        let path = "/api/v1/namespaces/web/configmaps?watch=1&resourceVersion=21";
        let mut watching = BufReader::new(send(running.address, JSON, path)).lines();
        assert!(watching.next().unwrap().unwrap().contains(" 200 "));
        let (code, rest) = running.end(signal);
        assert_eq!((code, rest.len()), (Some(0), 1), "{rest:?}");
        assert!(rest[0].starts_with("configmaps: 2 objects at version 21, "), "{rest:?}");
        assert!(rest[0].ends_with(", 3 events, 1 relist, 1 error"), "{rest:?}");
    }
}

#[test]
fn resumes_from_its_directory_and_refuses_a_foreign_file() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("new/caches");
    let file = dir.join("configmaps.cache");
    let dir = dir.to_str().unwrap();
    let list = "/api/v1/namespaces/web/configmaps?resourceVersion=0";
    let a = config_map("a", 8, "");
    let cold = [event("ADDED", "a", 8, ""), initial_end(9)].concat();
    let runs = [
        (vec![stalled(cold)], false, vec!["a"]),
        (vec![document(&a), stalled(event("ADDED", "b", 12, ""))], true, vec!["a", "b"]),
    ];
    for (answers, has_file, expected) in runs {
        let api = Api::new(answers);
        let mut running = Running::start(&api, &["cm", "-n", "web", "--dir", dir]);
        let loaded = "loaded: configmaps: 1 objects at version 9".to_owned();
        assert_eq!(running.before.contains(&loaded), has_file, "{:?}", running.before);
        while names(&running.json(list)) != expected {
            std::thread::yield_now();
        }
        assert!(api.paths().iter().all(|path| path.contains("watch=") || path.contains("/configmaps/a")));
        assert_eq!(running.end("-TERM").0, Some(0));
    }
    let refused = |args: &[&str], expected: &str| {
        let output =
            Api::new([stalled("")]).run(&[&["mirror"], args, &["--dir", dir, "--listen", "127.0.0.1:0"]].concat());
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
    };
    let before = std::fs::read(&file).unwrap();
    refused(&["cm", "-n", "other"], "the file contains /api/v1/namespaces/web/configmaps?");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    std::fs::write(&file, "something else").unwrap();
    refused(&["cm", "-n", "web"], "the file was not written by");
    assert_eq!(std::fs::read(&file).unwrap(), b"something else");
}

/// Mirrors that start during an outage must not list when it ends. A resource without an answer delays no other.
#[test]
fn keeps_its_file_until_the_server_answers() {
    let folder = tempfile::tempdir().unwrap();
    let [dir, kubeconfig] = ["caches", "kubeconfig"].map(|name| folder.path().join(name));
    let args = |resources: &[&'static str]| {
        let options = ["-n", "web", "--dir", dir.to_str().unwrap(), "--write-kubeconfig", kubeconfig.to_str().unwrap()];
        [resources, &options].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let cold = [event("ADDED", "a", 8, ""), initial_end(9)].concat();
    let first = args(&["cm"]);
    let mut running = Running::start(&Api::new([stalled(cold)]), &first.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(running.end("-TERM").0, Some(0));
    std::fs::remove_file(&kubeconfig).unwrap();

    let is_down = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&is_down);
    let api = Api::by(move |request, _| match &*request.path {
        path if path.contains("watch=") => stalled(""),
        path if path.contains("/configmaps/a") && down.load(Ordering::Relaxed) => {
            status(503, "ServiceUnavailable", "starting")
        }
        path if path.contains("/configmaps/a") => document(&config_map("a", 8, "")),
        path if path.contains("/pods") => ok("pods.pb"),
        _ => status(404, "NotFound", "no such path"),
    });
    let second = args(&["cm", "po", "--strategy", "list-then-watch"]);
    let (mut child, mut lines) = spawn(&api, &second.iter().map(String::as_str).collect::<Vec<_>>());
    while !kubeconfig.exists() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    let address = server(&kubeconfig).strip_prefix("http://").unwrap().parse().unwrap();
    let wait = |path| {
        while get(address, JSON, path).code != 200 {
            std::thread::yield_now();
        }
    };
    wait("/readyz/pods");
    assert_eq!(get(address, JSON, "/readyz/configmaps").code, 503);
    assert_eq!(get(address, JSON, "/readyz").code, 200, "one resource is ready");
    is_down.store(false, Ordering::Relaxed);
    wait("/readyz/configmaps");
    let paths = api.paths();
    let is_list =
        |path: &&String| path.contains("/configmaps") && !path.contains("/configmaps/a") && !path.contains("watch=");
    assert_eq!(paths.iter().find(is_list), None);
    crate::support::signal(&child, "-TERM");
    let lines: Vec<_> = lines.by_ref().map(Result::unwrap).collect();
    let loaded = "loaded: configmaps: 1 objects at version 9".to_owned();
    assert!(lines.contains(&loaded), "{lines:?}");
    // Its own warnings need no `-v`, and identical ones are not repeated.
    let retrying = "warning: configmaps: cannot compare the file with the server: retrying: API error: 503";
    assert_eq!(lines.iter().filter(|line| line.starts_with(retrying)).count(), 1, "{lines:?}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn fails_on_an_exceeded_budget() {
    let output = pods().run(&[&["mirror"], &PODS[..], &["--budget", "0", "--listen", "127.0.0.1:0"]].concat());
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
    let items = [widget("a", r#"{"size":"3"}"#), widget("b", r#"{"size":4}"#), widget("c", r#"{"size":"3"}"#)];
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
    let args = ["widgets.example.com", "--strategy", "list-then-watch", "--stale-reads", "--index", "spec.size"];
    let running = Running::start(&api, &args);
    assert_eq!(running.before.last().unwrap(), "synced: widgets.example.com: 3 objects at version 7");
    let path = "/apis/example.com/v1/namespaces/web/widgets";
    assert_eq!(running.json(&format!("{path}/a")), serde_json::from_str::<Value>(&items[0]).unwrap());
    assert_eq!(names(&running.json(&format!("{path}?fieldSelector=spec.size%3D3"))), ["a", "c"]);
    // An index holds texts, not numbers.
    assert_eq!(names(&running.json(&format!("{path}?fieldSelector=spec.size%3D4"))), ["b"]);
    for request in api.server.requests().iter().filter(|request| request.path.contains("/widgets")) {
        assert!(!request.headers["accept"].to_str().unwrap().contains("protobuf"), "{}", request.path);
    }

    let running = Running::start(&api, &[&args[..4], &["--drop", "spec"]].concat());
    let mut expected: Value = serde_json::from_str(&items[0]).unwrap();
    expected.as_object_mut().unwrap().remove("spec").unwrap();
    assert_eq!(running.json(&format!("{path}/a")), expected);
}

#[test]
fn drops_fields_before_it_stores_objects() {
    let api = pods();
    let drop = ["--drop", "status", "--drop", "metadata.managedFields"];
    let running = Running::start(&api, &[&PODS[..], &drop].concat());
    let list = running.json("/api/v1/pods?resourceVersion=0");
    for pod in list["items"].as_array().unwrap() {
        assert!(pod["metadata"]["managedFields"].is_null() && pod["status"]["phase"].is_null(), "{pod}");
        assert!(pod["spec"]["containers"][0]["image"].is_string());
    }
}

#[test]
fn fails_on_a_forbidden_collection() {
    let api = Api::new([status(403, "Forbidden", "no")]);
    let output = api.run(&["mirror", "pods", "--listen", "127.0.0.1:0"]);
    assert!(stderr(&output).ends_with("error: pods: API error: 403 Forbidden: no\n"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn rejects_wrong_usage() {
    let api = Api::new([status(403, "Forbidden", "no")]);
    for (args, expected) in [
        (vec!["--listen", "0.0.0.0:8002"], "is not a loopback address: use --tls-cert and --tls-key"),
        (vec!["--listen", "8002"], "expected an address with a port"),
        (vec!["--format", "decoded"], "invalid value"),
        (vec!["--index", "spec.node"], "Pod has no such field"),
        (vec!["--index", "spec.priority"], "Pod cannot be selected by this field"),
        (vec!["--index", "node=spec.nodeName"], "expected PATH or RESOURCE:PATH"),
        (vec!["--index", "nodes:spec.nodeName"], "nodes is not mirrored"),
        (vec!["--drop", "spec.node"], "Pod has no such field"),
        (vec!["--log-age", "10"], "expected a number with a unit"),
        (vec!["--tls-cert", "a.pem"], "--tls-key <FILE>"),
        (vec!["--tls-key", "a.pem"], "--tls-cert <FILE>"),
        (vec!["po,nodes"], "pods is named twice"),
        (vec!["-l", "app=web"], "unexpected argument"),
        (vec!["--metadata-only"], "unexpected argument"),
    ] {
        let listen: &[&str] = if args[0] == "--listen" { &[] } else { &["--listen", "127.0.0.1:0"] };
        let output = api.run(&[&["mirror", "pods"], listen, &args].concat());
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    assert_eq!(api.run(&["mirror"]).status.code(), Some(2));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = listwatch(&["mirror", "pods", "--listen", &address]).output().unwrap();
    assert!(stderr(&output).starts_with(&format!("error: cannot listen on {address}: ")), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn refuses_an_unreadable_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let api = pods();
    let run = |listen: &str| {
        let files = ["--tls-cert", &file("tls.crt"), "--tls-key", &file("tls.key")];
        api.run(&[&["mirror"], &PODS[..], &files, &["--listen", listen]].concat())
    };
    let output = run("0.0.0.0:0");
    assert!(stderr(&output).contains("error: cannot serve: cannot read "), "{}", stderr(&output));
    for name in ["tls.crt", "tls.key"] {
        std::fs::write(file(name), "no PEM").unwrap();
    }
    for listen in ["0.0.0.0:0", "127.0.0.1:0"] {
        let output = run(listen);
        assert!(stderr(&output).contains("error: cannot serve: the "), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
    }
}

/// The command line wins, except for options that can be repeated.
#[test]
fn reads_its_settings_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mirror.yaml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "resources: [cm]\nnamespace: web\nlisten: 127.0.0.1:1\nstale-reads: true\n").unwrap();
    for (more, expected) in [(&[][..], "/namespaces/web/"), (&["-A"], "/api/v1/configmaps?")] {
        let api = pods();
        let running = Running::start(&api, &[&["-f", path][..], more].concat());
        let paths = api.paths();
        assert!(paths[0].contains(expected), "{paths:?}");
        drop(running);
    }
    for (text, more, expected, code) in [
        ("resources: [cm]\nbudgets: 1", &[][..], "mirror.yaml: line 2: unknown setting \"budgets\": did you mean", 2),
        ("resources: [cm]\nbudget: many", &[], "mirror.yaml: invalid value 'many' for '--budget <MIB>'", 2),
        ("budget: 1", &[], "name the resources to mirror, as RESOURCE or as `resources` in the file", 2),
        ("resources: [cm]\ntls-cert: a", &[], "--tls-key", 2),
        ("resources: [", &[], "mirror.yaml: ", 2),
        ("resources: cm", &["cm"], "is named twice", 2),
        ("resources: [cm]\nlisten: 1.2.3.4:5", &[], "is not a loopback address", 2),
        ("\u{1}", &[], "mirror.yaml: ", 2),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = pods().run(&[&["mirror", "-f", path][..], more].concat());
        assert!(stderr(&output).contains(expected), "{text}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(code), "{text}");
    }
    let output = pods().run(&["mirror", "-f", "/nowhere/mirror.yaml"]);
    assert!(stderr(&output).starts_with("error: cannot read /nowhere/mirror.yaml: "), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

/// A resource that the server does not have, one that it refuses, and one that it does not send.
#[test]
fn one_resource_keeps_no_other_from_being_served() {
    let api = Api::by(|request, _| match &*request.path {
        "/api" | "/api?" => document(r#"{"kind":"APIVersions","versions":[]}"#),
        "/apis" | "/apis?" => document(r#"{"kind":"APIGroupList","groups":[]}"#),
        path if path.contains("/configmaps") => status(403, "Forbidden", "not the mirror's"),
        path if path.contains("/nodes") => status(503, "ServiceUnavailable", "starting"),
        path if path.contains("watch=") => stalled(""),
        path if path.contains("/pods") => ok("pods.pb"),
        _ => status(404, "NotFound", "no such path"),
    });
    let options = ["widgets.example.com", "cm", "nodes", "--strategy", "list-then-watch", "--index", "spec.size"];
    let running = Running::start(&api, &[&["pods"][..], &options].concat());
    let missing = running.before.iter().find(|line| line.contains("widgets.example.com")).unwrap();
    assert!(missing.starts_with("warning: ") && missing.ends_with("; it is looked up again"), "{missing}");
    assert_eq!(names(&running.json("/api/v1/pods?resourceVersion=0")).len(), 120);
    for (path, code) in [
        ("/readyz", 200),
        ("/readyz/pods", 200),
        ("/readyz/configmaps", 503),
        ("/readyz/nodes", 503),
        ("/readyz/widgets.example.com", 503),
        ("/readyz/secrets", 404),
        // The server's own answers.
        ("/api/v1/configmaps?resourceVersion=0", 403),
        ("/apis/example.com/v1/widgets", 404),
        ("/api/v1/nodes?resourceVersion=0", 503),
    ] {
        assert_eq!(running.get(JSON, path).code, code, "{path}");
    }
    let ready = String::from_utf8(running.get(JSON, "/readyz").body).unwrap();
    for line in
        ["[+]pods ok: lag ", "[-]configmaps not ready: never synced, upstream denied\n", "[-]widgets.example.com "]
    {
        assert!(ready.contains(line), "{ready}");
    }
    assert!(ready.ends_with("readyz check passed\n"), "{ready}");
    let metrics = String::from_utf8(running.get(JSON, "/metrics").body).unwrap();
    for (resource, value) in [("pods", 1), ("configmaps", 0), ("nodes", 0), ("widgets.example.com", 0)] {
        let sample = format!("listwatch_mirror_ready{{resource=\"{resource}\"}} {value}\n");
        assert!(metrics.contains(&sample), "{metrics}");
    }
}

/// Without the file of resources, the command would end before it loads the file of the cache.
#[test]
fn starts_with_a_custom_resource_while_the_server_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let list = r#"{"apiVersion":"example.com/v1","items":[{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"web","uid":"a","resourceVersion":"5"}}],"kind":"WidgetList","metadata":{"resourceVersion":"7"}}"#;
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let api = Api::by(move |request, _| match &*request.path {
        _ if down.load(Ordering::Relaxed) => status(503, "ServiceUnavailable", "starting"),
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
        path if path.contains("/widgets/a") => {
            document(&list[list.find("{\"apiVersion\":\"example.com/v1\",\"kind\"").unwrap()..list.find("],").unwrap()])
        }
        _ => document(list),
    });
    let args = ["widgets.example.com", "--strategy", "list-then-watch", "--dir", dir];
    assert_eq!(Running::start(&api, &args).end("-TERM").0, Some(0));
    is_down.store(true, Ordering::Relaxed);
    let mut running = Running::start(&api, &args);
    // The server is the one that the file is from, so the file is served before it is compared.
    while running.get(JSON, "/readyz").code != 200 {
        std::thread::yield_now();
    }
    assert_eq!(names(&running.json("/apis/example.com/v1/widgets?resourceVersion=0")), ["a"]);
    is_down.store(false, Ordering::Relaxed);
    let loaded = running.lines.find(|line| line.as_ref().unwrap().starts_with("loaded: ")).unwrap().unwrap();
    assert_eq!(loaded, "loaded: widgets.example.com: 1 objects at version 7");
    while running.get(JSON, "/readyz").code != 200 {
        std::thread::yield_now();
    }
    assert_eq!(names(&running.json("/apis/example.com/v1/widgets?resourceVersion=0")), ["a"]);
}

/// Balancers notice that the mirror leaves before its readers do.
#[test]
fn is_not_ready_before_it_ends() {
    let api = pods();
    let probes = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = ["--shutdown-delay", "1h", "--probe-listen", &probes.to_string()];
    let mut running = Running::start(&api, &[&PODS[..], &options].concat());
    assert_eq!(get(probes, JSON, "/readyz").code, 200);
    let public = String::from_utf8(get(probes, JSON, "/metrics").body).unwrap();
    assert!(public.contains("listwatch_mirror_resources{state=\"ready\"} 1\n"), "{public}");
    assert!(!public.contains("resource=\"pods\""), "{public}");
    for path in ["/api/v1/pods", "/version", "/openapi/v2"] {
        assert_eq!(get(probes, JSON, path).code, 404, "{path}");
    }
    crate::support::signal(&running.child, "-TERM");
    while get(probes, JSON, "/readyz").code != 503 {
        std::thread::yield_now();
    }
    assert_eq!(running.get(JSON, "/readyz").code, 503);
    assert_eq!(names(&running.json("/api/v1/pods?resourceVersion=0")).len(), 120);
    assert_eq!(get(probes, JSON, "/livez").code, 200);
    // The second signal ends it at once.
    assert!(running.end("-TERM").0.is_some());
}

#[test]
fn writes_an_access_log_of_json() {
    let api = pods();
    let mut command = api.command(&[&["mirror"], &PODS[..], &["--listen", "127.0.0.1:0", "--access-log"]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut child, mut lines) = spawn_command(command);
    let address: SocketAddr =
        lines.find_map(|line| Some(line.unwrap().strip_prefix("serving: http://")?.parse().unwrap())).unwrap();
    let mut log = BufReader::new(child.stdout.take().unwrap()).lines();
    for (path, name, source) in [
        ("/api/v1/pods?resourceVersion=0", "", "memory"),
        ("/api/v1/namespaces/a/pods/b?resourceVersion=0", "b", "refused"),
        ("/api/v1/secrets", "", "refused"),
        ("/version", "", "forwarded"),
    ] {
        let code = get(address, JSON, path).code;
        let line: Value = serde_json::from_str(&log.next().unwrap().unwrap()).unwrap();
        assert_eq!((&line["code"], line["name"].as_str().unwrap_or_default()), (&code.into(), name), "{line}");
        assert_eq!(line["source"], source, "{line}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
