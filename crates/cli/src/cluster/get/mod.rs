//! `listwatch get`: what `kubectl get` prints, in constant memory.
//!
//! # Advice
//!
//! The reference is kubectl of the release that the end-to-end tests run: its arguments, its defaults, and for complete
//! results its bytes and exit codes. `e2e/tests/apiserver/get.rs` compares both. What differs on purpose is in
//! docs/cli.md: stderr, the exit codes 2 and 130, closed pipes, and JSON after an error, which is left unterminated.
//!
//! - Tables are the server's, in kubectl's pages of 500, because columns are as wide as the first page needs.
//! - Names have a prefix if the objects are of several kinds. So the first page of each resource is requested before
//!   anything is printed. Only one page of each resource is in memory.
//! - Objects are listed and printed while they arrive; objects by name are requested one by one.

mod tab_writer;
mod table;
mod targets;

use std::collections::HashMap;
use std::io::{self, BufWriter};
use std::rc::Rc;

use listwatch::client::{Client, Error, ListParams, Resource, Selection};
use listwatch::internal::chain;
use listwatch::{Encoding, FieldSelector, ItemRef, Json, LabelSelector, ListMeta, TypeMeta};
use serde_json::value::RawValue;

use self::table::{Table, TableOptions, TablePrinter};
use self::targets::{Target, parse_targets};
use crate::cluster::connect::ConnectionArgs;
use crate::cluster::limit::{Rest, count_surplus};
use crate::cluster::listing::{SMALLER_PAGES, list_failure, list_progress, list_resource, print_warnings};
use crate::cluster::query::ResourceValueParser;
use crate::cluster::resource::find_resource;
use crate::failure::Failure;
use crate::notices;
use crate::number::number_in;
use crate::output::{
    Format, FormatContext, GET_FORMATS, Needs, Output, OutputFormat, OutputOptions, Purpose, SummaryObject, print_rows,
};
use crate::signals::interrupted;

/// kubectl's page size.
const PAGE_SIZE: u32 = 500;

/// Print objects as `kubectl get`, in constant memory.
///
/// The arguments, the defaults and the output are kubectl's: a table, a List in JSON, names. For yaml, jsonpath and
/// custom-columns, and to watch, use `list`.
///
/// An error after the first objects leaves JSON unterminated, so that nobody takes a part for the whole. The exit code
/// is then 1.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch get pods                       the Pods of the context's namespace, as a table
  listwatch get pods,svc -A -o wide        with all columns, in all namespaces
  listwatch get pod/shop-1 deploy/shop     some objects
  listwatch get deploy -l app=shop -o json | jq '.items[].spec.replicas'
  listwatch get pods -A --limit 10         the first ten, and how many there are
  listwatch get pods -A -o jsonl           one JSON object a line
  listwatch get pods -A -o keys            NAMESPACE/NAME")]
pub struct GetArgs {
    /// TYPE, TYPE,TYPE or TYPE/NAME: pods, deploy, widgets.example.com, pod/shop-1
    #[arg(value_name = "RESOURCE", value_parser = ResourceValueParser, hide_possible_values = true)]
    resource: String,

    /// Names of objects, or more of TYPE/NAME [default: all objects]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Namespace [default: the context's, else `default`]
    #[arg(short, long, value_name = "NAME", overrides_with = "namespace")]
    namespace: Option<String>,

    /// Print objects in all namespaces, also with --namespace
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Label selector: `app=web,tier!=cache,env in (a,b)`
    #[arg(short = 'l', long, value_name = "LABELS", overrides_with = "selector")]
    selector: Option<LabelSelector>,

    /// Field selector: `spec.nodeName=node-1`
    #[arg(long, value_name = "FIELDS", overrides_with = "field_selector")]
    field_selector: Option<FieldSelector>,

    /// Print at most N objects of one resource, and say on stderr if there are more: "2 of 2,000 shown".
    ///
    /// The total is printed only if the server counts the objects, which it does without a selector. With -o json,
    /// `metadata.continue` and `metadata.remainingItemCount` of the List then show that it is a part.
    #[arg(long, value_name = "N", value_parser = number_in(1..=u64::MAX), overrides_with = "limit")]
    limit: Option<u64>,

    /// Number of objects in one response; 0 requests all at once [default: 500 in a table, else all].
    ///
    /// The columns of a table are as wide as its pages need, as in kubectl.
    #[arg(long, value_name = "N", value_parser = number_in(0..=u32::MAX), overrides_with = "chunk_size")]
    chunk_size: Option<u32>,

    /// Objects that do not exist are no error
    #[arg(long)]
    ignore_not_found: bool,

    /// Output format: wide, name, json, jsonl or keys [default: a table].
    ///
    /// `jsonl` prints one JSON object per line, and `keys` NAMESPACE/NAME. The others are kubectl's.
    #[arg(short, long, value_name = "FORMAT", value_parser = parse_format, overrides_with = "output", help_heading = "Output")]
    output: Option<GetFormat>,

    #[command(flatten)]
    table: TableArgs,

    /// With -o json and jsonl, print metadata.managedFields
    #[arg(long, help_heading = "Output")]
    show_managed_fields: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(clap::Args)]
struct TableArgs {
    /// In a table, do not print headers
    #[arg(long, help_heading = "Output")]
    no_headers: bool,

    /// In a table, add a column with all labels
    #[arg(long, help_heading = "Output")]
    show_labels: bool,

    /// In a table, add a column for each of these labels: app,app.kubernetes.io/name
    #[arg(short = 'L', long, value_name = "LABELS", value_delimiter = ',', help_heading = "Output")]
    label_columns: Vec<String>,

    /// In a table, print the kind before each name
    #[arg(long, help_heading = "Output")]
    show_kind: bool,
}

#[derive(Clone)]
enum GetFormat {
    Wide,
    Objects(OutputFormat),
}

fn parse_format(text: &str) -> Result<GetFormat, String> {
    if text == "wide" {
        return Ok(GetFormat::Wide);
    }
    let parsed = OutputFormat::parse(text, GET_FORMATS).map(GetFormat::Objects);
    parsed.map_err(|error| error.replace("one of ", "one of wide, ") + "; `list` has yaml, jsonpath and custom-columns")
}

/// What is requested.
struct Query {
    client: Client,
    targets: Vec<Found>,
    selection: Selection,
    selects_all: bool,
    ignore_not_found: bool,
    /// True if one object was named, which is then not printed as a list.
    is_one: bool,
    limit: Option<u64>,
    /// As the user typed it.
    chunk_size: Option<u32>,
}

/// A resource, where its objects are, and the name of one of them.
#[derive(Clone)]
struct Found {
    resource: Resource,
    /// `None` for all namespaces, and for resources without.
    namespace: Option<String>,
    name: Option<String>,
}

pub async fn run(args: GetArgs) -> Result<(), Failure> {
    let arguments: Vec<_> = [&args.resource].into_iter().chain(&args.names).cloned().collect();
    let targets = parse_targets(&arguments).map_err(Failure::Usage)?;
    args.check(&targets)?;
    let GetArgs { namespace, all_namespaces, selector, field_selector, ignore_not_found, .. } = args;
    let GetArgs { limit, chunk_size, connection, .. } = args;
    let (client, default_namespace) = connection.client().await?;
    let namespace = namespace.unwrap_or(default_namespace);
    let is_one = matches!(&*targets, [Target { name: Some(_), .. }]);
    let targets = find_targets(&client, targets, all_namespaces, &namespace).await?;
    let mut selection = Selection::all();
    let selects_all = selector.is_none() && field_selector.is_none();
    if let Some(selector) = selector {
        selection = selection.labels(selector);
    }
    if let Some(selector) = field_selector {
        selection = selection.fields(selector);
    }
    let query = Query { client, targets, selection, selects_all, ignore_not_found, is_one, limit, chunk_size };
    let is_wide = matches!(args.output, Some(GetFormat::Wide));
    if let Some(GetFormat::Objects(format)) = args.output {
        let options = OutputOptions { show_managed_fields: args.show_managed_fields, ..OutputOptions::default() };
        return query.print_objects(&format, options).await;
    }
    let TableArgs { no_headers, show_labels, label_columns, show_kind } = args.table;
    let options = TableOptions { is_wide, no_headers, show_labels, label_columns };
    let printing = query.print_tables(options, show_kind, all_namespaces, &namespace);
    tokio::select! {
        biased;
        () = interrupted() => Err(Failure::Interrupted("the tables are not complete".to_owned())),
        done = printing => done,
    }
}

impl GetArgs {
    fn check(&self, targets: &[Target]) -> Result<(), Failure> {
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
        ];
        match faults.into_iter().find(|(is_fault, _)| *is_fault) {
            Some((_, fault)) => Err(Failure::Usage(fault.to_owned())),
            None => Ok(()),
        }
    }
}

/// Finds the resources of all targets. A resource that was named twice is listed once.
async fn find_targets(
    client: &Client,
    targets: Vec<Target>,
    all_namespaces: bool,
    namespace: &str,
) -> Result<Vec<Found>, Failure> {
    let (mut resources, mut found) = (HashMap::new(), Vec::<Found>::new());
    for Target { resource: typed, name } in targets {
        if !resources.contains_key(&typed) {
            let resource = find_resource(client, &typed).await?;
            resources.insert(typed.clone(), resource);
        }
        let Some(resource) = resources.get(&typed).cloned() else { continue };
        if name.is_none() && found.iter().any(|other| other.resource == resource) {
            continue;
        }
        if name.is_some() && all_namespaces && resource.is_namespaced() {
            return Err(Failure::Error("an object cannot be named in all namespaces: use -n".to_owned()));
        }
        let namespace = (resource.is_namespaced() && !all_namespaces).then(|| namespace.to_owned());
        found.push(Found { resource, namespace, name });
    }
    Ok(found)
}

impl Query {
    /// Prints the tables of all targets, and then the errors.
    async fn print_tables(
        self,
        options: TableOptions,
        show_kind: bool,
        all_namespaces: bool,
        namespace: &str,
    ) -> Result<(), Failure> {
        let (mut tables, mut errors) = (Vec::new(), Vec::new());
        for target in &self.targets {
            match self.table(target, None, self.limit).await {
                Ok(table) => tables.push((target, table)),
                Err(error) => errors.extend(self.reported(error)),
            }
        }
        let kinds = |found: &Found| (found.resource.group().to_owned(), found.resource.kind().to_owned());
        let is_mixed = tables.iter().any(|(target, _)| kinds(target) != kinds(tables[0].0));
        let is_inside = !all_namespaces && tables.iter().all(|(target, _)| target.resource.is_namespaced());
        let mut printer = TablePrinter::new(BufWriter::new(io::stdout().lock()), options);
        let (mut last, mut left, mut rest) = (None::<&Resource>, self.limit, Rest::Nothing);
        for (target, mut table) in tables {
            let resource = &target.resource;
            if last.replace(resource) != Some(resource) {
                let with_namespace = all_namespaces && resource.is_namespaced();
                let prefix = (is_mixed || show_kind).then(|| prefix_of(resource));
                printer.begin(with_namespace, prefix)?;
            }
            loop {
                let (remaining, token) = (table.remaining(), table.take_continue_token());
                if let Some(left) = &mut left {
                    let (rows, kept) = table.truncate(*left);
                    *left -= kept;
                    rest = Rest::after(rows - kept, &token, remaining, self.selects_all);
                }
                printer.print(table)?;
                if token.is_empty() || left == Some(0) {
                    break;
                }
                printer.flush()?;
                table = match self.table(target, Some(&token), left).await {
                    Ok(table) => table,
                    Err(error) => {
                        errors.extend(self.reported(error));
                        break;
                    }
                };
            }
        }
        let has_output = printer.end()?;
        self.report(left, rest);
        if !errors.is_empty() {
            return Err(Failure::Error(errors.join("; ")));
        }
        if !has_output && !self.ignore_not_found {
            let place = if is_inside { format!(" in {namespace} namespace.") } else { String::new() };
            notices::print_line(format_args!("No resources found{place}"));
        }
        Ok(())
    }

    /// Says what `--limit` left out, if it was reached.
    fn report(&self, left: Option<u64>, rest: Rest) {
        if let (Some(limit), Some(0)) = (self.limit, left) {
            rest.report(limit, limit);
        }
    }

    /// Returns the parameters of a page, which has no more objects than the limit still allows.
    fn params(selection: Selection, page_size: Option<u32>, left: Option<u64>) -> ListParams {
        let left = left.and_then(|left| u32::try_from(left).ok());
        match page_size.filter(|size| *size > 0).into_iter().chain(left).min() {
            Some(size) => ListParams::new(selection).page_size(size),
            None => ListParams::new(selection),
        }
    }

    /// Requests a page of a collection, or an object.
    async fn table(&self, target: &Found, token: Option<&str>, left: Option<u64>) -> Result<Table, GetError> {
        let Found { resource, namespace, name } = target;
        let namespace = namespace.as_deref();
        let params = Self::params(self.selection.clone(), Some(self.chunk_size.unwrap_or(PAGE_SIZE)), left);
        let answer = match name {
            Some(name) => self.client.table_of(resource, namespace, name).await,
            None => self.client.table_page(resource, namespace, &params, token).await,
        };
        let (body, warnings) = answer.map_err(|error| GetError::Request(Box::new(error)))?;
        // Later pages repeat them.
        if token.is_none() {
            for warning in &warnings {
                notices::warn(warning);
            }
        }
        Table::parse(&body).map_err(GetError::Table)
    }

    /// Returns the text of an error, unless it is to be ignored.
    fn reported(&self, error: GetError) -> Option<String> {
        match error {
            GetError::Request(error) if self.ignore_not_found && error.code() == Some(404) => None,
            GetError::Request(error) => Some(chain(&*error)),
            GetError::Table(text) => Some(text),
        }
    }

    /// Prints the objects of all targets.
    async fn print_objects(self, format: &OutputFormat, options: OutputOptions) -> Result<(), Failure> {
        let purpose = if self.is_one { Purpose::Object } else { Purpose::Objects };
        let needs = format.info.needs;
        let format = format.build(&FormatContext { options, kind: None, purpose });
        let mut output = Output::new(Rc::clone(&format), false);
        let (mut count, mut missing, mut part) = (0, Vec::new(), None);
        for Found { resource, namespace, name } in &self.targets {
            if let Some(name) = name {
                let got = self.client.get::<Json<Box<RawValue>>>(resource, namespace.as_deref(), name).await;
                let object = match got {
                    Ok(object) => object,
                    Err(error) if error.code() == Some(404) => {
                        missing.push(chain(&error));
                        continue;
                    }
                    Err(error) => {
                        output.flush()?;
                        return Err(Failure::Error(chain(&error)));
                    }
                };
                let type_meta = TypeMeta::new(resource.api_version(), resource.kind());
                let item = ItemRef::new(Encoding::Json, object.get().as_bytes()).with_type_meta(&type_meta);
                let row = format.row(&item).map_err(|error| Failure::Error(chain(&error)))?;
                row.map_or(Ok(()), |row| output.print_row(row))?;
                count += 1;
                continue;
            }
            let (items, after) = self.print_list(resource, namespace.as_deref(), needs, &*format, &mut output).await?;
            (count, part) = (count + items, after);
        }
        notices::warn_of_unknown_fields(format.take_unknown_fields());
        let is_printed = if self.is_one { count > 0 } else { count > 0 || !self.ignore_not_found };
        if is_printed {
            let no_type = TypeMeta::default();
            let part = part.as_ref().map(|(_, meta)| SummaryObject::new(&no_type, meta, 0, 0));
            output.end(part.as_ref())?;
        }
        if let Some((rest, _)) = part {
            self.report(Some(0), rest);
        }
        if missing.is_empty() || self.ignore_not_found { Ok(()) } else { Err(Failure::Error(missing.join("; "))) }
    }

    /// Prints the objects of a resource, and returns their number, and if `--limit` was reached, what it left out, with
    /// the metadata of a list that says so.
    async fn print_list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        needs: Needs,
        format: &dyn Format,
        output: &mut Output,
    ) -> Result<(u64, Option<(Rest, ListMeta)>), Failure> {
        let selection = self.selection.clone();
        let selection = if needs == Needs::Fields { selection.json() } else { selection.metadata_only() };
        let type_meta = TypeMeta::new(resource.api_version(), resource.kind());
        let found = (resource.clone(), namespace.map(str::to_owned));
        let (mut left, mut count, mut token) = (self.limit, 0, None);
        loop {
            let params = Self::params(selection.clone(), self.chunk_size, left);
            let mut items = list_resource(&self.client, &found, &params, |item| {
                // The kind of a list may come after its items, and that of metadata is another.
                let has_kind = needs == Needs::Fields && !item.type_meta().kind.is_empty();
                format.row(&if has_kind { item } else { item.with_type_meta(&type_meta) })
            });
            let is_first = token.is_none();
            if left.is_some() {
                items = items.single_page(token.take());
            }
            let progress = items.progress();
            let done = print_rows(&mut items, output, &mut left, |_| list_progress(&progress)).await?;
            done.map_err(|error| list_failure(&error, SMALLER_PAGES))?;
            let surplus = if left == Some(0) { count_surplus(&mut items, &progress, u64::MAX).await? } else { 0 };
            let Some(summary) = items.summary() else { return Ok((count, None)) };
            if is_first {
                print_warnings(summary);
            }
            count += summary.items;
            let ListMeta { continue_token, remaining_item_count, .. } = &summary.list_meta;
            if left == Some(0) {
                let rest = Rest::after(surplus, continue_token, *remaining_item_count, self.selects_all);
                return Ok((count, Some((rest, rest.list_meta(surplus, continue_token)))));
            }
            if left.is_none() || continue_token.is_empty() {
                return Ok((count, None));
            }
            token = Some(continue_token.clone());
        }
    }
}

/// Why a table cannot be printed.
enum GetError {
    Request(Box<Error>),
    Table(String),
}

/// Returns what kubectl prints before names: `pod`, `deployment.apps`.
fn prefix_of(resource: &Resource) -> String {
    let group = resource.group();
    let dot = if group.is_empty() { "" } else { "." };
    [resource.kind(), dot, group].concat().to_lowercase()
}
