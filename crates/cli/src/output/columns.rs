//! The columns of a table, and the cells of an object in them.

use std::sync::Arc;

use jiff::Timestamp;
use listwatch::{ItemError, ItemRef, MetaView, Time};
use listwatch_tables::age_at;

use super::args::{OutputArgs, OutputFormat};
use super::kind::TableKind;
use super::table::{TableColumn, TableRow};
use crate::escape::escape_controls;

/// What kubectl prints in place of an age that is negative.
const INVALID_AGE: &str = "<invalid>";

/// What kubectl prints in place of an absent value.
const NONE: &str = "<none>";

/// The columns of objects, which depend on the kind of the first.
pub struct ObjectColumns {
    kind: Option<TableKind>,
    columns: Arc<[TableColumn]>,
    values: Vec<CellValue>,
}

/// What the cells of a column show.
enum CellValue {
    /// Nothing here: a watch fills it.
    OfWatch,
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
    /// Returns the columns of objects of this kind, or those that all objects have.
    pub fn new(args: &OutputArgs, kind: Option<TableKind>) -> Self {
        let column = |header: &str, value| (TableColumn::new(header), value);
        let optional = |header: &str, value| (TableColumn { optional: true, ..TableColumn::new(header) }, value);
        let is_wide = args.format == OutputFormat::Wide;
        let mut all = vec![
            optional("EVENT", CellValue::OfWatch),
            optional("NAMESPACE", CellValue::Namespace),
            column("NAME", CellValue::Name),
        ];
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
        for key in &args.label_columns {
            // As in kubectl: the last segment of the key, in upper case.
            let header = key.rsplit('/').next().unwrap_or(key).to_uppercase();
            all.push(column(&header, CellValue::Label(key.clone())));
        }
        if args.show_labels {
            all.push(column("LABELS", CellValue::Labels));
        }
        all.push(optional("CHANGED", CellValue::OfWatch));
        let (columns, values): (Vec<_>, _) = all.into_iter().unzip();
        Self { kind, columns: columns.into(), values }
    }

    pub fn columns(&self) -> Arc<[TableColumn]> {
        Arc::clone(&self.columns)
    }

    /// Returns the row of an item. An item of another kind has no text in the columns of the kind.
    pub fn row(&self, item: &ItemRef<'_>) -> Result<TableRow, ItemError> {
        let meta = item.meta()?;
        let of_kind = match &self.kind {
            Some(kind) => kind.cells(item)?,
            None => None,
        };
        let of_kind = |at: usize| of_kind.as_ref().and_then(|cells| cells.get(at)).cloned();
        let cell = |value: &CellValue| {
            Ok(match value {
                CellValue::OfWatch => String::new(),
                CellValue::OfKind(at) => of_kind(*at).unwrap_or_default(),
                CellValue::Age(at) => at.and_then(of_kind).unwrap_or_else(|| age_of(&meta)),
                CellValue::Size => item.bytes().len().to_string(),
                value => escape_controls(&metadata_cell(value, &meta)?).into_owned(),
            })
        };
        let cells = self.values.iter().map(cell).collect::<Result<_, ItemError>>()?;
        Ok(TableRow { columns: self.columns(), cells })
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
        CellValue::OfWatch | CellValue::OfKind(_) | CellValue::Age(_) | CellValue::Size => String::new(),
    })
}

/// Returns the columns of the format, before any object: those of `-o custom-columns`, or those that all objects have.
pub fn table_columns(args: &OutputArgs) -> Arc<[TableColumn]> {
    let OutputFormat::CustomColumns(columns) = &args.format else {
        return ObjectColumns::new(args, args.table_kind.clone()).columns();
    };
    let of_watch = |header| TableColumn { optional: true, ..TableColumn::new(header) };
    let columns = columns.headers().map(TableColumn::new);
    [of_watch("EVENT")].into_iter().chain(columns).chain([of_watch("CHANGED")]).collect()
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
