//! The commands that talk to an API server.

pub mod connect;
mod count;
mod get;
mod history;
mod limit;
pub mod listing;
pub mod logs;
mod mirror;
pub mod query;
mod record;
mod record_history;
mod resource;
mod watch;

use clap::Subcommand;

pub use self::mirror::add_settings;
use crate::failure::Failure;

#[derive(Subcommand)]
pub enum ClusterCommand {
    #[command(alias = "list")]
    Get(Box<get::GetArgs>),
    Count(Box<count::CountArgs>),
    Watch(Box<watch::WatchArgs>),
    Mirror(Box<mirror::MirrorArgs>),
    Record(Box<record::RecordArgs>),
    Log(Box<history::LogArgs>),
    Diff(Box<history::DiffArgs>),
    History(history::HistoryArgs),
}

impl ClusterCommand {
    /// Returns true for a command that a signal ends as intended.
    pub fn ends_by_signal(&self) -> bool {
        match self {
            Self::Watch(_) | Self::Mirror(_) => true,
            Self::Record(args) => args.is_history(),
            _ => false,
        }
    }

    /// Returns true for a command that runs unattended.
    pub fn is_service(&self) -> bool {
        match self {
            Self::Mirror(_) => true,
            Self::Record(args) => args.is_history(),
            _ => false,
        }
    }
}

pub async fn run(command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Get(args) => get::run(*args).await,
        ClusterCommand::Count(args) => count::run(*args).await,
        ClusterCommand::Watch(args) => watch::run(*args).await,
        ClusterCommand::Mirror(args) => mirror::run(*args).await,
        ClusterCommand::Record(args) => record::run(*args).await,
        ClusterCommand::Log(args) => history::run_log(*args).await,
        ClusterCommand::Diff(args) => history::run_diff(*args).await,
        ClusterCommand::History(args) => history::run(args).await,
    }
}
