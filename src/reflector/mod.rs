//! A [`Store`] that is kept in step with a collection of an API server.
//!
//! ```no_run
//! use k8s_pb::api::core::v1::Pod;
//! use listwatch::ItemError;
//! use listwatch::cache::{StorageFormat, Store};
//! use listwatch::client::{Client, Resource};
//! use listwatch::object::path::pod;
//! use listwatch::reflector::Reflector;
//!
//! # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! let reflector = Reflector::<Pod>::new(&client, &Resource::PODS).store(Store::new(StorageFormat::Encoded));
//! let pods = reflector.cache();
//! let by_node = pods.index("node", |pod| {
//!     Ok::<_, ItemError>(pod::NODE_NAME.str(pod.encoded()?)?.map(String::from))
//! });
//! tokio::spawn(reflector.run());
//! println!("{} Pods at version {}", pods.len(), pods.synced().await?);
//! println!("{} of them on node-1", by_node.count("node-1"));
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod feed;
mod own;
mod silence;
mod sync;
mod warm;

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{self, Duration};

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, field};

pub use self::feed::SkippedObject;
use self::feed::{Feed, Progress, Step};
use self::own::Scope;
use self::silence::Silence;
pub use self::sync::Strategy;
use self::sync::{Attempt, Next, SyncState, is_comparable};
pub use self::warm::ColdStart;
use crate::adapt::FromRef;
use crate::cache::{IndexError, SaveError, StorageFormat, Store, Stored};
use crate::client::{
    Client, Connections, Error, Kind, List, ListParams, PAGE, Resource, ResourceVersion, Retry, Selection, WatchParams,
};
use crate::object::{Item, Projection, compare_resource_versions};

/// The longest wait before a collection is asked for again; up to twice that comes at random.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// A cache that was in step for so long had a good watch, even if nothing happened.
const HEALTHY: Duration = Duration::from_secs(10);

/// Keeps a [`Store`] in step with a collection: lists, watches, and does so again whatever ends it.
///
/// The store has what it had, and serves it, until a list is complete: one that fails half way deletes nothing. Objects that
/// a list brings unchanged are neither decoded nor stored again.
///
/// A server that was restored from a backup has older versions, and sends a watch from a newer one nothing. So where no newer
/// version came for 2 minutes, as it does with bookmarks where anything is written, the server's version is asked for by a list
/// of one object. If it is older, the collection is listed anew, and nothing is taken for unchanged. A restored server that gets
/// past the version of the cache before that is not noticed.
#[must_use = "nothing is sent until run is polled"]
pub struct Reflector<T: Item + Stored + ?Sized> {
    client: Client,
    resource: Resource,
    selection: Selection,
    namespace: Option<String>,
    projection: Option<Projection>,
    store: Attached<T>,
    sync: SyncState,
    /// When the collection was complete, in this attempt.
    synced_at: Option<Instant>,
    status: Arc<watch::Sender<Status>>,
    /// Which objects it stores, once it runs.
    scope: Arc<OnceLock<Scope>>,
}

/// The store of a reflector, whose subscribers end with it.
struct Attached<T: Stored + ?Sized>(Store<T>);

impl<T: Stored + ?Sized> Attached<T> {
    fn new(store: Store<T>) -> Self {
        store.attach();
        Self(store)
    }
}

impl<T: Stored + ?Sized> Deref for Attached<T> {
    type Target = Store<T>;

    fn deref(&self) -> &Store<T> {
        &self.0
    }
}

impl<T: Stored + ?Sized> Drop for Attached<T> {
    fn drop(&mut self) {
        self.0.detach();
    }
}

/// A [`Store`] that a [`Reflector`] keeps in step. It is a handle: clones share it.
pub struct Cache<T: Stored + ?Sized> {
    store: Store<T>,
    status: watch::Receiver<Status>,
    scope: Arc<OnceLock<Scope>>,
}

/// How far a [`Reflector`] is.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// The version up to which the store has all changes; `None` until it had the whole collection.
    pub resource_version: Option<String>,
    /// The way it syncs; `None` before, and while it goes on from what it [loaded](Reflector::load).
    pub strategy: Option<Strategy>,
    /// How often it had the whole collection sent and complete.
    pub syncs: u64,
    /// Objects and deletions that came, those of lists included.
    pub events: u64,
    /// When it was last known to be in step: the collection was complete, or since then an event or a bookmark of the watch
    /// came. How long ago that is, is how old what the store has may be, as far as the server tells: where nothing happens,
    /// API servers send a bookmark about once a minute. While the collection is asked for again it stays as it was.
    pub last_synced_at: Option<time::Instant>,
    /// Connections and lists that ended in an error.
    pub errors: u64,
    /// What the last one said.
    pub last_error: Option<Error>,
    /// Objects that the store does not have in their latest state, because it could not hold them: see
    /// [`Store::skipped`]. The cache is incomplete unless this is 0.
    pub skipped: usize,
    /// The last object that could not be stored, and why.
    pub last_skipped: Option<SkippedObject>,
    /// How often the function of an index failed for an object that came. [`Index::errors`](crate::cache::Index::errors) lists
    /// the objects that are missing in an index now.
    pub index_errors: u64,
    /// What the last one was.
    pub last_index_error: Option<IndexError>,
    /// The error that [`run`](Reflector::run) returned.
    pub ended_by: Option<Error>,
}

/// The [`Reflector`] was dropped, or its [`run`](Reflector::run) returned an error: the cache gets no more changes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The error that `run` returned; `None` when the reflector was dropped.
    pub cause: Option<Error>,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "the reflector of this cache has ended: {cause}"),
            None => f.write_str("the reflector of this cache was dropped"),
        }
    }
}

impl std::error::Error for Ended {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

/// Why a cache does not have the whole collection: see [`Cache::synced`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SyncError {
    /// The cache has all changes, but lacks objects that its store could not hold. A caller that can do without them goes on
    /// here; they come later if they are changed, or if there is room for them.
    Incomplete {
        /// The version up to which the cache has all other changes.
        resource_version: String,
        /// How many objects it lacks in their latest state.
        skipped: usize,
        /// The last one of them.
        last: Option<SkippedObject>,
    },
    /// The cache gets no more changes.
    Ended(Ended),
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete { resource_version, skipped, last } => {
                let were = if *skipped == 1 { "object was" } else { "objects were" };
                write!(f, "the cache is incomplete at version {resource_version}: {skipped} {were} skipped")?;
                last.iter().try_for_each(|last| write!(f, ": {last}"))
            }
            Self::Ended(ended) => ended.fmt(f),
        }
    }
}

impl std::error::Error for SyncError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Incomplete { last, .. } => last.as_ref().map(|last| &last.error as _),
            Self::Ended(ended) => std::error::Error::source(ended),
        }
    }
}

impl From<Ended> for SyncError {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

impl<T: Item + Stored + Kind + ?Sized> Reflector<T> {
    /// Creates a reflector of the resource of `T`, with its own store, which keeps objects encoded.
    pub fn of(client: &Client) -> Self {
        Self::new(client, &T::resource())
    }
}

impl<T: Item + Stored + ?Sized> Reflector<T> {
    /// One into a store of its own that holds objects encoded.
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
            scope: Arc::default(),
        }
    }

    /// Sets which objects it stores, and in which form: all objects unless set.
    ///
    /// With a [shard](Selection::shard) the store has that part of the collection, whether the server knows shards or not: the
    /// example `shards` shares a collection out over replicas.
    pub fn selection(mut self, selection: Selection) -> Self {
        self.sync.forget();
        self.selection = selection;
        self
    }

    /// Only this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.sync.forget();
        self.namespace = Some(namespace.into());
        self
    }

    /// Stores only a part of each object. Its name, namespace, uid and version must be in it.
    pub fn projection(mut self, projection: Projection) -> Self {
        self.sync.forget();
        self.projection = Some(projection);
        self
    }

    /// Into this store, which may have objects: those that the collection does not have are deleted when it is complete. One
    /// store is for one reflector.
    pub fn store(mut self, store: Store<T>) -> Self {
        self.sync.forget();
        self.store = Attached::new(store);
        self
    }

    /// How it syncs. Unless set, it takes the initial events of a watch; a list where the server is known to have none; and
    /// watches first once a version was gone by the time its list was complete.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.sync.chosen = Some(strategy);
        self
    }

    /// Ends [`run`](Self::run) before the collection was complete for the first time on errors that may last: 401, 403, 404,
    /// credentials that cannot be read, a response that is no list. Unless set, it retries them for ever, because a role or the
    /// resource may come later.
    pub fn fail_fast(mut self) -> Self {
        self.sync.fails_fast = true;
        self
    }

    /// The store, as those who use it see it.
    #[must_use]
    pub fn cache(&self) -> Cache<T> {
        Cache { store: self.store.clone(), status: self.status.subscribe(), scope: Arc::clone(&self.scope) }
    }

    /// Runs until it is dropped.
    ///
    /// Attempts back off exponentially with jitter, from the [`delay`](Retry::delay) of the client's [`Retry`] to 30 s (doubled at
    /// most by jitter). A watch that lived for 10 s resets that. Each error is logged, and [`last_error`](Status::last_error) has
    /// the last one.
    ///
    /// # Errors
    ///
    /// [`Error`] when the options are refused; or, before the collection was complete for the first time (a file counts), when the
    /// caller has to change something: the server refuses the options (400, 422), or it was never reached because of certificates
    /// ([`TransportErrorKind::Tls`](crate::client::TransportErrorKind::Tls)); with [`fail_fast`](Self::fail_fast) also errors that
    /// may last. After that it runs whatever happens. [`last_error`](Status::last_error) is the last of all of them.
    ///
    /// An object that cannot be stored is no error: it is [skipped](Status::skipped), and the cache is incomplete. The collection
    /// is listed again once there is room for an object that exceeded the [budget](Store::set_budget).
    pub async fn run(mut self) -> Result<Infallible, Error> {
        let Err(error) = self.run_until_error().await;
        self.status.send_modify(|status| status.ended_by = Some(error.clone()));
        Err(error)
    }

    async fn run_until_error(&mut self) -> Result<Infallible, Error> {
        self.selection.validate()?;
        let holds = self.holds()?;
        self.scope.get_or_init(|| Scope::of(self, holds));
        let mut backoff = self.client.backoff(MAX_DELAY);
        loop {
            let has_initial_events = self.client.has_initial_events(&self.resource)?;
            let attempt = self.sync.attempt(has_initial_events);
            let Attempt { strategy, because, .. } = attempt;
            self.status.send_modify(|status| status.strategy = (!attempt.resumes).then_some(strategy));
            let span = tracing::info_span!("reflector", resource = %self.resource, %strategy, because);
            let (error, next) = self.attempt(&attempt).instrument(span.clone()).await;
            if let Some(error) = &error {
                failed(&self.status, error.clone());
            }
            if self.synced_at.take().is_some_and(|at| at.elapsed() >= HEALTHY) {
                backoff = self.client.backoff(MAX_DELAY);
            }
            let wait = match (next, &error) {
                (Next::Now, _) => Duration::ZERO,
                (Next::Give, Some(error)) => return Err(error.clone()),
                _ => {
                    let asked = error.as_ref().and_then(Error::retry_after).unwrap_or_default();
                    backoff.next().unwrap_or(MAX_DELAY).max(asked)
                }
            };
            let error = error.as_ref().map(field::display);
            span.in_scope(|| tracing::warn!(error, ?wait, "asking for the collection again"));
            sleep(wait).await;
        }
    }

    /// Until an error ends it, or another replace of the store.
    async fn attempt(&mut self, attempt: &Attempt) -> (Option<Error>, Next) {
        let pages = attempt.pages;
        let (list, watch) = match attempt.strategy {
            _ if attempt.resumes => (None, Some(self.watch().behind(attempt.known.clone()))),
            Strategy::WatchList => (None, Some(self.watch())),
            Strategy::ListThenWatch => (Some(self.list(attempt.version.clone(), pages).into_pages()), None),
            Strategy::WatchFirst => match self.recent_version().await {
                Ok(version) if self.sync.is_ahead_of(&version) => return (None, self.sync.went_back()),
                // Of an object that both bring, nobody could tell which state is older.
                Ok(version) if !is_comparable(&version) => {
                    (Some(self.list(ResourceVersion::MostRecent, pages).into_pages()), None)
                }
                Ok(version) => {
                    // Beside a watch, its pages need not be of one version.
                    let list = self.list(ResourceVersion::AtLeast(version.clone()), pages).allow_inconsistent();
                    (Some(list.into_pages()), Some(self.watch().behind(version)))
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
        let ended = loop {
            let step = poll_fn(|cx| match feed.poll(cx) {
                Poll::Pending if self.synced_at.is_some() => {
                    silence.poll(cx, || Box::pin(self.recent_version())).map(Step::Silent)
                }
                step => step,
            });
            let step = step.await;
            silence.ended();
            let (progress, version) = feed.progress();
            let progress = self.stored(progress);
            match &step {
                Step::Synced(version) => self.synced(version, 1),
                Step::Resumed(version) => self.synced(version, 0),
                _ => {}
            }
            self.written(&progress, version);
            match step {
                Step::Synced(version) => {
                    if feed.needs_watch() {
                        feed.set_watch(self.watch().behind(version));
                    }
                }
                Step::Superseded => break (None, Next::Later),
                Step::WentBack => break (None, self.sync.went_back()),
                Step::Silent(Ok(version)) if self.sync.is_ahead_of(&version) => break (None, self.sync.went_back()),
                Step::Written | Step::Resumed(_) | Step::Silent(Ok(_)) => {}
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
                tracing::info!("the store has room for objects that were skipped");
                break (None, Next::Later);
            }
            tokio::task::consume_budget().await;
        };
        self.projection = projection;
        ended
    }

    /// What the store could not hold is in the status before the version that the store has otherwise.
    fn stored(&self, mut progress: Progress) -> Progress {
        if let Some(skipped) = &progress.skipped {
            tracing::warn!(%skipped, "an object cannot be stored: the cache is incomplete");
        }
        if let Some(error) = &progress.last_index_error {
            tracing::warn!(%error, errors = progress.index_errors, "an object is missing in an index");
        }
        let skipped = self.store.skipped();
        self.status.send_if_modified(|status| {
            let is_news = status.skipped != skipped || progress.skipped.is_some() || progress.index_errors > 0;
            status.skipped = skipped;
            status.last_skipped = progress.skipped.take().or(status.last_skipped.take());
            status.index_errors += progress.index_errors;
            status.last_index_error = progress.last_index_error.take().or(status.last_index_error.take());
            is_news
        });
        progress
    }

    fn written(&mut self, progress: &Progress, version: Option<&str>) {
        let version = version.filter(|version| self.sync.watched(version));
        if let Some(version) = version {
            self.store.advance(version);
        }
        let last_synced_at = (progress.has_heard && self.synced_at.is_some()).then(|| Instant::now().into_std());
        self.status.send_modify(|status| {
            status.events += progress.written;
            status.last_synced_at = last_synced_at.or(status.last_synced_at);
            if let Some(version) = version {
                status.resource_version = Some(version.to_owned());
            }
        });
    }

    /// `sent` says how often it came for that.
    fn synced(&mut self, version: &str, sent: u64) {
        self.sync.synced(version);
        let now = Instant::now();
        self.synced_at = Some(now);
        let skipped = self.store.skipped();
        tracing::info!(version, objects = self.store.len(), skipped, "the cache has the whole collection");
        self.status.send_modify(|status| {
            status.syncs += sent;
            status.last_synced_at = Some(now.into_std());
            status.resource_version = Some(version.to_owned());
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
        let watch = watch.resume().on_disconnect(move |disconnect| {
            if let Some(error) = &disconnect.error {
                failed(&status, error.clone());
            }
        });
        let watch = if self.sync.fails_fast() { watch.fail_fast() } else { watch };
        watch.into_connections()
    }

    fn list(&self, version: ResourceVersion, pages: bool) -> List<FromRef<T>> {
        let params = ListParams::new(self.selection.clone()).resource_version(version);
        // A page that is interrupted is retried; after a list in one response `SyncState` decides.
        let (client, params) =
            if pages { (self.client.clone(), params.page_size(PAGE)) } else { (self.once(), params) };
        let list = client.list::<T>(&self.resource, &params);
        match &self.namespace {
            Some(namespace) => list.namespace(namespace),
            None => list,
        }
    }

    /// That of a list of one object.
    fn recent_version(&self) -> impl Future<Output = Result<String, Error>> + Send + use<T> {
        self.once().current_version(&self.resource, &self.selection, self.namespace.as_deref())
    }

    fn once(&self) -> Client {
        self.client.clone().retry(Retry::never())
    }
}

fn failed(status: &watch::Sender<Status>, error: Error) {
    status.send_modify(|status| {
        status.errors += 1;
        status.last_error = Some(error);
    });
}

impl<T: Stored + ?Sized> Cache<T> {
    /// How far the reflector is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Whether the store has had the whole collection.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.status.borrow().resource_version.is_some()
    }

    /// Waits until the store has had the whole collection, and returns the version up to which it has all changes.
    ///
    /// # Errors
    ///
    /// [`SyncError::Incomplete`] while the store lacks objects that it could not hold; [`SyncError::Ended`] when the reflector
    /// ended before.
    pub async fn synced(&self) -> Result<String, SyncError> {
        self.until(|status| {
            let resource_version = status.resource_version.clone()?;
            Some(match status.skipped {
                0 => Ok(resource_version),
                skipped => Err(SyncError::Incomplete { resource_version, skipped, last: status.last_skipped.clone() }),
            })
        })
        .await?
    }

    /// Waits until the store has all changes up to this version: that of an object which was just written, for example,
    /// to read one's own writes.
    ///
    /// It waits for ever for a version that does not [compare](compare_resource_versions) with those that come. It does not look
    /// at what was [skipped](Status::skipped).
    ///
    /// # Errors
    ///
    /// [`Ended`] when the reflector ended before.
    pub async fn wait_for_resource_version(&self, version: &str) -> Result<(), Ended> {
        self.until(|status| {
            let so_far = status.resource_version.as_deref()?;
            compare_resource_versions(so_far, version)?.is_ge().then_some(())
        })
        .await
    }

    /// Saves the collection with its version, so that the next start can [load](Reflector::load) it: see [`Store::save`], also for
    /// how long it blocks. Do it every few minutes, and when the process is told to end, in
    /// [`spawn_blocking`](tokio::task::spawn_blocking).
    ///
    /// The file says which collection it is: path and selectors, how objects are asked for, and the projection.
    ///
    /// # Errors
    ///
    /// [`SaveError`]; [`Incomplete`](SaveError::Incomplete) until the collection was complete, once a part of it has come again until
    /// all has, and while objects are [skipped](Status::skipped).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SaveError> {
        let scope = self.scope.get().filter(|_| self.is_synced()).ok_or(SaveError::Incomplete)?;
        self.store.save(path, &scope.holds)
    }

    async fn until<R>(&self, ready: impl Fn(&Status) -> Option<R>) -> Result<R, Ended> {
        let mut status = self.status.clone();
        loop {
            if let Some(ready) = ready(&status.borrow_and_update()) {
                return Ok(ready);
            }
            if status.changed().await.is_err() {
                return Err(Ended { cause: status.borrow().ended_by.clone() });
            }
        }
    }
}

/// The store, to read. Write the answers to one's own writes with [`Cache::apply`]; anything else is the reflector's to write.
impl<T: Stored + ?Sized> Deref for Cache<T> {
    type Target = Store<T>;

    fn deref(&self) -> &Store<T> {
        &self.store
    }
}

impl<T: Stored + ?Sized> Clone for Cache<T> {
    fn clone(&self) -> Self {
        let Self { store, status, scope } = self;
        Self { store: store.clone(), status: status.clone(), scope: Arc::clone(scope) }
    }
}

impl<T: Stored + ?Sized> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("store", &self.store)
            .field("status", &*self.status.borrow())
            .finish_non_exhaustive()
    }
}

impl<T: Item + Stored + ?Sized> fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("resource", &self.resource)
            .field("status", &*self.status.borrow())
            .finish_non_exhaustive()
    }
}
