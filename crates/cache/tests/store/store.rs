//! The promises of a store, one per test. `model` tests them together.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use listwatch::{Encoding, Item, ItemError, ItemRef, Json, ListReader, TypeMeta};
use listwatch_cache::{ApplyOutcome, Change, ObjectKey, StorageFormat, Store, StoreError, StoreType};
use listwatch_corpus::custom::CustomKind;

use crate::support::chain;
use crate::support::store::{Object, object};

const FORMATS: [StorageFormat; 2] = [StorageFormat::Encoded, StorageFormat::Compressed];

fn apply(store: &Store<Object>, object: &Object) -> &'static str {
    name(&store.apply(Encoding::Protobuf, &object.to_bytes(Encoding::Protobuf)).unwrap())
}

fn name<T: listwatch_cache::StoreType + ?Sized>(written: &ApplyOutcome<T>) -> &'static str {
    match written {
        ApplyOutcome::Added(_) => "added",
        ApplyOutcome::Modified { .. } => "modified",
        ApplyOutcome::Unchanged => "unchanged",
        ApplyOutcome::Stale => "stale",
        _ => "unknown",
    }
}

fn delete(store: &Store<Object>, object: &Object) -> bool {
    store.delete(Encoding::Protobuf, &object.to_bytes(Encoding::Protobuf)).unwrap().is_some()
}

/// Adds this many objects.
fn fill(store: &Store<Object>, objects: usize) {
    for i in 0..objects {
        assert_eq!(apply(store, &sample(i)), "added");
    }
}

fn sample(i: usize) -> Object {
    object("default", &format!("web-{i}"), &(i + 1).to_string()).data(format!("{i} of a kind ").repeat(20))
}

#[test]
fn the_newer_version_wins() {
    for format in FORMATS {
        for (held, new, expected) in [
            ("9", "10", "modified"),
            ("10", "9", "stale"),
            ("10", "10", "unchanged"),
            ("99999999999999999999", "100000000000000000000", "modified"),
            // These versions do not compare: the last write wins.
            ("10", "a", "modified"),
            ("a", "10", "modified"),
            ("b", "a", "modified"),
            ("a", "a", "unchanged"),
            // Without a version, the state may be another.
            ("", "", "modified"),
        ] {
            let store = Store::new(format);
            assert_eq!(apply(&store, &object("a", "x", held)), "added");
            assert_eq!(apply(&store, &object("a", "x", new)), expected, "{held} {new} {format:?}");
            let version = store.get(("a", "x")).unwrap().resource_version().to_owned();
            assert_eq!(version, if expected == "stale" { held } else { new });
        }
    }
}

#[test]
fn distinguishes_objects_by_namespace_and_name() {
    for format in FORMATS {
        let store = Store::new(format);
        for (namespace, name) in [("", "a"), ("a", "a"), ("a", ""), ("aa", "a"), ("a", "aa"), ("", "aa")] {
            let object = object(namespace, name, "1");
            if name.is_empty() {
                let error = store.apply(Encoding::Protobuf, &object.to_bytes(Encoding::Protobuf)).unwrap_err();
                assert!(matches!(error, StoreError::NoName), "{error}");
            } else {
                assert_eq!(apply(&store, &object), "added");
                let key = store.get((namespace, name)).unwrap().key();
                assert_eq!(key, ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() });
            }
        }
        assert_eq!(store.len(), 5);
        assert!(store.get(("b", "a")).is_none());
    }
    assert_eq!(
        ObjectKey { namespace: "kube-system".to_owned(), name: "dns".to_owned() }.to_string(),
        "kube-system/dns"
    );
    assert_eq!(ObjectKey { namespace: String::new(), name: "node-1".to_owned() }.to_string(), "node-1");
}

#[test]
fn an_invalid_object_is_an_error_and_changes_nothing() {
    let long = "x".repeat(70_000);
    for (bytes, expected) in [
        (b"\xff".to_vec(), "past the end of its parent in the object"),
        (b"\x0a\x02\x08\x01".to_vec(), "metadata.name"),
        (Vec::new(), "the object has no name"),
        (object("a", &long, "1").to_bytes(Encoding::Protobuf), "name of the object is too long"),
        (object(&long, "a", "1").to_bytes(Encoding::Protobuf), "namespace of the object is too long"),
        (object("a", "a", &long).to_bytes(Encoding::Protobuf), "version of the object is too long"),
        (object("a", "a", "1").uid(&long).to_bytes(Encoding::Protobuf), "uid of the object is too long"),
    ] {
        let store = Store::<Object>::new(StorageFormat::Encoded);
        for error in [
            store.apply(Encoding::Protobuf, &bytes).unwrap_err(),
            store.delete(Encoding::Protobuf, &bytes).unwrap_err(),
            store.begin_relist().apply(Encoding::Protobuf, &bytes).unwrap_err(),
        ] {
            assert!(chain(&error).contains(expected), "{error}");
        }
        assert!(store.is_empty());
    }
}

#[test]
fn a_late_event_changes_nothing() {
    let store = Store::new(StorageFormat::Encoded);
    store.begin_relist().commit("10").unwrap();
    assert_eq!(apply(&store, &object("a", "x", "11")), "added");
    // The controller's own writes, before the watch delivers them.
    assert_eq!(apply(&store, &object("a", "x", "13")), "modified");
    assert_eq!(apply(&store, &object("a", "x", "12")), "stale");
    assert!(delete(&store, &object("a", "x", "15")));
    for late in ["12", "13", "14", "15"] {
        assert_eq!(apply(&store, &object("a", "x", late)), "stale", "{late}");
        assert!(!delete(&store, &object("a", "x", late)));
        store.advance(late);
    }
    assert_eq!(apply(&store, &object("a", "x", "16")), "added");
    assert!(!delete(&store, &object("a", "x", "15")), "it was deleted before it was created again");
    assert!(delete(&store, &object("a", "x", "17")));
    store.advance("20");
    assert_eq!(apply(&store, &object("a", "x", "16")), "stale", "the store's version implies the deletion");
    for (version, expected) in [("19", "stale"), ("20", "stale"), ("21", "added")] {
        // An object that the collection lacks at its version was deleted by then, or is not selected.
        assert_eq!(apply(&store, &object("a", "y", version)), expected, "{version}");
    }
}

#[test]
fn the_response_to_a_write_does_not_restore_a_deleted_object() {
    let store = Store::new(StorageFormat::Encoded);
    store.begin_relist().commit("8").unwrap();
    assert_eq!(apply(&store, &object("a", "x", "9")), "added");
    assert!(delete(&store, &object("a", "x", "10")));
    store.advance("10");
    assert_eq!(apply(&store, &object("a", "x", "10")), "stale");
    assert!(store.is_empty());
}

#[test]
fn a_replace_of_equal_versions_treats_no_object_as_unchanged() {
    for (equal_versions, expected) in [(false, "before"), (true, "after")] {
        let store = Store::<Object>::new(StorageFormat::Encoded);
        let write = |data: &str| object("ns", "a", "5").data(data).to_bytes(Encoding::Protobuf);
        drop(store.apply(Encoding::Protobuf, &write("before")).unwrap());
        let relist = store.begin_relist();
        let mut relist = if equal_versions { relist.replace_all() } else { relist };
        let written = relist.apply(Encoding::Protobuf, &write("after")).unwrap();
        assert_eq!(matches!(written, ApplyOutcome::Modified { .. }), equal_versions);
        // A write outside the list is unchanged as before.
        let written = store.apply(Encoding::Protobuf, &write("never")).unwrap();
        assert!(matches!(written, ApplyOutcome::Unchanged));
        relist.commit("6").unwrap();
        assert_eq!(store.get(("ns", "a")).unwrap().decode().unwrap().data, expected);
    }
}

#[test]
fn remembers_a_deletion_while_late_events_are_possible() {
    let store = Store::new(StorageFormat::Encoded);
    let deletions = |store: &Store<Object>| {
        for i in 0..100 {
            let is_added = apply(store, &sample(i)) == "added";
            assert_eq!(delete(store, &sample(i)), is_added);
        }
        store.memory().relist
    };
    assert_eq!(deletions(&store), 0, "without a version, no event is late");
    store.advance("50");
    assert!(deletions(&store) > 0);
    store.advance("100");
    assert_eq!(store.memory().relist, 0);
    let relist = store.begin_relist();
    assert!(deletions(&store) > 0);
    relist.commit("100").unwrap();
    assert_eq!(store.memory().relist, 0);
}

#[test]
fn an_interrupted_list_deletes_nothing() {
    let store = Store::new(StorageFormat::Encoded);
    fill(&store, 10);
    let mut relist = store.begin_relist();
    for object in
        [sample(3), object("default", "web-4", "100"), object("default", "new", "101"), object("default", "web-5", "2")]
    {
        relist.apply(Encoding::Protobuf, &object.to_bytes(Encoding::Protobuf)).map(drop).unwrap();
    }
    drop(relist);
    assert_eq!(store.len(), 11);
    for (name, version) in [("web-0", "1"), ("web-3", "4"), ("web-4", "100"), ("new", "101"), ("web-5", "6")] {
        assert_eq!(store.get(("default", name)).unwrap().resource_version(), version, "{name}");
    }
}

#[test]
fn the_list_of_a_restored_server_wins() {
    for format in FORMATS {
        let store = Store::new(format);
        fill(&store, 600);
        store.advance("600");
        let by_data = store.index("data", |object| Ok::<_, ItemError>([object.decode()?.data.clone()]));
        let by_version = store.index("version", |object| Ok::<_, ItemError>([object.resource_version().to_owned()]));
        let mut relist = store.begin_relist();
        let old = object("default", "web-7", "3").data("as it was");
        let written = relist.apply(Encoding::Protobuf, &old.to_bytes(Encoding::Protobuf)).unwrap();
        assert_eq!(name(&written), "stale");
        // Readers do not see the older state before the list is complete.
        assert_eq!(*store.get(("default", "web-7")).unwrap().decode().unwrap(), sample(7));
        let mut changes = store.subscribe().start();
        relist.commit("5").unwrap();
        let changes: Vec<_> = iter::from_fn(|| changes.try_next()).collect();
        let deleted = changes.iter().filter(|change| matches!(change, Change::Deleted { .. })).count();
        let restored = changes.iter().filter(|change| matches!(change, Change::Applied { .. })).count();
        assert_eq!((restored, deleted), (1, 599));
        assert_eq!(store.len(), 1);
        assert_eq!(*store.get(("default", "web-7")).unwrap().decode().unwrap(), old);
        assert_eq!((by_data.values(), by_data.count("as it was")), (vec!["as it was".to_owned()], 1));
        assert_eq!(by_version.values(), ["3"]);
        assert_eq!(apply(&store, &object("default", "web-7", "4")), "modified");
    }
}

#[test]
fn a_restored_object_has_the_storage_format_of_its_store() {
    for format in FORMATS {
        let store = Store::new(format);
        fill(&store, 600);
        store.advance("600");
        let mut relist = store.begin_relist();
        let old = object("default", "web-7", "3").data("as it was ".repeat(100));
        assert_eq!(name(&relist.apply(Encoding::Protobuf, &old.to_bytes(Encoding::Protobuf)).unwrap()), "stale");
        relist.commit("5").unwrap();
        let memory = store.memory();
        let (kept, other) = match format {
            StorageFormat::Encoded => (memory.encoded, memory.compressed),
            _ => (memory.compressed, memory.encoded),
        };
        assert!(kept > 0 && other == 0, "{format:?} {memory:?}");
    }
}

#[test]
fn a_listed_object_that_cannot_be_held_is_missing_in_the_list() {
    let store = Store::<Object>::new(StorageFormat::Encoded);
    apply(&store, &object("", "a", "5"));
    store.advance("5");
    let mut relist = store.begin_relist();
    let large = object("", "a", "3").data("x".repeat(10_000)).to_bytes(Encoding::Protobuf);
    store.set_budget(Some(5000));
    let error = relist.apply(Encoding::Protobuf, &large).unwrap_err();
    assert!(matches!(error, StoreError::OverBudget(5000)), "{error}");
    relist.commit("4").unwrap();
    assert!(store.is_empty());
}

#[test]
fn counts_a_skipped_object_until_it_is_written_deleted_or_listed() {
    let store = Store::<Object>::new(StorageFormat::Encoded);
    store.set_budget(Some(20_000));
    let whole = |name: &str, version: &str| object("", name, version).to_bytes(Encoding::Protobuf);
    let large =
        |name: &str, version: &str| object("", name, version).data("x".repeat(20_000)).to_bytes(Encoding::Protobuf);
    let fails = |name: &str, version: &str| assert!(store.apply(Encoding::Protobuf, &large(name, version)).is_err());
    let skips = |times: usize| assert_eq!(store.skipped(), times);
    apply(&store, &object("", "a", "1"));
    fails("a", "2");
    fails("a", "3");
    fails("b", "4");
    skips(2);
    assert_eq!(store.get(("", "a")).unwrap().resource_version(), "1", "the previous state stays");
    assert_eq!(apply(&store, &object("", "a", "5")), "modified");
    skips(1);
    assert!(!delete(&store, &object("", "b", "6")));
    skips(0);
    // Whose states these are is unknown.
    for bytes in [&b"\xff"[..], b"\xfe", b"\xff\xff"] {
        assert!(store.apply(Encoding::Protobuf, bytes).is_err());
        assert!(store.delete(Encoding::Protobuf, bytes).is_err());
        skips(1);
    }
    // The key of an object is known, also if its uid is too long.
    for version in ["6", "7"] {
        let long = object("", "long", version).uid(&"u".repeat(70_000)).to_bytes(Encoding::Protobuf);
        assert!(store.apply(Encoding::Protobuf, &long).is_err());
        skips(2);
    }
    assert_eq!(apply(&store, &object("", "long", "8")), "added");
    skips(1);

    let mut relist = store.begin_relist();
    assert!(relist.apply(Encoding::Protobuf, &large("a", "7")).is_err());
    for _ in 0..2 {
        assert!(relist.apply(Encoding::Protobuf, &large("c", "7")).is_err());
    }
    // Another writer skips a newer state than the list has.
    fails("d", "9");
    relist.apply(Encoding::Protobuf, &whole("d", "6")).map(drop).unwrap();
    // A list has each object once, so these are two.
    for bytes in [b"\xff", b"\xfe", b"\xff"] {
        assert!(relist.apply(Encoding::Protobuf, bytes).is_err());
    }
    skips(6);
    relist.commit("8").unwrap();
    assert!(store.get(("", "a")).is_some(), "a is in the list");
    assert!(store.get(("", "long")).is_none());
    skips(5);
    store.begin_relist().commit("10").unwrap();
    skips(0);
}

#[test]
fn a_new_state_needs_room_only_for_what_it_takes_beyond_the_old_one() {
    let store = Store::<Object>::new(StorageFormat::Encoded);
    let state = |version: &str, bytes| object("", "a", version).data("x".repeat(bytes));
    apply(&store, &state("1", 10_000));
    store.set_budget(Some(store.memory().total() + 500));
    assert_eq!(apply(&store, &state("2", 10_400)), "modified");
    let refused = store.apply(Encoding::Protobuf, &state("3", 11_000).to_bytes(Encoding::Protobuf)).unwrap_err();
    assert!(matches!(refused, StoreError::OverBudget(_)), "{refused}");
}

#[test]
fn a_list_over_the_budget_deletes_the_missing_objects() {
    let store = Store::new(StorageFormat::Encoded);
    fill(&store, 100);
    store.set_budget(Some(store.memory().total()));
    let mut relist = store.begin_relist();
    let list: Vec<_> = (100..150).map(|i| sample(i).to_bytes(Encoding::Protobuf)).collect();
    let refused = list.iter().filter(|object| relist.apply(Encoding::Protobuf, object).is_err()).count();
    assert!(refused > 40, "{refused}");
    relist.commit("200").unwrap();
    assert_eq!((store.len(), store.skipped()), (50 - refused, refused));
    // Now there is room.
    let mut relist = store.begin_relist();
    for object in &list {
        drop(relist.apply(Encoding::Protobuf, object).unwrap());
    }
    relist.commit("200").unwrap();
    assert_eq!((store.len(), store.skipped()), (50, 0));
}

#[test]
fn the_list_of_a_restored_server_restores_a_deleted_object() {
    // Unless it is deleted once more while the list arrives.
    for (deleted, is_restored) in [(None, true), (Some("30"), true), (Some("155"), false)] {
        let store = Store::new(StorageFormat::Encoded);
        apply(&store, &object("", "a", "40"));
        store.advance("100");
        assert!(delete(&store, &object("", "a", "150")));
        let mut relist = store.begin_relist();
        relist.apply(Encoding::Protobuf, &object("", "a", "40").to_bytes(Encoding::Protobuf)).map(drop).unwrap();
        if let Some(version) = deleted {
            delete(&store, &object("", "a", version));
        }
        relist.commit("60").unwrap();
        assert_eq!(store.get(("", "a")).is_some(), is_restored, "{deleted:?}");
    }
}

#[test]
fn the_list_of_a_restored_server_restores_the_newest_state_that_it_may_have() {
    for (written, expected) in [(None, "5"), (Some("3"), "5"), (Some("7"), "7")] {
        let store = Store::new(StorageFormat::Encoded);
        apply(&store, &object("", "a", "10"));
        store.advance("100");
        let mut relist = store.begin_relist();
        relist.apply(Encoding::Protobuf, &object("", "a", "5").to_bytes(Encoding::Protobuf)).map(drop).unwrap();
        if let Some(version) = written {
            apply(&store, &object("", "a", version));
        }
        relist.commit("6").unwrap();
        assert_eq!(store.get(("", "a")).unwrap().resource_version(), expected, "{written:?}");
    }
}

#[test]
fn keeps_the_bytes_unchanged() {
    for format in [StorageFormat::Encoded, StorageFormat::Compressed] {
        for encoding in [Encoding::Protobuf, Encoding::Json] {
            let store = Store::<[u8]>::new(format);
            for i in 0..600 {
                store.apply(encoding, &sample(i).to_bytes(encoding)).map(drop).unwrap();
            }
            for i in 0..600 {
                let object = store.get(("default", &*format!("web-{i}"))).unwrap();
                assert_eq!(**object.encoded().unwrap(), *sample(i).to_bytes(encoding));
                assert_eq!(object.encoding(), encoding);
            }
        }
    }
}

/// Objects that differ in their names and two numbers.
fn alike(i: usize, version: usize) -> Object {
    let text = "image registry.example.com/shop/web mounted at /var/run/secrets/kubernetes.io/serviceaccount, limits cpu 100m \
                memory 64Mi, restartPolicy Always, dnsPolicy ClusterFirst, schedulerName default-scheduler";
    object("default", &format!("web-{i}"), &version.to_string()).data(format!("{} {text} {}", i * 7919, i * 104_729))
}

#[test]
fn a_dictionary_is_trained_once_it_saves_more_than_it_takes() {
    let memory = |writes: &mut dyn Iterator<Item = (usize, usize)>| {
        let store = Store::<[u8]>::new(StorageFormat::Compressed);
        let mut list = store.begin_relist();
        for (i, version) in writes {
            drop(list.apply(Encoding::Protobuf, &alike(i, version).to_bytes(Encoding::Protobuf)).unwrap());
        }
        list.commit("1").unwrap();
        let memory = store.memory();
        assert_eq!(memory.encoded, 0);
        (memory.compressed / store.len(), memory.zstd)
    };
    let (small, zstd) = memory(&mut (0..1000).map(|i| (i, 1)));
    assert_eq!(zstd, 0, "no dictionary, and the contexts were freed");
    // However often its objects change.
    let (busy, zstd) = memory(&mut (1..=30).flat_map(|round| (0..1000).map(move |i| (i, round))));
    assert!(busy < small + 8 && zstd == 0, "{busy} {small} {zstd}");
    let (large, zstd) = memory(&mut (0..12_000).map(|i| (i, 1)));
    assert!(4 * large < 3 * small && zstd > 0, "{large} bytes of an object, {small} in a small store, {zstd}");
}

#[test]
fn the_type_meta_of_the_store_is_in_the_json_of_its_objects() {
    for encoding in [Encoding::Protobuf, Encoding::Json] {
        for kind in [None, Some("Namespace"), Some("NamespaceList")] {
            let store = Store::<[u8]>::new(StorageFormat::Encoded);
            store.apply(encoding, &object("web", "a", "1").to_bytes(encoding)).map(drop).unwrap();
            if let Some(kind) = kind {
                store.set_type_meta(TypeMeta::new("v1", kind));
            }
            let json = store.get(("web", "a")).unwrap().to_json();
            assert_eq!(json.is_ok(), kind.is_some());
            let json = json.unwrap_or_default();
            let expected: &[u8] = if kind.is_some() { br#"{"kind":"Namespace","apiVersion":"v1","# } else { b"" };
            assert!(json.starts_with(expected), "{}", String::from_utf8_lossy(&json));
        }
    }
}

#[test]
fn an_object_is_decompressed_once_for_each_handle() {
    for format in FORMATS {
        let store = Store::<Object>::new(format);
        fill(&store, 600);
        let object = store.get(("default", "web-1")).unwrap();
        let (bytes, same) = (object.encoded().unwrap(), object.encoded().unwrap());
        assert_eq!(**bytes, *sample(1).to_bytes(Encoding::Protobuf));
        assert_eq!(bytes.as_ptr(), same.as_ptr(), "{format:?}");
        assert_eq!(object.meta().unwrap().uid(), object.uid());
        assert_eq!(**object.clone().encoded().unwrap(), **bytes);
    }
}

#[test]
fn the_length_of_a_range_is_the_number_of_its_objects() {
    let store = Store::<Object>::new(StorageFormat::Encoded);
    let namespaces = ["", "a", "a-b", "a.b", "a0", "b"];
    for namespace in namespaces {
        for n in 0..300 {
            apply(&store, &object(namespace, &format!("n{n:03}"), "1"));
        }
    }
    let snapshot = store.snapshot();
    let keys = snapshot.range(None, None).step_by(97).map(|object| object.key()).collect::<Vec<_>>();
    let others = [("", ""), ("a", ""), ("a", "zzz"), ("c", "n000"), ("a", "n0005")];
    let afters = keys.iter().map(Into::into).chain(others).map(Some).chain([None]);
    for after in afters {
        for namespace in namespaces.into_iter().chain(["c"]).map(Some).chain([None]) {
            let expected = snapshot.range(namespace, after).count();
            assert_eq!(snapshot.range_len(namespace, after), expected, "{namespace:?} after {after:?}");
        }
    }
}

#[test]
fn lists_a_namespace() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let write = |namespace: &str, i: usize, app: &str| {
        let object = object(namespace, &format!("o-{i}"), &(i + 1).to_string()).label("app", app);
        drop(store.apply(Encoding::Protobuf, &object.to_bytes(Encoding::Protobuf)).unwrap());
    };
    (0..1000).for_each(|i| write(["a", "b"][i % 2], i, ["web", "db"][i % 3 % 2]));
    write("one", 1000, "web");
    let counts = || ["a", "b", "one", "none"].map(|namespace| store.list_namespace(namespace).len());
    assert_eq!(counts(), [500, 500, 1, 0]);
    assert!(store.list_namespace("a").iter().all(|object| object.namespace() == "a"));
    {
        let web = "app=web".parse().unwrap();
        let all = store.list_labels(None, &web);
        assert!(all.iter().all(|object| object.meta().unwrap().label("app").unwrap().as_deref() == Some("web")));
        let of_each: usize = ["a", "b", "one"].iter().map(|it| store.list_labels(Some(it), &web).len()).sum();
        assert_eq!((all.len(), of_each), (668, 668));
    }
    drop(store.delete(Encoding::Protobuf, &object("one", "o-1000", "2000").to_bytes(Encoding::Protobuf)).unwrap());
    let mut relist = store.begin_relist();
    for object in store.list_namespace("b").iter().take(3) {
        drop(relist.apply(Encoding::Protobuf, object.encoded().unwrap()).unwrap());
    }
    relist.commit("3000").unwrap();
    assert_eq!(counts(), [0, 3, 0, 0]);
}

/// An object type that counts how often its objects are decoded.
struct Counted;

static DECODED: AtomicUsize = AtomicUsize::new(0);

impl Item for Counted {
    type Owned = Box<[u8]>;

    fn from_ref(item: ItemRef<'_>) -> Result<Box<[u8]>, ItemError> {
        Ok(item.to_box())
    }
}

impl StoreType for Counted {
    type Decoded = Vec<u8>;

    fn decode(item: ItemRef<'_>) -> Result<Vec<u8>, ItemError> {
        DECODED.fetch_add(1, Relaxed);
        Ok(item.bytes().to_vec())
    }

    fn encode(_: &Vec<u8>) -> Result<Vec<u8>, ItemError> {
        panic!("the store has the bytes, and must not encode")
    }
}

#[test]
fn a_write_is_decoded_once_for_all_indexes_and_filters() {
    for format in FORMATS {
        let store = Store::<Counted>::new(format);
        let by_len = store.index("len", |object| Ok::<_, ItemError>([object.decode()?.len()]));
        let by_first = store.index("first", |object| Ok::<_, ItemError>(object.decode()?.first().copied()));
        let bytes = store.index("bytes", |object| Ok::<_, ItemError>([object.encoded()?.len()]));
        let is_long = |object: &listwatch_cache::Object<Counted>| object.decode().unwrap().len() > 100;
        let mut subscribers = [(); 3].map(|()| store.subscribe().filter(is_long).filter(is_long).start());
        DECODED.store(0, Relaxed);
        for i in 0..600 {
            drop(store.apply(Encoding::Protobuf, &sample(i).to_bytes(Encoding::Protobuf)).unwrap());
        }
        // Training compresses the encoded objects without decoding them.
        assert_eq!(DECODED.load(Relaxed), 600, "{format:?}");
        assert!(subscribers.iter_mut().all(|subscriber| subscriber.try_next().is_some()));
        assert_eq!((by_len.values(), by_first.values().len()), (bytes.values(), 1));
    }
}

#[test]
fn json_objects_are_decoded_with_serde() {
    let store = Store::<Json<serde_json::Value>>::new(StorageFormat::Encoded);
    let text = br#"{"metadata": {"name": "\u0061", "uid": "u", "resourceVersion": "7"}, "spec": {"size": 3}}"#;
    assert_eq!(name(&store.apply(Encoding::Json, text).unwrap()), "added");
    let object = store.get(("", "a")).unwrap();
    assert_eq!(**object.encoded().unwrap(), text[..]);
    assert_eq!(object.decode().unwrap()["spec"]["size"], 3);
    assert_eq!(object.name(), "a");
}

/// Quadratic steps would take minutes here, and block readers meanwhile.
#[test]
fn an_object_may_have_many_values() {
    let store = Store::<Object>::new(StorageFormat::Encoded);
    let values = |object: &listwatch_cache::Object<Object>| {
        let first: u32 = object.resource_version().parse().unwrap();
        // Each twice.
        Ok::<_, ItemError>((first..first + 100_000).chain(first..first + 100_000).collect::<Vec<_>>())
    };
    let index = store.index("many", values);
    for version in ["1", "2", "50001"] {
        apply(&store, &object("", "a", version));
        let first: u32 = version.parse().unwrap();
        assert_eq!(index.values().len(), 100_000, "{version}");
        for value in [first, first + 1, first + 99_999] {
            assert_eq!((index.get(&value).len(), index.count(&value)), (1, 1), "{version}: {value}");
        }
        assert!(index.get(&(first - 1)).is_empty() && index.get(&(first + 100_000)).is_empty(), "{version}");
    }
    let later = store.index("later", values);
    assert_eq!(later.values(), index.values());
    assert!(delete(&store, &object("", "a", "50002")));
    assert!(index.values().is_empty() && later.values().is_empty());
}

#[test]
fn an_index_error_names_the_index_and_the_object() {
    let store = Store::<Object>::new(StorageFormat::Encoded);
    let by_label = store.index("team", |object| match object.meta()?.label("team")? {
        Some(label) if label == "unknown" => Err("no such team".into()),
        label => Ok::<_, Box<dyn std::error::Error + Send + Sync>>(label.map(String::from)),
    });
    for (team, count, failed) in [("a", 1, 0), ("unknown", 0, 1), ("b", 0, 0)] {
        let version = store.len() + team.len();
        let object = object("default", "x", &(version * 10).to_string()).label("team", team);
        let bytes = object.to_bytes(Encoding::Protobuf);
        drop(store.apply(Encoding::Protobuf, &bytes).unwrap());
        assert_eq!(by_label.errors().len(), failed, "{team}");
        for error in by_label.errors() {
            assert_eq!(chain(&error), "index team failed for default/x: no such team");
        }
        assert_eq!(by_label.count("a"), count);
        assert!(store.get(("default", "x")).is_some());
        assert!(delete(&store, &object) && store.is_empty() && by_label.values().is_empty());
        assert!(by_label.errors().is_empty());
    }
}

#[test]
fn an_index_has_ranges_of_its_values() {
    let store = Store::<Object>::new(StorageFormat::Encoded);
    let by_data = store.index("data", |object| Ok::<_, ItemError>([object.decode()?.data.clone()]));
    for (name, data) in [("a", "apple"), ("b", "banana"), ("c", "band"), ("d", "cherry"), ("e", "band")] {
        apply(&store, &object("", name, "1").data(data));
    }
    let names = |found: &[(String, Vec<listwatch_cache::Object<Object>>)]| {
        let names = found.iter().flat_map(|(_, objects)| objects.iter().map(|it| it.name().to_owned()));
        names.collect::<String>()
    };
    let text = str::to_owned;
    for (found, expected) in [
        (by_data.range(..).collect::<Vec<_>>(), "abced"),
        (by_data.range(text("b")..text("c")).collect(), "bce"),
        (by_data.range(text("banana")..=text("band")).collect(), "bce"),
        (by_data.range(text("banana")..text("banana")).collect(), ""),
        (by_data.range(text("c")..text("b")).collect(), ""),
        (by_data.range(text("aq")..).take(1).collect(), "b"),
        (by_data.range(text("d")..).collect(), ""),
        (by_data.range(text("ban")..).take_while(|(value, _)| value.starts_with("ban")).collect(), "bce"),
    ] {
        assert_eq!(names(&found), expected);
    }
    assert_eq!(by_data.get("band").len(), 2);
}

#[test]
fn dropping_the_last_handle_drops_an_index() {
    let store = Store::<Object>::new(StorageFormat::Encoded);
    let alive = Arc::new(());
    let seen = Arc::clone(&alive);
    let index = store.index("none", move |_| {
        let _ = &seen;
        Ok::<_, ItemError>(None::<u32>)
    });
    let clone = index.clone();
    drop(index);
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(clone);
    assert_eq!(Arc::strong_count(&alive), 1);
    assert_eq!(apply(&store, &object("", "x", "1")), "added");
}

/// Pods as diverse as in a real cluster, and 120 Pods that are repeated. A larger store saves more.
#[test]
fn a_compressed_store_takes_a_fraction_of_the_bytes() {
    let recorded = listwatch_testserver::recorded_pods();
    let uniform = listwatch_testserver::Synthesizer::new(&recorded, 2000).unwrap().to_vec();
    for (name, body, percent) in [("diverse", listwatch_corpus::pods(2000), 8..11), ("uniform", uniform, 2..5)] {
        let held = |format| {
            let store = Store::<[u8]>::new(format);
            let mut relist = store.begin_relist();
            let mut pods = ListReader::new::<[u8]>(&body[..]);
            for pod in &mut pods {
                drop(relist.apply(Encoding::Protobuf, &pod.unwrap()).unwrap());
            }
            relist.commit("1").unwrap();
            store.memory().total()
        };
        let [encoded, compressed] = [StorageFormat::Encoded, StorageFormat::Compressed].map(held);
        let found = 100 * compressed / encoded;
        assert!(percent.contains(&found), "{name}: {found} % of {encoded}");
    }
}

/// Custom resources have uids, times and digests, which are packed. Each is read as it was written: before a dictionary
/// is trained, after it, and from a file.
#[test]
fn compressed_custom_resources_are_read_as_they_were_written() {
    for (kind, count, most) in [
        (CustomKind::Certificate, 2_600, 215),
        (CustomKind::Revision, 1_500, 600),
        (CustomKind::Application, 60, 1_400),
    ] {
        let objects = kind.objects(count);
        let check = |store: &Store<[u8]>| {
            for object in &objects {
                let held = store.get((&*object.namespace, &*object.name)).unwrap();
                assert_eq!(**held.encoded().unwrap(), *object.json.as_bytes());
            }
        };
        let store = Store::<[u8]>::new(StorageFormat::Compressed);
        let mut relist = store.begin_relist();
        for (i, object) in objects.iter().enumerate() {
            drop(relist.apply(Encoding::Json, object.json.as_bytes()).unwrap());
            if i == 500 {
                let held = store.get((&*objects[i].namespace, &*objects[i].name)).unwrap();
                assert_eq!(**held.encoded().unwrap(), *object.json.as_bytes());
            }
        }
        relist.commit("1").unwrap();
        check(&store);
        let held = store.memory().compressed / objects.len();
        assert!(held < most, "{kind:?}: {held}");

        let file = tempfile::NamedTempFile::new().unwrap();
        store.save(file.path(), "").unwrap();
        let loaded = Store::<[u8]>::new(StorageFormat::Compressed);
        loaded.load(file.path(), "").unwrap();
        check(&loaded);
    }
}

#[test]
fn trains_a_new_dictionary_when_the_objects_have_changed() {
    let store = Store::<Object>::new(StorageFormat::Compressed);
    let [first, second] = [&b"abcdefghijklm"[..], b"nopqrstuvwxyz"].map(|letters| {
        let mut random = fastrand::Rng::with_seed(letters[0].into());
        let mut word = || (0..8).map(|_| char::from(*random.choice(letters).unwrap())).collect();
        (0..200).map(|_| word()).collect::<Vec<String>>()
    });
    let of = |words: &[String], i: usize, version: usize| {
        let data: Vec<_> = (0..180).map(|k| words[(i * 7 + k * k * (1 + i % 5)) % 200].clone()).collect();
        object("default", &format!("web-{i}"), &version.to_string()).data(data.concat())
    };
    let write = |words: &[String], version: usize, objects: usize| {
        for i in 0..objects {
            apply(&store, &of(words, i, version));
        }
        store.memory().compressed
    };
    let before = write(&first, 1, 8000);
    let once_more = write(&first, 2, 8000);
    assert!(once_more < before + before / 20, "{before} {once_more}");
    // Too few for another training.
    let others = write(&second, 3, 200) - once_more * 39 / 40;
    assert!(others > before / 40 * 3 / 2, "{before} {others}: the old dictionary compresses other objects less");
    _ = write(&second, 4, 8000);
    let trained = write(&second, 5, 8000);
    assert!(trained < before * 4 / 3, "{before} {trained}");
    for i in 0..8000 {
        let object = store.get(("default", &*format!("web-{i}"))).unwrap();
        assert_eq!(*object.decode().unwrap(), of(&second, i, 5));
    }
}

/// A hundred readers see increasing versions of each object, by key, by index and in snapshots, which do not change.
#[test]
fn readers_see_increasing_versions_during_writes() {
    for format in FORMATS {
        let store = Store::<Object>::new(format);
        let by_data = store.index("data", |object| Ok::<_, ItemError>([object.resource_version().to_owned()]));
        thread::scope(|scope| {
            let writer = Arc::new(scope.spawn(|| (1..=20).for_each(|version| write_all(&store, version))));
            for reader in 0..100 {
                let (store, by_data, writer) = (&store, &by_data, Arc::clone(&writer));
                scope.spawn(move || {
                    let mut seen = 0;
                    while !writer.is_finished() {
                        let Some(object) = store.get(("default", &*format!("web-{}", reader % 20))) else { continue };
                        let version: usize = object.resource_version().parse().unwrap();
                        assert!(version >= seen, "{version} after {seen}");
                        assert_eq!(object.decode().unwrap().data, data(version));
                        for object in by_data.get(&version.to_string()) {
                            assert_eq!(object.resource_version(), version.to_string());
                        }
                        let snapshot = store.snapshot();
                        assert!(snapshot.iter().count() == 20 && snapshot.len() == 20 || version == 1);
                        seen = version;
                        thread::yield_now();
                    }
                });
            }
        });
        assert_eq!(by_data.count("20"), 20);
    }
}

/// Writes all objects, every tenth time as a list.
fn write_all(store: &Store<Object>, version: usize) {
    let mut relist = version.is_multiple_of(10).then(|| store.begin_relist());
    for i in 0..20 {
        let object = object("default", &format!("web-{i}"), &version.to_string()).data(data(version));
        let bytes = object.to_bytes(Encoding::Protobuf);
        let written = match &mut relist {
            Some(relist) => relist.apply(Encoding::Protobuf, &bytes),
            None => store.apply(Encoding::Protobuf, &bytes),
        };
        assert_eq!(name(&written.unwrap()), if version == 1 { "added" } else { "modified" });
    }
    if let Some(relist) = relist {
        relist.commit(&version.to_string()).unwrap();
    }
}

fn data(version: usize) -> String {
    format!("{version} ").repeat(30)
}
