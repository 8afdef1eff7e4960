//! `listwatch mirror`: keeps collections in memory and up to date, and serves them over the Kubernetes API.

mod collection;
mod endpoint;
mod lifetime;
mod start;
mod status;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::ValueEnum;
use listwatch_cache as reflector;
use listwatch_cache::{ChangeLogLimits, StorageFormat};
use listwatch_mirror::{Access, Mirror};
use tokio::runtime::{self, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};

use self::collection::{Collection, IndexBy};
use self::endpoint::Endpoint;
use self::lifetime::Lifetime;
use self::start::{share, start};
use self::status::Live;
use crate::cluster::connect::Connection;
use crate::cluster::query::ResourceParser;
use crate::cluster::resource;
use crate::failure::{Failure, chain};
use crate::signals::{end_slowly, interrupted};

/// Keeps collections in memory and up to date, and serves them read-only over the Kubernetes API to kubectl, client-go and kube-rs.
///
/// Readers use it in place of the API server: GETs, lists and watches of RESOURCE come from memory; discovery and other GETs are
/// forwarded with the mirror's own credentials; writes are refused. By default it serves on loopback, without authentication: each user
/// of this machine can read what the mirror may read. On another address it needs TLS, and reviews the token and the rights of each
/// reader.
///
/// The mirror survives disconnects and restarts of the server, and shows its progress on stderr. Ctrl-C and SIGTERM end it: open requests
/// have 10 s to end. docs/mirror.md has manifests for Kubernetes, with the RBAC.
#[derive(clap::Args)]
#[command(after_help = "\
Paths of its own: /livez, /healthz and /readyz (also /readyz/RESOURCE) for probes, without a token; /metrics for Prometheus.

A node-local mirror, for agents that share one trust domain. A DaemonSet runs this with `hostNetwork: true`, and the agents of the
node list and watch http://127.0.0.1:8002. After a restart the mirror resumes from --dir without a list:
  listwatch mirror pods nodes services endpointslices --dir /var/lib/listwatch --drop metadata.managedFields \\
      --index spec.nodeName --stale-reads

A mirror for a CI fleet. Each reader needs a token of the cluster, and has its own rights. The mirror needs `create` on `tokenreviews`
and `subjectaccessreviews`:
  listwatch mirror pods jobs configmaps -n ci --listen 0.0.0.0:8443 --tls-cert tls.crt --tls-key tls.key --budget 2048
  kubectl --server https://listwatch-mirror.ci.svc:8443 --certificate-authority ca.crt \\
      --token \"$(kubectl create token runner -n ci)\" get pods -n ci -o name

Looking around with kubectl. JSON, YAML, names and custom columns come from memory; the API server prints tables:
  listwatch mirror pods deploy,rs nodes --index pods:spec.nodeName --write-kubeconfig mirror.kubeconfig
  kubectl --kubeconfig mirror.kubeconfig get pods -A --field-selector spec.nodeName=node-1 -o name
  kubectl --kubeconfig mirror.kubeconfig get deploy,rs -A -o json > workloads.json
  kubectl --kubeconfig mirror.kubeconfig get --raw '/readyz?verbose'")]
pub struct Args {
    /// Resource types, as for `kubectl get`: pods, deploy, widgets.example.com; separated by spaces or commas
    #[arg(required = true, value_name = "RESOURCE", value_delimiter = ',', value_parser = ResourceParser, hide_possible_values = true)]
    resources: Vec<String>,

    /// Namespace to mirror; reads of other namespaces are forwarded. It does not apply to resources without namespaces [default: all]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,

    /// Storage format of objects in memory
    #[arg(long, value_enum, default_value_t = Format::Compressed, value_name = "FORMAT")]
    format: Format,

    /// Memory limit for all objects, indexes and change logs together, in MiB. Resources then sync one after the other. Fails if they do not
    /// fit; a resource with an object that does not fit later is answered with 503, until a relist has made it complete
    #[arg(long, value_name = "MIB")]
    budget: Option<usize>,

    /// Store objects without this field, such as `status` or `metadata.managedFields`; repeat for several fields. Selectors find
    /// nothing in a dropped field
    #[arg(long, value_name = "PATH")]
    drop: Vec<String>,

    /// Answer the field selector PATH=VALUE from an index, such as `spec.nodeName` or, for one of several resources, `pods:spec.nodeName`;
    /// repeat for several indexes
    #[arg(long, value_name = "[RESOURCE:]PATH")]
    index: Vec<IndexBy>,

    /// Directory with one file for each resource: load them at the start, so that watches resume without a list, and save them every 5
    /// minutes and at the end. A file of another collection is refused
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Memory limit for the recent changes of each resource, from which watches resume, in MiB. With --budget, the changes of all
    /// resources together take at most a quarter of the budget. A watch from an older change gets 410, and its reader lists again
    #[arg(long, value_name = "MIB", default_value_t = ChangeLogLimits::default().bytes >> 20)]
    log_size: usize,

    /// Age limit for the recent changes of each resource, such as 90s, 10m or 1h
    #[arg(long, value_name = "DURATION", default_value_t = Lifetime(ChangeLogLimits::default().age))]
    log_age: Lifetime,

    /// Answer GETs, lists and watches at the mirror's version. By default, the mirror first requests the newest version
    /// from the API server, unless the reader names a version
    #[arg(long)]
    stale_reads: bool,

    /// How to sync [default: what the server supports]. A list that exceeds the server's request timeout is repeated in pages
    #[arg(long, value_enum, value_name = "STRATEGY")]
    strategy: Option<Strategy>,

    /// Address and port to serve on; port 0 chooses a free one. An address that is not loopback requires --tls-cert and --tls-key
    #[arg(long, default_value = "127.0.0.1:8002", value_name = "ADDRESS", value_parser = address)]
    listen: SocketAddr,

    /// File of the certificate (PEM), followed by its intermediates: serve TLS, and review the token and the rights of each reader
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// File of the certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Write a kubeconfig for this mirror, without credentials, which only its owner can read
    #[arg(long, value_name = "FILE")]
    write_kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// As received: the fastest to read
    Encoded,
    /// Compressed, objects of one owner as differences: about a fourteenth of the size of whole Pods, an eighth without
    /// managedFields
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

/// The interval at which the status is shown.
const TICK: Duration = Duration::from_millis(250);

/// The interval at which the caches are saved.
const SAVE: Duration = Duration::from_secs(300);

/// The interval at which the free memory is distributed.
const SHARE: Duration = Duration::from_secs(10);

pub async fn run(args: Args) -> Result<(), Failure> {
    // Responses have threads of their own, so that they do not delay the watches. The reflectors and their connections share this
    // thread: waking another thread for each change would cost more than the change.
    let readers = runtime::Builder::new_multi_thread().thread_name("readers").enable_all().build();
    let readers = readers.map_err(|error| Failure::Error(format!("cannot start threads: {error}")))?;
    let handle = readers.handle().clone();
    let _readers = Readers(Some(readers));
    mirror(args, &handle).await
}

/// The threads of responses. A signal may drop the future of the command, and dropping a runtime in a future panics.
struct Readers(Option<Runtime>);

impl Drop for Readers {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn mirror(args: Args, readers: &Handle) -> Result<(), Failure> {
    let listen = args.listen;
    if args.tls_cert.is_none() && !listen.ip().is_loopback() {
        let reason = "is not a loopback address: use --tls-cert and --tls-key, so that the mirror reviews its readers";
        return Err(Failure::Usage(format!("--listen {listen} {reason}")));
    }
    let listener = TcpListener::bind(listen).map_err(|error| cannot_listen(listen, &error))?;
    let address = listener.local_addr().map_err(|error| cannot_listen(listen, &error))?;
    let (client, transport, reflecting) = args.connection.shared().await?;

    let mut found = Vec::new();
    for typed in args.resources {
        let resource = resource::find(&client, &typed).await?;
        if found.iter().any(|(_, other)| *other == resource) {
            return Err(Failure::Usage(format!("{typed}: {resource} is named twice")));
        }
        found.push((typed, resource));
    }
    let budget = args.budget.map(|mib| mib.saturating_mul(1 << 20));
    let mut log = ChangeLogLimits::default();
    log.age = args.log_age.0;
    log.bytes = args.log_size.saturating_mul(1 << 20);
    if let Some(budget) = budget {
        log.bytes = log.bytes.min(budget / 4 / found.len());
    }
    let projections = collection::projections(&args.drop, &found)?;
    let indexes = collection::indexes(&args.index, &found)?;
    let namespace = args.namespace.as_deref();
    let (mut collections, mut reflectors) = (Vec::new(), Vec::new());
    for (((_, resource), projection), indexes) in found.into_iter().zip(projections).zip(indexes) {
        let namespace = namespace.filter(|_| resource.is_namespaced()).map(str::to_owned);
        let file = args.dir.as_ref().map(|dir| dir.join(format!("{resource}.cache")));
        let format = args.format.into();
        let (collection, mut reflector) = Collection::new(&reflecting, resource, namespace, format, projection, log);
        if let Some(strategy) = args.strategy {
            reflector = reflector.strategy(strategy.into());
        }
        reflectors.push(reflector);
        collections.push(Collection { indexes, file, ..collection });
    }
    if let Some(dir) = &args.dir {
        let cannot_create = |error| Failure::Error(format!("cannot create {}: {error}", dir.to_string_lossy()));
        std::fs::create_dir_all(dir).map_err(cannot_create)?;
    }

    let mut mirror = Mirror::new(transport).stale_reads(args.stale_reads);
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        mirror = mirror.tls(certificate, key).access(Access::Reviewed);
    }
    for collection in &mut collections {
        mirror = mirror.resource(collection.mirrored());
    }
    let endpoint = Endpoint { address, certificate: args.tls_cert, namespace: args.namespace };
    if let Some(file) = &args.write_kubeconfig {
        endpoint.write_kubeconfig(file)?;
    }
    let (shutdown, stopped) = oneshot::channel::<()>();
    // It completes too when the sender is dropped.
    let mut serving = readers.spawn(mirror.serve(listener, async { _ = stopped.await }));

    let (end, mut ended) = mpsc::unbounded_channel();
    let mut starting = pin!(start(&collections, reflectors, budget, end));
    let mut has_started = false;
    let mut live = Live::new(&collections);
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let [mut save_tick, mut share_tick] = [SAVE, SHARE].map(|period| interval_at(Instant::now() + period, period));
    let mut interrupted = pin!(interrupted());
    // From here on, the loop handles signals: it saves the caches, and waits for open requests.
    end_slowly();
    loop {
        tokio::select! {
            started = &mut starting, if !has_started => {
                started?;
                has_started = true;
                live.update();
                endpoint.announce();
            }
            served = &mut serving => return Err(match served {
                Ok(Err(error)) => Failure::Error(format!("cannot serve: {error}")),
                _ => Failure::Error("cannot serve".to_owned()),
            }),
            () = &mut interrupted => {
                // The files must not be newer than the last bookmarks of the readers: from an older file, the readers resume.
                save(&collections).await;
                // The receiver has ended if serving has failed.
                _ = shutdown.send(());
                _ = serving.await;
                live.end();
                return Ok(());
            }
            Some((resource, error)) = ended.recv() => return Err(of(&resource, &error)),
            _ = save_tick.tick() => save(&collections).await,
            _ = share_tick.tick(), if has_started => if let Some(budget) = budget {
                share(budget, &collections, None);
            },
            _ = tick.tick() => live.update(),
        }
    }
}

/// Saves the caches. While a cache is incomplete, its previous file stays.
async fn save(collections: &[Collection]) {
    for collection in collections {
        collection.save().await;
    }
}

/// Returns the failure of a resource.
fn of(resource: &impl std::fmt::Display, error: &dyn std::error::Error) -> Failure {
    Failure::Error(format!("{resource}: {}", chain(error)))
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an address with a port, such as 127.0.0.1:8002")
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
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
