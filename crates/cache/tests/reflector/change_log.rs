//! The change log of a reflector's store.

use std::time::Duration;

use listwatch::{Encoding, EventType};
use listwatch_cache::Cache;
use listwatch_cache::{ChangeCursor, ChangeLogLimits};
use tokio::time::sleep;

use crate::script::{FIRST, LIST, added, deleted, idle_watch, list, modified, reflector, scripted, watch};
use crate::support::config_maps::{bookmark, config_map, error};
use crate::support::transport::Answer;

/// Starts a reflector with these answers, and waits until it has this version.
async fn cache(answers: impl IntoIterator<Item = Answer>, limits: ChangeLogLimits, version: &str) -> Cache<[u8]> {
    let reflector = reflector(scripted(answers), LIST).change_log(limits).prepare();
    let cache = reflector.cache();
    assert!(cache.exact_snapshot().is_none() && cache.changes_after("0").is_err(), "it is closed before a list");
    tokio::spawn(reflector.run());
    cache.wait_for_resource_version(version).await.unwrap();
    cache
}

/// Returns the pending changes, as `+a@1 ~a@1>a@2 -a@2>a@3`.
fn pending(changes: &mut ChangeCursor<[u8]>) -> String {
    let mut all = Vec::new();
    while let Ok(Some(change)) = changes.try_next() {
        let state = |object: listwatch_cache::Object<[u8]>| format!("{}@{}", object.name(), object.resource_version());
        let sign = match change.kind() {
            EventType::Added => '+',
            EventType::Modified => '~',
            _ => '-',
        };
        let old = change.old().map_or(String::new(), |old| state(old) + ">");
        all.push(format!("{sign}{old}{}", state(change.object())));
    }
    all.join(" ")
}

fn snapshot(cache: &Cache<[u8]>) -> Option<String> {
    let snapshot = cache.exact_snapshot()?;
    let objects: Vec<_> =
        snapshot.iter().map(|object| format!("{}@{}", object.name(), object.resource_version())).collect();
    Some(format!("{}: {}", snapshot.resource_version(), objects.join(" ")))
}

#[tokio::test(start_paused = true)]
async fn has_the_changes_after_each_version() {
    let events = [modified("b@11"), added("c@12"), deleted("a@13"), modified("b@14"), added("a@15")];
    let cache = cache([list("10", "a@1 b@2"), watch(events).then_stalls()], ChangeLogLimits::default(), "15").await;
    assert_eq!(snapshot(&cache).as_deref(), Some("15: a@15 b@14 c@12"));
    for (version, expected) in [
        ("10", "~b@2>b@11 +c@12 -a@1>a@13 ~b@11>b@14 +a@15"),
        ("12", "-a@1>a@13 ~b@11>b@14 +a@15"),
        ("15", ""),
        // The reader has read from a server that is ahead.
        ("16", ""),
    ] {
        let mut changes = cache.changes_after(version).unwrap();
        assert_eq!(pending(&mut changes), expected, "{version}");
        assert_eq!(changes.resource_version(), version.max("15"), "{version}");
    }
    for version in ["9", "", "x", "0"] {
        assert!(cache.changes_after(version).is_err(), "{version}");
    }
}

/// As an API server sends the deletions of objects whose lease has expired in etcd, for example Events.
#[tokio::test(start_paused = true)]
async fn keeps_all_deletions_that_share_a_version() {
    let events = [deleted("a@13"), deleted("b@13"), deleted("c@13"), modified("d@14")];
    let paced = watch(events).paced(Duration::from_secs(10)).then_stalls();
    let cache = cache([list("10", "a@1 b@2 c@3 d@4"), paced], ChangeLogLimits::default(), "13").await;
    let mut changes = cache.changes_after("10").unwrap();
    assert_eq!((pending(&mut changes).as_str(), snapshot(&cache).as_deref()), ("-a@1>a@13", Some("13: b@2 c@3 d@4")));
    // It resumes at the version of a deletion, and of a list, that others follow.
    let mut resumed = cache.changes_after("13").unwrap();
    assert_eq!((pending(&mut resumed).as_str(), resumed.resource_version()), ("", "13"));
    sleep(Duration::from_secs(11)).await;
    assert_eq!((pending(&mut changes).as_str(), pending(&mut resumed).as_str()), ("-b@2>b@13", "-b@2>b@13"));
    cache.wait_for_resource_version("14").await.unwrap();
    for reader in [&mut changes, &mut resumed] {
        assert_eq!(pending(reader), "-c@3>c@13 ~d@4>d@14");
    }
    for (version, expected) in
        [("12", "-a@1>a@13 -b@2>b@13 -c@3>c@13 ~d@4>d@14"), ("13", "-b@2>b@13 -c@3>c@13 ~d@4>d@14"), ("14", "")]
    {
        assert_eq!(pending(&mut cache.changes_after(version).unwrap()), expected, "{version}");
    }
    assert_eq!(cache.change_log().start.as_deref(), Some("10"), "it was open all the time");
}

/// Some servers send a deletion with the last version of the object.
#[tokio::test(start_paused = true)]
async fn keeps_deletions_without_a_version_of_their_own() {
    let events = [modified("b@12"), deleted("a@1")];
    let paced = watch(events).then_stalls();
    let cache = cache([list("10", "a@1 b@2"), paced], ChangeLogLimits::default(), "12").await;
    assert_eq!(snapshot(&cache).as_deref(), Some("12: b@12"));
    for (version, expected) in [("10", "~b@2>b@12 -a@1>a@1"), ("12", "-a@1>a@1"), ("13", "-a@1>a@1")] {
        assert_eq!(pending(&mut cache.changes_after(version).unwrap()), expected, "{version}");
    }
}

/// A list that is newer than the watch beside it lacks objects that the watch has not deleted yet.
#[tokio::test(start_paused = true)]
async fn opens_once_the_watch_has_passed_the_list_beside_it() {
    let later = Duration::from_secs(10);
    let events = watch([]).then(later, deleted("b@13")).then(later, bookmark(15)).then_stalls();
    let script = scripted([list("10", "x@1"), events, list("15", "a@1")]);
    let cache = reflector(script, FIRST).change_log(ChangeLogLimits::default()).spawn();
    for (version, expected) in [("10", None), ("13", None), ("15", Some("15: a@1"))] {
        cache.wait_for_resource_version(version).await.unwrap();
        // The log opens after the status has the version.
        sleep(Duration::from_secs(1)).await;
        assert_eq!(snapshot(&cache).as_deref(), expected, "{version}");
    }
}

/// A reader at the version of the list may lack an object that the watch beside it has added.
#[tokio::test(start_paused = true)]
async fn opens_after_an_old_object_that_the_watch_adds_beside_the_list() {
    let events = watch([added("p@3")]).then(Duration::from_secs(10), bookmark(15)).then_stalls();
    let script = scripted([list("10", "x@1"), events, list("10", "a@1")]);
    let cache = reflector(script, FIRST).change_log(ChangeLogLimits::default()).spawn();
    for (version, expected) in [("10", None), ("15", Some("15: a@1 p@3"))] {
        cache.wait_for_resource_version(version).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(snapshot(&cache).as_deref(), expected, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_relist_ends_readers() {
    let answers = [list("10", "a@1"), watch([added("b@11"), error(410)]), list("20", "a@1 b@11"), idle_watch()];
    let cache = cache(answers, ChangeLogLimits::default(), "11").await;
    let mut changes = cache.changes_after("10").unwrap();
    cache.wait_for_resource_version("20").await.unwrap();
    assert!(changes.try_next().is_err());
    assert!(cache.changes_after("11").is_err());
    assert_eq!(cache.change_log().start.as_deref(), Some("20"));
    assert_eq!(snapshot(&cache).as_deref(), Some("20: a@1 b@11"));
}

#[tokio::test(start_paused = true)]
async fn drops_old_changes_by_bytes_and_by_age() {
    let events = (11..21).map(|version| modified(&format!("a@{version}")));
    let answers = || [list("10", "a@1"), watch(events.clone()).then_stalls()];
    let mut limits = ChangeLogLimits::default();
    limits.bytes = 1;
    let small = cache(answers(), limits, "20").await;
    assert_eq!(small.change_log().changes, 1, "the newest change stays");
    assert!(small.changes_after("18").is_err());
    assert_eq!(pending(&mut small.changes_after("19").unwrap()), "~a@19>a@20");

    let mut limits = ChangeLogLimits::default();
    limits.age = Duration::from_secs(60);
    let events = (11..13).map(|version| modified(&format!("a@{version}"))).collect::<Vec<_>>();
    let paced = watch(events).paced(Duration::from_secs(90)).then_stalls();
    let short = cache([list("10", "a@1"), paced], limits, "12").await;
    assert_eq!(short.change_log().start.as_deref(), Some("11"));
    let mut late = short.changes_after("11").unwrap();
    assert_eq!(pending(&mut late), "~a@11>a@12");
}

#[tokio::test(start_paused = true)]
async fn counts_its_memory() {
    let events = (11..31).map(|version| modified(&format!("a@{version}")));
    let cache = cache([list("10", "a@1"), watch(events).then_stalls()], ChangeLogLimits::default(), "30").await;
    let before = cache.memory().log;
    assert_eq!(before, cache.change_log().bytes);
    // 20 replaced states, whose overhead is about 60 bytes, and as many entries of the log.
    assert!((20 * 100..20 * 500).contains(&before), "{before}");
    let mut changes = cache.changes_after("10").unwrap();
    while let Some(change) = changes.try_next().unwrap() {
        for _ in 0..2 {
            let frame = change.frame(0, |_| Ok::<_, ()>(vec![0; 1000])).unwrap();
            assert_eq!(frame.len(), 1000);
        }
        assert!(change.frame(1, |_| Err::<Vec<u8>, _>(())).is_err());
    }
    // Each frame has an entry.
    let frames = cache.memory().log - before;
    assert!((20 * 1000..20 * 1200).contains(&frames), "{frames}");
}

/// Readers of many forms encode old changes while no change arrives that would trim the log.
#[tokio::test(start_paused = true)]
async fn frames_never_exceed_the_limit() {
    const LIMIT: usize = 100_000;

    let mut limits = ChangeLogLimits::default();
    limits.bytes = LIMIT;
    let events = (11..111).map(|version| modified(&format!("a@{version}")));
    let cache = cache([list("10", "a@1"), watch(events).then_stalls()], limits, "110").await;
    let status = cache.change_log();
    let mut encoded = 0;
    for form in [0, 1, 2, 3, 0] {
        let mut changes = cache.changes_after("10").unwrap();
        while let Some(change) = changes.try_next().unwrap() {
            let mut frame = || {
                change.frame(form, |_| {
                    encoded += 1;
                    Ok::<_, ()>(vec![0; 2000])
                })
            };
            // Readers that follow one another share the frame.
            assert_eq!(frame().unwrap(), frame().unwrap());
            assert!(cache.memory().log <= LIMIT);
        }
    }
    assert_eq!(encoded, 5 * 100, "each frame was dropped before another reader came");
    let (start, changes) = (cache.change_log().start, cache.change_log().changes);
    assert_eq!((start, changes), (status.start, status.changes), "frames displace no change");
}

#[tokio::test(start_paused = true)]
async fn has_the_changes_of_the_server_and_not_own_writes() {
    let events = [modified("a@12"), modified("a@14"), deleted("b@15")];
    let paced = watch(events).paced(Duration::from_secs(10)).then_stalls();
    let cache = cache([list("10", "a@1 b@2"), paced], ChangeLogLimits::default(), "10").await;
    // The cache has this state before the watch delivers it, and then an older state.
    _ = cache.apply(Encoding::Protobuf, &config_map("a", 14)).unwrap();
    assert_eq!(snapshot(&cache), None, "the store is not at one version");
    let mut changes = cache.changes_after("10").unwrap();
    assert_eq!(pending(&mut changes), "");
    sleep(Duration::from_secs(11)).await;
    assert_eq!(pending(&mut changes), "~a@1>a@12");
    assert_eq!(snapshot(&cache), None);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(pending(&mut changes), "~a@12>a@14");
    assert_eq!(snapshot(&cache).as_deref(), Some("14: a@14 b@2"));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(pending(&mut changes), "-b@2>b@15");
}
