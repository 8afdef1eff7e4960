//! Reflectors that are spawned by one call.

use listwatch_cache::{Change, ChangeLogLimits, StorageFormat};

use crate::script::{LIST, added, list, objects, reflector, scripted, watch};

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
