//! `listwatch watch`: prints the changes in a collection.

pub mod diff;
mod printer;

use std::pin::pin;
use std::rc::Rc;

use listwatch::client::WatchParams;

use self::diff::PreviousObjects;
use self::printer::WatchPrinter;
pub use self::printer::print_end;
use crate::cluster::connect::ConnectionArgs;
use crate::cluster::listing::list_failure;
use crate::cluster::query::{SelectionArgs, name_selector, split_names};
use crate::failure::Failure;
use crate::notices;
use crate::output::{Needs, Output, OutputArgs};
use crate::signals::interrupted;

/// The error of a watch of several names.
const ONE_NAME: &str = "a watch takes one name, or none for all objects";

/// Watch a collection of an API server, and print what changes, also value by value.
///
/// `get -w` prints objects that change as kubectl does: `watch` says what happened to them, with --diff which values
/// are others, and starts over by itself if the server no longer has its version.
///
/// Each line is an object that was added (+), modified (~) or deleted (-). With -o json and yaml, each event has `type`
/// and `object`, and with --diff also `patch`.
///
/// The watch resumes after disconnects and restarts of the server. A notice on stderr says so, at most once a minute,
/// and warnings report an outage and its end. If the server no longer has the resource version, the watch starts over.
/// With --initial it then prints all objects again. Otherwise the changes in between are lost, with a warning. Any
/// other error, such as 403, ends the command, and so does Ctrl-C.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch watch pods -A                         changes from now on
  listwatch watch pod shop-1 -n web               changes of one Pod
  listwatch watch pods -A --initial               first the existing Pods, then changes
  listwatch watch deploy -A --diff                with the values that changed: spec.replicas: 3 → 5
  listwatch watch deploy shop -n web --diff -o json | jq -c '.patch[]? | select(.path | startswith(\"/status\"))'
  listwatch watch nodes -o json                   one JSON object a line
  listwatch watch cm -A --resource-version 71532  changes after a list of that version, if the server still has them
  listwatch watch secrets -A --metadata-only      without their data")]
pub struct WatchArgs {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Name of the object, also as RESOURCE/NAME [default: all objects]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print the existing objects first, as added
    #[arg(long)]
    initial: bool,

    /// Resource version to start after, from a list [default: now]
    #[arg(long, value_name = "VERSION", conflicts_with = "initial")]
    resource_version: Option<String>,

    /// Print the values that changed, or `none`: `spec.containers[name=app].image: shop:1 → shop:2`.
    ///
    /// The command first gets all objects, and keeps them compressed in memory. With --resource-version it does not,
    /// and the first change of an object has `-`.
    ///
    /// Items of lists are named by the key of the list (name, type, containerPort, ...), else by their index. With
    /// -o json and yaml, `patch` is a JSON patch (RFC 6902) from the previous object, and each operation also has
    /// `oldValue`. metadata.resourceVersion, metadata.generation and metadata.managedFields are ignored. On a terminal,
    /// long values are shortened. Values of Secrets are masked as by `kubectl diff`, also in `patch`.
    #[arg(long)]
    diff: bool,

    /// With --diff, print values of Secrets
    #[arg(long, requires = "diff")]
    show_secrets: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub async fn run(args: WatchArgs) -> Result<(), Failure> {
    let WatchArgs {
        selection: mut selection_args,
        name,
        initial,
        resource_version,
        diff,
        show_secrets,
        output: output_args,
        connection,
    } = args;
    output_args.check()?;
    let names = split_names(&mut selection_args, name.into_iter().collect())?;
    let mut selection = selection_args.selection();
    match &*names {
        [] => {}
        [name] => selection = selection.fields(name_selector(name)),
        _ => return Err(Failure::Usage(ONE_NAME.to_owned())),
    }
    if output_args.needs() == Needs::Fields {
        selection = selection.json();
    }
    let (client, namespace) = connection.client().await?;
    let found = selection_args.find_resource(&client, namespace).await?;
    let format = output_args.format();
    let output = Output::new(Rc::clone(&format));
    let mut printer = WatchPrinter::new(client, found, selection, format, output);
    printer.previous = diff.then(|| PreviousObjects::new(show_secrets));
    printer.hides_initial = !initial;
    printer.most_chars = diff::most_chars_of_stdout();
    print_until_signal(printer, initial, resource_version).await
}

/// Prints events until a signal or an error. If the version has expired, the watch starts over.
async fn print_until_signal(
    mut printer: WatchPrinter,
    initial: bool,
    mut version: Option<String>,
) -> Result<(), Failure> {
    let mut interrupted = pin!(interrupted());
    loop {
        let from = match (version.take(), &mut printer.previous) {
            (Some(version), _) => WatchParams::from_version(version),
            (None, Some(previous)) => {
                previous.begin_initial();
                WatchParams::with_initial_state()
            }
            (None, None) if initial => WatchParams::with_initial_state(),
            (None, None) => WatchParams::from_now(),
        };
        let ended = tokio::select! {
            () = &mut interrupted => None,
            ended = printer.watch(from) => Some(ended?),
        };
        printer.output.flush()?;
        match ended {
            None => {
                notices::print_line(printer.totals());
                notices::warn_of_unknown_fields(printer.counts.unknown_fields);
                return Ok(());
            }
            Some(error) if error.is_expired() => {
                let gap = if initial { "" } else { "; changes in between are lost" };
                notices::warn(&format!("{error}: watching from the most recent version{gap}"));
            }
            Some(error) => {
                notices::warn_of_unknown_fields(printer.counts.unknown_fields);
                return Err(list_failure(&error, None));
            }
        }
    }
}
