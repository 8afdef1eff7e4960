//! `listwatch stats RESOURCE`: reads a collection from an API server.

use super::collect::Stats;
use super::failure;
use super::report::Report;
use crate::cluster::connect::Connection;
use crate::cluster::query::{self, Pages, Query, Selection, Version};
use crate::failure::Failure;
use crate::filter::Filter;
use crate::output::{Output, Row};
use crate::rows;

pub const EXAMPLES: &str = "\
Examples:
  listwatch stats pods -A                                    all Pods of a cluster
  listwatch stats pods -A --drop metadata.managedFields      also shows what dropping a field saves
  listwatch stats pods -A --drop 'metadata.annotations[\"KEY\"]'   of an annotation; the shell needs the quotes
  listwatch stats --file pods.pb --html pods.html            a saved body, also as an HTML page
  listwatch stats --file pods.pb -n web -l app=shop          some of its objects
  listwatch stats secrets -A -o json | jq .sizes.p99         for scripts";

pub const USAGE: &str = "listwatch stats [OPTIONS] <RESOURCE>\n       listwatch stats [OPTIONS] --file <FILE>";

/// The arguments of [`Live`] that conflict with `--file`. With their group, clap's error would name all of them.
pub fn arguments() -> Vec<clap::Id> {
    let command = <Live as clap::Args>::augment_args(clap::Command::new(""));
    let ids = command.get_arguments().map(|argument| argument.get_id().clone());
    ids.filter(|id| id != "namespace" && id != "selector").collect()
}

/// The default value of the resource stands for `--file`.
#[derive(clap::Args)]
#[command(mut_arg("resource", |arg| {
    arg.required(false).required_unless_present("file").default_value("-").hide_default_value(true)
}))]
#[command(mut_arg("namespace", |arg| arg.help("Namespace [default: the context's, else `default`; with --file all]")))]
pub struct Live {
    #[command(flatten)]
    selection: Selection,

    #[command(flatten)]
    version: Version,

    #[command(flatten)]
    pages: Pages,

    #[command(flatten)]
    connection: Connection,
}

impl Live {
    /// Returns the filter of a saved body.
    pub fn filter(&self) -> Filter {
        self.selection.filter()
    }
}

pub async fn report(mut stats: Stats, args: Live) -> Result<Report, Failure> {
    let Live { selection, version, pages, connection } = args;
    if selection.is_file() {
        let hint = format!("{} is a file: to read it, use --file {0}", selection.resource());
        return Err(Failure::Usage(hint));
    }
    let page_size = pages.size(&version);
    let query = Query { selection, version };
    let selected = query.selection.selected();
    let (client, namespace) = connection.client().await?;
    let row = |item: listwatch::ItemRef<'_>| stats.add(&item).map(|()| Row::Nothing);
    let list = query.list(&client, selected, page_size, namespace, row).await?;
    let progress = list.progress();
    let mut items = list;
    let done = rows::print(&mut items, &mut Output::of_no_items(), &mut None, |_| query::reached(&progress)).await?;
    let summary = items.summary().cloned();
    drop(items);
    done.map_err(|error| match query::failure(&error, query::SMALLER_PAGES) {
        Failure::Error(error) => failure(&stats, error),
        usage => usage,
    })?;
    let summary = summary.expect("without an error the list is complete");
    query::warn(&summary);
    Ok(stats.report(&summary.type_meta, &summary.list_meta, summary.bytes))
}
