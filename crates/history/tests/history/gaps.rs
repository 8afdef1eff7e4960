//! What was not recorded is unknown, and never made up.

use listwatch_cache::{CacheWriter, ChangeLogLimits};
use listwatch_history::{ChangeKind, ChangeQuery, History, HistoryError, PastEvent, Point};

use crate::support::{Cluster, RESOURCE, at_version, objects, recorder, small, time};

/// A recorder that was away for longer than the server keeps changes: the cache is another one, from a list.
fn relisted(cluster: &mut Cluster) {
    cluster.writer = CacheWriter::new(&RESOURCE);
    for text in cluster.objects.values() {
        cluster.writer.apply(listwatch::Encoding::Json, text.as_bytes()).unwrap();
    }
    cluster.writer.bookmark(&cluster.version.to_string());
    let placeholder = CacheWriter::new(&RESOURCE);
    let writer = std::mem::replace(&mut cluster.writer, placeholder);
    cluster.writer = writer.change_log(ChangeLogLimits::default());
}

#[test]
fn a_gap_is_unknown_and_what_changed_in_it_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(11);
    (0..40).for_each(|_| cluster.change());
    let mut recording = recorder(dir.path(), &cluster, small());
    recording.tick(time(0)).unwrap();
    (0..30).for_each(|_| cluster.change());
    recording.tick(time(10)).unwrap();
    drop(recording);
    let (last, before) = (cluster.version, cluster.objects.clone());
    (0..30).for_each(|_| cluster.change());
    let middle = cluster.version;
    (0..30).for_each(|_| cluster.change());
    let (first, after) = (cluster.version, cluster.objects.clone());
    relisted(&mut cluster);
    let mut recording = recorder(dir.path(), &cluster, small());
    recording.tick(time(100)).unwrap();
    assert_eq!(recording.status().gaps, 1);
    (0..30).for_each(|_| cluster.change());
    recording.tick(time(110)).unwrap();

    let history = History::open(dir.path()).unwrap();
    assert_eq!(at_version(&history, last), before);
    assert_eq!(at_version(&history, first), after);
    assert_eq!(at_version(&history, cluster.version), cluster.objects);
    for point in [Point::Version(middle.to_string()), Point::Time(time(50)), Point::Time(time(11))] {
        let unknown = history.at(&RESOURCE, &point).unwrap_err();
        let text = unknown.to_string();
        assert!(matches!(unknown, HistoryError::Unknown(_)), "{text}");
        assert!(text.contains(&format!("between version {last} at")), "{text}");
        assert!(text.contains(&format!("and version {first} at")), "{text}");
    }
    assert_eq!(objects(&history.at(&RESOURCE, &Point::Time(time(10))).unwrap()), before);
    assert_eq!(objects(&history.at(&RESOURCE, &Point::Time(time(100))).unwrap()), after);
    let spans = history.spans(&RESOURCE).unwrap();
    assert_eq!(spans.len(), 2);

    let mut state = before;
    let mut gaps = 0;
    for event in
        history.changes(ChangeQuery { after: Some(Point::Time(time(10))), ..ChangeQuery::new(RESOURCE) }).unwrap()
    {
        let change = match event.unwrap() {
            PastEvent::Gap(gap) => {
                gaps += 1;
                assert_eq!((gap.from.0, gap.to.0), (last.to_string(), first.to_string()));
                continue;
            }
            PastEvent::Change(change) => change,
            other => panic!("{other:?}"),
        };
        assert_eq!(gaps, 1, "the gap comes before the changes that were found after it");
        assert_eq!(change.is_between, change.resource_version == first.to_string());
        if change.is_between {
            assert_eq!((change.after, change.received), (time(10), time(100)));
        }
        let key = format!("{}/{}", change.object.namespace(), change.object.name());
        match change.kind {
            ChangeKind::Deleted => drop(state.remove(&key).unwrap()),
            _ => drop(state.insert(key, String::from_utf8(change.object.bytes().to_vec()).unwrap())),
        }
    }
    assert_eq!(state, cluster.objects);
    assert_eq!(history.check().unwrap().damage, [""; 0]);
}

#[test]
fn a_version_with_other_bytes_is_reencoded_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(12);
    cluster.change_object("a", "web-1");
    let mut recording = recorder(dir.path(), &cluster, small());
    recording.tick(time(0)).unwrap();
    drop(recording);
    // A newer server writes another field, and has made another version of another object.
    let text = cluster.objects["a/web-1"].replace("\"data\"", "\"immutable\":false,\"data\"");
    cluster.objects.insert("a/web-1".to_owned(), text.clone());
    cluster.change_object("b", "web-2");
    relisted(&mut cluster);
    let mut recording = recorder(dir.path(), &cluster, small());
    recording.tick(time(10)).unwrap();
    let history = History::open(dir.path()).unwrap();
    let kinds: Vec<_> = history
        .changes(ChangeQuery::new(RESOURCE))
        .unwrap()
        .filter_map(|event| match event.unwrap() {
            PastEvent::Change(change) => Some((change.object.name().to_owned(), change.kind)),
            _ => None,
        })
        .collect();
    let expected = [("web-1".to_owned(), ChangeKind::Reencoded), ("web-2".to_owned(), ChangeKind::Added)];
    assert_eq!(kinds, expected);
    assert_eq!(at_version(&history, cluster.version)["a/web-1"], text);
}

#[test]
fn nothing_is_known_after_the_last_event_or_bookmark() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(13);
    let mut recording = recorder(dir.path(), &cluster, small());
    recording.tick(time(0)).unwrap();
    cluster.change();
    recording.tick(time(10)).unwrap();
    // Nothing is received, so nothing is known.
    recording.tick(time(20)).unwrap();
    let history = History::open(dir.path()).unwrap();
    assert!(history.at(&RESOURCE, &Point::Time(time(10))).is_ok());
    let unknown = history.at(&RESOURCE, &Point::Time(time(20))).unwrap_err().to_string();
    assert!(unknown.contains("the last that was recorded is version"), "{unknown}");
    let unknown = history.at(&RESOURCE, &Point::Time(time(-1))).unwrap_err().to_string();
    assert!(unknown.contains("the first that was recorded is version"), "{unknown}");
    cluster.bookmark();
    recording.tick(time(30)).unwrap();
    assert!(history.at(&RESOURCE, &Point::Time(time(20))).is_ok());
    let missing = history.at(&listwatch::client::Resource::PODS, &Point::Newest).unwrap_err().to_string();
    assert_eq!(missing, "pods is not in this history, which has configmaps");
}

/// The server was restored from a backup: versions begin again, with other states.
#[test]
fn versions_that_go_back_begin_a_new_span() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(14);
    (0..20).for_each(|_| cluster.change());
    let (backup, version) = (cluster.objects.clone(), cluster.version);
    let mut recording = recorder(dir.path(), &cluster, small());
    recording.tick(time(0)).unwrap();
    (0..20).for_each(|_| cluster.change());
    recording.tick(time(10)).unwrap();
    drop(recording);
    (cluster.objects, cluster.version) = (backup.clone(), version);
    relisted(&mut cluster);
    let mut recording = recorder(dir.path(), &cluster, small());
    recording.tick(time(20)).unwrap();
    (0..5).for_each(|_| cluster.change());
    recording.tick(time(30)).unwrap();
    let history = History::open(dir.path()).unwrap();
    assert_eq!(objects(&history.at(&RESOURCE, &Point::Time(time(20))).unwrap()), backup);
    // The newest span has the version.
    assert_eq!(at_version(&history, cluster.version), cluster.objects);
    assert_eq!(objects(&history.at(&RESOURCE, &Point::Newest).unwrap()), cluster.objects);
    assert_eq!(history.check().unwrap().damage, [""; 0]);
}
