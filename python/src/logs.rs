//! Warnings of the library, on their way to `logging`: a thread of Python takes them, so that no thread of the runtime
//! ever waits for the GIL.

use std::fmt::{self, Write as _};
use std::sync::{Condvar, Mutex, PoisonError};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::process::PerProcess;

/// The most warnings that wait; further ones are dropped and counted.
const MOST: usize = 1000;

static LOG: PerProcess<Log> = PerProcess::new();

#[derive(Default)]
struct Log {
    state: Mutex<LogState>,
    has_news: Condvar,
}

#[derive(Default)]
struct LogState {
    /// The numbers of Python's levels, and the texts.
    lines: Vec<(u8, String)>,
    left_out: u64,
    is_closed: bool,
}

fn log() -> Option<&'static Log> {
    LOG.get_or_try_init(|| Ok::<_, ()>(Log::default())).ok()
}

/// Waits for lines to log, without the GIL, and returns them; `None` once the log is closed.
#[pyfunction]
pub fn next_log_lines(py: Python<'_>) -> Option<Vec<(u8, String)>> {
    let log = log()?;
    py.detach(|| {
        let mut state = log.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.lines.is_empty() && !state.is_closed {
            state = log.has_news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mut lines = std::mem::take(&mut state.lines);
        let left_out = std::mem::take(&mut state.left_out);
        if left_out > 0 {
            lines.push((30, format!("{left_out} more warnings were left out")));
        }
        (!state.is_closed || !lines.is_empty()).then_some(lines)
    })
}

/// Ends [`next_log_lines`], when the interpreter exits.
#[pyfunction]
pub fn close_log() {
    if let Some(log) = log() {
        log.state.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        log.has_news.notify_all();
    }
}

/// Sends the warnings of this library to the log.
pub fn subscribe() {
    // It fails if the module was initialized before, with the same subscriber.
    _ = tracing::subscriber::set_global_default(Warnings);
}

struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN && metadata.target().starts_with("listwatch")
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::WARN)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(log) = log() else { return };
        let mut line = Line::default();
        event.record(&mut line);
        let level = if *event.metadata().level() == Level::ERROR { 40 } else { 30 };
        let mut state = log.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.lines.len() < MOST {
            state.lines.push((level, line.message + &line.fields));
        } else {
            state.left_out += 1;
        }
        drop(state);
        log.has_news.notify_one();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}
