//! `listwatch watch` against a server: what it requests and prints, and how it ends.

use std::io::{BufRead, BufReader, Read};
use std::slice::from_ref;

use listwatch_testserver::{Answer, Body};

use crate::support::api::{Api, config_map, event, expired, frame, initial_end, status};
use crate::support::protobuf::later_config_map;
use crate::support::{listwatch, signal, stderr, stdout};

fn watch(events: &[String]) -> Answer {
    Answer::ok(Body::replay(events.concat()))
}

/// The list from which a watch learns the current version.
fn now(version: &str) -> Answer {
    let meta = format!(r#""metadata":{{"resourceVersion":"{version}"}},"items":[]"#);
    let list = format!(r#"{{"kind":"ConfigMapList","apiVersion":"v1",{meta}}}"#);
    Answer::ok(Body::replay(list))
}

fn changes() -> Vec<String> {
    vec![
        event("ADDED", "a", 8, r#","data":{"k":"1"}"#),
        event("MODIFIED", "a", 9, r#","data":{"k":"2"}"#),
        event("DELETED", "a", 10, r#","data":{"k":"2"}"#),
    ]
}

/// It sends no request for the resource: servers answer a watch with 405, or with a list.
#[test]
fn explains_that_a_resource_cannot_be_watched() {
    let api = Api::by(|request, _| {
        let document = match &*request.path {
            "/apis" => {
                r#"{"kind":"APIGroupList","groups":[{"name":"metrics.k8s.io","versions":[{"version":"v1beta1"}]}]}"#
            }
            _ => {
                r#"{"kind":"APIResourceList","resources":[{"name":"pods","singularName":"","namespaced":true,
                "kind":"PodMetrics","verbs":["get","list"]}]}"#
            }
        };
        Answer::ok(Body::replay(document)).content_type("application/json")
    });
    for (args, beginning, code) in [
        (&["watch", "pods.metrics.k8s.io", "-A"][..], "error: ", 2),
        (&["watch", "pods.metrics.k8s.io", "--initial"], "error: ", 2),
        (&["mirror", "pods.metrics.k8s.io", "--listen", "127.0.0.1:0"], "error: pods.metrics.k8s.io: ", 1),
    ] {
        let output = api.run(args);
        let expected = format!("{beginning}pods.metrics.k8s.io cannot be watched: the server only lists it\n");
        assert!(stderr(&output).ends_with(&expected), "{args:?}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
    assert!(api.paths().iter().all(|path| !path.ends_with("pods")), "{:?}", api.paths());
}

/// A 403 ends each watch.
#[test]
fn prints_a_line_per_event_and_resumes() {
    let forbidden = || status(403, "Forbidden", "no");
    for (args, answers, expected, notices, requests) in [
        (
            vec![],
            vec![now("7"), watch(&changes()), forbidden()],
            "+ web/a 8\n~ web/a 9\n- web/a 10\n",
            vec!["resuming in ", " s from version 9: the server ended the watch\n", "error: API error: 403"],
            vec!["limit=1", "resourceVersion=7", "resourceVersion=9"],
        ),
        (
            vec!["--resource-version", "5"],
            vec![watch(&changes()[..1]), forbidden()],
            "+ web/a 8\n",
            vec![" s from version 5: "],
            vec!["resourceVersion=5", "resourceVersion=5"],
        ),
        (
            vec!["--initial"],
            vec![watch(&[changes()[0].clone(), initial_end(8)]), forbidden()],
            "+ web/a 8\n",
            vec!["synced: 1 objects at version 8"],
            vec!["sendInitialEvents=true", "resourceVersion=8"],
        ),
        (
            vec!["--initial"],
            vec![watch(&changes()[..1]), watch(&[changes()[0].clone(), initial_end(8)]), forbidden()],
            "+ web/a 8\n+ web/a 8\n",
            vec![" s from the start: ", "printed again from the first", "synced: 1 objects"],
            vec!["sendInitialEvents=true", "sendInitialEvents=true", "resourceVersion=8"],
        ),
        (
            vec![],
            vec![now("7"), watch(&[expired()]), now("27"), forbidden()],
            "",
            vec!["too old: watching from the most recent version; changes in between are lost"],
            vec!["limit=1", "resourceVersion=7", "limit=1", "resourceVersion=27"],
        ),
    ] {
        let api = Api::new(answers);
        let output = api.run(&[&["watch", "cm", "-n", "web"], &args[..]].concat());
        assert_eq!(stdout(&output), expected, "{args:?}: {}", stderr(&output));
        for notice in notices {
            assert!(stderr(&output).contains(notice), "{args:?}: expected {notice}: {}", stderr(&output));
        }
        assert_eq!(output.status.code(), Some(1));
        let paths = api.paths();
        assert_eq!(paths.len(), requests.len(), "{paths:?}");
        for (path, query) in paths.iter().zip(requests) {
            assert!(path.starts_with("/api/v1/namespaces/web/configmaps?") && path.contains(query), "{path}: {query}");
        }
    }
}

/// The objects with which a watch with `--diff` begins, and then these events.
fn synced_watch(events: &[String]) -> Answer {
    let initial = [event("ADDED", "a", 7, r#","data":{"k":"0"}"#), event("ADDED", "b", 6, ""), initial_end(7)];
    watch(&[&initial[..], events].concat())
}

#[test]
fn prints_the_values_that_changed() {
    let forbidden = || status(403, "Forbidden", "no");
    let [modified, again] = [(8, r#","data":{"k":"v","x.y":"z"}"#), (9, r#","data":{"k":"v","x.y":"z"}"#)]
        .map(|(version, rest)| event("MODIFIED", "a", version, rest));
    let created = event("ADDED", "c", 10, r#","data":{"k":"1"}"#);
    let deleted =
        [event("DELETED", "a", 11, ""), event("ADDED", "a", 12, ""), event("MODIFIED", "a", 13, r#","data":{}"#)];
    let events = [&[modified.clone(), again.clone(), created][..], &deleted].concat();
    let object = config_map("a", 8, r#","data":{"k":"v","x.y":"z"}"#);
    for (args, answers, expected, notices, requests) in [
        // Also the first change, without the initial objects.
        (
            vec![],
            vec![synced_watch(&events), forbidden()],
            "~ web/a 8\n    data.k: \"0\" → v\n    data[x.y]: (none) → z\n~ web/a 9 none\n+ web/c 10\n- web/a 11\n+ web/a 12\n\
             ~ web/a 13\n    data: (none) → {}\n",
            vec!["synced: 2 objects at version 7"],
            vec!["sendInitialEvents=true", "resourceVersion=12"],
        ),
        (
            vec!["--initial"],
            vec![synced_watch(from_ref(&modified)), forbidden()],
            "+ web/a 7\n+ web/b 6\n~ web/a 8\n    data.k: \"0\" → v\n    data[x.y]: (none) → z\n",
            vec!["synced: 2 objects at version 7"],
            vec!["sendInitialEvents=true", "resourceVersion=7"],
        ),
        // The initial objects are interrupted, and then the version expires.
        (
            vec![],
            vec![
                watch(&[event("ADDED", "a", 4, ""), event("ADDED", "gone", 5, "")]),
                synced_watch(&[modified.clone(), expired()]),
                synced_watch(&[]),
                watch(&[again.clone(), event("ADDED", "gone", 10, "")]),
                forbidden(),
            ],
            "~ web/a 8\n    data.k: \"0\" → v\n    data[x.y]: (none) → z\n~ web/a 9\n    data.k: \"0\" → v\n    data[x.y]: (none) → z\n\
             + web/gone 10\n",
            vec![": watching from the most recent version; changes in between are lost"],
            vec![
                "sendInitialEvents=true",
                "sendInitialEvents=true",
                "sendInitialEvents=true",
                "resourceVersion=7",
                "resourceVersion=9",
            ],
        ),
        (
            vec!["--resource-version", "7"],
            vec![watch(&[modified.clone(), again.clone()]), forbidden()],
            "~ web/a 8 -\n~ web/a 9 none\n",
            vec![],
            vec!["resourceVersion=7", "resourceVersion=8"],
        ),
        (
            vec!["-o", "json"],
            vec![synced_watch(from_ref(&modified)), forbidden()],
            &format!(
                "{{\"type\":\"MODIFIED\",\"patch\":[{},{}],\"object\":{object}}}\n",
                r#"{"oldValue":"0","op":"replace","path":"/data/k","value":"v"}"#,
                r#"{"op":"add","path":"/data/x.y","value":"z"}"#
            ),
            vec![],
            vec!["sendInitialEvents=true", "resourceVersion=7"],
        ),
    ] {
        let api = Api::new(answers);
        let output = api.run(&[&["watch", "cm", "-n", "web", "--diff"], &args[..]].concat());
        assert_eq!(stdout(&output), expected, "{args:?}: {}", stderr(&output));
        for notice in notices {
            assert!(stderr(&output).contains(notice), "{args:?}: expected {notice}: {}", stderr(&output));
        }
        assert!(!stderr(&output).contains("printed again"), "{args:?}: {}", stderr(&output));
        let paths = api.paths();
        assert_eq!(paths.len(), requests.len(), "{args:?}: {paths:?}");
        for (path, query) in paths.iter().zip(requests) {
            assert!(path.contains(query), "{path}: {query}");
        }
    }
}

#[test]
fn prints_values_of_secrets_only_on_request() {
    const SECRET: &str = r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a","namespace":"web","uid":"a","resourceVersion":"VERSION"},"data":{"password":"DATA"}}"#;
    let event = |kind: &str, version: &str, data: &str| {
        let object = SECRET.replace("VERSION", version).replace("DATA", data);
        format!(r#"{{"type":"{kind}","object":{object}}}"#) + "\n"
    };
    let end = initial_end(7).replace("ConfigMap", "Secret");
    for (args, expected) in [
        (&[][..], "*** (before) → *** (after)"),
        (&["--show-secrets"], "b2xk → bmV3"),
        (&["-o", "json"], r#""oldValue":"*** (before)","op":"replace","path":"/data/password","value":"*** (after)""#),
    ] {
        let events = watch(&[event("ADDED", "7", "b2xk"), end.clone(), event("MODIFIED", "8", "bmV3")]);
        let api = Api::new([events, status(403, "Forbidden", "no")]);
        let output = api.run(&[&["watch", "secrets", "-n", "web", "--diff"], args].concat());
        assert!(stdout(&output).contains(expected), "{args:?}: {}{}", stdout(&output), stderr(&output));
        assert_eq!(stdout(&output).contains("b2xk"), args == ["--show-secrets"], "{args:?}: {}", stdout(&output));
    }
}

/// Without `-o json`, a watch requests protobuf, which may have unknown fields.
#[test]
fn warns_of_fields_that_are_not_compared() {
    let frames = [8, 9, 10]
        .map(|version| frame(if version == 8 { "ADDED" } else { "MODIFIED" }, &later_config_map("a", version)));
    let frames =
        Answer::ok(Body::replay(frames.concat())).content_type("application/vnd.kubernetes.protobuf;stream=watch");
    let api = Api::new([frames, status(403, "Forbidden", "no")]);
    let output = api.run(&["watch", "cm", "-n", "web", "--diff", "--resource-version", "7"]);
    assert_eq!(stdout(&output), "+ web/a 8\n~ web/a 9 none\n~ web/a 10 none\n");
    let expected = "warning: left out 2 fields that this version does not know; JSON from the server has them\nerror: ";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}

#[test]
fn compares_no_object_without_a_name() {
    for events in [
        [event("ADDED", "", 7, ""), initial_end(7)],
        [initial_end(7), event("ADDED", "", 8, "")],
        [initial_end(7), event("DELETED", "", 8, "")],
    ] {
        let api = Api::new([watch(&events)]);
        let output = api.run(&["watch", "cm", "-n", "web", "--diff"]);
        let text = stderr(&output);
        assert!(text.ends_with("error: cannot compare an object: the object has no name\n"), "{text}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
#[cfg(unix)]
fn prints_counts_on_an_interrupt() {
    for sent in ["-INT", "-TERM"] {
        let stalled = Answer::ok(Body::replay(changes().concat()).stall_at(changes().concat().len() as u64));
        let api = Api::new([now("7"), stalled]);
        let mut child = api.command(&["watch", "cm", "-n", "web"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for expected in ["+ web/a 8", "~ web/a 9", "- web/a 10"] {
            assert_eq!(lines.next().unwrap().unwrap(), expected);
        }
        signal(&child, sent);
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(
            (&*text, child.wait().unwrap().code()),
            ("1 added, 1 modified, 1 deleted, up to version 9\n", Some(0))
        );
    }
}

#[test]
#[cfg(unix)]
fn reports_the_memory_of_the_compared_objects() {
    let events = [event("ADDED", "a", 7, ""), initial_end(7), event("ADDED", "b", 8, "")].concat();
    let len = events.len() as u64;
    let api = Api::new([Answer::ok(Body::replay(events).stall_at(len))]);
    let mut child = api.command(&["watch", "cm", "-n", "web", "--diff"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "+ web/b 8\n");
    signal(&child, "-INT");
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    let totals = text.strip_prefix("synced: 1 objects at version 7\n").unwrap_or_else(|| panic!("{text}"));
    let memory =
        totals.strip_prefix("1 added, 0 modified, 0 deleted, up to version 7; 2 objects kept for comparison, ");
    assert!(memory.is_some_and(|memory| memory.ends_with("B\n")), "{text}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn prints_each_server_warning_once_over_all_connections() {
    let warned = |answer: Answer, text: &str| answer.header("warning", &format!("299 - \"{text}\""));
    let api = Api::new([
        now("7"),
        warned(watch(&changes()[..1]), "v1 is deprecated"),
        warned(watch(&changes()[1..2]), "v1 is deprecated"),
        warned(watch(&changes()[2..]), "v1 is gone from 1.40"),
        status(403, "Forbidden", "no"),
    ]);
    let output = api.run(&["watch", "cm", "-n", "web"]);
    let warnings: Vec<_> = stderr(&output).lines().filter(|line| line.starts_with("warning:")).collect();
    assert_eq!(warnings, ["warning: v1 is deprecated", "warning: v1 is gone from 1.40"]);
    assert_eq!(stdout(&output).lines().count(), 3);
}

#[test]
fn rejects_wrong_usage() {
    for (args, expected) in [
        (vec!["watch", "cm", "--initial", "--resource-version", "7"], "cannot be used with"),
        (vec!["watch", "cm", "--limit", "7"], "unexpected argument"),
        (vec!["watch", "cm", "-o", "table"], "expected one of name, json, yaml"),
        (vec!["watch"], "<RESOURCE>"),
        (vec!["watch", "cm", "--show-secrets"], "--diff"),
    ] {
        let output = listwatch(&args).output().unwrap();
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(2));
    }
}
