//! The options of the output, and the formats.

use clap::ValueEnum;

use crate::failure::Failure;

/// How objects are printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// One line per object: NAMESPACE/NAME, or NAME if it has no namespace
    Name,
    /// Columns: namespace, name, version, age and size in bytes
    Table,
    /// The columns of `table`, owner and UID, and for Pods phase, node and IP
    Wide,
    /// One JSON object per line, with kind and apiVersion
    Json,
    /// One YAML document per object
    Yaml,
    /// For lists: one JSON object that describes the whole list, once it is complete
    Summary,
}

impl OutputFormat {
    /// Returns true if the format prints items as they arrive.
    pub fn prints_items(self) -> bool {
        self != Self::Summary
    }

    /// Returns true if the format prints the fields of objects.
    pub fn prints_fields(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    /// Returns true if the format prints a table.
    pub fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// The options of the output.
#[derive(Clone, clap::Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(short = 'o', long = "output", value_enum, default_value_t = OutputFormat::Name, value_name = "FORMAT", help_heading = "Output")]
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
}

impl OutputArgs {
    /// Refuses options that do not apply to the format.
    pub fn check(&self) -> Result<(), Failure> {
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
            None => Ok(()),
        }
    }

    /// Returns true if the output omits metadata.managedFields.
    pub fn hides_managed_fields(&self) -> bool {
        !self.show_managed_fields || self.drop.iter().any(|path| path == "metadata.managedFields")
    }
}
