//! What a command prints on stdout: lists and watches, in all formats.
//!
//! # Advice
//!
//! Stdout has the result and nothing else: progress, notices and errors go to stderr (`notices`). A script reads
//! stdout, so its texts, their order and the exit code are an interface, pinned by `crates/cli/tests/cli`.
//!
//! Formats:
//!
//! | format | printed | needs |
//! |---|---|---|
//! | `name` | each item as it arrives | its metadata |
//! | `table`, `wide` | the first 100 rows together, later ones as they arrive | the fields that kubectl prints |
//! | `json`, `yaml` | each item as it arrives | all fields: from a server, JSON |
//! | `jsonpath` | each item as it arrives, between the texts around the items | all fields: from a server, JSON |
//! | `custom-columns` | as `table` | all fields: from a server, JSON |
//! | `summary` | one object, after a complete list | nothing |
//!
//! Invariants:
//!
//! - **A list ends complete or in an error.** Items are printed as they arrive, so rows on stdout prove nothing. Only
//!   exit code 0 does, and the summary, which [`Output::end`] prints after the library has proved the end.
//! - After an error or a signal, the rows so far are flushed. The command then ends with one line on stderr.
//! - No row stays in the buffer for longer than [`FLUSH_EVERY`], because a reader may wait for it.
//! - Memory is constant: a table keeps its first rows only, and no format keeps an object. `--sort-by` keeps all rows.
//! - Text of a server passes through `escape_controls`, except in JSON and YAML, which escape it themselves.
//!
//! Closed pipes: a write to a closed stdout is [`Failure::Closed`](crate::failure::Failure), with exit code 0, because
//! `head` has what it wanted. `print!` would panic instead, so clippy denies it in this crate.
//!
//! Odd parts, and their reasons:
//!
//! - `name` prints `NAMESPACE/NAME`, because names alone are not unique over namespaces. kubectl prints the type there.
//! - The cells of a row include EVENT and CHANGED, which only watches fill: an empty column is hidden. So one layout
//!   serves lists and watches.
//! - The paths of `--drop` are parsed at the first item, because only an item has the type of the objects. The error is
//!   then kept, and [`RowFormatter::check_paths`] turns it into a usage error.
//! - YAML is made from the line of JSON, so that `--drop` and numbers have one implementation.
//!
//! - Each row has the columns of its table, because the first object decides which they are: `decode` learns its kind
//!   from the body.
//!
//! Not done: kubectl's columns of the kinds that `listwatch-tables` lacks. Coloured cells: the columns count
//! characters. A pager.

mod args;
mod columns;
mod custom_columns;
mod kind;
mod print;
mod progress;
mod row;
mod sort;
mod stdout;
mod table;
mod yaml;

pub use self::args::{OutputArgs, OutputFormat};
pub use self::kind::TableKind;
pub use self::print::FLUSH_EVERY;
pub use self::print::print_rows;
pub use self::progress::ListProgress;
pub use self::row::{Row, RowFormatter};
pub use self::sort::RowSorter;
pub use self::stdout::{Output, SummaryObject};
pub use self::yaml::to_yaml;
