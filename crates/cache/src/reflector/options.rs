//! The options of a reflector.

use std::fmt;
use std::sync::Arc;

use listwatch::client::{Client, Kind, Resource, Selection};
use listwatch::{Projection, StoreType};
use tokio::sync::{mpsc, watch};

use crate::log::open_log::ChangeLogLimits;
use crate::reflector::cache::Cache;
use crate::reflector::prepared::{AttachedStore, PreparedReflector};
use crate::reflector::sync::{Strategy, SyncPolicy};
use crate::state::entry::StorageFormat;
use crate::store::writable::Store;

/// Keeps a [`Store`] synced with a collection of an API server.
///
/// It lists and watches. After an error or a restart of the server, it resumes the watch from the last version, with
/// backoff and as often as needed. It relists only if it must: that version has expired, the initial state was
/// interrupted, the server went back to an older version, the watch makes no progress, a full store has room for
/// skipped objects again, or the watch does not deliver a write that the caller [applied](Cache::apply) before the last
/// relist.
///
/// Until a list is complete, the store keeps serving its objects, and a list that fails deletes nothing. Objects that a
/// list shows unchanged are neither decoded nor stored again.
///
/// A server that was restored from a backup continues at older resource versions, and sends nothing to a watch from a
/// newer one. If a watch delivers nothing for 2 minutes, not even a bookmark, the reflector therefore lists one object
/// to learn the server's version:
///
/// | the server's version | the reflector |
/// |---|---|
/// | is older than the cache's | relists, and treats no object as unchanged |
/// | is newer, and the watch is not open, or is silent for another 2 minutes | relists: the server may have forgotten the version without reporting it |
/// | is the same | continues |
///
/// Consequently, a quiet collection of a server without bookmarks is listed every 4 minutes, and a restored server that
/// has passed the cache's version by the time of the check goes undetected.
///
/// ```no_run
/// use k8s_pb::api::core::v1::Pod;
/// use listwatch::ItemError;
/// use listwatch::client::Client;
/// use listwatch::path::pod;
/// use listwatch_cache::{Reflector, StorageFormat};
///
/// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let pods = Reflector::<Pod>::of(&client).store(StorageFormat::Compressed).spawn();
/// let by_node = pods.index("node", |pod| {
///     Ok::<_, ItemError>(pod::NODE_NAME.str(pod.item()?)?.map(String::from))
/// });
/// let version = pods.synced().await?;
/// println!("{} Pods at version {version}, {} on node-1", pods.len(), by_node.count("node-1"));
/// # Ok(())
/// # }
/// ```
///
/// # Observing a reflector
///
/// [`ReflectorStatus`](crate::ReflectorStatus) shows counters and the last errors. Each attempt to list and watch is a
/// span of the crate `tracing`, `listwatch.reflector`, with the fields `resource`, `attempt`, `resource_version`,
/// `strategy`, `because` (why that strategy) and `error`.
///
/// | event | level | fields |
/// |---|---|---|
/// | `listwatch.synced`: the cache is up to date | info | `resource_version`, `objects`, `skipped` |
/// | `listwatch.outage`, `listwatch.outage_ended`: see [`listwatch::client`] | warn | |
/// | `listwatch.attempt_ended`: an attempt ended | info | `error`, `seconds` (until the next) |
/// | `listwatch.relist`: the store has room for skipped objects, or the watch is silent | info | `resource_version` (of the server) |
/// | `listwatch.load_retry`: a loaded file cannot be compared with the server | warn | `resource`, `error`, `seconds` (until the next) |
/// | `listwatch.skipped`: the store could not hold an object | warn | `skipped` |
/// | `listwatch.index_error`: the function of an index failed | warn; error if it panicked | `error`, `errors` |
/// | `listwatch.ended`: the reflector ended | info; error after a panic, or an error of a [spawned](Self::spawn) reflector | `resource`, and `reason` or `error` |
///
/// # Before the start
///
/// The methods of this type only set options, in any order, and [`spawn`](Self::spawn) starts the reflector with them.
/// [`prepare`](Self::prepare) creates the store without starting anything, so that you can first add readers or
/// [load](PreparedReflector::load) a file, or [run](PreparedReflector::run) the reflector in a task of your own.
#[must_use = "nothing is sent until it is spawned, or prepared and run"]
pub struct Reflector<T: StoreType + ?Sized> {
    client: Client,
    resource: Resource,
    selection: Selection,
    namespace: Option<String>,
    projection: Option<Projection>,
    store: Store<T>,
    change_log: Option<ChangeLogLimits>,
    strategy: Option<Strategy>,
    fails_fast: bool,
}

impl<T: StoreType + Kind + ?Sized> Reflector<T> {
    /// Creates a reflector for the resource of `T`, with its own store, which keeps objects encoded.
    pub fn of(client: &Client) -> Self {
        Self::new(client, &T::resource())
    }
}

impl<T: StoreType + ?Sized> Reflector<T> {
    /// Creates a reflector with its own store, which keeps objects encoded.
    pub fn new(client: &Client, resource: &Resource) -> Self {
        Self {
            client: client.without_deadline(),
            resource: resource.clone(),
            selection: Selection::default(),
            namespace: None,
            projection: None,
            store: Store::new(StorageFormat::Encoded),
            change_log: None,
            strategy: None,
            fails_fast: false,
        }
    }

    /// Sets the selectors, the shard and the form of objects. By default, the reflector stores all objects as a whole.
    ///
    /// With a [shard](Selection::shard), the store contains that part of the collection, even if the server does not
    /// support shards. The example `shards` of `listwatch-kube` distributes a collection over replicas.
    pub fn selection(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Limits the reflector to a namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Stores only a part of each object, which must include its name, namespace, uid and resource version.
    pub fn projection(mut self, projection: Projection) -> Self {
        self.projection = Some(projection);
        self
    }

    /// Sets the store, or with a [`StorageFormat`] the format of a new one.
    ///
    /// The store may already contain objects; the first complete list deletes those that the collection does not
    /// contain. Use a store for only one reflector at a time.
    pub fn store(mut self, store: impl Into<Store<T>>) -> Self {
        self.store = store.into();
        self
    }

    /// Keeps a log of the changes, for readers that resume at a version: see [`StoreReader::changes_after`].
    ///
    /// Without the log, readers receive changes only through a [`Subscriber`](crate::Subscriber), which coalesces them.
    /// The log is open while the store contains the whole collection. A relist closes it, and once the relist is
    /// complete, the log opens again without changes. It contains what the watch delivers, but not the writes of
    /// [`Cache::apply`], and it copies no current object.
    ///
    /// [`StoreReader::changes_after`]: crate::StoreReader::changes_after
    pub fn change_log(mut self, limits: ChangeLogLimits) -> Self {
        self.change_log = Some(limits);
        self
    }

    /// Sets how the reflector syncs.
    ///
    /// By default it chooses [`Strategy::WatchList`]; or [`Strategy::ListThenWatch`] once it knows that the server
    /// sends no initial events; or [`Strategy::WatchFirst`] once the version of a list has expired before the watch
    /// began.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Ends the reflector on errors that may last until somebody intervenes, until the collection is complete once.
    ///
    /// These are 401, 403, 404, unreadable credentials, and a response that is not a list. By default, the reflector
    /// retries them, because somebody may yet create the role or the resource.
    pub fn fail_fast(mut self) -> Self {
        self.fails_fast = true;
        self
    }

    /// Creates the cache with these options, and sends nothing yet.
    pub fn prepare(self) -> PreparedReflector<T> {
        let Self { client, resource, selection, namespace, projection, store, change_log, strategy, fails_fast } = self;
        if let Some(limits) = change_log {
            store.keep_changes(limits);
        }
        let outage = client.outage(&resource);
        let status = Arc::<watch::Sender<_>>::default();
        PreparedReflector {
            attached: AttachedStore::new(store, resource.clone(), Arc::clone(&status)),
            client,
            resource,
            selection,
            namespace,
            projection,
            sync: SyncPolicy::new(strategy, fails_fast),
            synced_at: None,
            outage,
            status,
            stop: Arc::default(),
            quiet_spans: mpsc::channel(8),
            collection: Arc::default(),
            serves_unchecked: false,
        }
    }

    /// Starts the reflector in a task of tokio, and returns its cache: see [`PreparedReflector::spawn`].
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn spawn(self) -> Cache<T> {
        self.prepare().spawn()
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("resource", &self.resource)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
