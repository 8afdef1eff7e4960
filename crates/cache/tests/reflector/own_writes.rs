//! The responses to a controller's own writes, applied to the cache of a reflector.

use std::time::Duration;

use listwatch::Shard;
use listwatch::client::{Client, Resource, Retry, Selection};
use listwatch::{Encoding, FieldPath, ItemError, Json, Projection};
use listwatch_cache::{ApplyOutcome, Change, ChangeLogLimits, StorageFormat, Store, StoreError, StoreType};
use listwatch_cache::{Cache, Reflector, Strategy};
use tokio::time::sleep;

use crate::script::{
    FIRST, LIST, added, deleted, idle_watch, list, modified, objects, reflector, requests, scripted, watch,
};
use crate::support::config_maps::{bookmark, config_map, error, initial_end};
use crate::support::store::{Object, object};
use crate::support::transport::Answer;
use crate::support::{body_of, len_field};

/// Applies an object such as `a@5` in namespace `default`. Returns the effect, or `None` if the cache does not store
/// it.
fn apply(cache: &Cache<[u8]>, name: &str, version: u32) -> Option<&'static str> {
    Some(match cache.apply(Encoding::Protobuf, &config_map(name, version)).unwrap()? {
        ApplyOutcome::Added(_) => "added",
        ApplyOutcome::Modified { .. } => "modified",
        ApplyOutcome::Unchanged => "unchanged",
        ApplyOutcome::Stale => "stale",
        _ => "unknown",
    })
}

#[tokio::test(start_paused = true)]
async fn the_response_to_a_write_does_not_restore_a_deleted_object() {
    let script = scripted([
        list("8", "a@1 b@2"),
        watch([deleted("a@10"), error(410)]),
        // The next list gets no answer.
        Answer::never(),
    ]);
    let reflector = reflector(script.clone(), LIST).prepare();
    let cache = reflector.cache();
    assert_eq!(apply(&cache, "b", 9), None, "the reflector does not run yet");
    let run = tokio::spawn(reflector.run());
    cache.wait_for_resource_version("10").await.unwrap();
    assert_eq!(apply(&cache, "a", 10), Some("stale"));
    while script.left() > 0 {
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(requests(&script), "list 0, watch 8, list 10");
    for (name, version, expected) in [("a", 10, "stale"), ("a", 9, "stale"), ("a", 11, "added"), ("b", 12, "modified")]
    {
        assert_eq!(apply(&cache, name, version), Some(expected), "{name}@{version}");
    }
    assert_eq!(objects(&cache), "a@11 b@12");
    run.abort();
}

fn shown(change: &Change<[u8]>) -> String {
    let shown = |object: &listwatch_cache::Object<[u8]>| format!("{}@{}", object.name(), object.resource_version());
    match change {
        Change::Applied { old: None, new, .. } => format!("+{}", shown(new)),
        Change::Applied { old: Some(old), new, .. } => format!("{}>{}", shown(old), shown(new)),
        Change::Deleted { last, .. } => format!("-{}", shown(last)),
        change => panic!("{change:?}"),
    }
}

/// The answers after a list expired, the requests for them, the changes that subscribers get, and the objects then.
struct Lag {
    name: &'static str,
    strategy: Option<Strategy>,
    answers: Vec<Answer>,
    requests: &'static str,
    changes: &'static str,
    objects: &'static str,
}

fn lag(
    name: &'static str,
    strategy: Option<Strategy>,
    answers: Vec<Answer>,
    requests: &'static str,
    changes: &'static str,
    objects: &'static str,
) -> Lag {
    Lag { name, strategy, answers, requests, changes, objects }
}

/// The events of x@20, y@21 and the deletion of z at 22.
fn confirmed() -> [Vec<u8>; 4] {
    [modified("x@20"), added("y@21"), deleted("z@22"), bookmark(25)]
}

fn initial(objects: &[&str], version: u32) -> impl Iterator<Item = Vec<u8>> {
    let objects: Vec<_> = objects.iter().map(|object| added(object)).collect();
    objects.into_iter().chain([initial_end(version)])
}

/// A server that lags, and whose watch delivers the writes.
fn confirmed_writes() -> Vec<Lag> {
    vec![
        lag(
            "the watch delivers them",
            LIST,
            vec![list("16", "x@5 z@7"), watch(confirmed()).then_stalls()],
            "list 10, watch 16",
            "",
            "x@20 y@21",
        ),
        lag(
            "another list lags, too",
            LIST,
            vec![list("16", "x@5 z@7"), watch([error(410)]), list("18", "x@5 z@7"), watch(confirmed()).then_stalls()],
            "list 10, watch 16, list 16, watch 18",
            "",
            "x@20 y@21",
        ),
        lag(
            "the list has some of them",
            LIST,
            vec![list("20", "x@20 z@7"), watch([added("y@21"), deleted("z@22"), bookmark(25)]).then_stalls()],
            "list 10, watch 20",
            "",
            "x@20 y@21",
        ),
        lag(
            "initial events",
            Some(Strategy::WatchList),
            vec![watch(initial(&["x@5", "z@7"], 16).chain(confirmed())).then_stalls()],
            "watch list",
            "",
            "x@20 y@21",
        ),
        lag(
            "a watch in parallel",
            FIRST,
            vec![list("16", ""), watch(confirmed()).then_stalls(), list("16", "x@5 z@7").after(Duration::from_secs(9))],
            "list one, watch 16, list 16",
            "",
            "x@20 y@21",
        ),
    ]
}

/// A server that lags, and whose watch passes the writes.
fn lost_writes() -> Vec<Lag> {
    vec![
        lag(
            "the watch passes them",
            LIST,
            vec![list("16", "x@5 z@7"), watch([added("w@30")]).then_stalls(), list("30", "w@30 x@5 z@7"), idle_watch()],
            "list 10, watch 16, list 30, watch 30",
            "+w@30 +z@7 -y@21 x@20>x@5",
            "w@30 x@5 z@7",
        ),
        lag(
            "a bookmark passes them",
            LIST,
            vec![list("16", "x@5 z@7"), watch([bookmark(30)]).then_stalls(), list("31", "x@5 z@31"), idle_watch()],
            "list 10, watch 16, list 30, watch 31",
            "+z@31 -y@21 x@20>x@5",
            "x@5 z@31",
        ),
        lag(
            "the watch delivers one of them",
            LIST,
            vec![
                list("16", "x@5 z@7"),
                watch([modified("x@15"), modified("x@20"), added("w@30")]).then_stalls(),
                list("30", "w@30 x@20"),
                idle_watch(),
            ],
            "list 10, watch 16, list 30, watch 30",
            "+w@30 -y@21",
            "w@30 x@20",
        ),
        lag(
            "older states are no proof",
            LIST,
            vec![
                list("16", "x@5 z@7"),
                watch([modified("x@18"), modified("z@19"), added("w@30")]).then_stalls(),
                list("30", "w@30 x@18 z@19"),
                idle_watch(),
            ],
            "list 10, watch 16, list 30, watch 30",
            "+w@30 +z@19 -y@21 x@20>x@18",
            "w@30 x@18 z@19",
        ),
        lag(
            "initial events that the watch contradicts",
            Some(Strategy::WatchList),
            vec![
                watch(initial(&["x@5", "z@7"], 16).chain([bookmark(30)])).then_stalls(),
                watch(initial(&["x@5", "z@7"], 30)).then_stalls(),
            ],
            "watch list, watch list",
            "+z@7 -y@21 x@20>x@5",
            "x@5 z@7",
        ),
        lag(
            "a watch in parallel that passes them",
            FIRST,
            vec![
                list("16", ""),
                watch([bookmark(30)]).then(Duration::from_secs(20), bookmark(31)).then_stalls(),
                list("16", "x@5 z@7").after(Duration::from_secs(9)),
                list("31", ""),
                idle_watch(),
                list("31", "x@5 z@7"),
            ],
            "list one, watch 16, list 16, list one, watch 31, list 31",
            "+z@7 -y@21 x@20>x@5",
            "x@5 z@7",
        ),
    ]
}

/// A list that replaces the writes.
fn replaced_writes() -> Vec<Lag> {
    vec![
        lag(
            "the list is newer",
            LIST,
            vec![list("25", "x@5 z@7"), idle_watch()],
            "list 10, watch 25",
            "+z@7 -y@21 x@20>x@5",
            "x@5 z@7",
        ),
        lag(
            "the server went back",
            LIST,
            vec![list("8", "x@5 z@7"), list("8", "x@5 z@7"), idle_watch()],
            "list 10, list, watch 8",
            "+z@7 -y@21 x@20>x@5",
            "x@5 z@7",
        ),
        lag(
            "the server went back, and has advanced",
            LIST,
            vec![list("8", "x@5 z@7"), list("11", "x@5 z@11"), idle_watch()],
            "list 10, list, watch 11",
            "+z@11 -y@21 x@20>x@5",
            "x@5 z@11",
        ),
    ]
}

/// A cache of `x@5 z@7` at version 10. A controller writes x@20 and y@21, and deletes z at 22. Then the watch expires,
/// and a server answers that may lag behind these writes, or that was restored from a backup.
#[tokio::test(start_paused = true)]
async fn a_list_that_lags_keeps_own_writes_until_the_watch_decides() {
    for Lag { name, strategy, answers, requests: asked, changes: expected_changes, objects: expected } in
        confirmed_writes().into_iter().chain(lost_writes()).chain(replaced_writes())
    {
        let first = match strategy {
            Some(Strategy::WatchList) => {
                vec![watch(initial(&["x@5", "z@7"], 10)).then(Duration::from_secs(5), error(410))]
            }
            Some(Strategy::WatchFirst) => {
                vec![list("10", ""), watch([]).then(Duration::from_secs(5), error(410)), list("10", "x@5 z@7")]
            }
            _ => vec![list("10", "x@5 z@7"), watch([]).then(Duration::from_secs(5), error(410))],
        };
        let before = first.len();
        let script = scripted(first.into_iter().chain(answers));
        let store = Store::new(StorageFormat::Encoded);
        let reflector =
            reflector(script.clone(), strategy).store(store.clone()).change_log(ChangeLogLimits::default()).prepare();
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        cache.synced().await.unwrap();
        assert_eq!(objects(&cache), "x@5 z@7", "{name}");
        assert_eq!((apply(&cache, "x", 20), apply(&cache, "y", 21)), (Some("modified"), Some("added")));
        assert!(store.delete(Encoding::Protobuf, &config_map("z", 22)).unwrap().is_some());
        let mut changes = cache.subscribe().start();
        while script.left() > 0 {
            sleep(Duration::from_secs(1)).await;
        }
        sleep(Duration::from_secs(50)).await;
        let requests = requests(&script);
        let requests: Vec<_> = requests.split(", ").skip(before).collect();
        let mut delivered = Vec::new();
        while let Some(change) = changes.try_next() {
            if !matches!(change, Change::Synced) {
                delivered.push(shown(&change));
            }
        }
        delivered.sort();
        assert_eq!(requests.join(", "), asked, "{name}");
        assert_eq!(delivered.join(" "), expected_changes, "{name}");
        assert_eq!(objects(&cache), expected, "{name}");
        // The change log is open again, at a version that has these objects.
        assert!(cache.exact_snapshot().is_some_and(|exact| exact.len() == cache.len()), "{name}");
        run.abort();
    }
}

async fn synced(build: fn(Reflector<[u8]>) -> Reflector<[u8]>) -> Cache<[u8]> {
    synced_by(list("10", ""), build).await
}

async fn synced_by(list: Answer, build: fn(Reflector<[u8]>) -> Reflector<[u8]>) -> Cache<[u8]> {
    let reflector = build(reflector(scripted([list, idle_watch()]), LIST)).prepare();
    let cache = reflector.cache();
    tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    cache
}

#[tokio::test(start_paused = true)]
async fn selects_and_projects_own_writes_as_the_reflector_does() {
    let thing = |namespace: &str, name: &str| object(namespace, name, "11").label("app", "web").data("data");
    let whole = thing("ns", "a").to_bytes(Encoding::Protobuf);
    let metadata = thing("ns", "a").data("").to_bytes(Encoding::Protobuf);
    let shard = |cache: &Cache<[u8]>| {
        let names = (0..40).map(|i| format!("o-{i}"));
        let thing = |name: &str| thing("ns", name).uid(name).to_bytes(Encoding::Protobuf);
        names.filter(|name| cache.apply(Encoding::Protobuf, &thing(name)).unwrap().is_some()).collect::<Vec<_>>()
    };

    let namespace = synced(|reflector| reflector.namespace("ns")).await;
    assert!(namespace.apply(Encoding::Protobuf, &thing("other", "a").to_bytes(Encoding::Protobuf)).unwrap().is_none());
    assert!(namespace.apply(Encoding::Protobuf, &whole).unwrap().is_some());

    let of_web = synced(|reflector| reflector.selection(Selection::all().labels("app=web".parse().unwrap()))).await;
    let of_db = synced(|reflector| reflector.selection(Selection::all().labels("app=db".parse().unwrap()))).await;
    let named_b =
        synced(|reflector| reflector.selection(Selection::all().fields("metadata.name=b".parse().unwrap()))).await;
    for (cache, selects) in [(&of_web, true), (&of_db, false), (&named_b, false)] {
        assert_eq!(cache.apply(Encoding::Protobuf, &whole).unwrap().is_some(), selects);
        assert_eq!(cache.len(), usize::from(selects));
    }

    let shards = [
        synced(|reflector| reflector.selection(Selection::all().shard(Shard::new(0, 2).unwrap()))).await,
        synced(|reflector| reflector.selection(Selection::all().shard(Shard::new(1, 2).unwrap()))).await,
    ];
    let mut names = shards.each_ref().map(shard).concat();
    names.sort();
    names.dedup();
    assert_eq!((names.len(), shards[0].len() + shards[1].len()), (40, 40), "each object is in one shard");

    let projected =
        synced(|reflector| reflector.projection(Projection::new().drop(&FieldPath::new("data", &[2])))).await;
    let none = body_of("meta.k8s.io/v1", "PartialObjectMetadataList", &len_field(1, &len_field(2, b"10")));
    let metadata_only =
        synced_by(Answer::ok(none), |reflector| reflector.selection(Selection::all().metadata_only())).await;
    for cache in [&projected, &metadata_only] {
        drop(cache.apply(Encoding::Protobuf, &whole).unwrap().unwrap());
        let stored_len = cache.get(("ns", "a")).unwrap().encoded().unwrap().len();
        // An empty metadata field takes two bytes.
        assert!((metadata.len()..=metadata.len() + 2).contains(&stored_len), "{stored_len} {}", metadata.len());
    }
}

/// Returns the version and the encoding of the object.
fn held<T: StoreType + ?Sized>(cache: &Cache<T>) -> Option<String> {
    cache.get(("ns", "a")).map(|object| format!("{} {}", object.resource_version(), object.encoding()))
}

#[tokio::test(start_paused = true)]
async fn applies_protobuf_json_and_decoded_objects() {
    async fn run<T: StoreType + ?Sized + Send + Sync>(list: Answer) -> Cache<T> {
        let client = Client::new(scripted([list, idle_watch()])).retry(Retry::never());
        let reflector =
            Reflector::<T>::new(&client, &Resource::CONFIG_MAPS).strategy(Strategy::ListThenWatch).prepare();
        let cache = reflector.cache();
        tokio::spawn(reflector.run());
        cache.synced().await.unwrap();
        cache
    }
    let state = |version: &str| object("ns", "a", version).data("data");
    let json_list = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[]}"#;

    let cache = run::<Object>(list("10", "")).await;
    drop(cache.apply(Encoding::Protobuf, &state("11").to_bytes(Encoding::Protobuf)).unwrap().unwrap());
    assert_eq!(held(&cache).unwrap(), "11 protobuf");
    drop(cache.apply_decoded(&state("12")).unwrap().unwrap());
    assert_eq!(*cache.get(("ns", "a")).unwrap().decode().unwrap(), state("12"));
    let error = cache.apply(Encoding::Json, &state("13").to_bytes(Encoding::Json)).unwrap_err();
    assert!(matches!(error, StoreError::Object(ItemError::WrongEncoding { .. })), "{error}");
    assert_eq!((held(&cache).unwrap().as_str(), cache.skipped()), ("12 protobuf", 0));

    let cache = run::<Json<serde_json::Value>>(Answer::ok(json_list).header("content-type", "application/json")).await;
    drop(cache.apply(Encoding::Json, &state("11").to_bytes(Encoding::Json)).unwrap().unwrap());
    assert_eq!(held(&cache).unwrap(), "11 JSON");
    let decoded = serde_json::from_slice(&state("12").to_bytes(Encoding::Json)).unwrap();
    drop(cache.apply_decoded(&decoded).unwrap().unwrap());
    assert_eq!(held(&cache).unwrap(), "12 JSON");
    assert!(cache.apply(Encoding::Protobuf, &state("13").to_bytes(Encoding::Protobuf)).is_err());
}
