//! Stdout: rows, tables and summaries, in the order in which they are printed.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::sync::Arc;

use listwatch::{ListMeta, TypeMeta};
use serde::Serialize;

use super::args::{OutputArgs, OutputFormat};
use super::columns::table_columns;
use super::row::Row;
use super::table::RowTable;

/// The size of the buffer.
const BUFFER: usize = 64 << 10;

/// Stdout, locked and buffered.
pub struct Output {
    format: OutputFormat,
    out: BufWriter<StdoutLock<'static>>,
    table: RowTable,
    /// True once a line was printed.
    has_line: bool,
}

impl Output {
    pub fn new(args: &OutputArgs) -> Self {
        let columns = if args.format.is_table() { table_columns(args) } else { Arc::default() };
        Self::with_table(args.format.clone(), RowTable::new(columns, args.no_headers))
    }

    /// Returns an output that prints no items.
    pub fn without_items() -> Self {
        Self::with_table(OutputFormat::Summary, RowTable::default())
    }

    fn with_table(format: OutputFormat, table: RowTable) -> Self {
        let out = BufWriter::with_capacity(BUFFER, io::stdout().lock());
        Self { format, out, table, has_line: false }
    }

    pub fn format(&self) -> &OutputFormat {
        &self.format
    }

    /// Prints a row.
    pub fn print_row(&mut self, row: Row) -> io::Result<()> {
        match row {
            Row::Line(line) => {
                if let OutputFormat::JsonPath(template) = &self.format {
                    self.out.write_all(if self.has_line { template.separator() } else { template.before() })?;
                }
                self.has_line = true;
                self.out.write_all(&line)
            }
            Row::Table(row) => self.table.add_row(&mut self.out, row),
            Row::Nothing => Ok(()),
        }
    }

    /// Prints the rows that wait for the widths of a table, and everything in the buffer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.table.flush(&mut self.out)?;
        self.out.flush()
    }

    /// Prints the end of the output: the rest of a table, or the summary, if there is one.
    pub fn end(&mut self, summary: Option<&SummaryObject<'_>>) -> io::Result<()> {
        if self.format.is_table() {
            self.table.end(&mut self.out)?;
        }
        if let OutputFormat::JsonPath(template) = &self.format {
            if !self.has_line {
                self.out.write_all(template.before())?;
            }
            self.out.write_all(template.after())?;
        }
        if let (OutputFormat::Summary, Some(summary)) = (&self.format, summary) {
            serde_json::to_writer(&mut self.out, summary)?;
            writeln!(self.out)?;
        }
        self.out.flush()
    }
}

/// The output of [`OutputFormat::Summary`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryObject<'a> {
    api_version: Option<&'a str>,
    kind: Option<&'a str>,
    resource_version: Option<&'a str>,
    r#continue: Option<&'a str>,
    remaining_item_count: Option<i64>,
    items: u64,
    bytes: u64,
}

impl<'a> SummaryObject<'a> {
    pub fn new(type_meta: &'a TypeMeta, list_meta: &'a ListMeta, items: u64, bytes: u64) -> Self {
        let present = |text: &'a str| (!text.is_empty()).then_some(text);
        Self {
            api_version: present(&type_meta.api_version),
            kind: present(&type_meta.kind),
            resource_version: present(&list_meta.resource_version),
            r#continue: present(&list_meta.continue_token),
            remaining_item_count: list_meta.remaining_item_count,
            items,
            bytes,
        }
    }
}
