//! The command, run as a process: what it prints, sends and writes, and how it ends. One module per command.

mod completions;
#[cfg(feature = "cluster")]
mod connect;
mod decode;
mod demo;
mod help;
#[cfg(feature = "cluster")]
mod list;
#[cfg(feature = "cluster")]
mod mirror;
mod plugin;
mod process;
#[cfg(feature = "cluster")]
mod record;
mod stats;
mod support;
#[cfg(feature = "cluster")]
mod watch;
