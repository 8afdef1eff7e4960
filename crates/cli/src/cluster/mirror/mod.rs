//! `listwatch mirror`: keeps collections in memory and up to date, and serves them over the Kubernetes API.

mod args;
mod collection;
mod endpoint;
mod lifetime;
mod open_files;
mod settings;
mod start;
mod status;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use listwatch::client::{Client, Transport};
use listwatch_cache::{ChangeLogLimits, PreparedReflector};
use listwatch_mirror::{Access, Mirror};
use tokio::runtime::{self, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};

pub use self::args::MirrorArgs;
use self::collection::{FoundResource, MirroredCollection, parse_indexes, parse_projections, resource_failure};
use self::endpoint::MirrorEndpoint;
use self::open_files::raise_open_files_limit;
pub use self::settings::add_settings;
use self::start::{share_budget, start_all};
use self::status::StatusDisplay;
use crate::cluster::resource::find_resource;
use crate::failure::Failure;
use crate::signals::{end_slowly, interrupted};

/// The interval at which the status is shown.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);

/// The interval at which the caches are saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(300);

/// The interval at which the free memory is distributed.
const SHARE_INTERVAL: Duration = Duration::from_secs(10);

pub async fn run(args: MirrorArgs) -> Result<(), Failure> {
    raise_open_files_limit();
    // Responses have threads of their own, so that they do not delay the watches. The reflectors and their connections
    // share this thread: waking another thread for each change would cost more than the change.
    let readers = runtime::Builder::new_multi_thread().thread_name("readers").enable_all().build();
    let readers = readers.map_err(|error| Failure::Error(format!("cannot start threads: {error}")))?;
    let handle = readers.handle().clone();
    let _readers = ReaderThreads(Some(readers));
    run_mirror(args, &handle).await
}

/// The threads of responses. A signal may drop the future of the command, and dropping a runtime in a future panics.
struct ReaderThreads(Option<Runtime>);

impl Drop for ReaderThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn run_mirror(args: MirrorArgs, readers: &Handle) -> Result<(), Failure> {
    if args.resources.is_empty() {
        return Err(Failure::Usage(
            "name the resources to mirror, as RESOURCE or as `resources` in the file".to_owned(),
        ));
    }
    let listener = bind(&args)?;
    let address = listener.local_addr().map_err(|error| cannot_listen(args.listen, &error))?;
    let (client, transport, reflecting) = args.connection.shared_transport().await?;
    let found = find_resources(&client, &args.resources).await?;
    let budget = args.budget.map(|mib| mib.saturating_mul(1 << 20));
    let collections = create_collections(&args, found, &reflecting, budget)?;
    let (mut collections, reflectors): (Vec<_>, Vec<_>) = collections.into_iter().unzip();
    let mirror = create_mirror(&args, transport, &reflecting, &mut collections);
    let endpoint = MirrorEndpoint { address, certificate: args.tls_cert.clone(), namespace: args.namespace.clone() };
    if let Some(file) = &args.write_kubeconfig {
        endpoint.write_kubeconfig(file)?;
    }
    let (shutdown, stopped) = oneshot::channel::<()>();
    // It completes too when the sender is dropped.
    let serving = readers.spawn(mirror.serve(listener, async { _ = stopped.await }));
    let server = MirrorServer { endpoint, serving, shutdown };
    sync_and_serve(&collections, reflectors, budget, server).await
}

/// Binds the address of `--listen`. Without TLS it must be a loopback address.
fn bind(args: &MirrorArgs) -> Result<TcpListener, Failure> {
    let listen = args.listen;
    if args.tls_cert.is_none() && !listen.ip().is_loopback() {
        let reason = "is not a loopback address: use --tls-cert and --tls-key, so that the mirror reviews its readers";
        return Err(Failure::Usage(format!("--listen {listen} {reason}")));
    }
    TcpListener::bind(listen).map_err(|error| cannot_listen(listen, &error))
}

/// Finds the resources that the user typed. A resource that is named twice is a usage error.
async fn find_resources(client: &Client, names: &[String]) -> Result<Vec<FoundResource>, Failure> {
    let mut found: Vec<FoundResource> = Vec::new();
    for typed in names {
        let resource = find_resource(client, typed).await?;
        if found.iter().any(|(_, other)| *other == resource) {
            return Err(Failure::Usage(format!("{typed}: {resource} is named twice")));
        }
        found.push((typed.clone(), resource));
    }
    Ok(found)
}

/// A collection, and the reflector that keeps its cache synced.
type CollectionAndReflector = (MirroredCollection, PreparedReflector<[u8]>);

/// Returns the collection of each resource, and its reflector. Creates the directory of their files.
fn create_collections(
    args: &MirrorArgs,
    found: Vec<FoundResource>,
    client: &Client,
    budget: Option<usize>,
) -> Result<Vec<CollectionAndReflector>, Failure> {
    let mut log = ChangeLogLimits::default();
    log.age = args.log_age.0;
    log.bytes = args.log_size.saturating_mul(1 << 20);
    if let Some(budget) = budget {
        log.bytes = log.bytes.min(budget / 4 / found.len());
    }
    let projections = parse_projections(&args.drop, &found)?;
    let indexes = parse_indexes(&args.index, &found)?;
    let namespace = args.namespace.as_deref();
    let mut collections = Vec::new();
    for (((_, resource), projection), indexes) in found.into_iter().zip(projections).zip(indexes) {
        let namespace = namespace.filter(|_| resource.is_namespaced()).map(str::to_owned);
        let file = args.dir.as_ref().map(|dir| dir.join(format!("{resource}.cache")));
        let format = args.format.into();
        let strategy = args.strategy.map(Into::into);
        let (collection, reflector) =
            MirroredCollection::new(client, resource, namespace, format, projection, log, strategy);
        collections.push((MirroredCollection { indexes, file, ..collection }, reflector));
    }
    if let Some(dir) = &args.dir {
        let cannot_create = |error| Failure::Error(format!("cannot create {}: {error}", dir.to_string_lossy()));
        std::fs::create_dir_all(dir).map_err(cannot_create)?;
    }
    Ok(collections)
}

/// Returns the mirror of these collections.
fn create_mirror(
    args: &MirrorArgs,
    transport: Arc<dyn Transport>,
    client: &Client,
    collections: &mut [MirroredCollection],
) -> Mirror {
    let mut mirror = Mirror::new(transport).client(client).stale_reads(args.stale_reads);
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        mirror = mirror.tls(certificate, key).access(Access::Reviewed);
    }
    collections.iter_mut().fold(mirror, |mirror, collection| mirror.resource(collection.take_mirrored()))
}

/// A mirror that serves on its own threads.
struct MirrorServer {
    endpoint: MirrorEndpoint,
    serving: JoinHandle<io::Result<()>>,
    /// Ends the server, which then waits for open requests.
    shutdown: oneshot::Sender<()>,
}

/// Syncs the collections, and serves them until the first signal.
async fn sync_and_serve(
    collections: &[MirroredCollection],
    reflectors: Vec<PreparedReflector<[u8]>>,
    budget: Option<usize>,
    mirror: MirrorServer,
) -> Result<(), Failure> {
    let MirrorServer { endpoint, mut serving, shutdown } = mirror;
    let (end, mut ended) = mpsc::unbounded_channel();
    let mut starting = pin!(start_all(collections, reflectors, budget, end));
    let mut has_started = false;
    let mut status = StatusDisplay::new(collections);
    let mut status_tick = interval(STATUS_INTERVAL);
    status_tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let [mut save_tick, mut share_tick] =
        [SAVE_INTERVAL, SHARE_INTERVAL].map(|period| interval_at(Instant::now() + period, period));
    let mut interrupted = pin!(interrupted());
    // From here on, the loop handles signals: it saves the caches, and waits for open requests.
    end_slowly();
    loop {
        tokio::select! {
            started = &mut starting, if !has_started => {
                started?;
                has_started = true;
                status.update();
                endpoint.announce();
            }
            served = &mut serving => return Err(match served {
                Ok(Err(error)) => Failure::Error(format!("cannot serve: {error}")),
                _ => Failure::Error("cannot serve".to_owned()),
            }),
            () = &mut interrupted => {
                // The files must not be newer than the last bookmarks of the readers: from an older file, the readers
                // resume.
                save_all(collections).await;
                // The receiver has ended if serving has failed.
                _ = shutdown.send(());
                _ = serving.await;
                status.end();
                return Ok(());
            }
            Some((resource, error)) = ended.recv() => return Err(resource_failure(&resource, &error)),
            _ = save_tick.tick() => save_all(collections).await,
            _ = share_tick.tick(), if has_started => if let Some(budget) = budget {
                share_budget(budget, collections, None);
            },
            _ = status_tick.tick() => status.update(),
        }
    }
}

/// Saves the caches. While a cache is incomplete, its previous file stays.
async fn save_all(collections: &[MirroredCollection]) {
    for collection in collections {
        collection.save().await;
    }
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    Failure::Error(format!("cannot listen on {address}: {error}; choose another port with --listen"))
}
