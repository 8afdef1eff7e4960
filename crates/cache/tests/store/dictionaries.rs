//! Dictionaries of earlier trainings are freed, so a store whose objects drift takes about as much memory as a fresh
//! one.

use std::collections::BTreeMap;
use std::ops::Range;

use fastrand::Rng;
use listwatch::Encoding;
use listwatch_cache::{StorageFormat, Store};

use crate::support::store::object;
use crate::trained::trained;

/// A store measures how well its objects compress over 4096 of them. Other objects are deltas.
const OBJECTS: usize = 4800;
/// The objects of each generation that no later one replaces.
const KEPT: usize = 64;

/// Objects by name.
type Objects = BTreeMap<String, Vec<u8>>;

/// The words of a generation.
struct Words(Vec<String>);

impl Words {
    fn of(generation: u64) -> Self {
        let mut rng = Rng::with_seed(generation);
        Self((0..128).map(|_| format!("{:016x} ", rng.u64(..))).collect())
    }

    fn text(&self, i: usize) -> String {
        let mut rng = Rng::with_seed(i as u64);
        (0..16).map(|_| &*self.0[rng.usize(..self.0.len())]).collect()
    }
}

/// Objects in the words of a generation. One in eight is similar to the object before it, of the same owner.
fn objects(generation: u64, version: u64) -> Objects {
    let words = Words::of(generation);
    let object = |i: usize| {
        let name = if i < KEPT { format!("kept-{generation}-{i}") } else { format!("o-{i}") };
        let object = object("ns", &name, &version.to_string());
        let object = match i % 8 {
            0 => object.owner(&format!("owner {i}")).data(words.text(i)),
            1 => object.owner(&format!("owner {}", i - 1)).data(words.text(i - 1) + "other"),
            _ => object.data(words.text(i)),
        };
        (name, object.to_bytes(Encoding::Protobuf))
    };
    (0..OBJECTS).map(object).collect()
}

fn apply(store: &Store<[u8]>, objects: &Objects) {
    for bytes in objects.values() {
        drop(store.apply(Encoding::Protobuf, bytes).unwrap());
    }
}

fn check(store: &Store<[u8]>, objects: &Objects) {
    assert_eq!(store.len(), objects.len());
    for (name, bytes) in objects {
        assert!(**store.get(("ns", &**name)).unwrap().encoded().unwrap() == **bytes, "{name}");
    }
}

/// A store whose dictionary was trained on the first generation. It has `generations` others after each other, and each
/// twice: a training follows the first time, and the second time shows how well its dictionary compresses.
fn drifted(generations: u64) -> (Store<[u8]>, Objects) {
    let words = Words::of(0);
    let store = trained((0..600).map(|i| object("ns", &i.to_string(), "1").data(words.text(i))));
    let mut held = Objects::new();
    for (generation, round) in (0..generations).flat_map(|generation| [(generation, 0), (generation, 1)]) {
        let objects = objects(generation, 2 * generation + round + 2);
        apply(&store, &objects);
        held.extend(objects);
    }
    (store, held)
}

/// A store that has only these objects, and a dictionary of this generation.
fn fresh(generation: u64, objects: &Objects) -> Store<[u8]> {
    let words = Words::of(generation);
    let store = trained((0..600).map(|i| object("ns", &i.to_string(), "1").data(words.text(i))));
    apply(&store, objects);
    store
}

#[test]
fn a_store_whose_objects_drift_takes_as_much_memory_as_a_fresh_one() {
    let (store, objects) = drifted(6);
    check(&store, &objects);
    let fresh = fresh(5, &objects);
    // Reads need contexts of zstd, too.
    check(&fresh, &objects);
    let (found, expected) = (store.memory(), fresh.memory());
    // A renewal may be under way, so there may be two dictionaries.
    assert!(found.zstd < expected.zstd + 100_000, "{found:?}, fresh {expected:?}");
    assert!(found.compressed < expected.compressed * 11 / 10, "{found:?}, fresh {expected:?}");
    // Writes that change nothing finish it.
    apply(&store, &objects);
    let found = store.memory();
    assert!(found.zstd < expected.zstd + 20_000, "{found:?}, fresh {expected:?}");
    assert!(found.total() < expected.total() * 11 / 10, "{found:?}, fresh {expected:?}");
    check(&store, &objects);
}

#[test]
fn a_file_has_the_current_dictionaries() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects");
    let (store, objects) = drifted(6);
    store.advance("99");
    store.save(&path, "objects").unwrap();
    let len = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
    let fresh = fresh(5, &objects);
    fresh.advance("99");
    fresh.save(&path, "objects").unwrap();
    let expected = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
    assert!(len < expected, "{len} bytes, {expected} of a fresh store");
    let loaded = Store::<[u8]>::new(StorageFormat::Compressed);
    loaded.load(&path, "objects").unwrap();
    check(&loaded, &objects);
    apply(&loaded, &objects);
    check(&loaded, &objects);
}

#[test]
fn namespaces_that_came_and_went_leave_nothing() {
    for format in [StorageFormat::Encoded, StorageFormat::Compressed] {
        let store = Store::<[u8]>::new(format);
        let churn = |namespaces: Range<u32>| {
            for namespace in namespaces {
                let object = object(&format!("namespace-{namespace}"), "o", "1").data("text ".repeat(20));
                // Some servers send a deletion with a part of the object only.
                let deleted = object.clone().data("");
                drop(store.apply(Encoding::Protobuf, &object.to_bytes(Encoding::Protobuf)).unwrap());
                assert!(store.delete(Encoding::Protobuf, &deleted.to_bytes(Encoding::Protobuf)).unwrap().is_some());
            }
        };
        churn(0..200);
        let before = store.memory();
        churn(200..5000);
        let after = store.memory();
        assert!(after.total() < before.total() + 10_000, "{format:?}: {before:?}, {after:?}");
    }
}
