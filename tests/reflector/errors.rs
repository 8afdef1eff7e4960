//! Errors: which end a reflector, which are retried, and what the store holds meanwhile.

use std::time::Duration;

use listwatch::cache::{Residency, Store, StoreError};
use listwatch::client::{ErrorKind, ListOptions, TransportErrorKind};
use listwatch::reflector::SyncError;
use listwatch::{FieldPath, Projection};
use tokio::time::{Instant, sleep, timeout};

use crate::script::{
    FIRST, LIST, Scenario, added, check, deleted, idle_watch, late, list, modified, objects, reflector, requests,
    scripted, watch,
};
use crate::support::config_maps::error;
use crate::support::transport::Answer;

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
    let reflector = reflector(script.clone(), LIST);
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    let mut errors = 0;
    while script.left() > 1 {
        assert_eq!((objects(&cache).as_str(), cache.version().as_str()), ("a@1 b@2", "10"), "{}", requests(&script));
        errors = cache.status().errors;
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(errors, 7);
    cache.wait_until("13").await.unwrap();
    assert_eq!(objects(&cache), "b@2");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_final_error_ends_it_before_the_first_sync_only() {
    for code in [401, 403, 404] {
        let given_up = reflector(scripted(vec![Answer::status(code); 4]), LIST);
        let cache = given_up.cache();
        assert_eq!(given_up.run().await.unwrap_err().code(), code);
        assert_eq!(cache.status().last_error.map(|error| error.code()), Some(code), "the status has it");
        assert!(cache.synced().await.is_err());
        let script =
            scripted([list("10", "a@1"), watch([error(410)]), Answer::status(code), list("11", "a@1"), idle_watch()]);
        let reflector = reflector(script, LIST);
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        cache.wait_until("11").await.unwrap();
        assert_eq!(cache.status().last_error.map(|error| error.code()), Some(code));
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn skips_and_counts_an_object_that_cannot_be_stored() {
    let reflector = reflector(scripted([list("10", "a@1"), idle_watch()]), LIST);
    let nameless = Projection::new().drop(&FieldPath::new(&[1, 1]));
    let reflector = reflector.projection(nameless);
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    let error = cache.synced().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the cache is incomplete at version 10: 1 object was skipped: default/a: the object has no name"
    );
    let SyncError::Incomplete { resource_version, skipped, last } = error else { panic!("{error}") };
    assert_eq!((resource_version.as_str(), skipped), ("10", 1));
    assert!(matches!(last.unwrap().error, StoreError::NoName));
    assert!(cache.is_empty() && !run.is_finished());
    run.abort();
}

/// A store that has room for two objects.
fn room_for_two() -> Store<[u8]> {
    let store = Store::new(Residency::Encoded);
    store.set_budget(Some(300));
    store
}

#[tokio::test(start_paused = true)]
async fn a_full_cache_commits_deletions_and_relists_once_there_is_room() {
    let answers = [
        list("10", "a@1 b@2"),
        watch([error(410)]),
        // Nothing of it fits before the others are gone.
        list("20", "c@11 d@12"),
        list("21", "c@11 d@12"),
        idle_watch(),
    ];
    let script = scripted(answers);
    let reflector = reflector(script.clone(), LIST).store(room_for_two());
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    timeout(Duration::from_secs(600), cache.wait_until("21")).await.unwrap().unwrap();
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
    let reflector = reflector(script.clone(), LIST).store(room_for_two());
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    cache.wait_until("13").await.unwrap();
    assert_eq!(cache.status().skipped, 1, "d, whatever often it came");
    let error = cache.synced().await.unwrap_err();
    assert!(error.to_string().contains("default/d: the store has no room for the object in its 300 bytes"), "{error}");
    sleep(Duration::from_secs(60)).await;
    assert_eq!((objects(&cache).as_str(), script.left()), ("a@1 b@2", 1), "no relist brings more");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_full_cache_relists_when_a_deletion_makes_room() {
    let answers =
        [list("10", "a@1 b@2 c@3"), watch([deleted("a@11")]).then_stalls(), list("11", "b@2 c@3"), idle_watch()];
    let script = scripted(answers);
    let reflector = reflector(script.clone(), LIST).store(room_for_two());
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

/// `TestRetryWatcher`: 401 and 403 end a watch.
#[tokio::test(start_paused = true)]
async fn backs_off_where_lists_are_allowed_and_watches_are_not() {
    for code in [401, 403] {
        let answers = [list("10", "a@1"), Answer::status(code)];
        let script = scripted(answers.iter().cycle().take(2000).cloned());
        let run = tokio::spawn(reflector(script.clone(), LIST).run());
        sleep(Duration::from_secs(3600)).await;
        let lists = requests(&script).matches("list").count();
        assert!((60..150).contains(&lists), "{code}: {lists} lists in an hour");
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_a_limit() {
    for strategy in [None, LIST, FIRST] {
        let script = scripted([]);
        let reflector = reflector(script.clone(), strategy).options(ListOptions::default().limit(10));
        let error = reflector.run().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Options(_)), "{error}");
        assert_eq!(requests(&script), "");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_retry_after() {
    let started = Instant::now();
    let reflector =
        reflector(scripted([Answer::status(429).header("retry-after", "100"), list("10", ""), idle_watch()]), LIST);
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
    let reflector = reflector(script.clone(), LIST);
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    assert_eq!(cache.synced().await.unwrap(), "10");
    assert_eq!(cache.status().last_error.unwrap().to_string(), "transport: connect: refused");
    assert_eq!(requests(&script), "list 0, list 0, watch 10");
    run.abort();
}
