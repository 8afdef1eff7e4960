//! `listwatch stats RESOURCE`: reads a collection from an API server.

use std::path::Path;

use super::collect::ListStats;
use super::report::{Origin, StatsReport};
use crate::cluster::connect::{ConnectionArgs, NamedClient};
use crate::cluster::listing::{SMALLER_PAGES, list_failure, list_progress, print_warnings};
use crate::cluster::query::{PageArgs, QueryArgs, SelectionArgs, VersionArgs};
use crate::failure::Failure;
use crate::output::{Output, print_rows};
use crate::saved_body::ItemFilter;

pub const EXAMPLES: &str = "\
Examples:
  listwatch stats pods -A                                    all Pods of a cluster
  listwatch stats pods -A --drop metadata.managedFields      also shows what dropping a field saves
  listwatch stats pods -A --drop 'metadata.annotations[\"KEY\"]'   of an annotation; the shell needs the quotes
  listwatch stats --from snapshot.db                         what takes the space of an etcd file
  listwatch stats pods -A --from snapshot.db                 where the bytes of its Pods are
  listwatch stats --from pods.pb --html pods.html            a recorded list, also as an HTML page
  listwatch stats --from pods.pb -n web -l app=shop          some of its objects
  listwatch stats secrets -A -o json | jq .sizes.p99         for scripts";

pub const USAGE: &str = "listwatch stats [OPTIONS] <RESOURCE>\n       listwatch stats [OPTIONS] --from <FILE>";

/// The default value of the resource stands for `--from` alone.
#[derive(clap::Args)]
#[command(mut_arg("resource", |arg| {
    arg.required(false).required_unless_present("from").default_value("-").hide_default_value(true)
}))]
#[command(mut_arg("namespace", |arg| arg.help("Namespace [default: the context's, else `default`; with --from alone all]")))]
pub struct LiveArgs {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    version: VersionArgs,

    #[command(flatten)]
    pages: PageArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

impl LiveArgs {
    /// Returns the file of `--from` if no resource is named.
    pub fn whole_file(&self) -> Option<&Path> {
        self.connection.from().filter(|_| self.selection.resource() == "-")
    }

    /// Returns where the objects of a saved body come from.
    pub fn origin_of_body(&self, source: String) -> Origin {
        Origin { source, selection: self.selection.describe(None) }
    }

    /// Returns the filter of a saved body.
    pub fn item_filter(&self) -> ItemFilter {
        self.selection.item_filter()
    }
}

pub async fn read_live(mut stats: ListStats, args: LiveArgs) -> Result<(StatsReport, Origin), Failure> {
    let LiveArgs { selection, version, pages, connection } = args;
    if selection.is_file() {
        let hint = format!("{} is a file: to read it, use --from {0}", selection.resource());
        return Err(Failure::Usage(hint));
    }
    let page_size = pages.page_size(&version);
    let query = QueryArgs { selection, version };
    let selection = query.selection.selection();
    let NamedClient { client, namespace, name } = connection.named_client().await?;
    let origin = Origin { source: name, selection: query.selection.describe(Some(&namespace)) };
    let row = |item: listwatch::ItemRef<'_>| stats.add_item(&item).map(|()| None);
    let list = query.list(&client, selection, page_size, namespace, row).await?;
    let progress = list.progress();
    let mut items = list;
    let done = print_rows(&mut items, &mut Output::without_items(), &mut None, |_| list_progress(&progress)).await?;
    let summary = items.summary().cloned();
    drop(items);
    done.map_err(|error| match list_failure(&error, SMALLER_PAGES) {
        Failure::Error(error) => stats.failure(error),
        usage => usage,
    })?;
    let summary = summary.expect("without an error the list is complete");
    print_warnings(&summary);
    Ok((stats.report(&summary.type_meta, &summary.list_meta, summary.bytes), origin))
}
