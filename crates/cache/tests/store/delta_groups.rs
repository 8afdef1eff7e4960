//! Objects of a delta group are kept as deltas to one reference, and each is still read, replaced and deleted on its
//! own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use fastrand::Rng;
use listwatch::Encoding;
use listwatch_cache::{StorageFormat, Store};

use crate::support::cases;
use crate::support::store::{Object, object};
use crate::trained::trained;

fn text(seed: u64, len: usize) -> String {
    let mut rng = Rng::with_seed(seed);
    (0..len).map(|_| rng.alphanumeric()).collect()
}

thread_local! {
    static TEMPLATES: RefCell<BTreeMap<u64, Rc<str>>> = RefCell::default();
}

/// Returns the long text of a template, which is made once.
fn template(seed: u64) -> Rc<str> {
    TEMPLATES.with_borrow_mut(|known| Rc::clone(known.entry(seed).or_insert_with(|| text(seed, 2000).into())))
}

/// An object with the text of its group, as a template has it, and a text of its own.
fn ungrouped(namespace: &str, group: u64, i: usize, version: u64) -> Object {
    let own = text(version << 32 | i as u64, 64);
    let data = format!("{own} {}", template(group));
    object(namespace, &format!("web-{group}-{i}"), &version.to_string()).data(data)
}

fn owned(namespace: &str, group: u64, i: usize, version: u64) -> Object {
    ungrouped(namespace, group, i, version).owner(&format!("owner {group}"))
}

fn apply(store: &Store<[u8]>, object: &Object) {
    drop(store.apply(Encoding::Protobuf, &object.to_bytes(Encoding::Protobuf)).unwrap());
}

fn delete(store: &Store<[u8]>, object: &Object) {
    assert!(store.delete(Encoding::Protobuf, &object.to_bytes(Encoding::Protobuf)).unwrap().is_some());
}

fn empty() -> Store<[u8]> {
    trained((0..600).map(|i| object("train", &i.to_string(), "1").data(text(i / 3, 300))))
}

fn filled(objects: &[Object]) -> Store<[u8]> {
    let store = empty();
    for object in objects {
        apply(&store, object);
    }
    store
}

/// Returns the memory of the objects and their references, and checks that the store has exactly these objects.
fn memory(store: &Store<[u8]>, objects: &[Object]) -> usize {
    let held: BTreeMap<_, _> = store.snapshot().iter().map(|it| (it.key(), it.encoded().unwrap().to_vec())).collect();
    assert_eq!(held.len(), objects.len());
    for object in objects {
        let meta = object.metadata.clone().unwrap();
        let held = store.get((&*meta.namespace, &*meta.name)).unwrap();
        assert_eq!(**held.encoded().unwrap(), object.to_bytes(Encoding::Protobuf));
    }
    let memory = store.memory();
    memory.compressed + memory.encoded
}

#[test]
fn a_group_of_any_size_is_kept_as_deltas() {
    // The text of its own, the identity and the entry take about 250 bytes.
    for (size, groups, most) in [(1, 40, 2200), (2, 20, 1300), (50, 2, 330), (10_000, 1, 300)] {
        let objects: Vec<_> = (0..groups).flat_map(|group| (0..size).map(move |i| owned("ns", group, i, 1))).collect();
        let alone: Vec<_> = objects.iter().take(100).map(|object| object.clone().data(object.data.clone())).collect();
        let alone: Vec<_> = alone.into_iter().map(without_group).collect();
        let each = memory(&filled(&objects), &objects) / objects.len();
        let single = memory(&filled(&alone), &alone) / alone.len();
        assert!(each < most && each < single + 20, "{size} objects: {each} bytes each, {single} without a group");
    }
}

fn without_group(mut object: Object) -> Object {
    object.meta().owner_references.clear();
    object
}

#[test]
fn objects_without_an_owner_are_a_group_by_their_generate_name() {
    let of = |i: usize, generate_name: &str| {
        let mut object = ungrouped("ns", 1, i, 1);
        generate_name.clone_into(&mut object.meta().generate_name);
        object
    };
    let [none, one] = ["", "web-"].map(|generate_name| {
        let objects: Vec<_> = (0..100).map(|i| of(i, generate_name)).collect();
        memory(&filled(&objects), &objects)
    });
    assert!(one < none / 4, "{one} of {none}");
    // An owner that does not control the object makes no group.
    let mut objects: Vec<_> = (0..100).map(|i| owned("ns", 1, i, 1)).collect();
    for object in &mut objects {
        object.meta().owner_references[0].controller = false;
    }
    assert!(memory(&filled(&objects), &objects) > none * 9 / 10);
}

#[test]
fn a_reference_lives_as_long_as_its_deltas() {
    let mut objects: Vec<_> = (0..20).map(|i| owned("ns", 1, i, 1)).collect();
    let store = filled(&objects);
    let full = memory(&store, &objects);
    // The object that became the reference is replaced by another text, and then deleted.
    objects[0] = objects[0].clone().data(text(2, 2000));
    objects[0].meta().resource_version = "2".to_owned();
    apply(&store, &objects[0]);
    let with_another = memory(&store, &objects);
    assert!(with_another > full + 1200, "{with_another} {full}");
    delete(&store, &objects.remove(0));
    let without = memory(&store, &objects);
    assert!((full - 400..full + 400).contains(&without), "{without} {full}");
    let held = store.get(("ns", "web-1-7")).unwrap();
    for object in &objects {
        delete(&store, object);
    }
    // Only the caller's object and its reference are left.
    assert_eq!(**held.encoded().unwrap(), objects[6].to_bytes(Encoding::Protobuf));
    assert!(store.memory().compressed > 1000);
    drop(held);
    assert_eq!((store.memory().compressed, store.len()), (0, 0));
}

#[test]
fn namespaces_with_the_same_owner_share_nothing() {
    let [a, b] = ["a", "b"].map(|namespace| (0..20).map(|i| owned(namespace, 1, i, 1)).collect::<Vec<_>>());
    let store = filled(&a);
    for object in &b {
        apply(&store, object);
    }
    for object in &a {
        delete(&store, object);
    }
    assert_eq!(memory(&store, &b), memory(&filled(&b), &b));
}

#[test]
fn an_object_follows_its_owner() {
    let mut objects: Vec<_> = (1..3).flat_map(|group| (0..20).map(move |i| owned("ns", group, i, 1))).collect();
    let store = filled(&objects);
    let before = memory(&store, &objects);
    // Adopted, with the text of the new group.
    for (i, object) in objects.iter_mut().take(20).enumerate() {
        *object = object.clone().owner("owner 2").data(owned("ns", 2, i + 100, 2).data);
        object.meta().resource_version = "2".to_owned();
        apply(&store, object);
    }
    let after = memory(&store, &objects);
    assert!(after < before - 1000, "the first reference is freed: {after} {before}");
    // Adopted without a change of the text: the new group's reference does not help.
    for object in objects.iter_mut().skip(20) {
        *object = object.clone().owner("owner 3");
        object.meta().resource_version = "2".to_owned();
        apply(&store, object);
    }
    let last = memory(&store, &objects);
    assert!(last < after + 2500, "each group has a reference: {last} {after}");
}

/// Objects of other users cannot make a store larger by claiming the same owner.
#[test]
fn objects_that_have_nothing_in_common_take_no_more_memory_in_one_group() {
    let of = |i: usize, len: usize| object("ns", &format!("o-{i}"), "1").data(text(i as u64, len));
    for lens in [vec![0], vec![40], vec![3000], vec![0, 3000, 20, 800]] {
        let alone: Vec<_> = (0..2000).map(|i| of(i, lens[i % lens.len()])).collect();
        let together: Vec<_> = alone.iter().map(|object| object.clone().owner("owner")).collect();
        let [alone, together] = [alone, together].map(|objects| memory(&filled(&objects), &objects));
        // The owner itself takes a few bytes.
        assert!(together < alone + alone / 50 + 2000 * 16, "{lens:?}: {together} {alone}");
    }
}

#[test]
fn a_new_reference_takes_over_when_the_objects_drift() {
    // Objects without a status, with it, with a small change of the template, and with another template.
    let of = |step: u64, round: u64, i: usize| {
        let object = owned("ns", 1, i, 2 * step + round + 1);
        let data = match step {
            0 => object.data[..500].to_owned(),
            1 => object.data.clone(),
            2 => format!("{} {}", object.data, text(50, 300)),
            _ => format!("{} {}", &object.data[..64], text(60, 2000)),
        };
        object.data(data)
    };
    let store = empty();
    for (step, round) in (0..4).flat_map(|step| [(step, 0), (step, 1)]) {
        let objects: Vec<_> = (0..200).map(|i| of(step, round, i)).collect();
        for object in &objects {
            apply(&store, object);
        }
        let (found, fresh) = (memory(&store, &objects), memory(&filled(&objects), &objects));
        // After the first round the objects that were written first have another reference than the others.
        let most = if round == 0 { fresh + fresh / 5 } else { fresh + fresh / 10 };
        assert!(found < most, "step {step}, round {round}: {found}, {fresh} in a fresh store");
    }
}

#[test]
fn random_writes_leave_no_more_memory_than_a_fresh_store() {
    let seed = crate::support::seeds::only().unwrap_or(1);
    println!("SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let mut held = BTreeMap::new();
    let store = empty();
    for version in 2..cases(12_000, 1_000_000) {
        // Groups of 1 to 128 objects, whose template changes now and then.
        let group = rng.u64(0..40);
        let i = rng.usize(..1 << (group % 8));
        let template = group + 100 * (version / 9000 + group) / 4;
        if rng.u8(..10) == 0 {
            if let Some(last) = held.remove(&(group, i)) {
                delete(&store, &last);
            }
            continue;
        }
        let mut object = owned("ns", group, i, version);
        let own = text(version, 64 + rng.usize(..40));
        object.data = format!("{own} {}", self::template(template));
        apply(&store, &object);
        held.insert((group, i), object);
    }
    let held: Vec<_> = held.into_values().collect();
    let fresh = filled(&held);
    let (found, fresh) = (memory(&store, &held), memory(&fresh, &held));
    println!("{found} bytes, {fresh} in a fresh store");
    assert!(found < fresh * 11 / 10, "{found} {fresh}");
    assert!(store.memory().table < 600_000, "{:?}", store.memory());
}

#[test]
fn a_loaded_store_knows_the_references() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects");
    let objects: Vec<_> = (0..10).flat_map(|group| (0..50).map(move |i| owned("ns", group, i, 1))).collect();
    let store = filled(&objects);
    store.advance("7");
    store.save(&path, "objects").unwrap();
    let len = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
    let expected = memory(&store, &objects);
    assert!(len < expected + 120_000, "{len} {expected}");
    let loaded = Store::<[u8]>::new(StorageFormat::Compressed);
    loaded.load(&path, "objects").unwrap();
    assert_eq!(memory(&loaded, &objects), expected);
    let more: Vec<_> = (0..10).map(|group| owned("ns", group, 50, 8)).collect();
    for object in &more {
        apply(&loaded, object);
    }
    let grown = memory(&loaded, &[objects.clone(), more].concat()) - expected;
    assert!(grown < 10 * 350, "{grown} bytes for 10 more objects");
    // A file that is not loaded leaves nothing.
    let small = Store::<[u8]>::new(StorageFormat::Compressed);
    small.set_budget(Some(expected - 1));
    assert!(small.load(&path, "objects").is_err());
    assert_eq!(small.memory().compressed, 0);
    let encoded = Store::<[u8]>::new(StorageFormat::Encoded);
    encoded.load(&path, "objects").unwrap();
    assert!(encoded.memory().compressed == 0 && memory(&encoded, &objects) > 2000 * objects.len());
}

#[test]
fn a_budget_counts_references() {
    let store = empty();
    let budget = store.memory().total() + 1_700_000;
    store.set_budget(Some(budget));
    let mut held = Vec::new();
    for object in (0..800).flat_map(|group| (0..2).map(move |i| owned("ns", group, i, 1))) {
        if store.apply(Encoding::Protobuf, &object.to_bytes(Encoding::Protobuf)).is_ok() {
            held.push(object);
        }
    }
    // Contexts of zstd and tables grow between two measurements, and reads keep references.
    let total = store.memory().total();
    assert!(total < budget + budget / 10, "{total} over {budget}");
    assert!(memory(&store, &held) > 600_000 && held.len() < 1200, "{} objects", held.len());
}
