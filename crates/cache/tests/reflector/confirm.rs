//! A cache requests a bookmark, and advances only if it lacks none of the changes before it.

use std::time::Duration;

use listwatch::client::{Client, Retry};
use listwatch_cache::{Cache, ChangeLogLimits};
use tokio::time::sleep;

use crate::script::{LIST, added, deleted, idle_watch, list, modified, objects, reflector, requests, scripted, watch};
use crate::support::config_maps::{bookmark, error};
use crate::support::transport::{Answer, Scripted};

/// Starts a reflector with a list at version 10 and a watch. Further watches get `rest`.
async fn start(main: Answer, rest: impl IntoIterator<Item = Answer>) -> (Scripted, Client, Cache<[u8]>) {
    let script = scripted([list("10", "a@1 b@2"), main].into_iter().chain(rest));
    let client = Client::new(script.clone()).retry(Retry::never());
    let cache = reflector(script.clone(), LIST).change_log(ChangeLogLimits::default()).spawn();
    sleep(Duration::from_secs(1)).await;
    (script, client, cache)
}

/// Returns the events in a text such as `+a@1 ~a@2 -a@3 =5`; `=5` is a bookmark.
fn events(text: &str) -> Answer {
    watch(text.split_whitespace().map(|event| match event.split_at(1) {
        ("+", object) => added(object),
        ("~", object) => modified(object),
        ("-", object) => deleted(object),
        (_, version) => bookmark(version),
    }))
}

#[tokio::test(start_paused = true)]
async fn a_requested_bookmark_advances_a_cache_that_lacks_nothing() {
    let many: Vec<_> = (0..70).map(|n| format!("+n{n}@{}", n + 11)).collect();
    let many = format!("{} =90", many.join(" "));
    for (name, main, requested, version) in [
        ("nothing changed", "", "=20", "20"),
        ("no bookmark", "", "", "10"),
        ("an older bookmark", "", "=9", "10"),
        ("the cache lacks a state", "", "~a@12 =20", "10"),
        ("the cache lacks an object", "", "+c@12 =20", "10"),
        ("the cache lacks a deletion", "", "-a@12 =20", "10"),
        ("the cache has the state", "~a@12", "~a@12 =20", "20"),
        ("the cache is ahead", "~a@12 ~a@14", "~a@12 =13", "14"),
        ("the cache lacks a newer state", "~a@12", "~a@12 ~a@13 =20", "12"),
        ("the object was created again", "-a@12 +a@13", "-a@12 +a@13 =20", "20"),
        // The deletions of an expired lease share a version.
        ("the cache has a half of a version", "-a@13", "-a@13 -b@13 =20", "13"),
        ("the cache has a whole version", "-a@13 -b@13", "-a@13 -b@13 =20", "20"),
        ("too many changes", &many, &many, "90"),
        ("too many changes that the cache lacks", "", &many, "10"),
    ] {
        let (_, client, cache) = start(events(main).then_stalls(), [events(requested)]).await;
        cache.request_bookmark(&client).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let status = cache.status();
        assert_eq!(
            (status.resource_version.as_deref(), &*cache.resource_version()),
            (Some(version), version),
            "{name}"
        );
        assert_eq!(cache.exact_snapshot().unwrap().resource_version(), version, "{name}");
        assert_eq!((status.errors, status.syncs), (0, 1), "{name}");
    }
}

/// The reflector's watch may be older than the bookmark, and deliver newer changes later.
#[tokio::test(start_paused = true)]
async fn a_requested_bookmark_is_not_undone_by_an_older_one() {
    let main = watch([bookmark(15), modified("a@25"), bookmark(30)]).paced(Duration::from_secs(10)).then_stalls();
    let answers = [watch([bookmark(20)]), watch([bookmark(22)])];
    let (script, client, cache) = start(main, answers).await;
    let mut changes = cache.changes_after("10").unwrap();
    for (seconds, version) in [(1, "20"), (10, "22"), (10, "25"), (10, "30")] {
        if seconds == 1 || version == "22" {
            cache.request_bookmark(&client).await.unwrap();
        }
        sleep(Duration::from_secs(seconds)).await;
        if version == "25" {
            assert_eq!(changes.try_next().unwrap().unwrap().resource_version(), "25");
        }
        assert_eq!((cache.resource_version().as_str(), changes.resource_version()), (version, version));
        assert_eq!(cache.status().resource_version.as_deref(), Some(version));
    }
    assert_eq!((objects(&cache).as_str(), cache.status().syncs), ("a@25 b@2", 1));
    assert_eq!(requests(&script), "list 0, watch 10, watch 10, watch 20");
}

#[tokio::test(start_paused = true)]
async fn a_refused_bookmark_is_an_error_of_the_caller() {
    let (_, client, cache) = start(idle_watch(), [watch([error(410)]), Answer::status(500)]).await;
    assert!(cache.request_bookmark(&client).await.unwrap_err().is_expired());
    assert_eq!(cache.request_bookmark(&client).await.unwrap_err().code(), Some(500));
    let status = cache.status();
    assert_eq!((status.resource_version.as_deref(), status.errors, status.is_up_to_date), (Some("10"), 0, true));
}
