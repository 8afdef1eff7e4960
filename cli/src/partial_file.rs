//! Files that replace another file once they are complete.

use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::signals;

/// Creates a partial file in the directory of `path`, which the caller renames to `path`.
///
/// A signal that ends the process deletes it.
pub fn create_beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|directory| *directory != Path::new("")).unwrap_or(Path::new("."));
    let file = NamedTempFile::new_in(directory)?;
    signals::delete_at_exit(file.path());
    Ok(file)
}
