//! Caches without a reflector and a server, for unit tests.

use std::time::Duration;

use futures::FutureExt as _;
use k8s_pb::api::core::v1::ConfigMap;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use listwatch::client::Resource;
use listwatch::{Encoding, ItemError, Json};
use listwatch_cache::{ApplyOutcome, CacheWriter, Change, EndReason, StoreError, SyncError};
use prost::Message as _;
use tokio::time::timeout;

fn config_map(name: &str, version: &str, key: &str) -> ConfigMap {
    let metadata = ObjectMeta {
        namespace: Some("ns".to_owned()),
        name: Some(name.to_owned()),
        resource_version: Some(version.to_owned()),
        ..ObjectMeta::default()
    };
    let data = [(key.to_owned(), String::new())].into();
    ConfigMap { metadata: Some(metadata), data, ..ConfigMap::default() }
}

#[test]
fn a_written_cache_is_synced_without_a_runtime() {
    let writer = CacheWriter::<ConfigMap>::of();
    let cache = writer.cache();
    assert!(cache.is_synced() && cache.is_empty());
    for (version, expected) in [(None, "1"), (Some("7"), "7"), (Some("5"), "7"), (Some(""), "7"), (Some("12"), "12")] {
        if let Some(version) = version {
            writer.apply_decoded(&config_map(&format!("at-{version}"), version, "k")).unwrap();
        }
        assert_eq!(cache.synced().now_or_never().unwrap().unwrap(), expected);
        assert_eq!(cache.resource_version(), expected);
        cache.wait_for_resource_version(expected).now_or_never().unwrap().unwrap();
    }
    assert_eq!(cache.len(), 4);
    let status = cache.status();
    assert_eq!((status.syncs, status.events, status.skipped, status.errors), (1, 4, 0, 0));
    assert!(status.last_synced_at.is_some() && status.ended_by.is_none());
    // It stays so after the writer, whose end ends only waits for more.
    let mut changes = cache.subscribe().with_initial_state().start();
    drop(writer);
    assert!(cache.is_synced());
    assert_eq!(cache.synced().now_or_never().unwrap().unwrap(), "12");
    let newer = cache.wait_for_resource_version("13").now_or_never().unwrap();
    assert!(matches!(newer, Err(SyncError::Ended(EndReason::Dropped))), "{newer:?}");
    let initial = std::iter::from_fn(|| changes.try_next()).collect::<Vec<_>>();
    assert!(matches!(&*initial, [.., Change::Synced]) && initial.len() == 5, "{initial:?}");
}

#[test]
fn readers_indexes_and_subscribers_get_the_writes() {
    let writer = CacheWriter::<ConfigMap>::of();
    let cache = writer.cache();
    let by_key =
        cache.index("key", |object| Ok::<_, ItemError>(object.decode()?.data.keys().cloned().collect::<Vec<_>>()));
    let mut changes = cache.subscribe().start();
    // `+a@1 x` writes a with the key x, `-a` deletes it.
    for (step, objects, values, delivered) in [
        ("+a@2 x", "a@2", "x", "+a@2"),
        ("+a@3 y", "a@3", "y", "a@2>a@3"),
        // Older, or the same.
        ("+a@2 z", "a@3", "y", ""),
        ("+a@3 y", "a@3", "y", ""),
        ("-b", "a@3", "y", ""),
        ("+b@9 x", "a@3 b@9", "x y", "+b@9"),
        ("-a", "b@9", "x", "-a@3"),
        // Created again, also at a version that the cache has passed, as a watch does.
        ("+a@3 y", "a@3 b@9", "x y", "+a@3"),
        ("-a", "b@9", "x", "-a@3"),
        // Without versions the last write wins.
        ("+a@ x", "a@ b@9", "x", "+a@"),
        ("+a@ z", "a@ b@9", "x z", "a@>a@"),
        ("-a", "b@9", "x", "-a@"),
    ] {
        let (kind, rest) = step.split_at(1);
        if kind == "+" {
            let (object, key) = rest.split_once(' ').unwrap();
            let (name, version) = object.split_once('@').unwrap();
            writer.apply_decoded(&config_map(name, version, key)).unwrap();
        } else {
            let before = cache.get(("ns", rest)).map(|object| object.resource_version().to_owned());
            let deleted = writer.delete(("ns", rest)).unwrap();
            assert_eq!(deleted.map(|object| object.resource_version().to_owned()), before, "{step}");
        }
        let shown = |object: &listwatch_cache::Object<_>| format!("{}@{}", object.name(), object.resource_version());
        let stored: Vec<_> = cache.snapshot().iter().map(|object| shown(&object)).collect();
        assert_eq!((stored.join(" "), by_key.values().join(" ")), (objects.to_owned(), values.to_owned()), "{step}");
        let change = changes.try_next().map(|change| match change {
            Change::Applied { old: None, new, .. } => format!("+{}", shown(&new)),
            Change::Applied { old: Some(old), new, .. } => format!("{}>{}", shown(&old), shown(&new)),
            Change::Deleted { last, .. } => format!("-{}", shown(&last)),
            change => panic!("{change:?}"),
        });
        assert_eq!(change.unwrap_or_default(), delivered, "{step}");
        assert!(changes.try_next().is_none(), "{step}");
    }
}

/// The code under test may apply the answers to its own writes, and wait for them.
#[tokio::test(start_paused = true)]
async fn code_under_test_may_apply_and_wait() {
    let writer = CacheWriter::<ConfigMap>::of();
    let cache = writer.cache();
    let applied = |version| cache.apply_decoded(&config_map("a", version, "k")).unwrap();
    assert!(matches!(applied("5"), Some(ApplyOutcome::Added(_))));
    assert!(matches!(applied("5"), Some(ApplyOutcome::Unchanged)));
    writer.delete(("ns", "a")).unwrap();
    assert!(matches!(applied("5"), Some(ApplyOutcome::Stale)));
    let waited = timeout(Duration::from_secs(9), cache.wait_for_resource_version("9")).await;
    assert!(waited.is_err(), "{waited:?}");
    let waiting = tokio::spawn({
        let cache = cache.clone();
        async move { cache.wait_for_resource_version("9").await }
    });
    tokio::task::yield_now().await;
    writer.apply_decoded(&config_map("b", "9", "k")).unwrap();
    waiting.await.unwrap().unwrap();
}

#[test]
fn objects_are_in_the_encoding_of_the_cache() {
    let json = br#"{"metadata":{"namespace":"ns","name":"a"}}"#;
    let protobuf = config_map("a", "", "k").encode_to_vec();
    let message = CacheWriter::<ConfigMap>::of();
    let typed = CacheWriter::<Json<serde_json::Value>>::new(&Resource::CONFIG_MAPS);
    for refused in [message.apply(Encoding::Json, json), typed.apply(Encoding::Protobuf, &protobuf)] {
        let error = refused.unwrap_err();
        assert!(matches!(error, StoreError::Object(ItemError::WrongEncoding { .. })), "{error:?}");
    }
    typed.apply_decoded(&serde_json::from_slice(json).unwrap()).unwrap();
    let bytes = CacheWriter::<[u8]>::new(&Resource::CONFIG_MAPS);
    bytes.apply(Encoding::Json, json).unwrap();
    bytes.apply(Encoding::Protobuf, &protobuf).unwrap();
    assert_eq!((message.cache().len(), typed.cache().len(), bytes.cache().len()), (0, 1, 1));
    // Views and field selectors know the kind.
    let object = bytes.cache().get(("ns", "a")).unwrap();
    assert_eq!(object.item().unwrap().type_meta().kind, "ConfigMap");
}
