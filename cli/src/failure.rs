//! Why a command did not run to its end, and its exit code.

use std::error::Error;
use std::io;

use console::style;

use crate::output::printable;

pub enum Failure {
    /// Whoever reads stdout wants no more.
    Closed,
    /// By Ctrl-C; says how far the command came.
    Interrupted(String),
    /// Wrong usage that clap cannot know.
    Usage(String),
    Error(String),
}

impl Failure {
    /// Says it on stderr, on one line. Returns the exit code.
    pub fn report(&self) -> i32 {
        let (word, message, code) = match self {
            Self::Closed => return 0,
            Self::Interrupted(message) => ("interrupted:", message, 130),
            Self::Usage(message) => ("error:", message, 2),
            Self::Error(message) => ("error:", message, 1),
        };
        eprintln!("{} {}", style(word).for_stderr().red().bold(), printable(message));
        code
    }
}

/// The error and its sources, on one line.
pub fn chain(error: &dyn Error) -> String {
    let source = error.source().map(|source| format!(": {}", chain(source))).unwrap_or_default();
    format!("{error}{source}")
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Error(format!("{error:#}"))
    }
}

/// For what is written to stdout.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Error(format!("cannot write to stdout: {error}")),
        }
    }
}
