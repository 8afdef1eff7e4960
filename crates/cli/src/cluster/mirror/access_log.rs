//! The access log on stdout.

use std::io::{BufWriter, Write as _, stdout};
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::thread;

use crate::notices;

/// The lines that wait for stdout.
const MAX_LINES: usize = 10_000;

/// Returns a function that writes a line to stdout, from a thread of its own: a blocked stdout delays no reader. Lines
/// that find no room are left out, with a warning.
pub fn start_access_log() -> impl Fn(&str) + Send + Sync + 'static {
    let (lines, written) = sync_channel(MAX_LINES);
    thread::spawn(move || write_lines(&written));
    move |line| {
        if let Err(TrySendError::Full(_)) = lines.try_send(line.to_owned()) {
            // An identical warning is printed once a minute.
            tracing::warn!(name: "listwatch.mirror.access_log", "stdout is too slow: lines of the access log are left out");
        }
    }
}

/// Writes until stdout is closed.
fn write_lines(lines: &Receiver<String>) {
    let mut out = BufWriter::new(stdout());
    while let Ok(line) = lines.recv() {
        let mut more = std::iter::once(line).chain(lines.try_iter().take(1000));
        let written = more.try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
        if let Err(error) = written {
            notices::warn(&format!("cannot write the access log: {error}"));
            return;
        }
    }
}
