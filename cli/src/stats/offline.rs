//! Replaces `live` in a build without the feature `cluster`: `stats` reads only saved bodies.

use super::collect::Stats;
use super::report::Report;
use crate::failure::Failure;
use crate::filter::Filter;

pub const EXAMPLES: &str = "\
Examples:
  listwatch stats --file pods.pb                                      a saved body
  listwatch stats --file pods.pb --drop metadata.managedFields        also shows what dropping a field saves
  listwatch stats --file pods.pb --html pods.html                     also as an HTML page
  listwatch stats --file secrets.pb -o json | jq .sizes.p99           for scripts

This build has no `stats` of a live collection: that needs the feature `cluster` of listwatch-cli.";

pub const USAGE: &str = "listwatch stats [OPTIONS] --file <FILE>";

/// Empty, so that clap requires `--file`.
pub fn arguments() -> Vec<clap::Id> {
    Vec::new()
}

#[derive(clap::Args)]
pub struct Live {
    /// Namespace of the objects to count [default: all]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
}

impl Live {
    /// Returns the filter of a saved body.
    pub fn filter(&self) -> Filter {
        Filter { namespace: self.namespace.clone(), ..Filter::default() }
    }
}

#[expect(clippy::unused_async, reason = "as in the module that this one replaces")]
pub async fn report(_: Stats, _: Live) -> Result<Report, Failure> {
    unreachable!("clap requires --file")
}
