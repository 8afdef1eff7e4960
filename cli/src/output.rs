//! The output formats of lists and watches, shared by all commands.

use std::borrow::Cow;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use console::style;
use listwatch::path::{meta, pod};
use listwatch::{Encoding, ItemError, ItemRef, ListMeta, Projection, Time, TypeMeta};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::failure::Failure;
use crate::paths::drop_path;
use crate::signals;
pub use crate::yaml::yaml;

const BUFFER: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line per object: NAMESPACE/NAME, because names alone are not unique over namespaces; NAME if it has no namespace
    Name,
    /// Columns: namespace, name, version, age and size in bytes
    Table,
    /// The columns of `table`, and owner and UID; for Pods also phase, node and IP
    Wide,
    /// One JSON object per line, with kind and apiVersion
    Json,
    /// One YAML document per object
    Yaml,
    /// For lists: one JSON object that describes the whole list, once it is complete
    Summary,
}

/// The output for one item.
pub enum Row {
    /// Text that ends in a line break.
    Line(Vec<u8>),
    Table(Cells),
    Nothing,
}

impl Format {
    /// Returns true if the format prints items as they arrive.
    pub fn prints_items(self) -> bool {
        self != Self::Summary
    }

    /// Returns true if the format prints the fields of objects.
    pub fn prints_fields(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// The options of the output.
#[derive(Clone, clap::Args)]
pub struct Shown {
    /// Output format
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Format::Name, value_name = "FORMAT", help_heading = "Output")]
    pub format: Format,

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

    /// With -o json and yaml, leave out this field, such as `status` or `metadata.annotations["KEY"]`; repeat for several fields
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub drop: Vec<String>,
}

impl Shown {
    /// Returns the converter from items to rows.
    pub fn rows(&self) -> Result<Rows<'_>, Failure> {
        let of_fields = [("--drop", !self.drop.is_empty()), ("--show-managed-fields", self.show_managed_fields)];
        let of_tables = [
            ("--label-columns", !self.label_columns.is_empty()),
            ("--show-labels", self.show_labels),
            ("--no-headers", self.no_headers),
        ];
        let is_set = |options: &[(&'static str, bool)]| options.iter().find(|option| option.1).map(|option| option.0);
        match (is_set(&of_fields), is_set(&of_tables)) {
            (Some(option), _) if !self.format.prints_fields() => {
                return Err(Failure::Usage(format!("{option} is for -o json and yaml: no other format prints fields")));
            }
            (_, Some(option)) if !self.format.is_table() => {
                return Err(Failure::Usage(format!("{option} is for -o table and wide")));
            }
            _ => {}
        }
        match self.drop.iter().find(|path| path.starts_with(|c: char| c.is_ascii_digit())) {
            Some(path) => Err(Failure::Usage(format!("--drop {path}: expected names of fields, not numbers"))),
            None => Ok(Rows { shown: self, drop: None, invalid_path: None, unknown_fields: 0 }),
        }
    }

    /// Returns true if the output omits metadata.managedFields.
    pub fn hides_managed_fields(&self) -> bool {
        !self.show_managed_fields || self.drop.iter().any(|path| path == "metadata.managedFields")
    }

    /// Returns the columns of a table, including EVENT and CHANGED, which only watches fill.
    fn columns(&self) -> Vec<Column> {
        let column = |header: &str, optional| Column { header: header.to_owned(), optional, right: false };
        let mut columns = vec![column("EVENT", true), column("NAMESPACE", true), column("NAME", false)];
        columns.extend([column("VERSION", false), column("AGE", false)]);
        columns.push(Column { right: true, ..column("SIZE", false) });
        if self.format == Format::Wide {
            columns.extend(["PHASE", "NODE", "IP"].map(|header| column(header, true)));
            columns.extend(["OWNER", "UID"].map(|header| column(header, false)));
        }
        // As in kubectl: the last segment of the key, in upper case.
        let of_label = |key: &String| column(&key.rsplit('/').next().unwrap_or(key).to_uppercase(), false);
        columns.extend(self.label_columns.iter().map(of_label));
        if self.show_labels {
            columns.push(column("LABELS", false));
        }
        columns.push(column("CHANGED", true));
        columns
    }
}

/// Converts items to rows.
pub struct Rows<'a> {
    shown: &'a Shown,
    /// `None` until the first item, which has the type of the objects.
    drop: Option<Projection>,
    /// The error of a path in `--drop` that the objects do not have.
    invalid_path: Option<String>,
    /// The number of unknown fields, which the JSON lacks.
    pub unknown_fields: u64,
}

impl Rows<'_> {
    /// Returns the usage error of a path in `--drop`. It is known after the first item.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.invalid_path {
            Some(error) => Err(Failure::Usage(error.clone())),
            None => Ok(()),
        }
    }

    pub fn row(&mut self, item: &ItemRef<'_>) -> Result<Row, ItemError> {
        match self.shown.format {
            Format::Summary => Ok(Row::Nothing),
            Format::Json => self.json(item).map(Row::Line),
            Format::Yaml => yaml(&self.json(item)?).map(Row::Line),
            Format::Name => name(item).map(Row::Line),
            Format::Table | Format::Wide => self.cells(item).map(Row::Table),
        }
    }

    fn cells(&self, item: &ItemRef<'_>) -> Result<Cells, ItemError> {
        let meta = item.meta()?;
        let mut cells = vec![
            String::new(),
            printable(&meta.namespace()).into_owned(),
            printable(&meta.name()).into_owned(),
            printable(&meta.resource_version()).into_owned(),
            meta.creation_timestamp().map_or_else(|_| INVALID.to_owned(), age),
            item.bytes().len().to_string(),
        ];
        if self.shown.format == Format::Wide {
            let is_pod = item.type_meta().item_kind() == "Pod" && item.type_meta().api_version == "v1";
            for path in [&pod::PHASE, &pod::NODE_NAME, &pod::POD_IP] {
                let text = if is_pod { path.str(*item)? } else { None };
                cells.push(match text.as_deref() {
                    Some("") | None if is_pod => NONE.to_owned(),
                    text => printable(text.unwrap_or_default()).into_owned(),
                });
            }
            let owner = meta.owner_references()?.find(|owner| owner.controller);
            cells
                .push(owner.map_or(NONE.to_owned(), |owner| {
                    printable(&format!("{}/{}", owner.kind, owner.name)).into_owned()
                }));
            cells.push(printable(&meta.uid()).into_owned());
        }
        for key in &self.shown.label_columns {
            cells.push(meta.label(key)?.map_or(NONE.to_owned(), |value| printable(&value).into_owned()));
        }
        if self.shown.show_labels {
            let labels = meta.labels()?.map(|(key, value)| printable(&format!("{key}={value}")).into_owned());
            let labels = labels.collect::<Vec<_>>().join(",");
            cells.push(if labels.is_empty() { NONE.to_owned() } else { labels });
        }
        cells.push(String::new());
        Ok(cells)
    }

    fn json(&mut self, item: &ItemRef<'_>) -> Result<Vec<u8>, ItemError> {
        let mut line = Vec::new();
        self.unknown_fields += item.to_json(&mut line)?;
        if self.shown.hides_managed_fields() || !self.shown.drop.is_empty() {
            line = ItemRef::new(Encoding::Json, &line).project(self.projection(item.type_meta())?)?.into();
        }
        line.push(b'\n');
        Ok(line)
    }

    fn projection(&mut self, of: &TypeMeta) -> Result<&Projection, ItemError> {
        if self.drop.is_none() {
            let parse = |path: &String| drop_path(path, of);
            let paths: Result<Vec<_>, _> = self.shown.drop.iter().map(parse).collect();
            let paths = paths.map_err(|error| {
                self.invalid_path = Some(error.clone());
                ItemError::other(error)
            })?;
            let mut projection = paths.iter().fold(Projection::new(), Projection::drop);
            if self.shown.hides_managed_fields() {
                projection = projection.drop(&meta::MANAGED_FIELDS);
            }
            self.drop = Some(projection);
        }
        Ok(self.drop.get_or_insert_default())
    }
}

/// What kubectl prints in place of an absent value.
const NONE: &str = "<none>";

/// What kubectl prints in place of an age that is negative.
const INVALID: &str = "<invalid>";

/// The seconds of Go's zero time, the first of January of the year 1.
const ZERO_TIME: i64 = -62_135_596_800;

fn name(item: &ItemRef<'_>) -> Result<Vec<u8>, ItemError> {
    let meta = item.meta()?;
    let (namespace, name) = (meta.namespace(), meta.name());
    let (namespace, name) = (printable(&namespace), printable(&name));
    let slash = if namespace.is_empty() { "" } else { "/" };
    Ok([&*namespace, slash, &*name, "\n"].concat().into())
}

/// Stdout, locked and buffered.
pub struct Output {
    format: Format,
    out: BufWriter<StdoutLock<'static>>,
    table: Table,
}

impl Output {
    pub fn new(shown: &Shown) -> Self {
        let columns = if shown.format.is_table() { shown.columns() } else { Vec::new() };
        Self::with_table(shown.format, Table { columns, no_headers: shown.no_headers, ..Table::default() })
    }

    /// Returns an output that prints no items.
    pub fn of_no_items() -> Self {
        Self::with_table(Format::Summary, Table::default())
    }

    fn with_table(format: Format, table: Table) -> Self {
        Self { format, out: BufWriter::with_capacity(BUFFER, io::stdout().lock()), table }
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

    /// Prints the end of the output: the rest of a table, or the summary, if there is one.
    pub fn end(&mut self, summary: Option<&Summary<'_>>) -> io::Result<()> {
        if self.format.is_table() {
            self.table.end(&mut self.out)?;
        }
        if let (Format::Summary, Some(summary)) = (self.format, summary) {
            serde_json::to_writer(&mut self.out, summary)?;
            writeln!(self.out)?;
        }
        self.out.flush()
    }
}

/// One cell per column. Only watches fill the first (EVENT) and the last (CHANGED).
pub type Cells = Vec<String>;

struct Column {
    header: String,
    /// Hidden if the first rows have no text in it.
    optional: bool,
    /// Right-aligned.
    right: bool,
}

/// A table with columns as wide as its first rows need, so that memory stays constant. A longer cell later shifts its row.
#[derive(Default)]
struct Table {
    columns: Vec<Column>,
    no_headers: bool,
    layout: Option<Layout>,
    waiting: Vec<Cells>,
}

/// The width of each column; `None` if it is hidden.
type Layout = Vec<Option<usize>>;

impl Table {
    const FIRST_ROWS: usize = 100;

    fn row(&mut self, out: &mut impl Write, cells: Cells) -> io::Result<()> {
        if let Some(layout) = &self.layout {
            return self.write(out, layout, &cells);
        }
        self.waiting.push(cells);
        if self.waiting.len() < Self::FIRST_ROWS { Ok(()) } else { self.begin(out) }
    }

    fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.waiting.is_empty() { Ok(()) } else { self.begin(out) }
    }

    /// Prints the rows that wait for the layout, and the header of an empty list.
    fn end(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.layout.is_some() { Ok(()) } else { self.begin(out) }
    }

    fn begin(&mut self, out: &mut impl Write) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let layout = self.layout(&waiting);
        if !self.no_headers {
            let headers: Vec<_> = self.columns.iter().map(|column| column.header.clone()).collect();
            let mut header = Vec::new();
            self.write(&mut header, &layout, &headers)?;
            writeln!(out, "{}", style(String::from_utf8_lossy(&header).trim_end()).bold())?;
        }
        waiting.iter().try_for_each(|cells| self.write(out, &layout, cells))?;
        self.layout = Some(layout);
        Ok(())
    }

    fn layout(&self, rows: &[Cells]) -> Layout {
        let of = |(index, column): (usize, &Column)| {
            let width = rows.iter().filter_map(|cells| cells.get(index)).map(|cell| cell.chars().count()).max();
            let header = if self.no_headers { 0 } else { column.header.len() };
            let width = width.unwrap_or(0);
            (width > 0 || !column.optional).then(|| width.max(header))
        };
        self.columns.iter().enumerate().map(of).collect()
    }

    fn write(&self, out: &mut impl Write, layout: &Layout, cells: &Cells) -> io::Result<()> {
        let last = layout.iter().rposition(Option::is_some);
        let mut gap = "";
        for (index, (column, (width, cell))) in self.columns.iter().zip(layout.iter().zip(cells)).enumerate() {
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

/// The output of [`Format::Summary`].
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

/// Creates a temporary file in the directory of `path`, which the caller renames to `path`.
pub fn temporary_beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|directory| *directory != Path::new("")).unwrap_or(Path::new("."));
    let file = NamedTempFile::new_in(directory)?;
    signals::delete_on_exit(file.path());
    Ok(file)
}

/// Returns the time since `created` as kubectl prints it: `translateTimestampSince` in
/// `k8s.io/kubernetes/pkg/printers`.
fn age(created: Option<Time>) -> String {
    age_at(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(), created)
}

/// Returns the age at a time since 1970.
fn age_at(now: Duration, created: Option<Time>) -> String {
    let Some(created) = created.filter(|created| *created != Time { seconds: ZERO_TIME, nanos: 0 }) else {
        return "<unknown>".to_owned();
    };
    let created = i128::from(created.seconds) * 1_000_000_000 + i128::from(created.nanos);
    let nanos = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX) - created;
    // A duration of Go ends at 292 years.
    let nanos = i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX });
    human(nanos / 1_000_000_000)
}

/// Returns a number of seconds as `HumanDuration` in `k8s.io/apimachinery/pkg/util/duration` prints it.
fn human(seconds: i64) -> String {
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit}{small}{small_unit}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        // The server's clock may be a second ahead.
        ..-1 => INVALID.to_owned(),
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

/// Escapes control characters, so that a name cannot forge a line or control the terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    // Most text is printable ASCII.
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || !text.contains(char::is_control) {
        return text.into();
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use listwatch::Time;

    #[test]
    fn prints_ages_relative_to_the_clock_as_kubectl_does() {
        let now = Duration::new(1_800_000_000, 700_000_000);
        let time = |seconds, nanos| Some(Time { seconds, nanos });
        for (created, expected) in [
            (None, "<unknown>"),
            (time(super::ZERO_TIME, 0), "<unknown>"),
            (time(1_800_000_000, 0), "0s"),
            (time(1_799_999_999, 0), "1s"),
            (time(1_799_999_999, 800_000_000), "0s"),
            // The clock of the server is ahead, by less than two seconds or more.
            (time(1_800_000_002, 0), "0s"),
            (time(1_800_000_002, 600_000_000), "0s"),
            (time(1_800_000_002, 700_000_000), "<invalid>"),
            (time(1_800_000_003, 0), "<invalid>"),
            (time(253_402_300_799, 0), "<invalid>"),
            (time(i64::MAX, 999_999_999), "<invalid>"),
            (time(-14_182_940, 0), "57y"),
            (time(super::ZERO_TIME + 1, 0), "292y"),
            (time(i64::MIN, 0), "292y"),
        ] {
            assert_eq!(super::age_at(now, created), expected, "{created:?}");
        }
    }

    #[test]
    fn prints_ages_as_kubectl_does() {
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
