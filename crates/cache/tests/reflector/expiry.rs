//! Relists: after an expired version, after the restore of a server from a backup, and after frames over the limit.

use std::time::Duration;

use listwatch_cache::{Change, StorageFormat, Store};
use tokio::time::{Instant, sleep};

use crate::script::{
    FIRST, LIST, Scenario, added, check, deleted, idle_watch, late, list, modified, objects, oversized_frame,
    reflector, requests, scripted, too_large, watch,
};
use crate::support::config_maps::{bookmark, error, initial_end};
use crate::support::transport::{Answer, Asked, Scripted};
use crate::support::{body_of, event_frame, len_field};

#[tokio::test(start_paused = true)]
async fn relists_after_an_expired_version() {
    check([
        Scenario {
            name: "TestReflectorFullListIfExpired",
            strategy: LIST,
            answers: vec![
                list("10", "a@1"),
                watch([error(410)]),
                Answer::status(410),
                list("12", "a@1 b@12"),
                watch([error(410)]),
                list("13", "b@13"),
                idle_watch(),
            ],
            requests: "list 0, watch 10, list 10, list, watch 12, list 12, watch 13",
            objects: "b@13",
            version: "13",
        },
        Scenario {
            name: "TestReflectorExpiredExactResourceVersion",
            strategy: LIST,
            answers: vec![
                list("10", "a@1"),
                watch([error(410)]),
                Answer::ok("expired, in plain text").code(410),
                list("11", "a@1"),
                idle_watch(),
            ],
            requests: "list 0, watch 10, list 10, list, watch 11",
            objects: "a@1",
            version: "11",
        },
        Scenario {
            name: "TestRetryWatcher: a 410 event ends the watch",
            strategy: LIST,
            answers: vec![list("10", "a@1"), watch([added("b@11"), error(410)]), list("12", "a@1 b@11"), idle_watch()],
            requests: "list 0, watch 10, list 11, watch 12",
            objects: "a@1 b@11",
            version: "12",
        },
        Scenario {
            name: "TestRetryWatcher: a 410 response ends the watch",
            strategy: LIST,
            answers: vec![
                list("10", "a@1"),
                watch([deleted("b@11")]),
                Answer::status(410),
                list("12", "a@1 b@11"),
                idle_watch(),
            ],
            requests: "list 0, watch 10, watch 10, list 11, watch 12",
            objects: "a@1 b@11",
            version: "12",
        },
        Scenario {
            name: "TestReflectorFullListIfTooLarge",
            strategy: LIST,
            answers: vec![
                too_large(),
                list("10", "a@1"),
                Answer::status(410),
                too_large(),
                list("12", "a@1"),
                idle_watch(),
            ],
            requests: "list 0, list, watch 10, list 10, list, watch 12",
            objects: "a@1",
            version: "12",
        },
        Scenario {
            name: "a list that takes longer than the server allows",
            strategy: LIST,
            answers: vec![
                late(list("9", "a@1").cut(1)),
                list("10", "a@1"),
                watch([modified("a@11"), error(410)]),
                list("12", "a@11"),
                idle_watch(),
            ],
            requests: "list 0, pages, watch 10, pages 11, watch 12",
            objects: "a@11",
            version: "12",
        },
        Scenario {
            name: "a frame over its limit",
            strategy: LIST,
            answers: vec![
                list("10", "a@1"),
                watch([modified("a@11"), oversized_frame()]),
                list("12", "a@11 b@12"),
                idle_watch(),
            ],
            requests: "list 0, watch 10, list 11, watch 12",
            objects: "a@11 b@12",
            version: "12",
        },
    ])
    .await;
}

/// What API servers before 1.18.6 send, and some aggregators.
const TOO_LARGE_TEXT: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Timeout","code":504,
    "message":"Timeout: Too large resource version: 10, current: 1","details":{"retryAfterSeconds":1}}"#;

const COMPACTED: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,
    "message":"etcdserver: mvcc: required revision has been compacted"}"#;

#[tokio::test(start_paused = true)]
async fn lists_the_most_recent_version_after_failures_at_a_version() {
    check([
        Scenario {
            name: "too large a version, without the cause",
            strategy: LIST,
            answers: vec![
                list("10", "a@1"),
                watch([error(410)]),
                Answer::ok(TOO_LARGE_TEXT).code(504),
                list("12", "a@1 c@11"),
                idle_watch(),
            ],
            requests: "list 0, watch 10, list 10, list, watch 12",
            objects: "a@1 c@11",
            version: "12",
        },
        Scenario {
            name: "a server that does not say why it fails a list at a version",
            strategy: LIST,
            answers: vec![
                list("10", "a@1"),
                watch([error(410)]),
                Answer::status(500),
                Answer::ok("<html>").code(504),
                Answer::status(400),
                Answer::status(503),
                Answer::status(504),
                list("12", "c@11"),
                idle_watch(),
            ],
            requests: "list 0, watch 10, list 10, list 10, list 10, list 10, list 10, list, watch 12",
            objects: "c@11",
            version: "12",
        },
        Scenario {
            name: "a list at a compacted version, in the words of etcd",
            strategy: LIST,
            answers: vec![
                list("10", "a@1"),
                watch([error(410)]),
                Answer::ok(COMPACTED).code(500),
                list("12", "c@11"),
                idle_watch(),
            ],
            requests: "list 0, watch 10, list 10, list, watch 12",
            objects: "c@11",
            version: "12",
        },
        Scenario {
            name: "a first list, which names no version",
            strategy: LIST,
            answers: (0..4).map(|_| Answer::status(500)).chain([list("12", "a@11"), idle_watch()]).collect(),
            requests: "list 0, list 0, list 0, list 0, list 0, watch 12",
            objects: "a@11",
            version: "12",
        },
        Scenario {
            name: "watch first: a server that does not say why it fails the list at the version of the watch",
            strategy: FIRST,
            answers: (0..3)
                .flat_map(|_| [list("10", "x@1"), idle_watch(), Answer::status(500)])
                .chain([list("10", "x@1"), idle_watch(), list("10", "a@1")])
                .collect(),
            requests: "list one, watch 10, list 10, list one, watch 10, list 10, list one, watch 10, list 10, \
                       list one, watch 10, list",
            objects: "a@1",
            version: "10",
        },
        Scenario {
            name: "watch first: the list never has the version of the watch",
            strategy: FIRST,
            answers: vec![
                list("10", "x@1"),
                idle_watch(),
                Answer::ok(TOO_LARGE_TEXT).code(504),
                list("10", "x@1"),
                idle_watch(),
                list("10", "a@1"),
            ],
            requests: "list one, watch 10, list 10, list one, watch 10, list",
            objects: "a@1",
            version: "10",
        },
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn relists_after_a_version_without_progress() {
    let etcd = r#"{"kind":"Status","apiVersion":"v1","message":"etcdserver: mvcc: required revision has been compacted","code":500}"#;
    check([
        Scenario {
            name: "TestReflectorHandleWatch: watches that end at once",
            strategy: LIST,
            answers: vec![list("10", "a@1"), watch([]), watch([]), watch([]), list("12", "a@1 b@11"), idle_watch()],
            requests: "list 0, watch 10, watch 10, watch 10, list, watch 12",
            objects: "a@1 b@11",
            version: "12",
        },
        Scenario {
            name: "watches that fail",
            strategy: LIST,
            answers: [list("10", "a@1")]
                .into_iter()
                .chain((0..8).map(|n| if n % 2 == 0 { Answer::status(500) } else { watch([error(500)]) }))
                .chain([list("12", "b@11"), idle_watch()])
                .collect(),
            requests: "list 0, watch 10, watch 10, watch 10, watch 10, watch 10, watch 10, watch 10, watch 10, list, watch 12",
            objects: "b@11",
            version: "12",
        },
        Scenario {
            name: "a proxy's error, for as long as a balancer is down",
            strategy: LIST,
            answers: [list("10", "a@1")]
                .into_iter()
                .chain((0..8).map(|_| Answer::ok("<html>504 Gateway Time-out</html>").code(504)))
                .chain([idle_watch()])
                .collect(),
            requests: "list 0, watch 10, watch 10, watch 10, watch 10, watch 10, watch 10, watch 10, watch 10, \
                       watch 10, list one",
            objects: "a@1",
            version: "10",
        },
        Scenario {
            name: "a version before the last event, on a server without bookmarks",
            strategy: LIST,
            answers: vec![
                list("10", "a@1"),
                watch([modified("a@11")]),
                Answer::status(410),
                watch([added("b@12")]).then_stalls(),
            ],
            requests: "list 0, watch 10, watch 10, watch 11",
            objects: "a@11 b@12",
            version: "12",
        },
        Scenario {
            name: "the version before a deletion, which may share its version",
            strategy: LIST,
            answers: vec![
                list("10", "a@1 b@2"),
                watch([deleted("a@11")]),
                Answer::status(410),
                list("12", ""),
                idle_watch(),
            ],
            requests: "list 0, watch 10, watch 10, list 11, watch 12",
            objects: "",
            version: "12",
        },
        Scenario {
            name: "a compacted version, in the words of etcd",
            strategy: LIST,
            answers: vec![list("10", "a@1"), Answer::ok(etcd).code(500), list("12", "b@11"), idle_watch()],
            requests: "list 0, watch 10, list 10, watch 12",
            objects: "b@11",
            version: "12",
        },
        Scenario {
            name: "a bookmark of version 0 after a missed deletion",
            strategy: LIST,
            answers: vec![
                list("100", "a@50 b@60"),
                watch([modified("b@107"), bookmark(0)]),
                watch([modified("b@107"), deleted("a@108")]).then_stalls(),
            ],
            requests: "list 0, watch 100, watch 100",
            objects: "b@107",
            version: "108",
        },
    ])
    .await;
}

/// The probe of a silent watch finds newer versions.
#[tokio::test(start_paused = true)]
async fn relists_when_a_silent_watch_falls_behind() {
    check([
        Scenario {
            name: "an open watch, after a second probe",
            strategy: LIST,
            answers: vec![
                list("10", "a@9"),
                idle_watch(),
                list("12", "x@1"),
                list("13", "x@1"),
                list("13", "a@9 b@12"),
                idle_watch(),
            ],
            requests: "list 0, watch 10, list one, list one, list, watch 13",
            objects: "a@9 b@12",
            version: "13",
        },
        Scenario {
            name: "a bookmark between two probes",
            strategy: LIST,
            answers: vec![
                list("10", "a@9"),
                watch([]).then(Duration::from_secs(130), bookmark(11)).then_stalls(),
                list("12", "x@1"),
                list("13", "x@1"),
            ],
            requests: "list 0, watch 10, list one, list one",
            objects: "a@9",
            version: "11",
        },
        Scenario {
            name: "versions without an order",
            strategy: LIST,
            answers: vec![
                list("x", "a@9"),
                idle_watch(),
                list("y", "x@1"),
                list("y", "x@1"),
                list("y", "b@9"),
                idle_watch(),
            ],
            requests: "list 0, watch x, list one, list one, list, watch y",
            objects: "b@9",
            version: "y",
        },
    ])
    .await;
    // Watches are refused, and lists are not: at least a list each few minutes, unless the server is busy.
    for (code, syncs) in [(403, 20..=30), (429, 1..=1)] {
        let script = Scripted::by(move |asked, n| match asked.parameter("watch") {
            Some(_) => Answer::status(code),
            None => list(&(10 + n).to_string(), &format!("a@{}", 5 + n)),
        });
        let reflector = reflector(script.clone(), LIST).prepare();
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        sleep(Duration::from_secs(3600)).await;
        assert!(syncs.contains(&cache.status().syncs), "{code}: {:?}", cache.status());
        run.abort();
    }
    // The server is at the version of the last deletion, which others may share: the next watch delivers them.
    let script = Scripted::by(|asked, n| match (asked.parameter("watch"), n) {
        (None, 0) => list("10", "a@9 b@5"),
        (None, _) => list("11", "b@5"),
        (Some(_), 1) => watch([deleted("a@11")]),
        (Some(_), _) => Answer::status(403),
    });
    let reflector = reflector(script, LIST).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((cache.status().syncs, &*objects(&cache)), (1, "b@5"), "{:?}", cache.status());
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn relists_from_a_server_that_was_restored_from_a_backup() {
    check([
        Scenario {
            name: "a restored server with a silent watch",
            strategy: LIST,
            answers: vec![
                list("10", "a@9 b@2"),
                idle_watch(),
                list("5", "x@1"),
                list("5", "a@4 b@2"),
                watch([added("c@6")]).then_stalls(),
            ],
            requests: "list 0, watch 10, list one, list, watch 5",
            objects: "a@4 b@2 c@6",
            version: "6",
        },
        Scenario {
            name: "a server that is silent because nothing changes",
            strategy: LIST,
            answers: vec![list("10", "a@9"), idle_watch(), list("12", "x@1"), Answer::status(500)],
            requests: "list 0, watch 10, list one, list one",
            objects: "a@9",
            version: "10",
        },
        Scenario {
            name: "a list of an older version is repeated, and replaces every object",
            strategy: LIST,
            answers: vec![
                list("10", "a@9"),
                watch([error(410)]),
                too_large(),
                list("5", "a@4"),
                list("6", "a@4 b@6"),
                idle_watch(),
            ],
            requests: "list 0, watch 10, list 10, list, list, watch 6",
            objects: "a@4 b@6",
            version: "6",
        },
        Scenario {
            name: "initial events of an older version",
            strategy: None,
            answers: vec![
                watch([added("a@9"), initial_end(10), error(410)]).then_stalls(),
                watch([added("a@4"), initial_end(5)]).then_stalls(),
                list("5", "a@4"),
                watch([added("b@6")]).then_stalls(),
            ],
            requests: "watch list, watch list, list, watch 5",
            objects: "a@4 b@6",
            version: "6",
        },
        Scenario {
            name: "watch first: a restored server",
            strategy: FIRST,
            answers: vec![
                list("10", "x@1"),
                watch([added("b@12")]).then_stalls(),
                list("10", "a@9"),
                list("5", "x@1"),
                list("5", "a@4"),
                idle_watch(),
            ],
            requests: "list one, watch 10, list 10, list one, list, watch 5",
            objects: "a@4",
            version: "5",
        },
        Scenario {
            name: "watch first: a server that was restored before the next attempt",
            strategy: FIRST,
            answers: vec![
                list("10", "x@1"),
                watch([added("b@12")]).then(Duration::from_secs(5), error(410)).then_stalls(),
                list("10", "a@9"),
                list("5", "x@1"),
                list("5", "a@4"),
                idle_watch(),
            ],
            requests: "list one, watch 10, list 10, list one, list, watch 5",
            objects: "a@4",
            version: "5",
        },
    ])
    .await;
}

/// The cache follows a server that sends events with older versions or none, and events that share a version.
#[tokio::test(start_paused = true)]
async fn keeps_objects_of_odd_versions() {
    check([
        Scenario {
            name: "deletions that share a version, over two watches",
            strategy: LIST,
            answers: vec![
                list("10", "a@1 b@2 c@3"),
                watch([deleted("a@20")]),
                watch([deleted("a@20"), deleted("b@20")]).then_stalls(),
            ],
            requests: "list 0, watch 10, watch 10",
            objects: "c@3",
            version: "20",
        },
        Scenario {
            name: "an object with an older version than the collection, as OpenShift sends projects",
            strategy: LIST,
            answers: vec![list("10", "a@1"), watch([modified("a@30"), added("b@20"), added("c@5")]).then_stalls()],
            requests: "list 0, watch 10",
            objects: "a@30 b@20 c@5",
            version: "30",
        },
        Scenario {
            name: "a deletion without a version",
            strategy: LIST,
            answers: vec![
                list("10", "a@1 b@2"),
                watch([modified("b@11"), deleted("a@"), deleted("b@"), deleted("c@")]),
                watch([added("b@11")]).then_stalls(),
            ],
            requests: "list 0, watch 10, watch 10",
            objects: "b@11",
            version: "11",
        },
        Scenario {
            name: "initial events",
            strategy: None,
            answers: vec![
                watch([added("a@1"), added("b@2"), initial_end(10), deleted("a@"), added("c@5"), deleted("b@20")])
                    .then_stalls(),
            ],
            requests: "watch list",
            objects: "c@5",
            version: "20",
        },
    ])
    .await;
}

/// A subscriber gets the last state that the store had.
#[tokio::test(start_paused = true)]
async fn the_final_state_of_an_object_that_is_only_named_is_unknown() {
    let named = [len_field(1, b"a"), len_field(3, b"default")].concat();
    let named = event_frame("DELETED", &body_of("v1", "ConfigMap", &len_field(1, &named)));
    // The subscriber has received the objects by then.
    let second = Duration::from_secs(1);
    let deletions = watch([]).then(second, named).then(second, deleted("b@11")).then_stalls();
    let reflector = reflector(scripted([list("10", "a@1 b@2"), deletions]), LIST).prepare();
    let cache = reflector.cache();
    let mut changes = cache.subscribe().start();
    let run = tokio::spawn(reflector.run());
    let mut deletions = Vec::new();
    while deletions.len() < 2 {
        if let Some(Change::Deleted { last, final_state_unknown, .. }) = changes.next().await {
            deletions.push((last.name().to_owned(), last.resource_version().to_owned(), final_state_unknown));
        }
    }
    assert_eq!(deletions, [("a".to_owned(), "1".to_owned(), true), ("b".to_owned(), "11".to_owned(), false)]);
    run.abort();
}

/// `TestReflectorReplacesStoreOnUnsafeDelete`
#[tokio::test(start_paused = true)]
async fn keeps_the_old_objects_until_the_new_list_is_complete() {
    for end in [error(410), oversized_frame()] {
        let slow = list("12", "b@2 c@12").pieces_of(20).paced(Duration::from_secs(5));
        let takes = slow.body_time();
        let script = scripted([list("10", "a@1 b@2"), watch([end]), slow, idle_watch()]);
        let reflector = reflector(script.clone(), LIST).prepare();
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        while script.left() > 1 {
            sleep(Duration::from_millis(100)).await;
        }
        sleep(takes.saturating_sub(Duration::from_secs(1))).await;
        assert_eq!(requests(&script), "list 0, watch 10, list 10");
        assert!(objects(&cache).starts_with("a@1 b@2"), "{}", objects(&cache));
        assert_eq!((cache.resource_version(), cache.status().syncs), ("10".to_owned(), 1));
        sleep(Duration::from_secs(2)).await;
        assert_eq!((objects(&cache).as_str(), cache.status().syncs), ("b@2 c@12", 2));
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn relists_after_another_replace_of_its_store() {
    let store = Store::new(StorageFormat::Encoded);
    let script = scripted([late(list("8", "b@2")), list("10", "a@1"), idle_watch()]);
    let reflector = reflector(script, LIST).store(store.clone()).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    sleep(Duration::from_secs(30)).await;
    drop(store.begin_relist());
    assert_eq!(cache.synced().await.unwrap(), "10");
    assert_eq!(objects(&cache), "a@1");
    run.abort();
}

/// A server whose ten objects change in turn, one each second. A list takes a minute, longer than the half minute of
/// history that the server keeps. A version is a number of seconds.
#[derive(Clone, Copy)]
struct Hasty {
    started: Instant,
}

const LIST_TAKES: Duration = Duration::from_secs(60);
const HISTORY: u64 = 30;

impl Hasty {
    fn now(self) -> u64 {
        100 + self.started.elapsed().as_secs()
    }

    fn objects(self) -> Vec<String> {
        let now = self.now();
        (now - 9..=now).map(|version| format!("o{}@{version}", version % 10)).collect()
    }

    fn answer(self, asked: &Asked) -> Answer {
        if asked.parameter("watch").is_none() {
            let list = list(&self.now().to_string(), &self.objects().join(" "));
            return if asked.parameter("limit") == Some("1") { list } else { list.paced(LIST_TAKES) };
        }
        if asked.parameter("sendInitialEvents").is_some() {
            return Answer::status(422);
        }
        let from: u64 = asked.parameter("resourceVersion").unwrap_or_default().parse().unwrap();
        if from + HISTORY < self.now() {
            return Answer::status(410);
        }
        Answer::default().then_each(move |n| {
            let version = from + 1 + n;
            let at = self.started + Duration::from_secs(version - 100);
            Some((at - Instant::now(), modified(&format!("o{}@{version}", version % 10)).into()))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_before_the_list_converges_where_a_list_outlasts_the_history() {
    for (strategy, converges) in [(LIST, false), (FIRST, true), (None, true)] {
        let server = Hasty { started: Instant::now() };
        let reflector = reflector(Scripted::by(move |asked, _| server.answer(asked)), strategy).prepare();
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        sleep(Duration::from_millis(3_600_500)).await;
        let mut expected = server.objects();
        expected.sort();
        let status = cache.status();
        assert_eq!(objects(&cache) == expected.join(" "), converges, "{strategy:?}");
        if converges {
            assert!(status.syncs <= 3, "{strategy:?}: {status:?}");
        } else {
            assert!(status.syncs > 20, "the reflector relists again and again: {status:?}");
        }
        run.abort();
    }
}
