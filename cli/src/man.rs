//! `listwatch man`, which the release archive is built with.

use std::path::PathBuf;

use crate::failure::Failure;

/// Writes the manual pages of all commands into a directory.
#[derive(clap::Args)]
pub struct Args {
    /// Directory that exists
    directory: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let Args { directory } = args;
    clap_mangen::generate_to(crate::command("listwatch"), directory).map_err(|error| {
        Failure::Error(format!("cannot write manual pages to {}: {error}", directory.to_string_lossy()))
    })
}
