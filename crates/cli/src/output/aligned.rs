//! Tables whose columns are as wide as their first rows need.

use std::io::{self, Write};
use std::sync::Arc;

use console::style;

/// A column of a table.
#[derive(Clone)]
pub struct TableColumn {
    pub header: String,
    /// Hidden if the first rows have no text in it.
    pub optional: bool,
    /// Right-aligned.
    pub right: bool,
}

impl TableColumn {
    /// Returns a left-aligned column that is always visible.
    pub fn new(header: &str) -> Self {
        Self { header: header.to_owned(), optional: false, right: false }
    }
}

/// A table with columns as wide as its first rows need, so that memory stays constant.
///
/// A longer cell later shifts its row.
pub struct AlignedTable {
    /// Empty until the first rows are printed.
    columns: Arc<[TableColumn]>,
    no_headers: bool,
    /// `None` until the first rows are printed.
    widths: Option<ColumnWidths>,
    /// The first rows, until the widths are known.
    waiting: Vec<Vec<String>>,
    /// How many rows decide about the widths.
    measured: usize,
}

/// Returns the columns, which are known by the first row.
type Columns<'a> = &'a dyn Fn() -> Arc<[TableColumn]>;

/// The width of each column; `None` if it is hidden.
type ColumnWidths = Vec<Option<usize>>;

impl AlignedTable {
    const FIRST_ROWS: usize = 100;

    /// kubectl's columns take at least 6 characters, with the gap of 3 (`GetNewTabWriter` of `k8s.io/cli-runtime`).
    const MIN_WIDTH: usize = 3;

    pub fn new(no_headers: bool) -> Self {
        let measured = Self::FIRST_ROWS;
        Self { columns: Arc::default(), no_headers, widths: None, waiting: Vec::new(), measured }
    }

    /// Creates a table that keeps all rows until its end, so that no row is shifted.
    pub fn whole(no_headers: bool) -> Self {
        Self { measured: usize::MAX, ..Self::new(no_headers) }
    }

    /// Prints a row, or keeps it until the widths are known.
    pub fn add_row(&mut self, out: &mut impl Write, cells: Vec<String>, columns: Columns<'_>) -> io::Result<()> {
        if let Some(widths) = &self.widths {
            return self.write_line(out, widths, &cells);
        }
        self.waiting.push(cells);
        if self.waiting.len() < self.measured { Ok(()) } else { self.begin(out, columns) }
    }

    /// Prints the rows that wait for the widths.
    pub fn flush(&mut self, out: &mut impl Write, columns: Columns<'_>) -> io::Result<()> {
        if self.waiting.is_empty() { Ok(()) } else { self.begin(out, columns) }
    }

    /// Prints the rows that wait for the widths, and the header of an empty list.
    pub fn end(&mut self, out: &mut impl Write, columns: Columns<'_>) -> io::Result<()> {
        if self.widths.is_some() { Ok(()) } else { self.begin(out, columns) }
    }

    /// Determines the widths, and prints the header and the rows that wait.
    fn begin(&mut self, out: &mut impl Write, columns: Columns<'_>) -> io::Result<()> {
        self.columns = columns();
        let waiting = std::mem::take(&mut self.waiting);
        let widths = self.measure(&waiting);
        if !self.no_headers && !self.columns.is_empty() {
            let headers: Vec<_> = self.columns.iter().map(|column| column.header.clone()).collect();
            let mut header = Vec::new();
            self.write_line(&mut header, &widths, &headers)?;
            writeln!(out, "{}", style(String::from_utf8_lossy(&header).trim_end()).bold())?;
        }
        waiting.iter().try_for_each(|cells| self.write_line(out, &widths, cells))?;
        self.widths = Some(widths);
        Ok(())
    }

    /// Returns the widths that these rows need.
    fn measure(&self, rows: &[Vec<String>]) -> ColumnWidths {
        let of = |(index, column): (usize, &TableColumn)| {
            let width = rows.iter().filter_map(|cells| cells.get(index)).map(|cell| cell.chars().count()).max();
            let header = if self.no_headers { 0 } else { column.header.len() };
            let width = width.unwrap_or(0);
            (width > 0 || !column.optional).then(|| width.max(header).max(Self::MIN_WIDTH))
        };
        self.columns.iter().enumerate().map(of).collect()
    }

    /// Prints a row.
    fn write_line(&self, out: &mut impl Write, widths: &ColumnWidths, cells: &[String]) -> io::Result<()> {
        let last = widths.iter().rposition(Option::is_some);
        let mut gap = "";
        for (index, (column, (width, cell))) in self.columns.iter().zip(widths.iter().zip(cells)).enumerate() {
            let Some(width) = width else { continue };
            match column.right {
                true => write!(out, "{gap}{cell:>width$}")?,
                // The last column has no trailing spaces.
                false if Some(index) == last => write!(out, "{gap}{cell}")?,
                false => write!(out, "{gap}{cell:width$}")?,
            }
            gap = "   ";
        }
        writeln!(out)
    }
}
