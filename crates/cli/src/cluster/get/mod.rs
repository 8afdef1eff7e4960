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
mod objects;
mod query;
pub mod source;
mod table;
mod tables;
mod targets;

pub use self::args::GetArgs;
use self::args::{GetFormat, TableArgs};
use self::objects::print_objects;
use self::query::{Query, find_targets};
use self::source::{Source, Wanted};
use self::table::TableOptions;
use self::tables::print_tables;
use self::targets::{Target, parse_targets};
use crate::failure::Failure;
use crate::output::OutputOptions;
use crate::signals::interrupted;

pub async fn run(args: GetArgs) -> Result<(), Failure> {
    let arguments: Vec<_> = [&args.resource].into_iter().chain(&args.names).cloned().collect();
    let targets = parse_targets(&arguments).map_err(Failure::Usage)?;
    args.check(&targets)?;
    let GetArgs { namespace, all_namespaces, selector, field_selector, ignore_not_found, .. } = args;
    let GetArgs { limit, sort_by, chunk_size, connection, .. } = args;
    let (client, default_namespace) = connection.client().await?;
    let source = Source(client);
    let namespace = namespace.unwrap_or(default_namespace);
    let is_one = matches!(&*targets, [Target { name: Some(_), .. }]);
    let targets = find_targets(&source, targets, all_namespaces, &namespace).await?;
    let wanted = Wanted { labels: selector, fields: field_selector, ..Wanted::default() };
    let query = Query { source, targets, wanted, ignore_not_found, is_one, limit, sort_by, chunk_size };
    let is_wide = matches!(args.output, Some(GetFormat::Wide));
    if let Some(GetFormat::Objects(format)) = args.output {
        let options = OutputOptions {
            show_managed_fields: args.show_managed_fields,
            no_headers: args.table.no_headers,
            ..OutputOptions::default()
        };
        return print_objects(query, &format, options).await;
    }
    let TableArgs { no_headers, show_labels, label_columns, show_kind } = args.table;
    let options = TableOptions { is_wide, no_headers, show_labels, label_columns };
    let printing = print_tables(query, options, show_kind, all_namespaces, &namespace);
    tokio::select! {
        biased;
        () = interrupted() => Err(Failure::Interrupted("the tables are not complete".to_owned())),
        done = printing => done,
    }
}
