//! Aligns columns as kubectl does.
//!
//! kubectl writes tables through `github.com/liggitt/tabwriter`, with at least 6 characters a column and 3 between
//! columns, and with its flag `RememberWidths`: a column that was flushed never gets narrower. A cell ends with a tab;
//! the last cell of a line belongs to no column.
//!
//! Adjacent lines that have a column share its width, and a flush ends all columns. So the lines between two flushes
//! wait in a [`Spool`], and of each column only the widths of its runs of lines are in memory.

use std::io::{self, BufRead, Write};

use crate::spool::Spool;

const MIN_WIDTH: usize = 6;
const PADDING: usize = 3;

/// The most runs of lines whose widths are kept. Only texts with tabs or line breaks begin one.
const MAX_RUNS: usize = 1 << 20;

/// The lines since the last flush, and the widths of all columns before it.
#[derive(Default)]
pub struct TabWriter {
    lines: Spool,
    /// The number of lines since the last flush.
    count: u64,
    columns: Vec<Column>,
    remembered: Vec<usize>,
}

/// The runs of adjacent lines that have a column.
#[derive(Default)]
struct Column {
    /// The line after each run, and the width of the column in it.
    runs: Vec<(u64, usize)>,
    /// The width of the current run, if its last line has not been written yet.
    open: Option<usize>,
}

impl TabWriter {
    /// Adds a text that ends a line. A line feed in it ends a line too, and a form feed also flushes.
    pub fn add_line(&mut self, out: &mut impl Write, text: &str) -> io::Result<()> {
        for (number, page) in text.split('\u{c}').enumerate() {
            if number > 0 {
                self.flush(out)?;
            }
            page.split('\n').try_for_each(|line| self.add_one_line(out, line))?;
        }
        Ok(())
    }

    /// Flushes once a line has one cell, as it aligns with no other.
    fn add_one_line(&mut self, out: &mut impl Write, line: &str) -> io::Result<()> {
        let mut cells = line.split(is_cell_end).peekable();
        let mut at = 0;
        while let Some(cell) = cells.next() {
            if cells.peek().is_none() {
                break;
            }
            if self.columns.len() == at {
                self.columns.push(Column::default());
            }
            if let Some(column) = self.columns.get_mut(at) {
                let width = (cell.chars().count() + PADDING).max(MIN_WIDTH);
                column.open = Some(column.open.map_or(width, |open| open.max(width)));
            }
            at += 1;
        }
        let count = self.count;
        for column in self.columns.iter_mut().skip(at) {
            column.close(count);
        }
        if self.columns.iter().map(|column| column.runs.len()).sum::<usize>() > MAX_RUNS {
            return Err(io::Error::other("too many lines with tabs or line breaks in their cells to align"));
        }
        self.lines.write(line.as_bytes())?;
        self.lines.write(b"\n")?;
        self.count += 1;
        if at > 0 { Ok(()) } else { self.flush(out) }
    }

    /// Writes the lines since the last flush.
    pub fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        let count = std::mem::take(&mut self.count);
        let mut columns = std::mem::take(&mut self.columns);
        for column in &mut columns {
            column.close(count);
        }
        let mut runs: Vec<_> = columns.into_iter().map(|column| column.runs.into_iter().peekable()).collect();
        let mut lines = std::mem::take(&mut self.lines).into_reader()?;
        let mut line = String::new();
        for number in 0..count {
            line.clear();
            lines.read_line(&mut line)?;
            let mut cells = line.trim_end_matches('\n').split(is_cell_end).peekable();
            for at in 0.. {
                let Some(cell) = cells.next() else { break };
                if cells.peek().is_none() {
                    out.write_all(cell.as_bytes())?;
                    break;
                }
                let run = runs.get_mut(at).and_then(|runs| {
                    while runs.next_if(|(end, _)| *end <= number).is_some() {}
                    runs.peek().copied()
                });
                let width = run.map_or(MIN_WIDTH, |(_, width)| width);
                if self.remembered.len() == at {
                    self.remembered.push(width);
                }
                let width = self.remembered.get_mut(at).map_or(width, |remembered| {
                    *remembered = width.max(*remembered);
                    *remembered
                });
                write!(out, "{cell:width$}")?;
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Forgets the widths of columns that were flushed.
    pub fn forget_widths(&mut self) {
        self.remembered.clear();
    }
}

impl Column {
    /// Ends the current run before this line.
    fn close(&mut self, line: u64) {
        if let Some(width) = self.open.take() {
            self.runs.push((line, width));
        }
    }
}

/// A vertical tab ends a cell too.
fn is_cell_end(character: char) -> bool {
    matches!(character, '\t' | '\u{b}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right side is the output of the Go package with the same lines and flushes.
    #[test]
    fn aligns_as_kubectl() {
        for (lines, expected) in [
            (&["A\tB\tC", "aaaa\tb\tc"][..], "A      B     C\naaaa   b     c\n"),
            (&["A\tB", "", "aaaaaaaa\tb"], "A     B\n\naaaaaaaa   b\n"),
            (&["é\tx", "ééééé\tx"], "é       x\nééééé   x\n"),
            (&["a\t\tc", "a\tbbbbb\t"], "a             c\na     bbbbb   \n"),
            (&["a\tb1\nb2\tc", "aaaaaaa\tb"], "a         b1\nb2        c\naaaaaaa   b\n"),
        ] {
            let (mut writer, mut out) = (TabWriter::default(), Vec::new());
            lines.iter().try_for_each(|line| writer.add_line(&mut out, line)).unwrap();
            writer.flush(&mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn columns_never_get_narrower_until_widths_are_forgotten() {
        let (mut writer, mut out) = (TabWriter::default(), Vec::new());
        for (line, forget) in [("aaaaaaaa\tb", false), ("a\tb", false), ("a\tb", true)] {
            if forget {
                writer.forget_widths();
            }
            writer.add_line(&mut out, line).unwrap();
            writer.flush(&mut out).unwrap();
        }
        assert_eq!(String::from_utf8(out).unwrap(), "aaaaaaaa   b\na          b\na     b\n");
    }
}
