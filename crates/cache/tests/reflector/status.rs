//! What a cache and its subscribers report about progress: versions, synced, the last sync, the end.

use std::time::Duration;

use listwatch::client::{Client, Metrics, Resource, Retry};
use listwatch_cache::{Change, Reflector, StorageFormat, Store, Strategy};
use tokio::time::{Instant, sleep, timeout};

use crate::script::{
    FIRST, LIST, Scenario, added, check, deleted, idle_watch, late, list, modified, objects, reflector, requests,
    scripted, watch,
};
use crate::support::chain;
use crate::support::config_maps::{bookmark, error, initial_end};
use crate::support::transport::Answer;

#[tokio::test(start_paused = true)]
async fn events_and_bookmarks_advance_the_version() {
    check([Scenario {
        name: "TestReflectorResourceVersionUpdate",
        strategy: LIST,
        answers: vec![list("10", "a@1"), watch([modified("a@11"), bookmark(20)]), watch([bookmark(30)]), idle_watch()],
        requests: "list 0, watch 10, watch 20, watch 30",
        objects: "a@11",
        version: "30",
    }])
    .await;
}

#[tokio::test(start_paused = true)]
async fn subscribers_continue_with_another_reflector_of_the_store() {
    let store = Store::new(StorageFormat::Encoded);
    let first = reflector(scripted([list("10", "a@1"), idle_watch()]), LIST).store(store.clone()).prepare();
    let cache = first.cache();
    let run = tokio::spawn(first.run());
    cache.synced().await.unwrap();
    let second = reflector(scripted([list("11", "a@1 b@11"), idle_watch()]), LIST).store(store).prepare();
    run.abort();
    drop(run.await);
    let mut subscriber = cache.subscribe().start();
    let run = tokio::spawn(second.run());
    assert!(matches!(subscriber.next().await, Some(Change::Applied { new: object, .. }) if object.name() == "b"));
    run.abort();
}

/// The first list fails twice. The watch delivers 3 changes, then its version expires, and the relist needs 2 attempts.
#[tokio::test(start_paused = true)]
async fn counts_relists_changes_retries_and_the_classes_of_errors() {
    for (strategy, first) in [
        (LIST, vec![list("10", "a@1 b@2"), watch([added("c@11"), modified("a@12"), deleted("b@13"), error(410)])]),
        (
            None,
            vec![watch([
                added("a@1"),
                added("b@2"),
                initial_end(10),
                added("c@11"),
                modified("a@12"),
                deleted("b@13"),
                error(410),
            ])],
        ),
    ] {
        let again = if strategy.is_some() {
            vec![list("20", "c@11"), idle_watch()]
        } else {
            vec![watch([added("c@11"), initial_end(20)]).then_stalls()]
        };
        let failed = || [Answer::status(403), Answer::status(429)].into_iter();
        let script = scripted(failed().chain(first).chain([Answer::status(503)]).chain(again));
        let client = Client::new(script.clone()).retry(Retry::never());
        let reflector =
            Reflector::<[u8]>::new(&client, &Resource::CONFIG_MAPS).strategy(strategy.unwrap_or(Strategy::WatchList));
        let reflector = reflector.prepare();
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        cache.wait_for_resource_version("20").await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let status = cache.status();
        assert_eq!(
            (status.syncs, status.relists, status.changes, status.errors),
            (2, 1, 3, 4),
            "{strategy:?}: {status:?}"
        );
        let classes: Vec<_> = status.errors_by_class.iter().map(|(class, count)| (class.as_str(), *count)).collect();
        assert_eq!(classes, [("expired", 1), ("throttled", 1), ("denied", 1), ("server", 1)], "{strategy:?}");
        let Metrics { retries, open_watches, .. } = client.metrics();
        assert_eq!((retries, open_watches), (4, 1), "{strategy:?}");
        run.abort();
        drop(run.await);
        assert_eq!(client.metrics().open_watches, 0, "{strategy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn counts_the_errors_of_indexes() {
    let reflector =
        reflector(scripted([list("10", "a@1 b@2"), watch([modified("b@11")]).then_stalls()]), LIST).prepare();
    let cache = reflector.cache();
    let _by_name = cache.index("name", |object| match object.name() {
        "b" => Err("b has none"),
        name => Ok([name.to_owned()]),
    });
    let run = tokio::spawn(reflector.run());
    cache.wait_for_resource_version("11").await.unwrap();
    let status = cache.status();
    assert_eq!(status.index_errors, 2);
    assert_eq!(chain(&status.last_index_error.unwrap()), "index name failed for default/b: b has none");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn counts_the_objects_that_readers_cannot_decode() {
    let server = scripted([list("10", "a@1 b@2"), watch([modified("b@11")]).then_stalls()]);
    let client = Client::new(server).retry(Retry::never());
    let reflector =
        Reflector::<Undecodable>::new(&client, &Resource::CONFIG_MAPS).strategy(Strategy::ListThenWatch).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    cache.wait_for_resource_version("11").await.unwrap();
    assert_eq!((cache.len(), cache.status().decode_errors), (2, 0));
    for object in cache.snapshot().iter() {
        assert!(object.decode().is_err());
    }
    let status = cache.status();
    assert_eq!((status.decode_errors, status.skipped, status.errors), (2, 0, 0));
    let last = status.last_decode_error.unwrap().to_string();
    assert_eq!(
        last,
        "cannot decode default/b at version 11: cannot decode the protobuf: Undecodable.metadata: invalid wire type: \
         LengthDelimited (expected Varint)"
    );
    assert_eq!(cache.synced().await.unwrap(), "11", "the cache is complete");
    run.abort();
}

/// A message that has a string where a ConfigMap has its metadata.
#[derive(Clone, PartialEq, prost::Message)]
struct Undecodable {
    #[prost(uint64, optional, tag = "1")]
    metadata: Option<u64>,
}

#[tokio::test(start_paused = true)]
async fn waits_for_synced_and_for_a_version_end_with_the_reflector() {
    let reflector =
        reflector(scripted([list("10", "a@1"), watch([]), watch([added("b@12")]).then_stalls()]), LIST).prepare();
    let cache = reflector.cache();
    assert!(timeout(Duration::from_secs(60), cache.synced()).await.is_err(), "the reflector does not run yet");
    let run = tokio::spawn(reflector.run());
    assert_eq!(cache.synced().await.unwrap(), "10");
    cache.wait_for_resource_version("12").await.unwrap();
    assert_eq!(objects(&cache), "a@1 b@12");
    assert!(timeout(Duration::from_secs(60), cache.wait_for_resource_version("13")).await.is_err());
    for version in ["", "0", "x"] {
        let error =
            timeout(Duration::from_secs(60), cache.wait_for_resource_version(version)).await.unwrap().unwrap_err();
        let expected = format!("the resource version {version:?} does not compare with the cache's version \"12\"");
        assert_eq!(error.to_string(), expected);
    }
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    assert!(cache.wait_for_resource_version("13").await.is_err(), "the reflector has ended");
    assert_eq!(objects(&cache), "a@1 b@12", "the objects stay");

    // The list in parallel to the watch gets no answer.
    let reflector =
        self::reflector(scripted([list("20", "x@1"), watch([added("c@30")]).then_stalls()]), FIRST).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    assert!(timeout(Duration::from_secs(80), cache.synced()).await.is_err());
    assert_eq!(objects(&cache), "c@30", "the watch is live before the list is complete");
    run.abort();
}

/// `TestWatchList`
#[tokio::test(start_paused = true)]
async fn a_watch_list_is_synced_by_its_bookmark_and_starts_over_when_interrupted() {
    let pause = Duration::from_secs(8);
    let script = scripted([
        watch([added("a@1"), bookmark(9)]).then_ends(pause),
        watch([added("b@2"), bookmark(9)]).then(pause, initial_end(10)).then_stalls(),
    ]);
    let reflector = reflector(script.clone(), None).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    for requested in ["watch list", "watch list, watch list"] {
        sleep(pause * 3 / 4).await;
        assert_eq!(requests(&script), requested);
        assert!(!cache.is_synced(), "{requested}");
        assert_eq!((cache.resource_version(), cache.status().syncs), (String::new(), 0), "{requested}");
    }
    assert_eq!(cache.synced().await.unwrap(), "10");
    assert_eq!((objects(&cache).as_str(), requests(&script).as_str()), ("b@2", "watch list, watch list"));
    run.abort();
}

/// `TestRetryWatcher`: the server closes four watches, and sends the last event again after each.
#[tokio::test(start_paused = true)]
async fn subscribers_get_each_change_once_across_closed_watches() {
    let script = scripted([
        list("10", ""),
        watch([added("a@11")]),
        watch([added("a@11"), modified("a@12")]),
        watch([modified("a@12"), added("b@13"), bookmark(14)]),
        watch([added("b@13"), deleted("b@15")]),
        watch([deleted("b@15"), added("c@16")]).then_stalls(),
    ]);
    let reflector = reflector(script.clone(), LIST).prepare();
    let mut subscriber = reflector.cache().subscribe().start();
    let run = tokio::spawn(reflector.run());
    let mut changes = Vec::new();
    while let Ok(Some(change)) = timeout(Duration::from_secs(100), subscriber.next()).await {
        let (sign, object) = match change {
            Change::Applied { new: object, .. } => ("+", object),
            Change::Deleted { last, .. } => ("-", last),
            _ => continue,
        };
        changes.push(format!("{sign}{}@{}", object.name(), object.resource_version()));
    }
    assert_eq!(changes.join(" "), "+a@11 +a@12 +b@13 -b@15 +c@16");
    assert_eq!(requests(&script), "list 0, watch 10, watch 10, watch 11, watch 14, watch 14");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn subscribers_get_deletions_from_a_list() {
    let script =
        scripted([list("10", "a@1 b@2"), watch([deleted("a@11"), error(410)]), list("12", "c@12"), idle_watch()]);
    let reflector = reflector(script, LIST).prepare();
    let (cache, mut subscriber) = (reflector.cache(), reflector.cache().subscribe().start());
    let run = tokio::spawn(reflector.run());
    let mut changes = Vec::new();
    while changes.iter().filter(|change| *change == "=").count() < 2 {
        changes.push(match subscriber.next().await.unwrap() {
            Change::Applied { new: object, .. } => format!("+{}", object.name()),
            Change::Deleted { last, final_state_unknown: true, .. } => {
                format!("?{}", last.name())
            }
            Change::Deleted { last, .. } => format!("-{}", last.name()),
            Change::Synced => "=".to_owned(),
            change => panic!("{change:?}"),
        });
    }
    // `a` is added and deleted before the first poll.
    assert_eq!(changes.join(" "), "+b = +c ?b =");
    assert_eq!(cache.status().syncs, 2);
    run.abort();
}

/// Each list, event and bookmark updates `last_synced_at`, but not while a list is in progress.
#[tokio::test(start_paused = true)]
async fn reports_when_it_was_last_synced() {
    for (name, strategy, answers, expected) in [
        ("a list", LIST, &[list("10", ""), idle_watch()][..], 0),
        ("a late list", LIST, &[late(list("10", "")), idle_watch()], 59),
        ("a bookmark", LIST, &[list("10", ""), late(watch([bookmark(10)])).then_stalls()], 59),
        ("an event", LIST, &[list("10", ""), late(watch([added("a@11")])).then_stalls()], 59),
        ("an interrupted relist", LIST, &[list("10", ""), watch([error(410)]), late(list("10", "").cut(1))], 0),
        ("an interrupted list", LIST, &[late(list("10", "").cut(1))], -1),
        ("an initial event", None, &[late(watch([added("a@11")])).then_stalls()], -1),
    ] {
        let reflector = reflector(scripted(answers.to_vec()), strategy).prepare();
        let (cache, started) = (reflector.cache(), Instant::now());
        let run = tokio::spawn(reflector.run());
        sleep(Duration::from_secs(70)).await;
        let at = cache.status().last_synced_at.map(|at| Instant::from_std(at) - started);
        assert_eq!(at.map_or(-1, |at| i64::try_from(at.as_secs()).unwrap()), expected, "{name}");
        run.abort();
    }
}

/// A silent watch is confirmed by the version of the server, at the time at which the server was asked.
#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_synced_while_the_server_has_its_version() {
    let second = Duration::from_secs(1);
    for (name, answers, expected) in [
        ("the version of the list", vec![list("10", "a@9"), idle_watch(), list("10", "x@1")], 120),
        ("a late answer", vec![list("10", "a@9"), idle_watch(), list("10", "x@1").after(second * 30)], 120),
        ("twice", vec![list("10", "a@9"), idle_watch(), list("10", "x@1"), list("10", "x@1")], 240),
        ("a bookmark", vec![list("10", "a@9"), watch([bookmark(12)]).then_stalls(), list("12", "x@1")], 120),
        ("a write", vec![list("10", "a@9"), watch([modified("a@12")]).then_stalls(), list("12", "x@1")], 120),
        ("versions without an order", vec![list("x", "a@9"), idle_watch(), list("x", "x@1")], 120),
        // The deletions of an expired lease share a version.
        ("a deletion", vec![list("10", "a@9"), watch([deleted("a@12")]).then_stalls(), list("12", "x@1")], 0),
        (
            "a deletion, then a relist",
            vec![
                list("10", "a@9"),
                watch([deleted("a@12")]).then_stalls(),
                list("12", "x@1"),
                list("12", "x@1"),
                list("12", ""),
            ],
            240,
        ),
        ("a newer version", vec![list("10", "a@9"), idle_watch(), list("11", "x@1")], 0),
        ("an error", vec![list("10", "a@9"), idle_watch(), Answer::status(500)], 0),
        (
            "an event during the request",
            vec![
                list("10", "a@9"),
                watch([]).then(second * 130, bookmark(11)).then_stalls(),
                list("10", "x@1").after(second * 30),
            ],
            130,
        ),
    ] {
        let reflector = reflector(scripted(answers), LIST).prepare();
        let (cache, started) = (reflector.cache(), Instant::now());
        let run = tokio::spawn(reflector.run());
        sleep(second * 250).await;
        let at = Instant::from_std(cache.status().last_synced_at.unwrap()) - started;
        assert_eq!(at.as_secs(), expected, "{name}");
        run.abort();
    }
}
