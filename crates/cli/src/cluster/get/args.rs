//! The command line of `get`.

use listwatch::{FieldSelector, LabelSelector};
use listwatch_tables::json_path::JsonPath;

use super::targets::Target;
use crate::cluster::connect::ConnectionArgs;
use crate::cluster::query::ResourceValueParser;
use crate::failure::Failure;
use crate::number::number_in;
use crate::output::{GET_FORMATS, OutputFormat};

/// Print objects as `kubectl get`, in constant memory.
///
/// The arguments, the defaults and the output are kubectl's.
///
/// An error after the first objects leaves JSON unterminated, so that nobody takes a part for the whole. The exit code
/// is then 1.
#[derive(clap::Args)]
#[command(
    args_override_self = true,
    after_help = "\
Examples:
  listwatch get pods                       the Pods of the context's namespace, as a table
  listwatch get pods,svc -A -o wide        with all columns, in all namespaces
  listwatch get pod/shop-1 deploy/shop     some objects
  listwatch get deploy -l app=shop -o json | jq '.items[].spec.replicas'
  listwatch get pods -A --limit 10         the first ten, and how many there are
  listwatch get pods -A -o jsonl           one JSON object a line
  listwatch get pods -A -o keys            NAMESPACE/NAME"
)]
pub struct GetArgs {
    /// TYPE, TYPE,TYPE or TYPE/NAME: pods, deploy, widgets.example.com, pod/shop-1
    #[arg(value_name = "RESOURCE", value_parser = ResourceValueParser, hide_possible_values = true)]
    pub resource: String,

    /// Names of objects, or more of TYPE/NAME [default: all objects]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    /// Namespace [default: the context's, else `default`]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Print objects in all namespaces, also with --namespace
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Label selector: `app=web,tier!=cache,env in (a,b)`
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<LabelSelector>,

    /// Field selector: `spec.nodeName=node-1`
    #[arg(long, value_name = "FIELDS")]
    pub field_selector: Option<FieldSelector>,

    /// Print at most N objects of one resource, and say on stderr if there are more: "2 of 2,000 shown".
    ///
    /// The total is printed only if the server counts the objects, which it does without a selector. With -o json,
    /// `metadata.continue` and `metadata.remainingItemCount` of the List then show that it is a part.
    #[arg(long, value_name = "N", value_parser = number_in(1..=u64::MAX))]
    pub limit: Option<u64>,

    /// Number of objects in one response; 0 requests all at once [default: 500 in a table, else all].
    ///
    /// The columns of a table are as wide as its pages need, as in kubectl.
    #[arg(long, value_name = "N", value_parser = number_in(0..=u32::MAX))]
    pub chunk_size: Option<u32>,

    /// Objects that do not exist are no error
    #[arg(long)]
    pub ignore_not_found: bool,

    /// Sort by the value of this JSONPath, such as .metadata.creationTimestamp.
    ///
    /// Numbers and quantities sort by size, other texts byte by byte. The command keeps all objects until the list is
    /// complete, 16 MiB of them in memory, and more in a temporary file in $TMPDIR.
    #[arg(long, value_name = "PATH", conflicts_with = "limit", value_parser = parse_sort_path)]
    pub sort_by: Option<JsonPath>,

    /// Output format: wide, name, json, yaml, jsonpath=, jsonpath-as-json=, custom-columns=, jsonl or keys [default: a
    /// table].
    ///
    /// `jsonpath-file=` and `custom-columns-file=` read a file. `jsonl` prints one JSON object per line, and `keys`
    /// NAMESPACE/NAME. The others are kubectl's.
    #[arg(short, long, value_name = "FORMAT", value_parser = parse_format, help_heading = "Output")]
    pub output: Option<GetFormat>,

    #[command(flatten)]
    pub table: TableArgs,

    /// With -o json and jsonl, print metadata.managedFields
    #[arg(long, help_heading = "Output")]
    pub show_managed_fields: bool,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

#[derive(clap::Args)]
pub struct TableArgs {
    /// In a table, do not print headers
    #[arg(long, help_heading = "Output")]
    pub no_headers: bool,

    /// In a table, add a column with all labels
    #[arg(long, help_heading = "Output")]
    pub show_labels: bool,

    /// In a table, add a column for each of these labels: app,app.kubernetes.io/name
    #[arg(short = 'L', long, value_name = "LABELS", value_delimiter = ',', help_heading = "Output")]
    pub label_columns: Vec<String>,

    /// In a table, print the kind before each name
    #[arg(long, help_heading = "Output")]
    pub show_kind: bool,
}

#[derive(Clone)]
pub enum GetFormat {
    Wide,
    Objects(OutputFormat),
}

fn parse_format(text: &str) -> Result<GetFormat, String> {
    if text == "wide" {
        return Ok(GetFormat::Wide);
    }
    let refused = match text.split('=').next().unwrap_or_default() {
        "go-template" | "go-template-file" | "template" | "templatefile" => {
            Some("Go templates are not supported: use jsonpath=")
        }
        "kyaml" => Some("kyaml is not supported: use yaml"),
        _ => None,
    };
    if let Some(reason) = refused {
        return Err(reason.to_owned());
    }
    let parsed = OutputFormat::parse(text, GET_FORMATS).map(GetFormat::Objects);
    parsed.map_err(|error| error.replace("one of ", "one of wide, "))
}

fn parse_sort_path(text: &str) -> Result<JsonPath, String> {
    JsonPath::parse(text).map_err(|error| error.to_string())
}

impl GetArgs {
    /// Refuses options that do not go together.
    pub fn check(&self, targets: &[Target]) -> Result<(), Failure> {
        let has_names = targets.iter().any(|target| target.name.is_some());
        let is_table = !matches!(self.output, Some(GetFormat::Objects(_)));
        let faults = [
            (
                has_names && (self.selector.is_some() || self.field_selector.is_some()),
                "names cannot be used with a selector",
            ),
            (
                self.limit.is_some() && !matches!(targets, [Target { name: None, .. }]),
                "--limit is for the objects of one resource, without names",
            ),
            (self.table.show_labels && !is_table, "--show-labels is for tables"),
            (
                self.sort_by.is_some() && is_table,
                "--sort-by needs an output format such as -o name or custom-columns=: `list -o table` sorts a table",
            ),
        ];
        match faults.into_iter().find(|(is_fault, _)| *is_fault) {
            Some((_, fault)) => Err(Failure::Usage(fault.to_owned())),
            None => Ok(()),
        }
    }
}
