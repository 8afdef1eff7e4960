//! Stdout: rows in the order in which they arrive, until the list ends, the limit is reached, or a signal comes.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use listwatch::{ItemError, ItemRef, ListMeta};
use tokio::time::{Instant, timeout_at};

use super::format::{Constructor, Format, FormatInfo, Needs, Row};
use super::progress::{ListProgress, ListProgressBar};
use crate::failure::Failure;
use crate::signals::interrupted;

/// The longest time that a printed row stays in the buffer while the input is slow.
pub const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// The size of the buffer.
const BUFFER: usize = 64 << 10;

/// Stdout, locked and buffered.
pub struct Output {
    format: Rc<dyn Format>,
    out: BufWriter<StdoutLock<'static>>,
    /// True once a row was printed.
    has_rows: bool,
}

/// Prints nothing.
struct NoItems;

const NO_ITEMS: FormatInfo =
    FormatInfo { name: "", help: "", needs: Needs::Nothing, constructor: Constructor::Plain(|_| Rc::new(NoItems)) };

impl Format for NoItems {
    fn info(&self) -> &'static FormatInfo {
        &NO_ITEMS
    }

    fn row(&self, _: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        Ok(None)
    }
}

impl Output {
    pub fn new(format: Rc<dyn Format>) -> Self {
        Self { format, out: BufWriter::with_capacity(BUFFER, io::stdout().lock()), has_rows: false }
    }

    /// Returns an output that prints no items.
    pub fn without_items() -> Self {
        Self::new(Rc::new(NoItems))
    }

    /// Prints a row.
    pub fn print_row(&mut self, row: &Row) -> io::Result<()> {
        let Self { format, out, has_rows } = self;
        out.write_all(if *has_rows { format.separator() } else { format.header() })?;
        *has_rows = true;
        out.write_all(row)
    }

    /// Prints everything in the buffer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints everything so far, also what waits for the widths of later rows.
    pub fn flush_changes(&mut self) -> io::Result<()> {
        self.format.flush(&mut self.out)?;
        self.out.flush()
    }

    /// Prints what the format has after all rows. `part` is the metadata of a list that lacks objects.
    pub fn end(&mut self, part: Option<&ListMeta>) -> io::Result<()> {
        let Self { format, out, has_rows } = self;
        if !*has_rows {
            out.write_all(format.header())?;
        }
        format.write_end(out, part)?;
        out.flush()
    }
}

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
    S: Stream<Item = Result<Option<Row>, E>> + Unpin,
{
    let bar = ListProgressBar::new(output.format.info().needs != Needs::Nothing);
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
                if let Some(row) = row {
                    *limit = limit.map(|left| left - 1);
                    output.print_row(&row)?;
                }
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
