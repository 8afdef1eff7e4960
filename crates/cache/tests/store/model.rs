//! A store and its indexes behave like a naive model after any sequence of writes, in each storage format.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::{iter, mem};

use listwatch::{Encoding, compare_resource_versions};
use listwatch_cache::{Change, Index, Relist, StorageFormat, Store};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use crate::support::store::{Object, object};
use crate::support::{cases, seeds};
use crate::trained::trained;

type Key = (String, String);
type Indexes = Vec<Index<[u8], String>>;

#[derive(Clone, Debug)]
enum Op {
    Apply(Written),
    Delete(Written),
    Begin,
    List(Written),
    Commit(String),
    Drop,
    Advance(String),
    AddIndex,
    Snapshot,
    /// Also compares the counted bytes with the bytes of all objects.
    Measure,
}

#[derive(Clone, Debug, PartialEq)]
struct Written {
    object: Object,
    encoding: Encoding,
}

impl Written {
    fn key(&self) -> Key {
        let meta = self.object.metadata.as_ref().unwrap();
        (meta.namespace.clone(), meta.name.clone())
    }

    fn version(&self) -> &str {
        &self.object.metadata.as_ref().unwrap().resource_version
    }

    fn uid(&self) -> &str {
        &self.object.metadata.as_ref().unwrap().uid
    }

    fn bytes(&self) -> Vec<u8> {
        self.object.to_bytes(self.encoding)
    }

    /// Returns the values of the indexes: the labels whose key begins with "team", or an error.
    fn values(&self) -> Result<BTreeSet<String>, ()> {
        let labels = &self.object.metadata.as_ref().unwrap().labels;
        if labels.contains_key("bad") {
            return Err(());
        }
        Ok(labels.iter().filter(|(key, _)| key.starts_with("team")).map(|(_, value)| value.clone()).collect())
    }
}

/// The rules of a store, in simple collections.
#[derive(Default)]
struct Model {
    held: BTreeMap<Key, Written>,
    /// The version of a deletion, and whether it has happened since the relist began.
    deleted: BTreeMap<Key, (String, bool)>,
    version: String,
    /// The objects that were written since the last list.
    ahead: BTreeSet<Key>,
    open: Option<Open>,
}

#[derive(Default)]
struct Open {
    /// The version of the collection when the relist began.
    known: String,
    listed: BTreeSet<Key>,
    written: BTreeSet<Key>,
    /// Listed objects that are older than the stored objects. The commit stores them.
    older: BTreeMap<Key, Written>,
    /// Listed objects that are older than their deletion before the relist.
    deleted: BTreeMap<Key, Written>,
}

#[derive(Debug, PartialEq)]
enum Expected {
    Added,
    Modified(Vec<u8>),
    Unchanged,
    Stale,
}

/// Returns true if the version is not newer than the other.
fn is_within(version: &str, other: &str) -> bool {
    compare_resource_versions(version, other).is_some_and(Ordering::is_le)
}

fn compares(a: &str, b: &str, expected: Ordering) -> bool {
    compare_resource_versions(a, b) == Some(expected)
}

impl Model {
    fn write(&mut self, new: &Written, from_list: bool) -> Expected {
        let key = new.key();
        let held = self.held.get(&key).cloned();
        let deleted = self.deleted.get(&key);
        let is_deleted_later = deleted.is_some_and(|(deleted, _)| is_within(new.version(), deleted));
        // The commit decides whether the deletion before the relist is newer than the list.
        let is_undecided = from_list && deleted.is_some_and(|(_, is_since)| !is_since);
        // A deletion without a version since the relist began is newer than the list.
        let was_deleted =
            !is_undecided && (is_deleted_later || from_list && deleted.is_some_and(|(deleted, _)| deleted.is_empty()));
        if held.is_none() && (was_deleted || is_deleted_later) {
            if let Some(open) = self.open.as_mut().filter(|_| is_undecided) {
                open.deleted.insert(key, new.clone());
            }
            return Expected::Stale;
        }
        let is_ordered = compare_resource_versions(new.version(), "1").is_some();
        if held.is_none() && self.open.is_none() && is_ordered && is_within(new.version(), &self.version) {
            return Expected::Stale;
        }
        let is_same = |held: &Written| held.version() == new.version() && held.uid() == new.uid();
        let is_older = |held: &Written| compares(new.version(), held.version(), Ordering::Less);
        let expected = match &held {
            None => Expected::Added,
            Some(held) if is_same(held) && !new.version().is_empty() => Expected::Unchanged,
            Some(held) if is_older(held) => Expected::Stale,
            Some(held) => Expected::Modified(held.bytes()),
        };
        if let Some(open) = &mut self.open {
            if expected == Expected::Stale {
                let is_newer_than_aside = |aside: &Written| !compares(new.version(), aside.version(), Ordering::Less);
                if from_list {
                    if !was_deleted {
                        open.listed.insert(key.clone());
                        if !open.written.contains(&key) {
                            open.older.insert(key.clone(), new.clone());
                        }
                    }
                } else if open.older.get(&key).is_some_and(is_newer_than_aside) {
                    open.older.insert(key.clone(), new.clone());
                }
            } else {
                open.older.remove(&key);
                if from_list { &mut open.listed } else { &mut open.written }.insert(key.clone());
            }
        }
        if matches!(expected, Expected::Added | Expected::Modified(_)) {
            self.ahead.insert(key.clone());
            self.held.insert(key, new.clone());
        }
        expected
    }

    fn delete(&mut self, last: &Written) -> bool {
        let key = last.key();
        let is_ahead = compares(&self.version, last.version(), Ordering::Less);
        let is_known = |(known, _): &(String, bool)| compares(last.version(), known, Ordering::Less);
        if (self.open.is_some() || is_ahead) && !self.deleted.get(&key).is_some_and(is_known) {
            self.deleted.insert(key.clone(), (last.version().to_owned(), self.open.is_some()));
        }
        if let Some(open) = &mut self.open
            && open.deleted.get(&key).is_some_and(|listed| !compares(last.version(), listed.version(), Ordering::Less))
        {
            open.deleted.remove(&key);
        }
        if let Some(held) = self.held.get(&key)
            && compares(last.version(), held.version(), Ordering::Less)
        {
            if let Some(open) = &mut self.open
                && open.older.get(&key).is_some_and(|aside| !compares(last.version(), aside.version(), Ordering::Less))
            {
                open.listed.remove(&key);
                open.written.remove(&key);
                open.older.remove(&key);
            }
            return false;
        }
        if let Some(open) = &mut self.open {
            open.listed.remove(&key);
            open.written.remove(&key);
            open.older.remove(&key);
        }
        self.ahead.remove(&key);
        self.held.remove(&key).is_some()
    }

    /// Begins a relist: the deletions so far precede it.
    fn begin(&mut self) {
        self.open = Some(Open { known: self.version.clone(), ..Open::default() });
        self.deleted.values_mut().for_each(|(_, is_since)| *is_since = false);
    }

    /// Returns the keys of the deleted objects and of the restored objects, and the number of kept objects.
    fn commit(&mut self, version: &str) -> (BTreeSet<Key>, BTreeSet<Key>, usize) {
        let open = self.open.take().unwrap();
        let went_back = compares(version, &open.known, Ordering::Less);
        let (mut deleted, mut restored, mut kept) = (BTreeSet::new(), BTreeSet::new(), 0);
        let before = mem::take(&mut self.ahead);
        for (key, held) in self.held.clone() {
            let (is_written, older) = (open.written.contains(&key), open.older.get(&key));
            let is_listed = open.listed.contains(&key);
            if is_listed && !is_written && older.is_none() {
                continue;
            }
            let is_newer = compares(version, held.version(), Ordering::Less);
            if is_newer && (is_written || !went_back && before.contains(&key)) {
                kept += 1;
                self.ahead.insert(key);
            } else if let Some(older) = older {
                self.held.insert(key.clone(), older.clone());
                restored.insert(key);
            } else if !is_listed && (!is_written || is_within(held.version(), version)) {
                self.held.remove(&key);
                deleted.insert(key);
            }
        }
        version.clone_into(&mut self.version);
        self.deleted.retain(|_, (_, is_since)| *is_since || !went_back);
        self.forget();
        for (key, listed) in open.deleted {
            if !self.deleted.contains_key(&key) && !self.held.contains_key(&key) {
                self.held.insert(key.clone(), listed);
                restored.insert(key);
            }
        }
        (deleted, restored, kept)
    }

    fn advance(&mut self, version: &str) {
        if !compares(version, &self.version, Ordering::Less) {
            version.clone_into(&mut self.version);
            if self.open.is_none() {
                self.forget();
            }
        }
    }

    fn forget(&mut self) {
        self.deleted.retain(|_, (deleted, _)| compares(&self.version, deleted, Ordering::Less));
    }

    fn groups(&self) -> BTreeMap<String, BTreeSet<Key>> {
        let mut groups = BTreeMap::<_, BTreeSet<_>>::new();
        for (key, held) in &self.held {
            for value in held.values().unwrap_or_default() {
                groups.entry(value).or_default().insert(key.clone());
            }
        }
        groups
    }
}

fn teams(object: &listwatch_cache::Object<[u8]>) -> Result<Vec<String>, String> {
    let meta = object.meta().map_err(|error| error.to_string())?;
    let labels: Vec<_> = meta.labels().map_err(|error| error.to_string())?.collect();
    if labels.iter().any(|(key, _)| *key == "bad") {
        return Err("bad".to_owned());
    }
    let teams = labels.iter().filter(|(key, _)| key.starts_with("team"));
    Ok(teams.map(|(_, value)| value.clone().into_owned()).collect())
}

fn key_of(object: &listwatch_cache::Object<[u8]>) -> Key {
    (object.namespace().to_owned(), object.name().to_owned())
}

/// How often each effect occurred.
type Met = BTreeMap<&'static str, usize>;

fn run(format: StorageFormat, ops: &[Op], met: &mut Met) {
    let store = if format == StorageFormat::Compressed {
        let sample = |i: usize| object("train", &i.to_string(), "1").data("ab".repeat(i)).label("team1", "r");
        trained((0..100).map(|i| sample(5 * i)))
    } else {
        Store::new(format)
    };
    store.begin_relist().commit("1").unwrap();
    let mut count = |what, times| *met.entry(what).or_default() += times;
    let mut model = Model { version: "1".to_owned(), ..Model::default() };
    let mut relist: Option<Relist<[u8]>> = None;
    let mut indexes = Indexes::new();
    let mut snapshots = Vec::new();
    for op in ops {
        match op {
            Op::Apply(new) => {
                let written = store.apply(new.encoding, &new.bytes()).unwrap();
                count(check(&written, &model.write(new, false), new), 1);
            }
            Op::List(new) => {
                let Some(relist) = &mut relist else { continue };
                let written = relist.apply(new.encoding, &new.bytes()).unwrap();
                count(check(&written, &model.write(new, true), new), 1);
            }
            Op::Delete(last) => {
                let deleted = store.delete(last.encoding, &last.bytes()).unwrap();
                assert_eq!(deleted.is_some(), model.delete(last));
                count("deleted", usize::from(deleted.is_some()));
                if let Some(deleted) = deleted {
                    assert_eq!(**deleted.encoded().unwrap(), *last.bytes());
                }
            }
            Op::Begin => {
                let superseded = relist.replace(store.begin_relist());
                model.begin();
                assert!(superseded.is_none_or(|superseded| superseded.commit("1").is_err()));
            }
            Op::Commit(version) => {
                let Some(relist) = relist.take() else { continue };
                let before = model.held.clone();
                let mut subscriber = store.subscribe().start();
                relist.commit(version).unwrap();
                let changes: Vec<_> = iter::from_fn(|| subscriber.try_next()).collect();
                let (deleted, restored, kept) = model.commit(version);
                count("kept", kept);
                count("missing", deleted.len());
                count("restored", restored.len());
                let (mut are_deleted, mut are_restored) = (BTreeSet::new(), BTreeSet::new());
                for change in &changes {
                    match change {
                        Change::Deleted { last, final_state_unknown: true, .. } => {
                            assert_eq!(**last.encoded().unwrap(), *before[&key_of(last)].bytes());
                            are_deleted.insert(key_of(last));
                        }
                        Change::Applied { old, new, .. } => {
                            let old = old.as_ref().map(|old| old.encoded().unwrap().to_vec());
                            assert_eq!(old, before.get(&key_of(new)).map(Written::bytes));
                            are_restored.insert(key_of(new));
                        }
                        Change::Synced => {}
                        change => panic!("{change:?}"),
                    }
                }
                assert_eq!((are_deleted, are_restored), (deleted, restored));
            }
            Op::Drop => {
                relist = None;
                if model.open.take().is_some() {
                    model.forget();
                }
            }
            Op::Advance(version) => {
                store.advance(version);
                model.advance(version);
            }
            Op::AddIndex => indexes.push(store.index("team", teams)),
            Op::Snapshot => snapshots.push((store.snapshot(), model.held.clone())),
            Op::Measure => drop(store.memory()),
        }
        count("index error", compare(&store, &model, &indexes));
    }
    for (snapshot, held) in &snapshots {
        let objects = snapshot.iter().map(|object| (key_of(&object), object.encoded().unwrap().to_vec()));
        let held: BTreeMap<_, _> = held.iter().map(|(key, held)| (key.clone(), held.bytes())).collect();
        assert_eq!(objects.collect::<BTreeMap<_, _>>(), held);
    }
    drop((snapshots, relist));
    store.begin_relist().commit("100").unwrap();
    let memory = store.memory();
    assert_eq!((store.len(), memory.encoded, memory.compressed, memory.relist), (0, 0, 0, 0));
}

/// Checks the effect of a write, and returns its name.
fn check(written: &listwatch_cache::ApplyOutcome<[u8]>, expected: &Expected, new: &Written) -> &'static str {
    use listwatch_cache::ApplyOutcome::{Added, Modified, Stale, Unchanged};
    let bytes = |object: &listwatch_cache::Object<[u8]>| object.encoded().unwrap().to_vec();
    let (effect, name) = match written {
        Added(object) => {
            assert_eq!(bytes(object), new.bytes());
            (Expected::Added, "added")
        }
        Modified { old, new: object, .. } => {
            assert_eq!(bytes(object), new.bytes());
            (Expected::Modified(bytes(old)), "modified")
        }
        Unchanged => (Expected::Unchanged, "unchanged"),
        Stale => (Expected::Stale, "stale"),
        other => panic!("{other:?}"),
    };
    assert_eq!(effect, *expected);
    name
}

/// Compares the store with the model, and returns how many errors the indexes have.
fn compare(store: &Store<[u8]>, model: &Model, indexes: &Indexes) -> usize {
    assert_eq!(store.len(), model.held.len());
    assert_eq!(store.resource_version(), model.version);
    for namespace in NAMESPACES {
        let listed: BTreeSet<_> = store.list_namespace(namespace).iter().map(key_of).collect();
        assert_eq!(listed, model.held.keys().filter(|(of, _)| of == namespace).cloned().collect());
        for name in NAMES {
            let held = model.held.get(&(namespace.to_owned(), name.to_owned()));
            let object = store.get((namespace, name));
            assert_eq!(object.as_ref().map(|object| object.encoded().unwrap().to_vec()), held.map(Written::bytes));
            assert_eq!(object.as_ref().map(listwatch_cache::Object::encoding), held.map(|held| held.encoding));
        }
    }
    let groups = model.groups();
    let failed: BTreeSet<_> =
        model.held.iter().filter(|(_, held)| held.values().is_err()).map(|(key, _)| key).collect();
    for index in indexes {
        assert_eq!(index.values(), groups.keys().cloned().collect::<Vec<_>>());
        let all: Vec<_> =
            index.range(..).map(|(value, objects)| (value, objects.iter().map(key_of).collect())).collect();
        assert_eq!(all, groups.clone().into_iter().collect::<Vec<(String, BTreeSet<Key>)>>());
        for (value, keys) in &groups {
            assert_eq!(index.get(value.as_str()).iter().map(key_of).collect::<BTreeSet<_>>(), *keys);
            assert_eq!(index.count(value.as_str()), keys.len());
        }
        let keys: BTreeSet<Key> =
            index.errors().into_iter().map(|it| it.key.unwrap()).map(|key| (key.namespace, key.name)).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>(), failed);
    }
    failed.len() * indexes.len()
}

const NAMESPACES: [&str; 3] = ["", "a", "b"];
const NAMES: [&str; 6] = ["u", "v", "w", "x", "y", "z"];

/// Returns a text that only its copies compress.
fn text_of(seed: u64) -> String {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..400).map(|_| rng.alphanumeric()).collect()
}

fn versions() -> impl Strategy<Value = String> {
    prop_oneof![20 => (1..40_u32).prop_map(|version| version.to_string()), 1 => "[pq]", 1 => Just(String::new())]
}

fn written() -> impl Strategy<Value = Written> {
    let encoding = prop_oneof![Just(Encoding::Protobuf), Just(Encoding::Json)];
    let labels = vec(prop_oneof![8 => ("team[12]", "[rst]"), 1 => ("bad", "x")], 0..3);
    // Some data can be compressed, some not, and some is like the data of other objects of the delta group.
    let data = prop_oneof![
        "[a-z]{0,20}",
        "[ab]{40,60}".prop_map(|it| it.repeat(8)),
        (0..2_u64, "[a-z]{0,20}").prop_map(|(text, it)| it + &text_of(text)),
    ];
    let owner = prop::option::of(prop::sample::select(&["o", "p"][..]));
    let key = (prop::sample::select(&NAMESPACES[..]), prop::sample::select(&NAMES[..]));
    (key, versions(), 0..3_u8, encoding, labels, data, owner).prop_map(
        |((namespace, name), version, uid, encoding, labels, data, owner)| {
            let mut object = object(namespace, name, &version).data(data).uid(&format!("uid {uid}"));
            object.meta().labels.extend(labels);
            let object = owner.into_iter().fold(object, Object::owner);
            Written { object, encoding }
        },
    )
}

fn formats() -> impl Strategy<Value = StorageFormat> {
    prop::sample::select(vec![StorageFormat::Encoded, StorageFormat::Compressed])
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        30 => written().prop_map(Op::Apply),
        8 => written().prop_map(Op::Delete),
        3 => Just(Op::Begin),
        25 => written().prop_map(Op::List),
        3 => versions().prop_map(Op::Commit),
        1 => Just(Op::Drop),
        2 => versions().prop_map(Op::Advance),
        1 => Just(Op::AddIndex),
        1 => Just(Op::Snapshot),
        1 => Just(Op::Measure),
    ];
    vec(op, 0..120)
}

/// Runs random sequences of operations, from the seed in `SEED` or 1.
#[test]
fn a_store_and_its_indexes_behave_like_a_naive_model() {
    let seed = seeds::only().unwrap_or(1);
    println!("SEED={seed}");
    let config = ProptestConfig {
        cases: cases(50, 2000).try_into().unwrap(),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let met = RefCell::new(BTreeMap::new());
    let tested = TestRunner::new(config).run(&(formats(), ops()), |(format, ops)| {
        run(format, &ops, &mut met.borrow_mut());
        Ok(())
    });
    tested.unwrap();
    let met = met.into_inner();
    for (what, least) in [
        ("added", 300),
        ("modified", 100),
        ("unchanged", 5),
        ("stale", 100),
        ("deleted", 50),
        ("missing", 50),
        ("restored", 4),
        ("kept", 20),
        ("index error", 100),
    ] {
        // With fewer, the test would not cover the effect.
        assert!(met.get(what).is_some_and(|times| *times >= least), "{what}: {met:?}");
    }
}

#[test]
fn an_older_deletion_does_not_restore_a_deleted_object() {
    let z = |version| Written { object: object("", "z", version).uid("uid 0"), encoding: Encoding::Protobuf };
    let ops = [Op::Begin, Op::Delete(z("15")), Op::Delete(z("1")), Op::List(z("2"))];
    run(StorageFormat::Encoded, &ops, &mut BTreeMap::new());
}
