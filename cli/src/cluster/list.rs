//! `listwatch list`: a collection of an API server.

use crate::cluster::connect::Connection;
use crate::cluster::query::{self, Pages, Query};
use crate::failure::Failure;
use crate::notices;
use crate::number::number;
use crate::output::{Format, Output, Shown, Summary};
use crate::rows;

/// Lists a collection of an API server.
///
/// Items are printed as they arrive, and none is kept in memory. -o json and yaml request JSON from the server, which is larger than protobuf: for a whole
/// collection, `record` it and `decode` the file. If the connection breaks after the first item, the list is not
/// retried, because items were printed already: the command ends with an error that says how many.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch list pods -A                          all Pods, as they arrive
  listwatch list deploy -n web -l app=shop        some Deployments of one namespace
  listwatch list pod shop-1 shop-2 -o yaml        two Pods of the context's namespace
  listwatch list pods -A -o wide -L app           with phase, node, IP, owner, UID and a label
  listwatch list pods -A --limit 10               the first ten
  listwatch list pods -A --resource-version 0     from the server's cache, which costs it least
  listwatch list pods -A -o summary               kind, version and counts, as JSON
  listwatch list widgets.example.com -A -o json   custom resources, one JSON object a line
  listwatch list pods -A -o json --drop status    without a field
  listwatch list secrets -A --metadata-only       without their data
  listwatch list pods -A --chunk-size 5000        in pages, if a whole list exceeds the server's request timeout
  listwatch list pods -A --server http://localhost:8001    through `kubectl proxy`")]
pub struct Args {
    #[command(flatten)]
    query: Query,

    /// Names of objects [default: all objects]. RESOURCE/NAME is accepted too
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    #[command(flatten)]
    pages: Pages,

    /// Stop after N items
    #[arg(long, value_name = "N", value_parser = number(1..=u64::MAX))]
    limit: Option<u64>,

    #[command(flatten)]
    shown: Shown,

    #[command(flatten)]
    connection: Connection,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let Args { mut query, names, pages, mut limit, shown, connection } = args;
    let names = query::names(&mut query.selection, names)?;
    if shown.format == Format::Summary && (limit.is_some() || names.len() > 1) {
        return Err(Failure::Usage("-o summary is about one whole list: no --limit, and one name at most".to_owned()));
    }
    let mut rows = shown.rows()?;
    let mut selected = query.selection.selected();
    if shown.format.prints_fields() {
        selected = selected.json();
    }
    // The server should not send many more items than are printed. At version 0 it ignores page sizes.
    let limit_page = limit.filter(|_| !query.version.is_any()).and_then(|limit| u32::try_from(limit).ok());
    let page_size = pages.size(&query.version).into_iter().chain(limit_page).min();
    let (client, namespace) = connection.client().await?;
    let Query { selection, version } = query;
    let found = selection.find(&client, namespace).await?;
    let lists = if names.is_empty() {
        vec![(None, selected)]
    } else {
        names.iter().map(|name| (Some(name), selected.clone().fields(query::of_name(name)))).collect()
    };
    let mut output = Output::new(&shown);
    let mut missing = Vec::new();
    for (name, selected) in lists {
        let list = query::list_of(&client, &found, &version.params(selected, page_size), |item| rows.row(&item));
        let progress = list.progress();
        let mut items = list;
        let ended = rows::print(&mut items, &mut output, &mut limit, |_| query::reached(&progress)).await?;
        let summary = items.summary().cloned();
        drop(items);
        rows.check()?;
        ended.map_err(|error| query::failure(&error, query::SMALLER_PAGES))?;
        // The list ended at --limit.
        let Some(summary) = summary else { break };
        query::warn(&summary);
        match name {
            Some(name) if summary.items == 0 => missing.push(name),
            _ if shown.format == Format::Summary => {
                output.end(Some(&Summary::new(
                    &summary.type_meta,
                    &summary.list_meta,
                    summary.items,
                    summary.bytes,
                )))?;
            }
            None if summary.items == 0 && !shown.format.prints_fields() => notices::line("No items found."),
            _ => {}
        }
    }
    if shown.format != Format::Summary {
        output.end(None)?;
    }
    notices::unknown_fields(rows.unknown_fields);
    if missing.is_empty() {
        return Ok(());
    }
    let (plural, missing) = (found.0.plural(), missing.into_iter().map(|name| format!("{name:?}")).collect::<Vec<_>>());
    Err(Failure::Error(format!("{plural} {} not found", missing.join(", "))))
}
