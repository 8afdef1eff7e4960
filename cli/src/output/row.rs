//! Items as rows of the output.

use jiff::Timestamp;
use listwatch::path::{meta, pod};
use listwatch::{Encoding, ItemError, ItemRef, MetaView, Projection, TypeMeta};
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
        Ok(Self { args, drop: None, invalid_path: None, unknown_fields: 0 })
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
        cells.extend(pod_cells(item)?);
        cells.extend([
            escape_controls(&meta.resource_version()).into_owned(),
            age_of(&meta),
            item.bytes().len().to_string(),
        ]);
        if self.args.format == OutputFormat::Wide {
            let is_pod = is_pod(item);
            for path in [&pod::NODE_NAME, &pod::POD_IP] {
                let text = if is_pod { path.str(*item)? } else { None };
                cells.push(match text.as_deref() {
                    Some("") | None if is_pod => NONE.to_owned(),
                    text => escape_controls(text.unwrap_or_default()).into_owned(),
                });
            }
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

    /// Returns the object as a value of JSON.
    fn value(&mut self, item: &ItemRef<'_>) -> Result<Value, ItemError> {
        let mut json = Vec::new();
        self.unknown_fields += item.to_json(&mut json)?;
        serde_json::from_slice(&json).map_err(ItemError::other)
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

/// Returns the age of an object. A time that is no time is `<invalid>`.
fn age_of(meta: &MetaView<'_>) -> String {
    match meta.creation_timestamp() {
        Ok(None) => age_at(Timestamp::now(), None),
        Ok(Some(created)) => match Timestamp::new(created.seconds, created.nanos) {
            Ok(created) => age_at(Timestamp::now(), Some(created)),
            // Outside of the years that a timestamp has: in the past only Go's zero time.
            Err(_) => INVALID_AGE.to_owned(),
        },
        Err(_) => INVALID_AGE.to_owned(),
    }
}

fn is_pod(item: &ItemRef<'_>) -> bool {
    item.type_meta().item_kind() == "Pod" && item.type_meta().api_version == "v1"
}

/// Returns READY, STATUS and RESTARTS of a Pod, as kubectl prints them; empty texts for other objects.
fn pod_cells(item: &ItemRef<'_>) -> Result<[String; 3], ItemError> {
    let printer = if is_pod(item) { Printer::for_kind(&TypeMeta::new("v1", "Pod")) } else { None };
    let Some(printer) = printer else { return Ok(Default::default()) };
    let row = printer.row(item, Timestamp::now())?;
    let mut cells = row.cells.iter().skip(1).map(|cell| escape_controls(&cell.to_string()).into_owned());
    Ok(std::array::from_fn(|_| cells.next().unwrap_or_default()))
}

/// Returns NAMESPACE/NAME, or the name of an object without a namespace, as a line.
fn name_line(item: &ItemRef<'_>) -> Result<Vec<u8>, ItemError> {
    let meta = item.meta()?;
    let (namespace, name) = (meta.namespace(), meta.name());
    let (namespace, name) = (escape_controls(&namespace), escape_controls(&name));
    let slash = if namespace.is_empty() { "" } else { "/" };
    Ok([&*namespace, slash, &*name, "\n"].concat().into())
}
