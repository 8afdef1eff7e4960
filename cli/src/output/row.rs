//! Items as rows of the output.

use jiff::Timestamp;
use listwatch::path::meta;
use listwatch::{Encoding, ItemError, ItemRef, Projection, Time, TypeMeta};
use listwatch_tables::{Printer, age_at};
use serde_json::Value;

use super::args::{OutputArgs, OutputFormat};
use super::table::{Cells, TableColumn};
use super::yaml::to_yaml;
use crate::escape::escape_controls;
use crate::failure::Failure;
use crate::field_paths::parse_drop_path;

/// What kubectl prints in place of an age that is negative.
const INVALID_AGE: &str = "<invalid>";

/// What kubectl prints in place of an absent value.
const NONE: &str = "<none>";

/// The output for one item.
pub enum Row {
    /// Text that ends in a line break.
    Line(Vec<u8>),
    Table(Cells),
    Nothing,
}

/// The converter of items to rows.
pub struct RowFormatter<'a> {
    args: &'a OutputArgs,
    /// `None` until the first item, which has the type of the objects.
    drop: Option<Projection>,
    /// The error of a path in `--drop` that the objects do not have.
    invalid_path: Option<String>,
    /// The printer of Pods.
    pods: Option<Printer>,
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
        let pods = Printer::for_kind(&TypeMeta::new("v1", "Pod"));
        Ok(Self { args, drop: None, invalid_path: None, pods, unknown_fields: 0 })
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
                Ok(Row::Table([vec![String::new()], cells, vec![String::new()]].concat()))
            }
            OutputFormat::Summary => Ok(Row::Nothing),
            OutputFormat::Json => self.json(item).map(Row::Line),
            OutputFormat::Yaml => to_yaml(&self.json(item)?).map(Row::Line),
            OutputFormat::Name => name_line(item).map(Row::Line),
            OutputFormat::Table | OutputFormat::Wide => self.cells(item).map(Row::Table),
        }
    }

    /// Returns the cells of a table, in the order of [`table_columns`].
    fn cells(&self, item: &ItemRef<'_>) -> Result<Cells, ItemError> {
        let meta = item.meta()?;
        let mut cells = vec![
            String::new(),
            escape_controls(&meta.namespace()).into_owned(),
            escape_controls(&meta.name()).into_owned(),
        ];
        let [ready, status, restarts, ip, node] = self.pod_cells(item)?;
        cells.extend([ready, status, restarts]);
        cells.extend([
            escape_controls(&meta.resource_version()).into_owned(),
            meta.creation_timestamp().map_or_else(|_| INVALID_AGE.to_owned(), age_of),
            item.bytes().len().to_string(),
        ]);
        if self.args.format == OutputFormat::Wide {
            cells.extend([node, ip]);
            let owner = meta.owner_references()?.find(|owner| owner.controller);
            cells.push(owner.map_or(NONE.to_owned(), |owner| {
                escape_controls(&format!("{}/{}", owner.kind, owner.name)).into_owned()
            }));
            cells.push(escape_controls(&meta.uid()).into_owned());
        }
        for key in &self.args.label_columns {
            cells.push(meta.label(key)?.map_or(NONE.to_owned(), |value| escape_controls(&value).into_owned()));
        }
        if self.args.show_labels {
            let labels = meta.labels()?.map(|(key, value)| escape_controls(&format!("{key}={value}")).into_owned());
            let labels = labels.collect::<Vec<_>>().join(",");
            cells.push(if labels.is_empty() { NONE.to_owned() } else { labels });
        }
        cells.push(String::new());
        Ok(cells)
    }

    /// Returns READY, STATUS, RESTARTS, IP and NODE of a Pod, as kubectl prints them; empty texts for other objects.
    fn pod_cells(&self, item: &ItemRef<'_>) -> Result<[String; 5], ItemError> {
        let is_pod = item.type_meta().item_kind() == "Pod" && item.type_meta().api_version == "v1";
        let Some(printer) = self.pods.as_ref().filter(|_| is_pod) else { return Ok(Default::default()) };
        let row = printer.row(item, Timestamp::now())?;
        let cell = |at: usize| row.cells.get(at).map(ToString::to_string).unwrap_or_default();
        Ok([1, 2, 3, 5, 6].map(|at| escape_controls(&cell(at)).into_owned()))
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

/// Returns the columns of a table, in the order of the cells of a row.
///
/// Only watches fill EVENT and CHANGED.
pub fn table_columns(args: &OutputArgs) -> Vec<TableColumn> {
    let column = |header: &str, optional| TableColumn { header: header.to_owned(), optional, right: false };
    if let OutputFormat::CustomColumns(columns) = &args.format {
        let columns = columns.headers().map(|header| column(header, false));
        return [column("EVENT", true)].into_iter().chain(columns).chain([column("CHANGED", true)]).collect();
    }
    let mut columns = vec![column("EVENT", true), column("NAMESPACE", true), column("NAME", false)];
    columns.extend(["READY", "STATUS", "RESTARTS"].map(|header| column(header, true)));
    columns.extend([column("VERSION", false), column("AGE", false)]);
    columns.push(TableColumn { right: true, ..column("SIZE", false) });
    if args.format == OutputFormat::Wide {
        columns.extend(["NODE", "IP"].map(|header| column(header, true)));
        columns.extend(["OWNER", "UID"].map(|header| column(header, false)));
    }
    // As in kubectl: the last segment of the key, in upper case.
    let of_label = |key: &String| column(&key.rsplit('/').next().unwrap_or(key).to_uppercase(), false);
    columns.extend(args.label_columns.iter().map(of_label));
    if args.show_labels {
        columns.push(column("LABELS", false));
    }
    columns.push(column("CHANGED", true));
    columns
}

/// Returns the age of an object.
fn age_of(created: Option<Time>) -> String {
    let timestamp = |Time { seconds, nanos }: Time| {
        // A time that no timestamp can have is far from now, too.
        let nearest = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::new(seconds, nanos).unwrap_or(nearest)
    };
    age_at(Timestamp::now(), created.map(timestamp))
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
            assert_eq!(age_of(created), expected, "{created:?}");
        }
    }
}
