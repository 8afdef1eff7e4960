//! The limits of a change log, and its state for users.

use std::time::Duration;

/// How much a change log keeps. A relist that begins frees all of it at once, on the thread of the reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeLogLimits {
    /// The memory of the log in bytes: replaced and deleted states, and encoded frames, which take at most a quarter of
    /// it. Over the limit, frames are encoded again and the oldest changes are dropped. The newest change, the
    /// changes that share its version and the newest frame are kept whatever their size. The default is 64 MiB.
    pub bytes: usize,
    /// The age of the oldest change. Changes that share the newest version may be older. The default is 10 minutes.
    pub age: Duration,
}

impl Default for ChangeLogLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, age: Duration::from_secs(600) }
    }
}

/// The state of a change log: see [`StoreReader::change_log`](crate::StoreReader::change_log).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeLogStatus {
    /// The log has all changes after this resource version; `None` while the log is closed.
    pub start: Option<String>,
    /// The number of changes.
    pub changes: usize,
    /// The memory of the log in bytes.
    pub bytes: usize,
    /// The age of the oldest change.
    pub age: Duration,
}
