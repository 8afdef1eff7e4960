//! Stdout: rows in the order in which they arrive, until the list ends, the limit is reached, or a signal comes.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};

use super::aligned::AlignedTable;
use super::format::{Format, Needs, Row, SummaryObject};
use super::progress::{ListProgress, ListProgressBar};
use super::summary::SummaryFormat;
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
    table: AlignedTable,
    /// True once a row of text was printed.
    has_text: bool,
}

impl Output {
    pub fn new(format: Rc<dyn Format>, no_headers: bool) -> Self {
        let out = BufWriter::with_capacity(BUFFER, io::stdout().lock());
        Self { format, out, table: AlignedTable::new(no_headers), has_text: false }
    }

    /// Returns an output that prints no items.
    pub fn without_items() -> Self {
        Self::new(Rc::new(SummaryFormat), false)
    }

    /// Prints a row.
    pub fn print_row(&mut self, row: Row) -> io::Result<()> {
        let Self { format, out, table, has_text } = self;
        match row {
            Row::Text(text) => {
                out.write_all(if *has_text { format.separator() } else { format.header() })?;
                *has_text = true;
                out.write_all(&text)
            }
            Row::Cells(cells) => table.add_row(out, cells, &|| format.columns()),
        }
    }

    /// Prints the rows that wait for the widths of a table, and everything in the buffer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.table.flush(&mut self.out, &|| self.format.columns())?;
        self.out.flush()
    }

    /// Prints everything so far, also what waits for the widths of later rows.
    pub fn flush_changes(&mut self) -> io::Result<()> {
        self.format.flush(&mut self.out)?;
        self.out.flush()
    }

    /// Prints the end of the output: the rest of a table, or what the format says about the whole list.
    pub fn end(&mut self, summary: Option<&SummaryObject<'_>>) -> io::Result<()> {
        let Self { format, out, table, has_text } = self;
        if !*has_text {
            out.write_all(format.header())?;
        }
        table.end(out, &|| format.columns())?;
        format.write_end(out, summary)?;
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
                    output.print_row(row)?;
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
