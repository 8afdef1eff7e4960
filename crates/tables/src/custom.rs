//! The rows of custom resources, by the columns of their definition, as `tableconvertor.go` of the apiextensions API
//! server computes them.

use std::borrow::Cow;

use jiff::Timestamp;
use listwatch::{Encoding, ItemError, ItemRef, Projection, TypeMeta};
use serde::Deserialize;
use serde_json::Value;

use crate::age::age_at;
use crate::cell::{Cell, Column, Row};
use crate::columns;
use crate::fields::null_is_default;
use crate::json_path::{JsonPath, JsonPathError, needed_by, print_in_template};

/// Why the columns of a custom resource cannot be printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CustomPrinterError {
    /// The bytes are no `CustomResourceDefinition` in JSON.
    #[error("the definition cannot be read: {0}")]
    Definition(serde_json::Error),
    /// The definition has no such version.
    #[error("the definition has no version {0:?}")]
    Version(String),
    /// The path of a column is invalid.
    #[error("column {column:?}: {error}")]
    Path {
        /// The name of the column.
        column: String,
        /// The error of the path.
        error: JsonPathError,
    },
}

impl From<serde_json::Error> for CustomPrinterError {
    fn from(error: serde_json::Error) -> Self {
        Self::Definition(error)
    }
}

#[derive(Deserialize)]
struct Definition {
    spec: DefinitionSpec,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    versions: Vec<DefinitionVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionVersion {
    name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    additional_printer_columns: Vec<PrinterColumn>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PrinterColumn {
    name: String,
    r#type: String,
    format: String,
    description: String,
    priority: i32,
    #[serde(rename = "jsonPath")]
    json_path: String,
}

/// The columns of one version of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomColumns {
    /// The name, and the columns of the definition.
    pub(crate) columns: Vec<Column>,
    /// The paths of the columns after the name.
    paths: Vec<JsonPath>,
    /// Keeps what the paths need; `None` if they need whole objects.
    needed: Option<Projection>,
}

impl CustomColumns {
    pub(crate) fn from_definition(definition: &[u8], version: &str) -> Result<Self, CustomPrinterError> {
        let Definition { spec } = serde_json::from_slice(definition)?;
        let found = spec.versions.into_iter().find(|found| found.name == version);
        let mut of_version =
            found.ok_or_else(|| CustomPrinterError::Version(version.to_owned()))?.additional_printer_columns;
        if of_version.is_empty() {
            of_version.push(default_column());
        }
        let mut columns: Vec<_> = columns::CONFIG_MAP.iter().take(1).cloned().collect();
        let mut paths = Vec::new();
        for column in of_version {
            let PrinterColumn { name, r#type, format, description, priority, json_path } = column;
            let path = JsonPath::parse(&format!("{{{json_path}}}"));
            paths.push(path.map_err(|error| CustomPrinterError::Path { column: name.clone(), error })?);
            let description = match &*description {
                "" => format!("Custom resource definition column (in JSONPath format): {json_path}"),
                _ => description,
            };
            let [name, r#type, format, description] = [name, r#type, format, description].map(Cow::Owned);
            columns.push(Column { name, r#type, format, description, priority });
        }
        let needed = needed_by(&paths, &TypeMeta::default());
        Ok(Self { columns, paths, needed })
    }

    /// Returns the row of an object in JSON.
    pub(crate) fn row(&self, object: &[u8], now: Timestamp) -> Result<Row, ItemError> {
        let item = ItemRef::new(Encoding::Json, object);
        let needed = self.needed.as_ref().and_then(|needed| item.project(needed).ok());
        let object = needed.as_deref().map_or(item, |needed| item.with_bytes(needed)).decode_json::<Value>()?;
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let mut cells = vec![Cell::text(name)];
        for (column, path) in self.columns.iter().skip(1).zip(&self.paths) {
            // As on the server, a path that does not fit the object finds nothing.
            let found = path.find(&object).ok().and_then(|found| found.first().copied());
            cells.push(found.map_or(Cell::Null, |value| cell(&column.r#type, value, now)));
        }
        Ok(Row { cells, conditions: &[] })
    }
}

/// The column of a definition without columns.
fn default_column() -> PrinterColumn {
    let description = columns::CONFIG_MAP.iter().find(|column| column.name == "Age").map(|age| age.description.clone());
    PrinterColumn {
        name: "Age".to_owned(),
        r#type: "date".to_owned(),
        description: description.unwrap_or_default().into_owned(),
        json_path: ".metadata.creationTimestamp".to_owned(),
        ..PrinterColumn::default()
    }
}

/// Returns the cell of a value in a column of this type. A value of another type has none.
fn cell(r#type: &str, value: &Value, now: Timestamp) -> Cell {
    match (r#type, value) {
        ("string", Value::Null) => Cell::text("<no value>"),
        ("string", value) => {
            let mut text = Vec::new();
            print_in_template(value, &mut text);
            Cell::Text(String::from_utf8_lossy(&text).into_owned())
        }
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Cell::Integer(number),
            #[expect(clippy::cast_possible_truncation, reason = "as in Go, the fraction is left out")]
            (None, Some(number)) => Cell::Integer(number as i64),
            (None, None) => Cell::Null,
        },
        ("number", Value::Number(number)) => number.as_f64().map_or(Cell::Null, Cell::Number),
        ("boolean", Value::Bool(value)) => Cell::Boolean(*value),
        ("date", Value::String(text)) => match text.parse() {
            Ok(time) => Cell::Text(age_at(now, Some(time))),
            Err(_) => Cell::text("<invalid>"),
        },
        _ => Cell::Null,
    }
}
