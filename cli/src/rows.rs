//! Prints rows as they come, until the list ends or the user has seen enough.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use indicatif::{HumanCount, ProgressBar, ProgressFinish, ProgressStyle};
use tokio::time::{Instant, timeout_at};

use crate::failure::Failure;
use crate::notices;
use crate::output::{Format, Output, Row};
use crate::signals::interrupted;

/// What is printed waits no longer than this while the input is slow.
pub const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// How far a list is.
pub struct Reached {
    pub bytes: u64,
    pub items: u64,
    pub expected_bytes: Option<u64>,
    pub expected_items: Option<u64>,
}

impl Reached {
    /// As an error of the library ends.
    pub fn text(&self) -> String {
        let Self { bytes, items, .. } = self;
        format!("at byte {bytes}, {items} item{} delivered", if *items == 1 { "" } else { "s" })
    }
}

/// How rows ended without an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Complete,
    /// The user wanted no more.
    AtLimit,
}

/// Prints rows until they end, or as many as `limit` allows, which counts down. The inner error is that of the rows. Whatever the
/// result, everything that was printed is flushed.
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
                output.row(row)?;
                if let Some(left) = limit {
                    *left -= 1;
                }
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

/// A bar on stderr, if that is a terminal where nothing else is printed meanwhile.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(format: Format) -> Self {
        if format.prints_items() && io::stdout().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let style = ProgressStyle::with_template("{decimal_bytes}, {msg}").expect("the template is right");
        let bar = ProgressBar::no_length().with_style(style).with_finish(ProgressFinish::AndClear);
        notices::show_above(&bar);
        Self { bar }
    }

    fn show(&self, reached: impl FnOnce() -> Reached) {
        if self.bar.is_hidden() {
            return;
        }
        let Reached { bytes, items, expected_bytes, expected_items } = reached();
        // Of pages, bytes are known of the one that is being read only.
        let length = match expected_items {
            Some(expected) if items > 0 => Some(scaled(bytes, expected, items)),
            _ => expected_bytes,
        };
        if let Some(length) = length {
            if self.bar.length().is_none() {
                let template = "{percent:>3}% {wide_bar} {decimal_bytes} of {decimal_total_bytes}, {msg}";
                self.bar.set_style(ProgressStyle::with_template(template).expect("the template is right"));
            }
            self.bar.set_length(length);
        }
        let millis = u64::try_from(self.bar.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let per_second = items.saturating_mul(1000) / millis;
        self.bar.set_message(format!("{} items ({}/s)", HumanCount(items), HumanCount(per_second)));
        self.bar.set_position(bytes);
    }
}

fn scaled(bytes: u64, expected: u64, items: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(expected) / u128::from(items)).unwrap_or(u64::MAX)
}
