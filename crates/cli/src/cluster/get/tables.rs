//! The tables of all targets.

use std::io::{self, BufWriter};

use listwatch::client::Resource;

use super::query::Query;
use super::source::{Found, Page, SourceError};
use super::table::{Table, TableOptions, TablePrinter};
use crate::cluster::limit::Rest;
use crate::failure::Failure;
use crate::notices;

/// kubectl's page size.
const PAGE_SIZE: u32 = 500;

/// Prints the tables of all targets, and then the errors.
pub async fn print_tables(
    query: Query,
    options: TableOptions,
    show_kind: bool,
    all_namespaces: bool,
    namespace: &str,
) -> Result<(), Failure> {
    let (mut tables, mut errors) = (Vec::new(), Vec::new());
    for target in &query.targets {
        match query.table(target, None, query.limit).await {
            Ok(table) => tables.push((target, table)),
            Err(error) => errors.extend(query.reported(&error)),
        }
    }
    let kinds = |found: &Found| (found.resource.group().to_owned(), found.resource.kind().to_owned());
    let is_mixed = tables.iter().any(|(target, _)| kinds(target) != kinds(tables[0].0));
    let is_inside = !all_namespaces && tables.iter().all(|(target, _)| target.resource.is_namespaced());
    let mut printer = TablePrinter::new(BufWriter::new(io::stdout().lock()), options);
    let (mut last, mut left, mut rest) = (None::<&Resource>, query.limit, Rest::Nothing);
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
                rest = Rest::after(rows - kept, &token, remaining, query.wanted.selects_all());
            }
            printer.print(table)?;
            if token.is_empty() || left == Some(0) {
                break;
            }
            printer.flush()?;
            table = match query.table(target, Some(token), left).await {
                Ok(table) => table,
                Err(error) => {
                    errors.extend(query.reported(&error));
                    break;
                }
            };
        }
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

impl Query {
    /// Requests a page of a collection, or an object.
    async fn table(&self, target: &Found, token: Option<String>, left: Option<u64>) -> Result<Table, SourceError> {
        let size = Self::page_size(Some(self.chunk_size.unwrap_or(PAGE_SIZE)), left);
        self.source.table(target, &self.wanted, Page { size, token }).await
    }

    /// Returns the text of an error, unless it is to be ignored.
    fn reported(&self, error: &SourceError) -> Option<String> {
        (!self.ignore_not_found || !error.is_not_found()).then(|| error.text())
    }
}

/// Returns what kubectl prints before names: `pod`, `deployment.apps`.
fn prefix_of(resource: &Resource) -> String {
    let group = resource.group();
    let dot = if group.is_empty() { "" } else { "." };
    [resource.kind(), dot, group].concat().to_lowercase()
}
