//! The commands that talk to an API server: cargo feature `cluster`.

pub mod connect;
mod list;
pub mod logs;
mod mirror;
pub mod query;
mod record;
mod resource;
mod watch;

use clap::Subcommand;

use crate::failure::Failure;

#[derive(Subcommand)]
pub enum Command {
    List(list::Args),
    Watch(watch::Args),
    Mirror(Box<mirror::Args>),
    Record(record::Args),
}

pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args).await,
        Command::Watch(args) => watch::run(args).await,
        Command::Mirror(args) => mirror::run(*args).await,
        Command::Record(args) => record::run(args).await,
    }
}
