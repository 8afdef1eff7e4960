//! What is printed of a list, in the formats that all commands share.

use std::borrow::Cow;
use std::io::{self, BufWriter, StdoutLock, Write};

use clap::ValueEnum;
use console::style;
use listwatch::{ItemError, ItemRef, ListMeta, TypeMeta};
use serde::Serialize;

const BUFFER: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One namespace/name a line, or one name where there is no namespace
    Name,
    /// Namespace, name, version, size in bytes and uid in columns
    Table,
    /// One JSON object about the whole list, once it is complete
    Summary,
}

/// What a format prints of one item.
pub enum Row {
    Name(String),
    Table(Cells),
    Nothing,
}

impl Format {
    /// Whether it prints items as they come.
    pub fn prints_items(self) -> bool {
        self != Self::Summary
    }

    pub fn row(self, item: &ItemRef<'_>) -> Result<Row, ItemError> {
        if self == Self::Summary {
            return Ok(Row::Nothing);
        }
        let meta = item.meta()?;
        let [namespace, name] = [meta.namespace(), meta.name()].map(printable);
        Ok(match self {
            Self::Summary => Row::Nothing,
            Self::Name if namespace.is_empty() => Row::Name(name.into_owned()),
            Self::Name => Row::Name(format!("{namespace}/{name}")),
            Self::Table => Row::Table([
                namespace.into_owned(),
                name.into_owned(),
                printable(meta.resource_version()).into_owned(),
                item.bytes().len().to_string(),
                printable(meta.uid()).into_owned(),
            ]),
        })
    }
}

/// Stdout, which nobody else writes to meanwhile.
pub struct Output {
    format: Format,
    out: BufWriter<StdoutLock<'static>>,
    table: Table,
}

impl Output {
    pub fn new(format: Format) -> Self {
        Self { format, out: BufWriter::with_capacity(BUFFER, io::stdout().lock()), table: Table::default() }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn row(&mut self, row: Row) -> io::Result<()> {
        match row {
            Row::Name(name) => writeln!(self.out, "{name}"),
            Row::Table(cells) => self.table.row(&mut self.out, cells),
            Row::Nothing => Ok(()),
        }
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.table.flush(&mut self.out)?;
        self.out.flush()
    }

    /// The list is complete.
    pub fn end(&mut self, summary: &Summary<'_>) -> io::Result<()> {
        match self.format {
            Format::Name => {}
            Format::Table => self.table.end(&mut self.out)?,
            Format::Summary => {
                serde_json::to_writer(&mut self.out, summary)?;
                writeln!(self.out)?;
            }
        }
        self.out.flush()
    }
}

type Cells = [String; 5];

const HEADER: [&str; 5] = ["NAMESPACE", "NAME", "VERSION", "SIZE", "UID"];

/// Aligns columns by the first rows, so that memory stays constant; a later cell that is longer shifts its row.
#[derive(Default)]
struct Table {
    layout: Option<Layout>,
    waiting: Vec<Cells>,
}

#[derive(Clone, Copy)]
struct Layout {
    namespaced: bool,
    widths: [usize; 5],
}

impl Table {
    const FIRST_ROWS: usize = 100;

    fn row(&mut self, out: &mut impl Write, cells: Cells) -> io::Result<()> {
        if let Some(layout) = self.layout {
            return layout.write(out, &cells);
        }
        self.waiting.push(cells);
        if self.waiting.len() < Self::FIRST_ROWS { Ok(()) } else { self.begin(out) }
    }

    fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.waiting.is_empty() { Ok(()) } else { self.begin(out) }
    }

    /// Even an empty list has a header.
    fn end(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.layout.is_some() { Ok(()) } else { self.begin(out) }
    }

    fn begin(&mut self, out: &mut impl Write) -> io::Result<()> {
        let layout = *self.layout.insert(Layout::of(&self.waiting));
        let mut header = Vec::new();
        layout.write(&mut header, &HEADER)?;
        writeln!(out, "{}", style(String::from_utf8_lossy(&header).trim_end()).bold())?;
        std::mem::take(&mut self.waiting).iter().try_for_each(|cells| layout.write(out, cells))
    }
}

impl Layout {
    fn of(rows: &[Cells]) -> Self {
        let width = |column: usize| rows.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
        Self {
            namespaced: rows.iter().any(|[namespace, ..]| !namespace.is_empty()),
            widths: std::array::from_fn(|column| width(column).max(HEADER[column].len())),
        }
    }

    fn write(&self, out: &mut impl Write, cells: &[impl AsRef<str>; 5]) -> io::Result<()> {
        let [namespace, name, version, size, uid] = cells.each_ref().map(AsRef::as_ref);
        let [w_namespace, w_name, w_version, w_size, _] = self.widths;
        if self.namespaced {
            write!(out, "{namespace:w_namespace$}   ")?;
        }
        writeln!(out, "{name:w_name$}   {version:w_version$}   {size:>w_size$}   {uid}")
    }
}

/// What [`Format::Summary`] prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary<'a> {
    api_version: Option<&'a str>,
    kind: Option<&'a str>,
    resource_version: Option<&'a str>,
    r#continue: Option<&'a str>,
    remaining_item_count: Option<i64>,
    items: u64,
    bytes: u64,
}

impl<'a> Summary<'a> {
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

/// Control characters escaped, so that no name forges a line or drives the terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}
