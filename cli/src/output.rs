//! What is printed of a list or a watch, in the formats that all commands share.

use std::borrow::Cow;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;
use std::time::SystemTime;

use clap::ValueEnum;
use console::style;
use listwatch::{Encoding, FieldPath, ItemError, ItemRef, ListMeta, Projection, TypeMeta};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::failure::Failure;

const BUFFER: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One namespace/name a line, or one name where there is no namespace
    Name,
    /// Namespace, name, version, age and size in bytes, in columns
    Table,
    /// One JSON object a line, with kind and apiVersion
    Json,
    /// One JSON object about the whole list, once it is complete
    Summary,
}

/// What a format prints of one item.
pub enum Row {
    /// With its end.
    Line(Vec<u8>),
    Table(Cells),
    Nothing,
}

impl Format {
    /// Whether it prints items as they come.
    pub fn prints_items(self) -> bool {
        self != Self::Summary
    }
}

/// What is printed of the items.
#[derive(clap::Args)]
pub struct Shown {
    /// What to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Format::Name, value_name = "FORMAT")]
    pub format: Format,

    /// In a table, the labels too
    #[arg(long)]
    pub show_labels: bool,

    /// With -o json, without this field, as in `status` or `metadata.annotations["KEY"]`; again for more
    #[arg(long, value_name = "PATH")]
    pub drop: Vec<String>,
}

impl Shown {
    /// What makes the rows. Fields are dropped of nothing but JSON.
    pub fn rows(&self) -> Result<Rows<'_>, Failure> {
        if !self.drop.is_empty() && self.format != Format::Json {
            return Err(Failure::Usage("--drop is for -o json: no other format prints fields".to_owned()));
        }
        match self.drop.iter().find(|path| path.starts_with(|c: char| c.is_ascii_digit())) {
            Some(path) => Err(Failure::Usage(format!("--drop {path}: the fields of JSON have names"))),
            None => Ok(Rows { shown: self, drop: None, unknown_fields: 0 }),
        }
    }
}

/// Makes rows of items.
pub struct Rows<'a> {
    shown: &'a Shown,
    /// Once an item has shown which type the objects have.
    drop: Option<Projection>,
    /// The number of fields that are not in the JSON.
    pub unknown_fields: u64,
}

impl Rows<'_> {
    pub fn row(&mut self, item: &ItemRef<'_>) -> Result<Row, ItemError> {
        match self.shown.format {
            Format::Summary => return Ok(Row::Nothing),
            Format::Json => return self.json(item).map(Row::Line),
            Format::Name | Format::Table => {}
        }
        let meta = item.meta()?;
        let (namespace, name) = (meta.namespace(), meta.name());
        let (namespace, name) = (printable(&namespace), printable(&name));
        if self.shown.format == Format::Name {
            let slash = if namespace.is_empty() { "" } else { "/" };
            return Ok(Row::Line([&*namespace, slash, &*name, "\n"].concat().into()));
        }
        let labels = if self.shown.show_labels {
            let labels = meta.labels()?.map(|(key, value)| printable(&format!("{key}={value}")).into_owned());
            let labels = labels.collect::<Vec<_>>().join(",");
            if labels.is_empty() { "<none>".to_owned() } else { labels }
        } else {
            String::new()
        };
        Ok(Row::Table([
            String::new(),
            namespace.into_owned(),
            name.into_owned(),
            printable(&meta.resource_version()).into_owned(),
            meta.creation_timestamp().map_or_else(|| "<unknown>".to_owned(), |created| age(created.seconds)),
            item.bytes().len().to_string(),
            labels,
            String::new(),
        ]))
    }

    fn json(&mut self, item: &ItemRef<'_>) -> Result<Vec<u8>, ItemError> {
        let mut line = Vec::new();
        self.unknown_fields += item.to_json(&mut line)?;
        if !self.shown.drop.is_empty() {
            line = ItemRef::new(Encoding::Json, &line).project(self.projection(item.type_meta())?)?.into();
        }
        line.push(b'\n');
        Ok(line)
    }

    fn projection(&mut self, of: &TypeMeta) -> Result<&Projection, ItemError> {
        if self.drop.is_none() {
            let paths: Result<Vec<_>, _> = self.shown.drop.iter().map(|path| FieldPath::parse(path, of)).collect();
            let paths = paths.map_err(ItemError::other)?;
            self.drop = Some(paths.iter().fold(Projection::new(), Projection::drop));
        }
        Ok(self.drop.get_or_insert_default())
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
            Row::Line(line) => self.out.write_all(&line),
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
            Format::Name | Format::Json => {}
            Format::Table => self.table.end(&mut self.out)?,
            Format::Summary => {
                serde_json::to_writer(&mut self.out, summary)?;
                writeln!(self.out)?;
            }
        }
        self.out.flush()
    }
}

/// Those of a column that is not shown are empty: the first and the last are for watches.
type Cells = [String; 8];

const HEADER: [&str; 8] = ["EVENT", "NAMESPACE", "NAME", "VERSION", "AGE", "SIZE", "LABELS", "CHANGED"];

/// The column of numbers.
const SIZE: usize = 5;

/// Aligns columns by the first rows, so that memory stays constant; a later cell that is longer shifts its row.
#[derive(Default)]
struct Table {
    layout: Option<Layout>,
    waiting: Vec<Cells>,
}

#[derive(Clone, Copy)]
struct Layout {
    /// `None` where the column is not shown.
    widths: [Option<usize>; 8],
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
        let is_shown = |column: usize, width: usize| width > 0 || (2..=SIZE).contains(&column);
        let widths = std::array::from_fn(|column| {
            let width = width(column);
            is_shown(column, width).then(|| width.max(HEADER[column].len()))
        });
        Self { widths }
    }

    fn write(&self, out: &mut impl Write, cells: &[impl AsRef<str>; 8]) -> io::Result<()> {
        let last = self.widths.iter().rposition(Option::is_some);
        let mut gap = "";
        for (column, (width, cell)) in self.widths.iter().zip(cells).enumerate() {
            let (Some(width), cell) = (width, cell.as_ref()) else { continue };
            match column {
                SIZE => write!(out, "{gap}{cell:>width$}")?,
                // No spaces at the end of a line.
                _ if Some(column) == last => write!(out, "{gap}{cell}")?,
                _ => write!(out, "{gap}{cell:width$}")?,
            }
            gap = "   ";
        }
        writeln!(out)
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

/// A file that is to take the place of this one.
pub fn temporary_beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|directory| *directory != Path::new("")).unwrap_or(Path::new("."));
    NamedTempFile::new_in(directory)
}

/// How long ago a time in seconds since 1970 is, as kubectl writes it (apimachinery `util/duration.HumanDuration`).
fn age(created: i64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    human(i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(created))
}

fn human(seconds: i64) -> String {
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit}{small}{small_unit}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        // A second for clocks that differ.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// Control characters escaped, so that no name forges a line or drives the terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    // Names are ASCII.
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || !text.contains(char::is_control) {
        return text.into();
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    /// What kubectl prints.
    #[test]
    fn ages() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(super::human(seconds), expected, "{seconds}");
        }
    }
}
