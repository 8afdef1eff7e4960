//! Errors: which of them end a reflector, which are retried, and what the store holds meanwhile.

use std::time::Duration;

use listwatch::LabelSelector;
use listwatch::client::{ErrorKind, Resource, Selection, TransportErrorKind};
use listwatch::{Encoding, FieldPath, Projection};
use listwatch_cache::{Reflector, Strategy, SyncError};
use listwatch_cache::{StorageFormat, Store, StoreError};
use tokio::time::{Instant, sleep, timeout};

use crate::script::{
    FIRST, LIST, Scenario, added, check, deleted, idle_watch, late, list, modified, objects, reflector, requests,
    scripted, too_large, watch,
};
use crate::support::config_maps::{self, error, initial_end};
use crate::support::transport::{Answer, Scripted};
use crate::support::{body_of, chain, len_field, store::object};

#[tokio::test]
async fn a_resource_that_cannot_be_watched_ends_it_before_any_request() {
    for strategy in [Strategy::WatchList, Strategy::ListThenWatch, Strategy::WatchFirst] {
        let server = Scripted::in_turn([]);
        let resource = Resource::CONFIG_MAPS.without_watch();
        let reflector = Reflector::<[u8]>::new(&server.client(), &resource).strategy(strategy).prepare();
        let error = reflector.run().await.unwrap_err();
        assert_eq!(error.to_string(), "configmaps cannot be watched: the server only lists it");
        assert_eq!(server.requests(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn retries_and_keeps_the_store() {
    check([
        Scenario {
            name: "TestReflectorListAndWatchWithErrors",
            strategy: LIST,
            answers: vec![
                Answer::status(500),
                list("10", "a@1 b@2"),
                watch([error(410)]),
                list("12", "c@11").cut(1),
                Answer::status(403),
                list("13", "b@2 c@11"),
                idle_watch(),
            ],
            requests: "list 0, list 0, watch 10, list 10, list 10, list 10, watch 13",
            objects: "b@2 c@11",
            version: "13",
        },
        Scenario {
            name: "TestNoRelistOnTooManyRequests",
            strategy: LIST,
            answers: vec![
                list("10", ""),
                Answer::status(429),
                Answer::status(429),
                Answer::status(429),
                Answer::status(429),
                watch([added("a@11")]).then_stalls(),
            ],
            requests: "list 0, watch 10, watch 10, watch 10, watch 10, watch 10",
            objects: "a@11",
            version: "11",
        },
    ])
    .await;
}

fn page(token: &str, names: &[&str]) -> Answer {
    let meta = [len_field(2, b"10"), len_field(3, token.as_bytes())].concat();
    let items = names.iter().map(|name| len_field(2, &config_maps::config_map(name, 1)));
    let raw = std::iter::once(len_field(1, &meta)).chain(items).collect::<Vec<_>>().concat();
    Answer::ok(body_of("v1", "ConfigMapList", &raw))
}

/// A server or a proxy splits a list that was requested whole. The cache syncs with all of it, or not at all.
#[tokio::test(start_paused = true)]
async fn syncs_with_all_pages_that_it_did_not_request() {
    let script = scripted([
        page("t", &["a", "b"]),
        Answer::status(500),
        page("t", &["a", "b"]),
        page("t", &["a", "b"]),
        page("t", &["a", "b"]),
        page("u", &[]),
        page("", &["c"]),
        idle_watch(),
    ]);
    let reflector =
        Reflector::<[u8]>::new(&script.client(), &Resource::CONFIG_MAPS).strategy(Strategy::ListThenWatch).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    assert_eq!(cache.synced().await.unwrap(), "10");
    assert_eq!(objects(&cache), "a@1 b@1 c@1");
    sleep(Duration::from_secs(1)).await;
    assert_eq!((script.requests(), script.left()), (8, 0), "{}", requests(&script));
    run.abort();
}

/// Another release of the server, perhaps behind a balancer, cannot read the token of the second page.
#[tokio::test(start_paused = true)]
async fn lists_again_after_a_refused_page_token() {
    for strategy in [LIST, FIRST] {
        let mut answers = vec![page("t", &["a", "b"]), Answer::status(400), page("u", &["a", "b"]), page("", &["c"])];
        if strategy == FIRST {
            let before = || [list("10", "x@1"), idle_watch()];
            answers.splice(2..2, before());
            answers.splice(0..0, before());
        }
        let script = scripted(answers.into_iter().chain([idle_watch()]));
        let reflector = reflector(script.clone(), strategy).prepare();
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        assert_eq!(timeout(Duration::from_secs(60), cache.synced()).await.unwrap().unwrap(), "10", "{strategy:?}");
        assert_eq!(objects(&cache), "a@1 b@1 c@1", "{strategy:?}: {}", requests(&script));
        run.abort();
    }
}

/// After a list has taken longer than the server allows, the reflector lists in pages, and retries an interrupted page.
#[tokio::test(start_paused = true)]
async fn retries_an_interrupted_page() {
    let script = scripted([
        late(list("9", "a@1").cut(1)),
        page("t", &["a", "b"]),
        page("", &["c", "d"]).cut(3),
        page("", &["c", "d"]),
        idle_watch(),
    ]);
    let reflector =
        Reflector::<[u8]>::new(&script.client(), &Resource::CONFIG_MAPS).strategy(Strategy::ListThenWatch).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    assert_eq!(cache.synced().await.unwrap(), "10");
    assert_eq!(objects(&cache), "a@1 b@1 c@1 d@1");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(script.paths().iter().filter(|path| path.contains("continue=t")).count(), 2, "{}", requests(&script));
    assert_eq!(script.requests(), 5);
    run.abort();
}

/// `TestReflectorListAndWatchWithErrors`
#[tokio::test(start_paused = true)]
async fn keeps_its_objects_across_errors() {
    let script = scripted([
        list("10", "a@1 b@2"),
        watch([error(410)]),
        Answer::status(500),
        Answer::status(403),
        Answer::fails(TransportErrorKind::Connect, "refused"),
        Answer::ok("no list"),
        list("12", "a@1").cut(1),
        late(list("12", "a@1").cut(1)),
        list("13", "b@2"),
        idle_watch(),
    ]);
    let reflector = reflector(script.clone(), LIST).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    let mut errors = 0;
    while script.left() > 1 {
        assert_eq!(
            (objects(&cache).as_str(), cache.resource_version().as_str()),
            ("a@1 b@2", "10"),
            "{}",
            requests(&script)
        );
        errors = cache.status().errors;
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(errors, 7);
    cache.wait_for_resource_version("13").await.unwrap();
    assert_eq!(objects(&cache), "b@2");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_role_the_resource_credentials_or_a_proxy() {
    let recoverable = [
        Answer::status(401),
        Answer::status(403),
        Answer::status(404),
        Answer::status(408),
        Answer::ok("<html>"),
        Answer::fails(TransportErrorKind::Credentials, ""),
    ];
    for answer in recoverable {
        for strategy in [LIST, FIRST, None] {
            let mut answers = vec![answer.clone(); 4];
            match strategy {
                LIST => answers.extend([list("10", "a@1"), idle_watch()]),
                FIRST => answers.extend([list("10", "a@1"), idle_watch(), list("10", "a@1")]),
                _ => answers.extend([watch([added("a@1"), initial_end(10)]).then_stalls()]),
            }
            let script = scripted(answers);
            let reflector = reflector(script, strategy).prepare();
            let cache = reflector.cache();
            let run = tokio::spawn(reflector.run());
            assert_eq!(timeout(Duration::from_secs(600), cache.synced()).await.unwrap().unwrap(), "10", "{strategy:?}");
            assert_eq!(cache.status().errors, 4, "{strategy:?}");
            run.abort();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fails_fast_before_the_first_sync_only_if_requested() {
    for strategy in [LIST, FIRST, None] {
        for code in [401, 403, 404] {
            let given_up =
                reflector(scripted([Answer::status(503), Answer::status(code)]), strategy).fail_fast().prepare();
            let cache = given_up.cache();
            let ended = timeout(Duration::from_secs(60), given_up.run()).await.expect("the reflector ends");
            assert_eq!(ended.unwrap_err().code(), Some(code), "{strategy:?}");
            assert_eq!(cache.status().last_error.and_then(|error| error.code()), Some(code), "the last error");
            assert!(cache.synced().await.is_err());
        }
    }
    for code in [401, 403, 404] {
        let script = scripted([
            list("10", "a@1"),
            Answer::status(code),
            watch([error(410)]),
            Answer::status(code),
            list("11", "a@1"),
            idle_watch(),
        ]);
        let reflector = reflector(script.clone(), LIST).fail_fast().prepare();
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        cache.wait_for_resource_version("11").await.unwrap();
        assert_eq!(cache.status().last_error.and_then(|error| error.code()), Some(code));
        let asked = requests(&script);
        assert!(asked.starts_with("list 0, watch 10, watch 10, list 10, list 10"), "the watch is retried: {asked}");
        run.abort();
    }
}

/// An error that no retry can fix ends a reflector before its first sync.
#[tokio::test(start_paused = true)]
async fn a_refused_request_or_certificate_ends_a_reflector_before_the_first_sync() {
    for answer in [Answer::status(400), Answer::status(422), Answer::fails(TransportErrorKind::Tls, "")] {
        for strategy in [LIST, FIRST, None] {
            let script = scripted([]).afterwards(answer.clone());
            let ended = timeout(Duration::from_secs(60), reflector(script, strategy).prepare().run()).await;
            ended.expect("the reflector ends").unwrap_err();
        }
    }
}

/// A reader of the status, such as the start of a mirror, must not take the refusal for the end of the collection.
#[tokio::test(start_paused = true)]
async fn refused_initial_events_are_no_error_of_the_cache() {
    for code in [400, 422] {
        let reflector = reflector(scripted([Answer::status(code), list("10", "a@1"), idle_watch()]), None).prepare();
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        assert_eq!(cache.synced().await.unwrap(), "10");
        let status = cache.status();
        assert!(status.last_error.is_none() && status.errors == 0, "{status:?}");
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn skips_and_counts_an_object_that_cannot_be_stored() {
    let reflector = reflector(scripted([list("10", "a@1"), idle_watch()]), LIST);
    let nameless = Projection::new().drop(&FieldPath::new("metadata.name", &[1, 1]));
    let reflector = reflector.projection(nameless).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    let error = cache.synced().await.unwrap_err();
    assert_eq!(
        chain(&error),
        "the cache is incomplete at version 10: 1 object was skipped: cannot store default/a: the object has no name"
    );
    let SyncError::Incomplete { resource_version, skipped, last } = error else { panic!("{error}") };
    assert_eq!((resource_version.as_str(), skipped), ("10", 1));
    let last = last.unwrap();
    assert!(last.index.is_none() && matches!(last.source.downcast_ref(), Some(StoreError::NoName)), "{last:?}");
    assert!(cache.is_empty() && !run.is_finished());
    run.abort();
}

/// A store that has room for two objects.
fn room_for_two() -> Store<[u8]> {
    let store = Store::new(StorageFormat::Encoded);
    store.set_budget(Some(300));
    store
}

#[tokio::test(start_paused = true)]
async fn a_full_cache_commits_deletions_and_relists_once_there_is_room() {
    let answers = [
        list("10", "a@1 b@2"),
        watch([error(410)]),
        // None of these objects fits before the others are deleted.
        list("20", "c@11 d@12"),
        list("21", "c@11 d@12"),
        idle_watch(),
    ];
    let script = scripted(answers);
    let reflector = reflector(script.clone(), LIST).store(room_for_two()).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    timeout(Duration::from_secs(600), cache.wait_for_resource_version("21")).await.unwrap().unwrap();
    assert_eq!(objects(&cache), "c@11 d@12");
    assert_eq!((cache.status().skipped, cache.synced().await.unwrap().as_str()), (0, "21"));
    assert_eq!(script.left(), 0, "{}", requests(&script));
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_full_cache_is_incomplete_until_the_skipped_object_is_gone() {
    let answers = [
        list("10", "a@1 b@2 c@3"),
        watch([added("d@11"), deleted("c@12"), modified("d@13")]).then_stalls(),
        list("13", "a@1 b@2 d@13"),
    ];
    let script = scripted(answers);
    let reflector = reflector(script.clone(), LIST).store(room_for_two()).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    cache.wait_for_resource_version("13").await.unwrap();
    assert_eq!(cache.status().skipped, 1, "d is counted once");
    let error = cache.synced().await.unwrap_err();
    assert!(
        chain(&error).contains("default/d: the object does not fit into the store's budget of 300 bytes"),
        "{error}"
    );
    sleep(Duration::from_secs(60)).await;
    assert_eq!((objects(&cache).as_str(), script.left()), ("a@1 b@2", 1), "no relist, which would not fit either");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_full_cache_relists_when_a_deletion_makes_room() {
    let answers =
        [list("10", "a@1 b@2 c@3"), watch([deleted("a@11")]).then_stalls(), list("11", "b@2 c@3"), idle_watch()];
    let script = scripted(answers);
    let reflector = reflector(script.clone(), LIST).store(room_for_two()).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    timeout(Duration::from_secs(600), async {
        while cache.synced().await.is_err() || script.left() > 0 {
            sleep(Duration::from_secs(1)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(objects(&cache), "b@2 c@3");
    run.abort();
}

/// The store keeps half of the objects: mostly the references of delta groups, which the budget counts too.
#[tokio::test(start_paused = true)]
async fn a_full_cache_of_compressed_objects_does_not_relist_in_vain() {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut raw = len_field(1, &len_field(2, b"10"));
    for group in 0..300 {
        let text: String = std::iter::repeat_with(|| rng.alphanumeric()).take(2000).collect();
        for name in ["a", "b"] {
            let object = object("ns", &format!("{group}-{name}"), "1").owner(&group.to_string()).data(text.clone());
            raw.extend(len_field(2, &object.to_bytes(Encoding::Protobuf)));
        }
    }
    let body = body_of("v1", "ConfigMapList", &raw);
    let with_budget = async |budget| {
        let store = Store::<[u8]>::new(StorageFormat::Compressed);
        store.set_budget(budget);
        let body = body.clone();
        let script = Scripted::by(move |asked, _| match asked.parameter("watch") {
            None => Answer::ok(body.clone()),
            Some(_) => idle_watch(),
        });
        let reflector = reflector(script.clone(), LIST).store(store.clone()).prepare();
        let run = tokio::spawn(reflector.run());
        sleep(Duration::from_secs(1800)).await;
        store.set_budget(budget);
        sleep(Duration::from_secs(1800)).await;
        run.abort();
        let lists = requests(&script)
            .split(", ")
            .filter(|request| *request != "list one" && request.starts_with("list"))
            .count();
        (store.memory(), store.skipped(), lists)
    };
    let (all, ..) = with_budget(None).await;
    let budget = all.total() - all.compressed / 2;
    let (memory, skipped, lists) = with_budget(Some(budget)).await;
    assert!((100..500).contains(&skipped), "{skipped} skipped, {memory:?}");
    assert!(lists <= 2, "{lists} lists in an hour");
}

/// The reflector retries the watch, and does not relist.
#[tokio::test(start_paused = true)]
async fn backs_off_where_lists_are_allowed_and_watches_are_not() {
    for code in [401, 403] {
        let script = scripted([list("10", "a@1")]).afterwards(Answer::status(code));
        let run = tokio::spawn(reflector(script.clone(), LIST).prepare().run());
        sleep(Duration::from_secs(3600)).await;
        let requests = requests(&script);
        let [lists, watches] = ["list 0", "watch 10"].map(|kind| requests.matches(kind).count());
        assert!(lists == 1 && (60..150).contains(&watches), "{code}: {lists} lists and {watches} watches in an hour");
        assert_eq!(requests.matches("list").count() - lists, requests.matches("list one").count(), "{code}");
        run.abort();
    }
}

/// Each watch ends after an event: both lists and watches back off.
#[tokio::test(start_paused = true)]
async fn backs_off_where_watches_end_after_an_event() {
    let version = std::sync::atomic::AtomicU64::new(10);
    let script = Scripted::by(move |asked, _| {
        let version = version.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let object = format!("a@{version}");
        match asked.parameter("watch") {
            None => list(&version.to_string(), &object),
            Some(_) => watch([added(&object), error(410)]),
        }
    });
    let run = tokio::spawn(reflector(script.clone(), LIST).prepare().run());
    sleep(Duration::from_secs(3600)).await;
    assert!((60..300).contains(&script.requests()), "{} requests in an hour", script.requests());
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn backs_off_where_each_list_is_refused_for_its_version() {
    for refused in [Answer::status(410), too_large()] {
        let script = scripted([]).afterwards(refused);
        let run = tokio::spawn(reflector(script.clone(), LIST).prepare().run());
        sleep(Duration::from_secs(3600)).await;
        assert!((60..300).contains(&script.requests()), "{} requests in an hour", script.requests());
        run.abort();
    }
}

/// Otherwise a cache whose versions expire now and then would be out of date for longer each time.
#[tokio::test(start_paused = true)]
async fn a_watch_that_lived_for_a_while_resets_the_backoff() {
    let script = Scripted::by(|asked, n| match asked.parameter("watch") {
        Some(_) => watch([]).then(Duration::from_secs(20), error(410)),
        None => list(&(10 + n).to_string(), "a@1"),
    });
    let cache = reflector(script, LIST).spawn();
    sleep(Duration::from_secs(3600)).await;
    assert!(cache.status().syncs > 120, "{:?}", cache.status());
}

#[tokio::test(start_paused = true)]
async fn rejects_a_selector_that_would_select_something_else() {
    for strategy in [None, LIST, FIRST] {
        let script = scripted([]);
        let reflector =
            reflector(script.clone(), strategy).selection(Selection::all().labels(LabelSelector::new().exists("")));
        let error = reflector.prepare().run().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Params(_)), "{error}");
        assert_eq!(requests(&script), "");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_retry_after() {
    let started = Instant::now();
    let reflector =
        reflector(scripted([Answer::status(429).header("retry-after", "100"), list("10", ""), idle_watch()]), LIST);
    let reflector = reflector.prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(100), "{:?}", started.elapsed());
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn retries_and_reports_a_connection_error() {
    let refused = Answer::fails(TransportErrorKind::Connect, "refused");
    let script = scripted([refused, list("10", "a@1"), idle_watch()]);
    let reflector = reflector(script.clone(), LIST).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    assert_eq!(cache.synced().await.unwrap(), "10");
    assert_eq!(cache.status().last_error.unwrap().to_string(), "cannot connect to scripted:6443: refused");
    assert_eq!(requests(&script), "list 0, list 0, watch 10");
    run.abort();
}

/// An aggregated API server without protobuf for the type.
#[tokio::test(start_paused = true)]
async fn syncs_in_json_after_a_406() {
    let item = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"a","resourceVersion":"1"}}"#;
    for strategy in [LIST, FIRST, None] {
        let script = Scripted::by(move |asked, _| match asked.headers["accept"].to_str().unwrap() {
            "application/json" if asked.parameter("sendInitialEvents").is_some() => Answer::status(422),
            "application/json" if asked.parameter("watch").is_some() => idle_watch(),
            "application/json" => Answer::ok(format!(
                r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{item}]}}"#
            )),
            _ => Answer::status(406),
        });
        let reflector = reflector(script.clone(), strategy).prepare();
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        assert_eq!(cache.synced().await.unwrap(), "9", "{strategy:?}");
        assert_eq!(objects(&cache), "a@1", "{strategy:?}");
        sleep(Duration::from_secs(1)).await;
        let refused = script.asked().iter().filter(|asked| asked.headers["accept"] != "application/json").count();
        assert_eq!(refused, 1, "{}", requests(&script));
        run.abort();
    }
}
