//! `-o table` and `-o wide`: the columns that kubectl prints of the kind.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use listwatch::{ItemError, ItemRef, MetaView, Time};
use listwatch_tables::age_at;

use super::aligned::TableColumn;
use super::format::{
    Constructor, Event, Format, FormatContext, FormatInfo, Needs, OptionGroup, OutputOptions, Purpose, Row,
    event_cells, table_columns,
};
use super::kind::TableKind;
use crate::escape::escape_controls;

pub const TABLE: FormatInfo = FormatInfo {
    name: "table",
    help: "kubectl's columns of the kind where they are known, else name and age; and the size in bytes",
    needs: Needs::Columns,
    options: OPTIONS,
    constructor: Constructor::Plain(|context| Rc::new(TableFormat::new(context, &TABLE))),
};

pub const WIDE: FormatInfo = FormatInfo {
    name: "wide",
    help: "The columns of `table`, kubectl's wide columns, resource version, owner and UID",
    needs: Needs::Columns,
    options: OPTIONS,
    constructor: Constructor::Plain(|context| Rc::new(TableFormat::new(context, &WIDE))),
};

const OPTIONS: &[OptionGroup] = &[OptionGroup::Headers, OptionGroup::Labels];

/// What kubectl prints in place of an age that is negative.
const INVALID_AGE: &str = "<invalid>";

/// What kubectl prints in place of an absent value.
const NONE: &str = "<none>";

struct TableFormat {
    info: &'static FormatInfo,
    options: OutputOptions,
    kind: Option<TableKind>,
    purpose: Purpose,
    /// The columns of the first object's kind. Without objects, those of `kind`.
    columns: OnceCell<ObjectColumns>,
}

impl Format for TableFormat {
    fn info(&self) -> &'static FormatInfo {
        self.info
    }

    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        if self.columns.get().is_none() {
            let kind = match &self.kind {
                Some(kind) => Some(kind.clone()),
                None => TableKind::of_item(item)?,
            };
            self.columns.get_or_init(|| self.columns_of(kind));
        }
        let columns = self.columns.get_or_init(|| self.columns_of(None));
        columns.cells(item).map(|cells| Some(Row::Cells(cells)))
    }

    fn event_row(&self, row: Row, event: &Event<'_>) -> Result<Row, ItemError> {
        Ok(event_cells(row, event))
    }

    fn columns(&self) -> Arc<[TableColumn]> {
        let columns = self.columns.get_or_init(|| self.columns_of(self.kind.clone()));
        table_columns(columns.columns.clone(), self.purpose)
    }
}

impl TableFormat {
    fn new(context: &FormatContext, info: &'static FormatInfo) -> Self {
        let FormatContext { options, kind, purpose } = context;
        Self { info, options: options.clone(), kind: kind.clone(), purpose: *purpose, columns: OnceCell::new() }
    }

    /// Returns the columns of objects of this kind, or those that all objects have.
    fn columns_of(&self, kind: Option<TableKind>) -> ObjectColumns {
        let column = |header: &str, value| (TableColumn::new(header), value);
        let is_wide = self.info.name == WIDE.name;
        let namespace = TableColumn { optional: true, ..TableColumn::new("NAMESPACE") };
        let mut all = vec![(namespace, CellValue::Namespace), column("NAME", CellValue::Name)];
        let of_kind = kind.iter().flat_map(TableKind::columns).enumerate();
        // The name is the first column already.
        let printed = of_kind.filter(|(_, column)| column.format != "name" && (is_wide || column.priority == 0));
        let printed = printed.map(|(at, of_kind)| match &*of_kind.name {
            "Age" => column("AGE", CellValue::Age(Some(at))),
            name => column(&name.to_uppercase(), CellValue::OfKind(at)),
        });
        all.extend(printed);
        if !all.iter().any(|(_, value)| matches!(value, CellValue::Age(_))) {
            all.push(column("AGE", CellValue::Age(None)));
        }
        all.push((TableColumn { right: true, ..TableColumn::new("BYTES") }, CellValue::Size));
        if is_wide {
            all.push(column("RESOURCE-VERSION", CellValue::ResourceVersion));
            all.extend([column("OWNER", CellValue::Owner), column("UID", CellValue::Uid)]);
        }
        for key in &self.options.label_columns {
            // As in kubectl: the last segment of the key, in upper case.
            let header = key.rsplit('/').next().unwrap_or(key).to_uppercase();
            all.push(column(&header, CellValue::Label(key.clone())));
        }
        if self.options.show_labels {
            all.push(column("LABELS", CellValue::Labels));
        }
        let (columns, values) = all.into_iter().unzip();
        ObjectColumns { kind, columns, values }
    }
}

/// The columns of objects of a kind.
struct ObjectColumns {
    kind: Option<TableKind>,
    columns: Vec<TableColumn>,
    values: Vec<CellValue>,
}

/// What the cells of a column show.
enum CellValue {
    Namespace,
    Name,
    /// A cell of the kind.
    OfKind(usize),
    /// A cell of the kind, or the age of an object of another kind.
    Age(Option<usize>),
    Size,
    ResourceVersion,
    Owner,
    Uid,
    Label(String),
    Labels,
}

impl ObjectColumns {
    /// Returns the cells of an item. An item of another kind has no text in the columns of the kind.
    fn cells(&self, item: &ItemRef<'_>) -> Result<Vec<String>, ItemError> {
        let meta = item.meta()?;
        let of_kind = match &self.kind {
            Some(kind) => kind.cells(item)?,
            None => None,
        };
        let of_kind = |at: usize| of_kind.as_ref().and_then(|cells| cells.get(at)).cloned();
        let cell = |value: &CellValue| {
            Ok(match value {
                CellValue::OfKind(at) => of_kind(*at).unwrap_or_default(),
                CellValue::Age(at) => at.and_then(of_kind).unwrap_or_else(|| age_of(&meta)),
                CellValue::Size => item.bytes().len().to_string(),
                value => escape_controls(&metadata_cell(value, &meta)?).into_owned(),
            })
        };
        self.values.iter().map(cell).collect()
    }
}

/// Returns a value of the metadata.
fn metadata_cell(value: &CellValue, meta: &MetaView<'_>) -> Result<String, ItemError> {
    Ok(match value {
        CellValue::Namespace => meta.namespace().into_owned(),
        CellValue::Name => meta.name().into_owned(),
        CellValue::ResourceVersion => meta.resource_version().into_owned(),
        CellValue::Uid => meta.uid().into_owned(),
        CellValue::Owner => {
            let owner = meta.owner_references()?.find(|owner| owner.controller);
            owner.map_or_else(|| NONE.to_owned(), |owner| format!("{}/{}", owner.kind, owner.name))
        }
        CellValue::Label(key) => meta.label(key)?.map_or_else(|| NONE.to_owned(), String::from),
        CellValue::Labels => {
            let labels: Vec<_> = meta.labels()?.map(|(key, value)| format!("{key}={value}")).collect();
            if labels.is_empty() { NONE.to_owned() } else { labels.join(",") }
        }
        CellValue::OfKind(_) | CellValue::Age(_) | CellValue::Size => String::new(),
    })
}

/// Returns the age of an object.
fn age_of(meta: &MetaView<'_>) -> String {
    meta.creation_timestamp().map_or_else(|_| INVALID_AGE.to_owned(), age_since)
}

fn age_since(created: Option<Time>) -> String {
    let timestamp = |Time { seconds, nanos }: Time| {
        // A time that no timestamp can have is far from now, too.
        let nearest = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::new(seconds, nanos).unwrap_or(nearest)
    };
    age_at(Timestamp::now(), created.map(timestamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_ages_of_times_that_no_timestamp_can_have() {
        let time = |seconds, nanos| Some(Time { seconds, nanos });
        for (created, expected) in [
            (None, "<unknown>"),
            (time(-62_135_596_800, 0), "<unknown>"),
            (time(253_402_300_799, 0), "<invalid>"),
            (time(i64::MAX, 999_999_999), "<invalid>"),
            (time(-62_135_596_799, 0), "292y"),
            (time(i64::MIN, 0), "292y"),
        ] {
            assert_eq!(age_since(created), expected, "{created:?}");
        }
    }
}
