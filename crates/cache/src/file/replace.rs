//! Replaces a file atomically.
//!
//! The new file is written next to the old one, and renamed once it is complete. Its name consists of the old name, six
//! random letters and digits, and an ending. A process that is killed leaves it, and the next save of the same file
//! removes it.
//!
//! Other saves may be in progress in the same folder, in this process or in another. Each save therefore locks its
//! unfinished file, and a save removes only files that are not locked. Where files cannot be locked, unfinished files
//! stay.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use fs4::{FileExt, TryLockError};
use tempfile::NamedTempFile;

use crate::file::format::{BUFFER, FileError};

const UNFINISHED: &str = ".unfinished";
/// The number of random letters and digits.
const RANDOM: usize = 6;
/// The most symbolic links that lead to a file, as on Linux.
const MOST_LINKS: usize = 40;

/// Atomically replaces the file at this path with what `write` writes. A symbolic link stays, and the file to which it
/// leads is replaced. An existing file keeps its permissions; only its owner can read a new one.
pub(super) fn replace(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), FileError>,
) -> Result<(), FileError> {
    let path = &follow_links(path)?;
    let name = path.file_name().ok_or_else(|| invalid("the path names no file"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let known = match fs::metadata(path) {
        Ok(known) if !known.is_file() => return Err(invalid("the path is not of a regular file").into()),
        known => known.ok(),
    };
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    remove_unfinished(folder, &prefix)?;
    let file = create_locked(folder, &prefix)?;
    let mut buffered = BufWriter::with_capacity(BUFFER, file.as_file());
    write(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    if let Some(known) = known {
        file.as_file().set_permissions(known.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // Flushes the file's name. Other systems cannot open folders.
    #[cfg(unix)]
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(FileError::Unflushed)?;
    Ok(())
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Returns the file to which symbolic links lead, which may not exist yet.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&path) else { return Ok(path) };
        // An absolute target replaces the folder.
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(invalid("too many symbolic links"))
}

/// Removes the unfinished files of killed processes that were to replace the same file.
fn remove_unfinished(folder: &Path, prefix: &OsString) -> io::Result<()> {
    for left in fs::read_dir(folder)? {
        let left = left?;
        let name = left.file_name();
        let random = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        let random = random.and_then(|rest| rest.strip_suffix(UNFINISHED.as_bytes()));
        // The name of another saved file may begin with the name of this one and a dot.
        let is_of_file =
            random.is_some_and(|random| random.len() == RANDOM && random.iter().all(u8::is_ascii_alphanumeric));
        if is_of_file
            // Some network file systems lock only files that are open for writing.
            && let Ok(file) = File::options().write(true).open(left.path())
            && FileExt::try_lock(&file).is_ok()
        {
            _ = fs::remove_file(left.path());
        }
    }
    Ok(())
}

/// Creates an unfinished file, and locks it until it is closed.
fn create_locked(folder: &Path, prefix: &OsString) -> io::Result<NamedTempFile> {
    loop {
        let file = tempfile::Builder::new().prefix(prefix).suffix(UNFINISHED).rand_bytes(RANDOM).tempfile_in(folder)?;
        match FileExt::try_lock(file.as_file()) {
            // Another save may have removed it before it was locked, or is about to.
            Ok(()) if !fs::exists(file.path())? => {}
            Err(TryLockError::WouldBlock) => {}
            // Where files cannot be locked, no other save removes it.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, stdin};
    use std::process::{Command, Stdio, exit};

    use super::*;

    /// The number of pieces in which the child writes a file.
    const PIECES: usize = 4;

    /// Returns a piece that is longer than the buffer of the file.
    fn piece(of: u8) -> Vec<u8> {
        vec![of; 2 * BUFFER]
    }

    /// Reports a step to the parent and waits for its answer. Without a parent the child ends.
    fn reach(step: &str) {
        println!("\n{step}");
        if stdin().read_line(&mut String::new()).unwrap() == 0 {
            exit(0);
        }
    }

    /// The child of the next tests. It is killed at one of the steps that it reports.
    #[test]
    #[ignore = "other tests run it as a child process"]
    fn replaces_step_by_step() {
        let path = PathBuf::from(std::env::var("REPLACED").unwrap());
        replace(&path, |file| Ok(file.write_all(&piece(b'o'))?)).unwrap();
        reach("old");
        let write = |file: &mut dyn Write| {
            for _ in 0..PIECES {
                reach("writing");
                file.write_all(&piece(b'n'))?;
            }
            Ok(())
        };
        replace(&path, write).unwrap();
        reach("new");
    }

    /// Runs the child for this number of steps, lets it continue if `continues`, and kills it. Returns the last step.
    fn kill_after(steps: usize, continues: bool, path: &Path) -> String {
        let (_, module) = module_path!().split_once("::").unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([&format!("{module}::replaces_step_by_step"), "--exact", "--ignored", "--nocapture"])
            .env("REPLACED", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let is_step = |line: &String| ["old", "writing", "new"].contains(&&**line);
        let mut reached = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).filter(is_step);
        let mut step = reached.next().expect("the child writes the old file");
        for _ in 0..steps {
            stdin.write_all(b"\n").unwrap();
            step = reached.next().expect("the child continues");
        }
        if continues {
            stdin.write_all(b"\n").unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        step
    }

    /// Checks that the file is complete, and returns true if it is the new one.
    fn is_new(path: &Path) -> bool {
        let found = fs::read(path).unwrap();
        let is_new = found.first() == Some(&b'n');
        assert!(found == if is_new { piece(b'n').repeat(PIECES) } else { piece(b'o') }, "{} bytes", found.len());
        is_new
    }

    fn path() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("things");
        (folder, path)
    }

    #[test]
    fn a_crash_leaves_the_old_or_the_new_file() {
        let (folder, path) = path();
        // Before the new file, before each of its pieces, and after it.
        for steps in 0..=PIECES + 1 {
            let step = kill_after(steps, false, &path);
            let (expected, files) = match steps {
                0 => ("old", 1),
                1..=PIECES => ("writing", 2),
                _ => ("new", 1),
            };
            assert_eq!(step, expected, "step {steps}");
            assert_eq!(is_new(&path), expected == "new", "step {steps}");
            assert_eq!(fs::read_dir(&folder).unwrap().count(), files, "step {steps}: the files in the folder");
        }
    }

    /// The child cannot wait between the last piece and the rename, so either file is valid.
    #[test]
    fn a_crash_at_the_end_leaves_the_old_or_the_new_file() {
        let (folder, path) = path();
        for _ in 0..6 {
            assert_eq!(kill_after(PIECES, true, &path), "writing");
            is_new(&path);
            let files = fs::read_dir(&folder).unwrap().count();
            assert!(files <= 2, "{files} files");
        }
    }
}
