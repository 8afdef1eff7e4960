//! Subscribers of a store: random writes, with fast and slow subscribers, with and without filters; and single cases.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use listwatch::Encoding::Protobuf;
use listwatch_cache::{Change, StorageFormat, Store, Subscriber, Written};

use crate::support::cases;
use crate::support::seeds::each_seed;
use crate::support::store::object;

type Objects = BTreeMap<String, u64>;

fn name_and_version(object: &listwatch_cache::Object<[u8]>) -> (String, u64) {
    (object.name().to_owned(), object.resource_version().parse().unwrap())
}

/// A subscriber, and the objects according to its changes.
struct Consumer {
    subscriber: Subscriber<[u8]>,
    wants: fn(u64) -> bool,
    view: Objects,
    synced: u32,
}

impl Consumer {
    fn new(store: &Store<[u8]>, rng: &mut Rng) -> Self {
        let wants: fn(u64) -> bool = if rng.bool() { |_| true } else { |version| version % 3 > 0 };
        let subscribe = store.subscribe().with_initial_state();
        let subscribe = subscribe.filter(move |object| wants(object.resource_version().parse().unwrap()));
        Self { subscriber: subscribe.start(), wants, view: Objects::new(), synced: 0 }
    }

    /// Consumes a change, and returns true if there was one.
    fn take(&mut self, deleted_unseen: &mut u32) -> bool {
        match self.subscriber.try_next() {
            Some(Change::Applied { old, new, .. }) => {
                let (name, version) = name_and_version(&new);
                assert!((self.wants)(version), "{name} at {version} passed the filter");
                let before = self.view.insert(name.clone(), version);
                assert_eq!(old.map(|old| name_and_version(&old)), before.map(|before| (name.clone(), before)));
                assert!(before.is_none_or(|before| before < version), "{name} at {version} after {before:?}");
            }
            Some(Change::Deleted { old, last, final_state_unknown, .. }) => {
                let (name, _) = name_and_version(&last);
                assert_eq!(self.view.remove(&name), Some(name_and_version(&old).1), "{name} was in the view");
                *deleted_unseen += u32::from(final_state_unknown);
            }
            Some(Change::Synced) => self.synced += 1,
            Some(change) => panic!("{change:?}"),
            None => return false,
        }
        true
    }
}

#[test]
fn every_subscriber_converges_however_slow() {
    let (mut lagged, mut unknown, mut synced) = (0, 0, 0);
    let are_all = each_seed(cases(300, 3000), |seed| {
        let mut rng = Rng::with_seed(seed);
        let format = [StorageFormat::Encoded, StorageFormat::Compressed][rng.usize(..2)];
        let store = Store::<[u8]>::new(format);
        let mut model = Objects::new();
        let mut consumers: Vec<Consumer> = Vec::new();
        for version in 1..rng.u64(2..300) {
            let name = format!("o{}", rng.u8(..100));
            let bytes = |version: u64| object("ns", &name, &version.to_string()).to_bytes(Protobuf);
            match rng.u8(..20) {
                0 if consumers.len() < 4 => consumers.push(Consumer::new(&store, &mut rng)),
                1..=10 => {
                    drop(store.apply(Protobuf, &bytes(version)).unwrap());
                    model.insert(name, version);
                }
                11 if model.get(&name).is_some_and(|version| *version > 5) => {
                    // A late event.
                    drop(store.apply(Protobuf, &bytes(model[&name] - 5)).unwrap());
                }
                12..=16 => {
                    drop(store.delete(Protobuf, &bytes(version)).unwrap());
                    model.remove(&name);
                }
                17 => {
                    let mut relist = store.begin_relist();
                    model.retain(|_, _| rng.u8(..4) > 0);
                    for (name, version) in &model {
                        let listed = object("ns", name, &version.to_string()).to_bytes(Protobuf);
                        drop(relist.apply(Protobuf, &listed).unwrap());
                    }
                    if model.is_empty() || rng.bool() {
                        relist.commit(&version.to_string()).unwrap();
                    } else {
                        // A relist without a commit deletes nothing.
                        drop(relist);
                        model = store.snapshot().iter().map(|object| name_and_version(&object)).collect();
                    }
                }
                _ => {}
            }
            for consumer in &mut consumers {
                lagged = lagged.max(consumer.subscriber.lag());
                for _ in 0..rng.u8(..4) {
                    consumer.take(&mut unknown);
                }
            }
            if rng.u8(..100) == 0 {
                consumers.pop();
            }
        }
        let stored: Objects = store.snapshot().iter().map(|object| name_and_version(&object)).collect();
        assert_eq!(stored, model);
        for consumer in &mut consumers {
            while consumer.take(&mut unknown) {}
            let wanted: Objects =
                model.iter().filter(|(_, version)| (consumer.wants)(**version)).map(|(n, v)| (n.clone(), *v)).collect();
            assert_eq!(consumer.view, wanted);
            assert_eq!(consumer.subscriber.lag(), 0);
            synced += consumer.synced;
        }
    });
    // With fewer, the test would not cover these cases.
    assert!(!are_all || (lagged > 50 && unknown > 100 && synced > 100), "{lagged} {unknown} {synced}");
}

#[test]
fn coalesces_changes_of_one_object() {
    #[derive(Debug, Clone, Copy)]
    enum Do {
        Put(u64),
        Delete(u64),
        Take,
        Resync,
    }
    use Do::{Delete, Put, Resync, Take};
    for (what, expected) in [
        (&[Put(1), Put(2), Put(3)][..], "+3"),
        (&[Put(1), Delete(2)], ""),
        (&[Put(1), Take, Put(2), Delete(3)], "+1 -3"),
        (&[Put(1), Take, Delete(2), Put(3)], "+1 -2 +3"),
        (&[Put(1), Take, Delete(2), Put(3), Delete(4)], "+1 -2"),
        (&[Put(1), Take, Delete(2), Put(3), Take, Take, Delete(4)], "+1 -2 +3 -4"),
        (&[Put(1), Resync, Resync], "+1 ="),
        (&[Put(1), Take, Resync, Resync], "+1 ="),
        (&[Put(1), Resync, Put(2)], "+2 ="),
        (&[Put(1), Resync, Take, Take, Put(2), Resync], "+1 = 1>2 ="),
        (&[Put(1), Take, Put(2), Put(3), Take, Put(4)], "+1 1>3 3>4"),
    ] {
        let store = Store::<[u8]>::new(StorageFormat::Encoded);
        let mut subscriber = store.subscribe().start();
        let mut received = Vec::new();
        let mut take = |subscriber: &mut Subscriber<[u8]>| {
            let change = subscriber.try_next();
            let text = match &change {
                Some(Change::Applied { old: None, new, .. }) => format!("+{}", name_and_version(new).1),
                Some(Change::Applied { old: Some(old), new, .. }) => {
                    format!("{}>{}", name_and_version(old).1, name_and_version(new).1)
                }
                Some(Change::Deleted { last, .. }) => format!("-{}", name_and_version(last).1),
                Some(Change::Synced) => "=".to_owned(),
                Some(change) => panic!("{change:?}"),
                None => return false,
            };
            received.push(text);
            true
        };
        let bytes = |version: u64| object("ns", "a", &version.to_string()).to_bytes(Protobuf);
        for step in what {
            match *step {
                Put(version) => drop(store.apply(Protobuf, &bytes(version)).unwrap()),
                Delete(version) => drop(store.delete(Protobuf, &bytes(version)).unwrap()),
                Take => assert!(take(&mut subscriber), "{what:?}"),
                Resync => {
                    let mut relist = store.begin_relist();
                    for held in store.snapshot().iter() {
                        drop(relist.apply(Protobuf, held.encoded().unwrap()).unwrap());
                    }
                    relist.commit("9").unwrap();
                }
            }
        }
        while take(&mut subscriber) {}
        assert_eq!(received.join(" "), expected, "{what:?}");
    }
}

#[test]
fn a_subscriber_without_initial_state_gets_deletions_of_earlier_objects() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let write = |name: &str, version: &str| {
        drop(store.apply(Protobuf, &object("ns", name, version).to_bytes(Protobuf)).unwrap());
    };
    for name in ["a", "b", "c"] {
        write(name, "1");
    }
    let all = store.subscribe().start();
    let of_a_and_c = store.subscribe().filter(|object| object.name() != "b" && object.resource_version() != "9");
    let of_a_and_c = of_a_and_c.start();
    write("c", "9");
    for name in ["a", "b"] {
        drop(store.delete(Protobuf, &object("ns", name, "3").to_bytes(Protobuf)).unwrap());
    }
    for (mut subscriber, expected) in [(all, "+c -a -b"), (of_a_and_c, "-c -a")] {
        let mut received = Vec::new();
        while let Some(change) = subscriber.try_next() {
            received.push(match change {
                Change::Applied { new: object, .. } => format!("+{}", object.name()),
                Change::Deleted { last, .. } => format!("-{}", last.name()),
                change => panic!("{change:?}"),
            });
        }
        assert_eq!(received.join(" "), expected);
    }
}

/// Writes while a subscriber starts, before it has reached the objects: `~` modifies an object, `-` deletes it, `+`
/// adds one; an object with an odd number, or a version above 5, does not pass the filter.
#[test]
fn a_subscriber_that_starts_during_writes_knows_the_objects_before_them() {
    const LAST: u64 = 150;
    for (writes, expected) in [
        ("~100@2", "100@1>2"),
        ("~100@2 ~100@3", "100@1>3"),
        ("-100@2", "-100@1>2"),
        ("~100@2 -100@3", "-100@1>3"),
        ("~100@9", "-100@1>1"),
        ("~100@9 -100@10", "-100@1>1"),
        ("~100@9 ~100@10", "-100@1>1"),
        ("-100@2 +100@3", "-100@1>2 100@3"),
        ("~101@2 -101@3 ~101@2", ""),
        ("+200@2", "200@2"),
        ("+200@2 -200@3", ""),
        ("+200@9 ~200@5", ""),
        ("+200@9 ~200@10 -200@11", ""),
        // The subscriber has reached this object.
        ("~2@2 -4@2", "2@1>2 -4@1>2"),
    ] {
        let store = Store::<[u8]>::new(StorageFormat::Encoded);
        let bytes = |name: &str, version: &str| object("ns", name, version).to_bytes(Protobuf);
        let names = 0..LAST;
        names.for_each(|name| drop(store.apply(Protobuf, &bytes(&name.to_string(), "1")).unwrap()));
        let by_parity = store.index("parity", |object| {
            Ok::<_, listwatch::ItemError>([object.name().parse::<u64>().is_ok_and(|name| name.is_multiple_of(2))])
        });
        let number = |object: &listwatch_cache::Object<[u8]>| object.name().parse::<u64>().unwrap();
        let passes = |object: &listwatch_cache::Object<[u8]>| name_and_version(object).1 <= 5;
        // By a filter, by a namespace and a filter, and by a value of an index.
        for way in 0..3 {
            let (writer, has_written) = (store.clone(), AtomicU32::new(0));
            let filter = move |object: &listwatch_cache::Object<[u8]>| {
                // Every 64 objects are filtered together. Another thread writes before the last of the first 64 is.
                if number(object) == 62 && has_written.fetch_add(1, Relaxed) == 0 {
                    let writer = writer.clone();
                    std::thread::scope(|scope| {
                        scope.spawn(move || {
                            for write in writes.split(' ') {
                                let (name, version) = write[1..].split_once('@').unwrap();
                                if write.starts_with('-') {
                                    drop(writer.delete(Protobuf, &bytes(name, version)).unwrap());
                                } else {
                                    drop(writer.apply(Protobuf, &bytes(name, version)).unwrap());
                                }
                            }
                        });
                    });
                }
                number(object).is_multiple_of(2) && passes(object)
            };
            let subscribe = match way {
                0 => store.subscribe(),
                1 => store.subscribe().namespace("ns"),
                _ => by_parity.subscribe(true),
            };
            let mut subscriber = subscribe.filter(filter).start();
            let mut received = Vec::new();
            while let Some(change) = subscriber.try_next() {
                let version = |object| name_and_version(object).1;
                received.push(match &change {
                    Change::Applied { old: Some(old), new, .. } => {
                        format!("{}@{}>{}", new.name(), version(old), version(new))
                    }
                    Change::Applied { old: None, new, .. } => format!("{}@{}", new.name(), version(new)),
                    Change::Deleted { old, last, .. } => format!("-{}@{}>{}", last.name(), version(old), version(last)),
                    change => panic!("{change:?}"),
                });
            }
            assert_eq!(received.join(" "), expected, "{writes}, way {way}");
            // The next way begins with the same objects.
            for write in writes.split(' ') {
                let name = write[1..].split_once('@').unwrap().0;
                drop(store.delete(Protobuf, &bytes(name, "20")).unwrap());
                if name.parse::<u64>().unwrap() < LAST {
                    drop(store.apply(Protobuf, &bytes(name, "1")).unwrap());
                }
            }
        }
    }
}

#[test]
fn sends_synced_after_the_initial_state() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let bytes = |name: u32| object("ns", &name.to_string(), "1").to_bytes(Protobuf);
    (0..200).for_each(|name| store.apply(Protobuf, &bytes(name)).map(drop).unwrap());
    let mut subscriber = store.subscribe().with_initial_state().start();
    let mut received = Vec::new();
    let mut take = |most: usize| {
        while received.len() < most
            && let Some(change) = subscriber.try_next()
        {
            received.push(matches!(change, Change::Synced));
        }
    };
    take(10);
    let mut relist = store.begin_relist();
    (0..200).for_each(|name| relist.apply(Protobuf, &bytes(name)).map(drop).unwrap());
    relist.commit("2").unwrap();
    take(usize::MAX);
    assert_eq!(received.iter().position(|is_synced| *is_synced), Some(200));
    assert_eq!(received.len(), 201);
}

#[test]
fn a_panic_in_a_filter_affects_only_its_subscriber() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let broken = store.subscribe().filter(move |object| {
        assert!(counted.fetch_add(1, Relaxed) == 0, "panic in the filter");
        object.name() == "a"
    });
    let mut broken = broken.start();
    let mut other = store.subscribe().start();
    for version in ["1", "2", "3"] {
        drop(store.apply(Protobuf, &object("ns", "a", version).to_bytes(Protobuf)).unwrap());
        if version == "1" {
            assert!(matches!(broken.try_next(), Some(Change::Applied { .. })));
        }
    }
    assert!(matches!(other.try_next(), Some(Change::Applied { new: object, .. }) if name_and_version(&object).1 == 3));
    let panic = catch_unwind(AssertUnwindSafe(|| broken.try_next())).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"panic in the filter"));
    assert!(broken.try_next().is_none(), "it gets no more changes");
    assert_eq!(calls.load(Relaxed), 2, "the filter is not called again");
}

#[test]
fn a_stream_wakes_and_ends_with_the_store() {
    use futures::StreamExt;
    use futures::executor::block_on;
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let mut subscriber = store.subscribe().start();
    let writer = std::thread::spawn(move || {
        for version in 1..=1000 {
            drop(store.apply(Protobuf, &object("ns", "a", &version.to_string()).to_bytes(Protobuf)).unwrap());
        }
    });
    let mut last = 0;
    block_on(async {
        while let Some(change) = StreamExt::next(&mut subscriber).await {
            let Change::Applied { new: object, .. } = change else { panic!("{change:?}") };
            let (_, version) = name_and_version(&object);
            assert!(version > last, "{version} after {last}");
            last = version;
        }
    });
    writer.join().unwrap();
    assert_eq!(last, 1000);
}

#[test]
fn try_next_leaves_the_stream_its_waker() {
    use std::pin::Pin;
    use std::task::{Context, Wake, Waker};

    use futures::Stream as _;

    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let mut subscriber = store.subscribe().start();
    let woken = Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    assert!(Pin::new(&mut subscriber).poll_next(&mut Context::from_waker(&waker)).is_pending());
    assert!(subscriber.try_next().is_none());
    drop(store.apply(Protobuf, &object("ns", "a", "1").to_bytes(Protobuf)).unwrap());
    assert_eq!(woken.0.load(Relaxed), 1);
}

#[test]
fn filters_pass_the_selected_objects() {
    use listwatch_cache::SubscriberBuilder;
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let app = |object: &listwatch_cache::Object<[u8]>| {
        Ok::<_, listwatch::ItemError>(object.meta()?.label("app")?.map(String::from))
    };
    let (by_app, in_order) = (store.index("app", app), store.index("app in order", app));
    let write = |namespace: &str, name: &str, version: &str, app: &str| {
        let bytes = object(namespace, name, version).label("app", app).to_bytes(Protobuf);
        drop(store.apply(Protobuf, &bytes).unwrap());
    };
    let web = || "web".to_owned();
    let subscribers: [(&str, SubscriberBuilder<[u8]>, &str); 6] = [
        ("all", store.subscribe(), "+a1 +b1 +a2 +b1 +b2 -a2"),
        ("namespace", store.subscribe().namespace("a"), "+a1 +a2 -a2"),
        ("labels", store.subscribe().labels("app in (web)".parse().unwrap()), "+a1 +b1 -b1 +b2"),
        ("index", by_app.subscribe(web()), "+a1 +b1 -b1 +b2"),
        ("ordered index", in_order.subscribe(web()), "+a1 +b1 -b1 +b2"),
        ("index and namespace", by_app.subscribe(web()).namespace("b"), "+b1 -b1 +b2"),
    ];
    let mut subscribers =
        subscribers.map(|(what, subscribe, expected)| (what, subscribe.start(), Vec::new(), expected));
    let mut take = || {
        for (_, subscriber, received, _) in &mut subscribers {
            while let Some(change) = subscriber.try_next() {
                received.push(match &change {
                    Change::Applied { new: object, .. } => format!("+{}", object.name()),
                    Change::Deleted { last, .. } => format!("-{}", last.name()),
                    Change::Synced => "=".to_owned(),
                    change => panic!("{change:?}"),
                });
            }
        }
    };
    for (namespace, name, version, app) in [
        ("a", "a1", "1", "web"),
        ("b", "b1", "2", "web"),
        ("a", "a2", "3", "db"),
        ("b", "b1", "4", "db"),
        ("b", "b2", "5", "web"),
    ] {
        write(namespace, name, version, app);
        take();
    }
    drop(store.delete(Protobuf, &object("a", "a2", "6").to_bytes(Protobuf)).unwrap());
    take();
    for (what, _, received, expected) in subscribers {
        assert_eq!(received.join(" "), expected, "{what}");
    }
}

/// Returns the second, the name and the version of each change until `end`.
async fn received_until(subscriber: &mut Subscriber<[u8]>, end: tokio::time::Instant) -> Vec<(u64, String, u64)> {
    let began = tokio::time::Instant::now();
    let mut received = Vec::new();
    while let Ok(Some(change)) = tokio::time::timeout_at(end, subscriber.next()).await {
        let Change::Applied { new: object, .. } = change else { panic!("{change:?}") };
        let (name, version) = name_and_version(&object);
        received.push((began.elapsed().as_secs(), name, version));
    }
    received
}

#[tokio::test(start_paused = true)]
async fn a_resync_redelivers_each_object_once_spread_over_the_period() {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};
    const PERIOD: Duration = Duration::from_secs(1000);
    for objects in [0, 1, 64, 65, 1000] {
        let store = Store::<[u8]>::new(StorageFormat::Encoded);
        let write = |name: u32, version: u32| {
            drop(
                store
                    .apply(Protobuf, &object("ns", &name.to_string(), &version.to_string()).to_bytes(Protobuf))
                    .unwrap(),
            );
        };
        (0..objects).for_each(|name| write(name, 1));
        let mut subscriber = store.subscribe().resync(PERIOD).start();
        for round in 0..3 {
            // The change is delivered at once, and the object is redelivered at its turn.
            let version = if round == 1 && objects > 0 {
                write(0, 2);
                2
            } else {
                1
            };
            let end = Instant::now() + PERIOD + Duration::from_millis(1);
            let received = received_until(&mut subscriber, end).await;
            let mut names: Vec<u32> = received.iter().map(|(_, name, _)| name.parse().unwrap()).collect();
            names.sort_unstable();
            let mut expected: Vec<u32> = (0..objects).collect();
            if version == 2 {
                expected.insert(0, 0);
            }
            assert_eq!(names, expected, "{objects} objects, round {round}");
            let mut at_once = BTreeMap::new();
            for (second, ..) in &received {
                *at_once.entry(second).or_insert(0) += 1;
            }
            assert!(at_once.values().all(|count| *count <= 64), "{at_once:?}");
            assert!(objects < 1000 || at_once.len() >= 15, "{at_once:?}");
        }
        // A subscriber that was asleep for several periods gets one redelivery.
        sleep(10 * PERIOD).await;
        let mut late = 0;
        while subscriber.try_next().is_some() {
            late += 1;
        }
        assert_eq!(late, objects, "late");
        // A deleted object is not redelivered.
        if objects == 1 {
            drop(store.delete(Protobuf, &object("ns", "0", "3").to_bytes(Protobuf)).unwrap());
            assert!(matches!(subscriber.try_next(), Some(Change::Deleted { .. })));
            assert!(received_until(&mut subscriber, Instant::now() + 3 * PERIOD).await.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_resync_period_may_be_zero_or_of_any_length() {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let write = |version: &str| {
        drop(store.apply(Protobuf, &object("ns", "a", version).to_bytes(Protobuf)).unwrap());
    };
    write("1");
    let mut subscriber = store.subscribe().with_initial_state().resync(Duration::ZERO).start();
    assert!(matches!(subscriber.next().await, Some(Change::Applied { .. })));
    let again = timeout(Duration::from_secs(3600), subscriber.next()).await;
    assert!(again.is_err(), "{again:?}");
    write("2");
    assert!(matches!(subscriber.next().await, Some(Change::Applied { .. })));
    let mut longest = store.subscribe().resync(Duration::MAX).start();
    assert!(timeout(Duration::from_secs(3600), longest.next()).await.is_err());
    // A period that is far too short does not occupy the thread.
    let mut short = store.subscribe().resync(Duration::from_nanos(1)).start();
    let started = Instant::now();
    for _ in 0..100 {
        assert!(matches!(short.next().await, Some(Change::Applied { .. })));
    }
    assert!(started.elapsed() >= Duration::from_millis(90), "{:?}", started.elapsed());
}

#[test]
fn inspect_gets_the_states_that_are_coalesced() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let bytes = |name: &str, version: &str| object("ns", name, version).to_bytes(Protobuf);
    drop(store.apply(Protobuf, &bytes("before", "1")).unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (inspected, reader) = (Arc::clone(&seen), store.reader());
    let mut subscriber = store
        .subscribe()
        .filter(|object| object.name() != "other")
        .inspect(move |written| {
            let kind = match &written {
                Written::Added(_) => "added",
                Written::Modified { .. } => "modified",
                Written::Deleted { .. } => "deleted",
                _ => "unknown",
            };
            inspected.lock().unwrap().push(kind.to_owned());
            for object in written.states() {
                let stored =
                    reader.get(&object.key()).map_or(String::new(), |object| object.resource_version().to_owned());
                let state = format!("{}@{} in {stored:?}", object.name(), object.resource_version());
                inspected.lock().unwrap().push(state);
            }
        })
        .start();
    let take = || std::mem::take(&mut *seen.lock().unwrap());
    assert!(take().is_empty(), "not for the initial state");
    drop(store.apply(Protobuf, &bytes("a", "2")).unwrap());
    drop(store.apply(Protobuf, &bytes("a", "3")).unwrap());
    drop(store.delete(Protobuf, &bytes("a", "4")).unwrap());
    assert!(subscriber.try_next().is_none(), "added and deleted");
    let states = [r#"a@2 in "2""#, r#"a@2 in "3""#, r#"a@3 in "3""#, r#"a@3 in """#, r#"a@4 in """#];
    let [added, before, after, old, last] = states;
    assert_eq!(take(), ["added", added, "modified", before, after, "deleted", old, last]);
    drop(store.apply(Protobuf, &bytes("other", "5")).unwrap());
    assert!(subscriber.try_next().is_none(), "filtered");
    assert_eq!(take(), ["added", r#"other@5 in "5""#]);
    // A panic ends this subscriber only.
    let mut panics = store.subscribe().inspect(|_| panic!("scheduled by the test")).start();
    drop(store.apply(Protobuf, &bytes("a", "6")).unwrap());
    drop(store.apply(Protobuf, &bytes("a", "7")).unwrap());
    let panic = catch_unwind(AssertUnwindSafe(|| panics.try_next())).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"scheduled by the test"));
    assert!(panics.try_next().is_none());
    assert!(matches!(subscriber.try_next(), Some(Change::Applied { old: None, .. })));
}
