//! The `listwatch` command.
//!
//! `.ci/imports --order crates/cli/src` prints the modules, lowest first. `stats` uses `cluster` for live collections;
//! no other command imports one.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic if the reader has left: see `notices`")]

mod at;
mod cluster;
mod completions;
mod escape;
mod etcd;
mod failure;
mod field_paths;
mod man;
mod notices;
mod number;
mod output;
mod partial_file;
mod quantity;
mod saved_body;
mod signals;
mod sorter;
mod source;
mod spool;
mod stats;

use std::env;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use futures::future::poll_immediate;
use tokio::time::timeout;

use crate::failure::Failure;

/// The longest time between the end of the reader of stdout and a signal that has ended both.
const SIGNAL_AFTER_READER: Duration = Duration::from_millis(50);

/// List, watch, measure, save and serve huge Kubernetes collections.
///
/// Results go to stdout, everything else to stderr.
///
/// The exit code is 0 on success, also if the reader of stdout closes the pipe, 1 on an error, and 2 on wrong usage.
/// After Ctrl-C, SIGTERM or SIGHUP it is 130.
///
/// `watch` and `mirror` run until the first of these signals, and then exit with 0. A second signal ends any command at
/// once, with 130.
#[derive(Parser)]
#[command(name = "listwatch", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Log requests, responses and retries to stderr; -vv logs more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Cluster(Box<cluster::ClusterCommand>),
    Stats(Box<stats::StatsArgs>),
    Etcd(etcd::EtcdArgs),
    Completions(completions::CompletionsArgs),
    #[command(hide = true)]
    Man(man::ManArgs),
}

fn main() {
    let cli = parse_arguments();
    cluster::logs::install_logs(cli.verbose, cli.command.shows_all_warnings());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let handled = signals::start_handling(cli.command.exit_code_of_signals());
    let done = match (&runtime, &handled) {
        (Ok(runtime), Ok(())) => runtime.block_on(run_until_signal(cli.command)),
        (Err(error), _) | (_, Err(error)) => Err(Failure::Error(format!("cannot start: {error}"))),
    };
    // Dropping the runtime would wait for a blocking read of stdin, which may never end.
    std::process::exit(done.map_or_else(|failure| failure.report(), |()| 0));
}

async fn run_until_signal(command: Command) -> Result<(), Failure> {
    let mut running = pin!(run_command(command));
    let done = tokio::select! {
        // A command that handles the signal itself reports its progress.
        biased;
        done = &mut running => done,
        // The signal may have come after the command last looked for it.
        () = signals::interrupted_early() => match poll_immediate(running).await {
            Some(done) => done,
            None => Err(Failure::Interrupted("nothing was read yet".to_owned())),
        },
    };
    match done {
        // Ctrl-C ends the reader of stdout too, and the reader may be faster.
        Err(Failure::Closed) if timeout(SIGNAL_AFTER_READER, signals::interrupted()).await.is_ok() => {
            Err(Failure::Interrupted("the reader of stdout has closed it".to_owned()))
        }
        done => done,
    }
}

async fn run_command(command: Command) -> Result<(), Failure> {
    match command {
        Command::Cluster(command) => cluster::run(*command).await,
        Command::Stats(args) => stats::run(*args).await,
        Command::Etcd(args) => etcd::run(&args),
        // kubectl completes its plugins, so the script always completes `listwatch`.
        Command::Completions(args) => completions::run(&args, &named_command("listwatch")),
        Command::Man(args) => man::run(&args, named_command("listwatch")),
    }
}

impl Command {
    /// Returns true for a command that runs unattended.
    fn shows_all_warnings(&self) -> bool {
        matches!(self, Self::Cluster(command) if command.is_service())
    }

    /// Returns the exit code after the first signal.
    fn exit_code_of_signals(&self) -> i32 {
        match self {
            Self::Cluster(command) if command.ends_by_signal() => 0,
            _ => signals::EXIT_INTERRUPTED,
        }
    }
}

fn parse_arguments() -> Cli {
    let command = named_command(&command_name());
    let args = env::args_os().collect();
    let args = cluster::add_settings(&command, args).unwrap_or_else(|failure| std::process::exit(failure.report()));
    let matches = command.try_get_matches_from(args).unwrap_or_else(|error| error.exit());
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Returns the name of the command. `kubectl listwatch` runs the plugin `kubectl-listwatch`.
fn command_name() -> String {
    let path = env::args_os().next().unwrap_or_default();
    let name = Path::new(&path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if name == "kubectl-listwatch" { "kubectl listwatch".to_owned() } else { "listwatch".to_owned() }
}

/// Returns the command, with this name in its help.
fn named_command(name: &str) -> clap::Command {
    Cli::command().bin_name(name).mut_subcommands(|subcommand| match subcommand.get_after_help() {
        Some(text) if name != "listwatch" => {
            let text = text.to_string().replace("listwatch ", &format!("{name} "));
            subcommand.after_help(text)
        }
        _ => subcommand,
    })
}
