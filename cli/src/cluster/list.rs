//! `listwatch list`: a collection of an API server.

use listwatch::client::Client;

use crate::cluster::connect::Connection;
use crate::cluster::query::{self, Query};
use crate::failure::{Failure, chain};
use crate::notices;
use crate::output::{Format, Output, Shown, Summary};
use crate::rows;

/// Streams a collection from an API server.
///
/// Items are printed as they arrive; nothing is kept. A list that broke off after its first item is not asked for again,
/// because items are out: the error, one line on stderr, says how many.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch list pods -A                          all Pods, as they arrive
  listwatch list deploy -n web -l app=shop        some Deployments of one namespace
  listwatch list pods -A --resource-version 0     whatever the server has cached: the cheapest for it
  listwatch list pods -A -o summary               kind, version and counts, as JSON
  listwatch list widgets.example.com -A -o json   custom resources, one JSON object a line
  listwatch list pods -A -o json --drop status    without a field
  listwatch list secrets -A --metadata-only       without what is in them
  listwatch list pods -A --limit 5000             in pages, where the whole takes the server over its request timeout
  listwatch list pods -A --server http://localhost:8001    while `kubectl proxy` runs")]
pub struct Args {
    #[command(flatten)]
    query: Query,

    /// In pages of so many items, which all are printed
    #[arg(long, value_name = "PAGE", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,

    #[command(flatten)]
    shown: Shown,

    #[command(flatten)]
    connection: Connection,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let Args { query, limit, shown, connection } = args;
    let mut rows = shown.rows()?;
    let mut options = query.options()?;
    if shown.format == Format::Json {
        options = options.json();
    }
    if shown.drop.iter().any(|path| path == "metadata.managedFields") {
        options = options.drop_managed_fields();
    }
    let (transport, namespace) = connection.open().await?;
    let client = Client::new(transport);
    let list = query.list(&client, &options, limit, namespace).await?;
    let progress = list.progress();
    let mut items = list.map_item(|item| rows.row(&item)).stream();
    let mut output = Output::new(shown.format);
    rows::print(&mut items, &mut output, |_| query::reached(&progress))
        .await?
        .map_err(|error| Failure::Error(chain(&error)))?;
    let summary = items.summary().expect("without an error the list is complete");
    output.end(&Summary::new(&summary.type_meta, &summary.list_meta, summary.items, summary.bytes))?;
    query::warn(summary);
    drop(items);
    notices::unknown_fields(rows.unknown_fields);
    Ok(())
}
