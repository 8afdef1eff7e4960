//! Bytes that wait until they can be printed: in memory up to a limit, then in a file.
//!
//! The file lies in `TMPDIR`, else in the system's temporary folder. It has no name, so it disappears with the process,
//! and only its owner can read it. If that folder is in memory, as a tmpfs is, the file would not save any, so the
//! spool refuses it unless `TMPDIR` names the folder.

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, Write};

/// The most bytes in memory.
pub const IN_MEMORY: usize = 4 << 20;

#[derive(Default)]
pub struct Spool {
    /// What follows the bytes in the file.
    memory: Vec<u8>,
    file: Option<File>,
}

impl Spool {
    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.memory.extend_from_slice(bytes);
        if self.memory.len() < IN_MEMORY {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(temporary_file()?),
        };
        file.write_all(&self.memory)?;
        self.memory.clear();
        Ok(())
    }

    /// Returns a reader of all bytes.
    pub fn into_reader(self) -> io::Result<impl BufRead> {
        let Self { memory, mut file } = self;
        if let Some(file) = &mut file {
            file.rewind()?;
        }
        let of_file: Box<dyn Read> = file.map_or_else(|| Box::new(io::empty()) as _, |file| Box::new(file) as _);
        Ok(BufReader::new(of_file.chain(Cursor::new(memory))))
    }
}

/// Creates a file without a name, on a disk.
pub fn temporary_file() -> io::Result<File> {
    let folder = env::temp_dir();
    let file = tempfile::tempfile_in(&folder).map_err(|error| {
        io::Error::other(format!("cannot create a temporary file in {}: {error}", folder.to_string_lossy()))
    })?;
    if env::var_os("TMPDIR").is_none() && is_in_memory(&file) {
        return Err(io::Error::other(format!(
            "the rows exceed {} MiB, and {} is in memory: set TMPDIR to a folder on a disk",
            IN_MEMORY >> 20,
            folder.to_string_lossy()
        )));
    }
    Ok(file)
}

#[cfg(target_os = "linux")]
fn is_in_memory(file: &File) -> bool {
    // The magic numbers of tmpfs and ramfs.
    rustix::fs::fstatfs(file).is_ok_and(|status| matches!(status.f_type, 0x0102_1994 | 0x8584_58f6))
}

#[cfg(not(target_os = "linux"))]
fn is_in_memory(_: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_all_bytes_in_order_also_those_in_the_file() {
        for count in [0, 1, 1000, 1_000_000] {
            let mut spool = Spool::default();
            let mut expected = Vec::new();
            for number in 0..count {
                let line = format!("line {number}\n");
                spool.write(line.as_bytes()).unwrap();
                expected.extend_from_slice(line.as_bytes());
            }
            assert_eq!(spool.file.is_some(), expected.len() >= IN_MEMORY);
            let mut read = Vec::new();
            spool.into_reader().unwrap().read_to_end(&mut read).unwrap();
            assert!(read == expected, "{count}");
        }
    }
}
