//! The options of the output, and the formats.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use listwatch_tables::json_path::{ItemsTemplate, JsonPathTemplate};

use super::custom_columns::CustomColumns;
use super::kind::TableKind;
use crate::failure::Failure;

/// How objects are printed: see [`FORMATS`].
#[derive(Clone, PartialEq)]
pub enum OutputFormat {
    Name,
    Table,
    Wide,
    Json,
    Yaml,
    Summary,
    JsonPath(ItemsTemplate),
    CustomColumns(CustomColumns),
}

/// The names of the formats, and what they print.
const FORMATS: &[(&str, &str)] = &[
    ("name", "One line per object: NAMESPACE/NAME, or NAME if it has no namespace"),
    ("table", "kubectl's columns of the kind where they are known, else name and age; and the size in bytes"),
    ("wide", "The columns of `table`, kubectl's wide columns, resource version, owner and UID"),
    ("json", "One JSON object per line, with kind and apiVersion"),
    ("yaml", "One YAML document per object"),
    ("summary", "For lists: one JSON object that describes the whole list, once it is complete"),
    (
        "jsonpath=",
        "kubectl's JSONPath: `{range .items[*]}…{end}` or `{.items[*].a.b}` prints items as they arrive, a template \
         without .items prints a line for each object; jsonpath-file= reads it from a file",
    ),
    (
        "custom-columns=",
        "A table of paths, as of kubectl: NAME:.metadata.name,NODE:.spec.nodeName; custom-columns-file= reads them \
         from a file with a line of headers and a line of paths",
    ),
];

/// Parses the value of `--output`.
#[derive(Clone)]
struct OutputFormatParser;

impl TypedValueParser for OutputFormatParser {
    type Value = OutputFormat;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<OutputFormat, clap::Error> {
        let text = value.to_string_lossy();
        parse_format(&text).map_err(|reason| {
            let arg = arg.map(ToString::to_string).unwrap_or_default();
            let message = format!("invalid value '{text}' for '{arg}': {reason}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(FORMATS.iter().map(|(name, help)| PossibleValue::new(*name).help(*help))))
    }
}

fn parse_format(text: &str) -> Result<OutputFormat, String> {
    let (name, argument) = text.split_once('=').map_or((text, None), |(name, rest)| (name, Some(rest)));
    let read = |file: &str| std::fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"));
    match (name, argument) {
        ("name", None) => Ok(OutputFormat::Name),
        ("table", None) => Ok(OutputFormat::Table),
        ("wide", None) => Ok(OutputFormat::Wide),
        ("json", None) => Ok(OutputFormat::Json),
        ("yaml", None) => Ok(OutputFormat::Yaml),
        ("summary", None) => Ok(OutputFormat::Summary),
        ("jsonpath", Some(template)) => parse_template(template),
        ("jsonpath-file", Some(file)) => parse_template(&read(file)?),
        ("custom-columns", Some(columns)) => CustomColumns::parse(columns).map(OutputFormat::CustomColumns),
        ("custom-columns-file", Some(file)) => CustomColumns::parse_file(&read(file)?).map(OutputFormat::CustomColumns),
        ("jsonpath" | "jsonpath-file" | "custom-columns" | "custom-columns-file", None) => {
            Err(format!("expected {name}=VALUE"))
        }
        _ => {
            let names: Vec<_> = FORMATS.iter().map(|(name, _)| *name).collect();
            Err(format!("expected one of {}", names.join(", ")))
        }
    }
}

fn parse_template(template: &str) -> Result<OutputFormat, String> {
    let parsed = JsonPathTemplate::parse(template).and_then(JsonPathTemplate::for_items);
    parsed.map(OutputFormat::JsonPath).map_err(|error| error.to_string())
}

impl OutputFormat {
    /// Returns true if the format prints items as they arrive.
    pub fn prints_items(&self) -> bool {
        *self != Self::Summary
    }

    /// Returns true if the format prints the fields of objects.
    pub fn prints_fields(&self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    /// Returns true if the format needs all fields of objects.
    pub fn needs_fields(&self) -> bool {
        self.prints_fields() || matches!(self, Self::JsonPath(_) | Self::CustomColumns(_))
    }

    /// Returns true if the format prints a table.
    pub fn is_table(&self) -> bool {
        matches!(self, Self::Table | Self::Wide | Self::CustomColumns(_))
    }
}

/// The options of the output.
#[derive(Clone, clap::Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(short = 'o', long = "output", value_parser = OutputFormatParser, default_value = "name", value_name = "FORMAT", help_heading = "Output")]
    pub format: OutputFormat,

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

    /// With -o json and yaml, leave out this field; repeat for several fields.
    ///
    /// Examples: `status`, `metadata.annotations["KEY"]`.
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub drop: Vec<String>,

    /// The kind of a table's columns [default: of the first object]
    #[arg(skip)]
    pub table_kind: Option<TableKind>,
}

impl OutputArgs {
    /// Refuses options that do not apply to the format.
    pub fn check(&self) -> Result<(), Failure> {
        let of_fields = [("--drop", !self.drop.is_empty()), ("--show-managed-fields", self.show_managed_fields)];
        let of_objects = [("--label-columns", !self.label_columns.is_empty()), ("--show-labels", self.show_labels)];
        let is_set = |options: &[(&'static str, bool)]| options.iter().find(|option| option.1).map(|option| option.0);
        let has_columns = matches!(self.format, OutputFormat::Table | OutputFormat::Wide);
        match (is_set(&of_fields), is_set(&of_objects)) {
            (Some(option), _) if !self.format.prints_fields() => {
                return Err(Failure::Usage(format!("{option} is for -o json and yaml: no other format prints fields")));
            }
            (_, Some(option)) if !has_columns => {
                return Err(Failure::Usage(format!("{option} is for -o table and wide")));
            }
            _ if self.no_headers && !self.format.is_table() => {
                return Err(Failure::Usage("--no-headers is for -o table and wide".to_owned()));
            }
            _ => {}
        }
        match self.drop.iter().find(|path| path.starts_with(|c: char| c.is_ascii_digit())) {
            Some(path) => Err(Failure::Usage(format!("--drop {path}: expected names of fields, not numbers"))),
            None => Ok(()),
        }
    }

    /// Returns true if the output omits metadata.managedFields.
    pub fn hides_managed_fields(&self) -> bool {
        !self.show_managed_fields || self.drop.iter().any(|path| path == "metadata.managedFields")
    }
}
