//! The limit of open files, of which each connection of a reader needs one.

/// Raises the soft limit to the hard limit, as programs in Go do. The soft limit is low for programs that call `select`.
///
/// A limit that cannot be raised stays: the mirror warns when it is reached.
#[cfg(unix)]
pub fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Does nothing: this system has no such limit.
#[cfg(not(unix))]
pub fn raise_open_files_limit() {}
