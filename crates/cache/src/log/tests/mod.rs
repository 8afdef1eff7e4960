//! The promises of a change log to its readers, through the store that writes the changes.

mod readers;

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::time::Duration;

use fastrand::Rng;
use listwatch::internal::is_older;
use listwatch::{Encoding, EventType, ItemRef};

use crate::{ChangeCursor, ChangeLogLimits, FileError, LoggedChange, Snapshot, StorageFormat, Store};

fn json(name: &str, version: &str) -> Vec<u8> {
    let meta = format!(r#"{{"name":"{name}","namespace":"ns","uid":"{name}","resourceVersion":"{version}"}}"#);
    format!(r#"{{"metadata":{meta}}}"#).into_bytes()
}

/// A store with these objects, such as `a@1 b@2`, and a log that is open at this version.
fn store(objects: &str, version: &str, limits: ChangeLogLimits) -> Store<[u8]> {
    let store = Store::new(StorageFormat::Encoded);
    store.keep_changes(limits);
    let mut relist = store.begin_relist();
    for (name, version) in objects.split_whitespace().filter_map(|object| object.split_once('@')) {
        relist.apply(Encoding::Json, &json(name, version)).map(drop).unwrap();
    }
    relist.commit(version).unwrap();
    store.open_log(version);
    store
}

/// Writes events such as `+a@5 ~a@6 -a@7`, or `-a@` without a version, and bookmarks such as `=8`, as a reflector
/// does.
fn observe(store: &Store<[u8]>, events: &str) {
    for event in events.split_whitespace() {
        let (kind, rest) = event.split_at(1);
        let (name, version) = rest.split_once('@').unwrap_or(("", rest));
        if kind != "=" {
            let object = json(name, version);
            store.apply_watched(ItemRef::new(Encoding::Json, &object), kind == "-").unwrap();
        }
        if is_older(&store.resource_version(), version) {
            store.advance(version);
        }
    }
}

fn shown(change: &LoggedChange<[u8]>) -> String {
    let sign = match change.kind() {
        EventType::Added => "+",
        EventType::Modified => "~",
        _ => "-",
    };
    assert_eq!(change.kind() == EventType::Added, change.old().is_none());
    format!("{sign}{}@{}", change.object().name(), change.object().resource_version())
}

/// Returns the changes after a version, or the error.
fn after(store: &Store<[u8]>, version: &str) -> String {
    let Ok(mut changes) = store.changes_after(version) else { return "expired".to_owned() };
    let mut all = Vec::new();
    while let Some(change) = changes.try_next().unwrap() {
        all.push(shown(&change));
    }
    all.join(" ")
}

#[test]
fn a_reader_gets_all_changes_that_it_may_lack() {
    for (name, objects, version, events, expected) in [
        (
            "deletions that share a version",
            "a@1 b@2 c@3 d@4",
            "10",
            "-a@13 -b@13 -c@13",
            &[("10", "-a@13 -b@13 -c@13"), ("12", "-a@13 -b@13 -c@13"), ("13", "-b@13 -c@13"), ("14", "")][..],
        ),
        (
            "the same, and a later change",
            "a@1 b@2",
            "10",
            "-a@13 -b@13 +c@15",
            &[("13", "-b@13 +c@15"), ("14", "+c@15"), ("15", ""), ("16", "")],
        ),
        ("the version of the list", "b@2 c@3", "13", "-b@13 -c@13 ", &[("13", "-b@13 -c@13"), ("14", "")]),
        ("a bookmark between them", "a@1 b@2", "10", "-a@13 =13 -b@13 =20", &[("13", "-b@13"), ("20", "")]),
        ("an unknown object first", "a@1", "10", "-x@13 -a@13", &[("12", "-a@13"), ("13", "-a@13")]),
        (
            "repetitions",
            "a@1 b@2 c@3",
            "10",
            "-a@13 -b@13 -a@13 -b@13 ~c@14 ~c@14 -a@13",
            &[("10", "-a@13 -b@13 ~c@14"), ("14", "")],
        ),
        (
            "a deletion without a version",
            "a@1",
            "10",
            "+x@12 -a@",
            &[
                ("10", "+x@12 -a@"),
                ("12", "-a@"),
                // A reader of another server.
                ("13", "-a@"),
            ],
        ),
        (
            "the same, and a later change",
            "a@1",
            "10",
            "-a@ +y@20 =30",
            &[("10", "-a@ +y@20"), ("19", "-a@ +y@20"), ("20", ""), ("30", "")],
        ),
        ("a deletion at the object's last version", "a@1 b@2", "10", "~b@12 -a@1", &[("12", "-a@1")]),
        (
            "a deletion and a new object of the name",
            "a@1",
            "10",
            "-a@ +a@12 -a@12",
            &[("10", "-a@ +a@12 -a@12"), ("12", "-a@12")],
        ),
        (
            "objects that the user gained access to",
            "a@9",
            "10",
            "~a@12 +p@3 +q@4 -p@ +p@3",
            &[("10", "~a@12 +p@3 +q@4 -p@ +p@3"), ("12", "+p@3 +q@4 -p@ +p@3")],
        ),
    ] {
        let store = store(objects, version, ChangeLogLimits::default());
        observe(&store, events);
        for (version, expected) in expected {
            assert_eq!(after(&store, version), *expected, "{name}, after {version}");
        }
    }
}

#[test]
fn dropped_changes_expire_the_readers_that_may_lack_them() {
    // The newest change is kept.
    let limits = ChangeLogLimits { bytes: 1, ..ChangeLogLimits::default() };
    for (events, expected) in [
        ("~a@12 ~a@13", &[("11", "expired"), ("12", "~a@13"), ("13", "")][..]),
        ("-a@13 -b@13", &[("12", "expired"), ("13", "-b@13")]),
        // A reader that lists at the newest version must not expire at once.
        ("-a@13 -b@13 -c@13", &[("12", "expired"), ("13", "-b@13 -c@13"), ("14", "")]),
        ("-a@13 -b@13 -c@13 ~d@14", &[("13", "expired"), ("14", "")]),
        ("-a@ ~b@14", &[("10", "expired"), ("13", "expired"), ("14", "")]),
        ("-a@ -b@", &[("10", "-a@ -b@"), ("11", "-a@ -b@")]),
        ("-a@ -b@ =12", &[("11", "expired"), ("12", "-b@")]),
        ("-a@ =20 -b@", &[("10", "expired"), ("19", "expired"), ("20", "-b@")]),
    ] {
        let store = store("a@1 b@2 c@3 d@4", "10", limits);
        let mut at_end = store.changes_after("10").unwrap();
        for event in events.split_whitespace() {
            observe(&store, event);
            let next = at_end.try_next().unwrap().map(|change| shown(&change));
            assert_eq!(next.as_deref(), Some(event).filter(|event| !event.starts_with('=')), "{events}");
        }
        for (version, expected) in expected {
            assert_eq!(after(&store, version), *expected, "{events}, after {version}");
        }
    }
}

#[test]
fn an_order_that_is_lost_closes_the_log_until_a_newer_version() {
    let store = store("a@1 b@2", "10", ChangeLogLimits::default());
    observe(&store, "~a@x");
    assert_eq!((after(&store, "10"), store.exact_snapshot().is_none()), ("expired".to_owned(), true));
    observe(&store, "=11 -b@12");
    assert_eq!((after(&store, "10"), after(&store, "11")), ("expired".to_owned(), "-b@12".to_owned()));
}

/// A watch from version 10 runs beside a list, and delivers events before the list is complete and afterwards.
#[test]
fn opens_once_the_watch_has_passed_what_a_list_beside_it_may_lack() {
    for (name, listed, [before, after], expected) in [
        ("nothing", "10", ["", ""], &[("10", true)][..]),
        // Objects that were deleted after version 10 are missing from the list.
        ("a newer list", "12", ["", ""], &[("11", false), ("12", true)]),
        ("a newer list, and the last event before it", "12", ["", "~a@12"], &[("12", true)]),
        ("an event", "10", ["~a@11", ""], &[("10", false), ("11", true)]),
        ("a deletion", "10", ["-b@11", ""], &[("10", false), ("11", true)]),
        // Readers at the version before may lack these changes.
        ("an object that the user gained access to", "10", ["+p@3", ""], &[("10", false), ("11", true)]),
        ("a deletion without a version", "10", ["-b@", ""], &[("10", false), ("11", true)]),
        ("the same, once the list is complete", "10", ["~a@12", "+p@3"], &[("12", false), ("13", true)]),
    ] {
        let store = Store::<[u8]>::new(StorageFormat::Encoded);
        store.keep_changes(ChangeLogLimits::default());
        let mut relist = store.begin_relist();
        store.watched_from("10");
        relist.apply(Encoding::Json, &json("a", "1")).map(drop).unwrap();
        observe(&store, before);
        store.listed_at(listed);
        relist.commit("10").unwrap();
        store.open_log("10");
        observe(&store, after);
        for (version, is_open) in expected {
            store.open_log(version);
            assert_eq!(store.exact_snapshot().is_some(), *is_open, "{name}, at {version}");
        }
    }
}

#[test]
fn events_that_share_a_version_with_own_writes_are_logged_once() {
    for (own, events, expected, is_exact) in [
        ("+a@13", "~b@13 ~a@13", "~b@13 ~a@13", true),
        ("+a@13", "~b@13 ~b@13", "~b@13", false),
        ("-a@13", "-b@13 -a@13", "-b@13 -a@13", true),
        ("-a@13", "-b@13 -a@", "-b@13 -a@", true),
        // The watch has delivered the state before.
        ("+a@20", "~b@13 ~a@1", "~b@13", false),
        ("+a@20", "~b@13 ~a@15 ~a@20", "~b@13 ~a@15 ~a@20", true),
        ("+x@20", "~b@13 +x@3", "~b@13 +x@3", false),
        // Was it deleted before version 20 or after it?
        ("+a@20", "~b@13 -a@1", "expired", false),
        // The first change of a version is newer than all that the log has.
        ("+a@20", "-a@13", "-a@13", false),
        ("+a@20", "-a@13 +a@20", "-a@13 +a@20", true),
        // The watch never delivers that the object was added.
        ("+x@12", "-x@13", "", true),
    ] {
        let store = store("a@1 b@2", "10", ChangeLogLimits::default());
        let (name, version) = own[1..].split_once('@').unwrap();
        if own.starts_with('+') {
            drop(store.apply(Encoding::Json, &json(name, version)).unwrap());
        } else {
            drop(store.delete(Encoding::Json, &json(name, version)).unwrap());
        }
        observe(&store, events);
        assert_eq!(
            (after(&store, "10").as_str(), store.exact_snapshot().is_some()),
            (expected, is_exact),
            "{own}, {events}"
        );
    }
}

/// A list that began before the deletion does not restore the object; the watch does.
#[test]
fn a_deletion_without_a_version_during_a_list_is_final_until_the_watch_adds_the_object() {
    for (event, expected) in [("-a@", false), ("-a@ +a@1", true), ("-a@1", false), ("-a@1 +a@1", true)] {
        let store = store("a@1", "10", ChangeLogLimits::default());
        let mut relist = store.begin_relist();
        observe(&store, event);
        relist.apply(Encoding::Json, &json("a", "1")).map(drop).unwrap();
        relist.commit("11").unwrap();
        assert_eq!(store.get(("ns", "a")).is_some(), expected, "{event}");
    }
}

/// The page that would have the object was read before the user gained access to it.
#[test]
fn an_old_object_that_the_watch_adds_during_a_list_stays() {
    for (events, expected) in [("+p@3", true), ("+p@3 ~p@4", true), ("+p@3 -p@", false)] {
        let store = store("a@9", "10", ChangeLogLimits::default());
        let mut relist = store.begin_relist();
        observe(&store, events);
        relist.apply(Encoding::Json, &json("a", "9")).map(drop).unwrap();
        relist.commit("11").unwrap();
        assert_eq!(store.get(("ns", "p")).is_some(), expected, "{events}");
        assert!(store.get(("ns", "a")).is_some());
    }
}

#[test]
fn counts_what_only_the_log_holds_until_it_is_closed() {
    let after = |event| {
        let store = store("a@1", "10", ChangeLogLimits::default());
        observe(&store, event);
        store
    };
    let (modified, deleted) = (after("~a@11"), after("-a@11").memory().log);
    let before = modified.memory().log;
    assert!(deleted >= before + json("a", "11").len(), "the final state: {deleted} and {before} bytes");
    let change = modified.changes_after("10").unwrap().try_next().unwrap().unwrap();
    change.frame(0, |_| Ok::<_, ()>(vec![0; 1000])).unwrap();
    assert!(modified.memory().log >= before + 1000);
    drop(change);
    drop(modified.begin_relist());
    assert_eq!(modified.memory().log, 0, "a frame is dropped with its change");
    // The version and the old state count by the byte.
    let log = |object, event| {
        let store = store(object, "2000", ChangeLogLimits::default());
        observe(&store, event);
        store.memory().log
    };
    let before = log("a@1", "~a@2011");
    assert_eq!(log("a@1", "~a@20110") - before, 1);
    assert_eq!(log("a@1000", "~a@2011") - before, 3);
}

#[test]
fn a_write_of_a_superseded_relist_is_one_of_others() {
    let store = store("a@1 b@2", "10", ChangeLogLimits::default());
    let mut superseded = store.begin_relist();
    let mut relist = store.begin_relist();
    for (name, version) in [("a", "1"), ("b", "2")] {
        relist.apply(Encoding::Json, &json(name, version)).map(drop).unwrap();
    }
    relist.commit("11").unwrap();
    store.open_log("11");
    assert!(store.exact_snapshot().is_some());
    superseded.apply(Encoding::Json, &json("a", "12")).map(drop).unwrap();
    assert!(store.exact_snapshot().is_none());
    observe(&store, "~a@12");
    assert_eq!((after(&store, "11").as_str(), store.exact_snapshot().is_some()), ("~a@12", true));
}

/// The log of a loaded store begins at the version of the file, so each reader at this version must have all changes.
#[test]
fn saves_only_at_a_version_whose_readers_lack_no_change() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (events, expected) in [
        ("", true),
        ("~a@12", true),
        ("-a@13", true),
        ("-a@13 -b@13", false),
        ("-a@13 -b@13 ~c@14", true),
        ("-a@13 -b@13 =14", true),
        ("-a@", false),
        ("-a@ =12", true),
    ] {
        let store = store("a@1 b@2 c@3", "10", ChangeLogLimits::default());
        observe(&store, events);
        let is_saved = match store.save(file.path(), "") {
            Ok(()) => true,
            Err(FileError::Incomplete) => false,
            Err(error) => panic!("{events}: {error}"),
        };
        assert_eq!(is_saved, expected, "{events}");
    }
}

#[test]
fn drops_changes_over_the_limit_of_bytes_and_no_others() {
    // All versions have two digits, so each change of an object takes the same number of bytes.
    let log = |events, bytes| {
        let store = store("a@11 b@12", "20", ChangeLogLimits { bytes, ..ChangeLogLimits::default() });
        observe(&store, events);
        store.change_log()
    };
    let two = log("~a@21 ~a@22", usize::MAX).bytes;
    // A quarter of the limit is for frames.
    let bytes = (two..2 * two).find(|bytes| bytes - bytes / 4 == two).unwrap();
    for (events, kept, start) in [
        ("~a@21 ~a@22", 2, "20"),
        ("~a@21 ~a@22 ~a@23", 2, "21"),
        ("~a@21 ~a@22 ~a@23 ~a@24", 2, "22"),
        // The final state of a deleted object takes more.
        ("~a@21 ~a@22 -a@23", 1, "22"),
    ] {
        let status = log(events, bytes);
        assert_eq!((status.changes, status.start.as_deref()), (kept, Some(start)), "{events}");
    }
}

/// The clock is paused.
#[tokio::test(start_paused = true)]
async fn drops_changes_over_the_limit_of_age_and_no_others() {
    let (age, over) = (Duration::from_secs(10), Duration::from_millis(1));
    for (events, waits, later, kept, start) in [
        ("~a@12", age, "=20", 1, "10"),
        // The newest change too.
        ("~a@12", age + over, "=20", 0, "12"),
        ("-a@12 -b@12", age, "=20", 2, "10"),
        ("-a@12 -b@12", age + over, "=20", 0, "12"),
        ("~a@12", age + over, "~a@13 ~a@14", 2, "12"),
        // They share the newest version.
        ("-a@12", age + over, "-b@12", 1, "12"),
        ("-a@12 -b@12", age + over, "-c@12", 2, "12"),
    ] {
        let store = store("a@1 b@2 c@3", "10", ChangeLogLimits { age, ..ChangeLogLimits::default() });
        observe(&store, events);
        tokio::time::advance(waits).await;
        observe(&store, later);
        let status = store.change_log();
        assert_eq!((status.changes, status.start.as_deref()), (kept, Some(start)), "{events}, {waits:?}, {later}");
    }
    // A change without a version happened before the next version, at which readers have it.
    let store = store("a@1 b@2", "10", ChangeLogLimits { age, ..ChangeLogLimits::default() });
    observe(&store, "-b@");
    tokio::time::advance(age).await;
    observe(&store, "~a@12 ~a@13");
    tokio::time::advance(over).await;
    observe(&store, "=20");
    assert_eq!(["10", "12"].map(|version| after(&store, version)), ["expired", "~a@13"]);
}

type View = BTreeMap<String, String>;

/// A reader, which reads a part of the changes, is interrupted, and resumes at the version of the last change that
/// it has.
struct Reader {
    view: View,
    version: String,
    changes: Option<ChangeCursor<[u8]>>,
}

impl Reader {
    fn read(&mut self, store: &Store<[u8]>, most: usize) {
        let changes = self.changes.take().map_or_else(|| store.changes_after(&self.version), Ok);
        let Ok(mut changes) = changes else { return self.list(store) };
        for _ in 0..most {
            let Ok(next) = changes.try_next() else { return self.list(store) };
            let Some(change) = next else { break };
            let object = change.object();
            match change.kind() {
                EventType::Deleted => self.view.remove(object.name()),
                _ => self.view.insert(object.name().to_owned(), object.resource_version().to_owned()),
            };
            change.resource_version().clone_into(&mut self.version);
        }
        self.changes = Some(changes);
    }

    fn list(&mut self, store: &Store<[u8]>) {
        let snapshot = store.exact_snapshot().unwrap();
        self.view = view(&snapshot);
        snapshot.resource_version().clone_into(&mut self.version);
    }
}

fn view(snapshot: &Snapshot<[u8]>) -> View {
    snapshot.iter().map(|object| (object.name().to_owned(), object.resource_version().to_owned())).collect()
}

/// A server whose deletions share versions or have none, and whose objects may be older than when they appear.
#[test]
fn readers_converge_whatever_the_versions_of_changes() {
    for seed in 0..2000 {
        let mut rng = Rng::with_seed(seed);
        let mut limits = ChangeLogLimits::default();
        if rng.bool() {
            limits.bytes = rng.usize(..4000);
        }
        let store = store("", "10", limits);
        let (mut objects, mut now, mut events) = (View::new(), 10_u64, VecDeque::new());
        let mut readers: Vec<_> =
            (0..3).map(|_| Reader { view: View::new(), version: "10".to_owned(), changes: None }).collect();
        for _ in 0..rng.usize(1..60) {
            now += rng.u64(1..3);
            let version = now.to_string();
            match rng.u8(..8) {
                0 => {
                    let gone: Vec<_> = objects.keys().filter(|_| rng.bool()).cloned().collect();
                    for name in gone {
                        objects.remove(&name);
                        events.push_back(format!("-{name}@{version}"));
                    }
                }
                1 => {
                    if let Some((name, last)) = rng.choice(objects.clone()) {
                        objects.remove(&name);
                        events.push_back(format!("-{name}@{}", if rng.bool() { "" } else { &last }));
                    }
                }
                2 => events.push_back(format!("={version}")),
                3 => {
                    let (name, old) = (format!("g{}", rng.u8(..3)), rng.u64(1..10).to_string());
                    // The user gains access to an object, which is older than the collection was at first.
                    if let Entry::Vacant(entry) = objects.entry(name) {
                        events.push_back(format!("+{}@{old}", entry.key()));
                        entry.insert(old);
                    }
                }
                _ => {
                    let name = format!("o{}", rng.u8(..6));
                    let sign = if objects.insert(name.clone(), version.clone()).is_some() { '~' } else { '+' };
                    events.push_back(format!("{sign}{name}@{version}"));
                }
            }
            while rng.bool()
                && let Some(event) = events.pop_front()
            {
                observe(&store, &event);
            }
            // Also compares the counted bytes of the log with the bytes of its changes.
            _ = store.memory();
            for reader in &mut readers {
                match rng.u8(..8) {
                    // It lists the collection from the server itself, which is ahead.
                    0 => {
                        *reader = Reader { view: objects.clone(), version: now.to_string(), changes: None };
                    }
                    1 | 2 => reader.changes = None,
                    _ => reader.read(&store, rng.usize(..5)),
                }
            }
        }
        for event in &events {
            observe(&store, event);
        }
        assert_eq!(view(&store.snapshot()), objects, "seed {seed}: the store");
        for reader in &mut readers {
            // Twice, because the first read may end in a list.
            reader.read(&store, usize::MAX);
            reader.read(&store, usize::MAX);
            assert_eq!(reader.view, objects, "seed {seed}: a reader at {}", reader.version);
        }
    }
}
