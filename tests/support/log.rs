//! A subscriber of `tracing` that keeps the text of spans and events.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt::format::FmtSpan;

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Returns the text so far, and starts anew.
    pub fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs all events, and spans when they close, until the guard is dropped.
///
/// While there is one subscriber in the process, tracing-core asks only the subscriber of the thread that first uses a
/// span or an event whether it is enabled. Other tests have none and would disable it, so there is always a second
/// subscriber.
pub fn subscribe() -> (Log, DefaultGuard) {
    static SECOND: OnceLock<Dispatch> = OnceLock::new();

    SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::registry()));
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}
