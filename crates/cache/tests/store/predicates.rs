//! Predicates: which modifications a subscriber gets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use listwatch::{Encoding, FieldPath, Projection};
use listwatch_cache::{Change, Object, Predicate, StorageFormat, Store, Subscriber};
use prost::Message as _;

use crate::support::cases;
use crate::support::seeds::each_seed;

#[derive(Clone, PartialEq, prost::Message)]
struct Meta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(int64, tag = "7")]
    generation: i64,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Spec {
    #[prost(int32, tag = "1")]
    replicas: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct State {
    #[prost(message, required, tag = "1")]
    meta: Meta,
    #[prost(message, required, tag = "2")]
    spec: Spec,
}

/// Reads `g2` as the generation, `l=a` as a label, `n=a` as an annotation, `f=a` as a finalizer, `r3` as the number of
/// replicas, and `u1` as the uid.
fn state(text: &str, version: u64) -> State {
    let mut state = State::default();
    let State { meta, spec } = &mut state;
    (meta.namespace, meta.name, meta.uid) = ("ns".to_owned(), "a".to_owned(), "u0".to_owned());
    meta.resource_version = version.to_string();
    for part in text.split_whitespace() {
        let value = &part[1..];
        match &part[..1] {
            "g" => meta.generation = value.parse().unwrap(),
            "l" => drop(meta.labels.insert(value.to_owned(), "x".to_owned())),
            "n" => drop(meta.annotations.insert(value.to_owned(), "x".to_owned())),
            "f" => meta.finalizers.push(value.to_owned()),
            "r" => spec.replicas = value.parse().unwrap(),
            "u" => part.clone_into(&mut meta.uid),
            _ => panic!("{part}"),
        }
    }
    state
}

impl State {
    fn to_bytes(&self, encoding: Encoding) -> Vec<u8> {
        let Self { meta, spec } = self;
        if encoding == Encoding::Protobuf {
            return self.encode_to_vec();
        }
        let Meta { name, namespace, uid, resource_version, generation, labels, annotations, finalizers } = meta;
        let metadata = serde_json::json!({
            "name": name, "namespace": namespace, "uid": uid, "resourceVersion": resource_version,
            "generation": generation, "labels": labels, "annotations": annotations, "finalizers": finalizers,
        });
        serde_json::json!({"metadata": metadata, "spec": {"replicas": spec.replicas}}).to_string().into_bytes()
    }
}

fn apply(store: &Store<[u8]>, encoding: Encoding, state: &State) {
    drop(store.apply(encoding, &state.to_bytes(encoding)).unwrap());
}

fn replicas() -> Predicate {
    const REPLICAS: FieldPath = FieldPath::new("spec.replicas", &[2, 1]);
    Predicate::fields(Projection::new().keep(&REPLICAS))
}

#[test]
fn passes_what_changes_its_property() {
    use Encoding::{Json, Protobuf};
    let generation = Predicate::generation;
    let (labels, annotations, finalizers) = (Predicate::labels, Predicate::annotations, Predicate::finalizers);
    let version = Predicate::resource_version;
    for (name, predicate, old, new, passes) in [
        ("generation", generation(), "g1 l1", "g1 l2 n1 f1 r2", false),
        ("generation", generation(), "g1", "g2", true),
        ("generation", generation(), "g2", "g1", true),
        ("generation, absent", generation(), "", "", true),
        ("generation, before", generation(), "g1", "", true),
        ("generation, after", generation(), "", "g1", true),
        ("another object", generation(), "g1 u1", "g1 u2", true),
        ("labels", labels(), "g1 l1", "g2 l1 n1 f1", false),
        ("labels, order", labels(), "l1 l2", "l2 l1", false),
        ("labels, added", labels(), "l1", "l1 l2", true),
        ("labels, removed", labels(), "l1", "", true),
        ("annotations", annotations(), "n1", "n1 l1 g2", false),
        ("annotations, another", annotations(), "n1", "n2", true),
        ("finalizers", finalizers(), "f1 f2", "f1 f2 l1 g2", false),
        ("finalizers, order", finalizers(), "f1 f2", "f2 f1", true),
        ("finalizers, removed", finalizers(), "f1", "", true),
        ("fields", replicas(), "r1", "r1 g2 l1", false),
        ("fields, another value", replicas(), "r1", "r2", true),
        ("fields, removed", replicas(), "r1", "", true),
        ("resource version", version(), "", "", true),
        ("or, none", generation().or(labels()), "g1 l1", "g1 l1 n1", false),
        ("or, one", generation().or(labels()), "g1 l1", "g2 l1", true),
        ("or, the other", generation().or(labels()), "g1 l1", "g1 l2", true),
        ("or, no generation", generation().or(labels()), "l1", "l1 n1", false),
        ("or, no value", generation().or(generation()), "l1", "l1", true),
        ("and, one", generation().and(labels()), "g1 l1", "g2 l1", false),
        ("and, the other", generation().and(labels()), "g1 l1", "g1 l2", false),
        ("and, both", generation().and(labels()), "g1 l1", "g2 l2", true),
        ("and, no generation", generation().and(labels()), "l1", "l1", false),
        ("and, no generation", generation().and(labels()), "l1", "l2", true),
        ("fallback, not used", generation().fallback(labels()), "g1 l1", "g1 l2", false),
        ("fallback, used", generation().fallback(labels()), "l1", "l2", true),
        ("fallback, used", generation().fallback(labels()), "l1", "l1 n1", false),
        ("fallback, version", generation().fallback(version()), "l1", "l1", true),
    ] {
        for (before, after) in [(Protobuf, Protobuf), (Json, Json), (Protobuf, Json), (Json, Protobuf)] {
            for format in [StorageFormat::Encoded, StorageFormat::Compressed] {
                let store = Store::<[u8]>::new(format);
                apply(&store, before, &state(old, 1));
                let mut subscriber = store.subscribe().predicate_filter(predicate.clone()).start();
                apply(&store, after, &state(new, 2));
                // The bytes of a field differ between the encodings.
                let expected = passes || name == "fields" && before != after;
                let change = subscriber.try_next();
                let case = format!("{name}: {old:?} {before:?} to {new:?} {after:?}, {format:?}");
                assert_eq!(matches!(change, Some(Change::Applied { old: Some(_), .. })), expected, "{case}");
                assert_eq!(change.is_some(), expected, "{case}");
            }
        }
    }
}

#[test]
fn a_state_that_a_predicate_cannot_read_passes() {
    // The key of a label is a number.
    let unreadable = |version: u8| {
        let metadata = [b"\x0a\x01a\x32\x01", &[version][..], b"\x5a\x02\x08\x01"].concat();
        [&[0x0a, u8::try_from(metadata.len()).unwrap()], &*metadata].concat()
    };
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    drop(store.apply(Encoding::Protobuf, &unreadable(b'1')).unwrap());
    let mut subscriber = store.subscribe().predicate_filter(Predicate::labels()).start();
    drop(store.apply(Encoding::Protobuf, &unreadable(b'2')).unwrap());
    assert!(matches!(subscriber.try_next(), Some(Change::Applied { .. })));
}

fn version(object: &Object<[u8]>) -> &str {
    object.resource_version()
}

/// Adds the next change to the text. Returns false if there is none.
fn take(subscriber: &mut Subscriber<[u8]>, received: &mut String) -> bool {
    let Some(change) = subscriber.try_next() else { return false };
    _ = match &change {
        Change::Applied { old: None, new, .. } => write!(received, "+{} ", version(new)),
        Change::Applied { old: Some(old), new, .. } => write!(received, "{}>{} ", version(old), version(new)),
        Change::Deleted { old, last, .. } => write!(received, "-{}>{} ", version(old), version(last)),
        Change::Synced => write!(received, "= "),
        change => panic!("{change:?}"),
    };
    true
}

#[test]
fn a_change_is_delivered_if_a_write_of_it_passes() {
    for (steps, expected) in [
        // `1g1` writes version 1 with generation 1, `!` takes a change, `-` deletes, `=` lists, `~` lists without.
        ("1g1 ! 2g1", "+1"),
        ("1g1 2g1 3g1", "+3"),
        ("1g1 ! 2g2", "+1 1>2"),
        ("1g1 ! 2g1 3g2", "+1 2>3"),
        ("1g1 ! 2g2 3g2", "+1 1>3"),
        ("1g1 ! 2g2 3g1", "+1 1>3"),
        ("1g1 ! 2g2 ! 3g2 4g3 5g3", "+1 1>2 3>5"),
        ("1g1 ! 2g1 -3g1", "+1 -2>3"),
        ("1g1 ! 2g2 -3g2", "+1 -1>3"),
        ("1g1 ! -2g1 3g1", "+1 -1>2 +3"),
        // A list compares, and its deletions pass.
        ("1g1 ! =2g1", "+1 ="),
        ("1g1 ! =2g2", "+1 1>2 ="),
        ("1g1 ! 2g1 ~", "+1 -2>2 ="),
        // The deletion was missed.
        ("1g1 ! =2g1u1", "+1 1>2 ="),
        // Versions divisible by 10 do not pass the filter.
        ("10g1", ""),
        ("10g1 11g1", "+11"),
        ("1g1 ! 10g1", "+1 -1>1"),
        ("1g1 ! 2g1 10g1 11g1", "+1 -2>2 +11"),
    ] {
        let store = Store::<[u8]>::new(StorageFormat::Encoded);
        let builder = store.subscribe().predicate_filter(Predicate::generation());
        let mut subscriber = builder.filter(|object| !version(object).ends_with('0')).start();
        let mut received = String::new();
        for step in steps.split(' ') {
            let (kind, rest) = step.split_at(usize::from(step.starts_with(['!', '-', '=', '~'])));
            let written = rest.split_once('g').map(|(version, rest)| {
                let (generation, uid) = rest.split_once('u').unwrap_or((rest, "0"));
                state(&format!("g{generation} u{uid}"), version.parse().unwrap()).to_bytes(Encoding::Protobuf)
            });
            match (kind, written) {
                ("", Some(bytes)) => drop(store.apply(Encoding::Protobuf, &bytes).unwrap()),
                ("-", Some(bytes)) => drop(store.delete(Encoding::Protobuf, &bytes).unwrap()),
                ("!", None) => assert!(take(&mut subscriber, &mut received), "{steps}"),
                ("=" | "~", listed) => {
                    let mut relist = store.begin_relist();
                    if let Some(bytes) = listed {
                        drop(relist.apply(Encoding::Protobuf, &bytes).unwrap());
                    }
                    relist.commit("100").unwrap();
                }
                step => panic!("{step:?}"),
            }
        }
        while take(&mut subscriber, &mut received) {}
        assert_eq!(received.trim_end(), expected, "{steps}");
    }
}

/// What a consumer has of each object is as new as the property that it selects, however slow it is.
#[test]
fn consumers_converge_on_the_selected_property() {
    let mut dropped = 0;
    let are_all = each_seed(cases(200, 2000), |seed| {
        let mut rng = Rng::with_seed(seed);
        let store = Store::<[u8]>::new([StorageFormat::Encoded, StorageFormat::Compressed][rng.usize(..2)]);
        let write = |store: &Store<[u8]>, rng: &mut Rng, version: u64| {
            let mut state = state(&format!("g{} l{}", rng.u8(1..3), rng.u8(..3)), version);
            state.meta.name = format!("o{}", rng.u8(..8));
            if rng.u8(..4) == 0 {
                drop(store.delete(Encoding::Protobuf, &state.to_bytes(Encoding::Protobuf)).unwrap());
            } else {
                apply(store, Encoding::Protobuf, &state);
            }
        };
        (1..rng.u64(1..20)).for_each(|version| write(&store, &mut rng, version));
        let builder = store.subscribe().predicate_filter(Predicate::generation());
        let is_slow = rng.bool();
        let mut subscriber = builder.with_initial_state().start();
        let mut view = BTreeMap::new();
        let generation = |object: &Object<[u8]>| object.meta().unwrap().generation();
        let mut take = |subscriber: &mut Subscriber<[u8]>| {
            match subscriber.try_next() {
                Some(Change::Applied { old, new, .. }) => {
                    let before = view.insert(new.name().to_owned(), generation(&new));
                    // `old` may be newer than what was received, but has the same property.
                    assert_eq!(before, old.as_ref().map(generation));
                    assert!(is_slow || before != Some(generation(&new)), "{new:?} did not change");
                }
                Some(Change::Deleted { last, .. }) => assert!(view.remove(last.name()).is_some()),
                Some(_) => {}
                None => return None,
            }
            Some(view.clone())
        };
        let end = rng.u64(20..200);
        let mut received = 0;
        for version in 20..end {
            write(&store, &mut rng, version);
            let takes = if is_slow { rng.usize(..2) } else { usize::MAX };
            received += (0..takes).map_while(|_| take(&mut subscriber)).count() as u64;
        }
        while take(&mut subscriber).is_some() {}
        let stored: BTreeMap<_, _> =
            store.snapshot().iter().map(|object| (object.name().to_owned(), generation(&object))).collect();
        assert_eq!(view, stored);
        dropped += if is_slow { 0 } else { (end - 20).saturating_sub(received) };
    });
    assert!(!are_all || dropped > 1000, "{dropped}");
}

#[test]
fn dropped_writes_are_not_inspected() {
    let store = Store::<[u8]>::new(StorageFormat::Compressed);
    let inspected = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&inspected);
    let builder = store.subscribe().predicate_filter(Predicate::labels());
    // No object passes: `inspect` does not depend on filters.
    let builder = builder.filter(|_| false);
    let subscriber =
        builder.inspect(move |written| log.lock().unwrap().extend(written.states().map(|o| version(o).to_owned())));
    let subscriber = subscriber.start();
    for (number, text) in (1..).zip(["l1", "l1 n1", "l2", "l2"]) {
        apply(&store, Encoding::Json, &state(text, number));
    }
    drop(store.delete(Encoding::Json, &state("l2", 5).to_bytes(Encoding::Json)).unwrap());
    assert_eq!(inspected.lock().unwrap().join(" "), "1 2 3 4 5");
    assert_eq!(subscriber.lag(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_resync_passes() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    apply(&store, Encoding::Json, &state("g1", 1));
    let period = std::time::Duration::from_secs(10);
    let builder = store.subscribe().with_initial_state().predicate_filter(Predicate::generation());
    let mut subscriber = builder.resync(period).start();
    let mut received = String::new();
    assert!(take(&mut subscriber, &mut received));
    apply(&store, Encoding::Json, &state("g1", 2));
    assert!(!take(&mut subscriber, &mut received));
    tokio::time::sleep(period).await;
    assert!(take(&mut subscriber, &mut received));
    assert_eq!(received, "+1 2>2 ");
}
