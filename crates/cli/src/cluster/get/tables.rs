//! The tables of all targets.

use std::io::{self, BufWriter, StdoutLock};

use listwatch::client::{Resource, TableForm};
use listwatch::internal::chain;
use listwatch::{Encoding, ItemRef, TypeMeta};
use listwatch_tables::json_path::JsonPath;

use super::changes::print_table_changes;
use super::query::Query;
use super::source::{Found, Page, SourceError};
use super::table::{Table, TableOptions, TablePrinter, widen};
use crate::cluster::limit::Rest;
use crate::failure::Failure;
use crate::notices;
use crate::output::RecordSorter;

/// kubectl's page size.
const PAGE_SIZE: u32 = 500;

/// The page size of tables that are sorted, whose rows have whole objects. The columns are as wide as all need.
const SORTED_PAGE_SIZE: u32 = 100;

/// The tables of all targets, while they are printed.
struct Tables<'a> {
    query: &'a Query,
    printer: TablePrinter<BufWriter<StdoutLock<'static>>>,
    errors: Vec<String>,
    /// How many rows `--limit` still allows, and what it leaves out.
    left: Option<u64>,
    rest: Rest,
    rows: u64,
    /// The version of the list that was printed last.
    version: String,
}

/// Prints the tables of all targets, then the changes that were asked for, and the errors.
pub async fn print_tables(
    query: Query,
    options: TableOptions,
    show_kind: bool,
    all_namespaces: bool,
    namespace: &str,
) -> Result<(), Failure> {
    let (mut first_pages, mut errors) = (Vec::new(), query.faults.clone());
    for target in &query.targets {
        match query.table(target, None, query.limit).await {
            Ok(table) => first_pages.push((target, table)),
            Err(error) => errors.extend(query.reported(&error)),
        }
    }
    let kinds = |found: &Found| (found.resource.group().to_owned(), found.resource.kind().to_owned());
    let is_mixed = first_pages.iter().any(|(target, _)| kinds(target) != kinds(first_pages[0].0));
    let is_inside = !all_namespaces && first_pages.iter().all(|(target, _)| target.resource.is_namespaced());
    let has_events = options.has_events;
    let printer = TablePrinter::new(BufWriter::new(io::stdout().lock()), options);
    let (left, version) = (query.limit, String::new());
    let mut tables = Tables { query: &query, printer, errors, left, rest: Rest::Nothing, rows: 0, version };
    let mut last = None::<&Resource>;
    for (target, first_page) in first_pages {
        let resource = &target.resource;
        if last.replace(resource) != Some(resource) {
            let with_namespace = all_namespaces && resource.is_namespaced();
            let prefix = (is_mixed || show_kind).then(|| prefix_of(resource));
            tables.printer.begin(with_namespace, prefix)?;
        }
        match &query.sort_by {
            Some(path) => tables.print_sorted(target, first_page, path.clone()).await?,
            None => tables.print(target, first_page, has_events).await?,
        }
    }
    let Tables { mut printer, errors, left, rest, rows, version, .. } = tables;
    if let (Some(changes), true) = (&query.changes, errors.is_empty()) {
        printer.flush_rows()?;
        if let Some(name) = changes.name.as_ref().filter(|_| rows == 0) {
            return query.missing(name).await.map_or(Ok(()), |error| Err(Failure::Error(error)));
        }
        return print_table_changes(&query, changes, version, printer).await;
    }
    let has_output = printer.end()?;
    query.report(left, rest);
    if !errors.is_empty() {
        return Err(Failure::Error(errors.join("; ")));
    }
    if !has_output && !query.ignore_not_found {
        let place = if is_inside { format!(" in {namespace} namespace.") } else { String::new() };
        notices::print_line(format_args!("No resources found{place}"));
    }
    Ok(())
}

impl Tables<'_> {
    /// Prints the pages of a target.
    async fn print(&mut self, target: &Found, mut table: Table, has_events: bool) -> Result<(), Failure> {
        let event = has_events.then_some("ADDED");
        loop {
            table.version().clone_into(&mut self.version);
            let (remaining, token) = (table.remaining(), table.take_continue_token());
            if let Some(changes) = self.query.changes.as_ref().filter(|changes| changes.only) {
                // One row shows the version of the list, and whether a named object exists.
                self.rows += u64::from(!table.is_empty() || changes.name.is_none());
                table.truncate(0);
                self.printer.print(table, None)?;
                return Ok(());
            }
            if let Some(left) = &mut self.left {
                let (rows, kept) = table.truncate(*left);
                *left -= kept;
                self.rest = Rest::after(rows - kept, &token, remaining, self.query.wanted.selects_all());
            }
            self.rows += u64::from(!table.is_empty());
            self.printer.print(table, event)?;
            if token.is_empty() || self.left == Some(0) {
                return Ok(());
            }
            self.printer.flush()?;
            table = match self.query.table(target, Some(token), self.left).await {
                Ok(table) => table,
                Err(error) => {
                    self.errors.extend(self.query.reported(&error));
                    return Ok(());
                }
            };
        }
    }

    /// Prints the rows of a target in the order of a value of their objects. As in kubectl, the value is not missed if
    /// there is one row.
    async fn print_sorted(&mut self, target: &Found, mut table: Table, path: JsonPath) -> Result<(), Failure> {
        let faulty = |error: listwatch::ItemError| Failure::Error(chain(&error));
        let (mut sorter, mut widest) = (RecordSorter::new(path), Vec::new());
        let type_meta = TypeMeta::new(target.resource.api_version(), target.resource.kind());
        loop {
            let token = table.take_continue_token();
            for row in self.printer.read(table, None) {
                widen(&mut widest, &row.cells);
                let cells = serde_json::to_vec(&row.cells).map_err(|error| Failure::Error(error.to_string()))?;
                let object = row.object.as_ref().map_or("{}", |object| object.get());
                let item = ItemRef::new(Encoding::Json, object.as_bytes());
                sorter.add(&item.with_type_meta(&type_meta), &cells).map_err(faulty)?;
            }
            if token.is_empty() {
                break;
            }
            // Rows that are missing would be in the middle, so nothing is printed.
            table = self.query.table(target, Some(token), None).await.map_err(|error| Failure::Error(error.text()))?;
        }
        sorter.check(2)?;
        let (printer, mut is_begun) = (&mut self.printer, false);
        sorter.finish(|cells| {
            if !std::mem::replace(&mut is_begun, true) {
                printer.begin_rows(std::mem::take(&mut widest))?;
            }
            let cells: Vec<String> =
                serde_json::from_slice(cells).map_err(|error| Failure::Error(error.to_string()))?;
            Ok(printer.print_row(&cells)?)
        })
    }
}

impl Query {
    /// Requests a page of a collection, or an object.
    async fn table(&self, target: &Found, token: Option<String>, left: Option<u64>) -> Result<Table, SourceError> {
        let default = if self.form == TableForm::Objects { SORTED_PAGE_SIZE } else { PAGE_SIZE };
        let only_changes = self.changes.as_ref().is_some_and(|changes| changes.only).then_some(1);
        let size = Self::page_size(Some(self.chunk_size.unwrap_or(default)), only_changes.or(left));
        self.source.table(target, &self.wanted, Page { size, token }, self.subresource.as_deref(), self.form).await
    }
}

/// Returns what kubectl prints before names: `pod`, `deployment.apps`.
fn prefix_of(resource: &Resource) -> String {
    let group = resource.group();
    let dot = if group.is_empty() { "" } else { "." };
    [resource.kind(), dot, group].concat().to_lowercase()
}
