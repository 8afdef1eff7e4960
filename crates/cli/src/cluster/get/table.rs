//! The server's Tables, printed as kubectl prints them.
//!
//! The texts follow `tableprinter.go` of `k8s.io/cli-runtime` 1.37: the columns of a page are as wide as the page needs,
//! and columns of later pages are at least as wide as before.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use jiff::Timestamp;
use listwatch_tables::age_at;
use listwatch_tables::json_path::print;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

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
    /// Of a list, which a server without Tables sends.
    items: Option<Vec<RowObject>>,
    /// True if the server sent objects: kubectl then aligns all of them together.
    #[serde(skip)]
    is_of_objects: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
#[serde(rename_all = "camelCase")]
struct TableMeta {
    r#continue: String,
    resource_version: String,
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
    object: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RowObject {
    metadata: Option<RowMeta>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RowMeta {
    name: String,
    namespace: String,
    creation_timestamp: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

/// A row as it is printed, and the object that it is sorted by.
pub struct PrintedRow {
    pub cells: Vec<String>,
    pub object: Option<Box<RawValue>>,
}

impl Table {
    /// Parses the body of a response. A server without Tables sends the objects, which get kubectl's columns for them:
    /// their names and ages.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let faulty = |error| format!("cannot read a Table: {error}");
        let table: Self = serde_json::from_slice(body).map_err(faulty)?;
        match (&*table.kind, table.items) {
            ("Table", _) => Ok(Self { items: None, ..table }),
            ("" | "Status", None) => Err(format!("the server sent {:?} in place of a Table", table.kind)),
            (_, Some(items)) => Ok(Self::of_objects(table.metadata, items)),
            (_, None) => {
                let object = serde_json::from_slice(body).map_err(faulty)?;
                Ok(Self::of_objects(None, vec![object]))
            }
        }
    }

    fn of_objects(metadata: Option<TableMeta>, objects: Vec<RowObject>) -> Self {
        let now = Timestamp::now();
        let row = |RowObject { metadata }: RowObject| {
            let metadata = metadata.unwrap_or_default();
            let created = metadata.creation_timestamp.and_then(|created| created.parse().ok());
            let labels = serde_json::json!({"metadata": {"namespace": metadata.namespace, "labels": metadata.labels}});
            let cells = vec![metadata.name.into(), age_at(now, created).into()];
            TableRow { cells: Some(cells), object: serde_json::value::to_raw_value(&labels).ok() }
        };
        let column = |name: &str, format: &str| ColumnDefinition {
            name: name.to_owned(),
            r#type: "string".to_owned(),
            format: format.to_owned(),
            ..ColumnDefinition::default()
        };
        Self {
            kind: "Table".to_owned(),
            metadata,
            column_definitions: Some(vec![column("Name", "name"), column("Age", "")]),
            rows: Some(objects.into_iter().map(row).collect()),
            items: None,
            is_of_objects: true,
        }
    }

    /// Returns the version of the list.
    pub fn version(&self) -> &str {
        self.metadata.as_ref().map_or("", |metadata| &metadata.resource_version)
    }

    pub fn is_empty(&self) -> bool {
        self.rows.as_ref().is_none_or(Vec::is_empty)
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
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct TableOptions {
    /// With a column of the types of events.
    pub has_events: bool,
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
    page: PrintedPage,
}

/// The rows of one Table that are being printed.
#[derive(Default)]
struct PrintedPage {
    widest: Vec<usize>,
    /// True if the first row makes the columns as wide as the page needs, because no header does.
    pads_first: bool,
    /// True if the columns have their widths after some rows.
    is_flushed: bool,
    rows: usize,
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
        let (tabs, group, page) = (TabWriter::default(), Group::default(), PrintedPage::default());
        Self { out, tabs, options, has_group: false, group, page }
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

    /// Prints a table of the resource that was begun last, or an event, whose type is given.
    pub fn print(&mut self, table: Table, event: Option<&str>) -> io::Result<()> {
        let is_of_objects = table.is_of_objects;
        let rows = self.read(table, event);
        if rows.is_empty() {
            return Ok(());
        }
        let mut widest = Vec::new();
        if !is_of_objects {
            for row in &rows {
                widen(&mut widest, &row.cells);
            }
        }
        self.begin_rows(widest)?;
        self.page.is_flushed = !is_of_objects;
        rows.iter().try_for_each(|row| self.print_row(&row.cells))
    }

    /// Returns the rows of a Table as they are printed, and learns its columns.
    pub fn read(&mut self, table: Table, event: Option<&str>) -> Vec<PrintedRow> {
        let Table { column_definitions, rows, .. } = table;
        let (column_definitions, rows) = (column_definitions.unwrap_or_default(), rows.unwrap_or_default());
        if !column_definitions.is_empty() && column_definitions != self.group.last_columns {
            self.group.last_columns = column_definitions;
            self.group.has_header = false;
        }
        let columns = self.columns().len();
        rows.into_iter().map(|row| self.printed(row, columns, event)).collect()
    }

    /// Begins to print the rows of a Table, whose cells have at most these numbers of bytes.
    pub fn begin_rows(&mut self, widest: Vec<usize>) -> io::Result<()> {
        let has_header = self.options.no_headers || self.group.has_header;
        if !has_header {
            let headers: Vec<_> = self.columns().iter().map(|column| column.name.to_uppercase()).collect();
            self.tabs.add_line(&mut self.out, &join_cells(&headers, &widest))?;
        }
        self.group.has_header = true;
        self.page = PrintedPage { widest, pads_first: has_header, is_flushed: true, rows: 0 };
        Ok(())
    }

    /// Prints a row of the Table that was begun last.
    pub fn print_row(&mut self, cells: &[String]) -> io::Result<()> {
        self.page.rows += 1;
        let pads = self.page.pads_first && self.page.rows == 1;
        let widths = if pads { &*self.page.widest } else { &[] };
        self.tabs.add_line(&mut self.out, &join_cells(cells, widths))?;
        if self.page.is_flushed && self.page.rows.is_multiple_of(FLUSH_LINES) {
            self.tabs.flush(&mut self.out)?;
        }
        Ok(())
    }

    /// Prints the rows so far, also those that wait for the widths of later ones.
    pub fn flush_rows(&mut self) -> io::Result<()> {
        self.tabs.flush(&mut self.out)?;
        self.out.flush()
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
        let event = self.options.has_events.then(|| column("EVENT"));
        let namespace = self.group.with_namespace.then(|| column("NAMESPACE"));
        let of_table = self.group.last_columns.iter().filter(|column| *is_wide || column.priority == 0).cloned();
        let labels = label_columns.iter().map(|label| column(label.rsplit('/').next().unwrap_or(label)));
        let first = event.into_iter().chain(namespace);
        first.chain(of_table).chain(labels).chain(show_labels.then(|| column("LABELS"))).collect()
    }

    /// Returns a row as it is printed in this number of columns.
    fn printed(&self, row: TableRow, columns: usize, event: Option<&str>) -> PrintedRow {
        let TableRow { cells, object } = row;
        let metadata = object.as_ref().and_then(|object| serde_json::from_str::<RowObject>(object.get()).ok());
        let metadata = metadata.and_then(|object| object.metadata).unwrap_or_default();
        let cells = cells.unwrap_or_default();
        let TableOptions { is_wide, show_labels, label_columns, .. } = &self.options;
        let labels = metadata.labels.unwrap_or_default();
        let of_table = &self.group.last_columns;
        // As wide as the longest type.
        let event = event.map(|event| format!("{event:8}"));
        let namespace = self.group.with_namespace.then_some(metadata.namespace);
        let mut texts: Vec<_> = event.into_iter().chain(namespace).collect();
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
            texts.resize(columns - label_columns.len() - usize::from(*show_labels), String::new());
        }
        texts.extend(label_columns.iter().map(|label| labels.get(label).cloned().unwrap_or_default()));
        if *show_labels {
            let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            texts.push(if labels.is_empty() { "<none>".to_owned() } else { labels.join(",") });
        }
        PrintedRow { cells: texts, object }
    }
}

/// Makes columns as wide as these cells need, in bytes as kubectl counts.
pub fn widen(widest: &mut Vec<usize>, cells: &[String]) {
    widest.resize(widest.len().max(cells.len()), 0);
    widest.iter_mut().zip(cells).for_each(|(widest, cell)| *widest = cell.len().max(*widest));
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
