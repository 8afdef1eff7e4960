//! A watch that resumes delivers each change once and in order, however its connections end.

use futures::StreamExt as _;
use listwatch::client::{TransportErrorKind, WatchParams};

use crate::support::config_maps::{self, added, bookmark, error, event, initial_end};
use crate::support::transport::{Answer, Scripted};
use crate::support::{body_of, event_frame, len_field};
use crate::{between, exact, kinds, list, resumed, watch, written};

/// A case has answers, the events, the requested versions and the version reached, and the error. The end of the script is fatal.
#[tokio::test(start_paused = true)]
async fn resumes_from_the_last_version() {
    let end = "setup: the script has ended";
    let expired = "API error: 410";
    for (answers, expected, versions, ends) in [
        // Every end of a connection.
        (vec![Answer::pieces([added("a", 8)]), Answer::pieces([added("b", 9)])], "+a +b", "7 8 9 to 9", end),
        (
            vec![Answer::pieces([added("a", 8)]).then_reset(), Answer::pieces([added("b", 9)])],
            "+a +b",
            "7 8 9 to 9",
            end,
        ),
        (vec![Answer::pieces([[added("a", 8), added("b", 9)[..30].to_vec()].concat()])], "+a", "7 8 to 8", end),
        (vec![Answer::pieces([added("a", 8), error(500)]), Answer::pieces([error(504)])], "+a", "7 8 8 to 8", end),
        (vec![Answer::status(429), Answer::status(503), Answer::pieces([added("a", 8)])], "+a", "7 7 7 8 to 8", end),
        (vec![Answer::status(408), Answer::status(502), Answer::pieces([added("a", 8)])], "+a", "7 7 7 8 to 8", end),
        (
            vec![Answer::fails(TransportErrorKind::ReadIdle, ""), Answer::pieces([added("a", 8)])],
            "+a",
            "7 7 8 to 8",
            end,
        ),
        // A role, a resource, credentials or a proxy may be fixed later.
        (
            vec![Answer::status(403), Answer::status(404), Answer::status(403), Answer::pieces([added("a", 8)])],
            "+a",
            "7 7 7 7 8 to 8",
            end,
        ),
        (vec![Answer::status(401), Answer::status(401), Answer::pieces([added("a", 8)])], "+a", "7 7 7 8 to 8", end),
        (
            vec![Answer::fails(TransportErrorKind::Credentials, ""), Answer::pieces([added("a", 8)])],
            "+a",
            "7 7 8 to 8",
            end,
        ),
        (vec![Answer::pieces([b"<html>".to_vec()]), Answer::pieces([added("a", 8)])], "+a", "7 7 8 to 8", end),
        // Bookmarks advance the version, and never move it back.
        (
            vec![Answer::pieces([bookmark(20), bookmark(15)]), Answer::pieces([added("a", 21)])],
            "+a",
            "7 20 21 to 21",
            end,
        ),
        // Repeated events and events of older versions are dropped.
        (
            vec![Answer::pieces([added("a", 8), added("a", 8), event("MODIFIED", "a", 10), added("b", 9)])],
            "+a ~a",
            "7 10 to 10",
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
            "7 9 12 12 to 12",
            end,
        ),
        (
            vec![Answer::pieces([added("a", 8), event("DELETED", "a", 9)]), Answer::pieces([added("a", 10)])],
            "+a -a +a",
            "7 9 10 to 10",
            end,
        ),
        // Errors that end the watch.
        (vec![Answer::pieces([added("a", 8), error(410)])], "+a", "7 to 8", expired),
        (vec![Answer::pieces([added("a", 8)]), Answer::status(410)], "+a", "7 8 to 8", expired),
        (vec![Answer::status(400)], "", "7 to 7", "API error: 400"),
        (vec![Answer::status(422)], "", "7 to 7", "API error: 422"),
        (vec![Answer::fails(TransportErrorKind::Tls, "")], "", "7 to 7", "TLS"),
        (vec![Answer::pieces([added("a", 8), b"\0\0\0\0".to_vec()])], "+a", "7 to 8", "frame"),
        // An event that cannot be decoded is not delivered.
        (
            vec![Answer::pieces([
                added("a", 8),
                event_frame("ADDED", &body_of("v1", "ConfigMap", b"\x0a\x08\x32\x0210\x0a\x02\xff\xff")),
            ])],
            "+a",
            "7 to 8",
            "UTF-8",
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
            "7 initial 20 21",
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

/// The client cannot recognize repetitions.
#[tokio::test(start_paused = true)]
async fn versions_that_do_not_compare_are_all_delivered() {
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
    assert_eq!((&*events.join(" "), version.as_deref()), ("+a +b +a -a -b -a", Some("x10")));
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
        ("ended", Some("9"), false),
        ("API error: 429", Some("9"), false),
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

/// All deletions have older versions than the watch has reached. A repeated deletion is dropped while the watch remembers it.
#[tokio::test(start_paused = true)]
async fn drops_repeated_deletions() {
    let deleted = |namespace: &str, name: &str, uid: &str, version: u64| {
        let fields = [(1, name), (3, namespace), (5, uid), (6, &*version.to_string())];
        let metadata = fields.map(|(number, text)| len_field(number, text.as_bytes())).concat();
        event_frame("DELETED", &body_of("v1", "ConfigMap", &len_field(1, &metadata)))
    };
    let numbered = |range: std::ops::RangeInclusive<u64>| range.map(|n| deleted("web", &format!("cm-{n}"), "", n));
    let reached = || std::iter::once(bookmark(5000));
    let twice = || std::iter::repeat_n(deleted("web", "first", "", 4000), 2);
    for (case, options, first, again, delivered) in [
        // The watch remembers all deletions until its version advances.
        ("a run", exact(7), reached().chain(numbered(1..=1500)).collect(), numbered(1..=1500).collect(), 0),
        // Then it remembers the last 1024.
        (
            "many",
            exact(7),
            reached().chain(numbered(1..=1500)).chain([bookmark(5001)]).chain(numbered(1501..=1501)).collect(),
            numbered(478..=1501).chain(numbered(477..=477)).collect(),
            1,
        ),
        (
            "a deletion that is repeated before the first version",
            WatchParams::with_initial_state(),
            twice().chain([initial_end(5000)]).chain(numbered(1..=1023)).collect(),
            twice().collect(),
            0,
        ),
        (
            "other objects and versions",
            exact(7),
            reached().chain([deleted("web", "a", "1", 8)]).collect::<Vec<_>>(),
            vec![
                deleted("web", "a", "1", 8),
                deleted("db", "a", "1", 8),
                deleted("web", "b", "1", 8),
                deleted("web", "a", "2", 8),
                deleted("web", "a", "1", 9),
            ],
            4,
        ),
    ] {
        let before = first.iter().filter(|frame| frame.windows(7).any(|bytes| bytes == b"DELETED")).count();
        let server = Scripted::in_turn([Answer::pieces(first), Answer::pieces(again)]);
        let (events, _, _) = resumed(watch(&server.client(), &options)).await;
        let deletions = events.iter().filter(|event| event.starts_with('-')).count();
        assert_eq!(deletions - before, delivered, "{case}");
    }
}
