//! Replaces `live` in a build without the feature `cluster`: `stats` reads only saved bodies.

use super::collect::ListStats;
use super::report::StatsReport;
use crate::failure::Failure;
use crate::filter::ItemFilter;

pub const EXAMPLES: &str = "\
Examples:
  listwatch stats --file pods.pb                                      a saved body
  listwatch stats --file pods.pb --drop metadata.managedFields        also shows what dropping a field saves
  listwatch stats --file pods.pb --html pods.html                     also as an HTML page
  listwatch stats --file secrets.pb -o json | jq .sizes.p99           for scripts

This build has no `stats` of a live collection: that needs the feature `cluster` of listwatch-cli.";

pub const USAGE: &str = "listwatch stats [OPTIONS] --file <FILE>";

/// Empty, so that clap requires `--file`.
pub fn live_argument_ids() -> Vec<clap::Id> {
    Vec::new()
}

#[derive(clap::Args)]
pub struct LiveArgs {
    /// Namespace of the objects to count [default: all]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
}

impl LiveArgs {
    /// Returns the filter of a saved body.
    pub fn item_filter(&self) -> ItemFilter {
        ItemFilter { namespace: self.namespace.clone(), ..ItemFilter::default() }
    }
}

#[expect(clippy::unused_async, reason = "as in the module that this one replaces")]
pub async fn read_live(_: ListStats, _: LiveArgs) -> Result<StatsReport, Failure> {
    unreachable!("clap requires --file")
}
