//! The builder of a controller, and the stream that it runs as.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, select, try_join_all};
use futures::stream::{BoxStream, SelectAll, poll_fn};
use futures::{FutureExt as _, Stream, StreamExt as _};
use listwatch::client::{Kind, Resource};
use listwatch::internal::{Timer, WarningLimit, chain};
use listwatch_cache::{Cache, Object, ObjectKey, Predicate, StoreType, SyncError};
use tokio::task::JoinSet;

use crate::action::{Action, Error, ReconcileError};
use crate::queue::RequestQueue;
use crate::related::{StartSubscription, all_keys, owner_keys, subscribe_keys, wait_synced};
use crate::run::{ControllerRun, RunPhase};

/// The number of items of a trigger that lead to one round over all objects.
const MAX_TRIGGERS: usize = 1024;

/// Runs a reconciler for each object of a [`Cache`], and again for each change.
///
/// It reconciles all objects once when all its caches are [synced](Cache::synced). Later it reconciles an object:
///
/// - after a change of the object, unless a [predicate](Self::predicate_filter) drops it;
/// - after a change of an object that it [owns](Self::owns), or that is mapped to it ([`watches`](Self::watches));
/// - when a [stream](Self::reconcile_on) requests it, or [all objects](Self::reconcile_all_on);
/// - when the reconciler or the error policy requested it by an [`Action`].
///
/// No object is reconciled twice at once, and requests are deduplicated. A request for an object that waits changes
/// nothing. A request for an object whose reconcile runs leads to one more reconcile afterwards. Each reconcile gets
/// the latest state in the cache.
///
/// An object that is not in the cache is skipped, so the reconciler is not called for a deleted object. Use owner
/// references or a finalizer to clean up. A relist requests reconciles only of objects that have changed; kube's
/// controller then reconciles all.
///
/// Each reconcile has a span `listwatch.reconcile`, with the fields `object` and `reason`. A reconcile that fails is
/// logged as a warning, `listwatch.reconcile_failed`, with the fields `resource`, `object` and `error`, which has the
/// causes, too. The same error of the same object is logged once a minute; `left_out` is the number of those between.
///
/// # Several controllers
///
/// Controllers share caches: each gets clones of the same [`Cache`], so a process has one watch for each collection. A
/// cache may be the own one of one controller, and owned or watched by others. The reflectors are not part of a
/// controller: the caller [spawns](listwatch_cache::Reflector::spawn) each once. A controller that ends leaves caches
/// and other controllers as they are. A controller that starts later reconciles all objects, without a request to the
/// server.
///
/// # Memory
///
/// An object that waits takes about 220 bytes: one that was requested, and one whose [`Action`] has a time. When more
/// than 256 objects are due, further changes wait in the [`Subscriber`](listwatch_cache::Subscriber) of the cache. It
/// coalesces them and reads the initial state step by step. A [debounce](Self::debounce) makes all changed objects wait
/// here.
#[must_use = "nothing is reconciled until the stream of run is polled"]
pub struct Controller<T: StoreType + ?Sized> {
    cache: Cache<T>,
    resource: Resource,
    predicate: Option<Predicate>,
    synced: Vec<BoxFuture<'static, Result<(), SyncError>>>,
    related: Vec<StartSubscription>,
    requested: SelectAll<BoxStream<'static, ObjectKey>>,
    graceful: Vec<BoxFuture<'static, ()>>,
    forceful: Vec<BoxFuture<'static, ()>>,
    debounce: Duration,
    concurrency: u16,
}

impl<T: StoreType + Kind + ?Sized> Controller<T> {
    /// Creates a controller of the objects in a cache.
    pub fn new(cache: Cache<T>) -> Self {
        Self::new_with(cache, T::resource())
    }
}

impl<T: StoreType + ?Sized> Controller<T> {
    /// The number of reconciles at once, unless [`concurrency`](Self::concurrency) sets it.
    ///
    /// kube has no limit by default. Here each reconcile may keep a decompressed or decoded object.
    pub const DEFAULT_CONCURRENCY: u16 = 64;

    /// Creates a controller of a cache whose type does not name its resource, such as a `Cache<[u8]>`.
    pub fn new_with(cache: Cache<T>, resource: Resource) -> Self {
        Self {
            synced: vec![wait_synced(cache.clone())],
            cache,
            resource,
            predicate: None,
            related: Vec::new(),
            requested: SelectAll::new(),
            graceful: Vec::new(),
            forceful: Vec::new(),
            debounce: Duration::ZERO,
            concurrency: Self::DEFAULT_CONCURRENCY,
        }
    }

    /// Reconciles an object after its own modification only if the modification passes the predicate: see
    /// [`SubscriberBuilder::predicate_filter`](listwatch_cache::SubscriberBuilder::predicate_filter).
    ///
    /// The other requests, and the first reconcile of each object, do not depend on it. A reconciler with a
    /// finalizer needs [`Predicate::generation`], which passes the request to delete, and
    /// [`Predicate::finalizers`]: the reconcile after its finalizer was added applies the object.
    ///
    /// ```no_run
    /// # use k8s_pb::api::apps::v1::Deployment;
    /// use listwatch_cache::Predicate;
    /// # use listwatch_controller::Controller;
    ///
    /// # fn build(deployments: listwatch_cache::Cache<Deployment>) {
    /// let controller = Controller::new(deployments)
    ///     .predicate_filter(Predicate::generation().or(Predicate::finalizers()));
    /// # drop(controller);
    /// # }
    /// ```
    pub fn predicate_filter(mut self, predicate: Predicate) -> Self {
        self.predicate = Some(predicate);
        self
    }

    /// Reconciles the owners of each object that changes in another cache.
    ///
    /// The owners are all owner references of the controller's group and kind, of the old and the new state, as in
    /// kube. The version of the group does not matter.
    ///
    /// Each write of the other cache reads the metadata of both states, which decompresses them in a compressed cache.
    pub fn owns<O: StoreType + ?Sized>(self, cache: Cache<O>) -> Self {
        self.add_owned(cache, None)
    }

    /// As [`owns`](Self::owns), for additions, deletions, and modifications that pass the predicate.
    pub fn owns_filtered<O: StoreType + ?Sized>(self, cache: Cache<O>, predicate: Predicate) -> Self {
        self.add_owned(cache, Some(predicate))
    }

    fn add_owned<O: StoreType + ?Sized>(self, cache: Cache<O>, predicate: Option<Predicate>) -> Self {
        let (resource, warnings) = (self.resource.clone(), WarningLimit::default());
        self.add_related(cache, predicate, move |object| owner_keys(object, &resource, &warnings))
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
        cache: Cache<O>,
        mapper: impl Fn(&Object<O>) -> I + Send + Sync + 'static,
    ) -> Self {
        self.add_related(cache, None, move |object| mapper(object).into_iter().collect())
    }

    /// As [`watches`](Self::watches), for additions, deletions, and modifications that pass the predicate.
    pub fn watches_filtered<O: StoreType + ?Sized, I: IntoIterator<Item = ObjectKey>>(
        self,
        cache: Cache<O>,
        predicate: Predicate,
        mapper: impl Fn(&Object<O>) -> I + Send + Sync + 'static,
    ) -> Self {
        self.add_related(cache, Some(predicate), move |object| mapper(object).into_iter().collect())
    }

    fn add_related<O: StoreType + ?Sized>(
        mut self,
        cache: Cache<O>,
        predicate: Option<Predicate>,
        keys: impl Fn(&Object<O>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.synced.push(wait_synced(cache.clone()));
        self.related.push(subscribe_keys(cache, predicate, keys));
        self
    }

    /// Reconciles the objects whose keys the stream yields.
    ///
    /// The end of the stream does not end the controller. While more than 256 objects are due, the stream is not
    /// polled.
    pub fn reconcile_on(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.requested.push(keys.boxed());
        self
    }

    /// Reconciles all objects of the cache when the stream yields an item, for example after a change of the
    /// configuration.
    ///
    /// Items that become ready while objects of the last item wait for their turn lead to one more round. The rest is
    /// as for [`reconcile_on`](Self::reconcile_on).
    pub fn reconcile_all_on(mut self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        let cache = self.cache.clone();
        let rounds = trigger.ready_chunks(MAX_TRIGGERS);
        self.requested.push(rounds.flat_map(move |_| all_keys(cache.clone())).boxed());
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
    /// - [`Error::Cache`] when a cache lacks objects that it could not hold at the start, or its reflector has ended.
    ///   The stream ends after the reconciles that run.
    ///
    /// # Panics
    ///
    /// The stream panics when the reconciler, the error policy or a mapper panics, and on a tokio runtime without time.
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
        let (resource, warnings) = (self.resource.clone(), WarningLimit::default());
        let Self { cache, predicate, synced, related, requested, graceful, forceful, debounce, concurrency, .. } = self;
        let synced = try_join_all(synced).map(|synced| synced.map(drop)).boxed();
        let mut running = ControllerRun {
            cache,
            debounce,
            concurrency: concurrency.into(),
            phase: RunPhase::Syncing(synced, related),
            predicate,
            changes: None,
            related: SelectAll::new(),
            requested,
            graceful,
            forceful,
            queue: RequestQueue::default(),
            is_paused: false,
            tasks: JoinSet::new(),
            running: HashMap::new(),
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
        let Self { cache, resource, debounce, concurrency, .. } = self;
        f.debug_struct("Controller")
            .field("cache", cache)
            .field("resource", resource)
            .field("debounce", debounce)
            .field("concurrency", concurrency)
            .finish_non_exhaustive()
    }
}
