//! Prints the events of a watch.

use std::pin::pin;
use std::rc::Rc;

use futures::StreamExt;
use indicatif::{DecimalBytes, HumanCount};
use listwatch::client::{Client, Disconnect, Error, Resource, Selection, WatchEvent, WatchParams};
use listwatch::internal::{WarningLimit, chain};
use listwatch::{ItemError, ItemRef};
use tokio::time::{Instant, timeout_at};

use super::diff::{EncodedObject, FieldChange, PreviousObjects, change_lines, to_patch};
use crate::failure::Failure;
use crate::notices;
use crate::output::{Comparison, Event, EventKind, FLUSH_EVERY, Format, Needs, Output, Row};

/// A watch, and the output of its events.
pub struct WatchPrinter {
    pub client: Client,
    pub resource: Resource,
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    pub selection: Selection,
    pub format: Rc<dyn Format>,
    pub output: Output,
    /// With --diff: the objects with which changes are compared.
    pub previous: Option<PreviousObjects>,
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
    row: Option<Row>,
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
        format: Rc<dyn Format>,
        output: Output,
    ) -> Self {
        Self {
            client,
            resource,
            namespace,
            selection,
            format,
            output,
            previous: None,
            hides_initial: false,
            most_chars: None,
            counts: EventCounts::default(),
        }
    }

    /// Prints the events of a watch until it ends, and returns its error.
    pub async fn watch(&mut self, from: WatchParams) -> Result<Error, Failure> {
        let Self { selection, client, resource, namespace, .. } = self;
        let format = Rc::clone(&self.format);
        let diff = self.previous.is_some();
        let params = from.selection(selection.clone());
        let mut watch = client.watch_with(resource, &params, |item| EventObject::new(&item, &*format, diff));
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
                self.print_object(EventKind::Added, object)
            }
            WatchEvent::Modified(object) => {
                counts.modified += 1;
                self.print_object(EventKind::Modified, object)
            }
            WatchEvent::Deleted(object) => {
                counts.deleted += 1;
                self.print_object(EventKind::Deleted, object)
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

    fn print_object(&mut self, kind: EventKind, object: EventObject) -> Result<(), Failure> {
        let EventObject { row, version, object, unknown_fields } = object;
        self.counts.unknown_fields += unknown_fields;
        let changes = match &object {
            Some(object) => self.compare(object, kind == EventKind::Deleted)?.filter(|_| kind == EventKind::Modified),
            None => None,
        };
        let Some(row) = row else { return Ok(()) };
        let comparison = match changes {
            _ if self.previous.is_none() => Comparison::Off,
            None => Comparison::Unknown,
            Some(changes) => {
                Comparison::Changed { lines: change_lines(&changes, self.most_chars), patch: to_patch(&changes) }
            }
        };
        let row = self.format.event_row(row, &Event { kind, version: &version, comparison });
        Ok(self.output.print_row(&row.map_err(|error| Failure::Error(chain(&error)))?)?)
    }

    /// Returns the changes from the previous state of the object, if it is known, and keeps the present state.
    fn compare(&mut self, object: &EncodedObject, is_deleted: bool) -> Result<Option<Vec<FieldChange>>, Failure> {
        let Some(previous) = &mut self.previous else { return Ok(None) };
        if is_deleted {
            previous.remove(object)?;
            return Ok(None);
        }
        let Some((changes, unknown_fields)) = previous.replace(object)? else { return Ok(None) };
        // A row of all fields has counted them.
        if self.format.info().needs != Needs::Fields {
            self.counts.unknown_fields += unknown_fields;
        }
        Ok(Some(changes))
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
    fn new(item: &ItemRef<'_>, format: &dyn Format, diff: bool) -> Result<Self, ItemError> {
        let row = format.row(item)?;
        let unknown_fields = format.take_unknown_fields();
        let object = diff.then(|| EncodedObject::new(item)).transpose()?;
        let version = item.meta()?.resource_version().into_owned();
        Ok(Self { row, version, object, unknown_fields })
    }
}

/// Prints that the server ended the watch, and how it continues. The log of the library reports failures.
pub fn print_end(disconnect: &Disconnect) {
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
