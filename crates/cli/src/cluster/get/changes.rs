//! `-w` and `--watch-only`: the changes after a list, printed as kubectl prints them, each as soon as it arrives.
//!
//! kubectl ends with the connection; this watch resumes, and ends only if the server no longer has the version.

use std::io::Write;
use std::pin::pin;
use std::rc::Rc;

use futures::StreamExt;
use listwatch::client::{Disconnect, Selection, WatchEvent, WatchParams};
use listwatch::internal::{WarningLimit, chain};
use listwatch::{Encoding, ItemError, ItemRef, TypeMeta};
use listwatch_tables::{write_go_json, write_go_yaml};
use serde_json::{Value, json};

use super::query::{Changes, Query};
use super::source::Found;
use super::table::{Table, TablePrinter};
use crate::cluster::listing::list_failure;
use crate::cluster::watch::print_end;
use crate::failure::Failure;
use crate::output::{EventKind, Format, Needs, Output, Row};
use crate::signals::interrupted;

/// Prints the changes after a version as rows of a table.
pub async fn print_table_changes<W: Write>(
    query: &Query,
    changes: &Changes,
    version: String,
    mut printer: TablePrinter<W>,
) -> Result<(), Failure> {
    let selection = query.wanted.selection().table();
    follow(query, selection, version, |kind, table| {
        let table = Table::parse(table).map_err(Failure::Error)?;
        printer.print(table, changes.has_events.then(|| kind.name()))?;
        Ok(printer.flush_rows()?)
    })
    .await
}

/// Prints the changes after a version in a format of objects.
pub async fn print_object_changes(
    query: &Query,
    changes: &Changes,
    version: String,
    format: Rc<dyn Format>,
    mut output: Output,
) -> Result<(), Failure> {
    let Some(target) = query.targets.first() else { return Ok(()) };
    output.flush_changes()?;
    let selection = query.wanted.selection();
    let is_whole = format.info().needs == Needs::Fields;
    let selection = if is_whole { selection.json() } else { selection.metadata_only().json() };
    let type_meta = TypeMeta::new(target.resource.api_version(), target.resource.kind());
    follow(query, selection, version, |kind, object| {
        let item = ItemRef::new(Encoding::Json, object).with_type_meta(&type_meta);
        let row = change_row(&*format, &item, changes.has_events.then_some(kind));
        if let Some(row) = row.map_err(|error| Failure::Error(chain(&error)))? {
            output.print_row(&row)?;
        }
        Ok(output.flush_changes()?)
    })
    .await
}

/// Returns the row of an object, or with `--output-watch-events` of its event, which only formats of fields show.
pub fn change_row(format: &dyn Format, item: &ItemRef<'_>, event: Option<EventKind>) -> Result<Option<Row>, ItemError> {
    let Some(event) = event.filter(|_| format.info().needs == Needs::Fields) else { return format.row(item) };
    let mut json = Vec::new();
    item.to_json(&mut json)?;
    let object: Value = serde_json::from_slice(&json).map_err(ItemError::other)?;
    match format.info().name {
        // kubectl prints an event in JSON on one line, with the type first and all fields.
        "json" | "jsonl" => {
            let mut line = format!("{{\"type\":\"{}\",\"object\":", event.name()).into_bytes();
            write_go_json(&object, &mut line).map_err(ItemError::other)?;
            line.extend_from_slice(b"}\n");
            Ok(Some(line))
        }
        "yaml" => {
            let mut document = Vec::new();
            write_go_yaml(&json!({ "type": event.name(), "object": object }), &mut document);
            Ok(Some(document))
        }
        // Paths begin at the event.
        _ => {
            let event = json!({ "type": event.name(), "object": object }).to_string();
            let type_meta = TypeMeta::new("v1", "WatchEvent");
            format.row(&ItemRef::new(Encoding::Json, event.as_bytes()).with_type_meta(&type_meta))
        }
    }
}

/// Passes each change after a version, until a signal or an error.
async fn follow(
    query: &Query,
    selection: Selection,
    version: String,
    mut on_change: impl FnMut(EventKind, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(Found { resource, namespace, .. }) = query.targets.first() else { return Ok(()) };
    let params = WatchParams::from_version(&*version).selection(selection);
    let watch = query.source.0.watch_with(resource, &params, |item| Ok::<_, ItemError>(item.bytes().to_vec()));
    let watch = match namespace {
        Some(namespace) => watch.namespace(&**namespace),
        None => watch,
    };
    let warnings = WarningLimit::default();
    let on_disconnect = move |disconnect: &Disconnect| {
        // A server may end each watch after a moment.
        if warnings.admit("ended").is_some() {
            print_end(disconnect);
        }
    };
    let mut events = pin!(watch.fail_fast().on_disconnect(on_disconnect));
    let mut interrupted = pin!(interrupted());
    let mut count = 0_u64;
    loop {
        let next = tokio::select! {
            biased;
            () = &mut interrupted => {
                let version = events.resource_version().unwrap_or(&version);
                return Err(Failure::Interrupted(format!("{count} changes printed, up to version {version}")));
            }
            next = events.next() => next,
        };
        let (kind, object) = match next {
            Some(Ok(WatchEvent::Added(object))) => (EventKind::Added, object),
            Some(Ok(WatchEvent::Modified(object))) => (EventKind::Modified, object),
            Some(Ok(WatchEvent::Deleted(object))) => (EventKind::Deleted, object),
            Some(Ok(_)) => continue,
            Some(Err(error)) => return Err(list_failure(&error, None)),
            None => return Ok(()),
        };
        count += 1;
        on_change(kind, &object)?;
    }
}
