//! Prints rows as they arrive, until the list ends, the limit is reached or the user interrupts the command.

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};

use super::progress::{ListProgress, ListProgressBar};
use super::row::Row;
use super::stdout::Output;
use crate::failure::Failure;
use crate::signals::interrupted;

/// The longest time that a printed row stays in the buffer while the input is slow.
pub const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// Prints rows until the stream ends or `limit`, which counts down, is 0.
///
/// The inner error is an error of the stream. The output is flushed if the stream fails or the user interrupts.
/// Otherwise the caller continues it, or calls [`Output::end`].
pub async fn print_rows<S, E>(
    rows: &mut S,
    output: &mut Output,
    limit: &mut Option<u64>,
    progress_of: impl Fn(&S) -> ListProgress,
) -> Result<Result<(), E>, Failure>
where
    S: Stream<Item = Result<Row, E>> + Unpin,
{
    let bar = ListProgressBar::new(output.format());
    let mut interrupted = pin!(interrupted());
    let mut flush_at = Instant::now() + FLUSH_EVERY;
    loop {
        if *limit == Some(0) {
            return Ok(Ok(()));
        }
        let next = tokio::select! {
            biased;
            () = &mut interrupted => {
                output.flush()?;
                return Err(Failure::Interrupted(progress_of(rows).text()));
            }
            next = timeout_at(flush_at, rows.next()) => next,
        };
        match next {
            Ok(Some(Ok(row))) => {
                if let (Some(left), true) = (&mut *limit, !matches!(row, Row::Nothing)) {
                    *left -= 1;
                }
                output.print_row(row)?;
            }
            Ok(Some(Err(error))) => {
                output.flush()?;
                return Ok(Err(error));
            }
            Ok(None) => return Ok(Ok(())),
            Err(_) => {
                output.flush()?;
                flush_at = Instant::now() + FLUSH_EVERY;
            }
        }
        bar.show(|| progress_of(rows));
    }
}
