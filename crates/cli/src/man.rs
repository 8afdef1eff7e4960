//! `listwatch man`, which the release archive is built with.

use std::path::PathBuf;

use crate::failure::Failure;

/// Writes the manual pages of all commands into a directory.
#[derive(clap::Args)]
pub struct ManArgs {
    /// Directory that exists
    directory: PathBuf,
}

pub fn run(args: &ManArgs, command: clap::Command) -> Result<(), Failure> {
    let ManArgs { directory } = args;
    clap_mangen::generate_to(command, directory).map_err(|error| {
        Failure::Error(format!("cannot write manual pages to {}: {error}", directory.to_string_lossy()))
    })
}
