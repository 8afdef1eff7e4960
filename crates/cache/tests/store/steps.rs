//! Work that grows with the collection takes steps: a subscriber yields to other tasks, an index lets others write.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use listwatch::{Encoding, ItemError};
use listwatch_cache::{Change, StorageFormat, Store};

use crate::support::store::object;

/// The objects that a subscriber visits in one step.
const STEP: usize = 64;
const OBJECTS: usize = 1000;

fn name(i: usize) -> String {
    format!("o-{i:04}")
}

fn bytes(name: &str, version: u32) -> Vec<u8> {
    object("ns", name, &version.to_string()).data(version.to_string()).to_bytes(Encoding::Protobuf)
}

fn apply(store: &Store<[u8]>, name: &str, version: u32) {
    drop(store.apply(Encoding::Protobuf, &bytes(name, version)).unwrap());
}

fn delete(store: &Store<[u8]>, name: &str, version: u32) {
    assert!(store.delete(Encoding::Protobuf, &bytes(name, version)).unwrap().is_some());
}

fn filled() -> Store<[u8]> {
    let store = Store::new(StorageFormat::Encoded);
    (0..OBJECTS).for_each(|i| apply(&store, &name(i), 1));
    store
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_subscriber_that_selects_little_yields_after_each_step() {
    let store = filled();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let last = name(OBJECTS - 1);
    let mut subscriber = store.subscribe().with_initial_state();
    subscriber = subscriber.filter(move |object| {
        counted.fetch_add(1, Relaxed);
        object.name() == last
    });
    let mut subscriber = subscriber.start();
    let wakes = Arc::new(Wakes::default());
    let own = Waker::from(Arc::clone(&wakes));
    let mut next = pin!(subscriber.next());
    let (mut polls, mut before) = (0, 0);
    let change = loop {
        let polled = next.as_mut().poll(&mut Context::from_waker(&own));
        let called = calls.load(Relaxed);
        assert!(called - before <= STEP, "{} objects in one poll", called - before);
        (polls, before) = (polls + 1, called);
        match polled {
            Poll::Ready(change) => break change,
            // A task that yields wakes itself.
            Poll::Pending => assert_eq!(wakes.0.load(Relaxed), polls),
        }
    };
    assert!(matches!(change, Some(Change::Applied { new, .. }) if new.name() == name(OBJECTS - 1)));
    assert!(polls >= OBJECTS / STEP, "{polls}");
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_delays_deletions_yields_while_it_holds_them() {
    let store = filled();
    let mut subscriber = store.subscribe().delay_deletions(Duration::from_secs(60)).start();
    (0..OBJECTS).for_each(|i| delete(&store, &name(i), 2));
    let wakes = Arc::new(Wakes::default());
    let own = Waker::from(Arc::clone(&wakes));
    let mut polls = 0;
    // A task that yields wakes itself.
    while wakes.0.load(Relaxed) == polls {
        assert!(pin!(subscriber.next()).poll(&mut Context::from_waker(&own)).is_pending());
        polls += 1;
    }
    assert!(polls >= OBJECTS / STEP, "{polls}");
    for _ in 0..OBJECTS {
        assert!(matches!(subscriber.next().await, Some(Change::Deleted { .. })));
    }
}

/// The function of an index runs without the writer's lock, and the index has all writes that happen meanwhile.
#[test]
fn others_write_while_an_index_is_added() {
    let store = filled();
    let (request, requests) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let writer = {
        let store = store.clone();
        thread::spawn(move || {
            for request in requests {
                match request {
                    // Objects of this step, of earlier ones and of later ones.
                    100 => (32..200).for_each(|i| apply(&store, &name(i), 2)),
                    300 => (290..310).for_each(|i| delete(&store, &name(i), 3)),
                    500 => (0..900).step_by(50).filter(|i| *i != 300).for_each(|i| apply(&store, &name(i), 4)),
                    _ => (290..320).for_each(|i| apply(&store, &name(i), 5)),
                }
                done.send(()).unwrap();
            }
        })
    };
    let (builder, calls, is_done) = (thread::current().id(), AtomicUsize::new(0), Mutex::new(is_done));
    let by_version = store.index("version", move |object| {
        let version = object.resource_version().to_owned();
        if thread::current().id() == builder {
            let calls = calls.fetch_add(1, Relaxed);
            if [100, 300, 500, 700].contains(&calls) {
                request.send(calls).unwrap();
                // Fails if the writer waits for the index.
                is_done.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
            }
        }
        Ok::<_, ItemError>([version])
    });
    let mut expected = BTreeMap::<String, usize>::new();
    for object in store.snapshot().iter() {
        *expected.entry(object.resource_version().to_owned()).or_default() += 1;
    }
    assert_eq!(expected.keys().collect::<Vec<_>>(), ["1", "2", "4", "5"]);
    let found = by_version.values().into_iter().map(|value| (value.clone(), by_version.count(&value)));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected);
    assert!(by_version.errors().is_empty());
    // The function holds the channel.
    drop(by_version);
    writer.join().unwrap();
}
