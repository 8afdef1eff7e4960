//! The `listwatch` command.

mod decode;
mod demo;
mod failure;
mod output;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Streams huge Kubernetes collections over protobuf, in constant memory.
///
/// Results go to stdout, everything else to stderr. Exit codes: 0 the list is complete, 1 it ended in an error, 2 wrong
/// usage, 130 interrupted.
#[derive(Parser)]
#[command(name = "listwatch", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Decode(decode::Args),
    Demo(demo::Args),
    #[command(hide = true)]
    DemoServer(demo::server::Args),
    #[command(hide = true)]
    DemoClient(demo::client::Args),
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let done = match Cli::parse().command {
        Command::Decode(args) => decode::run(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::DemoServer(args) => demo::server::run(args).await.map_err(Failure::from),
        Command::DemoClient(args) => demo::client::run(args).await.map_err(Failure::from),
    };
    // Returning would wait for a read of stdin that nothing may ever end.
    std::process::exit(done.map_or_else(|failure| failure.report(), |()| 0));
}
