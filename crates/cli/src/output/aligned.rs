//! Tables whose columns are as wide as their rows need.

use std::io::{self, Write};

use console::style;

/// kubectl's columns take at least 6 characters, with the gap of 3 (`GetNewTabWriter` of `k8s.io/cli-runtime`).
const MIN_WIDTH: usize = 3;
const GAP: &str = "   ";

/// A column of a table.
pub struct TableColumn {
    pub header: String,
    /// Right-aligned.
    pub right: bool,
}

/// Writes rows, and their header unless it is not wanted.
pub fn write_aligned(
    out: &mut impl Write,
    columns: &[TableColumn],
    rows: &[Vec<String>],
    no_headers: bool,
) -> io::Result<()> {
    let width_of = |(at, column): (usize, &TableColumn)| {
        let cells = rows.iter().filter_map(|cells| cells.get(at)).map(|cell| cell.chars().count()).max();
        let header = if no_headers { 0 } else { column.header.chars().count() };
        cells.unwrap_or(0).max(header).max(MIN_WIDTH)
    };
    let widths: Vec<_> = columns.iter().enumerate().map(width_of).collect();
    if !no_headers {
        let header = join(columns, &widths, columns.iter().map(|column| &column.header));
        writeln!(out, "{}", style(header).bold())?;
    }
    rows.iter().try_for_each(|cells| writeln!(out, "{}", join(columns, &widths, cells.iter())))
}

/// Joins cells in their columns, without spaces at the end.
fn join<'a>(columns: &[TableColumn], widths: &[usize], cells: impl Iterator<Item = &'a String>) -> String {
    let mut line = String::new();
    for (at, ((column, width), cell)) in columns.iter().zip(widths).zip(cells).enumerate() {
        let gap = if at == 0 { "" } else { GAP };
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        let (before, after) = if column.right { (&*padding, "") } else { ("", &*padding) };
        line.extend([gap, before, cell, after]);
    }
    line.truncate(line.trim_end().len());
    line
}
