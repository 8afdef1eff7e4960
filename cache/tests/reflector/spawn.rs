//! Reflectors that are spawned by one call.

use std::time::Duration;

use listwatch_cache::{Change, ChangeLogLimits, StorageFormat, SyncError};
use tokio::time::sleep;

use crate::script::{LIST, added, idle_watch, list, objects, reflector, requests, scripted, watch};
use crate::support::log::subscribe;
use crate::support::transport::Answer;

#[tokio::test(start_paused = true)]
async fn a_spawned_reflector_syncs_without_a_reader() {
    let script = scripted([list("10", "a@1"), watch([added("b@11")]), idle_watch()]);
    drop(reflector(script.clone(), LIST).store(StorageFormat::Compressed).spawn());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(requests(&script), "list 0, watch 10, watch 10");
}

#[tokio::test(start_paused = true)]
async fn options_apply_in_any_order_to_the_store_that_readers_have() {
    let script = scripted([list("10", "a@1"), watch([added("b@11")]).then_stalls()]);
    let options = reflector(script, LIST).change_log(ChangeLogLimits::default()).store(StorageFormat::Decoded);
    let reflector = options.namespace("default").fail_fast().prepare();
    let before = reflector.cache();
    let after = reflector.spawn();
    after.wait_for_resource_version("11").await.unwrap();
    for cache in [before, after] {
        assert_eq!(objects(&cache), "a@1 b@11");
        let change = cache.changes_after("10").unwrap().try_next().unwrap().expect("a change");
        assert_eq!(change.object().name(), "b");
        assert!(cache.memory().decoded > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_after_the_spawn_gets_all_objects() {
    let cache = reflector(scripted([list("10", "a@1 b@2"), watch([added("c@11")]).then_stalls()]), LIST).spawn();
    let mut changes = cache.subscribe().with_initial_state().start();
    let mut names = Vec::new();
    while names.len() < 3 {
        if let Change::Applied { new, .. } = changes.next().await.unwrap() {
            names.push(new.name().to_owned());
        }
    }
    names.sort();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(objects(&cache), "a@1 b@2 c@11");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_ends_it_reaches_the_readers_and_the_log() {
    let (log, _guard) = subscribe();
    let cache = reflector(scripted([Answer::status(400)]), LIST).spawn();
    let mut changes = cache.subscribe().start();
    assert!(matches!(cache.synced().await, Err(SyncError::Ended { cause: Some(_) })));
    assert!(matches!(changes.next().await, Some(Change::Ended(_))));
    assert!(changes.next().await.is_none());
    let log = log.take();
    assert!(log.contains("the reflector ended") && log.contains("resource=configmaps error="), "{log}");
}
