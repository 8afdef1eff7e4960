//! Files in place of a server: `--from`.
//!
//! # Advice
//!
//! A source is a [`Transport`](listwatch::client::Transport): it answers the requests of the client as an API server
//! would, in this process. So commands, formats, selectors, tables, sorting and the mirror do not know where objects
//! come from.
//!
//! | module | holds |
//! |---|---|
//! | `objects` | what a source is: resources, and a cursor over their objects |
//! | `etcd` | etcd's data files and snapshots |
//! | `files`, `documents` | files, folders and archives of JSON, YAML and recorded bodies |
//! | `history` | a history that `record` wrote, at a point of the past |
//! | `builtin`, `definitions`, `discovery` | the resources, and the documents that list them |
//! | `request`, `select`, `page` | a request, which objects it selects, and the body of a response |
//! | `transport` | all together |
//! | `exact` | a server, with a history for its older versions |
//!
//! - A list is sent in pages, also when the reader asks for none, because a body in protobuf begins with its length.
//!   Between two pages the cursor is kept under the continue token.
//! - An error in the middle of a source ends the list in an error, after the objects before it.

mod builtin;
mod definitions;
mod discovery;
mod documents;
mod etcd;
mod exact;
mod files;
mod history;
mod objects;
mod page;
mod request;
mod select;
mod transport;
mod yaml;

use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use listwatch::ItemRef;
use listwatch_history::{History, Point};

use self::documents::{Contents, Peeked};
use self::etcd::{EtcdOptions, EtcdSource};
pub use self::exact::ExactFromHistory;
use self::files::FileSource;
use self::history::HistorySource;
use self::objects::ObjectSource;
pub use self::transport::{Readers, SourceTransport};
use crate::at::parse_point;
use crate::failure::Failure;

/// What to read in place of a server.
#[derive(Default, clap::Args)]
#[command(next_help_heading = "Source")]
pub struct FromArgs {
    /// Read from this file or folder in place of a server; `-` for stdin.
    ///
    /// An etcd snapshot or data file; a list that `record` or `curl` saved, in protobuf or JSON; what kubectl printed
    /// as JSON or YAML; a folder or tar archive with such files, as must-gather, support-bundle and `kubectl
    /// cluster-info dump` write. Gzip and zstd are decompressed. Or a history that `record --history` wrote.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// With a history, the state at this time: 14:03, 2026-11-27T14:03Z, -2h or now [default: now].
    ///
    /// A time without a zone is local, and one that the clocks showed twice is an error. `now` is the newest state that
    /// was recorded. AGE is relative to the time.
    #[arg(long, value_parser = parse_point, value_name = "TIME", requires = "from", conflicts_with = "at_version", allow_hyphen_values = true)]
    at: Option<Point>,

    /// With a history or an etcd file, the state at version N [default: the newest]
    #[arg(long, value_name = "N", requires = "from")]
    at_version: Option<i64>,

    /// With an etcd file, decrypt values with the keys of this file, which the API server read as its
    /// --encryption-provider-config
    #[arg(long, value_name = "FILE", requires = "from")]
    encryption_config: Option<PathBuf>,

    /// With an etcd file, leave out objects that cannot be decrypted, and say how many
    #[arg(long, requires = "from")]
    skip_encrypted: bool,
}

impl FromArgs {
    /// Returns the file to read, if one is given.
    pub fn path(&self) -> Option<&Path> {
        self.from.as_deref()
    }

    /// Opens the source, if one is given.
    pub fn open(&self, readers: Readers) -> Result<Option<SourceTransport>, Failure> {
        let Some(path) = self.path() else { return Ok(None) };
        let named = |error: String| Failure::Error(format!("{}: {error}", display(path)));
        if History::is_history(path) {
            let point = match (&self.at, self.at_version) {
                (Some(point), _) => point.clone(),
                (None, Some(version)) => Point::Version(version.to_string()),
                (None, None) => Point::Newest,
            };
            let source = Box::new(HistorySource::open(path, point).map_err(named)?);
            return Ok(Some(SourceTransport::new(source, display(path), readers)));
        }
        if self.at.is_some() {
            return Err(Failure::Usage(format!("--at is for histories, and {} is none", display(path))));
        }
        let is_etcd = path.is_file() && listwatch_etcd::is_data_file(path).map_err(|error| named(error.to_string()))?;
        let source: Box<dyn ObjectSource> = if is_etcd {
            let options = EtcdOptions {
                revision: self.at_version,
                encryption_config: self.encryption_config.as_deref(),
                skips_encrypted: self.skip_encrypted,
            };
            Box::new(EtcdSource::open(path, &options).map_err(named)?)
        } else {
            let of_etcd = [
                ("--at-version", self.at_version.is_some()),
                ("--encryption-config", self.encryption_config.is_some()),
            ];
            if let Some((option, _)) = of_etcd.iter().find(|(_, is_given)| *is_given) {
                let kinds = if *option == "--at-version" { "histories and etcd files" } else { "etcd files" };
                return Err(Failure::Usage(format!("{option} is for {kinds}, and {} is none", display(path))));
            }
            Box::new(FileSource::open(path).map_err(named)?)
        };
        Ok(Some(SourceTransport::new(source, display(path), readers)))
    }
}

/// Calls `visit` with each object of a text in JSON or YAML, as `kubectl get -f` reads it.
pub fn visit_manifests(reader: impl Read, visit: &mut dyn FnMut(&ItemRef<'_>)) -> Result<(), String> {
    let peeked = Peeked::open(reader).map_err(|error| error.to_string())?;
    let contents = peeked.visit_objects(&mut |object: objects::Object| {
        visit(&object.item());
        ControlFlow::Continue(())
    })?;
    match contents {
        Contents::Objects => Ok(()),
        Contents::Other => Err("it has no objects of Kubernetes in JSON or YAML".to_owned()),
    }
}

/// Returns the name of a source in messages.
fn display(path: &Path) -> String {
    if path == Path::new("-") { "stdin".to_owned() } else { path.to_string_lossy().into_owned() }
}
