//! The command line of `get`.

use std::time::Duration;

use clap::{Arg, ArgAction};
use listwatch::client::TableForm;
use listwatch::{FieldSelector, LabelSelector};
use listwatch_tables::json_path::JsonPath;

use super::targets::Target;
use crate::cluster::connect::ConnectionArgs;
use crate::cluster::query::{ResourceValueParser, VersionArgs};
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
    mut_args(accept_value),
    after_help = "\
Examples:
  listwatch get pods                       the Pods of the context's namespace, as a table
  listwatch get pods,svc -A -o wide        with all columns, in all namespaces
  listwatch get pod/shop-1 deploy/shop     some objects
  listwatch get deploy -l app=shop -o json | jq '.items[].spec.replicas'
  listwatch get all -n web                 the most common resources of a namespace
  listwatch get pods -A --sort-by .spec.nodeName
  listwatch get pods -w                    the Pods, then each that changes
  listwatch get -f shop.yaml               the objects that a manifest names
  listwatch get deploy shop -o yaml --clean | kubectl apply -n staging -f -
  listwatch get pods -A --limit 10         the first ten, and how many there are
  listwatch get pods -A -o jsonl           one JSON object a line
  listwatch get pods -A -o keys            NAMESPACE/NAME"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct GetArgs {
    /// TYPE, TYPE,TYPE or TYPE/NAME: pods, deploy, widgets.example.com, pod/shop-1, or a category such as all
    #[arg(value_name = "RESOURCE", value_parser = ResourceValueParser, hide_possible_values = true)]
    #[arg(required_unless_present_any = ["filename", "raw", "kustomize"])]
    pub resource: Option<String>,

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

    /// After the objects, print each that changes, until Ctrl-C.
    ///
    /// The watch resumes when a connection ends, and fails if the server no longer has its version. `watch` also prints
    /// what changed, and starts over by itself.
    #[arg(short, long, conflicts_with = "limit")]
    pub watch: bool,

    /// Print the objects that change from now on, without those that exist
    #[arg(long, conflicts_with = "limit")]
    pub watch_only: bool,

    /// With --watch or --watch-only, print the type of each change; objects at the beginning are ADDED
    #[arg(long)]
    pub output_watch_events: bool,

    /// Print the objects that this file or folder of manifests names, or `-` for stdin; repeat for several.
    ///
    /// The objects are the server's. To print those in the file, use --from.
    #[arg(short, long, value_name = "FILE", value_delimiter = ',', action = ArgAction::Append, conflicts_with = "resource")]
    pub filename: Vec<String>,

    /// With -f, also read the folders in a folder
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// Print what the server sends for this path, such as /version or /api/v1/nodes?limit=1
    #[arg(long, value_name = "PATH", conflicts_with_all = ["resource", "filename", "output", "watch", "watch_only", "selector"])]
    pub raw: Option<String>,

    /// Print this subresource of the named objects, such as status or scale
    #[arg(long, value_name = "NAME")]
    pub subresource: Option<String>,

    /// How long a request may take, such as 10s, or a whole list that is not requested in pages; 0 for no limit
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub request_timeout: Option<Duration>,

    #[command(flatten)]
    pub version: VersionArgs,

    /// Objects that do not exist are no error
    #[arg(long)]
    pub ignore_not_found: bool,

    /// Sort by the value of this JSONPath, such as .metadata.creationTimestamp.
    ///
    /// Numbers and quantities sort by size, other texts byte by byte. The command keeps all objects, or in a table all
    /// rows, until the list is complete: 16 MiB of them in memory, and more in a temporary file in $TMPDIR. It does not
    /// sort changes.
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

    /// With -o json, yaml and jsonl, print metadata.managedFields
    #[arg(long, help_heading = "Output")]
    pub show_managed_fields: bool,

    /// With -o json and yaml, leave out what the server sets: status, UIDs, versions, times, owners, managed fields,
    /// and the IPs of Services. The output can be applied again
    #[arg(long, help_heading = "Output", conflicts_with_all = ["watch", "watch_only", "show_managed_fields"])]
    pub clean: bool,

    #[command(flatten)]
    pub refused: RefusedArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Options of kubectl that are not supported, and say what to use in their place.
#[derive(clap::Args)]
pub struct RefusedArgs {
    /// Not supported: use `kubectl kustomize DIR | listwatch get -f -`
    #[arg(short, long, value_name = "DIR", hide = true)]
    kustomize: Option<String>,

    /// Not supported
    #[arg(long, value_name = "TEMPLATE", hide = true)]
    template: Option<String>,

    /// Not supported
    #[arg(long, value_name = "FILE", hide = true)]
    kuberc: Option<String>,

    /// True is what it always is
    #[arg(long, value_name = "BOOL", hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "true", default_missing_value = "true", value_parser = parse_bool)]
    allow_missing_template_keys: bool,
}

impl RefusedArgs {
    fn fault(&self) -> Option<&'static str> {
        if self.kustomize.is_some() {
            return Some(
                "-k is not supported, because kustomize is not built in: use `kubectl kustomize DIR | listwatch get -f -`",
            );
        }
        if self.template.is_some() {
            return Some(
                "--template is not supported: write the template after -o jsonpath=, or use -o custom-columns=",
            );
        }
        if self.kuberc.is_some() {
            return Some("--kuberc is not supported: defaults and aliases of kubectl are not read");
        }
        let needs_keys = !self.allow_missing_template_keys;
        needs_keys.then_some("--allow-missing-template-keys=false is not supported: a missing value prints nothing")
    }
}

/// Makes a flag take `=true` and `=false`, as kubectl's flags do.
fn accept_value(arg: Arg) -> Arg {
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return arg;
    }
    let arg = arg.action(ArgAction::Set).num_args(0..=1).require_equals(true).value_name("BOOL");
    arg.default_value("false").default_missing_value("true").value_parser(parse_bool).hide_default_value(true)
}

/// Parses what Go's `strconv.ParseBool` does.
fn parse_bool(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false"),
    }
}

/// Parses seconds, or a number with a unit as Go writes it. 0 is no limit.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let parsed = parse_units(text);
    parsed.ok_or_else(|| "expected seconds, or a number with a unit: 10s, 2m, 1h30m".to_owned())
}

fn parse_units(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at_checked(digits)?;
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit)?;
        let number = number.parse::<u32>().ok()?;
        let one = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return None,
        };
        total = total.checked_add(one.checked_mul(number)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
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

    /// If false, the table has names and ages only, also of a server that has more columns
    #[arg(long, help_heading = "Output", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_value = "true", default_missing_value = "true", value_parser = parse_bool)]
    pub server_print: bool,
}

#[derive(Clone)]
pub enum GetFormat {
    /// What `-o ''` is, as in kubectl.
    Table,
    Wide,
    Objects(OutputFormat),
}

fn parse_format(text: &str) -> Result<GetFormat, String> {
    match text {
        "" => return Ok(GetFormat::Table),
        "wide" => return Ok(GetFormat::Wide),
        _ => {}
    }
    let refused = match text.split('=').next().unwrap_or_default() {
        "go-template" | "go-template-file" | "template" | "templatefile" => {
            Some("Go templates are not supported: use jsonpath= or custom-columns=, or json with jq")
        }
        "kyaml" => Some("kyaml is not supported: use yaml, which has the same contents"),
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
    /// Refuses options that are not supported, and those that do not go together.
    pub fn check(&self, targets: &[Target]) -> Result<(), Failure> {
        let has_names = targets.iter().any(|target| target.name.is_some()) || !self.filename.is_empty();
        let is_table = self.is_table();
        let is_watch = self.watch || self.watch_only;
        let format = match &self.output {
            Some(GetFormat::Objects(format)) => format.info.name,
            _ => "",
        };
        let faults = [
            (
                has_names && (self.selector.is_some() || self.field_selector.is_some()),
                "names cannot be used with a selector",
            ),
            (
                self.limit.is_some() && (!matches!(targets, [Target { name: None, .. }]) || has_names),
                "--limit is for the objects of one resource, without names",
            ),
            (self.table.show_labels && !is_table, "--show-labels is for tables"),
            (
                !self.table.label_columns.is_empty() && format == "custom-columns=",
                "--label-columns is for tables: custom-columns has paths such as .metadata.labels.app",
            ),
            (self.output_watch_events && !is_watch, "--output-watch-events is for --watch and --watch-only"),
            (
                is_watch && (!matches!(targets, [_]) || !self.filename.is_empty()),
                "a watch is of one resource, or of one object",
            ),
            (self.subresource.is_some() && !has_names, "--subresource is for objects with names"),
            (self.subresource.is_some() && is_watch, "a subresource cannot be watched"),
            (self.clean && !["json", "yaml"].contains(&format), "--clean is for -o json and yaml"),
            (
                !self.table.server_print && is_table && (self.sort_by.is_some() || is_watch),
                "--server-print=false is for lists that are not sorted: use -o custom-columns=",
            ),
        ];
        let fault = self.refused.fault();
        match fault.or_else(|| faults.into_iter().find(|(is_fault, _)| *is_fault).map(|(_, fault)| fault)) {
            Some(fault) => Err(Failure::Usage(fault.to_owned())),
            None => Ok(()),
        }
    }

    pub fn is_table(&self) -> bool {
        !matches!(self.output, Some(GetFormat::Objects(_)))
    }

    /// Returns what a table is made of.
    pub fn form(&self) -> TableForm {
        match (self.table.server_print, &self.sort_by) {
            (false, _) => TableForm::NoTable,
            (true, Some(_)) if !self.watch && !self.watch_only => TableForm::Objects,
            (true, _) => TableForm::Metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_timeouts_as_kubectl() {
        for (text, expected) in [
            ("0", Some(0)),
            ("10", Some(10_000)),
            ("10s", Some(10_000)),
            ("1h30m", Some(5_400_000)),
            ("150ms", Some(150)),
            ("", None),
            ("x", None),
            ("10x", None),
            ("s", None),
            ("99999999999h", None),
        ] {
            assert_eq!(parse_timeout(text).ok(), expected.map(Duration::from_millis), "{text}");
        }
    }
}
