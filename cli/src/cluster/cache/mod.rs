//! `listwatch cache`: keeps a collection in memory and up to date, and serves it over HTTP.

mod index;
mod metrics;
mod serve;
mod status;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Once};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::HumanCount;
use listwatch::cache::{LoadError, SaveError, StorageFormat, Store};
use listwatch::client::Resource;
use listwatch::reflector::{self, Cache, Reflector, SyncError, WarmStartError};
use listwatch::schema::Message;
use listwatch::{Projection, TypeMeta};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};

use self::index::{ByText, IndexBy};
use self::status::Live;
use crate::cluster::connect::Connection;
use crate::cluster::query::Selection;
use crate::failure::{Failure, chain};
use crate::notices;
use crate::paths::drop_path;
use crate::signals::interrupted;

/// Keeps a collection in memory and up to date, and serves it on loopback, for example to debug a controller.
///
/// It survives disconnects and restarts of the server, and shows its progress on stderr. Ctrl-C ends it. Readers need no
/// authentication: every user of this machine can read the whole collection.
#[derive(clap::Args)]
#[command(after_help = "\
Paths for GET and HEAD. Bodies are JSON, except /metrics. Data is available once the collection is complete:
  /healthz                    200 once the collection is complete; 503 with the reason before
  /metrics                    metrics for Prometheus; listwatch_cache_bytes is the memory, by part
  /keys[?namespace=NS]        keys of all objects, unordered
  /objects[?namespace=NS]     all objects, unordered
  /objects/[NS/]NAME          one object
  /indexes                    the indexes
  /indexes/INDEX              the values in an index, with the number of objects for each
  /indexes/INDEX/VALUE        keys of the objects with this value; with ?objects, the objects

Examples:
  listwatch cache pods -A                         all Pods, compressed, at http://127.0.0.1:8002
  listwatch cache pods -A --index node=spec.nodeName --index 'app=metadata.labels[\"app\"]'
  curl localhost:8002/indexes/node/node-1         the keys of the Pods on a node
  curl localhost:8002/indexes/node/?objects       the Pods without a node, as JSON
  listwatch cache pods -A --drop metadata.managedFields --drop status
  listwatch cache secrets -A --metadata-only      without their data
  listwatch cache pods -A --file pods.cache       resumes from a file after a restart
  listwatch cache nodes --listen 127.0.0.1:0      on a free port")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,

    /// Storage format of objects in memory
    #[arg(long, value_enum, default_value_t = Format::Compressed, value_name = "FORMAT")]
    format: Format,

    /// Memory limit for objects and indexes, in MiB. Fails if the collection does not fit; objects that do not fit later are
    /// skipped, with a notice
    #[arg(long, value_name = "MIB")]
    budget: Option<usize>,

    /// Load this file at the start, so that the watch resumes from its resource version without a list; save it every 5 minutes
    /// and at the end. A file of another collection is refused
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Store objects without this field, such as `status` or `metadata.annotations["KEY"]`; repeat for several fields
    #[arg(long, value_name = "PATH")]
    drop: Vec<String>,

    /// Index objects by the text, numbers or booleans at this path; repeat for several indexes. An object without a value is
    /// indexed under the empty value
    #[arg(long, value_name = "NAME=PATH")]
    index: Vec<IndexBy>,

    /// How to sync [default: what the server supports]. A list that exceeds the server's request timeout is repeated in pages
    #[arg(long, value_enum, value_name = "STRATEGY")]
    strategy: Option<Strategy>,

    /// Loopback address and port to serve on; port 0 chooses a free one
    #[arg(long, default_value = "127.0.0.1:8002", value_name = "ADDRESS", value_parser = loopback)]
    listen: SocketAddr,

    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// As received: the fastest to read
    Encoded,
    /// Compressed, objects of one owner as differences: about a twelfth of the size of whole Pods, a seventh without managedFields
    Compressed,
}

#[derive(Clone, Copy, ValueEnum)]
enum Strategy {
    /// The initial events of a watch
    WatchList,
    /// A list, then a watch from its version
    ListThenWatch,
    /// A watch first, then a list: for collections that take longer to list than the server keeps history
    WatchFirst,
}

/// The cache, and its collection.
struct Cached {
    cache: Cache<[u8]>,
    resource: Resource,
    /// `None` for all namespaces, or for a resource without namespaces.
    namespace: Option<String>,
    indexes: Vec<(IndexBy, ByText)>,
    /// Completed once a warning about unknown fields was printed.
    unknown_fields: Once,
}

/// The interval at which the status is shown.
const TICK: Duration = Duration::from_millis(250);

/// The interval at which the cache is saved.
const SAVE: Duration = Duration::from_secs(300);

pub async fn run(args: Args) -> Result<(), Failure> {
    let Args { selection, format, budget, file, drop, index, strategy, listen, connection } = args;
    let listener = TcpListener::bind(listen).map_err(|error| cannot_listen(listen, &error))?;
    let mut selected = selection.selected();
    let (client, namespace) = connection.client().await?;
    let (resource, namespace) = selection.find(&client, namespace).await?;

    let type_meta = selected.type_meta(&resource);
    // The protobuf of a kind without a schema can be neither indexed nor converted to JSON.
    if Message::of(&type_meta.api_version, &type_meta.kind).is_none() {
        selected = selected.json();
    }
    let store = Store::new(format.into());
    if let Some(mib) = budget {
        store.set_budget(Some(mib.saturating_mul(1 << 20)));
    }
    let mut reflector = Reflector::<[u8]>::new(&client, &resource).selection(selected).store(store).fail_fast();
    if !drop.is_empty() {
        reflector = reflector.projection(projection(&drop, &type_meta)?);
    }
    if let Some(strategy) = strategy {
        reflector = reflector.strategy(strategy.into());
    }
    if let Some(namespace) = &namespace {
        reflector = reflector.namespace(namespace);
    }
    if let Some(file) = &file {
        load(&mut reflector, file).await?;
    }
    let cache = reflector.cache();
    let mut indexes: Vec<(IndexBy, ByText)> = Vec::new();
    for by in index {
        if indexes.iter().any(|(other, _)| other.name == by.name) {
            return Err(Failure::Usage(format!("--index {}: the name is used twice", by.name)));
        }
        let index = by.add_to(&cache, &type_meta)?;
        indexes.push((by, index));
    }
    let cached = Arc::new(Cached { cache, resource, namespace, indexes, unknown_fields: Once::new() });

    let address = serve::start(listener, Arc::clone(&cached)).map_err(|error| cannot_listen(listen, &error))?;
    notices::print("serving:", &format!("http://{address}"));
    let mut live = Live::new(&cached);
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut save_tick = interval_at(Instant::now() + SAVE, SAVE);
    let mut interrupted = pin!(interrupted());
    let mut reflecting = pin!(reflector.run());
    let mut syncing = pin!(cached.cache.synced());
    let mut has_synced = false;
    loop {
        tokio::select! {
            synced = &mut syncing, if !has_synced => {
                has_synced = true;
                if let Err(error @ SyncError::Incomplete { .. }) = synced {
                    return Err(Failure::Error(chain(&error)));
                }
            }
            () = &mut interrupted => {
                live.end();
                save(&cached.cache, file.as_deref()).await;
                return Ok(());
            }
            _ = save_tick.tick() => save(&cached.cache, file.as_deref()).await,
            Err(error) = &mut reflecting => return Err(Failure::Error(chain(&error))),
            _ = tick.tick() => live.update(),
        }
    }
}

/// Loads the file. A file that is not a saved cache of this collection is an error, because saving would overwrite it.
async fn load(reflector: &mut Reflector<[u8]>, file: &Path) -> Result<(), Failure> {
    match reflector.load(file).await {
        Ok(()) => {
            let cache = reflector.cache();
            let objects = HumanCount(cache.len() as u64);
            notices::print("loaded:", &format!("{objects} objects at version {}", cache.resource_version()));
        }
        Err(WarmStartError::File(LoadError::Io(error))) if error.kind() == io::ErrorKind::NotFound => {}
        Err(WarmStartError::File(error @ (LoadError::NotSaved | LoadError::Foreign { .. }))) => {
            return Err(Failure::Error(format!("{}: {error}", file.to_string_lossy())));
        }
        Err(error) => notices::warn(&format!("cannot load the file, starting without it: {}", chain(&error))),
    }
    Ok(())
}

/// Saves the cache. While it is incomplete, the previous file stays.
async fn save(cache: &Cache<[u8]>, file: Option<&Path>) {
    let Some(file) = file else { return };
    let (cache, path) = (cache.clone(), file.to_owned());
    let saved = spawn_blocking(move || cache.save(path)).await;
    match saved {
        Ok(Ok(()) | Err(SaveError::Incomplete)) | Err(_) => {}
        Ok(Err(error)) => notices::warn(&format!("cannot save {}: {}", file.to_string_lossy(), chain(&error))),
    }
}

fn projection(drop: &[String], of: &TypeMeta) -> Result<Projection, Failure> {
    drop.iter().try_fold(Projection::new(), |projection, path| {
        let path = drop_path(path, of).map_err(Failure::Usage)?;
        Ok(projection.drop(&path))
    })
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "expected an address with a port, such as 127.0.0.1:8002")?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("expected a loopback address, because readers need no authentication".to_owned())
    }
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::Error(format!("cannot listen on {address}: {error}; choose another port with --listen"))
}

impl From<Format> for StorageFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Encoded => Self::Encoded,
            Format::Compressed => Self::Compressed,
        }
    }
}

impl From<Strategy> for reflector::Strategy {
    fn from(strategy: Strategy) -> Self {
        match strategy {
            Strategy::WatchList => Self::WatchList,
            Strategy::ListThenWatch => Self::ListThenWatch,
            Strategy::WatchFirst => Self::WatchFirst,
        }
    }
}
