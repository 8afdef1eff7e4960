//! `--from`: what the commands read from files in place of a server.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::support::{FIXTURES, fixture, listwatch, names, pods, with_stdin};

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../etcd/tests/small.db");
/// What stderr begins with.
const READING: &str = "reading: revision 241828 of an etcd file, at index 698493 of the log\n";

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    ended(listwatch(args).output().unwrap())
}

fn ended(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn reads_an_etcd_file_as_a_server() {
    for (args, stdout) in [
        (&["get", "pods", "-o", "name"][..], "pod/pi-dqtsw\n"),
        (&["get", "pod/pi-dqtsw", "-o", "name"], "pod/pi-dqtsw\n"),
        (&["get", "pods,jobs", "-A", "-o", "name"], "pod/pi-dqtsw\njob.batch/pi\n"),
        (&["get", "pods", "-l", "job-name=pi", "-o", "keys"], "default/pi-dqtsw\n"),
        (
            &["get", "pods", "-A", "--field-selector", "spec.nodeName=kubernetes-minion-group-vlql", "-o", "keys"],
            "default/pi-dqtsw\n",
        ),
        (&["get", "jobs.batch", "-A", "--at-version", "241828", "-o", "keys"], "default/pi\n"),
        (&["get", "ns", "--no-headers", "-L", "x", "-o", "name"], "namespace/default\n"),
    ] {
        let (code, out, err) = run(&[args, &["--from", SMALL]].concat());
        assert_eq!((code, &*out, &*err), (Some(0), stdout, READING), "{args:?}");
    }
    let (_, out, _) = run(&["get", "pods", "--from", SMALL]);
    assert!(out.starts_with("NAME       READY   STATUS      RESTARTS   AGE\npi-dqtsw   0/1     Completed"), "{out}");
    let (_, out, _) = run(&["get", "pod/pi-dqtsw", "-o", "json", "--from", SMALL]);
    let pod: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&pod["kind"], &pod["metadata"]["resourceVersion"]), (&"Pod".into(), &"82702".into()));
}

#[test]
fn explains_what_an_etcd_file_does_not_have() {
    let has = "it has jobs, namespaces, pods";
    for (args, code, stderr) in [
        (&["get", "nodes"][..], 0, format!("{READING}warning: {SMALL} has no nodes: {has}\nNo resources found\n")),
        (
            &["get", "pods", "-n", "web"],
            0,
            format!(
                "{READING}warning: {SMALL} has no pods in namespace web: {has}\nNo resources found in web namespace.\n"
            ),
        ),
        (
            &["get", "events", "-A"],
            0,
            format!(
                "{READING}warning: {SMALL} has no events: {has}; the API server may keep events in another etcd (--etcd-servers-overrides)\nNo resources found\n"
            ),
        ),
        (
            &["get", "pods", "--at-version", "5"],
            1,
            format!(
                "{READING5}error: {SMALL}: revision 5 has been compacted; the oldest complete one is 241828\n",
                READING5 = "reading: revision 5 of an etcd file whose newest is 241828, at index 698493 of the log\n"
            ),
        ),
    ] {
        let (exit, out, err) = run(&[args, &["--from", SMALL]].concat());
        assert_eq!((exit, &*out, &*err), (Some(code), "", &*stderr), "{args:?}");
    }
    let (code, _, err) = run(&["get", "pod/x", "--from", SMALL]);
    assert!(code == Some(1) && err.ends_with("pods \"x\" not found\n"), "{err}");
}

#[test]
fn reads_recorded_bodies_and_what_kubectl_prints() {
    let recorded = fixture("pods.pb");
    let expected: String = names(&pods(&recorded));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let get = |from: &str, format: &str| run(&["get", "pods", "-A", "-o", format, "--from", from]);
    let body = format!("{FIXTURES}pods.pb");
    assert_eq!(get(&body, "keys"), (Some(0), expected.clone(), String::new()));
    let (_, json, _) = get(&body, "json");
    let lines = get(&body, "jsonl").1;
    let tar = {
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (name, text) in [("dump/pods.json", &*json), ("dump/again.json", &json), ("dump/log.txt", "I1127 started")]
        {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            tar.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    };
    for (name, bytes) in [
        ("list.json", json.clone().into_bytes()),
        ("lines.jsonl", lines.into_bytes()),
        ("body.pb.zst", zstd::encode_all(&*recorded, 1).unwrap()),
        ("dump.tar.gz", tar),
    ] {
        fs::write(path(name), bytes).unwrap();
        assert_eq!(get(&path(name), "keys"), (Some(0), expected.clone(), String::new()), "{name}");
    }
    // Each object once, from all of them together.
    assert_eq!(get(&folder.path().to_string_lossy(), "keys").1.lines().count(), expected.lines().count());
    let (code, out, _) = ended(with_stdin(&["get", "pods", "-A", "-o", "keys", "--from", "-"], &recorded));
    assert_eq!((code, out), (Some(0), expected));
    fs::write(path("broken.json"), &json[..json.len() / 2]).unwrap();
    let (code, _, err) = get(&path("broken.json"), "keys");
    assert!(code == Some(1) && err.contains("broken.json"), "{err}");
    fs::write(path("other.txt"), "nothing").unwrap();
    let (code, _, err) = get(&path("other.txt"), "keys");
    assert_eq!(
        (code, err),
        (Some(1), format!("error: {}: it has no objects of Kubernetes in JSON, YAML or protobuf\n", path("other.txt")))
    );
}

#[test]
fn tells_what_takes_the_space_of_an_etcd_file_and_checks_it() {
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("usage.html");
    let (code, out, err) = run(&["stats", "--from", SMALL, "-o", "json", "--html", html.to_str().unwrap()]);
    assert_eq!((code, &*err), (Some(0), ""));
    let usage: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&usage["size"], &usage["total"]["keys"]), (&20_480.into(), &4.into()));
    assert_eq!(usage["largest"][0]["key"], "/registry/pods/default/pi-dqtsw");
    assert!(fs::read_to_string(&html).unwrap().contains("/registry/pods/default/pi-dqtsw"));
    let (code, out, _) = run(&["stats", "--from", SMALL, "--top", "1"]);
    assert!(code == Some(0) && out.contains("/registry/pods") && out.contains("3 others"), "{out}");
    // Of a resource, its objects.
    let (code, out, _) = run(&["stats", "pods", "--from", SMALL, "-o", "json"]);
    let stats: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &stats["items"], &stats["kind"]), (Some(0), &1.into(), &"PodList".into()));

    let checked =
        "checked: 11 buckets, 4 revisions up to 241828; the file has no SHA-256, so changed values cannot be found\n";
    assert_eq!(run(&["etcd", "check", SMALL]), (Some(0), String::new(), checked.to_owned()));
    let damaged = folder.path().join("damaged.db");
    let mut bytes = fs::read(SMALL).unwrap();
    bytes.truncate(9000);
    fs::write(&damaged, bytes).unwrap();
    let (code, _, err) = run(&["etcd", "check", damaged.to_str().unwrap()]);
    assert!(code == Some(1) && err.contains("truncated"), "{err}");
}

#[test]
fn mirrors_a_file_only_with_a_kubeconfig_for_its_token() {
    let (code, _, err) = run(&["mirror", "--from", SMALL, "--listen", "127.0.0.1:0"]);
    assert!(code == Some(2) && err.contains("--write-kubeconfig"), "{err}");
    let (code, _, err) = run(&["mirror", "pods", "--with-secrets"]);
    assert!(code == Some(2) && err.contains("--from"), "{err}");
}

/// The errors of bodies that are no whole list name the file, and exit with 1.
#[test]
fn names_the_fault_of_a_body() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fixture("pods.pb");
    for (name, body, expected) in [
        ("truncated.pb", &whole[..whole.len() / 2], "incomplete"),
        ("empty.pb", &[][..], "it has no objects of Kubernetes in JSON, YAML or protobuf"),
        ("page.html", &b"<html>no</html>"[..], "it has no objects of Kubernetes in JSON, YAML or protobuf"),
        ("status.json", &br#"{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"#[..], "incomplete"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, body).unwrap();
        for format in ["keys", "json", "wide"] {
            let (code, out, err) = run(&["get", "pods", "-A", "-o", format, "--from", path.to_str().unwrap()]);
            assert_eq!(code, Some(1), "{name} {format}: {err}");
            assert!(err.contains(name) && err.contains(expected), "{name} {format}: {err}");
            assert!(format != "json" || serde_json::from_str::<Value>(&out).is_err(), "{name}: {out}");
        }
    }
}
