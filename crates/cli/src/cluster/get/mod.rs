//! `listwatch get`: what `kubectl get` prints, in constant memory.
//!
//! # Advice
//!
//! The reference is kubectl of the release that the end-to-end tests run: its arguments, its defaults, and for complete
//! results its bytes and exit codes. `e2e/tests/apiserver/get.rs` compares both. What differs on purpose is in
//! docs/cli.md: stderr, the exit codes 2 and 130, closed pipes, and JSON after an error, which is left unterminated.
//!
//! - Tables are the server's, in kubectl's pages of 500, because columns are as wide as the first page needs.
//! - Names have a prefix if the objects are of several kinds. So the first page of each resource is requested before
//!   anything is printed. Only one page of each resource is in memory.
//! - Objects are listed and printed while they arrive; objects by name are requested one by one.
//! - Only `source` knows where the objects come from.

mod args;
mod changes;
mod kuberc;
mod manifests;
mod objects;
mod query;
mod raw;
pub mod source;
mod table;
mod tables;
mod targets;

use std::mem;

pub use self::args::GetArgs;
use self::args::{GetFormat, TableArgs};
use self::manifests::{FromManifests, find_manifests};
use self::objects::print_objects;
use self::query::{Changes, Query, find_targets};
use self::raw::print_raw;
use self::source::{Source, Wanted};
use self::table::TableOptions;
use self::tables::print_tables;
use self::targets::{Target, parse_targets};
use crate::cluster::query::name_selector;
use crate::failure::Failure;
use crate::notices;
use crate::output::OutputOptions;
use crate::signals::interrupted;

pub async fn run(mut args: GetArgs) -> Result<(), Failure> {
    let arguments: Vec<_> = args.resource.iter().chain(&args.names).cloned().collect();
    let targets = parse_targets(&arguments).map_err(Failure::Usage)?;
    args.check(&targets)?;
    kuberc::warn_of_defaults();
    let (client, default_namespace) = mem::take(&mut args.connection).client().await?;
    let client = match args.request_timeout.filter(|time| !time.is_zero()) {
        Some(time) => client.deadline(time),
        None => client,
    };
    if let Some(path) = &args.raw {
        return print_raw(&client, path).await;
    }
    let namespace = args.namespace.clone().unwrap_or(default_namespace);
    let query = find(&mut args, targets, Source(client), &namespace).await?;
    let is_wide = matches!(args.output, Some(GetFormat::Wide));
    if let Some(GetFormat::Objects(format)) = args.output {
        let options = OutputOptions {
            show_managed_fields: args.show_managed_fields,
            no_headers: args.table.no_headers,
            is_clean: args.clean,
            ..OutputOptions::default()
        };
        return print_objects(query, &format, options).await;
    }
    let TableArgs { no_headers, show_labels, label_columns, show_kind, .. } = args.table;
    let has_events = query.changes.as_ref().is_some_and(|changes| changes.has_events);
    let options = TableOptions { has_events, is_wide, no_headers, show_labels, label_columns };
    let is_watch = query.changes.is_some();
    let printing = print_tables(query, options, show_kind, args.all_namespaces, &namespace);
    if is_watch {
        // It says how many changes were printed.
        return printing.await;
    }
    tokio::select! {
        biased;
        () = interrupted() => Err(Failure::Interrupted("the tables are not complete".to_owned())),
        done = printing => done,
    }
}

/// Finds what the arguments name.
async fn find(args: &mut GetArgs, mut targets: Vec<Target>, source: Source, namespace: &str) -> Result<Query, Failure> {
    let mut wanted = Wanted {
        labels: args.selector.take(),
        fields: args.field_selector.take(),
        version: args.version.clone(),
        ..Wanted::default()
    };
    let is_named = matches!(&*targets, [Target { name: Some(_), .. }]);
    let mut changes = None;
    if let (true, [target]) = (args.watch || args.watch_only, &mut *targets) {
        // A watch is of a collection, so one object is selected by its name.
        let name = target.name.take();
        if let Some(name) = &name {
            wanted.fields = Some(name_selector(name));
        }
        changes = Some(Changes { only: args.watch_only, has_events: args.output_watch_events, name });
        if args.sort_by.take().is_some() {
            notices::warn("--sort-by is ignored for a watch");
        }
    }
    let found = if args.filename.is_empty() {
        let targets = find_targets(&source, targets, args.all_namespaces, namespace).await?;
        FromManifests { targets, faults: Vec::new(), is_one: is_named }
    } else if args.all_namespaces {
        return Err(Failure::Error("-f cannot be used with --all-namespaces".to_owned()));
    } else {
        find_manifests(&source, &args.filename, args.recursive, namespace, args.namespace.as_deref()).await?
    };
    let form = args.form();
    Ok(Query {
        targets: found.targets,
        wanted,
        ignore_not_found: args.ignore_not_found,
        is_one: found.is_one || changes.is_some(),
        limit: args.limit,
        sort_by: args.sort_by.take(),
        chunk_size: args.chunk_size,
        subresource: args.subresource.take(),
        form,
        changes,
        faults: found.faults,
        source,
    })
}
