//! The memory that a store allocates, counted. The counter does not see the memory of zstd's contexts.

use std::sync::Arc;

use allocation_counter::measure;
use k8s_pb::api::core::v1::Pod;
use listwatch::path::pod;
use listwatch::{Encoding, ItemError};
use listwatch_cache::{ApplyOutcome, Object, StorageFormat, Store, StoreError, StoreType};
use listwatch_testserver::Synthesizer;

use crate::support::store::object;
use crate::support::{cases, each_item, fixture};

const PODS: u32 = 2000;

fn fill<T: StoreType + ?Sized>(store: &Store<T>, body: &[u8]) {
    let mut relist = store.begin_relist();
    each_item(body, |item| relist.apply(item.encoding(), item.bytes()).map(drop).unwrap());
    relist.commit("1").unwrap();
}

fn pods(items: u32) -> Vec<u8> {
    Synthesizer::new(&fixture("pods.pb"), items).unwrap().to_vec()
}

fn node<T: StoreType + ?Sized>(object: &listwatch_cache::Object<T>) -> Result<Option<Arc<str>>, ItemError> {
    Ok(pod::NODE_NAME.str(object.item()?)?.map(Arc::from))
}

#[test]
fn reported_memory_is_allocated_memory() {
    let count = |quick, thorough| u32::try_from(cases(quick, thorough)).unwrap();
    let pods = pods(count(800, 2000));
    let config_maps = Synthesizer::new(&fixture("configmaps.pb"), count(8000, 20_000)).unwrap().to_vec();
    for (body, format) in [
        (&pods, StorageFormat::Encoded),
        (&pods, StorageFormat::Compressed),
        (&config_maps, StorageFormat::Encoded),
        (&config_maps, StorageFormat::Compressed),
    ] {
        for with_index in [false, true] {
            let mut held = None;
            let counted = measure(|| {
                let store = Store::<[u8]>::new(format);
                let index = with_index.then(|| {
                    let by_node = store.index("node", node);
                    let by_len = store.index("len", |object| Ok::<_, ItemError>([object.encoded()?.len()]));
                    (by_node, by_len)
                });
                fill(&store, body);
                held = Some((store, index));
            });
            let (store, _index) = held.unwrap();
            let memory = store.memory();
            let reported = i64::try_from(memory.total() - memory.zstd).unwrap();
            let off = (reported - counted.bytes_current).abs();
            assert!(off * 20 < counted.bytes_current, "{memory:?}, {counted:?}, {format:?} {with_index}");
        }
    }
}

#[test]
fn an_encoded_object_takes_little_more_than_its_bytes() {
    for items in [1000, 20_000, 60_000] {
        let body = Synthesizer::new(&fixture("configmaps.pb"), items).unwrap().to_vec();
        let mut wire = 0;
        each_item(&body, |item| wire += i64::try_from(item.bytes().len()).unwrap());
        let mut store = None;
        let counted = measure(|| {
            let filled = Store::<[u8]>::new(StorageFormat::Encoded);
            fill(&filled, &body);
            store = Some(filled);
        });
        let most = wire * 103 / 100 + 120 * i64::from(items);
        assert!(counted.bytes_current < most, "{counted:?} for {wire} bytes of {items} objects");
    }
}

#[test]
fn a_relist_allocates_no_second_copy() {
    let body = pods(PODS);
    // The same Pods with new versions.
    let mut changed = Vec::new();
    each_item(&body, |item| {
        let mut pod = <Pod as prost::Message>::decode(item.bytes()).unwrap();
        pod.metadata.as_mut().unwrap().resource_version.replace("999999999999".to_owned());
        changed.push(prost::Message::encode_to_vec(&pod));
    });
    for format in [StorageFormat::Encoded, StorageFormat::Compressed] {
        let mut store = None;
        let steady = measure(|| {
            let filled = Store::<[u8]>::new(format);
            fill(&filled, &body);
            store = Some(filled);
        });
        let store = store.unwrap();
        // The buffers of the compressor, and unused capacity.
        let most = steady.bytes_current.cast_unsigned() / 20 + (64 << 10);
        let same = measure(|| fill(&store, &body));
        assert!(same.bytes_max < most / 10, "{same:?} {format:?}");
        let anew = measure(|| {
            let mut relist = store.begin_relist();
            for pod in &changed {
                let written = relist.apply(Encoding::Protobuf, pod).unwrap();
                assert!(matches!(written, ApplyOutcome::Modified { .. }));
            }
            relist.commit("999999999999").unwrap();
        });
        assert!(anew.bytes_max < most, "{anew:?} of {steady:?} {format:?}");
    }
}

#[test]
fn a_held_object_keeps_no_other_object_alive() {
    fn memory_after_the_others_are_deleted<T: StoreType<Decoded: Sized> + ?Sized>(
        format: StorageFormat,
        body: &[u8],
    ) -> (i64, i64) {
        let (mut full, mut one, mut store) = (0, None, None);
        let all = measure(|| {
            let filled = Store::<T>::new(format);
            fill(&filled, body);
            full = 1;
            store = Some(filled);
        });
        let store = store.unwrap();
        let after = measure(|| {
            let mut others = Vec::new();
            let mut relist = store.begin_relist();
            each_item(body, |item| {
                if others.is_empty() {
                    relist.apply(item.encoding(), item.bytes()).map(drop).unwrap();
                    others.push(());
                }
            });
            relist.commit("2").unwrap();
            one = Some(store.snapshot().iter().next().unwrap());
        });
        assert_eq!(store.len(), full);
        let held: Option<Object<T>> = one;
        assert!(held.unwrap().encoded().unwrap().len() > 1000);
        (all.bytes_current, all.bytes_current + after.bytes_current)
    }

    let body = pods(PODS);
    for (what, (all, left), dictionary) in [
        ("encoded", memory_after_the_others_are_deleted::<Pod>(StorageFormat::Encoded, &body), 0),
        ("raw", memory_after_the_others_are_deleted::<[u8]>(StorageFormat::Encoded, &body), 0),
        ("compressed", memory_after_the_others_are_deleted::<[u8]>(StorageFormat::Compressed, &body), 112_640),
    ] {
        // The Pod with its base, the buffers of the compressor, and unused capacity.
        let left = left - dictionary;
        assert!(left < 120_000 && left < all / 8, "{what}: {left} of {all}");
    }
}

/// One at a time, and then all at once.
#[test]
fn decoding_every_object_keeps_nothing() {
    for format in [StorageFormat::Encoded, StorageFormat::Compressed] {
        let store = Store::<Pod>::new(format);
        fill(&store, &pods(PODS));
        let decode = |pod: Object<Pod>| pod.decode().unwrap();
        // A compressed store keeps what decompressed the objects last for the next reads.
        store.snapshot().iter().for_each(|pod| assert!(!pod.encoded().unwrap().is_empty()));
        let before = store.memory();
        let counted = measure(|| {
            store.snapshot().iter().for_each(|pod| drop(decode(pod)));
            drop(store.snapshot().iter().map(decode).collect::<Vec<_>>());
        });
        assert!(counted.bytes_total > u64::from(PODS) * 20_000, "they were decoded: {counted:?}");
        assert_eq!((counted.bytes_current, store.memory()), (0, before), "{format:?}");
    }
}

#[test]
fn a_stalled_subscriber_keeps_bounded_memory_for_each_object() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let bytes =
        |name: u32, version: u32| object("ns", &name.to_string(), &version.to_string()).to_bytes(Encoding::Protobuf);
    (0..1000).for_each(|name| store.apply(Encoding::Protobuf, &bytes(name, 1)).map(drop).unwrap());
    let stalled = store.subscribe().start();
    let churn = |rounds: std::ops::Range<u32>| {
        for version in rounds {
            for name in 0..1000 {
                store.apply(Encoding::Protobuf, &bytes(name, 2 * version)).map(drop).unwrap();
                if version % 3 == 0 {
                    store.delete(Encoding::Protobuf, &bytes(name, 2 * version + 1)).map(drop).unwrap();
                }
            }
        }
    };
    let first = measure(|| churn(1..5)).bytes_current;
    let then = measure(|| churn(5..101)).bytes_current;
    // This includes the last states of the objects.
    assert!(first < 1000 * 400 && then < 1000 * 20, "{first} bytes, then {then} more");
    assert_eq!(stalled.lag(), 2000, "for each object, a deletion and the state after it");
}

#[test]
fn a_store_keeps_its_budget() {
    // The Pods have about twice the bytes of the budget.
    let count = u32::try_from(cases(600, 4000)).unwrap();
    let (pods, bytes) = (pods(count), count as usize * (4 << 10));
    for (format, fits) in [(StorageFormat::Encoded, false), (StorageFormat::Compressed, true)] {
        let store = Store::<Pod>::new(format);
        store.set_budget(Some(bytes));
        let _by_node = store.index("node", node);
        let (mut held, mut refused, mut most) = (Vec::new(), 0, 0);
        each_item(&pods, |item| {
            match store.apply(item.encoding(), item.bytes()) {
                Ok(_) => held.push(item.bytes().to_vec()),
                Err(StoreError::OverBudget(over)) if over == bytes => refused += 1,
                Err(error) => panic!("{error}"),
            }
            most = most.max(store.memory().total());
        });
        let memory = store.memory();
        println!("{format:?}: {} held, {refused} refused, {most} at most, {memory:?}", held.len());
        assert_eq!((refused == 0, store.skipped()), (fits, refused));
        assert_eq!(store.len(), held.len());
        assert!(most <= bytes + bytes / 50, "{most}");
        assert!(fits || most > bytes * 9 / 10, "{most}");
        // Each object held is unchanged.
        for pod in &held {
            let meta = listwatch::ItemRef::new(Encoding::Protobuf, pod).meta().unwrap();
            let object = store.get((&*meta.namespace(), &*meta.name())).unwrap();
            assert_eq!(*object.decode().unwrap(), <Pod as prost::Message>::decode(&**pod).unwrap());
        }
    }
}

#[test]
fn writes_that_shrink_the_store_are_never_refused() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let write = |name: &str, version: &str, len: usize| {
        let bytes = object("ns", name, version).data("x".repeat(len)).to_bytes(Encoding::Protobuf);
        store.apply(Encoding::Protobuf, &bytes).map(drop)
    };
    write("a", "1", 1000).unwrap();
    write("b", "1", 1000).unwrap();
    store.set_budget(Some(100));
    for (name, version, len, fits, then) in [
        ("a", "2", 1001, false, "1"),
        ("a", "2", 1000, true, "2"),
        ("b", "2", 10, true, "2"),
        ("b", "3", 11, false, "2"),
    ] {
        assert_eq!(write(name, version, len).is_ok(), fits, "{name} {version}");
        assert_eq!(store.get(("ns", name)).unwrap().resource_version(), then, "{name} {version}");
    }
    assert!(write("c", "1", 0).is_err());
    assert_eq!(store.len(), 2);
    store.set_budget(None);
    write("c", "1", 5000).unwrap();
}

#[test]
fn a_replace_that_sets_states_aside_keeps_the_budget() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let bytes = |name: usize, version: &str| {
        object("ns", &name.to_string(), version).data("x".repeat(1000)).to_bytes(Encoding::Protobuf)
    };
    for name in 0..1000 {
        drop(store.apply(Encoding::Protobuf, &bytes(name, "9")).unwrap());
    }
    store.set_budget(Some(store.memory().total() + 100_000));
    let mut relist = store.begin_relist();
    let restored = (0..1000).filter(|name| relist.apply(Encoding::Protobuf, &bytes(*name, "8")).is_ok()).count();
    assert!((50..300).contains(&restored), "{restored}");
    drop(relist);
    assert!(store.snapshot().iter().all(|object| object.resource_version() == "9"));
}
