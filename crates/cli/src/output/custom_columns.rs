//! `-o custom-columns=`: a table of paths.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use listwatch::{ItemError, ItemRef};
use listwatch_tables::json_path::{JsonPath, ObjectReader, print};
use serde_json::Value;

use super::aligned::TableColumn;
use super::format::{
    ArgumentSource, Constructor, Event, Format, FormatInfo, Needs, OptionGroup, Purpose, Row, event_cells,
    table_columns,
};
use super::json::add;
use crate::escape::escape_controls;

pub const CUSTOM_COLUMNS: FormatInfo = FormatInfo {
    name: "custom-columns=",
    help: "A table of paths, as of kubectl: NAME:.metadata.name,NODE:.spec.nodeName; custom-columns-file= reads them \
           from a file with a line of headers and a line of paths",
    needs: Needs::Fields,
    options: &[OptionGroup::Headers],
    constructor: Constructor::Argument(|text, source| {
        let columns: Arc<[CustomColumn]> = match source {
            ArgumentSource::CommandLine => parse(text)?.into(),
            ArgumentSource::File => parse_file(text)?.into(),
        };
        Ok(Arc::new(move |context| {
            let (columns, purpose) = (Arc::clone(&columns), context.purpose);
            let reader = ObjectReader::of_paths(columns.iter().map(|column| &column.path)).into();
            Rc::new(CustomColumnsFormat { columns, reader, purpose, unknown_fields: Cell::default() })
        }))
    }),
};

struct CustomColumnsFormat {
    columns: Arc<[CustomColumn]>,
    /// Of what the columns find.
    reader: RefCell<ObjectReader>,
    purpose: Purpose,
    unknown_fields: Cell<u64>,
}

/// A column, with the path of its values.
pub struct CustomColumn {
    pub header: String,
    pub path: JsonPath,
}

impl Format for CustomColumnsFormat {
    fn info(&self) -> &'static FormatInfo {
        &CUSTOM_COLUMNS
    }

    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        let (object, unknown_fields) = self.reader.borrow_mut().read(item)?;
        add(&self.unknown_fields, unknown_fields);
        let cells = self
            .columns
            .iter()
            .map(|column| column.cell(&object, |text| escape_controls(text).into_owned()))
            .collect::<Result<_, _>>()?;
        Ok(Some(Row::Cells(cells)))
    }

    fn event_row(&self, row: Row, event: &Event<'_>) -> Result<Row, ItemError> {
        Ok(event_cells(row, event))
    }

    fn columns(&self) -> Arc<[TableColumn]> {
        table_columns(self.columns.iter().map(|column| TableColumn::new(&column.header)).collect(), self.purpose)
    }

    fn take_unknown_fields(&self) -> u64 {
        self.unknown_fields.take()
    }
}

impl CustomColumn {
    fn parse(header: &str, path: &str) -> Result<Self, String> {
        let path = JsonPath::parse(path).map_err(|error| format!("column {header:?}: {error}"))?;
        Ok(Self { header: header.to_owned(), path })
    }

    /// Returns the cell of an object, whose values `escape` makes safe. As in kubectl, commas separate several values.
    pub fn cell(&self, object: &Value, escape: impl Fn(&str) -> String) -> Result<String, ItemError> {
        let Self { header, path } = self;
        let found = path.find(object).map_err(|error| ItemError::other(format!("column {header:?}: {error}")))?;
        let texts = found.into_iter().map(|value| {
            let mut text = Vec::new();
            print(value, &mut text);
            escape(&String::from_utf8_lossy(&text))
        });
        let texts: Vec<_> = texts.collect();
        Ok(if texts.is_empty() { "<none>".to_owned() } else { texts.join(",") })
    }
}

/// Parses `NAME:.metadata.name,NODE:.spec.nodeName`.
pub fn parse(text: &str) -> Result<Vec<CustomColumn>, String> {
    let column = |column: &str| {
        let (header, path) =
            column.split_once(':').ok_or_else(|| format!("{column:?} is no column: expected HEADER:PATH"))?;
        CustomColumn::parse(header, path)
    };
    text.split(',').map(column).collect()
}

/// Parses a line of headers, and a line of as many paths.
pub fn parse_file(text: &str) -> Result<Vec<CustomColumn>, String> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (headers, paths) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    if headers.is_empty() || headers.len() != paths.len() {
        return Err(format!("expected a header for each path: {} headers, {} paths", headers.len(), paths.len()));
    }
    headers.iter().zip(paths).map(|(header, path)| CustomColumn::parse(header, path)).collect()
}
