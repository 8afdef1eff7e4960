//! The report, as tables and as JSON.

use std::cmp::Ordering;
use std::io::{self, Write};

use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, TableStyle};
use indicatif::HumanCount;
use serde::Serialize;

use crate::escape::escape_controls;

/// Where the objects of a report come from.
pub struct Origin {
    /// The address of the server, or the name of the file.
    pub source: String,
    /// The namespace and the selectors.
    pub selection: String,
}

/// Where the bytes of a collection are. Sizes are in bytes of the list's encoding.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatsReport {
    pub api_version: String,
    pub kind: String,
    pub resource_version: String,
    pub remaining_item_count: Option<i64>,
    /// `None` without items.
    pub encoding: Option<String>,
    pub items: u64,
    /// The number of items in the body, if only some were selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_items: Option<u64>,
    /// The size of all items.
    pub bytes: u64,
    /// The size of the decompressed body, or of the bodies of all pages.
    pub body_bytes: u64,
    /// `None` without items.
    pub sizes: Option<ItemSizes>,
    /// The largest first; each field is followed by the fields in it.
    pub fields: Vec<FieldRow>,
    pub drop: Vec<DropSaving>,
    /// The largest first; the sum of the others last.
    pub namespaces: Vec<NamespaceRow>,
    /// The largest first.
    pub largest: Vec<ObjectRow>,
}

/// The sizes of single items. Quantiles are exact to a thousandth.
#[derive(Serialize)]
pub struct ItemSizes {
    pub mean: u64,
    pub smallest: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub largest: u64,
    pub histogram: Vec<SizeBin>,
}

/// The number of items with a size from `from` to `to`, both included.
#[derive(Serialize)]
pub struct SizeBin {
    pub from: u64,
    pub to: u64,
    pub items: u64,
}

#[derive(Serialize)]
pub struct FieldRow {
    pub path: String,
    /// The last segment of the path.
    #[serde(skip)]
    pub name: String,
    /// True for the sum of all fields in `path` that are not named.
    #[serde(skip_serializing_if = "is_false")]
    pub others: bool,
    #[serde(skip)]
    pub depth: usize,
    pub bytes: u64,
    /// The number of items that have the field; `None` for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
}

/// The bytes that dropping a field saves.
#[derive(Serialize)]
pub struct DropSaving {
    pub path: String,
    pub bytes: u64,
    /// The number of items that have the field, or any of the fields.
    pub items: u64,
}

#[derive(Serialize)]
pub struct NamespaceRow {
    pub namespace: String,
    /// True for the sum of all namespaces that are not named.
    #[serde(skip_serializing_if = "is_false")]
    pub others: bool,
    pub items: u64,
    pub bytes: u64,
}

#[derive(Serialize, PartialEq, Eq)]
pub struct ObjectRow {
    pub namespace: String,
    pub name: String,
    pub bytes: u64,
}

/// Orders by size. Among objects of equal size, the first by name is the greatest, so that it is listed first.
impl Ord for ObjectRow {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_name = || (&other.namespace, &other.name).cmp(&(&self.namespace, &self.name));
        self.bytes.cmp(&other.bytes).then_with(by_name)
    }
}

impl PartialOrd for ObjectRow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl StatsReport {
    pub fn title(&self) -> String {
        let kind = escape_controls(if self.kind.is_empty() { "List" } else { &self.kind });
        match &*self.resource_version {
            "" => kind.into_owned(),
            version => format!("{kind} at version {}", escape_controls(version)),
        }
    }

    /// Returns the number of items, such as `7` or `7 of 120`.
    pub fn count(&self) -> String {
        let of = self.of_items.map(|items| format!(" of {}", HumanCount(items))).unwrap_or_default();
        format!("{}{of}", HumanCount(self.items))
    }

    /// Returns true if any object has a namespace.
    pub fn is_namespaced(&self) -> bool {
        self.namespaces.iter().any(|namespace| namespace.others || !namespace.namespace.is_empty())
    }

    pub fn share(&self, bytes: u64) -> String {
        format!("{:.1}%", self.percent(bytes))
    }

    #[expect(clippy::cast_precision_loss, reason = "it is shown with one decimal")]
    pub fn percent(&self, bytes: u64) -> f64 {
        bytes as f64 * 100.0 / self.bytes.max(1) as f64
    }

    pub fn print_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }

    pub fn print_tables(&self, out: &mut impl Write) -> io::Result<()> {
        let encoding = self.encoding.as_deref().map(|encoding| format!(" of {encoding}")).unwrap_or_default();
        writeln!(out, "{}: {} items, {}{encoding}", self.title(), self.count(), format_size(self.bytes))?;
        let Some(sizes) = &self.sizes else { return Ok(()) };
        let per_item = |bytes| format_size(bytes / self.items);

        let mut table = table(["MEAN", "P50", "P90", "P99", "LARGEST"], 0);
        let ItemSizes { mean, p50, p90, p99, largest, .. } = sizes;
        table.add_row([mean, p50, p90, p99, largest].map(|bytes| format_size(*bytes)));
        writeln!(out, "\n{table}")?;

        let mut table = self::table(["FIELD", "BYTES", "SHARE", "PER ITEM", "ITEMS"], 1);
        for FieldRow { name, depth, bytes, items, .. } in &self.fields {
            let name = format!("{:indent$}{}", "", escape_controls(name), indent = depth * 2);
            let items = items.map(|items| HumanCount(items).to_string()).unwrap_or_default();
            table.add_row([name, format_size(*bytes), self.share(*bytes), per_item(*bytes), items]);
        }
        writeln!(out, "\n{table}")?;

        if !self.drop.is_empty() {
            let mut table = self::table(["WITHOUT", "SAVES", "SHARE", "PER ITEM", "ITEMS"], 1);
            for DropSaving { path, bytes, items } in &self.drop {
                let saves = if *bytes == 0 { "0 B: no object has it".to_owned() } else { format_size(*bytes) };
                let items = HumanCount(*items).to_string();
                table.add_row([path.clone(), saves, self.share(*bytes), per_item(*bytes), items]);
            }
            writeln!(out, "\n{table}")?;
        }

        if self.is_namespaced() {
            let mut table = self::table(["NAMESPACE", "BYTES", "SHARE", "PER ITEM", "ITEMS"], 1);
            for namespace in &self.namespaces {
                let &NamespaceRow { items, bytes, .. } = namespace;
                let per_item = format_size(bytes / items.max(1));
                let items = HumanCount(items).to_string();
                table.add_row([namespace.label(), format_size(bytes), self.share(bytes), per_item, items]);
            }
            writeln!(out, "\n{table}")?;
        }

        let mut table = self::table(["OBJECT", "BYTES"], 1);
        for object in &self.largest {
            table.add_row([object.label(), format_size(object.bytes)]);
        }
        writeln!(out, "\n{table}")
    }
}

impl NamespaceRow {
    pub fn label(&self) -> String {
        match &*self.namespace {
            _ if self.others => "others".to_owned(),
            "" => "(none)".to_owned(),
            name => escape_controls(name).into_owned(),
        }
    }
}

impl ObjectRow {
    pub fn label(&self) -> String {
        let Self { namespace, name, .. } = self;
        if namespace.is_empty() {
            return escape_controls(name).into_owned();
        }
        format!("{}/{}", escape_controls(namespace), escape_controls(name))
    }
}

/// Returns a table with `text` columns of text, followed by right-aligned columns of numbers.
pub fn table<const N: usize>(header: [&str; N], text: usize) -> Table {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_header(header);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index + 1 < N { 3 } else { 0 }));
        if index >= text {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

pub fn format_size(bytes: u64) -> String {
    ByteSize(bytes).display().si().to_string()
}
