//! `listwatch diff`: compares two states of a collection.

use std::io::Write as _;

use listwatch_history::{HistoryError, PastCollection, PastObject, PastObjects, Point};
use serde_json::json;

use super::change::{compare, push_values};
use super::query::{HistoryQuery, Selected, failure, open};
use crate::at::{parse_point, zoned};
use crate::cluster::watch::diff::to_patch;
use crate::escape::escape_controls;
use crate::failure::{Failure, read_blocking};
use crate::notices;

/// Print what differs between two points of a history: + added, - deleted, ~ changed, by value.
///
/// Both states are read object by object, so memory does not grow with the collection. A point that was not recorded is
/// an error. The exit code is 0 also if there are differences.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch diff pods -A --from DIR --at -2h --to now
  listwatch diff deploy/shop -n web --from DIR --at 14:00 --to 14:30")]
pub struct DiffArgs {
    #[command(flatten)]
    query: HistoryQuery,

    /// The earlier point: 14:03, 2026-11-27T14:03Z, -2h
    #[arg(long, value_name = "TIME", value_parser = parse_point, allow_hyphen_values = true, required_unless_present = "at_version")]
    at: Option<Point>,

    /// The earlier point as a resource version
    #[arg(long, value_name = "VERSION", conflicts_with = "at")]
    at_version: Option<String>,

    /// The later point [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_point, allow_hyphen_values = true)]
    to: Option<Point>,

    /// The later point as a resource version
    #[arg(long, value_name = "VERSION", conflicts_with = "to")]
    to_version: Option<String>,

    /// Output format: one JSON object a line, with a JSON patch
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json"])]
    output: Option<String>,
}

pub async fn run(args: DiffArgs) -> Result<(), Failure> {
    read_blocking(move || print(&args)).await
}

fn print(args: &DiffArgs) -> Result<(), Failure> {
    let history = open(&args.query.from)?;
    let selected = args.query.select(&history)?;
    let point = |time: &Option<Point>, version: &Option<String>| match (time, version) {
        (Some(point), _) => point.clone(),
        (None, Some(version)) => Point::Version(version.clone()),
        (None, None) => Point::Newest,
    };
    let at = |point: Point| history.at(&selected.resource, &point).map_err(|error| failure(&error));
    let (old, new) = (at(point(&args.at, &args.at_version))?, at(point(&args.to, &args.to_version))?);
    let text = |past: &PastCollection| format!("{} (version {})", zoned(past.time()), past.resource_version());
    notices::print_labelled("comparing:", &format!("{} with {}", text(&old), text(&new)));
    let (mut old, mut new) = (States::new(&old, &selected)?, States::new(&new, &selected)?);
    let mut out = std::io::stdout().lock();
    let (mut before, mut after) = (old.next()?, new.next()?);
    loop {
        let order = match (&before, &after) {
            (None, None) => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(before), Some(after)) => key(before).cmp(&key(after)),
        };
        let of_old = if order.is_le() { before.take() } else { None };
        let of_new = if order.is_ge() { after.take() } else { None };
        if let Some(text) = difference(args, of_old.as_ref(), of_new.as_ref())? {
            out.write_all(text.as_bytes())?;
        }
        if order.is_le() {
            before = old.next()?;
        }
        if order.is_ge() {
            after = new.next()?;
        }
    }
    Ok(out.flush()?)
}

fn key(object: &PastObject) -> String {
    format!("{}/{}", object.namespace(), object.name())
}

/// The wanted objects of one state.
enum States {
    All(PastObjects),
    One(Option<PastObject>),
}

impl States {
    fn new(past: &PastCollection, selected: &Selected) -> Result<Self, Failure> {
        Ok(match (&selected.key, &selected.namespace) {
            (Some(key), _) => Self::One(past.get(key).map_err(|error| failure(&error))?),
            (None, Some(namespace)) => Self::All(past.namespace(namespace)),
            (None, None) => Self::All(past.iter()),
        })
    }

    fn next(&mut self) -> Result<Option<PastObject>, Failure> {
        let next = match self {
            Self::All(objects) => objects.next().transpose(),
            Self::One(object) => Ok(object.take()),
        };
        next.map_err(|error: HistoryError| failure(&error))
    }
}

fn difference(args: &DiffArgs, old: Option<&PastObject>, new: Option<&PastObject>) -> Result<Option<String>, Failure> {
    let Some(object) = new.or(old) else { return Ok(None) };
    let is_same = |old: &PastObject, new: &PastObject| old.bytes() == new.bytes();
    if old.zip(new).is_some_and(|(old, new)| is_same(old, new)) {
        return Ok(None);
    }
    let changes = compare(old, new, args.query.show_secrets)?;
    let (sign, kind) = match (old, new) {
        (None, _) => ('+', "ADDED"),
        (_, None) => ('-', "DELETED"),
        // Only its version or its bookkeeping differs.
        _ if changes.is_empty() => return Ok(None),
        _ => ('~', "MODIFIED"),
    };
    if args.output.is_some() {
        let line = json!({
            "type": kind, "namespace": object.namespace(), "name": object.name(), "patch": to_patch(&changes),
        });
        return Ok(Some(format!("{line}\n")));
    }
    let name = key(object);
    let mut text = format!("{sign} {}\n", escape_controls(name.trim_start_matches('/')));
    if sign == '~' {
        push_values(&mut text, &changes);
    }
    Ok(Some(text))
}
