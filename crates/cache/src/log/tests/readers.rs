//! When readers that wait are woken, and the versions that readers are at.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::{FutureExt as _, StreamExt as _};
use listwatch::Encoding;

use super::{json, observe, shown, store};
use crate::{ChangeCursor, ChangeLogLimits, Store};

/// Counts how often a reader is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns what `next` gives to a reader that registers this waker: a change, `expired`, `end`, or `waits`.
fn next(changes: &mut ChangeCursor<[u8]>, counter: &Arc<Wakes>) -> String {
    let waker = Waker::from(Arc::clone(counter));
    match pin!(changes.next()).poll(&mut Context::from_waker(&waker)) {
        Poll::Pending => "waits".to_owned(),
        Poll::Ready(None) => "end".to_owned(),
        Poll::Ready(Some(Ok(change))) => shown(&change),
        Poll::Ready(Some(Err(_))) => "expired".to_owned(),
    }
}

#[test]
fn wakes_each_reader_that_waits_when_the_log_has_news() {
    type Act = fn(&Store<[u8]>);
    for (name, act, wakes, expected) in [
        ("a change", (|store| observe(store, "~a@12")) as Act, 1, ["~a@12", "waits"]),
        ("two changes", |store| observe(store, "~a@12 -b@13"), 1, ["~a@12", "-b@13"]),
        ("a bookmark", |store| observe(store, "=12"), 0, ["waits", "waits"]),
        ("a change that the log has", |store| observe(store, "~a@1"), 0, ["waits", "waits"]),
        ("a lost order", |store| observe(store, "~a@x"), 1, ["expired", "end"]),
        ("a relist", |store| drop(store.begin_relist()), 1, ["expired", "end"]),
    ] {
        let store = store("a@1 b@2", "10", ChangeLogLimits::default());
        // The log has each reader's last waker only.
        let replaced = Arc::new(Wakes::default());
        let mut readers = [(); 2].map(|()| (store.changes_after("10").unwrap(), Arc::new(Wakes::default())));
        for (changes, counter) in &mut readers {
            assert_eq!([next(changes, &replaced), next(changes, counter)], ["waits", "waits"], "{name}");
        }
        act(&store);
        for (changes, counter) in &mut readers {
            assert_eq!((counter.count(), replaced.count()), (wakes, 0), "{name}");
            assert_eq!([next(changes, counter), next(changes, counter)], expected, "{name}");
        }
    }
}

#[test]
fn a_dropped_store_wakes_its_readers_which_end() {
    let store = store("a@1", "10", ChangeLogLimits::default());
    let (mut changes, counter) = (store.changes_after("10").unwrap(), Arc::new(Wakes::default()));
    assert_eq!(next(&mut changes, &counter), "waits");
    drop(store);
    assert_eq!(counter.count(), 1);
    assert_eq!([next(&mut changes, &counter), next(&mut changes, &counter)], ["expired", "end"]);
}

#[test]
fn a_dropped_reader_leaves_no_waker_and_wakes_no_one() {
    let store = store("a@1", "10", ChangeLogLimits::default());
    let [gone, stays] = [(); 2].map(|()| Arc::new(Wakes::default()));
    let (mut dropped, mut changes) = (store.changes_after("10").unwrap(), store.changes_after("10").unwrap());
    assert_eq!([next(&mut dropped, &gone), next(&mut changes, &stays)], ["waits", "waits"]);
    assert_eq!([&gone, &stays].map(Arc::strong_count), [2, 2]);
    drop(dropped);
    assert_eq!([&gone, &stays].map(Arc::strong_count), [1, 2]);
    observe(&store, "~a@12");
    assert_eq!([gone.count(), stays.count()], [0, 1]);
}

#[test]
fn a_reader_is_at_the_version_of_the_log_once_it_has_read_all() {
    // The newest change is kept.
    let small = ChangeLogLimits { bytes: 1, ..ChangeLogLimits::default() };
    for (name, limits, before, from, events, expected) in [
        ("no change", ChangeLogLimits::default(), "", "10", "", "10"),
        ("a bookmark", ChangeLogLimits::default(), "", "10", "=12", "12"),
        ("two changes to read", ChangeLogLimits::default(), "", "10", "~a@12 ~a@13 =14", "10"),
        ("one change to read", ChangeLogLimits::default(), "", "10", "~a@12 ~a@13 =14 >", "12"),
        ("all changes read", ChangeLogLimits::default(), "", "10", "~a@12 ~a@13 =14 > >", "14"),
        ("a reader of another server", ChangeLogLimits::default(), "", "15", "=12", "15"),
        ("changes that were dropped", small, "~a@11 ~a@12 ~a@13", "13", "=14", "14"),
        ("the same, and a change to read", small, "~a@11 ~a@12 ~a@13", "13", "~a@15 =16", "13"),
        ("the same, and the change read", small, "~a@11 ~a@12 ~a@13", "13", "~a@15 =16 >", "16"),
    ] {
        let store = store("a@1", "10", limits);
        observe(&store, before);
        let mut changes = store.changes_after(from).unwrap();
        for event in events.split_whitespace() {
            match event {
                // The reader reads a change.
                ">" => drop(changes.try_next().unwrap().unwrap()),
                event => observe(&store, event),
            }
        }
        assert_eq!(changes.resource_version(), expected, "{name}");
    }
}

/// A reader of an earlier log is not at the end of this one, though it would be at its number of changes.
#[test]
fn a_reader_of_an_earlier_log_stays_at_its_version() {
    let store = store("a@1", "10", ChangeLogLimits::default());
    let mut changes = store.changes_after("10").unwrap();
    let mut relist = store.begin_relist();
    assert_eq!(changes.resource_version(), "10");
    relist.apply(Encoding::Json, &json("a", "1")).map(drop).unwrap();
    relist.commit("20").unwrap();
    store.open_log("20");
    assert!(store.exact_snapshot().is_some());
    assert_eq!(changes.resource_version(), "10");
    drop(store);
    assert_eq!(changes.resource_version(), "10");
    let wakes = Arc::default();
    assert_eq!([next(&mut changes, &wakes), next(&mut changes, &wakes)], ["expired", "end"]);
}

#[test]
fn a_reader_skips_what_another_has_found_needless() {
    let store = store("a@1", "10", ChangeLogLimits::default());
    observe(&store, "+b@11 +c@12 +d@13");
    let mut first = store.changes_after("10").unwrap();
    let start = first.position();
    assert_eq!([(); 2].map(|()| shown(&first.try_next().unwrap().unwrap())), ["+b@11", "+c@12"]);
    let place = first.position();
    assert!(start.is_before(place) && !place.is_before(start) && !place.is_before(place));
    assert!(start.is_before(place.previous()) && place.previous().is_before(place));

    let mut second = store.changes_after("10").unwrap();
    second.skip_to(place);
    assert_eq!(second.resource_version(), "12");
    assert_eq!(shown(&second.try_next().unwrap().unwrap()), "+d@13");
    // It does not read a change again.
    second.skip_to(place);
    assert!(second.try_next().unwrap().is_none());

    // A place of a log that was closed is no place of the next.
    let relist = store.begin_relist();
    relist.commit("20").unwrap();
    store.open_log("20");
    observe(&store, "+e@21");
    let mut later = store.changes_after("20").unwrap();
    assert!(!later.position().is_before(place) && !place.is_before(later.position()));
    later.skip_to(place);
    assert_eq!(shown(&later.try_next().unwrap().unwrap()), "+e@21");
}

#[test]
fn a_cursor_is_a_stream() {
    let store = store("a@1", "10", ChangeLogLimits::default());
    let changes = store.changes_after("10").unwrap();
    let mut changes = changes.map(|change| change.map_or_else(|_| "expired".to_owned(), |change| shown(&change)));
    assert!(changes.next().now_or_never().is_none());
    observe(&store, "+b@11");
    assert_eq!(changes.next().now_or_never(), Some(Some("+b@11".to_owned())));
    drop(store);
    assert_eq!(changes.next().now_or_never(), Some(Some("expired".to_owned())));
    assert_eq!(changes.next().now_or_never(), Some(None));
}

#[test]
fn a_reader_ahead_of_the_store_receives_only_what_it_lacks() {
    let store = store("a@1", "10", ChangeLogLimits::default());
    let mut changes = store.changes_after("20").unwrap();
    observe(&store, "+b@15 ~b@20 +c@21");
    assert_eq!(shown(&changes.try_next().unwrap().unwrap()), "+c@21");
    assert!(changes.try_next().unwrap().is_none());
}
