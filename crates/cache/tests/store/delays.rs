//! Deletions that a subscriber delivers later.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use listwatch::Encoding::Protobuf;
use listwatch_cache::{Change, Object, StorageFormat, Store, Subscriber};
use tokio::time::{Instant, sleep};

use crate::support::store::object;

fn shown(object: &Object<[u8]>) -> String {
    format!("{}{}", object.name(), object.resource_version())
}

#[tokio::test(start_paused = true)]
async fn deletions_are_delivered_later() {
    // `a1` writes version 1 of a, `-a2` deletes it, `5` waits 5 s, `.` drops the store.
    for (steps, expected) in [
        ("a1 -a2", ""),
        ("a1 1 -a2", "0 +a1, 11 -a1>a2"),
        ("a1 1 b2 -a3 1 -b4", "0 +a1, 1 +b2, 11 -a1>a3, 12 -b2>b4"),
        // The object is created again before: an update, and nothing at 11.
        ("a1 1 -a2 4 a3", "0 +a1, 5 a1>a3"),
        ("a1 1 -a2 4 a3 1 a4", "0 +a1, 5 a1>a3, 6 a3>a4"),
        ("a1 1 -a2 4 a3 1 -a4", "0 +a1, 5 a1>a3, 16 -a3>a4"),
        ("a1 1 -a2 a3", "0 +a1, 1 a1>a3"),
        ("a1 1 -a2 a3 -a4", "0 +a1, 11 -a1>a2"),
        // At the same time, or after.
        ("a1 1 -a2 11 a3", "0 +a1, 11 -a1>a2, 12 +a3"),
        // Another object in the same slot, and this object in another slot.
        ("a1 1 -a2 b3 4 a4", "0 +a1, 1 +b3, 5 a1>a4"),
        // A change is held with the deletion.
        ("a1 1 a2 -a3", "0 +a1, 11 -a1>a3"),
        // Versions of 9 do not pass the filter.
        ("a1 1 a9 4 a10", "0 +a1, 5 a1>a10"),
        ("a1 1 a9", "0 +a1, 11 -a1>a1"),
        // The end delivers what is held.
        ("a1 b1 1 -a2 1 -b2 1 .", "0 +a1, 0 +b1, 3 -a1>a2, 3 -b1>b2, 3 end"),
    ] {
        let mut store = Some(Store::<[u8]>::new(StorageFormat::Encoded));
        let builder = store.as_ref().unwrap().subscribe().delay_deletions(Duration::from_secs(10));
        let mut subscriber = builder.filter(|object| object.resource_version() != "9").start();
        let (log, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let lines = Arc::clone(&log);
        let add = move |text: String| lines.lock().unwrap().push(format!("{} {text}", start.elapsed().as_secs()));
        let consumer = tokio::spawn(async move {
            while let Some(change) = subscriber.next().await {
                add(match &change {
                    Change::Applied { old: None, new, .. } => format!("+{}", shown(new)),
                    Change::Applied { old: Some(old), new, .. } => format!("{}>{}", shown(old), shown(new)),
                    Change::Deleted { old, last, .. } => format!("-{}>{}", shown(old), shown(last)),
                    change => panic!("{change:?}"),
                });
            }
            add("end".to_owned());
        });
        for step in steps.split(' ') {
            let bytes = |text: &str| object("ns", &text[..1], &text[1..]).to_bytes(Protobuf);
            match (step, store.as_ref()) {
                (".", _) => store = None,
                (step, Some(store)) if step.starts_with('-') => {
                    drop(store.delete(Protobuf, &bytes(&step[1..])).unwrap());
                }
                (step, Some(store)) if step.starts_with(['a', 'b']) => {
                    drop(store.apply(Protobuf, &bytes(step)).unwrap());
                }
                (seconds, _) => sleep(Duration::from_secs(seconds.parse().unwrap())).await,
            }
        }
        sleep(Duration::from_secs(60)).await;
        assert_eq!(log.lock().unwrap().join(", "), expected, "{steps}");
        consumer.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_object_is_readable_until_its_deletion_is_delivered() {
    let store = Store::<[u8]>::new(StorageFormat::Compressed);
    let bytes = |name: &str, version: &str| object("ns", name, version).to_bytes(Protobuf);
    let put = |name: &str, version: &str| drop(store.apply(Protobuf, &bytes(name, version)).unwrap());
    put("a", "1");
    put("b", "1");
    let mut at_once = store.subscribe().start();
    let mut later = store.subscribe().delay_deletions(Duration::from_secs(10)).start();
    let read = |subscriber: &Subscriber<[u8]>, name| {
        let found = store.get(("ns", name)).or_else(|| subscriber.get_deleted(("ns", name)));
        found.map(|object| shown(&object))
    };
    assert!(later.get_deleted(("ns", "a")).is_none());
    drop(store.delete(Protobuf, &bytes("a", "2")).unwrap());
    drop(store.delete(Protobuf, &bytes("b", "2")).unwrap());
    // Pending, and held.
    for _ in 0..2 {
        assert_eq!([read(&later, "a"), read(&later, "b")], ["a2", "b2"].map(|object| Some(object.to_owned())));
        assert_eq!((read(&later, "c"), later.get_deleted(("", "a")).is_none()), (None, true));
        assert!(later.try_next().is_none());
    }
    assert_eq!(read(&at_once, "a"), None);
    assert!(matches!(at_once.try_next(), Some(Change::Deleted { .. })));
    // The object is created again, and its deletion is not held any more.
    put("a", "3");
    assert_eq!(read(&later, "a").as_deref(), Some("a3"));
    assert!(matches!(later.try_next(), Some(Change::Applied { old: Some(_), .. })));
    assert!(later.get_deleted(("ns", "a")).is_none());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(read(&later, "b").as_deref(), Some("b2"));
    assert!(matches!(later.try_next(), Some(Change::Deleted { .. })));
    assert_eq!(read(&later, "b"), None);
}

#[tokio::test(start_paused = true)]
async fn held_deletions_count_as_lag_and_outlive_no_store() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let bytes = |name: u32, version: &str| object("ns", &name.to_string(), version).to_bytes(Protobuf);
    for (delay, held) in [(Duration::ZERO, 0), (Duration::from_secs(10), 100), (Duration::MAX, 100)] {
        (0..100).for_each(|name| drop(store.apply(Protobuf, &bytes(name, "1")).unwrap()));
        let mut subscriber = store.subscribe().delay_deletions(delay).start();
        (0..100).for_each(|name| drop(store.delete(Protobuf, &bytes(name, "2")).unwrap()));
        assert_eq!(subscriber.lag(), 100);
        let at_once = std::iter::from_fn(|| subscriber.try_next()).count();
        assert_eq!((at_once, subscriber.lag()), (100 - held, held), "{delay:?}");
        if delay < Duration::MAX {
            // Without a task that waits for the subscriber.
            sleep(delay).await;
            assert_eq!(std::iter::from_fn(|| subscriber.try_next()).count(), held, "{delay:?}");
            assert_eq!(subscriber.lag(), 0);
        }
    }
}
