//! The commands that talk to an API server: cargo feature `cluster`.

mod cache;
pub mod connect;
mod list;
pub mod logs;
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
    Cache(cache::Args),
    Record(record::Args),
}

pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args).await,
        Command::Watch(args) => watch::run(args).await,
        Command::Cache(args) => cache::run(args).await,
        Command::Record(args) => record::run(args).await,
    }
}
