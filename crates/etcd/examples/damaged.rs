//! Reads copies of a file of etcd, each with one damaged byte, and prints what is read: `OFFSET HASH`, or `OFFSET error`.
//! `e2e/apiserver/boltdiff` prints what bbolt reads from the same copies.
//!
//! `cargo run -p listwatch-etcd --example damaged FILE COPY >ours` and `go run ./boltdiff FILE COPY >theirs`; each line
//! of `ours` that is not an error is in `theirs`.

use std::fmt::Write as _;
use std::io::{Seek, SeekFrom, Write};
use std::{env, fs};

use listwatch_etcd::{DataFile, Error};
use sha2::{Digest, Sha256};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (from, copy) = (env::args().nth(1).ok_or("no FILE")?, env::args().nth(2).ok_or("no COPY")?);
    let whole = fs::read(from)?;
    let mut file = fs::File::create(&copy)?;
    file.write_all(&whole)?;
    for (at, byte) in whole.iter().enumerate() {
        let mut write = |byte: u8| file.seek(SeekFrom::Start(at as u64)).and_then(|_| file.write_all(&[byte]));
        write(byte ^ [0x01, 0x80, 0xFF][at % 3])?;
        match read(&copy) {
            Ok(hash) => println!("{at} {hash}"),
            Err(_) => println!("{at} error"),
        }
        write(*byte)?;
    }
    Ok(())
}

fn read(path: &str) -> Result<String, Error> {
    let file = DataFile::open(path)?;
    let mut state = file.state(b"", None, 1 << 20)?;
    let mut hash = Sha256::new();
    while let Some(entry) = state.next()? {
        for part in [entry.key, entry.value] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        for number in [entry.create_revision, entry.mod_revision, entry.version, entry.lease] {
            hash.update(number.to_le_bytes());
        }
    }
    let mut hex = String::new();
    for byte in hash.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex)
}
