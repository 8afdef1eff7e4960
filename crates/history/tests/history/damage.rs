//! Damage of any byte ends in an error that names the file, or in the right answer.

use std::fs;
use std::path::Path;

use listwatch_history::{History, HistoryError, Point};

use crate::support::{Cluster, Objects, RESOURCE, recorder, time};

fn read(dir: &Path, version: u64) -> Result<Objects, HistoryError> {
    let past = History::open(dir)?.at(&RESOURCE, &Point::Version(version.to_string()))?;
    let mut objects = Objects::new();
    for object in &past {
        let object = object?;
        objects.insert(
            format!("{}/{}", object.namespace(), object.name()),
            String::from_utf8_lossy(object.bytes()).into_owned(),
        );
    }
    Ok(objects)
}

#[test]
fn each_damaged_byte_is_named_or_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(21);
    (0..20).for_each(|_| cluster.change());
    let mut options = crate::support::small();
    options.period_changes = 12;
    let mut recording = recorder(dir.path(), &cluster, options);
    recording.tick(time(0)).unwrap();
    let mut versions = Vec::new();
    for second in 1..12 {
        (0..3).for_each(|_| cluster.change());
        recording.tick(time(second)).unwrap();
        versions.push(cluster.version);
    }
    drop(recording);
    let path = dir.path().join("part-000001.db");
    let sound = fs::read(&path).unwrap();
    assert!(!dir.path().join("part-000001.db-wal").exists(), "closing the last connection empties the log");
    let wrong_is_named = |at: usize, error: &HistoryError| {
        let text = error.to_string();
        let is_named = matches!(error, HistoryError::Unknown(_)) || text.contains("part-000001.db");
        assert!(is_named, "byte {at}: {text}");
    };
    // All bytes with LISTWATCH_THOROUGH, else some of each page.
    let step = if std::env::var_os("LISTWATCH_THOROUGH").is_some() { 1 } else { 41 };
    let (mut named, mut harmless) = (0, 0);
    for at in (0..sound.len()).step_by(step) {
        let mut damaged = sound.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&path, &damaged).unwrap();
        let version = versions[at % versions.len()];
        match read(dir.path(), version) {
            Ok(objects) => {
                assert!(&objects == cluster.at(version), "byte {at}: another state");
                harmless += 1;
            }
            Err(error) => {
                wrong_is_named(at, &error);
                named += 1;
            }
        }
        _ = fs::remove_file(dir.path().join("part-000001.db-wal"));
        _ = fs::remove_file(dir.path().join("part-000001.db-shm"));
    }
    println!("{named} named, {harmless} harmless of {} bytes", sound.len());
    assert!(named > 20 && harmless > 20);
    // Truncated at any place.
    for len in (0..sound.len()).step_by(997) {
        fs::write(&path, &sound[..len]).unwrap();
        match read(dir.path(), versions[0]) {
            Ok(objects) => assert_eq!(&objects, cluster.at(versions[0]), "length {len}"),
            Err(error) => wrong_is_named(len, &error),
        }
    }
}

#[test]
fn damage_costs_what_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(22);
    for name in 0..30 {
        cluster.change_object("a", &format!("web-{name}"));
    }
    let mut recording = recorder(dir.path(), &cluster, crate::support::small());
    recording.tick(time(0)).unwrap();
    drop(recording);
    let path = dir.path().join("part-000001.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    let damage =
        "UPDATE base SET data = CAST(substr(data, 1, 12) || x'deadbeef' || substr(data, 17) AS BLOB) WHERE id = 7";
    assert_eq!(connection.execute(damage, []).unwrap(), 1);
    drop(connection);
    let history = History::open(dir.path()).unwrap();
    let past = history.at(&RESOURCE, &Point::Newest).unwrap();
    let (read, damaged): (Vec<_>, Vec<_>) = past.iter().partition(Result::is_ok);
    assert_eq!((read.len(), damaged.len()), (29, 1));
    let report = history.check().unwrap();
    assert_eq!(report.damage.len(), 1, "{report:?}");
    assert!(report.damage[0].ends_with("part-000001.db is damaged: row 7 of base"), "{report:?}");
    // Recording continues, and a new part says that the object is lost until it changes.
    let mut recording = recorder(dir.path(), &cluster, crate::support::small());
    for second in 1..100 {
        cluster.change_object("b", "other");
        recording.tick(time(second)).unwrap();
    }
    assert!(recording.status().parts > 1);
    assert_eq!(history.at(&RESOURCE, &Point::Newest).unwrap().iter().filter(Result::is_err).count(), 1);
}

#[test]
fn a_damaged_newest_part_costs_a_gap_and_not_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(23);
    let mut recording = recorder(dir.path(), &cluster, crate::support::small());
    for second in 0..10 {
        cluster.change();
        recording.tick(time(second)).unwrap();
    }
    drop(recording);
    let connection = rusqlite::Connection::open(dir.path().join("part-000001.db")).unwrap();
    assert!(connection.execute("DELETE FROM tail WHERE id = 2", []).unwrap() == 1);
    drop(connection);
    let mut recording = recorder(dir.path(), &cluster, crate::support::small());
    for second in 10..20 {
        cluster.change();
        recording.tick(time(second)).unwrap();
    }
    assert_eq!(read(dir.path(), cluster.version).unwrap(), cluster.objects);
    let report = History::open(dir.path()).unwrap().check().unwrap();
    assert_eq!((report.parts, report.damage.len()), (2, 1), "{report:?}");
    assert!(report.damage[0].ends_with("part-000001.db is damaged: commit 2 is missing"), "{report:?}");
}
