//! Files that replace another file once they are complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::signals;

/// The most symbolic links that lead to a file, as on Linux.
const MOST_LINKS: usize = 40;

/// Creates a partial file beside the file to which `path` leads. Once it is complete, the caller calls
/// [`replace`].
///
/// A signal that ends the process deletes it.
pub fn create_beside(path: &Path) -> io::Result<NamedTempFile> {
    let path = follow_links(path)?;
    if fs::metadata(&path).is_ok_and(|known| !known.is_file()) {
        return Err(invalid("it is not a regular file"));
    }
    let directory = path.parent().filter(|directory| *directory != Path::new("")).unwrap_or(Path::new("."));
    // Its error would name the partial file.
    fs::metadata(directory)?;
    let file = NamedTempFile::new_in(directory)?;
    signals::delete_at_exit(file.path());
    Ok(file)
}

/// Replaces the file to which `path` leads, and keeps its permissions. Symbolic links stay.
pub fn replace(path: &Path, complete: NamedTempFile) -> io::Result<()> {
    let path = follow_links(path)?;
    if let Ok(known) = fs::metadata(&path) {
        complete.as_file().set_permissions(known.permissions())?;
    }
    complete.persist(path)?;
    Ok(())
}

/// Returns the file to which symbolic links lead, which may not exist yet.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&path) else { return Ok(path) };
        // An absolute target replaces the directory.
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(invalid("too many symbolic links"))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn replaces_the_file_that_a_link_leads_to_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("volume")).unwrap();
        symlink("volume/body", at("link")).unwrap();
        for (text, mode, expected) in [("new", None, 0o600), ("newer", Some(0o644), 0o644)] {
            if let Some(mode) = mode {
                fs::set_permissions(at("volume/body"), fs::Permissions::from_mode(mode)).unwrap();
            }
            let mut partial = create_beside(&at("link")).unwrap();
            assert_eq!(partial.path().parent(), Some(&*at("volume")));
            partial.write_all(text.as_bytes()).unwrap();
            replace(&at("link"), partial).unwrap();
            assert!(at("link").is_symlink());
            assert_eq!(fs::read_to_string(at("volume/body")).unwrap(), text);
            assert_eq!(fs::metadata(at("volume/body")).unwrap().permissions().mode() & 0o777, expected);
        }
        symlink("loop", at("loop")).unwrap();
        assert!(create_beside(&at("loop")).is_err() && create_beside(&at("volume")).is_err());
        assert!(create_beside(Path::new("/dev/null")).is_err());
    }
}
