//! What a store guarantees to threads, in many of the orders in which they can take its locks.
//! `RUSTFLAGS='--cfg shuttle' CARGO_TARGET_DIR=target/shuttle cargo test -p listwatch-cache --test shuttle`
//!
//! Shuttle interleaves only the store's own locks, not `Arc` and `OnceLock` of std.
#![cfg(shuttle)]

#[path = "../../../../tests/support/store.rs"]
mod support;

use std::collections::BTreeMap;

use listwatch::{Encoding, ItemError};
use listwatch_cache::{Change, Index, Relist, Snapshot, StorageFormat, Store};
use shuttle::thread;
use support::{Object, object};

/// Random schedules find frequent faults; PCT finds faults that need a few specific preemptions.
fn check(model: fn()) {
    shuttle::check_random(model, 2_000);
    shuttle::check_pct(model, 2_000, 3);
}

/// An object whose data is its version.
fn bytes(name: &str, version: u32) -> Vec<u8> {
    object("", name, &version.to_string()).data(version.to_string()).to_bytes(Encoding::Protobuf)
}

fn apply(store: &Store<Object>, name: &str, version: u32) {
    store.apply(Encoding::Protobuf, &bytes(name, version)).map(drop).unwrap();
}

fn list(relist: &mut Relist<Object>, objects: &[(&str, u32)]) {
    for (name, version) in objects {
        relist.apply(Encoding::Protobuf, &bytes(name, *version)).map(drop).unwrap();
    }
}

fn delete(store: &Store<Object>, name: &str, version: u32) -> bool {
    store.delete(Encoding::Protobuf, &bytes(name, version)).unwrap().is_some()
}

/// A store with these objects, advanced to the greatest of their versions.
fn store(objects: &[(&str, u32)]) -> Store<Object> {
    let store = Store::new(StorageFormat::Encoded);
    for (name, version) in objects {
        apply(&store, name, *version);
    }
    store.advance(&objects.iter().map(|(_, version)| *version).max().unwrap_or_default().to_string());
    store
}

fn by_data(store: &Store<Object>) -> Index<Object, String> {
    store.index("data", |object| Ok::<_, ItemError>([object.decode()?.data.clone()]))
}

fn version(object: &listwatch_cache::Object<Object>) -> u32 {
    object.resource_version().parse().unwrap()
}

/// Returns the version of each object, by name.
fn held(snapshot: &Snapshot<Object>) -> BTreeMap<String, u32> {
    let held = |object: listwatch_cache::Object<Object>| {
        assert_eq!(object.decode().unwrap().data, object.resource_version(), "a mix of two states");
        (object.name().to_owned(), version(&object))
    };
    let all: BTreeMap<_, _> = snapshot.iter().map(held).collect();
    assert_eq!(snapshot.iter().count(), all.len(), "an object occurs twice");
    assert_eq!(snapshot.len(), all.len());
    all
}

fn owned(objects: &[(&str, u32)]) -> BTreeMap<String, u32> {
    objects.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}

#[test]
fn versions_never_decrease_and_an_index_matches_the_objects() {
    check(|| {
        let store = store(&[("a", 1)]);
        let by_data = by_data(&store);
        let writer = {
            let store = store.clone();
            thread::spawn(move || [2, 3].map(|version| apply(&store, "a", version)))
        };
        let mut seen = 0;
        let mut see = |version| {
            assert!(version >= seen, "{version} after {seen}");
            seen = version;
        };
        for _ in 0..2 {
            see(version(&store.get(("", "a")).unwrap()));
            let values = by_data.values();
            assert_eq!(values.len(), 1, "{values:?}");
            for object in by_data.get(&values[0]) {
                assert_eq!(object.resource_version(), values[0]);
                see(version(&object));
            }
            see(held(&store.snapshot())["a"]);
        }
        writer.join().unwrap();
        assert_eq!(by_data.values(), ["3"]);
    });
}

#[test]
fn a_replace_keeps_concurrent_writes() {
    check(|| {
        let store = store(&[("newer", 5), ("deleted", 6), ("missing", 7), ("known", 10)]);
        let mut relist = store.begin_relist();
        let lister = thread::spawn(move || {
            list(&mut relist, &[("newer", 5), ("deleted", 6), ("known", 10)]);
            relist.commit("10").unwrap()
        });
        apply(&store, "newer", 11);
        assert!(delete(&store, "deleted", 12));
        apply(&store, "created", 13);
        lister.join().unwrap();
        assert_eq!(held(&store.snapshot()), owned(&[("newer", 11), ("known", 10), ("created", 13)]));
    });
}

#[test]
fn an_object_keeps_its_state_while_it_is_replaced() {
    check(|| {
        let store = store(&[("a", 1)]);
        let decoders = [(); 2].map(|()| {
            let object = store.get(("", "a")).unwrap();
            thread::spawn(move || object.decode().unwrap())
        });
        let mut relist = store.begin_relist();
        list(&mut relist, &[("a", 2)]);
        relist.commit("2").unwrap();
        let [one, other] = decoders.map(|decoder| decoder.join().unwrap());
        assert_eq!((one.data.as_str(), other.data.as_str()), ("1", "1"));
        assert_eq!(store.get(("", "a")).unwrap().decode().unwrap().data, "2");
    });
}

#[test]
fn an_index_that_is_added_during_writes_has_all_objects() {
    check(|| {
        let store = store(&[("changed", 1), ("deleted", 2), ("same", 3)]);
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                apply(&store, "changed", 4);
                assert!(delete(&store, "deleted", 5));
                apply(&store, "created", 6);
            })
        };
        let by_data = by_data(&store);
        writer.join().unwrap();
        let indexed: Vec<(String, u32)> = by_data
            .values()
            .iter()
            .flat_map(|value| {
                let objects = by_data.get(value).into_iter();
                objects.map(move |object| (object.name().to_owned(), value.parse().unwrap()))
            })
            .collect();
        assert_eq!(indexed.len(), 3);
        assert_eq!(BTreeMap::from_iter(indexed), held(&store.snapshot()));
    });
}

#[test]
fn a_snapshot_has_each_object_as_before_or_after_a_replace() {
    check(|| {
        let store = store(&[("modified", 2), ("missing", 3), ("restored", 9)]);
        let committer = {
            let store = store.clone();
            thread::spawn(move || {
                let mut relist = store.begin_relist();
                list(&mut relist, &[("modified", 4), ("restored", 1), ("created", 5)]);
                relist.commit("6").unwrap();
            })
        };
        let snapshots = [(); 3].map(|()| {
            let snapshot = store.snapshot();
            let held = held(&snapshot);
            (snapshot, held)
        });
        committer.join().unwrap();
        // The versions before and after; 0 means absent.
        for (name, states) in [("modified", [2, 4]), ("missing", [3, 0]), ("restored", [9, 1]), ("created", [0, 5])] {
            let seen = snapshots.each_ref().map(|(_, held)| held.get(name).copied().unwrap_or_default());
            let seen = seen.map(|version| states.iter().position(|state| *state == version));
            assert!(seen.is_sorted() && seen[0].is_some(), "{name}: {seen:?}");
        }
        for (snapshot, had) in &snapshots {
            assert_eq!(held(snapshot), *had, "the snapshot changed");
            if snapshot.resource_version() == "6" {
                assert_eq!(*had, owned(&[("modified", 4), ("restored", 1), ("created", 5)]));
            }
        }
    });
}

#[test]
fn a_subscriber_converges_and_sees_no_older_state() {
    check(|| {
        let store = store(&[("a", 1), ("b", 1)]);
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                apply(&store, "a", 2);
                delete(&store, "b", 3);
                delete(&store, "a", 4);
                apply(&store, "a", 5);
            })
        };
        let mut subscriber = store.subscribe().with_initial_state().start();
        let mut view = BTreeMap::new();
        let mut take = || {
            match subscriber.try_next() {
                Some(Change::Applied { new: object, .. }) => {
                    let before = view.insert(object.name().to_owned(), version(&object));
                    assert!(before < Some(version(&object)), "{object:?} after {before:?}");
                }
                Some(Change::Deleted { last, .. }) => {
                    assert!(view.remove(last.name()).is_some(), "the deleted object was never delivered");
                }
                Some(_) => {}
                None => return false,
            }
            true
        };
        for _ in 0..3 {
            take();
        }
        writer.join().unwrap();
        while take() {}
        assert_eq!(view, owned(&[("a", 5)]));
    });
}

/// A subscriber that starts during writes, without the initial state, gets the deletion of each object that passed its
/// filter, and the state before each change.
#[test]
fn a_subscriber_without_initial_state_gets_deletions_and_earlier_states() {
    check(|| {
        let store = store(&[("a", 1), ("b", 1), ("d", 1), ("e", 1)]);
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                apply(&store, "a", 2);
                apply(&store, "c", 3);
                delete(&store, "d", 4);
                apply(&store, "e", 7);
            })
        };
        let mut subscriber = store.subscribe().filter(|object| object.name() != "b").start();
        writer.join().unwrap();
        delete(&store, "a", 8);
        delete(&store, "b", 8);
        delete(&store, "c", 8);
        let mut received = Vec::new();
        while let Some(change) = subscriber.try_next() {
            received.push(match change {
                Change::Applied { old, new, .. } => format!("{}@{:?}", new.name(), old.as_ref().map(version)),
                Change::Deleted { last, .. } => format!("-{}", last.name()),
                _ => continue,
            });
        }
        let got = |change: &str| received.iter().filter(|received| *received == change).count();
        // The subscriber may have been registered after a write, and then knows its result.
        assert_eq!(received.len(), 1 + got("-c") + got("-d") + got("e@Some(1)"), "{received:?}");
        assert_eq!(got("-a"), 1, "{received:?}");
        assert!(got("e@Some(1)") >= got("-d") && got("-d") >= 1 - got("-c"), "{received:?}");
    });
}

/// Readers decompress deltas of a group while the reference loses its deltas and another reference takes over.
#[test]
fn deltas_are_read_while_their_group_changes() {
    fn member(name: usize, version: u32) -> Vec<u8> {
        // Versions from 10 on have another text, and so another reference.
        let text: String =
            (0..60).map(|i| format!("{} ", (u64::from(version / 10) + i + 3).pow(9) % 100_003)).collect();
        let object = object("", &name.to_string(), &version.to_string()).owner("owner");
        object.data(format!("{version} {text}")).to_bytes(Encoding::Protobuf)
    }
    let write = |store: &Store<Object>, name, version| {
        drop(store.apply(Encoding::Protobuf, &member(name, version)).unwrap());
    };
    let model = move || {
        let store = Store::new(StorageFormat::Compressed);
        let mut relist = store.begin_relist();
        (0..64).for_each(|name| drop(relist.apply(Encoding::Protobuf, &member(name, 1)).unwrap()));
        relist.commit("1").unwrap();
        assert!(store.memory().compressed < 64 * 220, "{:?}", store.memory());
        // Two deltas are left, and the reference.
        (3..64).for_each(|name| drop(store.delete(Encoding::Protobuf, &member(name, 1)).unwrap()));
        let writer = {
            let store = store.clone();
            thread::spawn(move || (0..3).for_each(|name| write(&store, name, 10 + u32::try_from(name).unwrap())))
        };
        let readers = [0, 1].map(|_| {
            let store = store.clone();
            thread::spawn(move || {
                for object in store.snapshot().iter() {
                    let (data, version) = (&object.decode().unwrap().data, version(&object));
                    assert_eq!(**object.encoded().unwrap(), *member(object.name().parse().unwrap(), version), "{data}");
                }
            })
        });
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        writer.join().unwrap();
        assert_eq!(store.len(), 3);
        (0..3).for_each(|name| drop(store.delete(Encoding::Protobuf, &member(name, 20)).unwrap()));
        assert_eq!(store.memory().compressed, 0);
    };
    // zstd needs more stack than shuttle's threads have.
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(300), config.clone()).run(model);
    shuttle::Runner::new(shuttle::scheduler::PctScheduler::new(3, 300), config).run(model);
}
