//! `listwatch watch`: prints the changes in a collection.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::mem;
use std::pin::pin;

use console::{Color, style};
use futures::StreamExt;
use indicatif::HumanCount;
use listwatch::client::{Client, Disconnect, Error, OwnedEvent, Resource, Selection as Selected, WatchParams};
use listwatch::{ItemError, ItemRef};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use crate::cluster::connect::Connection;
use crate::cluster::query::{self, Selection};
use crate::failure::Failure;
use crate::notices;
use crate::output::{self, Format, Output, Row, Rows, Shown};
use crate::rows::FLUSH_EVERY;
use crate::signals::interrupted;

/// Watches a collection of an API server: prints a line for each object that is added (+), modified (~) or deleted (-).
///
/// The watch resumes after disconnects and restarts of the server, with a notice on stderr. If the server no longer has the resource
/// version, the watch starts over: with --initial it prints all objects again, otherwise the changes in between are lost, with a
/// warning. Any other error, such as 403, ends it, and so does Ctrl-C. With -o json and yaml, it prints `type` and `object` of each event, with
/// --diff also `changed`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch watch pods -A                         changes from now on
  listwatch watch pod shop-1 -n web               changes of one Pod
  listwatch watch pods -A --initial               first the existing Pods, then changes
  listwatch watch deploy -A --diff --initial      with the fields that changed
  listwatch watch deploy shop -n web --diff --initial -o json | jq -c 'select(.changed | index(\"status\")).object.status'
  listwatch watch nodes -o json                   one JSON object a line
  listwatch watch cm -A --resource-version 71532  changes after a list of that version, if the server still has them
  listwatch watch secrets -A --metadata-only      without their data")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,

    /// Name of the object [default: all objects]. RESOURCE/NAME is accepted too
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print the existing objects first, as added
    #[arg(long)]
    initial: bool,

    /// Resource version to start after, from a list [default: now]
    #[arg(long, value_name = "VERSION", conflicts_with = "initial")]
    resource_version: Option<String>,

    /// Print the top-level fields that changed since the object's last event, or `none`. The first event of an object has `-`, because there is
    /// nothing to compare with: --initial compares the first change too. metadata.resourceVersion, metadata.generation and
    /// metadata.managedFields are ignored. Keeps a hash of each field in memory
    #[arg(long)]
    diff: bool,

    #[command(flatten)]
    shown: Shown,

    #[command(flatten)]
    connection: Connection,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let Args { mut selection, name, initial, resource_version, diff, shown, connection } = args;
    if shown.format == Format::Summary {
        return Err(Failure::Usage("-o summary is for lists: a watch does not end".to_owned()));
    }
    shown.rows()?;
    let names = query::names(&mut selection, name.into_iter().collect())?;
    let mut selected = selection.selected();
    match &*names {
        [] => {}
        [name] => selected = selected.fields(query::of_name(name)),
        _ => return Err(Failure::Usage("a watch takes one name, or none for all objects".to_owned())),
    }
    if shown.format.prints_fields() {
        selected = selected.json();
    }
    let (client, namespace) = connection.client().await?;
    let (resource, namespace) = selection.find(&client, namespace).await?;
    let output = Output::new(&shown);
    let fields = diff.then(HashMap::new);
    let mut watcher =
        Watcher { client, resource, namespace, selected, shown, output, fields, counts: Counts::default() };

    let mut interrupted = pin!(interrupted());
    let mut version = resource_version;
    loop {
        let from = match version.take() {
            _ if initial => WatchParams::with_initial_state(),
            Some(version) => WatchParams::from_version(version),
            None => WatchParams::from_now(),
        };
        let ended = tokio::select! {
            () = &mut interrupted => None,
            ended = watcher.watch(from) => Some(ended?),
        };
        watcher.output.flush()?;
        match ended {
            None => {
                notices::line(watcher.counts.text());
                notices::unknown_fields(watcher.counts.unknown_fields);
                return Ok(());
            }
            Some(error) if error.is_expired() => {
                let gap = if initial { "" } else { "; changes in between are lost" };
                notices::warn(&format!("{error}: watching from the most recent version{gap}"));
            }
            Some(error) => {
                notices::unknown_fields(watcher.counts.unknown_fields);
                return Err(query::failure(&error, None));
            }
        }
    }
}

struct Watcher {
    client: Client,
    resource: Resource,
    /// `None` for all namespaces.
    namespace: Option<String>,
    selected: Selected,
    shown: Shown,
    output: Output,
    /// With --diff: a hash of each top-level field, by uid.
    fields: Option<HashMap<String, Vec<(String, u64)>>>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    added: u64,
    modified: u64,
    deleted: u64,
    /// All events up to this resource version were printed; empty before the first.
    version: String,
    /// The number of unknown fields, which are neither printed nor compared.
    unknown_fields: u64,
}

/// The parts of an object that are printed or compared.
struct Seen {
    row: Row,
    uid: String,
    version: String,
    /// A hash of each top-level field, with --diff.
    fields: Option<Vec<(String, u64)>>,
    /// The number of unknown fields, which are neither in the row nor in `fields`.
    unknown_fields: u64,
}

impl Watcher {
    /// Prints the events of a watch until it ends, and returns its error.
    async fn watch(&mut self, from: WatchParams) -> Result<Error, Failure> {
        let Self { shown, selected, client, resource, namespace, .. } = self;
        // The YAML of an event is converted from its JSON.
        let format = if shown.format == Format::Yaml { Format::Json } else { shown.format };
        let shown = Shown { format, ..shown.clone() };
        let mut rows = shown.rows()?;
        let diff = self.fields.is_some();
        let params = from.selection(selected.clone());
        let mut watch = client.watch_with(resource, &params, |item| Seen::new(&item, &mut rows, diff));
        if let Some(namespace) = namespace {
            watch = watch.namespace(&**namespace);
        }
        let mut events = pin!(watch.fail_fast().on_disconnect(report));
        let mut flush_at = Instant::now() + FLUSH_EVERY;
        loop {
            let next = timeout_at(flush_at, events.next()).await;
            if let Some(version) = events.resource_version() {
                version.clone_into(&mut self.counts.version);
            }
            match next {
                Ok(Some(Ok(event))) => self.print(event)?,
                Ok(Some(Err(error))) => return Ok(error),
                Ok(None) => unreachable!("a resumed watch ends in an error"),
                Err(_) => {
                    self.output.flush()?;
                    flush_at = Instant::now() + FLUSH_EVERY;
                }
            }
        }
    }

    fn print(&mut self, event: OwnedEvent<Seen>) -> Result<(), Failure> {
        let counts = &mut self.counts;
        match event {
            OwnedEvent::Added(seen) => {
                counts.added += 1;
                self.row(&Sign { sign: "+", color: Color::Green, name: "ADDED" }, seen)
            }
            OwnedEvent::Modified(seen) => {
                counts.modified += 1;
                self.row(&Sign { sign: "~", color: Color::Yellow, name: "MODIFIED" }, seen)
            }
            OwnedEvent::Deleted(seen) => {
                counts.deleted += 1;
                self.row(&Sign { sign: "-", color: Color::Red, name: "DELETED" }, seen)
            }
            OwnedEvent::Synced { resource_version } => {
                let added = HumanCount(counts.added);
                self.output.flush()?;
                notices::print("synced:", &format!("{added} objects at version {resource_version}"));
                Ok(())
            }
            OwnedEvent::Reset => {
                (counts.added, counts.modified, counts.deleted) = (0, 0, 0);
                self.output.flush()?;
                notices::warn("the initial objects were interrupted, and are printed again from the first");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn row(&mut self, sign: &Sign, seen: Seen) -> Result<(), Failure> {
        let Seen { row, uid, version, fields, unknown_fields } = seen;
        self.counts.unknown_fields += unknown_fields;
        let changed = match (&mut self.fields, fields) {
            (Some(last), Some(fields)) => {
                let before = if sign.name == "DELETED" { last.remove(&uid) } else { last.insert(uid, fields.clone()) };
                before.filter(|_| sign.name == "MODIFIED").map(|before| changed(&before, &fields))
            }
            _ => None,
        };
        Ok(self.write(sign, row, &version, changed)?)
    }

    fn write(&mut self, sign: &Sign, row: Row, version: &str, changed: Option<Vec<String>>) -> io::Result<()> {
        let is_diff = self.fields.is_some();
        match row {
            Row::Line(line) if self.output.format().prints_fields() => {
                let mut event = format!("{{\"type\":\"{}\",", sign.name).into_bytes();
                if let Some(changed) = changed {
                    event.extend_from_slice(format!("\"changed\":{},", Value::from(changed)).as_bytes());
                }
                event.extend_from_slice(b"\"object\":");
                event.extend_from_slice(line.trim_ascii_end());
                event.extend_from_slice(b"}\n");
                if self.output.format() == Format::Yaml {
                    event = output::yaml(&event).map_err(io::Error::other)?;
                }
                self.output.row(Row::Line(event))
            }
            Row::Line(line) => {
                let name = String::from_utf8_lossy(line.trim_ascii_end());
                let is_shown = is_diff && sign.name == "MODIFIED";
                let changed = if is_shown { format!(" {}", names(changed)) } else { String::new() };
                let (sign, version) = (style(sign.sign).fg(sign.color), output::printable(version));
                self.output.row(Row::Line(format!("{sign} {name} {version}{changed}\n").into_bytes()))
            }
            Row::Table(mut cells) => {
                // No colours: the columns count characters.
                sign.sign.clone_into(&mut cells[0]);
                if is_diff {
                    *cells.last_mut().expect("a table has columns") = names(changed);
                }
                self.output.row(Row::Table(cells))
            }
            Row::Nothing => Ok(()),
        }
    }
}

struct Sign {
    sign: &'static str,
    color: Color,
    name: &'static str,
}

impl Seen {
    fn new(item: &ItemRef<'_>, rows: &mut Rows<'_>, diff: bool) -> Result<Self, ItemError> {
        let meta = item.meta()?;
        let row = rows.row(item)?;
        let mut unknown_fields = mem::take(&mut rows.unknown_fields);
        let fields = if diff {
            let (fields, unknown) = fields(item)?;
            unknown_fields = unknown;
            Some(fields)
        } else {
            None
        };
        let [uid, version] = [meta.uid(), meta.resource_version()].map(Cow::into_owned);
        Ok(Self { row, uid, version, fields, unknown_fields })
    }
}

/// Returns a hash of each top-level field of an object, and the number of unknown fields, which no hash includes.
fn fields(item: &ItemRef<'_>) -> Result<(Vec<(String, u64)>, u64), ItemError> {
    let mut json = Vec::new();
    let unknown_fields = item.to_json(&mut json)?;
    let mut object: Map<String, Value> = serde_json::from_slice(&json).map_err(ItemError::other)?;
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for bookkeeping in ["resourceVersion", "generation", "managedFields"] {
            metadata.remove(bookkeeping);
        }
    }
    let hash = |value: &Value| {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    };
    Ok((object.iter().map(|(name, value)| (name.clone(), hash(value))).collect(), unknown_fields))
}

/// Returns the names of the fields that were added, modified or removed.
fn changed(before: &[(String, u64)], now: &[(String, u64)]) -> Vec<String> {
    let differs = now.iter().filter(|field| !before.contains(field));
    let gone = before.iter().filter(|(name, _)| !now.iter().any(|(other, _)| other == name));
    differs.chain(gone).map(|(name, _)| name.clone()).collect()
}

/// Returns the names of changed fields as one word, `-` if nothing was compared.
fn names(changed: Option<Vec<String>>) -> String {
    match changed {
        None => "-".to_owned(),
        Some(changed) if changed.is_empty() => "none".to_owned(),
        Some(changed) => changed.join(","),
    }
}

/// Prints why the watch was disconnected, and how it continues.
fn report(disconnect: &Disconnect) {
    let Disconnect { error, resource_version, lists, wait, .. } = disconnect;
    let why = error.as_ref().map_or_else(|| "the server ended the watch".to_owned(), ToString::to_string);
    let from = match resource_version {
        Some(version) => format!("from version {version}"),
        None if *lists => "with a list".to_owned(),
        None => "from the start".to_owned(),
    };
    let verb = if error.is_some() { "retrying" } else { "resuming" };
    notices::print(&format!("{verb} in {:.1} s {from}:", wait.as_secs_f64()), &why);
}

impl Counts {
    fn text(&self) -> String {
        let Self { added, modified, deleted, version, .. } = self;
        let [added, modified, deleted] = [*added, *modified, *deleted].map(HumanCount);
        let version = if version.is_empty() { String::new() } else { format!(", up to version {version}") };
        format!("{added} added, {modified} modified, {deleted} deleted{version}")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn finds_added_modified_and_removed_fields() {
        let fields =
            |fields: &[(&str, u64)]| fields.iter().map(|(name, hash)| ((*name).to_owned(), *hash)).collect::<Vec<_>>();
        let before = fields(&[("kind", 1), ("spec", 2), ("status", 3)]);
        for (now, expected) in [
            (vec![("kind", 1), ("spec", 2), ("status", 3)], vec![]),
            (vec![("kind", 1), ("spec", 2), ("status", 4)], vec!["status"]),
            (vec![("kind", 1), ("status", 4)], vec!["status", "spec"]),
            (vec![("data", 1), ("kind", 1), ("spec", 2), ("status", 3)], vec!["data"]),
        ] {
            assert_eq!(super::changed(&before, &fields(&now)), expected, "{now:?}");
        }
    }
}
