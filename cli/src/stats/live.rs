//! `listwatch stats RESOURCE`: a collection of an API server.

use listwatch::client::Client;

use super::collect::Stats;
use super::failure;
use super::report::Report;
use crate::cluster::connect::Connection;
use crate::cluster::query::{self, Query, Selection, Version};
use crate::failure::{Failure, chain};
use crate::output::{Format, Output, Row};
use crate::rows;

pub const EXAMPLES: &str = "\
Examples:
  listwatch stats pods -A                                    all Pods of a cluster
  listwatch stats pods -A --drop metadata.managedFields      and what it would save to drop a field
  listwatch stats --file pods.pb --html pods.html            a saved body, as a page to look at
  listwatch stats secrets -A -o json | jq .sizes.p99         for scripts";

/// The arguments and groups of [`Live`], none of which a saved body has.
pub const ARGUMENTS: [&str; 4] = ["Selection", "Version", "limit", "Connection"];

#[derive(clap::Args)]
pub struct Live {
    #[command(flatten)]
    selection: Option<Selection>,

    #[command(flatten)]
    version: Version,

    /// In pages of so many items, which all are counted
    #[arg(long, value_name = "PAGE", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,

    #[command(flatten)]
    connection: Connection,
}

pub async fn report(mut stats: Stats, args: Live) -> Result<Report, Failure> {
    let Live { selection, version, limit, connection } = args;
    let selection = selection.expect("clap wants a resource where there is no file");
    let query = Query { selection, version };
    let options = query.options()?;
    let (transport, namespace) = connection.open().await?;
    let client = Client::new(transport);
    let list = query.list(&client, &options, limit, namespace).await?;
    let progress = list.progress();
    let mut items = list.map_item(|item| stats.add(&item).map(|()| Row::Nothing)).stream();
    let done = rows::print(&mut items, &mut Output::new(Format::Summary), |_| query::reached(&progress)).await?;
    let summary = items.summary().cloned();
    drop(items);
    done.map_err(|error| failure(&stats, chain(&error)))?;
    let summary = summary.expect("without an error the list is complete");
    query::warn(&summary);
    Ok(stats.report(&summary.type_meta, &summary.list_meta, summary.bytes))
}
