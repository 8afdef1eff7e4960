//! `listwatch log`, `diff` and `history`: what a history says about changes.
//!
//! States at a point are read by `--from DIR --at TIME` of the other commands.

mod change;
mod check;
mod diff;
mod export;
mod log;
mod query;

use std::path::PathBuf;

use clap::Subcommand;

pub use self::diff::DiffArgs;
pub use self::log::LogArgs;
use crate::failure::{Failure, read_blocking};

/// Verify, export and copy histories that `record --history` wrote.
#[derive(clap::Args)]
pub struct HistoryArgs {
    #[command(subcommand)]
    command: HistoryCommand,
}

#[derive(Subcommand)]
enum HistoryCommand {
    /// Verify every record: checksums, structure, and the bytes of each state.
    ///
    /// The exit code is 1 if something is damaged. The damage is named, and everything else stays readable.
    Check {
        /// Folder of the history
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    Export(export::ExportArgs),
}

pub async fn run(args: HistoryArgs) -> Result<(), Failure> {
    match args.command {
        HistoryCommand::Check { dir } => read_blocking(move || check::run(&dir)).await,
        HistoryCommand::Export(args) => export::run(args).await,
    }
}

pub async fn run_log(args: LogArgs) -> Result<(), Failure> {
    log::run(args).await
}

pub async fn run_diff(args: DiffArgs) -> Result<(), Failure> {
    diff::run(args).await
}
