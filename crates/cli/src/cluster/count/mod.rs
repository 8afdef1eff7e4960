//! `listwatch count`: the number of objects in groups, and sums of their values.

mod path;
mod report;
mod tally;

use std::io::{self, BufWriter, Write};

use bytesize::ByteSize;
use indicatif::HumanCount;
use listwatch::{FieldSelector, LabelSelector, TypeMeta};

use self::path::CountPath;
use self::report::{CountFormat, CountReport};
use self::tally::Tally;
use crate::cluster::connect::ConnectionArgs;
use crate::cluster::get::source::{Found, Page, Rows, Source, Wanted};
use crate::cluster::listing::print_warnings;
use crate::cluster::query::ResourceValueParser;
use crate::failure::Failure;
use crate::notices;
use crate::number::number_in;
use crate::output::{Output, print_rows};

/// Count the objects of a resource, in groups, and sum their values.
///
/// Without --by and --sum it prints the number of objects, which the server counts if it can: then the command costs
/// one request for a single object. Otherwise the objects pass through, and none is kept: memory grows with the number
/// of groups only.
///
/// A group is named as a cell of custom columns is: by its values, separated by commas if there are several. A sum
/// adds all values that its path finds, numbers and quantities such as 1500m and 2Gi, exactly as Kubernetes adds them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch count pods -A                              how many there are
  listwatch count pods -A --by .status.phase           in each phase
  listwatch count pods -A --by .spec.nodeName --sum '.spec.containers[*].resources.requests.memory'
  listwatch count pods -n web,shop --by .metadata.labels.app --by .spec.nodeName
  listwatch count events -A --by .reason --top 5       the five most frequent reasons
  listwatch count deploy -A --sum .spec.replicas       the sum over all
  listwatch count pods -A --by .metadata.namespace -o csv")]
pub struct CountArgs {
    /// Resource type, as for `kubectl get`: pods, deploy, widgets.example.com
    #[arg(value_parser = ResourceValueParser, hide_possible_values = true)]
    resource: String,

    /// Namespace, or several: web,shop [default: the context's, else `default`]
    #[arg(short, long, value_name = "NAMES", overrides_with = "namespace")]
    namespace: Option<String>,

    /// Count objects in all namespaces, also with --namespace
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Label selector: `app=web,tier!=cache,env in (a,b)`
    #[arg(short = 'l', long, value_name = "LABELS", overrides_with = "selector")]
    selector: Option<LabelSelector>,

    /// Field selector: `spec.nodeName=node-1`
    #[arg(long, value_name = "FIELDS", overrides_with = "field_selector")]
    field_selector: Option<FieldSelector>,

    /// Count by the values of this JSONPath, such as .status.phase; repeat for several.
    ///
    /// Objects without a value are in the group `<none>`.
    #[arg(long, value_name = "PATH", value_parser = CountPath::parse)]
    by: Vec<CountPath>,

    /// Sum all values of this JSONPath, such as '.spec.containers[*].resources.requests.cpu'; repeat for several.
    ///
    /// Missing values count as zero, and any other value than a number or a quantity is an error.
    #[arg(long, value_name = "PATH", value_parser = CountPath::parse)]
    sum: Vec<CountPath>,

    /// Print only the N largest groups, by the first sum, or else by the number of objects
    #[arg(long, value_name = "N", value_parser = number_in(1..=u32::MAX), requires = "by")]
    top: Option<u32>,

    /// Number of objects in one response; 0 requests all at once [default: all]
    #[arg(long, value_name = "N", value_parser = number_in(0..=u32::MAX), overrides_with = "chunk_size")]
    chunk_size: Option<u32>,

    /// The most memory that the groups may take; more of them is an error
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize::mib(64))]
    max_memory: ByteSize,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = CountFormat::Table, value_name = "FORMAT", overrides_with = "output", help_heading = "Output")]
    output: CountFormat,

    /// In a table and in CSV, do not print headers
    #[arg(long, help_heading = "Output")]
    no_headers: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub async fn run(args: CountArgs) -> Result<(), Failure> {
    args.check()?;
    let CountArgs { namespace, all_namespaces, by, sum, top, chunk_size, max_memory, output, no_headers, .. } = args;
    let (client, default_namespace) = args.connection.client().await?;
    let source = Source(client);
    let resource = source.find(&args.resource).await?;
    let namespaces = if all_namespaces || !resource.is_namespaced() {
        vec![None]
    } else {
        split_namespaces(&namespace.unwrap_or(default_namespace))
    };
    let targets = namespaces.into_iter().map(|namespace| Found { resource: resource.clone(), namespace, name: None });
    let targets: Vec<_> = targets.collect();
    let wanted = Wanted { labels: args.selector, fields: args.field_selector, ..Wanted::default() };
    let report = if by.is_empty() && sum.is_empty() {
        count_objects(&source, &targets, &wanted).await?
    } else {
        let tally = Tally::new(by, sum, max_memory);
        tally_objects(&source, &targets, wanted, chunk_size.filter(|size| *size > 0), tally).await?
    };
    print_report(report, top, output, no_headers)
}

impl CountArgs {
    /// Refuses a path that is given twice.
    fn check(&self) -> Result<(), Failure> {
        for (option, paths) in [("--by", &self.by), ("--sum", &self.sum)] {
            let mut seen = paths.iter().enumerate();
            if let Some((_, twice)) =
                seen.find(|(at, path)| paths.iter().take(*at).any(|other| other.text == path.text))
            {
                return Err(Failure::Usage(format!("{option} {} is given twice", twice.text)));
            }
        }
        Ok(())
    }
}

/// Splits the value of `-n`, whose names have no commas.
fn split_namespaces(text: &str) -> Vec<Option<String>> {
    let mut names = Vec::new();
    for name in text.split(',').map(|name| Some(name.trim().to_owned())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Counts objects without reading them.
async fn count_objects(source: &Source, targets: &[Found], wanted: &Wanted) -> Result<CountReport, Failure> {
    let mut count = 0;
    for target in targets {
        count += source.count(target, wanted).await?;
    }
    let group = tally::CountedGroup { values: Vec::new(), count, sums: Box::default() };
    Ok(CountReport { by: Vec::new(), sums: Vec::new(), groups: vec![group] })
}

/// Counts and sums objects while they pass.
async fn tally_objects(
    source: &Source,
    targets: &[Found],
    wanted: Wanted,
    page_size: Option<u32>,
    mut tally: Tally,
) -> Result<CountReport, Failure> {
    for target in targets {
        let type_meta = TypeMeta::new(target.resource.api_version(), target.resource.kind());
        let wanted = Wanted {
            all_fields: !tally.reads_only_metadata(),
            only_known_fields: tally.reads_only_known_fields(&type_meta),
            ..wanted.clone()
        };
        let page = Page { size: page_size, token: None };
        let mut rows = source.rows(target, &wanted, page, false, |item| {
            // The kind of a list may come after its items.
            let has_kind = !item.type_meta().kind.is_empty();
            tally.add(&if has_kind { item } else { item.with_type_meta(&type_meta) }).map(|()| None)
        });
        let done = print_rows(&mut rows, &mut Output::without_items(), &mut None, Rows::progress).await?;
        let summary = rows.summary().cloned();
        drop(rows);
        if let Some(fault) = tally.fault() {
            return Err(Failure::Error(fault));
        }
        done?;
        if let Some(summary) = summary {
            print_warnings(&summary);
        }
    }
    notices::warn_of_unknown_fields(tally.unknown_fields());
    let (by, sums, groups) = tally.into_groups();
    Ok(CountReport { by, sums, groups })
}

/// Prints the groups, and says how many `--top` leaves out.
fn print_report(
    mut report: CountReport,
    top: Option<u32>,
    format: CountFormat,
    no_headers: bool,
) -> Result<(), Failure> {
    let all = report.groups.len();
    let shown = top.and_then(|top| usize::try_from(top).ok()).map_or(all, |top| top.min(all));
    report.groups.truncate(shown);
    let mut out = BufWriter::new(io::stdout().lock());
    report.print(format, no_headers, &mut out)?;
    out.flush()?;
    if shown < all {
        notices::print_line(format_args!("{} of {} groups shown", HumanCount(shown as u64), HumanCount(all as u64)));
    }
    Ok(())
}
