//! Why a history cannot be written or read.

use std::io;
use std::path::PathBuf;

use listwatch::ItemError;
use listwatch_cache::StoreError;

use crate::cut::Unknown;

/// Why a history cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// SQLite cannot read or write a part.
    #[error("{}: {error}", path.display())]
    Sqlite {
        /// The file of the part.
        path: PathBuf,
        /// The error of SQLite.
        error: rusqlite::Error,
    },
    /// A part is damaged.
    ///
    /// Other objects and other parts stay readable.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file of the part.
        path: PathBuf,
        /// What is damaged.
        what: String,
    },
    /// A part was written by a later release, or by another program.
    #[error("{} has format {found}, and this release reads format {expected}", path.display())]
    Format {
        /// The file of the part.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The format of this release.
        expected: i64,
    },
    /// Another process records into the folder.
    #[error("{}: another process records into this history", .0.display())]
    Locked(PathBuf),
    /// The folder has no history.
    #[error("{} has no history: `record --history` writes one", .0.display())]
    Empty(PathBuf),
    /// The history does not record this collection.
    #[error("{0} is not in this history, which has {1}")]
    NotRecorded(String, String),
    /// The history does not know the state at this version or time.
    #[error(transparent)]
    Unknown(#[from] Box<Unknown>),
    /// An object of a cache cannot be read.
    #[error("an object of the cache cannot be read: {0}")]
    Object(#[from] ItemError),
    /// A cache cannot be filled from the history.
    #[error("the cache cannot be filled: {0}")]
    Store(#[from] StoreError),
}

impl HistoryError {
    /// Returns true if the same write may succeed later: the disk is full, a quota is exceeded, or the device fails.
    #[must_use]
    pub fn is_of_disk(&self) -> bool {
        match self {
            Self::Sqlite { error: rusqlite::Error::SqliteFailure(code, _), .. } => matches!(
                code.code,
                rusqlite::ErrorCode::DiskFull | rusqlite::ErrorCode::SystemIoFailure | rusqlite::ErrorCode::CannotOpen
            ),
            Self::Io { error, .. } => matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
            ),
            _ => false,
        }
    }
}
