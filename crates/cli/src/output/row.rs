//! Items as rows of the output.

use std::sync::Arc;

use listwatch::path::meta;
use listwatch::{Encoding, ItemError, ItemRef, Projection, TypeMeta};
use serde_json::Value;

use super::args::{OutputArgs, OutputFormat};
use super::columns::{ObjectColumns, table_columns};
use super::kind::TableKind;
use super::table::{TableColumn, TableRow};
use super::yaml::to_yaml;
use crate::escape::escape_controls;
use crate::failure::Failure;
use crate::field_paths::parse_drop_path;

/// The output for one item.
pub enum Row {
    /// Text that ends in a line break.
    Line(Vec<u8>),
    Table(TableRow),
    Nothing,
}

/// The converter of items to rows.
pub struct RowFormatter<'a> {
    args: &'a OutputArgs,
    /// `None` until the first item, which has the type of the objects.
    drop: Option<Projection>,
    /// The error of a path in `--drop` that the objects do not have.
    invalid_path: Option<String>,
    /// The columns of `-o custom-columns`.
    custom_columns: Arc<[TableColumn]>,
    /// `None` until the first item, which has the kind of the columns.
    object_columns: Option<ObjectColumns>,
    /// The number of unknown fields, which the JSON lacks.
    pub unknown_fields: u64,
}

impl<'a> RowFormatter<'a> {
    /// Returns the formatter of these options.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] for options that do not apply to the format.
    pub fn new(args: &'a OutputArgs) -> Result<Self, Failure> {
        args.check()?;
        let custom_columns = match args.format {
            OutputFormat::CustomColumns(_) => table_columns(args),
            _ => Arc::default(),
        };
        Ok(Self { args, drop: None, invalid_path: None, custom_columns, object_columns: None, unknown_fields: 0 })
    }

    /// Returns the usage error of a path in `--drop`. It is known after the first item.
    pub fn check_paths(&self) -> Result<(), Failure> {
        match &self.invalid_path {
            Some(error) => Err(Failure::Usage(error.clone())),
            None => Ok(()),
        }
    }

    /// Returns the row of an item.
    pub fn format_row(&mut self, item: &ItemRef<'_>) -> Result<Row, ItemError> {
        match &self.args.format {
            OutputFormat::JsonPath(template) => {
                let object = self.value(item)?;
                let mut line = Vec::new();
                let has_value = template.write_item(&object, &mut line).map_err(ItemError::other)?;
                Ok(if has_value { Row::Line(line) } else { Row::Nothing })
            }
            OutputFormat::CustomColumns(columns) => {
                let cells = columns.cells(&self.value(item)?)?;
                let cells = [vec![String::new()], cells, vec![String::new()]].concat();
                Ok(Row::Table(TableRow { columns: Arc::clone(&self.custom_columns), cells }))
            }
            OutputFormat::Summary => Ok(Row::Nothing),
            OutputFormat::Json => self.json(item).map(Row::Line),
            OutputFormat::Yaml => to_yaml(&self.json(item)?).map(Row::Line),
            OutputFormat::Name => name_line(item).map(Row::Line),
            OutputFormat::Table | OutputFormat::Wide => self.columns(item)?.row(item).map(Row::Table),
        }
    }

    /// Returns the columns of a table. The first item decides of which kind.
    fn columns(&mut self, item: &ItemRef<'_>) -> Result<&ObjectColumns, ItemError> {
        if self.object_columns.is_none() {
            let kind = match &self.args.table_kind {
                Some(kind) => Some(kind.clone()),
                None => TableKind::of_item(item)?,
            };
            self.object_columns = Some(ObjectColumns::new(self.args, kind));
        }
        Ok(self.object_columns.as_ref().expect("it is set"))
    }

    /// Returns the object as a value of JSON.
    fn value(&mut self, item: &ItemRef<'_>) -> Result<Value, ItemError> {
        let (value, unknown) = object_value(item)?;
        self.unknown_fields += unknown;
        Ok(value)
    }

    /// Returns the object as a line of JSON, without the fields that the options omit.
    fn json(&mut self, item: &ItemRef<'_>) -> Result<Vec<u8>, ItemError> {
        let mut line = Vec::new();
        self.unknown_fields += item.to_json(&mut line)?;
        if self.args.hides_managed_fields() || !self.args.drop.is_empty() {
            line = ItemRef::new(Encoding::Json, &line).project(self.projection(item.type_meta())?)?.into();
        }
        line.push(b'\n');
        Ok(line)
    }

    /// Returns the projection for objects of this type.
    fn projection(&mut self, of: &TypeMeta) -> Result<&Projection, ItemError> {
        if self.drop.is_none() {
            let parse = |path: &String| parse_drop_path(path, of);
            let paths: Result<Vec<_>, _> = self.args.drop.iter().map(parse).collect();
            let paths = paths.map_err(|error| {
                self.invalid_path = Some(error.clone());
                ItemError::other(error)
            })?;
            let mut projection = paths.iter().fold(Projection::new(), Projection::drop);
            if self.args.hides_managed_fields() {
                projection = projection.drop(&meta::MANAGED_FIELDS);
            }
            self.drop = Some(projection);
        }
        Ok(self.drop.get_or_insert_default())
    }
}

/// Returns an object as a value of JSON, and the number of unknown fields that it lacks.
pub(super) fn object_value(item: &ItemRef<'_>) -> Result<(Value, u64), ItemError> {
    let mut json = Vec::new();
    let unknown = item.to_json(&mut json)?;
    Ok((serde_json::from_slice(&json).map_err(ItemError::other)?, unknown))
}

/// Returns NAMESPACE/NAME, or the name of an object without a namespace, as a line.
fn name_line(item: &ItemRef<'_>) -> Result<Vec<u8>, ItemError> {
    let meta = item.meta()?;
    let (namespace, name) = (meta.namespace(), meta.name());
    let (namespace, name) = (escape_controls(&namespace), escape_controls(&name));
    let slash = if namespace.is_empty() { "" } else { "/" };
    Ok([&*namespace, slash, &*name, "\n"].concat().into())
}
