//! A reflector yields to other tasks while it commits a list.

use listwatch_cache::Change;

use crate::script::{LIST, idle_watch, list, reflector, scripted, watch};
use crate::support::config_maps::error;

const OBJECTS: usize = 3000;
/// The most objects that one step of a commit deletes, and that are written before the task yields.
const MOST: usize = 256;

#[tokio::test(start_paused = true)]
async fn other_tasks_run_between_the_batches_of_a_list() {
    let all: Vec<_> = (0..OBJECTS).map(|i| format!("o-{i}@{}", i + 1)).collect();
    let cache = reflector(scripted([list("5000", &all.join(" ")), idle_watch()]), LIST).spawn();
    let mut lengths = vec![0];
    while !cache.is_synced() {
        tokio::task::yield_now().await;
        lengths.push(cache.len());
    }
    let most = lengths.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert_eq!((cache.len(), most), (OBJECTS, Some(MOST)), "{lengths:?}");
}

#[tokio::test(start_paused = true)]
async fn other_tasks_run_between_the_steps_of_a_commit() {
    let all: Vec<_> = (0..OBJECTS).map(|i| format!("o-{i}@{}", i + 1)).collect();
    let answers = [list("5000", &all.join(" ")), watch([error(410)]), list("6000", "o-7@8"), idle_watch()];
    let cache = reflector(scripted(answers), LIST).spawn();
    cache.synced().await.unwrap();
    let mut changes = cache.subscribe().start();
    let (mut bursts, mut deleted) = (Vec::new(), 0);
    // A task of its own, because the runtime polls it between any two polls of the reflector.
    let consumer = tokio::spawn(async move {
        while let Some(change) = changes.next().await {
            let mut burst = 0;
            let mut is_synced = false;
            for change in std::iter::once(change).chain(std::iter::from_fn(|| changes.try_next())) {
                burst += usize::from(matches!(change, Change::Deleted { .. }));
                is_synced |= matches!(change, Change::Synced);
            }
            bursts.push(burst);
            deleted += burst;
            if is_synced {
                break;
            }
            // The version of the list follows the last deletion.
            assert_eq!(cache.resource_version(), "5000");
            assert_eq!(cache.status().resource_version.as_deref(), Some("5000"));
        }
        (bursts, deleted, cache)
    });
    let (bursts, deleted, cache) = consumer.await.unwrap();
    assert_eq!(deleted, OBJECTS - 1);
    assert!(bursts.iter().all(|burst| *burst <= MOST), "{bursts:?}");
    cache.wait_for_resource_version("6000").await.unwrap();
    assert_eq!((cache.len(), &*cache.resource_version()), (1, "6000"));
}
