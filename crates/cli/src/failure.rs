//! Why a command ended early, and its exit code.

use std::io;

use crate::{notices, signals};

/// Why a command ended early.
pub enum Failure {
    /// The reader of stdout closed the pipe.
    Closed,
    /// A signal, with the progress of the command.
    Interrupted(String),
    /// Wrong usage that clap does not detect.
    Usage(String),
    /// Any other error.
    Error(String),
}

impl Failure {
    /// Prints the failure on stderr, on one line, and returns the exit code.
    pub fn report(&self) -> i32 {
        let (message, code) = match self {
            Self::Closed => return 0,
            Self::Interrupted(message) => {
                notices::print_interrupted(message);
                return signals::exit_code();
            }
            Self::Usage(message) => (message, 2),
            Self::Error(message) => (message, 1),
        };
        notices::print_error(message);
        code
    }
}

/// Converts the error of a write to stdout.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Error(format!("cannot write to stdout: {error}")),
        }
    }
}
