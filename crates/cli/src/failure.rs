//! Why a command ended early, and its exit code.

use std::io;

use tokio::task::spawn_blocking;

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

/// Runs a read of files on a thread that may block, so that signals still end the command.
pub async fn read_blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    spawn_blocking(read).await.map_err(|_| Failure::Error("the read has failed".to_owned()))?
}
