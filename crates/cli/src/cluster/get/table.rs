//! The server's Tables, printed as kubectl prints them.
//!
//! The texts follow `tableprinter.go` of `k8s.io/cli-runtime` 1.37: the columns of a page are as wide as the page needs,
//! and columns of later pages are at least as wide as before.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use listwatch_tables::json_path::print;
use serde::Deserialize;
use serde_json::Value;

use crate::output::TabWriter;

/// The lines after which kubectl flushes the aligned columns.
const FLUSH_LINES: usize = 100;

/// A Table as the server sends it: a page of a collection, or one object. Go writes empty lists as `null`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Table {
    kind: String,
    metadata: Option<TableMeta>,
    column_definitions: Option<Vec<ColumnDefinition>>,
    rows: Option<Vec<TableRow>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
#[serde(rename_all = "camelCase")]
struct TableMeta {
    r#continue: String,
    remaining_item_count: Option<i64>,
}

#[derive(Clone, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct ColumnDefinition {
    name: String,
    r#type: String,
    format: String,
    description: String,
    priority: i32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TableRow {
    cells: Option<Vec<Value>>,
    object: Option<RowObject>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RowObject {
    metadata: Option<RowMeta>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RowMeta {
    namespace: String,
    labels: Option<BTreeMap<String, String>>,
}

impl Table {
    /// Parses the body of a response. An error says what the server sent in place of a Table.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let table: Self = serde_json::from_slice(body).map_err(|error| format!("cannot read a Table: {error}"))?;
        match &*table.kind {
            "Table" => Ok(table),
            kind => Err(format!("the server sent {kind:?} in place of a Table: use -o name or json")),
        }
    }

    /// Returns what the server says about the number of rows after this page.
    pub fn remaining(&self) -> Option<i64> {
        self.metadata.as_ref().and_then(|metadata| metadata.remaining_item_count)
    }

    /// Keeps the first `left` rows, and returns how many there were and how many are kept.
    pub fn truncate(&mut self, left: u64) -> (u64, u64) {
        let rows = self.rows.get_or_insert_default();
        let count = rows.len() as u64;
        rows.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        (count, rows.len() as u64)
    }

    /// Takes the token of the next page; empty after the last.
    pub fn take_continue_token(&mut self) -> String {
        self.metadata.as_mut().map_or(String::new(), |metadata| std::mem::take(&mut metadata.r#continue))
    }
}

/// The options of a table.
#[derive(Clone)]
pub struct TableOptions {
    pub is_wide: bool,
    pub no_headers: bool,
    pub show_labels: bool,
    pub label_columns: Vec<String>,
}

/// Prints the tables of several resources, with an empty line between two.
pub struct TablePrinter<W> {
    out: TrackedWriter<W>,
    tabs: TabWriter,
    options: TableOptions,
    has_group: bool,
    group: Group,
}

/// The tables of one resource, which have one header.
#[derive(Default)]
struct Group {
    /// Cells with the namespace come first.
    with_namespace: bool,
    /// What is printed before names, such as `deployment.apps`.
    prefix: Option<String>,
    last_columns: Vec<ColumnDefinition>,
    has_header: bool,
}

impl<W: Write> TablePrinter<W> {
    pub fn new(out: W, options: TableOptions) -> Self {
        let out = TrackedWriter { out, has_output: false, breaks: false };
        Self { out, tabs: TabWriter::default(), options, has_group: false, group: Group::default() }
    }

    /// Begins the tables of another resource, with a column of namespaces, and with a prefix before names such as
    /// `deployment.apps`.
    pub fn begin(&mut self, with_namespace: bool, prefix: Option<String>) -> io::Result<()> {
        self.tabs.flush(&mut self.out)?;
        self.tabs.forget_widths();
        self.out.breaks |= self.has_group && !self.options.no_headers && self.out.has_output;
        self.has_group = true;
        self.group = Group { with_namespace, prefix, ..Group::default() };
        Ok(())
    }

    /// Prints a table of the resource that was begun last.
    pub fn print(&mut self, table: Table) -> io::Result<()> {
        let Table { column_definitions, rows, .. } = table;
        let (column_definitions, rows) = (column_definitions.unwrap_or_default(), rows.unwrap_or_default());
        let is_same = column_definitions.is_empty() || column_definitions == self.group.last_columns;
        let has_header = self.options.no_headers || self.group.has_header && is_same;
        if !is_same {
            self.group.last_columns = column_definitions;
            self.group.has_header = false;
        }
        self.group.has_header |= !rows.is_empty();
        if rows.is_empty() {
            return Ok(());
        }
        let columns = self.columns();
        let rows: Vec<_> = rows.into_iter().map(|row| self.cells(row, &columns)).collect();
        let mut widest = vec![0; columns.len()];
        for cells in &rows {
            widest.iter_mut().zip(cells).for_each(|(widest, cell)| *widest = cell.len().max(*widest));
        }
        if !has_header {
            let headers: Vec<_> = columns.iter().map(|column| column.name.to_uppercase()).collect();
            self.tabs.add_line(&mut self.out, &join_cells(&headers, &widest))?;
        }
        for (number, cells) in (1..).zip(&rows) {
            // Without a header, the first row makes the columns as wide as the page needs.
            let widths = if number == 1 && has_header { &*widest } else { &[] };
            self.tabs.add_line(&mut self.out, &join_cells(cells, widths))?;
            if number % FLUSH_LINES == 0 {
                self.tabs.flush(&mut self.out)?;
            }
        }
        Ok(())
    }

    /// Prints the rest, and returns true if anything was printed.
    pub fn end(&mut self) -> io::Result<bool> {
        self.tabs.flush(&mut self.out)?;
        self.out.flush()?;
        Ok(self.out.has_output)
    }

    /// Prints the rows that are complete.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns the columns of the table that are printed.
    fn columns(&self) -> Vec<ColumnDefinition> {
        let column = |name: &str| ColumnDefinition { name: name.to_owned(), ..ColumnDefinition::default() };
        let TableOptions { is_wide, show_labels, label_columns, .. } = &self.options;
        let namespace = self.group.with_namespace.then(|| column("NAMESPACE"));
        let of_table = self.group.last_columns.iter().filter(|column| *is_wide || column.priority == 0).cloned();
        let labels = label_columns.iter().map(|label| column(label.rsplit('/').next().unwrap_or(label)));
        namespace.into_iter().chain(of_table).chain(labels).chain(show_labels.then(|| column("LABELS"))).collect()
    }

    /// Returns the texts of a row's cells that are printed.
    fn cells(&self, row: TableRow, columns: &[ColumnDefinition]) -> Vec<String> {
        let TableRow { cells, object } = row;
        let (cells, metadata) =
            (cells.unwrap_or_default(), object.and_then(|object| object.metadata).unwrap_or_default());
        let TableOptions { is_wide, show_labels, label_columns, .. } = &self.options;
        let labels = metadata.labels.unwrap_or_default();
        let of_table = &self.group.last_columns;
        let mut texts: Vec<_> = self.group.with_namespace.then_some(metadata.namespace).into_iter().collect();
        let has_more = !label_columns.is_empty() || *show_labels;
        let count = cells.len();
        let named = of_table.iter().position(|column| column.format == "name" && column.r#type == "string");
        for (at, (cell, column)) in cells.into_iter().zip(of_table).enumerate() {
            if !is_wide && column.priority != 0 {
                continue;
            }
            let text = cell_text(&cell);
            texts.push(match &self.group.prefix {
                Some(prefix) if named == Some(at) => format!("{prefix}/{text}"),
                _ => text,
            });
        }
        // Columns that follow the cells of the table need one for each of its columns.
        if has_more && count < of_table.len() {
            texts.resize(columns.len() - label_columns.len() - usize::from(*show_labels), String::new());
        }
        texts.extend(label_columns.iter().map(|label| labels.get(label).cloned().unwrap_or_default()));
        if *show_labels {
            let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            texts.push(if labels.is_empty() { "<none>".to_owned() } else { labels.join(",") });
        }
        texts
    }
}

/// Returns the text of a cell, as Go's `fmt.Sprint`.
fn cell_text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => {
            let mut text = Vec::new();
            print(other, &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    }
}

/// Returns a cell without what would break the line or control the terminal.
fn escape(cell: &str) -> Cow<'_, str> {
    match cell.find(['\u{c}', '\n', '\r']) {
        Some(at) => format!("{}...", cell[..at].replace('\u{1b}', "^[")).into(),
        None if cell.contains('\u{1b}') => cell.replace('\u{1b}', "^[").into(),
        None => cell.into(),
    }
}

/// Joins cells by tabs, each but the last as wide as this many bytes. As in kubectl, escapes do not count.
fn join_cells(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (at, cell) in cells.iter().enumerate() {
        if at > 0 {
            line.push('\t');
        }
        line.push_str(&escape(cell));
        if at + 1 < widths.len() {
            let missing = widths.get(at).map_or(0, |width| width.saturating_sub(cell.len()));
            line.extend(std::iter::repeat_n(' ', missing));
        }
    }
    line
}

/// Knows whether anything was written, and writes an empty line before what follows a break.
struct TrackedWriter<W> {
    out: W,
    has_output: bool,
    breaks: bool,
}

impl<W: Write> Write for TrackedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if std::mem::take(&mut self.breaks) {
            self.out.write_all(b"\n")?;
        }
        self.has_output = true;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
