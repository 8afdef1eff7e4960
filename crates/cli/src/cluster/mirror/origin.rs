//! Which server the files of a directory are from.
//!
//! During an outage, a mirror that starts serves the file of a collection before it can compare it with the server. It
//! does so only if the directory names this server, so that a directory which was used with another cluster is not
//! served as this one.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::notices;
use crate::partial_file::{create_beside, replace};

/// The file in the directory of the caches that contains the server's address.
const FILE: &str = "server";

/// The server of the files of a directory.
pub struct FileOrigin {
    file: PathBuf,
    server: String,
    is_same: bool,
}

impl FileOrigin {
    /// Reads which server the files are from. If it is another one, the directory names none until
    /// [`keep`](Self::keep).
    pub fn open(dir: &Path, server: String) -> Self {
        let file = dir.join(FILE);
        let is_same = fs::read_to_string(&file).is_ok_and(|known| known == server);
        if !is_same {
            // Without the file, nothing is served before it is compared.
            drop(fs::remove_file(&file));
        }
        Self { file, server, is_same }
    }

    /// Returns true if the files that the directory had at the start are from this server.
    pub fn is_same(&self) -> bool {
        self.is_same
    }

    /// Notes that all files of the directory are from this server.
    pub fn keep(&self) {
        if fs::read_to_string(&self.file).is_ok_and(|known| known == self.server) {
            return;
        }
        let written: io::Result<()> = (|| {
            let mut temporary = create_beside(&self.file)?;
            temporary.write_all(self.server.as_bytes())?;
            replace(&self.file, temporary)
        })();
        if let Err(error) = written {
            notices::warn(&format!("cannot write {}: {error}", self.file.to_string_lossy()));
        }
    }
}
