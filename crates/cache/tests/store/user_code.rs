//! User code that a store calls may panic and may call the store.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use futures::Stream as _;
use listwatch::Encoding::Protobuf;
use listwatch::{Item, ItemError, ItemRef};
use listwatch_cache::{ApplyOutcome, Change, Index, StorageFormat, Store, StoreType};

use crate::support::chain;
use crate::support::store::{Object, object};

thread_local! {
    /// Number of calls before the one that panics.
    static CALLS: Cell<Option<usize>> = const { Cell::new(None) };
    /// True if all later calls panic, too.
    static ALWAYS: Cell<bool> = const { Cell::new(false) };
}

fn call() {
    let left = CALLS.get();
    if left == Some(0) {
        CALLS.set(Some(0).filter(|_| ALWAYS.get()));
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

/// Returns the values of all objects as `value=name`, of the store and of the index.
fn pairs(store: &Store<Object>, index: &Index<Object, Value>) -> (Vec<String>, Vec<String>) {
    let mut stored: Vec<_> = store
        .snapshot()
        .iter()
        .flat_map(|object| {
            let (data, name) = (object.decode().unwrap().data.clone(), object.name().to_owned());
            data.split(' ').map(|value| format!("{value}={name}")).collect::<Vec<_>>()
        })
        .collect();
    let values = index.values().into_iter();
    let named =
        |value: Value| index.get(&value).into_iter().map(move |object| format!("{}={}", value.0, object.name()));
    let mut indexed: Vec<_> = values.flat_map(named).collect();
    stored.sort();
    indexed.sort();
    (stored, indexed)
}

#[test]
fn a_panic_in_the_values_of_an_index_is_an_error_of_that_object_only() {
    let mut panics = 0;
    for calls in 0.. {
        let store = Store::new(StorageFormat::Encoded);
        let index = store.index("data", data);
        for (i, data) in ["a b", "b c", "c", "d e f"].into_iter().enumerate() {
            drop(store.apply(Protobuf, &bytes(&format!("o-{i}"), 1, data)).unwrap());
        }
        CALLS.set(Some(calls));
        let writes: [&dyn Fn(); 3] = [
            &|| drop(store.apply(Protobuf, &bytes("o-1", 2, "b x y")).unwrap()),
            &|| drop(store.apply(Protobuf, &bytes("o-9", 3, "a z")).unwrap()),
            &|| drop(store.delete(Protobuf, &bytes("o-3", 4, "d e f")).unwrap()),
        ];
        for write in writes {
            write();
        }
        let panicked = CALLS.take().is_none();
        // The store has all states, and the index lacks at most the object whose values panicked.
        let (stored, indexed) = pairs(&store, &index);
        let lacking: Vec<_> = index.errors().iter().map(|error| error.key.clone().unwrap().name).collect();
        let expected: Vec<_> = stored.iter().filter(|pair| !lacking.iter().any(|name| pair.ends_with(name))).collect();
        assert_eq!(indexed.iter().collect::<Vec<_>>(), expected, "after {calls} calls, without {lacking:?}");
        assert!(lacking.len() <= usize::from(panicked), "after {calls} calls: {lacking:?}");
        for error in index.errors() {
            assert!(chain(&error).ends_with(": panicked: scheduled by the test"), "{}", chain(&error));
        }
        if !panicked {
            break;
        }
        panics += 1;
        // A later state repairs it.
        for (i, data) in [(1, "b x y"), (9, "a z")] {
            drop(store.apply(Protobuf, &bytes(&format!("o-{i}"), 5, data)).unwrap());
        }
        let (stored, indexed) = pairs(&store, &index);
        assert_eq!((stored, index.errors().len()), (indexed, 0), "after {calls} calls");
    }
    assert!(panics > 10, "{panics}");
}

#[test]
fn subscribers_to_values_that_panic_end_with_the_panic_and_others_continue() {
    let store = Store::new(StorageFormat::Encoded);
    let index = store.index("data", data);
    drop(store.apply(Protobuf, &bytes("o-1", 1, "a b")).unwrap());
    let mut of_value = index.subscribe(Value("a".to_owned())).start();
    let mut of_all = store.subscribe().start();
    // The function, and then each comparison.
    for calls in 0..3 {
        ALWAYS.set(true);
        CALLS.set(Some(calls));
        drop(store.apply(Protobuf, &bytes("o-1", 2 + u32::try_from(calls).unwrap(), "c")).unwrap());
        ALWAYS.set(false);
        CALLS.set(None);
        assert!(matches!(of_all.try_next(), Some(Change::Applied { .. })), "{calls}");
    }
    assert!(catch_unwind(AssertUnwindSafe(|| of_value.try_next())).is_err());
    assert!(of_value.try_next().is_none());
}

/// Objects whose decoding panics if they contain `panics`, and whose drop does if they contain `drop`.
#[derive(Debug)]
struct Fragile(String);

impl Item for Fragile {
    type Owned = Self;

    fn from_ref(item: ItemRef<'_>) -> Result<Self, ItemError> {
        Self::decode(item)
    }
}

impl StoreType for Fragile {
    type Decoded = Self;

    fn decode(item: ItemRef<'_>) -> Result<Self, ItemError> {
        let data = <Object as prost::Message>::decode(item.bytes())?.data;
        assert!(!data.contains("panics"), "cannot decode {data:?}");
        Ok(Self(data))
    }

    fn encode(decoded: &Self) -> Result<Vec<u8>, ItemError> {
        panic!("cannot encode {:?}", decoded.0)
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(!self.0.contains("drop"), "cannot drop {:?}", self.0);
    }
}

#[test]
fn a_panic_of_decoding_or_a_drop_stays_with_its_object() {
    for format in [StorageFormat::Encoded, StorageFormat::Compressed] {
        let store = Store::<Fragile>::new(format);
        let index = store.index("data", |object| Ok::<_, ItemError>([object.decode()?.0.clone()]));
        let mut filtered = store.subscribe().filter(|object| object.decode().is_ok()).start();
        let mut relist = store.begin_relist();
        for name in ["a", "b", "c"] {
            drop(relist.apply(Protobuf, &bytes(name, 1, "drop")).unwrap());
        }
        relist.commit("5").unwrap();
        let written = store.apply(Protobuf, &bytes("a", 6, "panics"));
        assert!(matches!(written, Ok(ApplyOutcome::Modified { .. })), "{format:?}");
        let errors: Vec<_> = index.errors().iter().map(|error| chain(error)).collect();
        assert_eq!(errors, ["index data failed for ns/a: panicked: cannot decode \"panics\""], "{format:?}");
        assert_eq!((index.count("drop"), store.decode_errors().0), (2, 1), "{format:?}");
        // The replaced values panic when they are dropped.
        drop(store.apply(Protobuf, &bytes("a", 7, "x")).unwrap());
        drop(store.delete(Protobuf, &bytes("b", 8, "drop")).unwrap());
        assert_eq!((index.count("x"), index.count("drop"), store.skipped(), store.len()), (1, 1, 0, 2), "{format:?}");
        let received = std::iter::from_fn(|| filtered.try_next());
        let changes = received.map(|change| match change {
            Change::Applied { new, .. } => format!("+{}@{}", new.name(), new.resource_version()),
            Change::Deleted { last, .. } => format!("-{}", last.name()),
            _ => "=".to_owned(),
        });
        // Others than `a` are coalesced.
        assert_eq!(changes.collect::<Vec<_>>().join(" "), "+c@1 = +a@7");
        store.begin_relist().commit("9").unwrap();
        assert!(store.is_empty() && index.values().is_empty());
    }
}

/// A waker that panics.
struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("scheduled by the test");
    }
}

#[test]
fn a_waker_that_panics_does_not_keep_others_from_being_woken() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let woken = Arc::new(Writes { store: store.clone(), woken: AtomicUsize::new(0) });
    let wakers = [Waker::from(Arc::new(PanickingWaker)), Waker::from(Arc::clone(&woken))];
    let mut subscribers = wakers.each_ref().map(|_| Box::pin(store.subscribe().start()));
    for (subscriber, waker) in subscribers.iter_mut().zip(&wakers) {
        assert!(subscriber.as_mut().poll_next(&mut Context::from_waker(waker)).is_pending());
    }
    drop(store.apply(Protobuf, &bytes("one", 1, "")).unwrap());
    assert_eq!(woken.woken.load(Relaxed), 1);
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
        assert!(matches!(store.apply(Protobuf, &bytes("o", 1, "a")), Ok(ApplyOutcome::Added(_))));
        let errors: Vec<_> = index.errors().iter().map(|error| chain(error)).collect();
        assert_eq!(errors, [format!("index nested failed for ns/o: panicked: {message}")]);
        drop(index);
        assert!(store.delete(Protobuf, &bytes("o", 1, "a")).unwrap().is_some());
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
fn a_panic_during_a_commit_leaves_no_part_of_the_list_undone() {
    for calls in 0..24 {
        let store = Store::<Object>::new(StorageFormat::Encoded);
        let relist = |names: &[&str], version: &str, data: &str| {
            let mut relist = store.begin_relist();
            for name in names {
                drop(relist.apply(Protobuf, &bytes(name, version.parse().unwrap(), data)).unwrap());
            }
            relist.commit(version)
        };
        assert!(relist(&["a", "b", "c"], "5", "x").is_ok());
        let index = store.index("data", data);
        // The list is older, so that its states are written by the commit.
        CALLS.set(Some(calls));
        relist(&["a", "b"], "3", "y z").unwrap();
        CALLS.set(None);
        assert_eq!((store.len(), &*store.resource_version()), (2, "3"), "{calls}");
        assert!(store.snapshot().iter().all(|object| object.decode().unwrap().data == "y z"), "{calls}");
        let count = index.count(&Value("z".to_owned()));
        assert_eq!(count + index.errors().len(), 2, "{calls}");
        let folder = tempfile::tempdir().unwrap();
        store.save(folder.path().join("saved"), "o").unwrap();
    }
}
