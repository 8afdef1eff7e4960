//! Prints the events of a watch.

use std::io;
use std::mem;
use std::pin::pin;

use console::{Color, style};
use futures::StreamExt;
use indicatif::{DecimalBytes, HumanCount};
use listwatch::client::{Client, Disconnect, Error, Resource, Selection, WatchEvent, WatchParams};
use listwatch::internal::WarningLimit;
use listwatch::{ItemError, ItemRef};
use tokio::time::{Instant, timeout_at};

use super::diff::{EncodedObject, FieldChange, PreviousObjects, change_lines, to_patch};
use crate::escape::escape_controls;
use crate::failure::Failure;
use crate::notices;
use crate::output::{FLUSH_EVERY, Output, OutputArgs, OutputFormat, Row, RowFormatter, to_yaml};

/// A watch, and the output of its events.
pub struct WatchPrinter {
    pub client: Client,
    pub resource: Resource,
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    pub selection: Selection,
    pub output_args: OutputArgs,
    pub output: Output,
    /// With --diff: the objects with which changes are compared.
    pub previous: Option<PreviousObjects>,
    /// True if a change is printed as in a list, without its type.
    pub is_plain: bool,
    /// True if the initial objects are only compared with, and not printed.
    pub hides_initial: bool,
    /// The length over which a changed value is shortened.
    pub most_chars: Option<usize>,
    pub counts: EventCounts,
}

/// The numbers of events.
#[derive(Default)]
pub struct EventCounts {
    added: u64,
    modified: u64,
    deleted: u64,
    /// All events up to this resource version were printed; empty before the first.
    version: String,
    /// The number of unknown fields, which are neither printed nor compared.
    pub unknown_fields: u64,
}

/// The parts of an object that are printed or compared.
struct EventObject {
    row: Row,
    version: String,
    /// The object itself, with --diff.
    object: Option<EncodedObject>,
    /// The number of unknown fields, which are not in the row.
    unknown_fields: u64,
}

impl WatchPrinter {
    /// Returns a printer of all events, with their types and without comparisons.
    pub fn new(
        client: Client,
        (resource, namespace): (Resource, Option<String>),
        selection: Selection,
        output_args: OutputArgs,
        output: Output,
    ) -> Self {
        Self {
            client,
            resource,
            namespace,
            selection,
            output_args,
            output,
            previous: None,
            is_plain: false,
            hides_initial: false,
            most_chars: None,
            counts: EventCounts::default(),
        }
    }

    /// Prints the events of a watch until it ends, and returns its error.
    pub async fn watch(&mut self, from: WatchParams) -> Result<Error, Failure> {
        let Self { output_args, selection, client, resource, namespace, .. } = self;
        // The YAML of an event is converted from its JSON.
        let format = match &output_args.format {
            OutputFormat::Yaml => OutputFormat::Json,
            format => format.clone(),
        };
        let item_args = OutputArgs { format, ..output_args.clone() };
        let mut formatter = RowFormatter::new(&item_args)?;
        let diff = self.previous.is_some();
        let params = from.selection(selection.clone());
        let mut watch = client.watch_with(resource, &params, |item| EventObject::new(&item, &mut formatter, diff));
        if let Some(namespace) = namespace {
            watch = watch.namespace(&**namespace);
        }
        let warnings = WarningLimit::default();
        let on_disconnect = move |disconnect: &Disconnect| {
            // A server may end each watch after a moment.
            if warnings.admit("ended").is_some() {
                print_end(disconnect);
            }
        };
        let mut events = pin!(watch.fail_fast().on_disconnect(on_disconnect));
        let mut flush_at = Instant::now() + FLUSH_EVERY;
        loop {
            let next = timeout_at(flush_at, events.next()).await;
            if let Some(version) = events.resource_version() {
                version.clone_into(&mut self.counts.version);
            }
            match next {
                Ok(Some(Ok(event))) => self.print_event(event)?,
                Ok(Some(Err(error))) => return Ok(error),
                Ok(None) => unreachable!("a resumed watch ends in an error"),
                Err(_) => {
                    self.output.flush()?;
                    flush_at = Instant::now() + FLUSH_EVERY;
                }
            }
        }
    }

    fn print_event(&mut self, event: WatchEvent<EventObject>) -> Result<(), Failure> {
        let counts = &mut self.counts;
        let is_initial = self.previous.as_ref().is_some_and(PreviousObjects::is_initial);
        match event {
            WatchEvent::Added(EventObject { object: Some(object), .. }) if is_initial && self.hides_initial => {
                self.compare(&object, false).map(drop)
            }
            WatchEvent::Added(object) => {
                counts.added += 1;
                self.print_object(&EventMark { sign: "+", color: Color::Green, name: "ADDED" }, object)
            }
            WatchEvent::Modified(object) => {
                counts.modified += 1;
                self.print_object(&EventMark { sign: "~", color: Color::Yellow, name: "MODIFIED" }, object)
            }
            WatchEvent::Deleted(object) => {
                counts.deleted += 1;
                self.print_object(&EventMark { sign: "-", color: Color::Red, name: "DELETED" }, object)
            }
            WatchEvent::Synced { resource_version } => {
                let mut objects = counts.added;
                self.output.flush()?;
                if let Some(previous) = &mut self.previous {
                    previous.end_initial(&resource_version)?;
                    objects = previous.size().0 as u64;
                }
                let objects = HumanCount(objects);
                notices::print_labelled("synced:", &format!("{objects} objects at version {resource_version}"));
                Ok(())
            }
            WatchEvent::Reset => {
                self.output.flush()?;
                if let Some(previous) = &mut self.previous {
                    previous.begin_initial();
                }
                if !self.hides_initial {
                    (counts.added, counts.modified, counts.deleted) = (0, 0, 0);
                    notices::warn("the initial objects were interrupted, and are printed again from the first");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn print_object(&mut self, mark: &EventMark, object: EventObject) -> Result<(), Failure> {
        let EventObject { row, version, object, unknown_fields } = object;
        self.counts.unknown_fields += unknown_fields;
        let changes = match &object {
            Some(object) => self.compare(object, mark.name == "DELETED")?.filter(|_| mark.name == "MODIFIED"),
            None => None,
        };
        Ok(self.print_row(mark, row, &version, changes.as_deref())?)
    }

    /// Returns the changes from the previous state of the object, if it is known, and keeps the present state.
    fn compare(&mut self, object: &EncodedObject, is_deleted: bool) -> Result<Option<Vec<FieldChange>>, Failure> {
        let Some(previous) = &mut self.previous else { return Ok(None) };
        if is_deleted {
            previous.remove(object)?;
            return Ok(None);
        }
        let Some((changes, unknown_fields)) = previous.replace(object)? else { return Ok(None) };
        // The row in JSON has counted them.
        if !self.output.format().prints_fields() {
            self.counts.unknown_fields += unknown_fields;
        }
        Ok(Some(changes))
    }

    fn print_row(
        &mut self,
        mark: &EventMark,
        row: Row,
        version: &str,
        changes: Option<&[FieldChange]>,
    ) -> io::Result<()> {
        let is_diff = self.previous.is_some();
        let lines = changes.map(|changes| change_lines(changes, self.most_chars));
        match row {
            Row::Line(line) if self.is_plain || matches!(self.output.format(), OutputFormat::JsonPath(_)) => {
                let is_yaml = *self.output.format() == OutputFormat::Yaml;
                let line = if is_yaml { to_yaml(&line).map_err(io::Error::other)? } else { line };
                self.output.print_row(Row::Line(line))
            }
            row @ Row::Table(_) if self.is_plain => self.output.print_row(row),
            Row::Line(line) if self.output.format().prints_fields() => {
                let mut event = format!("{{\"type\":\"{}\",", mark.name).into_bytes();
                if let Some(changes) = changes {
                    event.extend_from_slice(format!("\"patch\":{},", to_patch(changes)).as_bytes());
                }
                event.extend_from_slice(b"\"object\":");
                event.extend_from_slice(line.trim_ascii_end());
                event.extend_from_slice(b"}\n");
                if *self.output.format() == OutputFormat::Yaml {
                    event = to_yaml(&event).map_err(io::Error::other)?;
                }
                self.output.print_row(Row::Line(event))
            }
            Row::Line(line) => {
                let name = String::from_utf8_lossy(line.trim_ascii_end());
                let text = match &lines {
                    None if is_diff && mark.name == "MODIFIED" => " -".to_owned(),
                    None => String::new(),
                    Some(lines) if lines.is_empty() => " none".to_owned(),
                    Some(lines) => lines.iter().flat_map(|line| ["\n    ", &**line]).collect(),
                };
                let (sign, version) = (style(mark.sign).fg(mark.color), escape_controls(version));
                self.output.print_row(Row::Line(format!("{sign} {name} {version}{text}\n").into_bytes()))
            }
            Row::Table(mut row) => {
                // No colours: the columns count characters.
                mark.sign.clone_into(&mut row.cells[0]);
                if is_diff {
                    *row.cells.last_mut().expect("a table has columns") = match &lines {
                        None => "-".to_owned(),
                        Some(lines) if lines.is_empty() => "none".to_owned(),
                        Some(lines) => lines.join("; "),
                    };
                }
                self.output.print_row(Row::Table(row))
            }
            Row::Nothing => Ok(()),
        }
    }

    /// Returns the numbers of events, and with --diff the memory of the objects.
    pub fn totals(&self) -> String {
        let mut text = self.counts.text();
        if let Some((objects, bytes)) = self.previous.as_ref().map(PreviousObjects::size) {
            let (objects, bytes) = (HumanCount(objects as u64), DecimalBytes(bytes as u64));
            text = format!("{text}; {objects} objects kept for comparison, {bytes}");
        }
        text
    }
}

impl EventObject {
    fn new(item: &ItemRef<'_>, formatter: &mut RowFormatter<'_>, diff: bool) -> Result<Self, ItemError> {
        let row = formatter.format_row(item)?;
        let unknown_fields = mem::take(&mut formatter.unknown_fields);
        let object = diff.then(|| EncodedObject::new(item)).transpose()?;
        let version = item.meta()?.resource_version().into_owned();
        Ok(Self { row, version, object, unknown_fields })
    }
}

/// How a kind of event is printed.
struct EventMark {
    sign: &'static str,
    color: Color,
    name: &'static str,
}

/// Prints that the server ended the watch, and how it continues. The log of the library reports failures.
fn print_end(disconnect: &Disconnect) {
    let Disconnect { error: None, resource_version, lists, wait, .. } = disconnect else { return };
    let from = match resource_version {
        Some(version) => format!("from version {version}"),
        None if *lists => "with a list".to_owned(),
        None => "from the start".to_owned(),
    };
    let seconds = wait.as_secs_f64();
    notices::print_labelled(&format!("resuming in {seconds:.1} s {from}:"), "the server ended the watch");
}

impl EventCounts {
    /// Returns the numbers of events, and the version up to which they were printed.
    fn text(&self) -> String {
        let Self { added, modified, deleted, version, .. } = self;
        let [added, modified, deleted] = [*added, *modified, *deleted].map(HumanCount);
        let version = if version.is_empty() { String::new() } else { format!(", up to version {version}") };
        format!("{added} added, {modified} modified, {deleted} deleted{version}")
    }
}
