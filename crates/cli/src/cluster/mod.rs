//! The commands that talk to an API server.

pub mod connect;
mod count;
mod get;
mod limit;
pub mod listing;
pub mod logs;
mod mirror;
pub mod query;
mod record;
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
    Watch(watch::WatchArgs),
    Mirror(Box<mirror::MirrorArgs>),
    Record(record::RecordArgs),
}

impl ClusterCommand {
    /// Returns true for a command that a signal ends as intended.
    pub fn ends_by_signal(&self) -> bool {
        matches!(self, Self::Watch(_) | Self::Mirror(_))
    }

    pub fn is_mirror(&self) -> bool {
        matches!(self, Self::Mirror(_))
    }
}

pub async fn run(command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Get(args) => get::run(*args).await,
        ClusterCommand::Count(args) => count::run(*args).await,
        ClusterCommand::Watch(args) => watch::run(args).await,
        ClusterCommand::Mirror(args) => mirror::run(*args).await,
        ClusterCommand::Record(args) => record::run(args).await,
    }
}
