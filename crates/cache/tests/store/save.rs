//! Stores in files: a store loads what another store saved, and a damaged file is an error.

use std::fs;
use std::path::Path;

use allocation_counter::measure;
use fastrand::Rng;
use listwatch::{Encoding, ItemError};
use listwatch_cache::{Change, FileError, StorageFormat, Store, StoreError, StoreType};
use tempfile::TempDir;

use crate::support::store::object;
use crate::trained::trained;

const FORMATS: &[StorageFormat] = &[StorageFormat::Encoded, StorageFormat::Compressed];

const COLLECTION: &str = "/api/v1/things";

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Fills a store with objects in both encodings, some alike, some of seven delta groups, some incompressible.
fn fill<T: StoreType + ?Sized>(store: &Store<T>, objects: usize, version: &str) {
    let mut rng = Rng::with_seed(7);
    let mut relist = store.begin_relist();
    for i in 0..objects {
        let noise: String = (0..if i % 10 == 0 { 300 } else { 0 }).map(|_| rng.alphanumeric()).collect();
        let text = format!("the image of {} is registry.example.com/shop:{i} {noise}", i % 7);
        let mut shared = Rng::with_seed(i as u64 % 7);
        let shared: String = (0..if i % 2 == 0 { 300 } else { 0 }).map(|_| shared.alphanumeric()).collect();
        let object = object(&format!("ns-{}", i % 3), &format!("o-{i}"), &(i + 1).to_string()).data(text + &shared);
        let object = object.owner(&format!("owner {}", i % 7));
        let encoding = if i % 4 == 3 { Encoding::Json } else { Encoding::Protobuf };
        let _ = relist.apply(encoding, &object.to_bytes(encoding)).unwrap();
    }
    relist.commit(version).unwrap();
}

/// Returns all objects, in order.
fn seen<T: StoreType + ?Sized>(store: &Store<T>) -> Vec<String> {
    let mut seen: Vec<_> = store
        .snapshot()
        .iter()
        .map(|object| format!("{object:?} {:?} {:?}", object.encoding(), object.encoded().unwrap()))
        .collect();
    seen.sort();
    seen
}

fn loaded(path: &Path, format: StorageFormat) -> Result<Store<[u8]>, FileError> {
    let store = Store::new(format);
    store.load(path, COLLECTION)?;
    Ok(store)
}

#[test]
fn loads_a_saved_store() {
    let (folder, path) = path();
    for objects in [0, 3, 700] {
        for &from in FORMATS {
            let before = Store::<[u8]>::new(from);
            fill(&before, objects, "1000");
            before.save(&path, COLLECTION).unwrap();
            for &to in FORMATS {
                let after = Store::<[u8]>::new(to);
                let by_namespace =
                    after.index("namespace", |object| Ok::<_, ItemError>([object.meta()?.namespace().into_owned()]));
                let mut subscriber = after.subscribe().start();
                after.load(&path, COLLECTION).unwrap();
                assert_eq!(seen(&after), seen(&before), "{objects} {from:?} {to:?}");
                assert_eq!((after.resource_version(), after.len()), ("1000".to_owned(), objects));
                assert_eq!(by_namespace.count("ns-0"), objects.div_ceil(3));
                let mut applied = 0;
                while let Some(change) = subscriber.try_next() {
                    match change {
                        Change::Applied { .. } => applied += 1,
                        Change::Synced => assert_eq!(applied, objects, "synced is the last change"),
                        change => panic!("{change:?}"),
                    }
                }
                assert_eq!(applied, objects);
                // A loaded store accepts writes and relists.
                let _ = after.apply(Encoding::Protobuf, &bytes("ns-0", "new", "1001")).unwrap();
                after.advance("1001");
                let mut relist = after.begin_relist();
                let _ = relist.apply(Encoding::Protobuf, &bytes("ns-0", "new", "1001")).unwrap();
                relist.commit("1002").unwrap();
                assert_eq!(after.len(), 1);
            }
        }
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "a save leaves only its file");
}

fn path() -> (TempDir, std::path::PathBuf) {
    let folder = folder();
    let path = folder.path().join("things");
    (folder, path)
}

fn bytes(namespace: &str, name: &str, version: &str) -> Vec<u8> {
    object(namespace, name, version).to_bytes(Encoding::Protobuf)
}

#[test]
fn a_compressed_store_is_saved_and_loaded_compressed() {
    let (_folder, path) = path();
    let before = trained((0..100).map(|i| object("ns", &i.to_string(), "1").data(format!("{i} of a kind ").repeat(9))));
    fill(&before, 2000, "3000");
    before.save(&path, COLLECTION).unwrap();
    let after = loaded(&path, StorageFormat::Compressed).unwrap();
    let compressed = |store: &Store<[u8]>| (store.memory().compressed, store.memory().encoded);
    assert_eq!(compressed(&after), compressed(&before));
    // The dictionary compresses later writes.
    for store in [&before, &after] {
        let thing = object("ns-0", "new", "3001").data("the image of 3 is registry.example.com/shop:3 ".repeat(9));
        let _ = store.apply(Encoding::Protobuf, &thing.to_bytes(Encoding::Protobuf)).unwrap();
    }
    assert_eq!(compressed(&after), compressed(&before));
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_folder, path) = path();
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    fill(&store, 1, "7");
    store.save(&path, COLLECTION).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn refuses_to_save_an_incomplete_collection() {
    let (_folder, path) = path();
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let is_incomplete = || matches!(store.save(&path, COLLECTION), Err(FileError::Incomplete));
    assert!(is_incomplete(), "the store has no version");
    let _ = store.apply(Encoding::Protobuf, &bytes("ns", "a", "1")).unwrap();
    assert!(is_incomplete());
    fill(&store, 2, "10");
    store.save(&path, COLLECTION).unwrap();
    let relist = store.begin_relist();
    store.save(&path, COLLECTION).unwrap();
    drop(relist);
    store.save(&path, COLLECTION).unwrap();
    let mut relist = store.begin_relist();
    let _ = relist.apply(Encoding::Protobuf, &object("ns-0", "o-0", "1").to_bytes(Encoding::Protobuf)).unwrap();
    let _ = relist.apply(Encoding::Protobuf, &bytes("ns", "a", "11")).unwrap();
    assert!(is_incomplete(), "a relist is in progress");
    drop(relist);
    assert!(is_incomplete(), "a part of the list was written");
    assert_eq!(loaded(&path, StorageFormat::Encoded).unwrap().resource_version(), "10", "the previous file is intact");
    fill(&store, 3, "12");
    store.save(&path, COLLECTION).unwrap();
    assert_eq!(loaded(&path, StorageFormat::Encoded).unwrap().len(), 3);
    store.set_budget(Some(1));
    assert!(store.apply(Encoding::Protobuf, &bytes("ns", "b", "13")).is_err());
    assert!(is_incomplete(), "a watch from this version does not send the skipped object");
}

#[test]
fn rejects_a_file_of_another_collection_or_format() {
    let (folder, path) = path();
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    fill(&store, 3, "10");
    let error = loaded(&path, StorageFormat::Encoded).err().map(|error| error.to_string());
    let expected = "the file cannot be read or written: no such file or directory";
    assert_eq!(error.as_deref(), Some(expected));
    store.save(&path, "/api/v1/others").unwrap();
    let error = loaded(&path, StorageFormat::Encoded).unwrap_err();
    assert_eq!(error.to_string(), "the file contains /api/v1/others, not /api/v1/things");
    fs::write(&path, b"").unwrap();
    assert!(matches!(loaded(&path, StorageFormat::Encoded), Err(FileError::NotSaved)));
    fs::write(&path, [b'x'; 1000]).unwrap();
    assert!(matches!(loaded(&path, StorageFormat::Encoded), Err(FileError::NotSaved)));
    fs::write(&path, b"lw-cache\xff\0\0\0 of the future").unwrap();
    assert!(matches!(loaded(&path, StorageFormat::Encoded), Err(FileError::Format(0xff))));
    assert!(matches!(loaded(folder.path(), StorageFormat::Encoded), Err(FileError::Io(_))));
    store.save(&path, COLLECTION).unwrap();
    assert!(matches!(store.load(&path, COLLECTION), Err(FileError::NotEmpty)));
    assert_eq!(store.len(), 3);
}

#[test]
fn rejects_a_file_with_any_byte_changed_missing_or_added() {
    let (_folder, path) = path();
    let mut rng = Rng::with_seed(5);
    // A small file, and a file with a dictionary.
    for (&format, objects, flips) in FORMATS.iter().flat_map(|of| [(of, 4, usize::MAX), (of, 70, 100)]) {
        let store = Store::<[u8]>::new(format);
        fill(&store, objects, "100");
        store.save(&path, COLLECTION).unwrap();
        let whole = fs::read(&path).unwrap();
        let is_error = |file: &[u8], what: &str| {
            overwrite(&path, file);
            let store = Store::<[u8]>::new(format);
            assert!(store.load(&path, COLLECTION).is_err(), "{format:?}: {what}");
            assert!(store.is_empty() && store.resource_version().is_empty(), "{format:?}: {what}");
        };
        let mut places: Vec<_> = (0..whole.len()).collect();
        rng.shuffle(&mut places);
        for at in places.into_iter().take(flips) {
            for flip in [1, 0x80, 0xff] {
                let mut file = whole.clone();
                file[at] ^= flip;
                is_error(&file, &format!("byte {at} ^ {flip}"));
            }
            is_error(&whole[..at], &format!("truncated at {at}"));
        }
        for more in [&b"\0"[..], b"more", &whole] {
            is_error(&[&whole[..], more].concat(), "bytes added");
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(seen(&loaded(&path, format).unwrap()), seen(&store));
    }
}

/// Writes a new file, because some file systems flush a truncated file, which is slow.
fn overwrite(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A forged file with a valid checksum may load or be refused, and takes little memory.
#[test]
fn a_forged_file_causes_no_panic_and_no_large_allocation() {
    let (_folder, path) = path();
    let mut rng = Rng::with_seed(3);
    for &format in FORMATS {
        let store = Store::<[u8]>::new(format);
        fill(&store, 120, "200");
        store.save(&path, COLLECTION).unwrap();
        let whole = fs::read(&path).unwrap();
        let (body, _) = whole.split_at(whole.len() - 4);
        for _ in 0..1000 {
            let mut file = body.to_vec();
            for _ in 0..rng.u8(1..4) {
                // Half of the changes are near the beginning, where the head is.
                let most = if rng.bool() { file.len() } else { 200 };
                let at = rng.usize(12..most);
                match rng.u8(..4) {
                    0 => file[at] = rng.u8(..),
                    1 => file[at] = 0xff,
                    2 => drop(file.remove(at)),
                    _ => drop(file.drain(at..rng.usize(at..=(at + 40).min(file.len())))),
                }
            }
            let mut sum = flate2::Crc::new();
            sum.update(&file);
            file.extend(sum.sum().to_le_bytes());
            overwrite(&path, &file);
            let to = FORMATS[rng.usize(..FORMATS.len())];
            let mut allocated = 0;
            let counted = measure(|| {
                if let Ok(store) = loaded(&path, to) {
                    allocated = store.len();
                    for object in store.snapshot().iter() {
                        drop(object.encoded());
                        drop(object.decode());
                    }
                }
            });
            assert!(counted.bytes_max < 40 << 20, "{} bytes", counted.bytes_max);
        }
    }
}

/// Files keep these numbers forever.
#[test]
fn names_an_encoding_by_its_number_and_refuses_an_unknown_one() {
    let (_folder, path) = path();
    for (encoding, number) in [(Encoding::Protobuf, 0), (Encoding::Json, 1)] {
        let store = Store::<[u8]>::new(StorageFormat::Encoded);
        let mut relist = store.begin_relist();
        drop(relist.apply(encoding, &object("ns", "o", "7").to_bytes(encoding)).unwrap());
        relist.commit("9").unwrap();
        store.save(&path, COLLECTION).unwrap();
        let mut file = fs::read(&path).unwrap();
        // The second record, after its length and kind: magic and format precede the first.
        let head = u64::from_le_bytes(file[12..20].try_into().unwrap());
        let at = 20 + usize::try_from(head).unwrap() + 8 + 1;
        assert_eq!(file[at - 1..=at], [2, number], "{encoding}");
        assert_eq!(seen(&loaded(&path, StorageFormat::Encoded).unwrap()), seen(&store));
        file[at] = 2;
        file.truncate(file.len() - 4);
        let mut sum = flate2::Crc::new();
        sum.update(&file);
        file.extend(sum.sum().to_le_bytes());
        overwrite(&path, &file);
        assert!(matches!(loaded(&path, StorageFormat::Encoded), Err(FileError::Damaged { .. })), "{encoding}");
    }
}

#[test]
fn saving_and_loading_take_little_additional_memory() {
    let (_folder, path) = path();
    let most = [4000, 16_000].map(|objects| {
        let store = Store::<[u8]>::new(StorageFormat::Encoded);
        fill(&store, objects, "10000");
        let saving = measure(|| store.save(&path, COLLECTION).unwrap()).bytes_max;
        let mut after = None;
        let loading = measure(|| after = Some(loaded(&path, StorageFormat::Encoded).unwrap()));
        // For a load, only the memory in addition to the loaded store counts.
        (saving, loading.bytes_max - u64::try_from(loading.bytes_current).unwrap(), after.map(|after| after.len()))
    });
    println!("{most:?}");
    let [(few, _, _), (many, additional, len)] = most;
    assert!(many < few + 200_000, "{few} bytes to save 4,000, {many} to save 16,000");
    assert!(additional < 500_000 + 60 * 16_000, "{additional} bytes in addition to the loaded store");
    assert_eq!(len, Some(16_000));
}

#[test]
fn removes_the_unfinished_file_of_a_killed_save() {
    let (folder, path) = path();
    let live = ".things.live00.unfinished";
    for name in [
        ".things.abc123.unfinished",
        ".things-2.abc123.unfinished",
        // Of a save of `things.example.com` and of `things.web`.
        ".things.example.com.abc123.unfinished",
        ".things.web.abc123.unfinished",
        ".things.bak",
        "things.unfinished",
        live,
    ] {
        fs::write(folder.path().join(name), "half").unwrap();
    }
    let saving = fs::File::open(folder.path().join(live)).unwrap();
    saving.lock().unwrap();
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    fill(&store, 1, "7");
    let files = || {
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        left
    };
    let others = [
        ".things-2.abc123.unfinished",
        ".things.bak",
        ".things.example.com.abc123.unfinished",
        live,
        ".things.web.abc123.unfinished",
        "things",
        "things.unfinished",
    ];
    store.save(&path, COLLECTION).unwrap();
    assert_eq!(files(), others);
    drop(saving);
    store.save(&path, COLLECTION).unwrap();
    assert_eq!(files(), others.into_iter().filter(|name| *name != live).collect::<Vec<_>>());
}

#[test]
fn saves_at_the_same_time_leave_each_other_alone() {
    let folder = folder();
    std::thread::scope(|scope| {
        for name in ["ingresses", "ingresses.networking.k8s.io", "ingresses", "ingresses.networking"] {
            let path = folder.path().join(name);
            scope.spawn(move || {
                let store = Store::<[u8]>::new(StorageFormat::Encoded);
                fill(&store, 20, "70");
                for _ in 0..30 {
                    store.save(&path, COLLECTION).unwrap();
                }
                assert_eq!(loaded(&path, StorageFormat::Encoded).unwrap().len(), 20);
            });
        }
    });
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
}

#[cfg(unix)]
#[test]
fn a_save_keeps_the_link_and_the_permissions_of_the_file() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let (folder, path) = path();
    let at = |name: &str| folder.path().join(name);
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    fill(&store, 3, "7");
    fs::create_dir(at("volume")).unwrap();
    // The link leads to a file that does not exist yet, by another link.
    symlink("volume/things", at("link")).unwrap();
    symlink(at("link"), &path).unwrap();
    for (mode, expected) in [(None, 0o600), (Some(0o640), 0o640)] {
        if let Some(mode) = mode {
            fs::set_permissions(at("volume/things"), fs::Permissions::from_mode(mode)).unwrap();
        }
        store.save(&path, COLLECTION).unwrap();
        assert!(path.is_symlink() && at("link").is_symlink());
        assert_eq!(fs::metadata(at("volume/things")).unwrap().permissions().mode() & 0o777, expected);
        assert_eq!(loaded(&path, StorageFormat::Encoded).unwrap().len(), 3);
    }
    symlink("loop", at("loop")).unwrap();
    for name in ["loop", "volume"] {
        let error = store.save(at(name), COLLECTION).unwrap_err();
        assert!(matches!(error, FileError::Io(_)), "{name}: {error:?}");
    }
}

#[test]
fn refuses_a_file_over_the_budget_before_decompressing_it() {
    let (_folder, path) = path();
    let store = Store::<[u8]>::new(StorageFormat::Compressed);
    let mut relist = store.begin_relist();
    for i in 0..600 {
        let thing = object("ns", &i.to_string(), &(i + 1).to_string()).data("all the same ".repeat(400));
        let _ = relist.apply(Encoding::Protobuf, &thing.to_bytes(Encoding::Protobuf)).unwrap();
    }
    relist.commit("700").unwrap();
    store.save(&path, COLLECTION).unwrap();
    let budget = store.memory().compressed * 3;
    let small = Store::<[u8]>::new(StorageFormat::Encoded);
    small.set_budget(Some(budget));
    let counted = measure(|| {
        let error = small.load(&path, COLLECTION).unwrap_err();
        assert!(matches!(error, FileError::Object(StoreError::OverBudget(over)) if over == budget), "{error}");
    });
    // The objects take 3 MB when they are decompressed.
    assert!(counted.bytes_max < 1 << 20, "{counted:?}");
    small.set_budget(None);
    small.load(&path, COLLECTION).unwrap();
    assert_eq!(small.len(), 600);
    // In the storage format of the file, the collection fits.
    let compressed = Store::<[u8]>::new(StorageFormat::Compressed);
    compressed.set_budget(Some(budget));
    compressed.load(&path, COLLECTION).unwrap();
    assert_eq!(compressed.len(), 600);
}

#[test]
fn refuses_to_load_more_than_the_budget() {
    let folder = folder();
    let path = folder.path().join("objects");
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let mut relist = store.begin_relist();
    for name in ["a", "b", "c"] {
        drop(relist.apply(Encoding::Protobuf, &object("ns", name, "1").to_bytes(Encoding::Protobuf)).unwrap());
    }
    relist.commit("7").unwrap();
    store.save(&path, "objects").unwrap();
    let small = Store::<[u8]>::new(StorageFormat::Encoded);
    small.set_budget(Some(150));
    assert!(matches!(small.load(&path, "objects"), Err(FileError::Object(StoreError::OverBudget(150)))));
    assert!(small.is_empty() && small.resource_version().is_empty());
    small.set_budget(Some(2000));
    small.load(&path, "objects").unwrap();
    assert_eq!(small.len(), 3);
}
