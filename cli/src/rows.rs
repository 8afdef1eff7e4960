//! Prints rows as they arrive, until the list ends, the limit is reached or the user interrupts the command.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use tokio::time::{Instant, timeout_at};

use crate::failure::Failure;
use crate::notices;
use crate::output::{Format, Output, Row};
use crate::signals::interrupted;

/// The longest time that a printed row stays in the buffer while the input is slow.
pub const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// The progress of a list.
pub struct Reached {
    pub bytes: u64,
    pub items: u64,
    pub expected_bytes: Option<u64>,
    pub expected_items: Option<u64>,
}

impl Reached {
    /// Returns the progress in the words of the library's errors.
    pub fn text(&self) -> String {
        let Self { bytes, items, .. } = self;
        format!("at byte {bytes}, {items} item{} delivered", if *items == 1 { "" } else { "s" })
    }
}

/// How the output ended without an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Complete,
    /// `limit` rows were printed.
    AtLimit,
}

/// Prints rows until the stream ends or `limit`, which counts down, is 0. The inner error is an error of the stream.
///
/// The output is flushed if the stream fails or the user interrupts. Otherwise the caller continues it, or calls [`Output::end`].
pub async fn print<S, E>(
    rows: &mut S,
    output: &mut Output,
    limit: &mut Option<u64>,
    reached: impl Fn(&S) -> Reached,
) -> Result<Result<Ended, E>, Failure>
where
    S: Stream<Item = Result<Row, E>> + Unpin,
{
    let progress = Progress::new(output.format());
    let mut interrupted = pin!(interrupted());
    let mut flush_at = Instant::now() + FLUSH_EVERY;
    loop {
        if *limit == Some(0) {
            return Ok(Ok(Ended::AtLimit));
        }
        let next = tokio::select! {
            biased;
            () = &mut interrupted => {
                output.flush()?;
                return Err(Failure::Interrupted(reached(rows).text()));
            }
            next = timeout_at(flush_at, rows.next()) => next,
        };
        match next {
            Ok(Some(Ok(row))) => {
                if let (Some(left), true) = (&mut *limit, !matches!(row, Row::Nothing)) {
                    *left -= 1;
                }
                output.row(row)?;
            }
            Ok(Some(Err(error))) => {
                output.flush()?;
                return Ok(Err(error));
            }
            Ok(None) => return Ok(Ok(Ended::Complete)),
            Err(_) => {
                output.flush()?;
                flush_at = Instant::now() + FLUSH_EVERY;
            }
        }
        progress.show(|| reached(rows));
    }
}

/// A progress bar on stderr. Hidden if stderr is not a terminal, or if the rows are printed to a terminal.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(format: Format) -> Self {
        if format.prints_items() && io::stdout().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let style = ProgressStyle::with_template("{decimal_bytes}, {msg}").expect("the template is valid");
        let bar = ProgressBar::no_length().with_style(style);
        notices::show_above(&bar);
        Self { bar }
    }

    fn show(&self, reached: impl FnOnce() -> Reached) {
        if self.bar.is_hidden() {
            return;
        }
        let Reached { bytes, items, expected_bytes, expected_items } = reached();
        // `expected_bytes` ends with the current page, so the length of all pages is estimated from their items.
        let length = match expected_items {
            Some(expected) if items > 0 => Some(scaled(bytes, expected, items)),
            _ => expected_bytes,
        };
        if let Some(length) = length {
            if self.bar.length().is_none() {
                let template = "{percent:>3}% {wide_bar} {decimal_bytes} of {decimal_total_bytes}, {msg}";
                self.bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
            }
            self.bar.set_length(length);
        }
        let millis = u64::try_from(self.bar.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let per_second = items.saturating_mul(1000) / millis;
        self.bar.set_message(format!("{} items ({}/s)", HumanCount(items), HumanCount(per_second)));
        self.bar.set_position(bytes);
    }
}

/// `notices` keeps the bar, so its own drop comes too late to clear it.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn scaled(bytes: u64, expected: u64, items: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(expected) / u128::from(items)).unwrap_or(u64::MAX)
}
