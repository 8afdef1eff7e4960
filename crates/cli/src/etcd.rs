//! `listwatch etcd`: checks a data file or snapshot.

use std::path::PathBuf;

use clap::Subcommand;
use indicatif::HumanCount;
use listwatch_etcd::DataFile;

use crate::failure::Failure;
use crate::notices;

/// Check etcd's files.
#[derive(clap::Args)]
pub struct EtcdArgs {
    #[command(subcommand)]
    command: EtcdCommand,
}

#[derive(Subcommand)]
enum EtcdCommand {
    /// Verify what can be verified of a snapshot or data file: it reads the whole file.
    ///
    /// These are the meta pages by their checksums, the structure of all pages, the form of all revisions, and the
    /// SHA-256 that `etcdctl snapshot save` appends. Without it, nothing can show that a value was changed: pages have
    /// no checksums.
    ///
    /// The exit code is 1 for the first fault.
    Check {
        /// `etcdctl snapshot save FILE`, or `member/snap/db` of a stopped etcd
        file: PathBuf,
    },
}

pub fn run(args: &EtcdArgs) -> Result<(), Failure> {
    let EtcdCommand::Check { file: path } = &args.command;
    let named = |error: listwatch_etcd::Error| Failure::Error(format!("{}: {error}", path.to_string_lossy()));
    let file = DataFile::open(path).map_err(named)?;
    let check = file.check().map_err(named)?;
    let hash = if check.has_hash {
        "the SHA-256 of the snapshot is right"
    } else {
        "the file has no SHA-256, so changed values cannot be found"
    };
    let (buckets, revisions) = (HumanCount(check.buckets), HumanCount(check.revisions));
    notices::print_labelled(
        "checked:",
        &format!("{buckets} buckets, {revisions} revisions up to {}; {hash}", file.newest_revision()),
    );
    Ok(())
}
