//! Each state of a random history is read as it was.

use listwatch::StoreType;
use listwatch_cache::{CacheWriter, ChangeLogLimits, StorageFormat, Store};
use listwatch_history::{ChangeKind, ChangeQuery, History, HistoryError, PastEvent, Point};

use crate::support::{Cluster, Objects, RESOURCE, at_version, objects, recorder, small, time};

#[test]
fn each_version_and_time_is_read_as_it_was() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(seed);
    for _ in 0..20 {
        cluster.change();
    }
    let first = cluster.version;
    let mut recording = recorder(dir.path(), &cluster, small());
    recording.tick(time(-1)).unwrap();
    // The version and the state at each second.
    let mut seconds = Vec::new();
    for second in 0..150 {
        match cluster.random.u8(..10) {
            0 => cluster.bookmark(),
            // Another recorder continues.
            1 => {
                drop(recording);
                recording = recorder(dir.path(), &cluster, small());
            }
            _ => (0..cluster.random.u8(..6)).for_each(|_| cluster.change()),
        }
        recording.tick(time(second)).unwrap();
        seconds.push((cluster.version, cluster.objects.clone()));
    }
    assert!(recording.status().parts > 2 && recording.status().gaps == 0, "{:?}", recording.status());

    let history = History::open(dir.path()).unwrap();
    for version in first..=cluster.version {
        assert_eq!(&at_version(&history, version), cluster.at(version), "version {version}");
    }
    for (second, (version, state)) in seconds.iter().enumerate() {
        let point = Point::Time(time(second.try_into().unwrap()));
        let past = match history.at(&RESOURCE, &point) {
            Ok(past) => past,
            // Nothing was received in the last seconds.
            Err(HistoryError::Unknown(_)) if seconds[second..].iter().all(|(later, _)| later == version) => continue,
            Err(error) => panic!("{second}: {error}"),
        };
        assert_eq!(&objects(&past), state, "second {second}");
        assert_eq!(past.resource_version(), version.to_string(), "second {second}");
    }
    for version in [first - 1, cluster.version + 1] {
        let unknown = history.at(&RESOURCE, &Point::Version(version.to_string())).unwrap_err();
        assert!(matches!(unknown, HistoryError::Unknown(_)), "{unknown}");
    }
    assert_eq!(objects(&history.at(&RESOURCE, &Point::Newest).unwrap()), cluster.objects);
    changes_lead_from_state_to_state(&history, &cluster, first);
    let report = history.check().unwrap();
    assert_eq!(report.damage, [""; 0]);
    assert!(report.states > 300, "{report:?}");
}

fn changes_lead_from_state_to_state(history: &History, cluster: &Cluster, first: u64) {
    let mut state = cluster.at(first).clone();
    let mut last = first;
    for event in history.changes(ChangeQuery::new(RESOURCE)).unwrap() {
        let PastEvent::Change(change) = event.unwrap() else { panic!("a gap") };
        let version = change.resource_version.parse().unwrap();
        assert!(version > last && change.after < change.received, "{change:?}");
        let key = format!("{}/{}", change.object.namespace(), change.object.name());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(change.old.as_ref().map(|old| text(old.bytes())), state.get(&key).cloned(), "{version}");
        assert_eq!(change.kind == ChangeKind::Added, change.old.is_none());
        match change.kind {
            ChangeKind::Deleted => drop(state.remove(&key)),
            _ => drop(state.insert(key, text(change.object.bytes()))),
        }
        assert_eq!(&state, cluster.at(version), "version {version}");
        last = version;
    }
    assert_eq!(state, cluster.objects);
}

#[test]
fn a_range_has_only_its_changes() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(3);
    let mut recording = recorder(dir.path(), &cluster, small());
    recording.tick(time(0)).unwrap();
    let mut versions = Vec::new();
    for second in 1..100 {
        cluster.change();
        versions.push(cluster.version);
        recording.tick(time(second)).unwrap();
    }
    let history = History::open(dir.path()).unwrap();
    let found = |query: ChangeQuery| -> Vec<u64> {
        let events = history.changes(query).unwrap().map(|event| match event.unwrap() {
            PastEvent::Change(change) => change.resource_version.parse().unwrap(),
            other => panic!("{other:?}"),
        });
        events.collect()
    };
    let version = |at: usize| Some(Point::Version(versions[at].to_string()));
    for (after, until, expected) in [
        (None, None, &versions[..]),
        (version(9), version(70), &versions[10..=70]),
        (Some(Point::Time(time(10))), Some(Point::Time(time(71))), &versions[10..=70]),
        (Some(Point::Newest), None, &[]),
    ] {
        assert_eq!(found(ChangeQuery { after, until, ..ChangeQuery::new(RESOURCE) }), expected);
    }
    let all = found(ChangeQuery::new(RESOURCE)).len();
    let of_namespaces: usize = ["a", "a-b", "b"]
        .into_iter()
        .map(|namespace| {
            found(ChangeQuery { namespace: Some(namespace.to_owned()), ..ChangeQuery::new(RESOURCE) }).len()
        })
        .sum();
    assert_eq!(all, of_namespaces);
}

/// A restart of the process: the cache is filled from the history, and the watch resumes.
#[test]
fn a_new_cache_that_is_filled_from_the_history_continues_without_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(5);
    for _ in 0..50 {
        cluster.change();
    }
    let mut recording = recorder(dir.path(), &cluster, small());
    for second in 0..20 {
        cluster.change();
        recording.tick(time(second)).unwrap();
    }
    drop(recording);
    let store = Store::<[u8]>::new(StorageFormat::Compressed);
    let resumes = History::open(dir.path()).unwrap().fill(&RESOURCE, &store).unwrap().unwrap();
    assert!(resumes.parse::<u64>().unwrap() <= cluster.version);
    let filled: Objects = store
        .snapshot()
        .iter()
        .map(|object| (object.key().to_string(), String::from_utf8(object.encoded().unwrap().to_vec()).unwrap()))
        .collect();
    assert_eq!(filled, cluster.objects);
}

#[test]
fn old_parts_are_dropped_by_age_and_by_size_and_the_rest_stays_readable() {
    for (keep, max_size) in [(30, None), (10_000, Some(400_000))] {
        let dir = tempfile::tempdir().unwrap();
        let mut cluster = Cluster::new(6);
        let mut options = small();
        options.keep = std::time::Duration::from_secs(keep);
        options.max_size = max_size;
        let mut recording = recorder(dir.path(), &cluster, options);
        let mut dropped = 0;
        for second in 0..200 {
            (0..5).for_each(|_| cluster.change());
            recording.tick(time(second)).unwrap();
            let history = History::open(dir.path()).unwrap();
            assert_eq!(at_version(&history, cluster.version), cluster.objects);
            let first = history.spans(&RESOURCE).unwrap()[0].first_version.parse().unwrap();
            dropped += u32::from(first > 1);
            assert_eq!(&at_version(&history, first), cluster.at(first));
        }
        assert!(dropped > 50, "{keep} {max_size:?}");
        if let Some(max_size) = max_size {
            assert!(recording.status().bytes < max_size * 5 / 4, "{:?}", recording.status());
        }
    }
}

#[test]
fn a_second_recorder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(1);
    let recording = recorder(dir.path(), &cluster, small());
    let refused = listwatch_history::Recorder::open(dir.path(), small()).unwrap_err();
    assert!(matches!(refused, HistoryError::Locked(_)), "{refused}");
    drop(recording);
    drop(recorder(dir.path(), &cluster, small()));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap().path().join("new");
        drop(recorder(&dir, &cluster, small()));
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn an_object_of_protobuf_stays_as_it_is() {
    use k8s_pb::api::core::v1::ConfigMap;
    use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    let dir = tempfile::tempdir().unwrap();
    let writer = CacheWriter::<[u8]>::new(&RESOURCE).change_log(ChangeLogLimits::default());
    let mut recording = listwatch_history::Recorder::open(dir.path(), small()).unwrap();
    recording.attach(writer.cache());
    let mut states = Vec::new();
    for version in 2..80_u32 {
        let metadata = ObjectMeta {
            name: Some("web".to_owned()),
            namespace: Some("shop".to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        };
        let data = [("key".to_owned(), "x".repeat(version as usize))].into_iter().collect();
        let object = ConfigMap { metadata: Some(metadata), data, ..ConfigMap::default() };
        let bytes = <ConfigMap as StoreType>::encode(&object).unwrap();
        writer.apply(listwatch::Encoding::Protobuf, &bytes).unwrap();
        recording.tick(time(version.into())).unwrap();
        states.push((version, bytes));
    }
    let history = History::open(dir.path()).unwrap();
    for (version, bytes) in states {
        let past = history.at(&RESOURCE, &Point::Version(version.to_string())).unwrap();
        let object = past.get(("shop", "web")).unwrap().unwrap();
        assert_eq!((object.bytes(), object.encoding()), (&*bytes, listwatch::Encoding::Protobuf));
    }
}
