//! Any bytes are a data file of etcd or an error. A file that passes the check can be read whole, and all ways of
//! reading it count the same entries. Memory stays in proportion to the file.

use std::io::{Seek, SeekFrom, Write};

use listwatch_etcd::{DataFile, Error, StorageKey, StoredValue};

/// What is kept in memory beside copies of the file: buffers, the least that a sort takes, and the lists of usage.
const FIXED: u64 = 1 << 20;

/// Takes a file of bbolt, whose meta pages get their right checksums first.
pub fn run(data: &[u8]) {
    let mut bytes = data.to_vec();
    repair_checksums(&mut bytes);
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&bytes).and_then(|()| file.seek(SeekFrom::Start(0))).expect("the bytes");
    let memory = allocation_counter::measure(|| match read(file.path()) {
        Ok(()) => {}
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    });
    assert!(memory.bytes_max < FIXED + 16 * data.len() as u64, "{} bytes for {}", memory.bytes_max, data.len());
}

fn read(path: &std::path::Path) -> Result<(), Error> {
    let file = DataFile::open(path)?;
    _ = file.find_root()?;
    let checked = file.check();
    let read = read_state(&file);
    let usage = file.usage(3, 0);
    let Ok(checked) = checked else {
        return checked.map(drop);
    };
    let keys = read.unwrap_or_else(|error| panic!("checked, but: {error}"));
    let total = usage.unwrap_or_else(|error| panic!("checked, but: {error}")).total;
    assert_eq!(keys, total.keys);
    assert_eq!(checked.revisions, total.keys + total.old_revisions);
    Ok(())
}

/// Reads the newest state, and returns the number of its keys.
fn read_state(file: &DataFile) -> Result<u64, Error> {
    let mut state = file.state(b"", None, 0)?;
    let (mut keys, mut last) = (0, Vec::new());
    while let Some(entry) = state.next()? {
        assert!(entry.key > &last[..]);
        last = entry.key.to_vec();
        keys += 1;
        _ = StorageKey::parse(entry.key, "/registry");
        _ = StoredValue::of(entry.value).object(entry.mod_revision);
    }
    Ok(keys)
}

/// Writes the checksum of whatever looks like a meta page, as FNV-1a: else no damage to one would get further.
fn repair_checksums(bytes: &mut [u8]) {
    let second = (10..=24).map(|bits| 1_usize << bits);
    for at in std::iter::once(0).chain(second) {
        let Some(meta) =
            bytes.get_mut(at + 16..at + 80).filter(|meta| meta.starts_with(&0xED0C_DAED_u32.to_le_bytes()))
        else {
            continue;
        };
        let (summed, sum) = meta.split_at_mut(56);
        let hash = summed
            .iter()
            .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
        sum.copy_from_slice(&hash.to_le_bytes());
    }
}
