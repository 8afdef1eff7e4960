//! `listwatch history export`: changes as JSON lines, and copies.

use std::io::Write as _;
use std::path::PathBuf;

use indicatif::HumanCount;
use listwatch_history::{ChangeQuery, PastEvent, Point};
use serde_json::{Value, json};

use super::change::{gap_json, to_json};
use super::log::kind_name;
use super::query::{failure, find_recorded, open};
use crate::at::parse_point;
use crate::failure::{Failure, read_blocking};
use crate::notices;

/// Print changes as JSON lines for Vector or a warehouse, or copy the history.
///
/// Each line has the times, the version and the type of a change, `object`, and unless the object is new `old`. Secrets
/// are in the export if they were recorded. The changes of one resource follow those of another.
///
/// `--copy` writes a consistent copy into a new folder, also while the history is recorded. A copy of the files by
/// other programs may be damaged.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch history export DIR --since -1h                    all changes of the last hour
  listwatch history export DIR pods,nodes --since 14:00 --to 15:00 > changes.jsonl
  listwatch history export DIR --copy /backup/history")]
pub struct ExportArgs {
    /// Folder of the history
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Resources [default: all that were recorded]
    #[arg(value_name = "RESOURCE", value_delimiter = ',')]
    resources: Vec<String>,

    /// Changes after this time: 14:03, 2026-11-27T14:03Z, -15m [default: all]
    #[arg(long, alias = "from", value_name = "TIME", value_parser = parse_point, allow_hyphen_values = true)]
    since: Option<Point>,

    /// Changes up to this time [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_point, allow_hyphen_values = true)]
    to: Option<Point>,

    /// Copy the history into this folder, which must not exist
    #[arg(long, value_name = "DIR", conflicts_with_all = ["since", "to", "resources"])]
    copy: Option<PathBuf>,
}

pub async fn run(args: ExportArgs) -> Result<(), Failure> {
    read_blocking(move || export(&args)).await
}

fn export(args: &ExportArgs) -> Result<(), Failure> {
    let history = open(&args.dir)?;
    if let Some(copy) = &args.copy {
        let parts = history.copy_to(copy).map_err(|error| failure(&error))?;
        let noun = if parts == 1 { "part" } else { "parts" };
        notices::print_labelled("copied:", &format!("{} {noun}", HumanCount(parts)));
        return Ok(());
    }
    let resources = if args.resources.is_empty() {
        history.resources().map_err(|error| failure(&error))?
    } else {
        let found = args.resources.iter().map(|typed| find_recorded(&history, typed));
        found.collect::<Result<Vec<_>, _>>()?
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for resource in resources {
        let name = resource.to_string();
        let mut query = ChangeQuery::new(resource);
        (query.after, query.until) = (args.since.clone(), args.to.clone());
        for event in history.changes(query).map_err(|error| failure(&error))? {
            let line = match event.map_err(|error| failure(&error))? {
                PastEvent::Change(change) => {
                    let old = change.old.as_ref().map(to_json).transpose()?;
                    let mut line = json!({
                        "resource": name, "after": change.after.to_string(), "received": change.received.to_string(),
                        "resourceVersion": change.resource_version, "type": kind_name(change.kind),
                        "between": change.is_between, "object": to_json(&change.object)?,
                    });
                    if let Some(old) = old {
                        line["old"] = old;
                    }
                    line
                }
                PastEvent::Gap(gap) => {
                    let mut line = gap_json(&gap);
                    line["resource"] = json!(name);
                    line
                }
                _ => Value::Null,
            };
            writeln!(out, "{line}")?;
        }
    }
    Ok(out.flush()?)
}
