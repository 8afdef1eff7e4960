//! Keeps a [`Store`] synced with a collection of an API server.
//!
//! ```no_run
//! use k8s_pb::api::core::v1::Pod;
//! use listwatch::ItemError;
//! use listwatch_cache::{StorageFormat, Store};
//! use listwatch::client::{Selection, Client, Resource};
//! use listwatch::path::pod;
//! use listwatch_cache::Reflector;
//!
//! # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! let reflector = Reflector::<Pod>::new(&client, &Resource::PODS).store(Store::new(StorageFormat::Encoded));
//! let pods = reflector.cache();
//! let by_node = pods.index("node", |pod| {
//!     Ok::<_, ItemError>(pod::NODE_NAME.str(pod.item()?)?.map(String::from))
//! });
//! let running = tokio::spawn(reflector.run());
//! let version = pods.synced().await?;
//! println!("{} Pods at version {version}, {} on node-1", pods.len(), by_node.count("node-1"));
//! let Err(error) = running.await?;
//! Err(error.into())
//! # }
//! ```
//!
//! # Observing a reflector
//!
//! [`ReflectorStatus`] has counters, and the last errors. Each attempt to list and watch is a span of the crate `tracing`,
//! `listwatch.reflector`, with the fields `resource`, `attempt`, `resource_version`, `strategy`, `because` (of the strategy) and `error`.
//!
//! | event | level | fields |
//! |---|---|---|
//! | `listwatch.synced`: the cache is up to date | info | `resource_version`, `objects`, `skipped` |
//! | `listwatch.attempt_ended`: an attempt ended | warn | `error`, `seconds` (until the next) |
//! | `listwatch.relist`: the store has room for skipped objects, or the watch is silent | info | `resource_version` (of the server) |
//! | `listwatch.load_retry`: a loaded file cannot be compared with the server | warn | `resource`, `error`, `seconds` (until the next) |
//! | `listwatch.skipped`: the store could not hold an object | warn | `skipped` |
//! | `listwatch.index_error`: the function of an index failed | warn | `error`, `errors` |

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod cache;
mod feed;
mod silence;
mod status;
mod sync;
mod warm;

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, field};

pub use self::cache::Cache;
use self::cache::Collection;
use self::feed::{Feed, Received, Step};
use self::silence::Silence;
pub use self::status::{ReflectorStatus, SyncError};
pub use self::sync::Strategy;
use self::sync::{Attempt, Next, SyncState};
use crate::{ChangeLogLimits, StorageFormat, Store, StoreType};
use listwatch::client::{
    Client, Error, Kind, List, ListParams, Resource, ResourceVersion, Retry, Selection, WatchParams,
};
use listwatch::internal::{Connections, MAX_RETRY_AFTER, PAGE, chain, is_comparable};
use listwatch::{FromRef, Projection, TypeMeta};

/// The longest wait between two attempts, which jitter may double.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// A watch that kept the cache synced for this time resets the backoff, even without events.
const HEALTHY: Duration = Duration::from_secs(10);

/// Keeps a [`Store`] synced with a collection: it lists and watches, and after an error or a restart of the server it
/// resumes the watch from the last version, with backoff and without a limit. It relists only if that version has
/// expired, the initial state was interrupted, the server went back to an older version, the watch makes no progress,
/// or a full store has room for skipped objects.
///
/// The store keeps serving its objects until a list is complete; a list that fails deletes nothing. Objects that are unchanged in
/// a list are neither decoded nor stored again.
///
/// A server that was restored from a backup has older resource versions, and sends nothing to a watch from a newer
/// version. So when a watch has delivered nothing for 2 minutes, not even a bookmark, the reflector requests the
/// server's version by a list of one object. If it is older, the reflector relists, and treats no object as unchanged.
/// It does not detect a restored server that has passed the version of the cache by then. If it is newer, and the watch
/// is not open, or is silent for another 2 minutes, the reflector relists too: the server may have forgotten the
/// version without reporting it. So a quiet collection is listed every 4 minutes if its server sends no bookmarks.
#[must_use = "nothing is sent until run is polled"]
pub struct Reflector<T: StoreType + ?Sized> {
    client: Client,
    resource: Resource,
    selection: Selection,
    namespace: Option<String>,
    projection: Option<Projection>,
    store: Attached<T>,
    sync: SyncState,
    /// The time at which the collection was complete in this attempt.
    synced_at: Option<Instant>,
    status: Arc<watch::Sender<ReflectorStatus>>,
    /// The objects that it stores; set once it runs.
    collection: Arc<OnceLock<Collection>>,
}

/// The store of a reflector. Its subscribers end with the reflector.
struct Attached<T: StoreType + ?Sized> {
    store: Store<T>,
    /// The error that ended the reflector.
    cause: Option<Error>,
}

impl<T: StoreType + ?Sized> Attached<T> {
    fn new(store: Store<T>) -> Self {
        store.attach();
        Self { store, cause: None }
    }
}

impl<T: StoreType + ?Sized> Deref for Attached<T> {
    type Target = Store<T>;

    fn deref(&self) -> &Store<T> {
        &self.store
    }
}

impl<T: StoreType + ?Sized> Drop for Attached<T> {
    fn drop(&mut self) {
        self.store.detach(self.cause.take().map(|cause| Arc::new(cause) as _));
    }
}

impl<T: StoreType + Kind + ?Sized> Reflector<T> {
    /// Creates a reflector of the resource of `T`, with its own store, which keeps objects encoded.
    pub fn of(client: &Client) -> Self {
        Self::new(client, &T::resource())
    }
}

impl<T: StoreType + ?Sized> Reflector<T> {
    /// Creates a reflector with its own store, which keeps objects encoded.
    pub fn new(client: &Client, resource: &Resource) -> Self {
        Self {
            client: client.clone(),
            resource: resource.clone(),
            selection: Selection::default(),
            namespace: None,
            projection: None,
            store: Attached::new(Store::new(StorageFormat::Encoded)),
            sync: SyncState::default(),
            synced_at: None,
            status: Arc::new(watch::Sender::default()),
            collection: Arc::default(),
        }
    }

    /// Sets the selectors, the shard and the form of objects, for example metadata only: all objects, whole, unless set.
    ///
    /// With a [shard](Selection::shard) the store has that part of the collection, even if the server does not support shards. The
    /// example `shards` of `listwatch-kube` distributes a collection over replicas.
    pub fn selection(mut self, selection: Selection) -> Self {
        self.sync.forget();
        self.selection = selection;
        self
    }

    /// Restricts the reflector to a namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.sync.forget();
        self.namespace = Some(namespace.into());
        self
    }

    /// Stores only a part of each object, which must include its name, namespace, uid and resource version.
    pub fn projection(mut self, projection: Projection) -> Self {
        self.sync.forget();
        self.projection = Some(projection);
        self
    }

    /// Sets the store, before [`change_log`](Self::change_log). It may contain objects: the first complete list deletes the objects that the collection does not have. Use a
    /// store for only one reflector at a time.
    pub fn store(mut self, store: Store<T>) -> Self {
        self.sync.forget();
        self.store = Attached::new(store);
        self
    }

    /// Keeps a log of the changes, for readers that resume at a version: see [`StoreReader::changes_after`]. Without it, readers get
    /// changes only as a [`Subscriber`](crate::Subscriber), which coalesces them.
    ///
    /// The log is open while the store has the whole collection. A relist closes it, and it opens again, without changes, when the
    /// relist is complete. It has the changes that the watch delivers, not the writes of [`Cache::apply`]. It costs no copy of the current
    /// objects.
    ///
    /// [`StoreReader::changes_after`]: crate::StoreReader::changes_after
    pub fn change_log(self, limits: ChangeLogLimits) -> Self {
        self.store.keep_changes(limits);
        self
    }

    /// Sets how the reflector syncs. By default it uses [`Strategy::WatchList`]; [`Strategy::ListThenWatch`] if the server is known to
    /// send no initial events; and [`Strategy::WatchFirst`] after the version of a list had expired before the watch began.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.sync.chosen = Some(strategy);
        self
    }

    /// Lets [`run`](Self::run) end on errors that may last until the caller intervenes, if the collection was never complete:
    /// 401, 403, 404, unreadable credentials, a response that is not a list. By default it retries them, because a role or the
    /// resource may be created later.
    pub fn fail_fast(mut self) -> Self {
        self.sync.fails_fast = true;
        self
    }

    /// Returns a handle for readers of the store.
    #[must_use]
    pub fn cache(&self) -> Cache<T> {
        Cache { store: self.store.clone(), status: self.status.subscribe(), collection: Arc::clone(&self.collection) }
    }

    /// Keeps the store synced until the future is dropped, or until an error ends it.
    ///
    /// Attempts back off exponentially with jitter, from the [`delay`](Retry::delay) of the client's [`Retry`] to 30 s (doubled at
    /// most by jitter). A watch that lived for 10 s resets the backoff. Each error is logged;
    /// [`last_error`](ReflectorStatus::last_error) has the last error.
    ///
    /// # Errors
    ///
    /// [`Error`] when the selection is invalid, or the resource [cannot be watched](Resource::without_watch).
    ///
    /// Until the collection was complete (a loaded file counts), also when the caller has to change something: the
    /// server refuses the request (400, 422), or TLS failed before its first response
    /// ([`TransportErrorKind::Tls`](listwatch::client::TransportErrorKind::Tls)). With [`fail_fast`](Self::fail_fast),
    /// lasting errors end it then too. Once the collection was complete, it retries all errors. Subscribers get the
    /// error as [`Change::Ended`](crate::Change::Ended).
    ///
    /// An object that cannot be stored is not an error: it is [skipped](ReflectorStatus::skipped), and the cache is incomplete. The
    /// reflector relists once the store has room for an object that exceeded the [budget](Store::set_budget).
    pub async fn run(mut self) -> Result<Infallible, Error> {
        let Err(error) = self.run_until_error().await;
        self.status.send_modify(|status| status.ended_by = Some(error.clone()));
        self.store.cause = Some(error.clone());
        Err(error)
    }

    async fn run_until_error(&mut self) -> Result<Infallible, Error> {
        self.resource.check_watchable()?;
        self.selection.validate()?;
        let holds = self.holds()?;
        self.collection.get_or_init(|| Collection {
            holds,
            type_meta: TypeMeta::new(self.resource.api_version(), self.resource.kind()),
            namespace: self.namespace.clone(),
            selection: self.selection.clone(),
            projection: self.projection.clone(),
        });
        self.store.set_type_meta(self.selection.type_meta(&self.resource));
        let mut backoff = self.client.backoff(MAX_DELAY);
        let mut attempts = 0_u64;
        loop {
            let has_initial_events = self.client.has_initial_events(&self.resource)?;
            let attempt = self.sync.attempt(has_initial_events);
            let Attempt { strategy, because, .. } = attempt;
            attempts += 1;
            self.status.send_modify(|status| status.strategy = (!attempt.resumes).then_some(strategy));
            let span = tracing::info_span!(
                "listwatch.reflector",
                resource = %self.resource,
                resource_version = field::Empty,
                attempt = attempts,
                error = field::Empty,
                %strategy,
                because,
            );
            let (error, next) = self.attempt(&attempt).instrument(span.clone()).await;
            if let Some(error) = &error {
                span.record("error", field::display(chain(error)));
                failed(&self.status, error.clone());
            }
            if self.synced_at.take().is_some_and(|at| at.elapsed() >= HEALTHY) {
                backoff = self.client.backoff(MAX_DELAY);
            }
            let wait = match (next, &error) {
                (Next::Now, _) => Duration::ZERO,
                (Next::Give, Some(error)) => return Err(error.clone()),
                _ => {
                    let asked = error.as_ref().and_then(Error::retry_after).unwrap_or_default().min(MAX_RETRY_AFTER);
                    backoff.next().unwrap_or(MAX_DELAY).max(asked)
                }
            };
            let error = error.as_ref().map(|error| field::display(chain(error)));
            span.in_scope(|| tracing::warn!(name: "listwatch.attempt_ended", error, seconds = wait.as_secs_f64(), "the attempt ended: retrying"));
            sleep(wait).await;
        }
    }

    /// Syncs until an error ends the attempt, another replace of the store begins, or the server went back.
    async fn attempt(&mut self, attempt: &Attempt) -> (Option<Error>, Next) {
        let pages = attempt.pages;
        let (list, watch) = match attempt.strategy {
            _ if attempt.resumes => (None, Some(self.watch().after_version(attempt.known.clone()))),
            Strategy::WatchList => (None, Some(self.watch())),
            Strategy::ListThenWatch => (Some(self.list(attempt.version.clone(), pages).into_pages()), None),
            Strategy::WatchFirst => match self.recent_version().await {
                Ok(version) if self.sync.is_ahead_of(&version) => return (None, self.sync.went_back()),
                // For an object from both, the older state could not be determined.
                Ok(version) if !is_comparable(&version) => {
                    (Some(self.list(ResourceVersion::MostRecent, pages).into_pages()), None)
                }
                Ok(version) => {
                    // The parallel watch corrects pages of different versions.
                    let list = self.list(ResourceVersion::AtLeast(version.clone()), pages).allow_inconsistent();
                    (Some(list.into_pages()), Some(self.watch().after_version(version)))
                }
                Err(error) => {
                    let next = self.sync.list_failed(attempt, &error, self.client.classify(&error));
                    return (Some(error), next);
                }
            },
        };
        let (store, projection) = (self.store.clone(), self.projection.take());
        let mut feed = Feed::new(&store, projection.as_ref(), list, watch, attempt);
        let mut silence = Silence::new();
        // True if the watch has been silent since the server was found to have newer versions.
        let mut is_suspect = false;
        let ended = loop {
            let step = poll_fn(|cx| match feed.poll(cx) {
                Poll::Pending if self.synced_at.is_some() => {
                    silence.poll(cx, || Box::pin(self.recent_version())).map(Step::Silent)
                }
                step => step,
            });
            let step = step.await;
            silence.ended();
            let resumes_from = feed.resumes_from().map(str::to_owned);
            let (received, version) = feed.take_received();
            let received = self.stored(received);
            match &step {
                Step::Synced(version) => self.synced(version, 1),
                Step::Resumed(version) => self.synced(version, 0),
                _ => {}
            }
            self.written(&received, version, resumes_from);
            match step {
                Step::Synced(version) => {
                    if feed.needs_watch() {
                        feed.set_watch(self.watch().after_version(version));
                    }
                }
                Step::Superseded => break (None, Next::Later),
                Step::WentBack => break (None, self.sync.went_back()),
                Step::Silent(Ok(version)) if self.sync.is_ahead_of(&version) => break (None, self.sync.went_back()),
                Step::Silent(Ok(version)) if self.sync.is_behind(&version) => {
                    // A server that is too busy for watches must not get lists instead.
                    let is_refused = |error: &Error| error.code() == Some(429);
                    let is_throttled = self.status.borrow().last_error.as_ref().is_some_and(is_refused);
                    // A server may send no bookmarks, and have no changes, so an open watch gets a second probe.
                    let relists = if feed.is_watching() { is_suspect } else { !is_throttled };
                    if relists {
                        tracing::info!(name: "listwatch.relist", resource_version = version, "relisting: the watch is silent, and the server has newer versions");
                        break (None, self.sync.fell_behind());
                    }
                    is_suspect = true;
                }
                Step::Written => is_suspect &= !received.has_heard,
                Step::Resumed(_) | Step::Silent(Ok(_)) => {}
                Step::Silent(Err(error)) => failed(&self.status, error),
                Step::ListFailed(error) => {
                    let next = self.sync.list_failed(attempt, &error, self.client.classify(&error));
                    break (Some(error), next);
                }
                Step::WatchFailed(error) => {
                    let next = self.sync.watch_failed(attempt, &error, self.client.classify(&error));
                    break (Some(error), next);
                }
            }
            if self.synced_at.is_some() && self.store.has_room_for_skipped() {
                tracing::info!(name: "listwatch.relist", "relisting: the store has room for skipped objects");
                break (None, Next::Later);
            }
            tokio::task::consume_budget().await;
        };
        self.projection = projection;
        ended
    }

    /// Updates the skipped objects in the status. Call it before the resource version in the status is updated.
    fn stored(&self, mut received: Received) -> Received {
        if let Some(skipped) = &received.skipped {
            tracing::warn!(name: "listwatch.skipped", skipped = %chain(skipped), "skipped an object: the cache is incomplete");
        }
        let (index_errors, mut last_index_error) = self.store.take_index_errors();
        if let Some(error) = &last_index_error {
            tracing::warn!(name: "listwatch.index_error", error = %chain(error), errors = index_errors, "an index function failed: the index lacks an object");
        }
        let skipped = self.store.skipped();
        self.status.send_if_modified(|status| {
            let is_news = status.skipped != skipped || received.skipped.is_some() || index_errors > 0;
            status.skipped = skipped;
            status.last_skipped = received.skipped.take().or(status.last_skipped.take());
            status.index_errors += index_errors;
            status.last_index_error = last_index_error.take().or(status.last_index_error.take());
            is_news
        });
        received
    }

    fn written(&mut self, received: &Received, version: Option<&str>, resumes_from: Option<String>) {
        let version = version.filter(|version| self.sync.watched(version));
        if let Some(version) = version {
            self.store.advance(version);
        }
        let last_synced_at = (received.has_heard && self.synced_at.is_some()).then(|| Instant::now().into_std());
        self.status.send_modify(|status| {
            status.events += received.written;
            status.last_synced_at = last_synced_at.or(status.last_synced_at);
            if let Some(version) = version {
                status.resource_version = Some(version.to_owned());
                status.resumes_from = resumes_from;
            }
        });
    }

    /// Records that the collection is complete; `sent` is 1 if the server has sent all of it.
    fn synced(&mut self, version: &str, sent: u64) {
        self.sync.synced(version);
        let now = Instant::now();
        self.synced_at = Some(now);
        let skipped = self.store.skipped();
        tracing::Span::current().record("resource_version", version);
        tracing::info!(name: "listwatch.synced", resource_version = version, objects = self.store.len(), skipped, "synced");
        self.status.send_modify(|status| {
            status.syncs += sent;
            status.last_synced_at = Some(now.into_std());
            status.resource_version = Some(version.to_owned());
            status.resumes_from = Some(version.to_owned());
        });
    }

    fn watch(&self) -> Connections {
        let params = WatchParams::with_initial_state().selection(self.selection.clone());
        let watch = self.client.watch::<T>(&self.resource, &params);
        let watch = match &self.namespace {
            Some(namespace) => watch.namespace(namespace),
            None => watch,
        };
        let status = Arc::clone(&self.status);
        let watch = watch.on_disconnect(move |disconnect| {
            if let Some(error) = &disconnect.error {
                failed(&status, error.clone());
            }
        });
        let watch = if self.sync.fails_fast() { watch.fail_fast() } else { watch };
        watch.into_connections()
    }

    fn list(&self, version: ResourceVersion, pages: bool) -> List<FromRef<T>> {
        let params = ListParams::new(self.selection.clone()).resource_version(version);
        // The list retries an interrupted page; `SyncState` handles the errors of a list in one response.
        let (client, params) =
            if pages { (self.client.clone(), params.page_size(PAGE)) } else { (self.once(), params) };
        let list = client.list::<T>(&self.resource, &params);
        match &self.namespace {
            Some(namespace) => list.namespace(namespace),
            None => list,
        }
    }

    /// Requests the resource version of a list of one object.
    fn recent_version(&self) -> impl Future<Output = Result<String, Error>> + Send + use<T> {
        self.once().current_version(&self.resource, &self.selection, self.namespace.as_deref())
    }

    fn once(&self) -> Client {
        self.client.clone().retry(Retry::never())
    }
}

fn failed(status: &watch::Sender<ReflectorStatus>, error: Error) {
    status.send_modify(|status| {
        status.errors += 1;
        status.last_error = Some(error);
    });
}

impl<T: StoreType + ?Sized> fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("resource", &self.resource)
            .field("status", &*self.status.borrow())
            .finish_non_exhaustive()
    }
}
