//! The limit of open files: each connection of a reader needs an open file.

use listwatch_mirror::Limits;

use crate::notices;

/// Raises the soft limit to the hard limit, as programs in Go do, and returns the limit; `None` if there is none. The
/// soft limit is low for programs that call `select`.
#[cfg(unix)]
pub fn raise_open_files_limit() -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
    getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok())
}

/// Returns `None`: this system has no such limit.
#[cfg(not(unix))]
pub fn raise_open_files_limit() -> Option<usize> {
    None
}

/// Returns the limits on readers. Connections take at most half of the files that may be open, so that probes, requests
/// to the API server and saved files find some, too.
pub fn reader_limits(open_files: Option<usize>) -> Limits {
    let mut limits = Limits::default();
    let connections = open_files.map_or(limits.connections, |files| files / 2);
    if connections < limits.connections {
        let files = open_files.unwrap_or_default();
        notices::warn(&format!("the limit of {files} open files allows only {connections} connections of readers"));
        limits.connections = connections;
    }
    limits
}
