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
use crate::run::{ControllerRun, RunPhase};
use crate::source::{Source, StartSubscription, WaitSynced, owner_keys, wait_synced};

/// The number of items of a trigger that lead to one round over all objects.
const MAX_TRIGGERS: usize = 1024;

/// Runs a reconciler for each object of a [cache](listwatch_cache::Cache), and again for each change.
///
/// It reconciles all objects once when all its caches are [synced](listwatch_cache::Cache::synced). Later it reconciles
/// an object:
///
/// - after a change of the object;
/// - after a change of an object that it [owns](Self::owns), or that is mapped to it ([`watches`](Self::watches));
/// - when a [stream](Self::reconcile_on) requests it, or [all objects](Self::reconcile_all_on);
/// - when the reconciler or the error policy requested it by an [`Action`].
///
/// A [`Source`] in place of a cache selects some of its objects, and some of their changes.
///
/// No object is reconciled twice at once, and requests are deduplicated. A request for an object that waits changes
/// nothing. A request for an object whose reconcile runs leads to one more reconcile afterwards. Each reconcile gets
/// the latest state in the cache.
///
/// Changes go first: while the controller reconciles all objects, at its start or for
/// [`reconcile_all_on`](Self::reconcile_all_on), an object that changes does not wait for the others. One of eight
/// reconciles is kept for objects that wait behind changes.
///
/// An object that is not in the cache is skipped, so the reconciler is not called for a deleted object. Use owner
/// references or a finalizer to clean up. A relist requests reconciles only of objects that have changed; kube's
/// controller then reconciles all.
///
/// Each reconcile has a span `listwatch.reconcile`, with the fields `object` and `reason`. These events are logged, the
/// same error of the same object once a minute; `left_out` is the number of those between:
///
/// | event | level | fields |
/// |---|---|---|
/// | `listwatch.reconcile_failed` | warn | `resource`, `object`, `error` with its causes |
/// | `listwatch.reconcile_panicked`: of the reconciler or the error policy | error | `resource`, `object`, `panic` |
///
/// # Several controllers
///
/// Controllers share caches: each gets clones of the same [`Cache`](listwatch_cache::Cache), so a process has one watch
/// for each collection. A cache may be the own one of one controller, and owned or watched by others. The reflectors
/// are not part of a controller: the caller [spawns](listwatch_cache::Reflector::spawn) each once. A controller that
/// ends leaves caches and other controllers as they are. A controller that starts later reconciles all objects, without
/// a request to the server.
///
/// # Memory
///
/// An object that waits takes about 220 bytes: one that was requested, and one whose [`Action`] has a time. The objects
/// that wait for their first reconcile take none, because their keys are read from the cache when it is their turn,
/// unless a [debounce](Self::debounce) makes all of them wait.
#[must_use = "nothing is reconciled until the stream of run is polled"]
pub struct Controller<T: StoreType + ?Sized> {
    source: Source<T>,
    related: Vec<StartSubscription>,
    /// Wait for the own and the related caches.
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
    /// The number of reconciles at once, unless [`concurrency`](Self::concurrency) sets it.
    ///
    /// kube has no limit by default. Here each reconcile may keep a decompressed or decoded object.
    pub const DEFAULT_CONCURRENCY: u16 = 64;

    /// How long the controller waits for its caches, unless [`cache_sync_timeout`](Self::cache_sync_timeout) sets it:
    /// as long as controller-runtime.
    pub const DEFAULT_CACHE_SYNC_TIMEOUT: Duration = Duration::from_secs(120);

    /// Creates a controller of the objects in a cache, or in a part of it.
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
    /// The owners are all owner references of the controller's group and kind, of the old and the new state, as in
    /// kube. The version of the group does not matter.
    ///
    /// Each write of the other cache reads the metadata of both states, which decompresses them in a compressed cache.
    pub fn owns<O: StoreType + ?Sized>(self, source: impl Into<Source<O>>) -> Self {
        let (resource, warnings) = (self.source.cache.resource().clone(), WarningLimit::default());
        self.add_related(source.into(), move |object| owner_keys(object, &resource, &warnings))
    }

    /// Reconciles the objects that `mapper` returns for each object that changes in another cache.
    ///
    /// `mapper` is called for the old and for the new state, also of a deleted object. kube calls the mapper for the
    /// new state only.
    ///
    /// The calls happen during each write of the other cache, while other writers of it wait. `mapper` has the limits
    /// of [`SubscriberBuilder::inspect`](listwatch_cache::SubscriberBuilder::inspect). So no state is left out, however
    /// long the reconciles take.
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

    /// Reconciles all objects of the cache when the stream yields an item, for example after a change of the
    /// configuration.
    ///
    /// Changes go before these reconciles. Items that become ready while objects of the last item wait for their turn
    /// lead to one more round. The end of the stream does not end the controller.
    pub fn reconcile_all_on(mut self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        self.triggers.push(trigger.boxed());
        self
    }

    /// Waits this long after the first change of an object, so that further changes until then lead to no other
    /// reconcile.
    ///
    /// Zero unless set. kube's debounce starts again at each change, so an object that changes all the time is never
    /// reconciled. Requests by an [`Action`] are not delayed.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        // An `Instant` cannot hold the end of much longer times.
        self.debounce = debounce.min(Duration::from_secs(100 * 365 * 24 * 3600));
        self
    }

    /// Sets the number of reconciles at once; 0 for no limit.
    pub fn concurrency(mut self, concurrency: u16) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Sets how long the controller waits for its caches to be synced, from the first poll of its stream. A cache that
    /// needs longer ends the controller with [`CacheError::NotSynced`](crate::CacheError::NotSynced), so that a missing
    /// role or a missing resource does not look like a controller with nothing to do. `Duration::MAX` waits without a
    /// limit.
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
    /// The controller then starts no more reconciles, and its stream ends after those that run.
    pub fn graceful_shutdown_on(mut self, trigger: impl Future<Output = ()> + Send + 'static) -> Self {
        self.graceful.push(trigger.boxed());
        self
    }

    /// Ends the controller on Ctrl+C and on SIGTERM, as [`graceful_shutdown_on`](Self::graceful_shutdown_on).
    ///
    /// A second signal aborts the reconciles that run. The stream of [`run`](Self::run) must be polled in a tokio
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
            // The controller may drain already.
            let _ = first.send(());
            shutdown_signal().await;
        };
        self.forceful.push(both.boxed());
        self
    }

    /// Runs the controller while the stream is polled. Each reconcile is a task of tokio, and an item of the stream
    /// when it ends.
    ///
    /// `error_policy` decides what follows an error: [`Action::backoff`] unless there is a better answer.
    ///
    /// Dropping the stream aborts the reconciles that run. While the stream is not polled, no reconcile starts.
    ///
    /// Any runtime may poll the stream, also after the one that polled it before has ended. The reconciles that ended
    /// with their runtime are then started again. Outside of a tokio runtime the stream does nothing, and logs that as
    /// an error.
    ///
    /// # Errors
    ///
    /// - [`Error::ReconcilerFailed`] for each reconcile that failed; the controller has logged it, and continues.
    /// - [`Error::ReconcilerPanicked`] for each reconcile that panicked; the controller has logged it, and retries it
    ///   with [`Action::backoff`].
    /// - [`Error::Cache`] when a cache is not synced [in time](Self::cache_sync_timeout), lacks objects that it could
    ///   not hold at the start, or its reflector has ended. The stream ends after the reconciles that run.
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

/// Logs the error of a reconcile with its causes, an identical one at most once a minute.
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
