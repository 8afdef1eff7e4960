//! What a command prints on stdout: lists and watches, in all formats.
//!
//! # Advice
//!
//! Stdout has the result and nothing else: progress, notices and errors go to stderr (`notices`). A script reads
//! stdout, so its texts, their order and the exit code are an interface, pinned by `crates/cli/tests/cli`.
//!
//! **A format is one file**: a [`FormatInfo`](format::FormatInfo) with its name, its help, what it needs and which
//! options it takes, and a [`Format`] with its header, its rows, its changes and its end. To add one, write the file,
//! name it here, and add its constant to the formats of `get` or of `watch` in `args.rs`.
//!
//! Invariants:
//!
//! - **A list ends complete or in an error.** Items are printed as they arrive, so rows on stdout prove nothing. Only
//!   exit code 0 does.
//! - After an error or a signal, the rows so far are flushed. The command then ends with one line on stderr.
//! - No row stays in the buffer for longer than [`FLUSH_EVERY`], because a reader may wait for it.
//! - Memory is constant: no format keeps an object, and what must wait, such as rows whose columns are not as wide as
//!   they will be, waits in a [`Spool`](crate::spool::Spool). `--sort-by` sorts outside of memory.
//! - Text of a server passes through `escape_controls`, except in JSON and YAML, which escape it themselves.
//!
//! Closed pipes: a write to a closed stdout is [`Failure::Closed`](crate::failure::Failure), with exit code 0, because
//! `head` has what it wanted. `print!` would panic instead, so clippy denies it in this crate.
//!
//! Odd parts, and their reasons:
//!
//! - The methods of a format take `&self`, because the decoder asks for rows while the output asks for headers. What a
//!   format learns from its first object, it keeps in cells.
//! - `watch -o name` prints `NAMESPACE/NAME`, because names alone are not unique over namespaces. `get -o name` prints
//!   the type there, as kubectl does, and `get -o keys` the namespace.
//! - The paths of `--drop` are parsed at the first item, because only an item has the type of the objects. The error is
//!   then kept, and [`Format::usage_error`] reports it.
//! - YAML is made from the line of JSON, so that `--drop` and numbers have one implementation.
//!
//! Not done: a pager.

mod aligned;
mod args;
mod clean;
mod custom_columns;
mod format;
mod json;
mod kind_name;
mod list_columns;
mod list_json;
mod list_json_path;
mod list_yaml;
mod name;
mod progress;
mod sort;
mod stdout;
mod tab_writer;
mod yaml;

pub use self::aligned::{TableColumn, write_aligned};
pub use self::args::{GET_FORMATS, OutputArgs, OutputFormat};
pub use self::format::{Comparison, Event, EventKind, Format, FormatContext, Needs, OutputOptions, Row};
pub use self::progress::ListProgress;
pub use self::sort::{ObjectSorter, RecordSorter};
pub use self::stdout::{FLUSH_EVERY, Output, print_rows};
pub use self::tab_writer::TabWriter;
pub use self::yaml::to_yaml;
