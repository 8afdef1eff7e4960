//! The answers to a controller's own writes, written to a cache that a reflector keeps.

use std::time::Duration;

use listwatch::cache::{Effect, Written};
use listwatch::client::Selection;
use listwatch::object::Shard;
use listwatch::reflector::{Cache, Reflector};
use listwatch::{Encoding, FieldPath, Projection};
use tokio::time::sleep;

use crate::script::{LIST, deleted, idle_watch, list, objects, reflector, requests, scripted, watch};
use crate::support::config_maps::{config_map, error};
use crate::support::transport::Answer;
use crate::support::{body_of, len_field, store::object};

/// Writes `a@5` of namespace `default`. What became of it; `None` when the cache does not store it.
fn apply(cache: &Cache<[u8]>, name: &str, version: u32) -> Option<&'static str> {
    let Written { effect, .. } = cache.apply(Encoding::Protobuf, &config_map(name, version)).unwrap()?;
    Some(match effect {
        Effect::Added(_) => "added",
        Effect::Modified { .. } => "modified",
        Effect::Unchanged => "unchanged",
        Effect::Stale => "stale",
    })
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_write_does_not_bring_a_deleted_object_back() {
    let script = scripted([
        list("8", "a@1 b@2"),
        watch([deleted("a@10"), error(410)]),
        // The next list is on its way.
        Answer::never(),
    ]);
    let reflector = reflector(script.clone(), LIST);
    let cache = reflector.cache();
    assert_eq!(apply(&cache, "b", 9), None, "nothing runs yet");
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

async fn synced(build: fn(Reflector<[u8]>) -> Reflector<[u8]>) -> Cache<[u8]> {
    synced_by(list("10", ""), build).await
}

async fn synced_by(list: Answer, build: fn(Reflector<[u8]>) -> Reflector<[u8]>) -> Cache<[u8]> {
    let reflector = build(reflector(scripted([list, idle_watch()]), LIST));
    let cache = reflector.cache();
    tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    cache
}

#[tokio::test(start_paused = true)]
async fn stores_what_the_reflector_would_store_of_it() {
    let thing = |namespace: &str, name: &str| object(namespace, name, "11").label("app", "web").data("data");
    let whole = thing("ns", "a").to_bytes(Encoding::Protobuf);
    let metadata = thing("ns", "a").data("").to_bytes(Encoding::Protobuf);
    let managed = [whole.as_slice(), &len_field(1, &len_field(17, b"\x0a\x01x"))].concat();
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
    assert_eq!((names.len(), shards[0].len() + shards[1].len()), (40, 40), "each is in one");

    let projected =
        synced(|reflector| reflector.projection(Projection::new().drop(&FieldPath::new("data", &[2])))).await;
    let none = body_of("meta.k8s.io/v1", "PartialObjectMetadataList", &len_field(1, &len_field(2, b"10")));
    let metadata_only =
        synced_by(Answer::ok(none), |reflector| reflector.selection(Selection::all().metadata_only())).await;
    let unmanaged = synced(|reflector| reflector.selection(Selection::all().drop_managed_fields())).await;
    for (cache, bytes, stored) in
        [(&projected, &whole, &metadata), (&metadata_only, &whole, &metadata), (&unmanaged, &managed, &whole)]
    {
        drop(cache.apply(Encoding::Protobuf, bytes).unwrap().unwrap());
        let stored_len = cache.get("ns", "a").unwrap().encoded().unwrap().len();
        // An emptied metadata stays as two bytes.
        assert!((stored.len()..=stored.len() + 2).contains(&stored_len), "{stored_len} {}", stored.len());
    }
}
