//! Reflectors that are spawned by one call, or that share a task with a consumer.

use listwatch_cache::{Change, ChangeLogLimits, EndReason, StorageFormat};

use crate::script::{LIST, added, list, modified, objects, reflector, scripted, watch};
use crate::support::config_maps::error;

#[tokio::test(start_paused = true)]
async fn options_apply_in_any_order_to_the_store_that_readers_have() {
    let script = scripted([list("10", "a@1"), watch([added("b@11")]).then_stalls()]);
    let options = reflector(script, LIST).change_log(ChangeLogLimits::default()).store(StorageFormat::Compressed);
    let reflector = options.namespace("default").fail_fast().prepare();
    let before = reflector.cache();
    let after = reflector.spawn();
    after.wait_for_resource_version("11").await.unwrap();
    for cache in [before, after] {
        assert_eq!(objects(&cache), "a@1 b@11");
        let change = cache.changes_after("10").unwrap().try_next().unwrap().expect("a change");
        assert_eq!(change.object().name(), "b");
        assert!(cache.memory().zstd > 0);
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
async fn a_consumer_in_the_task_of_the_reflector_gets_all_objects_and_ends_it() {
    let answers = [
        list("10", "a@1 b@2"),
        watch([added("c@11"), modified("a@12"), error(410)]),
        list("20", "a@12"),
        watch([modified("a@21")]).then_stalls(),
    ];
    let reflector = reflector(scripted(answers), LIST).prepare();
    let mut changes = reflector.cache().subscribe().start();
    let consumer = async {
        let mut seen = Vec::new();
        while let Some(change) = changes.next().await {
            match change {
                Change::Applied { new, .. } => seen.push(format!("{}@{}", new.name(), new.resource_version())),
                Change::Deleted { last, .. } => seen.push(format!("-{}", last.name())),
                _ => {}
            }
            if seen.last().is_some_and(|last| last == "a@21") {
                break;
            }
        }
        seen
    };
    let cache = reflector.cache();
    let seen = tokio::select! {
        ended = reflector.run() => panic!("{ended:?}"),
        seen = consumer => seen,
    };
    // Changes of one object that arrive together are coalesced.
    let contains = |change: &str| seen.iter().any(|seen| seen == change);
    assert!(contains("b@2") && contains("-b") && contains("a@21"), "{seen:?}");
    assert!(matches!(cache.status().ended_by, Some(EndReason::Dropped)));
}
