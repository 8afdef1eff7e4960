//! `listwatch mirror`: keeps collections in memory and up to date, and serves them over the Kubernetes API.

mod access_log;
mod args;
mod collection;
mod endpoint;
mod lifetime;
mod lookup;
mod offline;
mod open_files;
mod origin;
mod recording;
mod settings;
mod start;
mod status;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use listwatch::client::{Client, Transport};
use listwatch_cache::{ChangeLogLimits, Strategy};
use listwatch_mirror::{Access, Limits, Mirror, MirroredSet};
use tokio::runtime::{self, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep};
use tokio_util::sync::CancellationToken;

use self::access_log::start_access_log;
pub use self::args::MirrorArgs;
use self::collection::{MirroredCollection, parse_indexes, parse_projections};
use self::endpoint::MirrorEndpoint;
use self::lookup::{FoundResource, Lookup, find_later};
use self::offline::OfflineSource;
use self::open_files::{raise_open_files_limit, reader_limits};
use self::origin::FileOrigin;
use self::recording::MirrorRecording;
pub use self::settings::add_settings;
use self::start::{CollectionAndReflector, share_budget, start_all, start_one};
use self::status::StatusDisplay;
use crate::failure::Failure;
use crate::signals::{end_slowly, interrupted};
use crate::source::ExactFromHistory;

/// The interval at which the status is shown.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);

/// The interval at which the caches are saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(300);

/// The interval at which the free memory is distributed.
const SHARE_INTERVAL: Duration = Duration::from_secs(10);

pub async fn run(args: MirrorArgs) -> Result<(), Failure> {
    let limits = reader_limits(raise_open_files_limit());
    // Responses have threads of their own, so that they do not delay the watches. The reflectors and their connections
    // share this thread: waking another thread for each change would cost more than the change.
    let readers = runtime::Builder::new_multi_thread().thread_name("readers").enable_all().build();
    let readers = readers.map_err(|error| Failure::Error(format!("cannot start threads: {error}")))?;
    let handle = readers.handle().clone();
    let _readers = ReaderThreads(Some(readers));
    run_mirror(args, limits, &handle).await
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

async fn run_mirror(args: MirrorArgs, limits: Limits, readers: &Handle) -> Result<(), Failure> {
    if args.resources.is_empty() && args.connection.from().is_none() {
        return Err(Failure::Usage(
            "name the resources to mirror, as RESOURCE or as `resources` in the file".to_owned(),
        ));
    }
    let listener = bind(&args)?;
    let address = listener.local_addr().map_err(|error| cannot_listen(args.listen, &error))?;
    let probes = args.probe_listen.map(|address| {
        TcpListener::bind(address)
            .map_err(|error| Failure::Error(format!("cannot listen on {address} for probes: {error}")))
    });
    let probes = probes.transpose()?;
    let offline = OfflineSource::open(&args)?;
    let (client, transport, reflecting) = match &offline {
        Some(OfflineSource { transport, .. }) => {
            let client = Client::new(transport.clone());
            (client.clone(), Arc::new(transport.clone()) as Arc<dyn Transport>, client)
        }
        None => args.connection.shared_transport().await?,
    };
    // Lists at exact versions beyond the logs come from the history.
    let transport: Arc<dyn Transport> = match &args.history {
        Some(dir) => Arc::new(ExactFromHistory::new(transport, dir.clone())),
        None => transport,
    };
    let lookup = match &offline {
        Some(source) if args.resources.is_empty() => source.lookup().await?,
        _ => Lookup::start(&client, &args.resources, args.dir.as_deref()).await?,
    };
    let origin = args.dir.as_deref().zip(transport.server()).map(|(dir, server)| FileOrigin::open(dir, server));
    let factory = CollectionFactory { args: &args, client: reflecting, origin };
    let all = factory.create_all(&lookup)?;
    let recording = match &args.history {
        Some(dir) => Some(MirrorRecording::start(dir, &all)?),
        None => None,
    };
    if let Some(dir) = &args.dir {
        lookup.keep(dir);
    }
    let (leaving, leaves) = oneshot::channel::<()>();
    // Both complete too when the sender is dropped.
    let mirror = create_mirror(&args, offline.as_ref(), transport, &factory.client, probes)
        .limits(limits)
        .leaving(async { _ = leaves.await });
    let resources = mirror.resources();
    for (collection, _) in &all {
        resources.add(collection.mirrored());
    }
    for name in &lookup.missing {
        resources.set_missing(name);
    }
    let generated = offline.as_ref().and_then(|source| source.certificate.as_ref());
    let endpoint = MirrorEndpoint {
        address,
        certificate: args.tls_cert.clone(),
        generated_certificate: generated.map(|certificate| certificate.pem.clone()),
        token: offline.as_ref().map(|source| source.token.clone()),
        namespace: args.namespace.clone(),
    };
    if let Some(file) = &args.write_kubeconfig {
        endpoint.write_kubeconfig(file)?;
    }
    let (shutdown, stopped) = oneshot::channel::<()>();
    let serving = readers.spawn(mirror.serve(listener, async { _ = stopped.await }));
    let server = MirrorServer { endpoint, serving, leaving, shutdown, recording };
    let later: FuturesUnordered<_> = lookup.missing.into_iter().map(|typed| find_later(&client, typed)).collect();
    sync_and_serve(&factory, all, server, &resources, later).await
}

/// Binds the address of `--listen`. Without TLS it must be a loopback address.
fn bind(args: &MirrorArgs) -> Result<TcpListener, Failure> {
    let listen = args.listen;
    if args.tls_cert.is_none() && args.connection.from().is_none() && !listen.ip().is_loopback() {
        let reason = "is not a loopback address: use --tls-cert and --tls-key, so that the mirror reviews its readers";
        return Err(Failure::Usage(format!("--listen {listen} {reason}")));
    }
    TcpListener::bind(listen).map_err(|error| cannot_listen(listen, &error))
}

/// Creates the collections and their reflectors.
struct CollectionFactory<'a> {
    args: &'a MirrorArgs,
    client: Client,
    /// The server of the files; `None` without files.
    origin: Option<FileOrigin>,
}

impl CollectionFactory<'_> {
    fn budget(&self) -> Option<usize> {
        self.args.budget.map(|mib| mib.saturating_mul(1 << 20))
    }

    /// Creates the collections of what was found, and the directory of their files.
    fn create_all(&self, lookup: &Lookup) -> Result<Vec<CollectionAndReflector>, Failure> {
        let args = self.args;
        let mut log = ChangeLogLimits::default();
        log.age = args.log_age.0;
        log.bytes = args.log_size.saturating_mul(1 << 20);
        if let Some(budget) = self.budget() {
            log.bytes = log.bytes.min(budget / 4 / args.resources.len().max(1));
        }
        let projections = parse_projections(&args.drop, lookup)?;
        let indexes = parse_indexes(&args.index, lookup)?;
        let mut collections = Vec::new();
        for (((_, resource), projection), indexes) in lookup.found.iter().cloned().zip(projections).zip(indexes) {
            let namespace = args.namespace.as_deref().filter(|_| resource.is_namespaced()).map(str::to_owned);
            let file = args.dir.as_ref().map(|dir| dir.join(format!("{resource}.cache")));
            let format = args.format.into();
            // A file does not stream its state.
            let of_file = args.connection.from().map(|_| Strategy::ListThenWatch);
            let strategy = args.strategy.map(Into::into).or(of_file);
            let (collection, reflector) =
                MirroredCollection::new(&self.client, resource, namespace, format, projection, log, strategy);
            let is_same = self.origin.as_ref().is_some_and(FileOrigin::is_same);
            let reflector = if is_same { reflector.serve_unchecked() } else { reflector };
            collections.push((Arc::new(MirroredCollection { indexes, file, ..collection }), reflector));
        }
        if let Some(dir) = &args.dir {
            let cannot_create = |error| Failure::Error(format!("cannot create {}: {error}", dir.to_string_lossy()));
            std::fs::create_dir_all(dir).map_err(cannot_create)?;
        }
        Ok(collections)
    }

    /// Creates the collection of a resource that was missing. Paths that it does not have are of others.
    fn create_later(&self, found: FoundResource) -> Result<Option<CollectionAndReflector>, Failure> {
        let lookup = Lookup { found: vec![found], missing: vec![String::new()] };
        let created = self.create_all(&lookup)?.pop();
        if let Some(dir) = &self.args.dir {
            lookup.keep(dir);
        }
        Ok(created)
    }
}

/// Returns the mirror, without resources.
fn create_mirror(
    args: &MirrorArgs,
    offline: Option<&OfflineSource>,
    transport: Arc<dyn Transport>,
    client: &Client,
    probes: Option<TcpListener>,
) -> Mirror {
    // A file has one version.
    let mut mirror = Mirror::new(transport).client(client).stale_reads(args.stale_reads || offline.is_some());
    if let Some(generated) = offline.and_then(|source| source.certificate.as_ref()) {
        mirror = mirror.tls(generated.certificate(), generated.key()).access(Access::Reviewed);
    }
    mirror = mirror.unready_after(args.unready_after.map(|after| after.0));
    if args.access_log {
        mirror = mirror.access_log(start_access_log());
    }
    if let Some(probes) = probes {
        mirror = mirror.probes(probes, args.open_metrics);
    }
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        mirror = mirror.tls(certificate, key).access(Access::Reviewed).token_audiences(args.token_audience.clone());
        mirror = mirror.stale_reviews(args.stale_reviews.0);
    }
    mirror
}

/// A mirror that serves on its own threads.
struct MirrorServer {
    endpoint: MirrorEndpoint,
    serving: JoinHandle<io::Result<()>>,
    /// Lets `/readyz` fail.
    leaving: oneshot::Sender<()>,
    /// Ends the server, which then waits for open requests.
    shutdown: oneshot::Sender<()>,
    recording: Option<MirrorRecording>,
}

/// Syncs the collections, and serves them until the first signal.
async fn sync_and_serve(
    factory: &CollectionFactory<'_>,
    all: Vec<CollectionAndReflector>,
    mirror: MirrorServer,
    resources: &MirroredSet,
    mut later: FuturesUnordered<impl Future<Output = FoundResource>>,
) -> Result<(), Failure> {
    let MirrorServer { endpoint, mut serving, leaving, shutdown, mut recording } = mirror;
    let mut collections: Vec<_> = all.iter().map(|(collection, _)| Arc::clone(collection)).collect();
    let (budget, frozen) = (factory.budget(), CancellationToken::new());
    let mut starting = pin!(start_all(all, budget, frozen.clone()));
    let mut has_started = false;
    let mut status = StatusDisplay::new();
    for collection in &collections {
        status.add(collection);
    }
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
                // The receivers have ended if serving has failed.
                _ = leaving.send(());
                sleep(factory.args.shutdown_delay.0).await;
                // The files then have the version of the last bookmarks of the readers, which resume from there.
                frozen.cancel();
                _ = shutdown.send(());
                _ = serving.await;
                if let Some(recording) = recording.take() {
                    recording.end();
                }
                save_all(&collections, factory.origin.as_ref()).await;
                status.end();
                return Ok(());
            }
            Some(found) = later.next(), if has_started => {
                let typed = found.0.clone();
                if let Some((collection, reflector)) = factory.create_later(found)? {
                    resources.add(collection.mirrored());
                    resources.set_found(&typed);
                    status.add(&collection);
                    collections.push(Arc::clone(&collection));
                    let frozen = frozen.clone();
                    tokio::spawn(async move { start_one(&collection, reflector, frozen).await });
                    if let Some(budget) = budget {
                        share_budget(budget, &collections, None);
                    }
                }
            }
            _ = save_tick.tick() => save_all(&collections, factory.origin.as_ref()).await,
            _ = share_tick.tick(), if has_started => if let Some(budget) = budget {
                share_budget(budget, &collections, None);
            },
            _ = status_tick.tick() => status.update(),
        }
    }
}

/// Saves the caches. While a cache is incomplete, its previous file stays.
async fn save_all(collections: &[Arc<MirroredCollection>], origin: Option<&FileOrigin>) {
    for collection in collections {
        collection.save().await;
    }
    let are_from_server = collections.iter().all(|collection| collection.cache.status().is_up_to_date);
    if let Some(origin) = origin.filter(|_| are_from_server) {
        origin.keep();
    }
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    Failure::Error(format!("cannot listen on {address}: {error}; choose another port with --listen"))
}
