//! The builder of a controller, and the stream that it runs as.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, select, try_join_all};
use futures::stream::{BoxStream, SelectAll, poll_fn};
use futures::{FutureExt as _, Stream, StreamExt as _};
use listwatch::client::Resource;
use listwatch::internal::{Timer, WarningLimit, chain};
use listwatch_cache::{Object, ObjectKey, StoreType};
use tokio::task::JoinSet;

use crate::action::{Action, Error, ReconcileError};
use crate::metrics::MetricsReader;
use crate::queue::RequestQueue;
use crate::reconciles::{ControllerRun, RunPhase};
use crate::source::{Source, StartSubscription, WaitSynced, owner_keys, wait_synced};

/// How many items of a trigger lead to one round over all objects.
const MAX_TRIGGERS: usize = 1024;

/// Runs a reconciler for each object of a [cache](listwatch_cache::Cache), and again for each change.
///
/// All objects are reconciled once when all caches of the controller are [synced](listwatch_cache::Cache::synced).
/// Later an object is reconciled:
///
/// - after a change of the object;
/// - after a change of an object that it [owns](Self::owns), or that is mapped to it ([`watches`](Self::watches));
/// - when a [stream](Self::reconcile_on) requests the object, or [all objects](Self::reconcile_all_on);
/// - when the reconciler or the error policy requested it with an [`Action`].
///
/// A [`Source`] in place of a cache selects some of its objects, and some of their changes.
///
/// No object is reconciled twice at the same time, and requests are deduplicated: a request for an object that already
/// waits changes nothing, and one for an object whose reconcile is running leads to one more reconcile afterwards. Each
/// reconcile receives the latest state in the cache.
///
/// Changes go first. While the controller reconciles all objects, at its start or for
/// [`reconcile_all_on`](Self::reconcile_all_on), an object that changes does not wait for the others. At least
/// one of eight reconciles is for an object that waits behind changes, so no object waits for ever.
///
/// An object that is not in the cache is skipped, so the reconciler is not called for a deleted object. Use owner
/// references or a finalizer to clean up. A relist requests reconciles only of objects that have changed, while kube's
/// controller then reconciles all.
///
/// Each reconcile has a span `listwatch.reconcile` with the fields `object` and `reason`. These events are logged, but
/// the same error of the same object only once a minute, with the number of those in between as `left_out`:
///
/// | event | level | fields |
/// |---|---|---|
/// | `listwatch.reconcile_failed` | warn | `resource`, `object`, `error` with its causes |
/// | `listwatch.reconcile_panicked`: of the reconciler or the error policy | error | `resource`, `object`, `panic` |
///
/// # Several controllers
///
/// Controllers share caches: each gets clones of the same [`Cache`](listwatch_cache::Cache), so a process needs one
/// watch for each collection. The cache that one controller reconciles may be owned or watched by others. Reflectors
/// are not part of a controller, so the caller [spawns](listwatch_cache::Reflector::spawn) each of them once. A
/// controller that ends leaves caches and other controllers as they are, and one that starts later reconciles all
/// objects without a request to the server.
///
/// # Memory
///
/// An object that was requested, or whose [`Action`] named a time, takes about 220 bytes while it waits. Objects that
/// wait for their first reconcile take nothing, because their keys are read from the cache when it is their turn,
/// unless a [debounce](Self::debounce) makes all of them wait.
#[must_use = "nothing is reconciled until the stream of run is polled"]
pub struct Controller<T: StoreType + ?Sized> {
    source: Source<T>,
    related: Vec<StartSubscription>,
    /// Waits for the own and the related caches.
    synced: Vec<WaitSynced>,
    requested: SelectAll<BoxStream<'static, ObjectKey>>,
    /// Each item requests all objects.
    triggers: Vec<BoxStream<'static, ()>>,
    graceful: Vec<BoxFuture<'static, ()>>,
    forceful: Vec<BoxFuture<'static, ()>>,
    debounce: Duration,
    concurrency: u16,
    cache_sync_timeout: Duration,
    metrics: MetricsReader,
}

impl<T: StoreType + ?Sized> Controller<T> {
    /// The default of [`concurrency`](Self::concurrency): 64 reconciles at the same time.
    ///
    /// kube has no limit by default. Here each reconcile may keep a decompressed or decoded object.
    pub const DEFAULT_CONCURRENCY: u16 = 64;

    /// The default of [`cache_sync_timeout`](Self::cache_sync_timeout): 2 minutes, as in controller-runtime.
    pub const DEFAULT_CACHE_SYNC_TIMEOUT: Duration = Duration::from_secs(120);

    /// Creates a controller for the objects in a cache, or in a part of it.
    pub fn new(source: impl Into<Source<T>>) -> Self {
        let source = source.into();
        let cache = source.cache.clone();
        Self {
            source,
            related: Vec::new(),
            synced: vec![Box::new(move |limit| wait_synced(cache, limit))],
            requested: SelectAll::new(),
            triggers: Vec::new(),
            graceful: Vec::new(),
            forceful: Vec::new(),
            debounce: Duration::ZERO,
            concurrency: Self::DEFAULT_CONCURRENCY,
            cache_sync_timeout: Self::DEFAULT_CACHE_SYNC_TIMEOUT,
            metrics: MetricsReader::default(),
        }
    }

    /// Reconciles the owners of each object that changes in another cache.
    ///
    /// The owners are all owner references of the controller's group and kind, in the old and the new state, as in
    /// kube. The version of the group does not matter. Each write of the other cache reads the metadata of both states,
    /// which decompresses them in a compressed cache.
    pub fn owns<O: StoreType + ?Sized>(self, source: impl Into<Source<O>>) -> Self {
        let (resource, warnings) = (self.source.cache.resource().clone(), WarningLimit::default());
        self.add_related(source.into(), move |object| owner_keys(object, &resource, &warnings))
    }

    /// Reconciles the objects that `mapper` returns for each object that changes in another cache.
    ///
    /// `mapper` is called for the old and the new state, including the last state of a deleted object. kube calls it
    /// for the new state only.
    ///
    /// It is called during each write of the other cache, while other writers of that cache wait, and has the limits of
    /// [`SubscriberBuilder::inspect`](listwatch_cache::SubscriberBuilder::inspect). No state is left out, however long
    /// the reconciles take.
    ///
    /// ```no_run
    /// # use k8s_pb::api::core::v1::{ConfigMap, Secret};
    /// use listwatch_cache::{Cache, ObjectKey};
    /// # use listwatch_controller::Controller;
    ///
    /// # fn build(config_maps: Cache<ConfigMap>, secrets: Cache<Secret>) {
    /// let controller = Controller::new(config_maps).watches(secrets, |secret| {
    ///     let name = secret.meta().ok()?.label("example.com/config-map").ok()??;
    ///     Some(ObjectKey { namespace: secret.namespace().to_owned(), name: name.into_owned() })
    /// });
    /// # drop(controller);
    /// # }
    /// ```
    pub fn watches<O: StoreType + ?Sized, I: IntoIterator<Item = ObjectKey>>(
        self,
        source: impl Into<Source<O>>,
        mapper: impl Fn(&Object<O>) -> I + Send + Sync + 'static,
    ) -> Self {
        self.add_related(source.into(), move |object| mapper(object).into_iter().collect())
    }

    fn add_related<O: StoreType + ?Sized>(
        mut self,
        source: Source<O>,
        keys: impl Fn(&Object<O>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let cache = source.cache.clone();
        self.synced.push(Box::new(move |limit| wait_synced(cache, limit)));
        self.related.push(source.map_states(keys));
        self
    }

    /// Reconciles the objects whose keys the stream yields.
    ///
    /// The end of the stream does not end the controller. While more than 256 changed or requested objects are due, the
    /// stream is not polled.
    pub fn reconcile_on(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.requested.push(keys.boxed());
        self
    }

    /// Reconciles all objects of the cache when the stream yields an item, for example after the configuration changed.
    ///
    /// Changes go before these reconciles. Items that become ready while objects of the last item wait for their turn
    /// lead to one more round. The end of the stream does not end the controller.
    pub fn reconcile_all_on(mut self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        self.triggers.push(trigger.boxed());
        self
    }

    /// Waits this long after the first change of an object, so that further changes lead to no other reconcile.
    ///
    /// The default is zero. kube's debounce starts again at each change, so an object that changes all the time is
    /// never reconciled. Requests by an [`Action`] are not delayed.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        // An `Instant` cannot hold the end of much longer times.
        self.debounce = debounce.min(Duration::from_secs(100 * 365 * 24 * 3600));
        self
    }

    /// Sets how many reconciles may run at the same time; 0 means no limit.
    pub fn concurrency(mut self, concurrency: u16) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Sets how long the controller waits for its caches to be synced, from the first poll of its stream.
    ///
    /// A cache that needs longer ends the controller with [`CacheError::NotSynced`](crate::CacheError::NotSynced), so
    /// that a missing role or resource does not look like a controller with nothing to do. `Duration::MAX` waits
    /// without a limit.
    pub fn cache_sync_timeout(mut self, timeout: Duration) -> Self {
        self.cache_sync_timeout = timeout;
        self
    }

    /// Returns a reader of the controller's [figures](crate::Metrics), for an exporter.
    #[must_use]
    pub fn metrics(&self) -> MetricsReader {
        self.metrics.clone()
    }

    /// Ends the controller when the future is ready.
    ///
    /// The controller then starts no more reconciles, and its stream ends after those that are running.
    pub fn graceful_shutdown_on(mut self, trigger: impl Future<Output = ()> + Send + 'static) -> Self {
        self.graceful.push(trigger.boxed());
        self
    }

    /// Ends the controller on Ctrl+C and on SIGTERM, as [`graceful_shutdown_on`](Self::graceful_shutdown_on) does.
    ///
    /// A second signal aborts the running reconciles. The stream of [`run`](Self::run) must be polled in a tokio
    /// runtime with IO enabled.
    pub fn shutdown_on_signal(mut self) -> Self {
        let (first, is_first) = futures::channel::oneshot::channel();
        self.graceful.push(is_first.map(|_| ()).boxed());
        let both = async {
            shutdown_signal().await;
            tracing::info!(
                name: "listwatch.shutdown",
                "shutting down after the reconciles that run; a second signal aborts them"
            );
            // The controller may already be draining.
            let _ = first.send(());
            shutdown_signal().await;
        };
        self.forceful.push(both.boxed());
        self
    }

    /// Runs the controller while the stream is polled. Each reconcile is a task of tokio and, when it ends, an item.
    ///
    /// `error_policy` decides what follows an error. [`Action::backoff`] is a good default.
    ///
    /// Dropping the stream aborts the running reconciles. While the stream is not polled, no reconcile starts.
    ///
    /// Any runtime may poll the stream, even after the one that polled it before has ended. The reconciles that ended
    /// with their runtime are then started again. Outside of a tokio runtime the stream does nothing, which is logged
    /// as an error.
    ///
    /// # Errors
    ///
    /// - [`Error::ReconcilerFailed`] for each reconcile that failed, after the controller has logged it. The controller
    ///   continues.
    /// - [`Error::ReconcilerPanicked`] for each reconcile that panicked, after the controller has logged it. The
    ///   controller retries it with [`Action::backoff`].
    /// - [`Error::Cache`] when a cache is not synced [in time](Self::cache_sync_timeout), lacks objects at the start
    ///   that it could not hold, or its reflector has ended. The stream ends after the running reconciles.
    ///
    /// # Panics
    ///
    /// The stream panics when a mapper or a function of a [`Source`] panics, and on a tokio runtime without time.
    pub fn run<Reconcile, E, Ctx, Form>(
        self,
        mut reconciler: impl FnMut(Object<T>, Arc<Ctx>) -> Reconcile,
        mut error_policy: impl FnMut(Object<T>, &E, Arc<Ctx>) -> Action,
        context: Arc<Ctx>,
    ) -> impl Stream<Item = Result<(ObjectKey, Action), Error<E>>>
    where
        Reconcile: Future<Output = Result<Action, E>> + Send + 'static,
        E: ReconcileError<Form>,
    {
        let Self { source, related: mut subscriptions, synced, triggers, requested, graceful, forceful, .. } = self;
        let (cache, part, own) = source.split();
        subscriptions.push(own);
        let synced = try_join_all(synced.into_iter().map(|wait| wait(self.cache_sync_timeout)));
        let all = triggers.into_iter().map(|trigger| {
            let (cache, part) = (cache.clone(), Arc::clone(&part));
            trigger.ready_chunks(MAX_TRIGGERS).flat_map(move |_| part.keys(cache.clone())).boxed()
        });
        let (resource, warnings) = (cache.resource().clone(), WarningLimit::default());
        let mut running = ControllerRun {
            all: all.collect(),
            cache,
            part,
            debounce: self.debounce,
            concurrency: self.concurrency.into(),
            phase: RunPhase::Syncing(synced.map(|synced| synced.map(drop)).boxed(), subscriptions),
            changes: SelectAll::new(),
            requested,
            graceful,
            forceful,
            queue: RequestQueue::default(),
            paused: Vec::new(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            metrics: self.metrics,
            warnings: WarningLimit::default(),
            timer: Timer::default(),
            is_reported: false,
        };
        poll_fn(move |cx| {
            let reconcile = |object| reconciler(object, Arc::clone(&context));
            running.poll(cx, reconcile, |object, error| {
                log_failure(&resource, &object.key(), error.as_error(), &warnings);
                error_policy(object, error, Arc::clone(&context))
            })
        })
    }
}

/// Logs the error of a reconcile with its causes, and an identical one at most once a minute.
fn log_failure(resource: &Resource, object: &ObjectKey, error: &(dyn StdError + 'static), warnings: &WarningLimit) {
    let error = chain(error);
    if let Some(left_out) = warnings.admit((object, &error)) {
        tracing::warn!(
            name: "listwatch.reconcile_failed",
            %resource,
            %object,
            error,
            left_out,
            "a reconcile failed"
        );
    }
}

/// Waits for Ctrl+C or SIGTERM.
async fn shutdown_signal() {
    let interrupt = tokio::signal::ctrl_c().boxed();
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        select(interrupt, terminate.recv().boxed()).await;
        return;
    }
    _ = interrupt.await;
}

impl<T: StoreType + ?Sized> fmt::Debug for Controller<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, debounce, concurrency, cache_sync_timeout, .. } = self;
        f.debug_struct("Controller")
            .field("source", source)
            .field("debounce", debounce)
            .field("concurrency", concurrency)
            .field("cache_sync_timeout", cache_sync_timeout)
            .finish_non_exhaustive()
    }
}
