//! A watch that resumes delivers each change once and in order, however its connections end.

use listwatch::client::{ListOptions, TransportErrorKind};

use crate::support::config_maps::{self, added, bookmark, error, event, initial_end};
use crate::support::transport::{Answer, Scripted};
use crate::support::{body_of, event_frame, len_field};
use crate::{between, exact, list, resumed, watch};

/// The answers, what comes of all of them, which versions are asked for, and up to which all came. The script's end is fatal.
#[tokio::test(start_paused = true)]
async fn resumes_from_the_last_version() {
    let end = "setup: the script has ended";
    let expired = "API error: 410";
    for (answers, expected, versions, ends) in [
        // However a connection ends.
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
        // Bookmarks move the version, and only forwards.
        (
            vec![Answer::pieces([bookmark(20), bookmark(15)]), Answer::pieces([added("a", 21)])],
            "+a",
            "7 20 21 to 21",
            end,
        ),
        // Repeated and late events.
        (
            vec![Answer::pieces([added("a", 8), added("a", 8), event("MODIFIED", "a", 10), added("b", 9)])],
            "+a ~a",
            "7 10 to 10",
            end,
        ),
        // A deletion with an old version, which comes again as often as it is not behind us.
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
        // What ends it.
        (vec![Answer::pieces([added("a", 8), error(410)])], "+a", "7 to 8", expired),
        (vec![Answer::pieces([added("a", 8)]), Answer::status(410)], "+a", "7 8 to 8", expired),
        (vec![Answer::status(403)], "", "7 to 7", "API error: 403"),
        (vec![Answer::status(404)], "", "7 to 7", "API error: 404"),
        (vec![Answer::status(400)], "", "7 to 7", "API error: 400"),
        (vec![Answer::status(422)], "", "7 to 7", "API error: 422"),
        (vec![Answer::status(401), Answer::status(401)], "", "7 7 to 7", "API error: 401"),
        (
            vec![
                Answer::status(401),
                Answer::pieces([added("a", 8)]),
                Answer::status(401),
                Answer::pieces([error(410)]),
            ],
            "+a",
            "7 7 8 8 to 8",
            expired,
        ),
        // Two 401 with no other answer between them.
        (
            vec![Answer::status(401), Answer::fails(TransportErrorKind::Connect, ""), Answer::status(401)],
            "",
            "7 7 7 to 7",
            "API error: 401",
        ),
        (
            vec![Answer::status(401), Answer::status(503), Answer::status(401), Answer::status(410)],
            "",
            "7 7 7 7 to 7",
            expired,
        ),
        (
            vec![Answer::status(401), Answer::default().then_reset(), Answer::status(401), Answer::status(410)],
            "",
            "7 7 7 7 to 7",
            expired,
        ),
        (vec![Answer::pieces([added("a", 8), b"\0\0\0\0".to_vec()])], "+a", "7 to 8", "frame"),
        (vec![Answer::pieces([b"<html>".to_vec()])], "", "7 to 7", "HTML"),
        // What did not become an item was not delivered.
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
        let (events, error, version) = resumed(watch(&server.client(), &exact(7)).resume()).await;
        assert_eq!(events.join(" "), expected, "{error}");
        assert!(error.to_string().contains(ends), "{error}, and not {ends}");
        let paths = server.paths();
        let asked: Vec<_> = paths.iter().map(|path| between(path, "resourceVersion=", "&")).collect();
        assert_eq!(format!("{} to {}", asked.join(" "), version.unwrap()), versions, "{events:?}");
        assert!(paths.iter().all(|path| !path.contains("sendInitialEvents")));
    }
}

/// Nobody can tell which are repetitions.
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
    let (events, _, version) = resumed(watch(&server.client(), &exact(7)).resume()).await;
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
    let watch = watch(&Scripted::in_turn(answers).client(), &ListOptions::default()).resume();
    let _ = resumed(watch.on_disconnect(move |at| drop(disconnects.send(at.clone())))).await;
    for (why, version, lists) in [
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
        assert!(error.starts_with(why), "{error}, and not {why}");
        assert_eq!((disconnect.resource_version.as_deref(), disconnect.lists), (version, lists), "{why}");
        // What the server refuses is asked for otherwise at once.
        assert_eq!(disconnect.wait.is_zero(), why == "API error: 422", "{why}");
    }
    assert!(disconnected.try_recv().is_err());
}

/// All are behind the version that was reached. What comes again is not delivered as long as it is remembered.
#[tokio::test(start_paused = true)]
async fn deletions_are_remembered() {
    let deleted = |namespace: &str, name: &str, uid: &str, version: u64| {
        let fields = [(1, name), (3, namespace), (5, uid), (6, &*version.to_string())];
        let metadata = fields.map(|(number, text)| len_field(number, text.as_bytes())).concat();
        event_frame("DELETED", &body_of("v1", "ConfigMap", &len_field(1, &metadata)))
    };
    let numbered = |range: std::ops::RangeInclusive<u64>| range.map(|n| deleted("web", &format!("cm-{n}"), "", n));
    let reached = || std::iter::once(bookmark(5000));
    let twice = || std::iter::repeat_n(deleted("web", "first", "", 4000), 2);
    for (case, options, first, again, delivered) in [
        // As long as the version does not move on, all.
        ("a run", exact(7), reached().chain(numbered(1..=1500)).collect(), numbered(1..=1500).collect(), 0),
        // Then 1024, of which the oldest goes.
        (
            "many",
            exact(7),
            reached().chain(numbered(1..=1500)).chain([bookmark(5001)]).chain(numbered(1501..=1501)).collect(),
            numbered(478..=1501).chain(numbered(477..=477)).collect(),
            1,
        ),
        (
            "one that came twice before the version",
            ListOptions::default(),
            twice().chain([initial_end(5000)]).chain(numbered(1..=1023)).collect(),
            twice().collect(),
            0,
        ),
        (
            "others",
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
        let (events, _, _) = resumed(watch(&server.client(), &options).resume()).await;
        let deletions = events.iter().filter(|event| event.starts_with('-')).count();
        assert_eq!(deletions - before, delivered, "{case}");
    }
}
