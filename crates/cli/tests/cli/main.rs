//! The command, run as a process: what it prints, sends and writes, and how it ends. One module per command.

mod completions;
mod connect;
mod count;
mod errors;
mod from;
mod get;
mod help;
mod history;
mod mirror;
mod plugin;
mod process;
mod record;
mod stats;
mod support;
mod watch;
