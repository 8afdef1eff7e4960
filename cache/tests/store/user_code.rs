//! User code that a store calls may panic and may call the store.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use futures::Stream as _;
use listwatch::Encoding::Protobuf;
use listwatch::ItemError;
use listwatch_cache::{ApplyOutcome, Change, StorageFormat, Store};

use crate::support::store::{Object, object};

thread_local! {
    /// Number of calls before the one that panics.
    static CALLS: Cell<Option<usize>> = const { Cell::new(None) };
}

fn call() {
    let left = CALLS.get();
    if left == Some(0) {
        CALLS.set(None);
        panic!("scheduled by the test");
    }
    CALLS.set(left.map(|left| left - 1));
}

/// A value of an index whose code panics when the test schedules it.
#[derive(Debug)]
struct Value(String);

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        call();
        self.0 == other.0
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        call();
        self.0.cmp(&other.0)
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        call();
        Self(self.0.clone())
    }
}

fn bytes(name: &str, version: u32, data: &str) -> Vec<u8> {
    object("ns", name, &version.to_string()).data(data).to_bytes(Protobuf)
}

fn data(object: &listwatch_cache::Object<Object>) -> Result<Vec<Value>, ItemError> {
    Ok(object.decode()?.data.split(' ').map(|value| Value(value.to_owned())).collect())
}

#[test]
fn a_panic_in_the_values_of_an_index_leaves_the_store_and_its_indexes_as_they_were() {
    let mut panics = 0;
    for calls in 0.. {
        let store = Store::new(StorageFormat::Encoded);
        let index = store.index("data", data);
        for (i, data) in ["a b", "b c", "c", "d e f"].into_iter().enumerate() {
            drop(store.apply(Protobuf, &bytes(&format!("o-{i}"), 1, data)).unwrap());
        }
        let seen = || {
            let mut objects: Vec<String> = Vec::new();
            for object in store.snapshot().iter() {
                let object = object.decode().unwrap();
                for value in object.data.split(' ') {
                    let name = object.metadata.as_ref().unwrap().name.clone();
                    objects.push(format!("{value}={name}"));
                }
            }
            objects.sort();
            let mut indexed: Vec<String> = Vec::new();
            for value in index.values() {
                indexed.extend(index.get(&value).iter().map(|object| format!("{}={}", value.0, object.name())));
            }
            indexed.sort();
            assert_eq!(indexed, objects, "after {calls} calls");
            objects
        };
        CALLS.set(Some(calls));
        let writes: [&dyn Fn(); 3] = [
            &|| drop(store.apply(Protobuf, &bytes("o-1", 2, "b x y")).unwrap()),
            &|| drop(store.apply(Protobuf, &bytes("o-9", 3, "a z")).unwrap()),
            &|| drop(store.delete(Protobuf, &bytes("o-3", 4, "d e f")).unwrap()),
        ];
        let mut panicked = false;
        for write in &writes {
            let calm = CALLS.take();
            let had = seen();
            CALLS.set(calm);
            if catch_unwind(AssertUnwindSafe(write)).is_err() {
                panicked = true;
                assert_eq!(seen(), had, "after {calls} calls");
                break;
            }
        }
        CALLS.set(None);
        if !panicked {
            break;
        }
        panics += 1;
        // The store still works.
        for write in writes {
            write();
        }
        assert_eq!(seen(), ["a=o-0", "a=o-9", "b=o-0", "b=o-1", "c=o-2", "x=o-1", "y=o-1", "z=o-9"]);
    }
    assert!(panics > 10, "{panics}");
}

/// Writes to the store once it is woken.
struct Writes {
    store: Store<[u8]>,
    woken: AtomicUsize,
}

impl Wake for Writes {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Relaxed);
        drop(self.store.apply(Protobuf, &bytes("other", 1, "")).unwrap());
        assert_eq!(self.store.len(), 2);
    }
}

#[test]
fn a_waker_may_write_to_the_store() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let writes = Arc::new(Writes { store: store.clone(), woken: AtomicUsize::new(0) });
    let waker = Waker::from(Arc::clone(&writes));
    let mut subscriber = Box::pin(store.subscribe().start());
    assert!(subscriber.as_mut().poll_next(&mut Context::from_waker(&waker)).is_pending());
    drop(store.apply(Protobuf, &bytes("one", 1, "")).unwrap());
    assert_eq!(writes.woken.load(Relaxed), 1);
    let names = Mutex::new(Vec::new());
    while let Some(Change::Applied { new: object, .. }) = subscriber.try_next() {
        names.lock().unwrap().push(object.name().to_owned());
    }
    assert_eq!(names.into_inner().unwrap(), ["one", "other"]);
}

/// Returns a store of 200 objects at version 1.
fn filled() -> Store<[u8]> {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    for i in 0..200 {
        drop(store.apply(Protobuf, &bytes(&format!("o-{i}"), 1, "")).unwrap());
    }
    store
}

/// Returns a filter that writes version 2 of each object that it sees at version 1, except in that write, which calls
/// it with the state before it.
fn writing(store: Store<[u8]>) -> impl Fn(&listwatch_cache::Object<[u8]>) -> bool + Send + Sync + 'static {
    let is_writing = AtomicBool::new(false);
    move |object| {
        if object.resource_version() == "1" && !is_writing.swap(true, Relaxed) {
            drop(store.apply(Protobuf, &bytes(object.name(), 2, "")).unwrap());
            is_writing.store(false, Relaxed);
        }
        object.name() != "o-7"
    }
}

#[test]
fn the_initial_state_is_filtered_without_a_lock() {
    let store = filled();
    let mut subscriber = store.subscribe().with_initial_state().filter(writing(store.clone())).start();
    let mut received = Vec::new();
    while let Some(Change::Applied { new: object, .. }) = subscriber.try_next() {
        received.push(format!("{}@{}", object.name(), object.resource_version()));
    }
    received.sort();
    let mut all: Vec<_> = (0..200).filter(|&i| i != 7).map(|i| format!("o-{i}@2")).collect();
    all.sort();
    assert_eq!(received, all);
}

#[test]
fn a_subscriber_is_registered_without_a_lock() {
    let store = filled();
    let mut subscriber = store.subscribe().filter(writing(store.clone())).start();
    // Without the initial state, it receives only what changed since the registration.
    while let Some(change) = subscriber.try_next() {
        assert!(matches!(&change, Change::Applied { new, .. } if new.resource_version() == "2"), "{change:?}");
    }
    for i in 0..200 {
        drop(store.delete(Protobuf, &bytes(&format!("o-{i}"), 3, "")).unwrap());
    }
    let mut deleted = 0;
    while let Some(change) = subscriber.try_next() {
        assert!(matches!(&change, Change::Deleted { last, .. } if last.name() != "o-7"), "{change:?}");
        deleted += 1;
    }
    assert_eq!(deleted, 199);
}

#[test]
fn an_event_calls_the_index_function_once_for_all_subscribers() {
    let calls = Arc::new(AtomicUsize::new(0));
    let store = Store::<Object>::new(StorageFormat::Encoded);
    let counted = {
        let calls = Arc::clone(&calls);
        move |object: &listwatch_cache::Object<Object>| {
            calls.fetch_add(1, Relaxed);
            Ok::<_, ItemError>([object.decode()?.data.clone()])
        }
    };
    let by_node = store.index("node", counted);
    let mut subscribers: Vec<_> = (0..5000).map(|node| by_node.subscribe(format!("node-{node}")).start()).collect();
    for (version, node, notified) in [(1, 7, vec![7]), (2, 7, vec![7]), (3, 8, vec![7, 8]), (4, 9000, vec![8])] {
        calls.store(0, Relaxed);
        let written = store.apply(Protobuf, &bytes("pod", version, &format!("node-{node}"))).unwrap();
        assert!(matches!(written, ApplyOutcome::Added(_) | ApplyOutcome::Modified { .. }));
        assert_eq!(calls.load(Relaxed), 1, "version {version}");
        let changed: Vec<_> = (0..5000).filter(|&node| subscribers[node].try_next().is_some()).collect();
        assert_eq!(changed, notified, "version {version}");
    }
    // The store forgets dropped subscribers, and an index lives as long as its subscribers.
    drop(by_node);
    subscribers.truncate(8);
    drop(store.apply(Protobuf, &bytes("pod", 5, "node-3")).unwrap());
    assert!(matches!(subscribers[3].try_next(), Some(Change::Applied { .. })));
    assert!(store.delete(Protobuf, &bytes("pod", 6, "node-3")).unwrap().is_some());
    assert!(matches!(subscribers[3].try_next(), Some(Change::Deleted { .. })));
}

/// Such a call would wait for the write that runs it.
#[test]
fn a_call_that_waits_for_writers_panics_in_an_index_function_and_a_filter() {
    type Store = listwatch_cache::Store<Object>;
    let calls: [fn(&Store); 6] = [
        |store| drop(store.apply(Protobuf, &bytes("other", 1, "a"))),
        |store| _ = store.memory(),
        |store| _ = store.skipped(),
        |store| drop(store.index("name", |object| Ok::<_, ItemError>([object.name().to_owned()]))),
        |store| drop(store.subscribe().start()),
        |store| drop(store.begin_relist()),
    ];
    let message = "an index function or a filter must not write to its store, or call a method that waits for writers";
    for call in calls {
        let store = Store::new(StorageFormat::Encoded);
        let (nested, reads) = (store.clone(), store.reader());
        let index = store.index("nested", move |object| {
            // Reads are allowed.
            assert!(reads.get(("ns", object.name())).is_none() && reads.snapshot().is_empty());
            call(&nested);
            Ok::<_, ItemError>(None::<u32>)
        });
        let panic = catch_unwind(AssertUnwindSafe(|| store.apply(Protobuf, &bytes("o", 1, "a")))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&message));
        drop(index);
        let nested = store.clone();
        let mut subscriber = store
            .subscribe()
            .filter(move |_| {
                call(&nested);
                true
            })
            .start();
        assert!(matches!(store.apply(Protobuf, &bytes("o", 1, "a")), Ok(ApplyOutcome::Added(_))));
        let panic = catch_unwind(AssertUnwindSafe(|| subscriber.try_next())).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&message));
    }
}

#[test]
fn a_panic_during_a_commit_leaves_a_list_that_the_next_one_completes() {
    let store = Store::<Object>::new(StorageFormat::Encoded);
    let relist = |names: &[&str], version: &str, data: &str| {
        let mut relist = store.begin_relist();
        for name in names {
            drop(relist.apply(Protobuf, &bytes(name, version.parse().unwrap(), data)).unwrap());
        }
        relist.commit(version).map(|changes| changes.len())
    };
    assert!(relist(&["a", "b", "c"], "5", "x").is_ok());
    let _index = store.index("data", data);
    // The list is older, so that its states are written by the commit.
    CALLS.set(Some(12));
    let panicked = catch_unwind(AssertUnwindSafe(|| relist(&["a", "b"], "3", "y z")));
    CALLS.set(None);
    assert!(panicked.is_err());
    assert_eq!(store.resource_version(), "5");
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(store.save(folder.path().join("saved"), "o"), Err(listwatch_cache::FileError::Incomplete)));
    assert!(relist(&["a", "b"], "3", "y z").is_ok());
    assert_eq!((store.len(), &*store.resource_version()), (2, "3"));
    assert!(store.snapshot().iter().all(|object| object.decode().unwrap().data == "y z"));
    store.save(folder.path().join("saved"), "o").unwrap();
}
