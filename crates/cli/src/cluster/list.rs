//! `listwatch list`: a collection of an API server.

use std::mem;
use std::rc::Rc;

use futures::{StreamExt, TryStreamExt};
use listwatch::client::{Client, ListSummary, Resource, Selection};
use listwatch::internal::chain;
use listwatch_tables::json_path::JsonPath;

use crate::cluster::connect::ConnectionArgs;
use crate::cluster::limit::{Rest, count_surplus};
use crate::cluster::listing::{SMALLER_PAGES, list_failure, list_progress, list_resource, print_warnings};
use crate::cluster::query::{PageArgs, QueryArgs, VersionArgs, name_selector, split_names};
use crate::cluster::table_kind::find_printed_resource;
use crate::cluster::watch::{ONE_NAME, print_list_changes};
use crate::failure::Failure;
use crate::notices;
use crate::number::number_in;
use crate::output::{Format, Needs, ObjectSorter, Output, OutputArgs, Purpose, SummaryObject, print_rows};

/// List a collection of an API server.
///
/// Items are printed as they arrive, and none is kept in memory. If the connection breaks after the first item, the
/// command ends with an error that says how many items were printed. It does not retry such a list, because items would
/// be printed twice.
///
/// -o json and yaml request JSON from the server, which is larger than protobuf. For a whole collection, `record` it
/// and `decode` the file.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch list pods -A                          all Pods, as they arrive
  listwatch list deploy -n web -l app=shop        some Deployments of one namespace
  listwatch list pod shop-1 shop-2 -o yaml        two Pods of the context's namespace
  listwatch list pods -A -o wide -L app           with node, IP, owner, UID and a label
  listwatch list pods -A -o custom-columns=POD:.metadata.name,NODE:.spec.nodeName
  listwatch list pods -A -o jsonpath='{range .items[*]}{.metadata.name}{\"\\n\"}{end}'
  listwatch list pods -A --sort-by .spec.nodeName   by node
  listwatch list pods -A --limit 10               the first ten
  listwatch list pods -n web -o table -w          a table, then each Pod that changes
  listwatch list pods -A --resource-version 0     from the server's cache, which costs it least
  listwatch list pods -A -o summary               kind, version and counts, as JSON
  listwatch list widgets.example.com -A -o json   custom resources, one JSON object a line
  listwatch list pods -A -o json --drop status    without a field
  listwatch list secrets -A --metadata-only       without their data
  listwatch list pods -A --chunk-size 5000        in pages, if a whole list exceeds the server's request timeout
  listwatch list pods -A --server http://localhost:8001    through `kubectl proxy`")]
pub struct ListArgs {
    #[command(flatten)]
    query: QueryArgs,

    /// Names of objects, also as RESOURCE/NAME [default: all objects]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    #[command(flatten)]
    pages: PageArgs,

    /// Print at most N objects, and say on stderr if there are more: "2 of 2,000 shown".
    ///
    /// The total is printed only if the server counts the objects, which it does without a selector, a name or a shard.
    #[arg(long, value_name = "N", value_parser = number_in(1..=u64::MAX))]
    limit: Option<u64>,

    /// Sort by the value of this JSONPath, such as .metadata.creationTimestamp.
    ///
    /// Numbers and quantities sort by size, other texts byte by byte. The command keeps all objects until the list is
    /// complete, 16 MiB of them in memory, and more in a temporary file.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["limit", "watch", "watch_only"], value_parser = parse_sort_path)]
    sort_by: Option<JsonPath>,

    /// After the list, print each object that changes, until Ctrl-C. `watch` also prints what changed
    #[arg(short, long, conflicts_with = "limit")]
    watch: bool,

    /// Print the objects that change from now on, without a list
    #[arg(long, conflicts_with_all = ["limit", "watch", "resource_version", "chunk_size"])]
    watch_only: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub async fn run(mut args: ListArgs) -> Result<(), Failure> {
    let names = split_names(&mut args.query.selection, mem::take(&mut args.names))?;
    args.check(&names)?;
    let is_watch = args.is_watch();
    let ListArgs { query, pages, limit, sort_by, watch_only, output: output_args, connection, .. } = args;
    output_args.check()?;
    let mut selection = query.selection.selection();
    let needs = output_args.needs();
    if needs == Needs::Fields || sort_by.is_some() {
        selection = selection.json();
    }
    let selects_all = names.is_empty() && query.selection.selects_all();
    let page_size = pages.page_size(&query.version);
    let (client, namespace) = connection.client().await?;
    let QueryArgs { selection: selection_args, version } = query;
    let (found, kind) = find_printed_resource(&client, selection_args, namespace, &output_args).await?;
    let format = output_args.format(kind, Purpose::Objects);
    let output = Output::new(Rc::clone(&format), output_args.no_headers());
    let sorter = sort_by.map(ObjectSorter::new);
    let mut printer =
        ListPrinter { client, found, version, page_size, format, output, sorter, left: limit, seen: 0, selects_all };
    let (mut missing, mut listed_version, mut rest) = (Vec::new(), None, Rest::Nothing);
    let selections = select_names(&names, selection);
    let watched = selections.first().filter(|_| is_watch).map(|(_, selection)| selection.clone());
    let mut selections = selections.into_iter().filter(|_| !watch_only);
    while let Some((name, selection)) = selections.next() {
        let seen = printer.seen;
        let (summary, after) = printer.print(&selection).await?;
        rest = after;
        if printer.left == Some(0) {
            // Nobody has asked for the other names.
            if rest == Rest::Nothing && selections.next().is_some() {
                rest = Rest::Perhaps;
            }
            break;
        }
        let Some(summary) = summary else { break };
        listed_version = Some(summary.list_meta.resource_version.clone());
        match name {
            Some(name) if printer.seen == seen => missing.push(name),
            _ if needs == Needs::Nothing => printer.output.end(Some(&summary_object(&summary)))?,
            None if printer.seen == 0 && needs != Needs::Fields => notices::print_line("No items found."),
            _ => {}
        }
    }
    let ListPrinter { client, found, format, mut output, sorter, left, seen, .. } = printer;
    if let Some(sorter) = sorter {
        sorter.finish(|item| {
            let row = format.row(item).map_err(|error| Failure::Error(chain(&error)))?;
            Ok(row.map_or(Ok(()), |row| output.print_row(row))?)
        })?;
    }
    notices::warn_of_unknown_fields(format.take_unknown_fields());
    if let (Some(selection), true) = (watched, missing.is_empty()) {
        output.flush()?;
        return print_list_changes(client, found, selection, listed_version, format, output).await;
    }
    if needs != Needs::Nothing {
        output.end(None)?;
    }
    if let (Some(limit), Some(left)) = (limit, left) {
        rest.report(limit.saturating_sub(left), seen);
    }
    if missing.is_empty() { Ok(()) } else { Err(not_found(&found.0, &missing)) }
}

/// Prints lists, until the limit is reached.
struct ListPrinter {
    client: Client,
    found: (Resource, Option<String>),
    version: VersionArgs,
    page_size: Option<u32>,
    format: Rc<dyn Format>,
    output: Output,
    sorter: Option<ObjectSorter>,
    /// How many rows `--limit` still allows.
    left: Option<u64>,
    selects_all: bool,
    /// The number of objects that were listed.
    seen: u64,
}

impl ListPrinter {
    /// Prints a list, and returns its summary and what the limit leaves out. The summary is of the last page only under
    /// a limit, and is missing if the server sends more than the limit.
    async fn print(&mut self, selection: &Selection) -> Result<(Option<ListSummary>, Rest), Failure> {
        let (mut token, mut is_first) = (None, true);
        loop {
            // The server should not send many more items than are printed. At version 0 it ignores page sizes.
            let left = self.left.filter(|_| !self.version.is_any()).and_then(|left| u32::try_from(left).ok());
            let page_size = self.page_size.into_iter().chain(left).min();
            let params = self.version.list_params(selection.clone(), page_size);
            let (format, sorter) = (&self.format, &mut self.sorter);
            let mut items = list_resource(&self.client, &self.found, &params, |item| match sorter {
                Some(sorter) => sorter.add(&item).map(|()| None),
                None => format.row(&item),
            });
            if self.left.is_some() {
                items = items.single_page(token.take());
            }
            let progress = items.progress();
            let done = print_rows(&mut items, &mut self.output, &mut self.left, |_| list_progress(&progress)).await?;
            if let Some(error) = format.usage_error() {
                return Err(Failure::Usage(error));
            }
            done.map_err(|error| list_failure(&error, SMALLER_PAGES))?;
            if self.left == Some(0)
                && count_surplus(&mut items.by_ref().map_err(|error| list_failure(&error, SMALLER_PAGES)), 1, |_| {
                    list_progress(&progress)
                })
                .await?
                    > 0
            {
                return Ok((None, Rest::Some));
            }
            let Some(summary) = items.summary().cloned() else { return Ok((None, Rest::Some)) };
            if mem::take(&mut is_first) {
                print_warnings(&summary);
            }
            self.seen += summary.items;
            let meta = &summary.list_meta;
            if self.left.is_some_and(|left| left > 0) && !meta.continue_token.is_empty() {
                token = Some(meta.continue_token.clone());
                continue;
            }
            let rest = Rest::after(0, &meta.continue_token, meta.remaining_item_count, self.selects_all);
            return Ok((Some(summary), rest));
        }
    }
}

fn parse_sort_path(text: &str) -> Result<JsonPath, String> {
    JsonPath::parse(text).map_err(|error| error.to_string())
}

impl ListArgs {
    fn is_watch(&self) -> bool {
        self.watch || self.watch_only
    }

    /// Refuses options that do not apply to the format, and several names for a watch.
    fn check(&self, names: &[String]) -> Result<(), Failure> {
        let is_summary = self.output.needs() == Needs::Nothing;
        let faults = [
            (
                is_summary && (self.limit.is_some() || names.len() > 1),
                "-o summary is about one whole list: no --limit, and one name at most",
            ),
            (is_summary && self.sort_by.is_some(), "-o summary prints no items: no --sort-by"),
            (is_summary && self.is_watch(), "-o summary is about a list: no --watch or --watch-only"),
            (self.is_watch() && names.len() > 1, ONE_NAME),
        ];
        match faults.into_iter().find(|(is_fault, _)| *is_fault) {
            Some((_, fault)) => Err(Failure::Usage(fault.to_owned())),
            None => Ok(()),
        }
    }
}

/// Returns the selections to list, with their names: one of each name, or the whole selection.
fn select_names(names: &[String], selection: Selection) -> Vec<(Option<&String>, Selection)> {
    if names.is_empty() {
        return vec![(None, selection)];
    }
    names.iter().map(|name| (Some(name), selection.clone().fields(name_selector(name)))).collect()
}

fn summary_object(summary: &ListSummary) -> SummaryObject<'_> {
    SummaryObject::new(&summary.type_meta, &summary.list_meta, summary.items, summary.bytes)
}

/// Returns the failure of names that the server does not have.
fn not_found(resource: &Resource, names: &[&String]) -> Failure {
    let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    Failure::Error(format!("{} {} not found", resource.plural(), names.join(", ")))
}
