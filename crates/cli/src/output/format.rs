//! What an output format is: its header, its rows, its changes and its end.

use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

use console::Color;
use listwatch::{ItemError, ItemRef, ListMeta, TypeMeta};
use serde::Serialize;
use serde_json::Value;

use super::aligned::TableColumn;
use super::kind::TableKind;

/// A format, made for one list or watch.
pub trait Format {
    fn info(&self) -> &'static FormatInfo;

    /// Returns the row of an item; `None` if nothing is printed for it.
    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError>;

    /// Returns the row of a change: the row of the object, with what the format says about a change.
    fn event_row(&self, row: Row, event: &Event<'_>) -> Result<Row, ItemError>;

    /// Returns the columns of rows of cells.
    fn columns(&self) -> Arc<[TableColumn]> {
        Arc::default()
    }

    /// Returns the text before the first row, which is also printed without rows.
    fn header(&self) -> &[u8] {
        b""
    }

    /// Returns the text between two rows of text.
    fn separator(&self) -> &[u8] {
        b""
    }

    /// Writes what comes after the last row. The summary is that of a complete list.
    fn write_end(&self, _out: &mut dyn Write, _summary: Option<&SummaryObject<'_>>) -> io::Result<()> {
        Ok(())
    }

    /// Writes what waits for later rows, when the rows so far are printed before a change.
    fn flush(&self, _out: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    /// Returns the error of an option that only the first item has shown to be wrong.
    fn usage_error(&self) -> Option<String> {
        None
    }

    /// Returns the number of unknown fields that the rows since the last call lack.
    fn take_unknown_fields(&self) -> u64 {
        0
    }
}

/// What is printed for one item.
#[derive(Debug, PartialEq)]
pub enum Row {
    /// Text that ends in a line break.
    Text(Vec<u8>),
    /// A cell for each column.
    Cells(Vec<String>),
}

/// The name of a format, and what the commands must know before an object arrives.
pub struct FormatInfo {
    /// Ends in `=` if an argument follows.
    pub name: &'static str,
    pub help: &'static str,
    pub needs: Needs,
    pub options: &'static [OptionGroup],
    pub constructor: Constructor,
}

/// What a format reads of the objects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// It prints no items.
    Nothing,
    Metadata,
    /// What kubectl prints of the kind.
    Columns,
    /// All fields: from a server, as JSON.
    Fields,
}

/// Options that only some formats take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OptionGroup {
    /// `--drop` and `--show-managed-fields`.
    Fields,
    /// `--label-columns` and `--show-labels`.
    Labels,
    /// `--no-headers`.
    Headers,
}

pub enum Constructor {
    /// `-o NAME`
    Plain(fn(&FormatContext) -> Rc<dyn Format>),
    /// `-o NAME=TEXT`, or `-o NAME-file=FILE` for the text of a file.
    Argument(fn(&str, ArgumentSource) -> Result<FormatBuilder, String>),
}

/// Makes the format of a parsed argument.
pub type FormatBuilder = Arc<dyn Fn(&FormatContext) -> Rc<dyn Format> + Send + Sync>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ArgumentSource {
    CommandLine,
    File,
}

/// What a format is made for.
pub struct FormatContext {
    pub options: OutputOptions,
    /// The kind of a table's columns; `None` for that of the first object.
    pub kind: Option<TableKind>,
    pub purpose: Purpose,
}

/// What the rows stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// One object, which was requested by its name.
    Object,
    /// Objects of a list, and objects that change after it.
    Objects,
    /// Changes, with what happened to the object.
    Events,
    /// Changes, with the values that changed.
    Comparisons,
}

/// The options of the output that belong to some formats only.
#[derive(Clone, Default, clap::Args)]
pub struct OutputOptions {
    /// In a table, do not print headers
    #[arg(long, help_heading = "Output")]
    pub no_headers: bool,

    /// In a table, add a column with all labels
    #[arg(long, help_heading = "Output")]
    pub show_labels: bool,

    /// In a table, add a column for each of these labels: app,app.kubernetes.io/name
    #[arg(short = 'L', long, value_name = "LABELS", value_delimiter = ',', help_heading = "Output")]
    pub label_columns: Vec<String>,

    /// With -o json and yaml, print metadata.managedFields, which are hidden by default
    #[arg(long, help_heading = "Output")]
    pub show_managed_fields: bool,

    /// With -o json and yaml, leave out this field; repeat for several fields.
    ///
    /// Examples: `status`, `metadata.annotations["KEY"]`.
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub drop: Vec<String>,

    /// True if objects are printed without what the server sets, so that they can be applied again.
    #[arg(skip)]
    pub is_clean: bool,
}

/// A change of a watch.
pub struct Event<'a> {
    pub kind: EventKind,
    /// The resource version of the object.
    pub version: &'a str,
    pub comparison: Comparison,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// What is known about the previous state of an object.
pub enum Comparison {
    /// Objects are not compared.
    Off,
    /// There is no previous state to compare with.
    Unknown,
    Changed {
        /// A line for each changed value.
        lines: Vec<String>,
        /// The changes as a JSON patch.
        patch: Value,
    },
}

impl EventKind {
    pub fn sign(self) -> &'static str {
        match self {
            Self::Added => "+",
            Self::Modified => "~",
            Self::Deleted => "-",
        }
    }

    pub fn color(self) -> Color {
        match self {
            Self::Added => Color::Green,
            Self::Modified => Color::Yellow,
            Self::Deleted => Color::Red,
        }
    }

    /// Returns the type of the event in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Returns the columns of a table: those of the objects, and around them those of changes.
pub fn table_columns(objects: Vec<TableColumn>, purpose: Purpose) -> Arc<[TableColumn]> {
    let event = matches!(purpose, Purpose::Events | Purpose::Comparisons).then(|| TableColumn::new("EVENT"));
    let changed = (purpose == Purpose::Comparisons).then(|| TableColumn::new("CHANGED"));
    event.into_iter().chain(objects).chain(changed).collect()
}

/// Returns the cells of a change, in the columns of [`table_columns`].
pub fn event_cells(row: Row, event: &Event<'_>) -> Row {
    let Row::Cells(cells) = row else { return row };
    let changed = match &event.comparison {
        Comparison::Off => None,
        Comparison::Unknown => Some("-".to_owned()),
        Comparison::Changed { lines, .. } if lines.is_empty() => Some("none".to_owned()),
        Comparison::Changed { lines, .. } => Some(lines.join("; ")),
    };
    // No colours: the columns count characters.
    Row::Cells([event.kind.sign().to_owned()].into_iter().chain(cells).chain(changed).collect())
}

/// What a list is: the output of `-o summary`, and for `get -o json`, what `--limit` left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryObject<'a> {
    api_version: Option<&'a str>,
    kind: Option<&'a str>,
    resource_version: Option<&'a str>,
    pub r#continue: Option<&'a str>,
    pub remaining_item_count: Option<i64>,
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
