//! The changes after a list: `list --watch`.

use std::pin::pin;
use std::rc::Rc;

use listwatch::client::{Client, Resource, Selection, WatchParams};

use super::printer::WatchPrinter;
use crate::cluster::listing::list_failure;
use crate::failure::Failure;
use crate::notices;
use crate::output::{Format, Output};
use crate::signals::interrupted;

/// Prints the objects that change after `version`, or from now on, as the list printed them.
///
/// # Errors
///
/// [`Failure::Interrupted`] at the first signal, else why the watch ended. As in kubectl, an expired version is such an
/// error: the changes until a new list are unknown.
pub async fn print_list_changes(
    client: Client,
    found: (Resource, Option<String>),
    selection: Selection,
    version: Option<String>,
    format: Rc<dyn Format>,
    output: Output,
) -> Result<(), Failure> {
    let from = version.map_or_else(WatchParams::from_now, WatchParams::from_version);
    let mut printer = WatchPrinter::new(client, found, selection, format, output);
    printer.is_plain = true;
    let mut interrupted = pin!(interrupted());
    let ended = tokio::select! {
        () = &mut interrupted => None,
        ended = printer.watch(from) => Some(ended?),
    };
    printer.output.flush()?;
    notices::warn_of_unknown_fields(printer.counts.unknown_fields);
    Err(match ended {
        None => Failure::Interrupted(printer.totals()),
        Some(error) => list_failure(&error, None),
    })
}
