//! A watch that resumes delivers each change once and in order, however its connections end.

use listwatch::client::{TransportErrorKind, WatchParams};

use crate::support::config_maps::{self, added, bookmark, error, event, initial_end};
use crate::support::transport::{Answer, Scripted};
use crate::support::{body_of, event_frame, len_field};
use crate::{SECOND, between, exact, kinds, list, resumed, watch, written};

/// A case has answers, the events, the requested versions and the version reached, and the error. The end of the script
/// is fatal.
#[tokio::test(start_paused = true)]
async fn resumes_from_the_last_version() {
    let end = "the script has ended";
    let expired = "API error: 410";
    for (answers, expected, versions, ends) in [
        // Every end of a connection.
        (vec![Answer::pieces([added("a", 8)]), Answer::pieces([added("b", 9)])], "+a +b", "7 7 8 to 8", end),
        (
            vec![Answer::pieces([added("a", 8)]).then_reset(), Answer::pieces([added("b", 9)])],
            "+a +b",
            "7 7 8 to 8",
            end,
        ),
        (vec![Answer::pieces([[added("a", 8), added("b", 9)[..30].to_vec()].concat()])], "+a", "7 7 to 7", end),
        (vec![Answer::pieces([added("a", 8), error(500)]), Answer::pieces([error(504)])], "+a", "7 7 7 to 7", end),
        (vec![Answer::status(429), Answer::status(503), Answer::pieces([added("a", 8)])], "+a", "7 7 7 7 to 7", end),
        (vec![Answer::status(408), Answer::status(502), Answer::pieces([added("a", 8)])], "+a", "7 7 7 7 to 7", end),
        (
            vec![Answer::fails(TransportErrorKind::ReadIdle, ""), Answer::pieces([added("a", 8)])],
            "+a",
            "7 7 7 to 7",
            end,
        ),
        // A role, a resource, credentials or a proxy may be fixed later.
        (
            vec![Answer::status(403), Answer::status(404), Answer::status(403), Answer::pieces([added("a", 8)])],
            "+a",
            "7 7 7 7 7 to 7",
            end,
        ),
        (vec![Answer::status(401), Answer::status(401), Answer::pieces([added("a", 8)])], "+a", "7 7 7 7 to 7", end),
        (
            vec![Answer::fails(TransportErrorKind::Credentials, ""), Answer::pieces([added("a", 8)])],
            "+a",
            "7 7 7 to 7",
            end,
        ),
        (vec![Answer::pieces([b"<html>".to_vec()]), Answer::pieces([added("a", 8)])], "+a", "7 7 7 to 7", end),
        // Bookmarks advance the version, and never move it back.
        (
            vec![Answer::pieces([bookmark(20), bookmark(15)]), Answer::pieces([added("a", 21)])],
            "+a",
            "7 20 20 to 20",
            end,
        ),
        // Within a connection nothing is a repetition. Events of older versions do not move the version back.
        (
            vec![Answer::pieces([added("a", 8), added("a", 8), event("MODIFIED", "a", 10), added("b", 9)])],
            "+a +a ~a +b",
            "7 8 to 8",
            end,
        ),
        // A deletion may have an old version. A repeated deletion is dropped.
        (
            vec![
                Answer::pieces([added("a", 8), added("b", 9), event("DELETED", "a", 8)]),
                Answer::pieces([event("DELETED", "a", 8), added("a", 12), event("DELETED", "a", 12)]),
                Answer::pieces([event("DELETED", "a", 12), event("DELETED", "a", 8)]),
            ],
            "+a +b -a +a -a",
            "7 8 9 9 to 9",
            end,
        ),
        (
            vec![Answer::pieces([added("a", 8), event("DELETED", "a", 9)]), Answer::pieces([added("a", 10)])],
            "+a -a +a",
            "7 8 9 to 9",
            end,
        ),
        // Errors that end the watch.
        (vec![Answer::pieces([added("a", 8), error(410)])], "+a", "7 to 7", expired),
        (vec![Answer::pieces([event("DELETED", "a", 8)]), Answer::status(410)], "-a", "7 7 to 7", expired),
        (vec![Answer::pieces([added("a", 8)]), Answer::status(410), Answer::status(410)], "+a", "7 7 8 to 8", expired),
        (vec![Answer::status(400)], "", "7 to 7", "API error: 400"),
        (vec![Answer::status(422)], "", "7 to 7", "API error: 422"),
        (vec![Answer::fails(TransportErrorKind::Tls, "")], "", "7 to 7", "TLS"),
        (vec![Answer::pieces([added("a", 8), b"\0\0\0\0".to_vec()])], "+a", "7 to 7", "frame"),
        // An event that cannot be decoded is not delivered.
        (
            vec![Answer::pieces([
                added("a", 8),
                event_frame("ADDED", &body_of("v1", "ConfigMap", b"\x0a\x08\x32\x0210\x0a\x02\xff")),
            ])],
            "+a",
            "7 to 7",
            "past the end of its parent",
        ),
    ] {
        let server = Scripted::in_turn(answers);
        let (events, error, version) = resumed(watch(&server.client(), &exact(7))).await;
        assert_eq!(events.join(" "), expected, "{error}");
        assert!(crate::support::chain(&error).contains(ends), "{error}, expected {ends}");
        let paths = server.paths();
        let requested: Vec<_> = paths.iter().map(|path| between(path, "resourceVersion=", "&")).collect();
        assert_eq!(format!("{} to {}", requested.join(" "), version.unwrap()), versions, "{events:?}");
        assert!(paths.iter().all(|path| !path.contains("sendInitialEvents")));
    }
}

#[tokio::test(start_paused = true)]
async fn fail_fast_ends_the_watch_on_lasting_errors() {
    for (answer, ends) in [
        (Answer::status(401), "API error: 401"),
        (Answer::status(403), "API error: 403"),
        (Answer::status(404), "API error: 404"),
        (Answer::fails(TransportErrorKind::Credentials, ""), "credentials"),
        (Answer::pieces([b"<html>".to_vec()]), "HTML"),
    ] {
        for options in [exact(7), WatchParams::with_initial_state()] {
            let server = Scripted::in_turn([Answer::status(503), answer.clone()]);
            let (_, error, _) = resumed(watch(&server.client(), &options).fail_fast()).await;
            assert!(crate::support::chain(&error).contains(ends), "{error}, expected {ends}");
            assert_eq!(server.requests(), 2, "{ends}");
        }
    }
    // A 401 is retried once if the transport reads its credentials again.
    let answers = [Answer::status(401), Answer::pieces([added("a", 8)]), Answer::status(401), Answer::status(401)];
    let server = Scripted::in_turn(answers).renewing_credentials();
    let (events, error, _) = resumed(watch(&server.client(), &exact(7)).fail_fast()).await;
    assert_eq!((&*events.join(" "), error.code(), server.requests()), ("+a", Some(401), 4));
    assert!(server.waits()[0].is_zero() && server.waits()[2].is_zero(), "{:?}", server.waits());
}

/// kube's watcher does the same.
#[tokio::test(start_paused = true)]
async fn start_over_requests_the_collection_after_410() {
    let whole = |version: u64| Answer::pieces([added("a", 5), initial_end(version)]);
    for (options, answers, expected, requests) in [
        (
            exact(7),
            vec![Answer::pieces([added("b", 8), error(410)]), whole(20), Answer::pieces([added("c", 21)])],
            "+b reset +a synced 20 +c",
            "7 initial 20 20",
        ),
        (
            exact(7),
            vec![Answer::pieces([added("b", 8)]), Answer::status(410), Answer::status(410), whole(20)],
            "+b reset +a synced 20",
            "7 7 8 initial 20",
        ),
        (
            exact(7),
            vec![Answer::status(410), Answer::status(410), whole(20)],
            "reset +a synced 20",
            "7 initial initial 20",
        ),
        (
            WatchParams::with_initial_state(),
            vec![whole(8), Answer::status(410), whole(20), Answer::pieces([error(410)]), whole(30)],
            "+a synced 8 reset +a synced 20 reset +a synced 30",
            "initial 8 initial 20 initial 30",
        ),
        // By a list, because the server has refused initial events.
        (
            WatchParams::with_initial_state(),
            vec![Answer::status(422), list(&["a"], "8"), Answer::status(410), list(&["a"], "9")],
            "+a synced 8 reset +a synced 9",
            "initial list 8 list 9",
        ),
    ] {
        let server = Scripted::in_turn(answers);
        let mut watch = watch(&server.client(), &options).start_over();
        let mut events = Vec::new();
        while let Some(Ok(event)) = watch.next().await {
            let event = written(event);
            if event == "reset" {
                assert_eq!(watch.resource_version(), None);
            }
            events.push(event);
        }
        assert_eq!(events.join(" "), expected);
        assert_eq!(kinds(&server), requests);
    }
}

/// A version that differs from the last one counts as newer.
#[tokio::test(start_paused = true)]
async fn events_whose_versions_do_not_compare_are_all_delivered() {
    let events = [
        ("ADDED", "a", "x8"),
        ("ADDED", "b", "x9"),
        ("ADDED", "a", "x8"),
        ("DELETED", "a", "x10"),
        ("DELETED", "b", "x11"),
        ("DELETED", "a", "x10"),
    ];
    let frame = |(event, name, version)| {
        event_frame(event, &body_of("v1", "ConfigMap", &config_maps::config_map(name, version)))
    };
    let server = Scripted::in_turn([Answer::pieces(events.map(frame))]);
    let (events, _, version) = resumed(watch(&server.client(), &exact(7))).await;
    assert_eq!((&*events.join(" "), version.as_deref()), ("+a +b +a -a -b -a", Some("x11")));
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_names_its_cause_version_and_wait() {
    let answers = [
        Answer::status(500),
        Answer::pieces([added("a", 5)]),
        Answer::status(422),
        list(&["a"], "8").cut(3),
        Answer::status(503),
        list(&["a"], "8"),
        Answer::pieces([added("b", 9)]),
        Answer::status(429),
    ];
    let (disconnects, mut disconnected) = tokio::sync::mpsc::unbounded_channel();
    let watch = watch(&Scripted::in_turn(answers).client(), &WatchParams::with_initial_state());
    let _ = resumed(watch.on_disconnect(move |at| drop(disconnects.send(at.clone())))).await;
    for (cause, version, lists) in [
        ("API error: 500", None, false),
        ("ended", None, false),
        ("API error: 422", None, true),
        ("incomplete: ", None, true),
        ("API error: 503", None, true),
        ("ended", Some("8"), false),
        ("API error: 429", Some("8"), false),
    ] {
        let disconnect = disconnected.try_recv().unwrap();
        let error = disconnect.error.as_ref().map_or("ended".to_owned(), ToString::to_string);
        assert!(error.starts_with(cause), "{error}, expected {cause}");
        assert_eq!((disconnect.resource_version.as_deref(), disconnect.lists), (version, lists), "{cause}");
        // A list in place of refused initial events is requested at once.
        assert_eq!(disconnect.wait.is_zero(), cause == "API error: 422", "{cause}");
    }
    assert!(disconnected.try_recv().is_err());
}

/// When a lease of etcd expires, its objects are deleted at one version.
#[tokio::test(start_paused = true)]
async fn resumes_before_events_that_share_a_version() {
    let deleted = |name: &str, version: u64| event("DELETED", name, version);
    let both = || [deleted("a", 9), deleted("b", 9)];
    for (case, answers, expected, versions) in [
        (
            "a break between two deletions",
            vec![Answer::pieces([deleted("a", 9)]), Answer::pieces([deleted("a", 9), deleted("b", 9), added("c", 10)])],
            "-a -b +c",
            "7 7 9",
        ),
        (
            "a break after both",
            vec![Answer::pieces(both()), Answer::pieces(both()), Answer::pieces(both())],
            "-a -b",
            "7 7 7 7",
        ),
        (
            "another order",
            vec![Answer::pieces(both()), Answer::pieces([deleted("c", 9), deleted("b", 9), deleted("a", 9)])],
            "-a -b -c",
            "7 7 7",
        ),
        ("a bookmark", vec![Answer::pieces(both().into_iter().chain([bookmark(9)]))], "-a -b", "7 9"),
        (
            "a newer version",
            vec![Answer::pieces([deleted("a", 9), added("b", 10)]), Answer::pieces([added("b", 10), added("c", 10)])],
            "-a +b +c",
            "7 9 9",
        ),
        (
            "another event, uid or version of the same object",
            vec![
                Answer::pieces([event("MODIFIED", "a", 9)]),
                Answer::pieces([event("MODIFIED", "a", 9), deleted("a", 9), added("a", 11)]),
            ],
            "~a -a +a",
            "7 7 9",
        ),
        (
            "an event that the server repeats after another event of its object",
            vec![Answer::pieces([added("a", 9)]), Answer::pieces([deleted("a", 8), added("a", 9)])],
            "+a -a +a",
            "7 7 7",
        ),
        (
            "an older deletion before and after a newer version",
            vec![
                Answer::pieces([added("b", 9), deleted("a", 3)]),
                Answer::pieces([added("b", 9), deleted("a", 3), added("a", 12)]),
                Answer::pieces([deleted("a", 3), added("a", 12)]),
            ],
            "+b -a +a",
            "7 7 9 9",
        ),
    ] {
        let server = Scripted::in_turn(answers);
        let (events, error, _) = resumed(watch(&server.client(), &exact(7))).await;
        assert_eq!(events.join(" "), expected, "{case}: {error}");
        assert_eq!(kinds(&server), versions, "{case}");
    }
    // An expired lease may have many objects.
    let many = || (0..3000).map(|n| event("DELETED", &format!("cm-{n}"), 9));
    let server = Scripted::in_turn([
        Answer::pieces(many().take(2000)),
        Answer::pieces(many()),
        Answer::pieces(many().chain([added("a", 10)])),
    ]);
    let (events, _, _) = resumed(watch(&server.client(), &exact(7))).await;
    assert_eq!((events.len(), kinds(&server).as_str()), (3001, "7 7 7 9"));
}

/// Without bookmarks, the version before the last event may have expired while the server still has the last one. No
/// event of that version can be missing, unless it is a deletion: an expired lease deletes several objects.
#[tokio::test(start_paused = true)]
async fn resumes_from_the_last_event_if_the_version_before_has_expired() {
    let expired = || Answer::status(410);
    let silent = || vec![Answer::default(); 3];
    for (case, answers, expected, versions, is_expired) in [
        (
            "a status",
            vec![Answer::pieces([added("a", 9)]), expired(), Answer::pieces([added("b", 10)])],
            "+a +b",
            "7 7 9 9",
            false,
        ),
        (
            "an event",
            vec![Answer::pieces([added("a", 9)]), Answer::pieces([error(410)]), Answer::pieces([added("b", 10)])],
            "+a +b",
            "7 7 9 9",
            false,
        ),
        (
            "watches without progress",
            [vec![Answer::pieces([added("a", 9)])], silent(), vec![Answer::pieces([added("b", 10)])]].concat(),
            "+a +b",
            "7 7 7 7 9 9",
            false,
        ),
        (
            "a repeated event is dropped",
            vec![Answer::pieces([added("a", 9)]), expired(), Answer::pieces([added("a", 9), added("b", 10)])],
            "+a +b",
            "7 7 9 9",
            false,
        ),
        ("both have expired", vec![Answer::pieces([added("a", 9)]), expired(), expired()], "+a", "7 7 9", true),
        ("a deletion", vec![Answer::pieces([event("DELETED", "a", 9)]), expired()], "-a", "7 7", true),
        (
            "two writes of one version",
            vec![Answer::pieces([added("a", 9), added("b", 9)]), expired()],
            "+a +b",
            "7 7",
            true,
        ),
        (
            "versions without an order",
            vec![
                Answer::pieces([event_frame(
                    "ADDED",
                    &body_of("v1", "ConfigMap", &config_maps::config_map("a", "x9")),
                )]),
                expired(),
            ],
            "+a",
            "7 7",
            true,
        ),
    ] {
        let server = Scripted::in_turn(answers);
        let (events, error, _) = resumed(watch(&server.client(), &exact(7))).await;
        assert_eq!(events.join(" "), expected, "{case}: {error}");
        assert_eq!((kinds(&server).as_str(), error.is_expired()), (versions, is_expired), "{case}: {error}");
    }
}

/// `OpenShift` sends projects at their own versions when a user gets access to them, and only the name when the user
/// loses it.
#[tokio::test(start_paused = true)]
async fn delivers_events_with_older_versions_or_none() {
    let gone = |name: &str| event("DELETED", name, "");
    for (case, answers, expected, versions) in [
        (
            "older versions",
            vec![Answer::pieces([added("a", 20), added("b", 20), added("c", 21), added("d", 5)])],
            "+a +b +c +d",
            "7 20",
        ),
        (
            "after a reconnect",
            vec![Answer::pieces([added("a", 20)]), Answer::pieces([added("b", 20), added("d", 5)])],
            "+a +b +d",
            "7 7 7",
        ),
        (
            "a deletion without a version",
            vec![
                Answer::pieces([added("a", 8), added("b", 9), gone("a"), gone("c")]),
                Answer::pieces([added("d", 11)]),
            ],
            "+a +b -a -c +d",
            "7 8 9",
        ),
        (
            "access that is lost and returns, on one connection and on others",
            vec![
                Answer::pieces([added("a", 9), gone("a"), added("a", 9), gone("a")]),
                Answer::pieces([added("a", 9)]),
                Answer::pieces([gone("a"), added("a", 9)]),
            ],
            "+a -a +a -a +a -a +a",
            "7 7 7 7",
        ),
    ] {
        let server = Scripted::in_turn(answers);
        let (events, error, _) = resumed(watch(&server.client(), &exact(7))).await;
        assert_eq!(events.join(" "), expected, "{case}: {error}");
        assert_eq!(kinds(&server), versions, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn ignores_bookmarks_from_which_no_watch_can_resume() {
    let empty = event_frame("BOOKMARK", &body_of("v1", "ConfigMap", b""));
    // `type` without an object.
    let none = [&12_u32.to_be_bytes()[..], &len_field(1, b"BOOKMARK"), &len_field(2, b"")].concat();
    let json = |object: &str| format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").into_bytes();
    let added_in_json = br#"{"type":"ADDED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"9"}}}"#;
    for (is_json, odd) in [
        (false, bookmark(0)),
        (false, bookmark("00")),
        (false, bookmark("")),
        (false, bookmark(3)),
        (false, empty),
        (false, none),
        (true, json(r#"{"metadata":{"resourceVersion":"0"}}"#)),
        (true, json(r#"{"metadata":{"creationTimestamp":null}}"#)),
        (true, json(r#"{"metadata":null}"#)),
        (true, json("{}")),
        (true, json("null")),
        (true, b"{\"type\":\"BOOKMARK\"}\n".to_vec()),
    ] {
        let first = if is_json { added_in_json.to_vec() } else { added("a", 9) };
        let server = Scripted::in_turn([Answer::pieces([first, odd.clone()]), Answer::default()]);
        let (events, error, version) = resumed(watch(&server.client(), &exact(7))).await;
        assert_eq!((&*events.join(" "), version.as_deref()), ("+a", Some("7")), "{error}, {odd:?}");
        assert_eq!(kinds(&server), "7 7 7", "{odd:?}");
    }
    // The bookmark after the initial events, and a list: the watch has no version to begin at.
    for version in ["", "0"] {
        let unusable = Answer::pieces([added("a", 5), initial_end(version)]).then_stalls();
        let server = Scripted::in_turn([unusable, list(&["a"], version)]);
        let (events, error, reached) = resumed(watch(&server.client(), &WatchParams::with_initial_state())).await;
        assert_eq!((&*events.join(" "), reached), ("+a reset +a", None));
        assert!(error.to_string().contains("metadata.resourceVersion"), "{error}");
        assert_eq!(kinds(&server), "initial list");
    }
}

/// Some servers end each watch of an expired version at once, or send an error that does not name the cause.
#[tokio::test(start_paused = true)]
async fn a_version_without_progress_counts_as_expired() {
    let nothing = || vec![Answer::default(); 20];
    let failing = |answer: Answer| vec![answer; 20];
    let after = |seconds: u32| failing(Answer::default().then_ends(SECOND * seconds));
    let ended = "may have expired: 3 watches from it ended at once, without an event";
    let failed = "may have expired: 8 watches from it failed without an event, the last with ";
    for (case, answers, requests, ends) in [
        ("ends at once", nothing(), 3, Some(ended)),
        ("500 as a response", failing(Answer::status(500)), 8, Some(failed)),
        ("500 as an event", failing(Answer::pieces([error(500)])), 8, Some(failed)),
        ("504", failing(Answer::status(504)), 8, Some(failed)),
        ("reset at once", failing(Answer::default().then_reset()), 8, Some(failed)),
        // These say nothing about the version.
        ("a proxy's 504", failing(Answer::ok("<html>").code(504)), 21, None),
        ("a proxy's 500", failing(Answer::ok("").code(500)), 21, None),
        ("a proxy's 410", failing(Answer::ok("gone").code(410)), 21, None),
        ("429", failing(Answer::status(429)), 21, None),
        ("503", failing(Answer::status(503)), 21, None),
        ("403", failing(Answer::status(403)), 21, None),
        ("refused", failing(Answer::fails(TransportErrorKind::Connect, "")), 21, None),
        ("ends after a second", after(1), 21, None),
        ("ends after 10 s", after(10), 21, None),
        ("each ends after a bookmark", failing(Answer::pieces([bookmark(7)])), 21, None),
        (
            "progress in between",
            [Answer::default(), Answer::default(), Answer::pieces([bookmark(7)]), Answer::default(), Answer::default()]
                .into_iter()
                .chain([Answer::pieces([added("a", 8)]), Answer::default(), Answer::default()])
                .collect(),
            9,
            None,
        ),
        (
            "a connection of 10 s in between",
            [Answer::default(), Answer::default(), Answer::default().then_ends(SECOND * 10)]
                .into_iter()
                .chain([Answer::default(), Answer::default()])
                .collect(),
            6,
            None,
        ),
    ] {
        let server = Scripted::in_turn(answers);
        let (_, error, version) = resumed(watch(&server.client(), &exact(7))).await;
        assert_eq!(server.requests(), requests, "{case}: {error}");
        assert_eq!(error.is_expired(), ends.is_some(), "{case}: {error}");
        assert!(error.to_string().contains(ends.unwrap_or("the script has ended")), "{case}: {error}");
        assert_eq!(version.as_deref(), Some("7"), "{case}");
    }
    // Watches that request such a short timeout.
    let server = Scripted::in_turn(vec![Answer::default().then_ends(SECOND * 9 / 10); 5]);
    let (_, error, _) = resumed(watch(&server.client(), &exact(7).timeout(SECOND))).await;
    assert!(!error.is_expired(), "{error}");
    // A watch that starts over.
    let whole = Answer::pieces([added("a", 5), initial_end(20)]);
    let server = Scripted::in_turn([Answer::default(), Answer::default(), Answer::default(), whole]);
    let mut watch = watch(&server.client(), &exact(7)).start_over();
    let mut events = Vec::new();
    while let Some(Ok(event)) = watch.next().await {
        events.push(written(event));
    }
    assert_eq!((&*events.join(" "), kinds(&server).as_str()), ("reset +a synced 20", "7 7 7 initial 20"));
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_has_many_forms() {
    let status = |code: u16, reason: &str, message: &str| {
        let code = if code == 0 { String::new() } else { format!(r#","code":{code}"#) };
        format!(r#""status":"Failure","reason":"{reason}","message":"{message}"{code}}}"#)
    };
    for (text, is_expired) in [
        (status(410, "", "too old resource version: 5 (9)"), true),
        (status(0, "Gone", "too old"), true),
        (status(0, "Expired", "too old"), true),
        (status(500, "Expired", "too old"), true),
        (status(500, "InternalError", "etcdserver: mvcc: required revision has been compacted"), true),
        (status(500, "", "rpc error: code = Unknown desc = revision has been compact"), true),
        (status(500, "InternalError", "out of memory"), false),
        (status(400, "BadRequest", "the table has been compacted"), false),
    ] {
        let full = format!(r#"{{"kind":"Status","apiVersion":"v1",{text}"#);
        let event = |status: &str| Answer::ok(format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n"));
        for answer in [
            event(&full),
            event(&format!("{{{text}")),
            Answer::ok(full.clone()).code(if text.contains("400") { 400 } else { 500 }),
        ] {
            let server = Scripted::in_turn([answer]);
            let (_, error, _) = resumed(watch(&server.client(), &exact(7))).await;
            assert_eq!((error.is_expired(), error.is_retryable()), (is_expired, false), "{text}: {error}");
        }
    }
}
