//! Histories: what the commands print of the past.

use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use listwatch::Encoding;
use listwatch::client::Resource;
use listwatch_cache::{CacheWriter, ChangeLogLimits};
use listwatch_history::{Recorder, WriterOptions};
use serde_json::{Value, json};

use crate::support::listwatch;

/// The time of the first state.
const START: i64 = 1_800_000_000;

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = listwatch(args).env("TZ", "UTC").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn apply(writer: &CacheWriter<[u8]>, name: &str, version: u32, data: &str) {
    let state = json!({
        "metadata": {
            "namespace": "web", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
            "creationTimestamp": Timestamp::from_second(START - 3600).unwrap().to_string(),
            "managedFields": [{"manager": "kubectl-edit", "operation": "Update", "time": "2027-01-15T07:59:59Z",
                "fieldsV1": {"version": version}}],
        },
        "data": {"key": data},
    });
    writer.apply(Encoding::Json, state.to_string().as_bytes()).unwrap();
}

/// Records three states, 10 seconds apart, and after a gap of a minute a fourth.
fn record(dir: &Path) {
    let time = |seconds: i64| Timestamp::from_second(START).unwrap() + SignedDuration::from_secs(seconds);
    let writer = CacheWriter::<[u8]>::new(&Resource::CONFIG_MAPS).change_log(ChangeLogLimits::default());
    apply(&writer, "shop", 10, "one");
    let mut recorder = Recorder::open(dir, WriterOptions::default()).unwrap();
    recorder.attach(writer.cache());
    recorder.tick(time(0)).unwrap();
    apply(&writer, "shop", 11, "two");
    recorder.tick(time(10)).unwrap();
    apply(&writer, "other", 12, "x");
    drop(writer.delete(("web", "shop")).unwrap());
    recorder.tick(time(20)).unwrap();
    drop(recorder);
    let writer = CacheWriter::<[u8]>::new(&Resource::CONFIG_MAPS);
    apply(&writer, "other", 20, "y");
    let writer = writer.change_log(ChangeLogLimits::default());
    let mut recorder = Recorder::open(dir, WriterOptions::default()).unwrap();
    recorder.attach(writer.cache());
    recorder.tick(time(80)).unwrap();
}

#[test]
fn commands_read_any_recorded_moment() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("history");
    record(&dir);
    let dir = dir.to_str().unwrap();
    for (point, stdout) in [
        (&["--at-version", "10"][..], "NAME   DATA   AGE\nshop   1      60m\n"),
        (&["--at-version", "11"], "NAME   DATA   AGE\nshop   1      60m\n"),
        (&["--at", "2027-01-15T08:00:15Z"], "NAME   DATA   AGE\nshop   1      60m\n"),
        (&["--at", "2027-01-15 08:00:20"], "NAME    DATA   AGE\nother   1      60m\n"),
        (&["--at", "now"], "NAME    DATA   AGE\nother   1      61m\n"),
        (&[], "NAME    DATA   AGE\nother   1      61m\n"),
    ] {
        let (code, out, err) = run(&[&["get", "cm", "-n", "web", "--from", dir], point].concat());
        assert_eq!((code, &*out), (Some(0), stdout), "{point:?}: {err}");
        assert!(err.starts_with("reading: the history at 2027-01-15 08:0"), "{err}");
    }
    let (_, out, _) = run(&["get", "cm/shop", "-n", "web", "-o", "json", "--from", dir, "--at-version", "11"]);
    let object: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(object["data"]["key"], "two");
    for (args, code, fault) in [
        (&["--at", "2027-01-15T08:01:00Z"][..], 1, "nothing was recorded between version"),
        (&["--at-version", "15"], 1, "nothing was recorded between version 12 at 2027-01-15T08:00:20.000Z"),
        (&["--at-version", "9"], 1, "the first that was recorded is version 10"),
        (&["--at", "2027-01-15T09:00:00Z"], 1, "the last that was recorded is version 20"),
        (&["--at", "yesterday"], 2, "expected a time such as"),
    ] {
        let (found, out, err) = run(&[&["get", "cm", "-A", "--from", dir], args].concat());
        assert_eq!((found, &*out), (Some(code), ""), "{args:?}: {err}");
        assert!(err.contains(fault), "{args:?}: {err}");
    }
    let (code, _, err) = run(&["get", "pods", "-A", "--from", dir]);
    assert!(code == Some(1) && err.contains("pods is not in this history, which has configmaps"), "{err}");
}

#[test]
fn log_and_diff_print_changes_by_value_and_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("history");
    record(&dir);
    let dir = dir.to_str().unwrap();
    let (code, out, err) = run(&["log", "cm", "-A", "--from", dir]);
    let expected = "\
2027-01-15 08:00:10.000 +00:00  11  ~ web/shop  by kubectl-edit at 2027-01-15T07:59:59Z
    data.key: one → two
2027-01-15 08:00:20.000 +00:00  12  + web/other  by kubectl-edit at 2027-01-15T07:59:59Z
2027-01-15 08:00:20.000 +00:00  12  - web/shop
unknown from 2027-01-15 08:00:20.000 +00:00 to 2027-01-15 08:01:20.000 +00:00, versions 12 to 20: nothing was recorded
between 2027-01-15 08:00:20.000 +00:00 and 2027-01-15 08:01:20.000 +00:00  20  ~ web/other  by kubectl-edit at 2027-01-15T07:59:59Z
    data.key: x → y
";
    assert_eq!((code, &*out), (Some(0), expected), "{err}");
    assert_eq!(err, "unknown: what follows 2027-01-15 08:01:20.000 +00:00, version 20\n");
    let (_, out, _) =
        run(&["log", "cm/shop", "-n", "web", "--from", dir, "--to", "2027-01-15T08:00:10Z", "-o", "json"]);
    let change: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(change["patch"], json!([{"op": "replace", "path": "/data/key", "oldValue": "one", "value": "two"}]));
    assert_eq!(change["after"], "2027-01-15T08:00:00Z");
    let (_, out, _) =
        run(&["log", "cm", "-A", "--from", dir, "--where", "data.key", "--since", "2027-01-15T08:00:15Z"]);
    assert!(out.contains("web/other") && !out.contains("one → two"), "{out}");
    let (_, out, _) = run(&["log", "cm", "-A", "--from", dir, "--where", "data.ke"]);
    assert_eq!(out.lines().count(), 1, "only the gap: {out}");

    let (code, out, err) = run(&["diff", "cm", "-A", "--from", dir, "--at-version", "10", "--to-version", "11"]);
    assert_eq!((code, &*out), (Some(0), "~ web/shop\n    data.key: one → two\n"), "{err}");
    let (_, out, _) = run(&["diff", "cm", "-A", "--from", dir, "--at-version", "11", "--to", "now"]);
    assert_eq!(out, "+ web/other\n- web/shop\n");
    let (code, _, err) = run(&["diff", "cm", "-A", "--from", dir, "--at-version", "15"]);
    assert!(code == Some(1) && err.contains("is unknown"), "{err}");
}

#[test]
fn a_history_is_checked_exported_and_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    record(&path);
    let dir = path.to_str().unwrap();
    let (code, _, err) = run(&["history", "check", dir]);
    assert_eq!((code, &*err), (Some(0), "checked: 5 states of 2 objects in 1 part\n"));
    let (code, out, err) = run(&["history", "export", dir, "--since", "2027-01-15T08:00:05Z"]);
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!((code, types), (Some(0), vec!["MODIFIED", "ADDED", "DELETED", "GAP", "MODIFIED"]), "{err}");
    assert_eq!((&lines[0]["old"]["data"]["key"], &lines[0]["object"]["data"]["key"]), (&"one".into(), &"two".into()));
    let copy = folder.path().join("copy");
    let (code, _, err) = run(&["history", "export", dir, "--copy", copy.to_str().unwrap()]);
    assert_eq!((code, &*err), (Some(0), "copied: 1 part\n"));
    assert_eq!(run(&["log", "cm", "-A", "--from", dir]), run(&["log", "cm", "-A", "--from", copy.to_str().unwrap()]));
    let part = path.join("part-000001.db");
    let mut bytes = fs::read(&part).unwrap();
    let at = bytes.windows(4).rposition(|window| window == b"shop").unwrap();
    bytes[at] ^= 1;
    fs::write(&part, bytes).unwrap();
    let (code, _, err) = run(&["history", "check", dir]);
    assert!(code == Some(1) && err.contains("part-000001.db is damaged"), "{err}");
}

#[test]
fn a_second_resource_is_no_file() {
    for (args, fault) in [
        (&["record", "pods", "nodes"][..], "nodes is a resource: write `--history DIR` to record several"),
        (&["record", "pods", "deploy,nodes"], "is a resource"),
        (&["record", "pods", "a.pb", "b.pb"], "name one FILE"),
        (&["record", "pods"], "required"),
        (&["record", "pods", "--keep", "14d", "a.pb"], "--history"),
        (&["record", "pods", "--history", "x", "--keep", "14"], "expected a number with a unit"),
        (&["record", "pods", "--history", "x", "--max-size", "1"], "it must be at least 1M"),
        (&["record", "pods", "-l", "a=b", "--history", "x"], "a history has all objects whole"),
    ] {
        let (code, _, err) = run(args);
        assert!(code == Some(2) && err.contains(fault), "{args:?}: {err}");
    }
}
