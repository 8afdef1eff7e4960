//! Aligns columns as kubectl does.
//!
//! kubectl writes tables through `github.com/liggitt/tabwriter`, with at least 6 characters a column and 3 between
//! columns, and with its flag `RememberWidths`: a column that was flushed never gets narrower. A cell ends with a tab; the
//! last cell of a line belongs to no column.

use std::io::{self, Write};

const MIN_WIDTH: usize = 6;
const PADDING: usize = 3;

/// The lines since the last flush, and the widths of all columns before it.
#[derive(Default)]
pub struct TabWriter {
    lines: Vec<Vec<Box<str>>>,
    remembered: Vec<usize>,
}

impl TabWriter {
    /// Adds a line without its line break, and flushes once a line has one cell, as it aligns with no other.
    pub fn add_line(&mut self, out: &mut impl Write, line: &str) -> io::Result<()> {
        // A vertical tab ends a cell too.
        let cells: Vec<_> = line.split(['\t', '\u{b}']).map(Box::from).collect();
        let aligns = cells.len() > 1;
        self.lines.push(cells);
        if aligns { Ok(()) } else { self.flush(out) }
    }

    /// Writes the lines since the last flush.
    pub fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        let lines = std::mem::take(&mut self.lines);
        self.write_block(out, &lines, &mut Vec::new())
    }

    /// Forgets the widths of columns that were flushed.
    pub fn forget_widths(&mut self) {
        self.remembered.clear();
    }

    /// Writes lines whose first columns have these widths. Adjacent lines with a further column share its width.
    fn write_block(
        &mut self,
        out: &mut impl Write,
        lines: &[Vec<Box<str>>],
        widths: &mut Vec<usize>,
    ) -> io::Result<()> {
        let column = widths.len();
        let has_column = |line: &Vec<Box<str>>| column + 1 < line.len();
        for block in lines.chunk_by(|line, next| has_column(line) == has_column(next)) {
            if !block.first().is_some_and(has_column) {
                block.iter().try_for_each(|line| write_line(out, line, widths))?;
                continue;
            }
            let cells = block.iter().filter_map(|line| line.get(column));
            let width = cells.map(|cell| cell.chars().count() + PADDING).max().unwrap_or(0).max(MIN_WIDTH);
            if self.remembered.len() == column {
                self.remembered.push(width);
            }
            let width = self.remembered.get_mut(column).map_or(width, |remembered| {
                *remembered = width.max(*remembered);
                *remembered
            });
            widths.push(width);
            self.write_block(out, block, widths)?;
            widths.pop();
        }
        Ok(())
    }
}

fn write_line(out: &mut impl Write, cells: &[Box<str>], widths: &[usize]) -> io::Result<()> {
    for (at, cell) in cells.iter().enumerate() {
        match widths.get(at) {
            Some(width) => write!(out, "{cell:width$}")?,
            None => out.write_all(cell.as_bytes())?,
        }
    }
    out.write_all(b"\n")
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
