//! A crash at any moment loses at most what was not committed.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use listwatch_history::{History, Point};

use crate::support::{Cluster, RESOURCE, at_version, objects, recorder, small, time};

const SEED: u64 = 31;

/// Returns the newest recorded version, after checking its state.
fn newest(dir: &Path, cluster: &Cluster) -> Option<u64> {
    let history = History::open(dir).ok()?;
    let past = history.at(&RESOURCE, &Point::Newest).unwrap();
    let version = past.resource_version().parse().unwrap();
    assert_eq!(&objects(&past), cluster.at(version), "version {version}");
    Some(version)
}

/// The child that is killed. It prints each version that is committed.
#[test]
#[ignore = "another test runs it as a child process"]
fn records_until_it_is_killed() {
    let dir = std::env::var("HISTORY").unwrap();
    let mut cluster = Cluster::new(SEED);
    let mut recording = recorder(Path::new(&dir), &cluster, small());
    for second in 0..100_000 {
        cluster.change();
        recording.tick(time(second)).unwrap();
        println!("\ncommitted {}", cluster.version);
    }
}

#[test]
fn a_killed_recorder_loses_nothing_that_was_committed() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crash::records_until_it_is_killed", "--exact", "--ignored", "--nocapture"])
            .env("HISTORY", dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut committed = lines.by_ref().filter_map(|line| line.strip_prefix("committed ")?.parse::<u64>().ok());
        let mut last = 0;
        for _ in 0..random.u32(1..150) {
            last = committed.next().unwrap();
        }
        // At some moment of the next commits.
        (0..random.u32(..200_000)).for_each(|number| _ = std::hint::black_box(number));
        child.kill().unwrap();
        child.wait().unwrap();
        // What it printed before it was killed.
        last = committed.last().unwrap_or(last);
        // The same changes again.
        let mut cluster = Cluster::new(SEED);
        while cluster.version < last + 50 {
            cluster.change();
        }
        let newest = newest(dir.path(), &cluster).unwrap();
        assert!(newest >= last, "{newest} is recorded, {last} was committed");
        let history = History::open(dir.path()).unwrap();
        assert_eq!(history.check().unwrap().damage, [""; 0]);
        // Another recorder opens it.
        drop(listwatch_history::Recorder::open(dir.path(), small()).unwrap());
    }
}

/// Copies the files as a loss of power would leave them: SQLite's log ends anywhere.
#[test]
fn a_loss_of_power_at_each_write_leaves_an_earlier_commit() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(32);
    (0..10).for_each(|_| cluster.change());
    let mut recording = recorder(dir.path(), &cluster, small());
    let mut committed = Vec::new();
    for second in 0..30 {
        cluster.change();
        recording.tick(time(second)).unwrap();
        committed.push(cluster.version);
    }
    let [part, log] = ["part-000001.db", "part-000001.db-wal"].map(|name| fs::read(dir.path().join(name)).unwrap());
    // A frame has 24 bytes and a page, and the log begins with 32 bytes.
    let boundaries = (32..=log.len()).step_by(4096 + 24);
    let lens: Vec<_> = boundaries.flat_map(|end| [end, end - 1, (end + 2000).min(log.len())]).chain([0, 31]).collect();
    assert!(lens.len() > 60, "{}", log.len());
    let mut found = Vec::new();
    for len in lens {
        let copy = tempfile::tempdir().unwrap();
        fs::write(copy.path().join("part-000001.db"), &part).unwrap();
        fs::write(copy.path().join("part-000001.db-wal"), &log[..len]).unwrap();
        let newest = newest(copy.path(), &cluster).unwrap();
        found.push(newest);
        let history = History::open(copy.path()).unwrap();
        assert_eq!(history.check().unwrap().damage, [""; 0], "{len}");
        assert_eq!(&at_version(&history, newest), cluster.at(newest));
    }
    found.sort_unstable();
    found.dedup();
    assert!(found.contains(committed.last().unwrap()) && found.len() > 10, "{found:?}");
}
