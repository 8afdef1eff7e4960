//! Loaded caches: a reflector resumes the watch from the file, or lists if the file is of another collection.

use std::path::Path;
use std::time::Duration;

use listwatch::Shard;
use listwatch::client::{Selection, TransportErrorKind};
use listwatch::path::meta;
use listwatch::{FieldPath, Projection};
use listwatch_cache::{Change, ChangeLogLimits, FileError, Reflector, Strategy};
use tokio::time::{Instant, sleep, timeout};

use crate::script::{
    FIRST, LIST, added, deleted, idle_watch, list, modified, objects, one, reflector, requests, scripted, too_large,
    watch,
};
use crate::support::chain;
use crate::support::config_maps::{bookmark, error, initial_end};
use crate::support::transport::Answer;

/// A name; the answers; the requests, the objects in the store, and how often the server sent the collection.
type WarmScenario<'a> = (&'static str, Option<Strategy>, &'a [Answer], &'static str, &'static str, u64);

type Build = fn(Reflector<[u8]>) -> Reflector<[u8]>;

/// Saves the cache of a cold start: `a@1 b@5` at version 10.
async fn saved(path: &Path) {
    let reflector = reflector(scripted([list("10", "a@1 b@5"), idle_watch()]), LIST).prepare();
    let cache = reflector.cache();
    assert!(matches!(cache.save(path), Err(FileError::Incomplete)), "the cache is empty");
    let run = tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    cache.save(path).unwrap();
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn saves_a_cache_during_an_outage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config-maps");
    let outage = (0..8).map(|_| Answer::status(503));
    let script = scripted([list("10", "a@1 b@5"), watch([modified("b@11"), error(410)])].into_iter().chain(outage));
    let reflector = reflector(script.clone(), LIST).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    cache.wait_for_resource_version("11").await.unwrap();
    while script.left() > 2 {
        sleep(Duration::from_secs(1)).await;
        cache.save(&path).unwrap();
    }
    run.abort();
}

/// The file was saved between two deletions of one version.
#[tokio::test(start_paused = true)]
async fn resumes_before_changes_that_share_the_version_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config-maps");
    let before =
        reflector(scripted([list("10", "a@1 b@2 c@3"), watch([deleted("a@20")]).then_stalls()]), LIST).prepare();
    let cache = before.cache();
    let run = tokio::spawn(before.run());
    cache.wait_for_resource_version("20").await.unwrap();
    cache.save(&path).unwrap();
    run.abort();
    let script = scripted([one("c@3"), watch([deleted("a@20"), deleted("b@20")]).then_stalls()]);
    let mut after = reflector(script.clone(), LIST).prepare();
    after.load(&path).await.unwrap();
    let cache = after.cache();
    let run = tokio::spawn(after.run());
    cache.wait_for_resource_version("20").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((&*requests(&script), &*objects(&cache)), ("get c 10, watch 10", "c@3"));
    run.abort();
}

/// A file contains no tombstones, and need not: it contains the objects that were deleted since it was saved, so their
/// deletions are changes.
#[tokio::test(start_paused = true)]
async fn a_subscriber_gets_the_deletions_since_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config-maps");
    saved(&path).await;
    for (name, answers) in [
        ("the watch resumes", vec![one("b@5"), watch([deleted("a@12")]).then_stalls()]),
        ("the version has expired", vec![one("b@5"), watch([error(410)]), list("20", "b@5"), idle_watch()]),
    ] {
        let mut reflector = reflector(scripted(answers), LIST).prepare();
        let mut changes = reflector.cache().subscribe().start();
        reflector.load(&path).await.unwrap();
        // Changes of one object that arrive together are coalesced, so the subscriber reads what was loaded first.
        let loaded = [changes.next().await.unwrap(), changes.next().await.unwrap()];
        assert!(loaded.iter().all(|change| matches!(change, Change::Applied { .. })), "{name}: {loaded:?}");
        let run = tokio::spawn(reflector.run());
        let deleted = loop {
            match changes.next().await.unwrap() {
                Change::Deleted { last, .. } => break last,
                Change::Applied { new, .. } => panic!("{name}: {new:?}"),
                _ => {}
            }
        };
        assert_eq!(deleted.name(), "a", "{name}");
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn resumes_the_watch_of_a_loaded_cache_without_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config-maps");
    saved(&path).await;
    let scenarios: &[WarmScenario] = &[
        ("no changes", None, &[one("b@5"), idle_watch()], "get b 10, watch 10", "a@1 b@5", 0),
        (
            "changed since",
            None,
            &[one("b@11"), one("a@1"), watch([modified("b@11"), deleted("a@12"), added("c@13")]).then_stalls()],
            "get b 10, get a 10, watch 10",
            "b@11 c@13",
            0,
        ),
        (
            "deleted since",
            FIRST,
            &[Answer::status(404), one("a@12"), watch([deleted("b@11"), modified("a@12")]), idle_watch()],
            "get b 10, get a 10, watch 10, watch 11",
            "a@12",
            0,
        ),
        (
            "expired: a 410 response",
            None,
            &[one("b@5"), Answer::status(410), watch([added("b@5"), added("c@20"), initial_end(20)]).then_stalls()],
            "get b 10, watch 10, watch list",
            "b@5 c@20",
            1,
        ),
        (
            "expired: a 410 event",
            LIST,
            &[one("b@5"), watch([error(410)]), list("20", "b@5 c@20"), idle_watch()],
            "get b 10, watch 10, list 10, watch 20",
            "b@5 c@20",
            1,
        ),
        (
            "expired later",
            FIRST,
            &[
                one("b@5"),
                watch([bookmark(15)]),
                watch([error(410)]),
                list("20", "x@1"),
                idle_watch(),
                list("20", "b@5 c@20"),
            ],
            "get b 10, watch 10, watch 15, list one, watch 20, list 20",
            "b@5 c@20",
            1,
        ),
        (
            "the server is down for a while",
            LIST,
            &[one("b@5"), Answer::status(503), Answer::status(500), watch([modified("b@11")]).then_stalls()],
            "get b 10, watch 10, watch 10, watch 10",
            "a@1 b@11",
            0,
        ),
        (
            "no history: the server has an older version",
            LIST,
            &[one("b@5"), Answer::status(410), too_large(), list("8", "a@1 b@4"), list("8", "a@1 b@4"), idle_watch()],
            "get b 10, watch 10, list 10, list, list, watch 8",
            "a@1 b@4",
            1,
        ),
    ];
    for (name, strategy, answers, asked, stored, syncs) in scenarios {
        let script = scripted(answers.to_vec());
        let mut reflector = reflector(script.clone(), *strategy).prepare();
        let cache = reflector.cache();
        reflector.load(&path).await.unwrap();
        assert_eq!((objects(&cache), cache.resource_version()), ("a@1 b@5".to_owned(), "10".to_owned()), "{name}");
        assert!(!cache.is_synced(), "{name}: the server has not confirmed the version");
        let before = cache.get(("default", "b")).unwrap();
        let run = tokio::spawn(reflector.run());
        cache.synced().await.unwrap();
        sleep(Duration::from_secs(100)).await;
        assert!(!run.is_finished(), "{name}: {:?}", run.await);
        assert_eq!((requests(&script).as_str(), objects(&cache).as_str()), (*asked, *stored), "{name}");
        let status = cache.status();
        assert_eq!(status.syncs, *syncs, "{name}: how often the collection was sent");
        assert_eq!(status.strategy.is_some(), *syncs > 0, "{name}");
        if stored.contains("b@5") {
            // A new entry would have its bytes elsewhere, so it is the entry that was loaded.
            let after = cache.get(("default", "b")).unwrap();
            let [before, after] = [&before, &after].map(|object| object.encoded().unwrap().as_ptr());
            assert_eq!(before, after, "{name}: the entry is not replaced");
        }
        cache.save(&path).unwrap();
        run.abort();
        saved(&path).await;
    }
}

/// Otherwise all clients list after an outage.
#[tokio::test(start_paused = true)]
async fn an_outage_at_the_start_drops_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config-maps");
    saved(&path).await;
    let refused = || Answer::fails(TransportErrorKind::Connect, "connection refused");
    let outage = (0..20).map(|n| if n % 2 == 0 { refused() } else { Answer::status(503) });
    let cut = || [Answer::fails(TransportErrorKind::Broken, "reset"), Answer::status(429)];
    let script = scripted(outage.chain([Answer::status(404)]).chain(cut()).chain([one("a@1"), idle_watch()]));
    let mut reflector = reflector(script.clone(), LIST).fail_fast().prepare();
    let cache = reflector.cache();
    let started = Instant::now();
    reflector.load(&path).await.unwrap();
    assert!(started.elapsed() > Duration::from_secs(60), "the waits grow");
    assert_eq!(objects(&cache), "a@1 b@5");
    assert!(cache.status().last_error.is_some() && !cache.is_synced());
    let run = tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    let requests = requests(&script);
    assert!(requests.ends_with("get b 10, get a 10, get a 10, get a 10, watch 10"), "{requests}");
    assert_eq!((requests.matches("get b 10").count(), cache.status().syncs), (21, 0));
    run.abort();
}

/// Readers have the objects of the file meanwhile, and the check follows.
#[tokio::test(start_paused = true)]
async fn serves_an_unchecked_file_during_an_outage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config-maps");
    for (name, answers, asked, expected, version) in [
        ("the same history", vec![one("b@5"), watch([modified("b@11")]).then_stalls()], "watch 10", "a@1 b@11", "11"),
        // The server has another state of an object than the file would have.
        ("another history", vec![one("b@4"), list("7", "b@4 c@6"), idle_watch()], "list, watch 7", "b@4 c@6", "7"),
        ("no right to get", vec![Answer::status(403), list("20", "b@5"), idle_watch()], "list, watch 20", "b@5", "20"),
    ] {
        let logged = |script| reflector(script, LIST).change_log(ChangeLogLimits::default()).prepare();
        let before = logged(scripted([list("10", "a@1 b@5"), idle_watch()]));
        let cache = before.cache();
        let run = tokio::spawn(before.run());
        cache.synced().await.unwrap();
        cache.save(&path).unwrap();
        run.abort();

        let outage = [Answer::fails(TransportErrorKind::Connect, "connection refused"), Answer::status(503)];
        let script = scripted(outage.into_iter().chain(answers));
        let mut after = logged(script.clone()).serve_unchecked();
        let cache = after.cache();
        let file = path.clone();
        let run = tokio::spawn(async move {
            let loaded = after.load(&file).await;
            assert_eq!(loaded.is_ok(), name == "the same history", "{loaded:?}");
            after.run().await
        });
        cache.synced().await.unwrap();
        assert_eq!((&*objects(&cache), &*cache.resource_version()), ("a@1 b@5", "10"), "{name}");
        let status = cache.status();
        assert!(!status.is_up_to_date && status.last_error.is_some() && status.last_synced_at.is_some(), "{name}");
        assert!(cache.changes_after("10").is_ok(), "{name}: watches begin");
        let reached = async {
            while !cache.status().is_up_to_date || *cache.resource_version() != *version {
                sleep(Duration::from_secs(1)).await;
            }
        };
        let reached = timeout(Duration::from_secs(600), reached).await;
        assert!(reached.is_ok(), "{name}: {} {:?}", requests(&script), cache.status());
        assert_eq!(objects(&cache), expected, "{name}");
        let requests = requests(&script);
        assert!(requests.ends_with(asked), "{name}: {requests}");
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_a_file_of_another_collection_and_starts_cold() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config-maps");
    saved(&path).await;
    let damaged = folder.path().join("damaged");
    let mut file = std::fs::read(&path).unwrap();
    file[40] ^= 1;
    std::fs::write(&damaged, file).unwrap();
    let as_it_is: Build = |reflector| reflector;
    let cases: &[(&Path, Build, &[Answer], &str, &str)] = &[
        (&folder.path().join("none"), as_it_is, &[], "", "cannot be read"),
        (&damaged, as_it_is, &[], "", "the file is damaged: wrong checksum"),
        (&path, |reflector| reflector.namespace("default"), &[], "", "/api/v1/configmaps? as "),
        (
            &path,
            |reflector| reflector.selection(Selection::all().labels("app=web".parse().unwrap())),
            &[],
            "",
            "not /api/v1/configmaps?labelSelector=app%3Dweb as ",
        ),
        (&path, |reflector| reflector.selection(Selection::all().metadata_only()), &[], "", "PartialObjectMetadata"),
        (&path, |reflector| reflector.selection(Selection::all().json()), &[], "", "as application/json"),
        (
            &path,
            |reflector| reflector.selection(Selection::all().shard(Shard::new(0, 2).unwrap())),
            &[],
            "",
            "shardSelector",
        ),
        (
            &path,
            |reflector| {
                reflector.projection(Projection::new().drop(&FieldPath::new("data", &[2])).drop(&meta::MANAGED_FIELDS))
            },
            &[],
            "",
            "without data, metadata.managedFields",
        ),
        // Another cluster, with other objects of these names, or none.
        (&path, as_it_is, &[one("b@6")], "get b 10", "default/b is at version 6 on the server and at 5 in the file"),
        (&path, as_it_is, &[Answer::status(404), Answer::status(404)], "get b 10, get a 10", "another cluster"),
        // The server was restored from a backup.
        (&path, as_it_is, &[one("b@4")], "get b 10", "default/b is at version 4 on the server and at 5 in the file"),
        (&path, as_it_is, &[too_large()], "get b 10", "504"),
        (&path, as_it_is, &[Answer::status(403)], "get b 10", "403"),
    ];
    for (path, build, answers, asked, expected) in cases {
        let answers = [*answers, &[list("7", "c@7"), idle_watch()]].concat();
        let script = scripted(answers);
        let mut reflector = build(reflector(script.clone(), LIST)).prepare();
        let error = chain(&reflector.load(path).await.unwrap_err());
        assert!(error.contains(expected), "{error}");
        assert_eq!(requests(&script), *asked, "{error}");
        let cache = reflector.cache();
        assert!(cache.is_empty() && cache.resource_version().is_empty(), "{error}");
        if error.contains("json") || error.contains("Partial") {
            continue;
        }
        let run = tokio::spawn(reflector.run());
        assert_eq!(cache.synced().await.unwrap(), "7", "{error}");
        assert_eq!(objects(&cache), if error.contains("shard") { objects(&cache) } else { "c@7".to_owned() });
        run.abort();
    }
}
