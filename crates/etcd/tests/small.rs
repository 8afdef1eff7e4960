//! Small files: `small.db` is the test file of etcd-io/auger (Apache License 2.0), commit dd03329b, which a real etcd
//! wrote. It has three objects and the API server's own key of compaction. `branches.db` has what a larger file has,
//! with small pages; `e2e/apiserver/boltdiff` wrote it with bbolt.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek, SeekFrom, Write};

use listwatch_etcd::{DataFile, Error, ErrorKind, is_data_file};

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/etcd_file.rs"]
mod target;

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/small.db");
const BRANCHES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/branches.db");

/// The create and mod revision, the version and the value of each key.
type Values = BTreeMap<String, (i64, i64, i64, Vec<u8>)>;

fn read(file: &DataFile, prefix: &str) -> Result<Values, Error> {
    let mut state = file.state(prefix.as_bytes(), None, 1 << 20)?;
    let mut values = BTreeMap::new();
    let mut last = String::new();
    while let Some(entry) = state.next()? {
        let key = String::from_utf8_lossy(entry.key).into_owned();
        assert!(entry.key.starts_with(prefix.as_bytes()) && key > last, "{key} after {last}");
        last.clone_from(&key);
        values.insert(key, (entry.create_revision, entry.mod_revision, entry.version, entry.value.to_vec()));
    }
    Ok(values)
}

/// The result of `DataFile::open`, `check` and a read of everything.
fn read_all(path: &std::path::Path) -> Result<Values, Error> {
    let opened = DataFile::open(path)?;
    opened.check()?;
    read(&opened, "")
}

fn temporary(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn reads_the_objects_and_what_the_file_says_of_itself() {
    assert!(is_data_file(SMALL).unwrap() && !is_data_file(file!()).unwrap_or_default());
    let file = DataFile::open(SMALL).unwrap();
    assert_eq!((file.newest_revision(), file.compacted_revision()), (241_828, 241_828));
    assert_eq!((file.consistent_index(), file.size()), (Some(698_493), 20_480));
    let check = file.check().unwrap();
    assert_eq!((check.has_hash, check.buckets, check.revisions), (false, 11, 4));

    let values = read(&file, "").unwrap();
    let lines: Vec<_> = values
        .iter()
        .map(|(key, (create, at, version, value))| (&**key, *create, *at, *version, value.len()))
        .collect();
    assert_eq!(
        lines,
        [
            ("/registry/jobs/default/pi", 82_647, 82_703, 3, 638),
            ("/registry/namespaces/default", 4, 4, 1, 126),
            ("/registry/pods/default/pi-dqtsw", 82_648, 82_702, 5, 1576),
            ("compact_rev_key", 1014, 232_274, 533, 6),
        ]
    );
    assert!(values["/registry/pods/default/pi-dqtsw"].3.starts_with(b"k8s\0"));
    assert_eq!(read(&file, "/registry/pods/").unwrap().len(), 1);
    assert_eq!(read(&file, "/registry/nothing/").unwrap().len(), 0);
}

#[test]
fn tells_what_takes_the_space() {
    let file = DataFile::open(SMALL).unwrap();
    assert_eq!(file.find_root().unwrap().as_deref(), Some("/registry"));
    assert_eq!(file.missing_log_entries().unwrap(), None);
    let usage = file.usage(2, 4096).unwrap();
    assert_eq!((usage.page_size, usage.pages, usage.free_pages, usage.key_pages), (4096, 5, 0, 1));
    let counts = |usage: &listwatch_etcd::KeyUsage| (usage.keys, usage.deleted_keys, usage.old_revisions);
    let by_resource: Vec<_> = usage.by_resource.iter().map(|(name, usage)| (&**name, counts(usage))).collect();
    let one = (1, 0, 0);
    assert_eq!(
        by_resource,
        [("/registry/jobs", one), ("/registry/namespaces", one), ("/registry/pods", one), ("compact_rev_key", one)]
    );
    let namespaces: Vec<_> = usage.by_namespace.iter().map(|(name, usage)| (&**name, usage.keys)).collect();
    assert_eq!(namespaces, [("", 2), ("default", 2)]);
    let largest: Vec<_> = usage.largest.iter().map(|used| (&*used.key, used.revisions)).collect();
    assert_eq!(largest, [("/registry/pods/default/pi-dqtsw", 1), ("/registry/jobs/default/pi", 1)]);
    assert_eq!(usage.total.bytes, usage.by_resource.values().map(|usage| usage.bytes).sum::<u64>());
    // What each value has, its key and revisions, and the 17 bytes of the bucket's own key with their index.
    assert!(usage.largest[0].newest_bytes > 1576 + 31 + 33 && usage.largest[0].newest_bytes < 1576 + 31 + 60);
}

#[test]
fn refuses_states_that_the_file_does_not_have() {
    let file = DataFile::open(SMALL).unwrap();
    for (revision, text) in [
        (241_827, "revision 241827 has been compacted; the oldest complete one is 241828"),
        (241_829, "revision 241829 is newer than the file, which ends at 241828"),
    ] {
        assert_eq!(file.state(b"", Some(revision), 4096).unwrap_err().to_string(), text);
    }
}

#[test]
fn refuses_a_file_that_another_process_has_locked() {
    let copy = temporary(&fs::read(SMALL).unwrap());
    fs4::FileExt::lock(copy.as_file()).unwrap();
    let error = DataFile::open(copy.path()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InUse) && error.to_string().contains("etcdctl snapshot save"), "{error}");
    fs4::FileExt::unlock(copy.as_file()).unwrap();
    // Two readers share the lock.
    let _first = DataFile::open(copy.path()).unwrap();
    DataFile::open(copy.path()).unwrap();
}

#[test]
fn refuses_files_of_another_kind() {
    for bytes in
        [&b""[..], b"k8s\0", &vec![0; 40_000], &fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap()]
    {
        let error = DataFile::open(temporary(bytes).path()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoMeta), "{error}");
    }
    assert!(matches!(DataFile::open("/no/such/file").unwrap_err().kind(), ErrorKind::Read(_)));
}

#[test]
fn verifies_the_hash_of_a_snapshot() {
    use sha2::{Digest, Sha256};
    let mut bytes = fs::read(SMALL).unwrap();
    let hash = Sha256::digest(&bytes);
    bytes.extend_from_slice(&hash);
    let snapshot = temporary(&bytes);
    assert!(DataFile::open(snapshot.path()).unwrap().check().unwrap().has_hash);
    // A changed value, which nothing else can find.
    let at = bytes.windows(8).position(|window| window == b"pi-dqtsw").unwrap();
    bytes[at] = b'q';
    let error = DataFile::open(temporary(&bytes).path()).unwrap().check().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Hash), "{error}");
}

#[test]
fn uses_the_other_meta_page_if_one_is_damaged() {
    let bytes = fs::read(SMALL).unwrap();
    let whole = read_all(SMALL.as_ref()).unwrap();
    // The file has transaction 3 in page 1, and 2 in page 0.
    for (damaged, newest) in [(0, true), (4096, false)] {
        let mut bytes = bytes.clone();
        bytes[damaged + 20] ^= 1;
        let values = read_all(temporary(&bytes).path());
        assert!(!newest || values.unwrap() == whole, "{damaged}");
    }
    let mut bytes = bytes;
    (bytes[20], bytes[4096 + 20]) = (9, 9);
    assert!(matches!(DataFile::open(temporary(&bytes).path()).unwrap_err().kind(), ErrorKind::NoMeta));
}

#[test]
fn reads_branches_overflow_pages_older_revisions_and_deletions() {
    let file = DataFile::open(BRANCHES).unwrap();
    assert_eq!((file.newest_revision(), file.compacted_revision()), (29, 2));
    let check = file.check().unwrap();
    assert_eq!((check.buckets, check.revisions), (6, 28));
    let values = read(&file, "/registry/pods/web/").unwrap();
    let revisions: Vec<_> = values.iter().map(|(key, (_, at, ..))| (&key[19..], *at)).collect();
    // Revision N wrote key 7N modulo 11; each ninth one, from 8 on, deleted it.
    let expected =
        [("0", 22), ("1", 19), ("10", 25), ("2", 27), ("3", 24), ("4", 21), ("5", 29), ("7", 23), ("8", 20), ("9", 28)];
    assert_eq!(revisions, expected);
    assert_eq!(values["/registry/pods/web/8"].3, b"large".repeat(500));
    // Before revision 20, key 8 had the value of revision 9.
    let mut older = file.state(b"/registry/pods/web/8", Some(19), 0).unwrap();
    assert_eq!(older.next().unwrap().map(|entry| entry.mod_revision), Some(9));
    assert_eq!(older.next().unwrap().map(|entry| entry.mod_revision), None);
    let usage = file.usage(1, 0).unwrap();
    let total = usage.total;
    assert_eq!((total.keys, total.deleted_keys, total.old_revisions), (10, 1, 18));
    assert_eq!((&*usage.largest[0].key, usage.largest[0].newest_bytes > 2500), ("/registry/pods/web/8", true));
}

#[test]
fn a_damaged_byte_ends_in_an_error_or_in_values_that_bbolt_reads_too() {
    // Most of the first file is free space and values, of whose changes bbolt knows nothing. A test of `e2e` compares
    // the values with those that bbolt reads.
    for (path, least) in [(SMALL, [300, 10_000, 1000]), (BRANCHES, [1000, 10_000, 1000])] {
        let bytes = fs::read(path).unwrap();
        let whole = read_all(path.as_ref()).unwrap();
        let mut file = temporary(&bytes);
        let mut write = |at: usize, byte: u8| {
            file.seek(SeekFrom::Start(at as u64)).unwrap();
            file.write_all(&[byte]).unwrap();
            file.path().to_owned()
        };
        let [mut errors, mut same, mut changed] = [0, 0, 0];
        for (at, byte) in bytes.iter().enumerate() {
            let damaged = byte ^ [0x01, 0x80, 0xFF][at % 3];
            match read_all(&write(at, damaged)) {
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    errors += 1;
                }
                Ok(values) if values == whole => same += 1,
                Ok(_) => changed += 1,
            }
            write(at, *byte);
        }
        let counts = [errors, same, changed];
        assert!(counts.iter().zip(least).all(|(count, least)| *count > least), "{path}: {counts:?}");
    }
}

#[test]
fn a_truncated_file_is_an_error_or_complete() {
    for path in [SMALL, BRANCHES] {
        let bytes = fs::read(path).unwrap();
        let whole = read_all(path.as_ref()).unwrap();
        let file = temporary(&bytes);
        for len in (0..bytes.len()).rev() {
            file.as_file().set_len(len as u64).unwrap();
            match read_all(file.path()) {
                Ok(values) => assert_eq!(values, whole, "{len}"),
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::NoMeta | ErrorKind::Truncated { .. } | ErrorKind::Hash),
                    "{len}: {error}"
                ),
            }
        }
    }
}

/// Runs the fuzz target over its corpus and its regressions.
#[test]
fn fuzz() {
    for (name, input) in
        corpus::inputs(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz"), "etcd_file")
    {
        println!("{name}");
        target::run(&input);
    }
}

/// libFuzzer finds more, but needs a nightly toolchain.
#[test]
fn fuzz_damaged_files() {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let rounds = if std::env::var_os("LISTWATCH_THOROUGH").is_some() { 20_000 } else { 500 };
    for path in [SMALL, BRANCHES] {
        let whole = fs::read(path).unwrap();
        let page = if path == SMALL { 4096 } else { 1024 };
        for round in 0..rounds {
            let mut bytes = whole.clone();
            for _ in 0..random.usize(1..4) {
                // Faults are most likely near the beginning of a page, where its elements are.
                let at = random.usize(..bytes.len() / page) * page + random.usize(..page) / random.usize(1..32);
                match random.u32(..4) {
                    0 => bytes[at] = random.u8(..),
                    1 => bytes[at] ^= 1 << random.u32(..8),
                    2 => bytes[at] = bytes[random.usize(..bytes.len())],
                    _ => {
                        let from = random.usize(..bytes.len() / page) * page;
                        bytes.copy_within(from..from + page, at / page * page);
                    }
                }
            }
            let result = std::panic::catch_unwind(|| target::run(&bytes));
            assert!(result.is_ok(), "{path}, seed {seed}, round {round}");
        }
    }
}
