//! Errors: which end a reflector, which are retried, and what the store holds meanwhile.

use std::time::Duration;

use listwatch::cache::{Budget, Residency, Store};
use listwatch::client::{ErrorKind, ListOptions, TransportErrorKind};
use listwatch::{FieldPath, Projection};
use tokio::time::{Instant, sleep, timeout};

use crate::script::{
    FIRST, LIST, Scenario, added, check, idle_watch, late, list, objects, reflector, requests, scripted, watch,
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
async fn an_object_that_cannot_be_stored_ends_it() {
    let reflector = reflector(scripted([list("10", "a@1")]), LIST);
    let nameless = Projection::new().drop(&FieldPath::new("metadata.name", &[1, 1]));
    let error = timeout(Duration::from_secs(60), reflector.projection(nameless).run()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the object has no name"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_exceeded_budget_ends_it_before_the_first_sync_only() {
    let too_small = || {
        let store = Store::new(Residency::Encoded);
        store.set_budget(Budget::Refuse(200));
        store
    };
    let run = reflector(scripted([list("10", "a@1 b@2 c@3 d@4")]), LIST).store(too_small()).run();
    let error = timeout(Duration::from_secs(60), run).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("no room for the object in its 200 bytes"), "{error}");

    let script = scripted([
        list("10", "a@1"),
        watch([added("b@11"), added("c@12"), added("d@13")]),
        list("13", "a@1 b@11"),
        idle_watch(),
    ]);
    let reflector = reflector(script, LIST).store(too_small());
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    while cache.status().errors == 0 {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(cache.status().last_error.unwrap().to_string().contains("no room"), "a cache that was synced serves on");
    cache.wait_until("13").await.unwrap();
    assert_eq!(objects(&cache), "a@1 b@11");
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
