//! `listwatch log`: prints the changes of a history.

use std::io::Write as _;

use listwatch_history::{ChangeKind, ChangeQuery, Gap, History, PastChange, PastEvent, Point};
use serde_json::{Value, json};

use super::change::{compare, gap_json, managers, push_values};
use super::query::{HistoryQuery, Selected, failure, open};
use crate::at::{parse_point, zoned};
use crate::cluster::watch::diff::{FieldChange, path_text, to_patch};
use crate::escape::escape_controls;
use crate::failure::{Failure, read_blocking};
use crate::notices;

/// Print each change that a history recorded, by value.
///
/// A line says when the change was received, its version, and what it did: + added, ~ modified, - deleted, = the same
/// version in other bytes. `by` names the field managers, with the times that the server noted. Then follow the values.
/// Two times mean that the change happened after the first, when the event before it was received.
///
/// A gap has a line of its own. What was found to differ after it is marked `between`, with the times around the gap.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch log deploy/shop -n web --from DIR
  listwatch log pods -A --from DIR --since -15m --where status.phase
  listwatch log nodes --from DIR --since 14:00 --to 14:30 -o json | jq .patch")]
pub struct LogArgs {
    #[command(flatten)]
    query: HistoryQuery,

    /// Changes after this time: 14:03, 2026-11-27T14:03Z, -15m [default: all]
    #[arg(long, value_name = "TIME", value_parser = parse_point, allow_hyphen_values = true)]
    since: Option<Point>,

    /// Changes up to this time [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_point, allow_hyphen_values = true)]
    to: Option<Point>,

    /// Only changes of this value or of one inside it: `status.phase`, `spec.containers[name=app].image`
    #[arg(long = "where", value_name = "PATH")]
    path: Option<String>,

    /// Output format: one JSON object a line, with a JSON patch
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json"])]
    output: Option<String>,
}

pub async fn run(args: LogArgs) -> Result<(), Failure> {
    read_blocking(move || print(&args)).await
}

fn print(args: &LogArgs) -> Result<(), Failure> {
    let history = open(&args.query.from)?;
    let Selected { resource, namespace, key } = args.query.select(&history)?;
    let (after, until) = (args.since.clone(), args.to.clone());
    let query = ChangeQuery { resource: resource.clone(), namespace, key, after, until };
    let mut out = std::io::stdout().lock();
    let mut damage = None;
    for event in history.changes(query).map_err(|error| failure(&error))? {
        let line = match event {
            Ok(PastEvent::Change(change)) => change_text(args, &change)?,
            Ok(PastEvent::Gap(gap)) => Some(gap_text(args, &gap)),
            // The changes of other objects follow.
            Err(error) => {
                notices::warn(&error.to_string());
                damage = Some(error);
                None
            }
            Ok(_) => None,
        };
        if let Some(line) = line {
            out.write_all(line.as_bytes())?;
        }
    }
    out.flush()?;
    say_what_is_unknown(&history, &resource, args.since.as_ref(), args.to.as_ref())?;
    damage.map_or(Ok(()), |error| Err(Failure::Error(format!("the log is not complete: {error}"))))
}

/// Says which of the requested time was not recorded.
fn say_what_is_unknown(
    history: &History,
    resource: &listwatch::client::Resource,
    after: Option<&Point>,
    until: Option<&Point>,
) -> Result<(), Failure> {
    let spans = history.spans(resource).map_err(|error| failure(&error))?;
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return Ok(()) };
    if matches!(after, Some(Point::Time(time)) if *time < first.first_time) {
        notices::print_labelled("unknown:", &format!("nothing was recorded before {}", zoned(first.first_time)));
    }
    let is_open = match until {
        Some(Point::Time(time)) => last.last_time < *time,
        Some(_) => false,
        None => true,
    };
    if is_open {
        let version = &last.last_version;
        notices::print_labelled("unknown:", &format!("what follows {}, version {version}", zoned(last.last_time)));
    }
    Ok(())
}

fn change_text(args: &LogArgs, change: &PastChange) -> Result<Option<String>, Failure> {
    let is_deleted = change.kind == ChangeKind::Deleted;
    let new = (!is_deleted).then_some(&change.object);
    let changes = compare(change.old.as_ref(), new, args.query.show_secrets)?;
    if let Some(path) = &args.path
        && !changes.iter().any(|change| touches(change, path))
    {
        return Ok(None);
    }
    let managers = managers(change.old.as_ref(), &change.object)?;
    let object = &change.object;
    if args.output.is_some() {
        let managers: Vec<_> =
            managers.iter().map(|manager| json!({"name": manager.name, "time": manager.time})).collect();
        let line = json!({
            "after": change.after.to_string(), "received": change.received.to_string(),
            "resourceVersion": change.resource_version, "type": kind_name(change.kind), "between": change.is_between,
            "namespace": object.namespace(), "name": object.name(), "managers": managers, "patch": to_patch(&changes),
        });
        return Ok(Some(format!("{line}\n")));
    }
    let sign = match change.kind {
        ChangeKind::Added => '+',
        ChangeKind::Deleted => '-',
        ChangeKind::Reencoded => '=',
        _ => '~',
    };
    let name = match object.namespace() {
        "" => object.name().to_owned(),
        namespace => format!("{namespace}/{}", object.name()),
    };
    let time = if change.is_between {
        format!("between {} and {}", zoned(change.after), zoned(change.received))
    } else {
        zoned(change.received).to_string()
    };
    let mut line = format!("{time}  {}  {sign} {}", change.resource_version, escape_controls(&name));
    for (at, manager) in managers.iter().enumerate() {
        line.push_str(if at == 0 { "  by " } else { ", " });
        line.push_str(&escape_controls(&manager.name));
        if let Some(time) = &manager.time {
            line.push_str(" at ");
            line.push_str(&escape_controls(time));
        }
    }
    line.push('\n');
    // All values of a new or deleted object are in the other formats.
    if change.old.is_some() && !is_deleted {
        push_values(&mut line, &changes);
    }
    Ok(Some(line))
}

/// Returns true if a change is of the path, or of a value inside it, or of a value that has it.
fn touches(change: &FieldChange, path: &str) -> bool {
    let (own, path) = (path_text(&change.path), path.trim_start_matches('.'));
    let rest = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer)?;
        (rest.is_empty() || rest.starts_with(['.', '['])).then(|| rest.to_owned())
    };
    // An item of a list is not looked for.
    let has = |value: &Option<Value>, inner: &str| {
        value.as_ref().is_some_and(|value| inner.contains('[') || member(value, inner).is_some())
    };
    rest(&own, path).is_some()
        || rest(path, &own).is_some_and(|rest| has(&change.old, &rest) || has(&change.new, &rest))
}

/// Returns the value at a path of members.
fn member<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').filter(|name| !name.is_empty()).try_fold(value, |value, name| value.get(name))
}

pub fn kind_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "ADDED",
        ChangeKind::Deleted => "DELETED",
        ChangeKind::Reencoded => "REENCODED",
        _ => "MODIFIED",
    }
}

fn gap_text(args: &LogArgs, gap: &Gap) -> String {
    let Gap { from: (from, since), to: (to, until), .. } = gap;
    if args.output.is_some() {
        return format!("{}\n", gap_json(gap));
    }
    format!("unknown from {} to {}, versions {from} to {to}: nothing was recorded\n", zoned(*since), zoned(*until))
}
