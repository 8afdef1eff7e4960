//! Caches, or parts of them, whose changes request reconciles.

use std::collections::BTreeSet;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream, poll_fn};
use futures::{FutureExt as _, Stream, StreamExt as _};
use listwatch::client::Resource;
use listwatch::internal::{Timer, WarningLimit};
use listwatch::{ItemError, LabelSelector};
use listwatch_cache::{Cache, Change, EndReason, Object, ObjectKey, Predicate, StoreType, SyncError, Written};
use tokio::time::Instant;

use crate::action::CacheError;
use crate::queue::ReconcileReason;

/// How many keys of a whole cache are read at a time.
const KEYS_STEP: usize = 256;

/// A cache, or a part of it, whose changes request reconciles of a [`Controller`](crate::Controller).
///
/// A [`Cache`] converts to a source of all its changes. Controllers that share a cache may each select a different
/// part:
///
/// ```no_run
/// # use k8s_pb::api::core::v1::{ConfigMap, Secret};
/// use listwatch_cache::{Cache, Predicate, Written};
/// use listwatch_controller::{Controller, Source};
///
/// # fn build(config_maps: Cache<ConfigMap>, secrets: Cache<Secret>) -> Result<(), listwatch::InvalidInput> {
/// let of_shop = Source::new(config_maps).namespace("shop").labels("app=web".parse()?);
/// let controller = Controller::new(of_shop.predicate_filter(Predicate::generation()))
///     // Only deleted Secrets request a reconcile of their owners.
///     .owns(Source::new(secrets).write_filter(|written| matches!(written, Written::Deleted { .. })));
/// # drop(controller);
/// # Ok(())
/// # }
/// ```
///
/// The functions run during each write of the cache, while other writers of it wait, and have the limits of
/// [`SubscriberBuilder::filter`](listwatch_cache::SubscriberBuilder::filter). If one of them panics, the stream of the
/// controller resumes the panic.
#[must_use = "a controller uses it"]
pub struct Source<T: StoreType + ?Sized> {
    pub(crate) cache: Cache<T>,
    part: Part<T>,
    predicate: Option<Predicate>,
    write_filter: Option<WriteFilter<T>>,
}

type Filter<T> = Box<dyn Fn(&Object<T>) -> bool + Send + Sync>;

type WriteFilter<T> = Box<dyn Fn(&Written<'_, T>) -> bool + Send + Sync>;

pub(crate) struct Part<T: StoreType + ?Sized> {
    namespace: Option<String>,
    filters: Vec<Filter<T>>,
}

impl<T: StoreType + ?Sized> Part<T> {
    /// Returns true if the part contains an object in this state.
    pub(crate) fn selects(&self, object: &Object<T>) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| object.namespace() == *namespace)
            && self.filters.iter().all(|filter| filter(object))
    }

    /// Returns the keys of the objects of its namespace, in key order.
    ///
    /// Each step reads the cache as it then is, so a slow reader keeps no old states in memory. It misses no object
    /// that existed at the start, and new objects are reconciled anyway.
    pub(crate) fn keys(self: &Arc<Self>, cache: Cache<T>) -> impl Stream<Item = ObjectKey> + use<T> {
        let part = Arc::clone(self);
        let steps = stream::unfold(None::<ObjectKey>, move |last| {
            let snapshot = cache.snapshot();
            let objects = snapshot.range(part.namespace.as_deref(), last.as_ref().map(Into::into));
            let keys: Vec<_> = objects.take(KEYS_STEP).map(|object| object.key()).collect();
            let last = keys.last().cloned();
            future::ready(last.map(|last| (stream::iter(keys), Some(last))))
        });
        steps.flatten()
    }
}

impl<T: StoreType + ?Sized> From<Cache<T>> for Source<T> {
    fn from(cache: Cache<T>) -> Self {
        Self::new(cache)
    }
}

impl<T: StoreType + ?Sized> Source<T> {
    /// Creates a source of all changes of a cache.
    pub fn new(cache: Cache<T>) -> Self {
        let part = Part { namespace: None, filters: Vec::new() };
        Self { cache, part, predicate: None, write_filter: None }
    }

    /// Selects the objects of a namespace. Writes of other objects cost nothing.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.part.namespace = Some(namespace.into());
        self
    }

    /// Selects the objects whose labels match. An object whose labels cannot be read is left out.
    ///
    /// Each write then reads the labels, which decompresses the object in a compressed cache.
    pub fn labels(self, selector: LabelSelector) -> Self {
        self.filter(move |object| object.meta().and_then(|meta| selector.matches(&meta)).unwrap_or(false))
    }

    /// Selects the objects for which this function and all other filters return true.
    ///
    /// A controller never reconciles an object that its source leaves out, whatever requests it. A change of an owned
    /// or watched object counts if the state before it or the state after it is selected.
    pub fn filter(mut self, filter: impl Fn(&Object<T>) -> bool + Send + Sync + 'static) -> Self {
        self.part.filters.push(Box::new(filter));
        self
    }

    /// Ignores modifications that do not pass the predicate. A second call replaces the first.
    ///
    /// See [`SubscriberBuilder::predicate_filter`](listwatch_cache::SubscriberBuilder::predicate_filter). The first
    /// reconcile of each object does not depend on it. A reconciler with a finalizer needs [`Predicate::generation`],
    /// which passes the request to delete, and [`Predicate::finalizers`], because the reconcile after its finalizer was
    /// added applies the object.
    pub fn predicate_filter(mut self, predicate: Predicate) -> Self {
        self.predicate = Some(predicate);
        self
    }

    /// Ignores writes for which this function returns false: additions, modifications and deletions.
    ///
    /// A second call replaces the first. The first reconcile of each object does not depend on it.
    pub fn write_filter(mut self, filter: impl Fn(&Written<'_, T>) -> bool + Send + Sync + 'static) -> Self {
        self.write_filter = Some(Box::new(filter));
        self
    }

    /// Splits the source of a controller into its objects, and a subscription to their changes.
    pub(crate) fn split(self) -> (Cache<T>, Arc<Part<T>>, StartSubscription) {
        let cache = self.cache.clone();
        let own = |written: &Written<'_, T>, part: &Part<T>| match written {
            Written::Added(new) | Written::Modified { new, .. } if part.selects(new) => vec![new.key()],
            _ => Vec::new(),
        };
        let (part, subscribe) = self.subscribe(ReconcileReason::Changed, own);
        (cache, part, subscribe)
    }

    /// Returns a subscription whose changes request the objects that `keys` returns for a state.
    pub(crate) fn map_states(
        self,
        keys: impl Fn(&Object<T>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> StartSubscription {
        let of_states = move |written: &Written<'_, T>, part: &Part<T>| {
            written.states().filter(|object| part.selects(object)).flat_map(&keys).collect()
        };
        self.subscribe(ReconcileReason::RelatedChanged, of_states).1
    }

    /// Returns a subscription to the cache, whose writes request the objects that `keys` returns.
    ///
    /// `keys` is called for every write that passes, because a subscriber coalesces changes, but a reconcile may have
    /// seen a state that no change delivers.
    fn subscribe(
        self,
        reason: ReconcileReason,
        keys: impl Fn(&Written<'_, T>, &Part<T>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> (Arc<Part<T>>, StartSubscription) {
        let Self { cache, part, predicate, write_filter } = self;
        let part = Arc::new(part);
        let of_part = Arc::clone(&part);
        let subscribe = Box::new(move || {
            let requested = Arc::new(Mutex::new(BTreeSet::new()));
            let taken = Arc::clone(&requested);
            let take = move || mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
            let mut builder = cache.subscribe().predicate_filter(predicate);
            if let Some(namespace) = &of_part.namespace {
                builder = builder.namespace(namespace.clone());
            }
            let inspect = move |written: Written<'_, T>| {
                if write_filter.as_ref().is_none_or(|filter| filter(&written)) {
                    let keys = keys(&written, &of_part);
                    requested.lock().unwrap_or_else(PoisonError::into_inner).extend(keys);
                }
            };
            let mut changes = builder.inspect(inspect).start();
            let ended = move |reason| {
                let error = SyncError::Ended(reason);
                Box::new(CacheError::Ended { resource: cache.resource().clone(), error })
            };
            let requests = poll_fn(move |cx| {
                let deleted = match changes.poll_next_unpin(cx) {
                    Poll::Ready(Some(Change::Ended(reason))) => return Poll::Ready(Some(Err(ended(reason)))),
                    // The cache has no reflector, but the writer of a test.
                    Poll::Ready(None) => return Poll::Ready(Some(Err(ended(EndReason::Dropped)))),
                    Poll::Ready(Some(Change::Deleted { last, .. })) => Some(last.key()),
                    Poll::Ready(Some(_)) => None,
                    Poll::Pending => {
                        let keys = Some(take()).filter(|keys| !keys.is_empty());
                        return keys.map_or(Poll::Pending, |keys| {
                            Poll::Ready(Some(Ok(Requests { deleted: None, keys, reason })))
                        });
                    }
                };
                // The keys are taken after the change, because the consumer is woken for it after they were added.
                Poll::Ready(Some(Ok(Requests { deleted, keys: take(), reason })))
            });
            requests.boxed()
        });
        (part, subscribe)
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("cache", &self.cache)
            .field("namespace", &self.part.namespace)
            .field("predicate", &self.predicate)
            .finish_non_exhaustive()
    }
}

/// What changes of a source request.
pub(crate) struct Requests {
    /// A deleted object of the source, which comes before the requests.
    pub(crate) deleted: Option<ObjectKey>,
    pub(crate) keys: BTreeSet<ObjectKey>,
    pub(crate) reason: ReconcileReason,
}

/// The requests of a source, or the error of its cache.
pub(crate) type RequestStream = BoxStream<'static, Result<Requests, Box<CacheError>>>;

/// Registers a subscriber, for the changes from then on.
pub(crate) type StartSubscription = Box<dyn FnOnce() -> RequestStream + Send>;

/// Waits until a cache is synced, at most this long.
pub(crate) type WaitSynced = Box<dyn FnOnce(Duration) -> BoxFuture<'static, Result<(), Box<CacheError>>> + Send>;

/// Waits until the cache is synced, at most this long.
pub(crate) fn wait_synced<T: StoreType + ?Sized>(
    cache: Cache<T>,
    limit: Duration,
) -> BoxFuture<'static, Result<(), Box<CacheError>>> {
    let waiting = cache.clone();
    let mut synced = async move { waiting.synced().await }.boxed();
    let (mut timer, mut deadline) = (Timer::default(), None);
    let wait = future::poll_fn(move |cx| {
        let resource = || cache.resource().clone();
        if let Poll::Ready(synced) = synced.poll_unpin(cx) {
            let synced = synced.map(drop);
            return Poll::Ready(synced.map_err(|error| Box::new(CacheError::Ended { resource: resource(), error })));
        }
        let at = *deadline.get_or_insert_with(|| Instant::now().checked_add(limit));
        let Some(at) = at else { return Poll::Pending };
        ready!(timer.poll(at, cx));
        let last_error = cache.status().last_error;
        Poll::Ready(Err(Box::new(CacheError::NotSynced { resource: resource(), after: limit, last_error })))
    });
    wait.boxed()
}

/// Returns the owners of an object that are of this resource.
pub(crate) fn owner_keys<O: StoreType + ?Sized>(
    object: &Object<O>,
    resource: &Resource,
    warnings: &WarningLimit,
) -> Vec<ObjectKey> {
    let read = || {
        let is_owner = |api_version: &str, kind: &str| {
            let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
            kind == resource.kind() && group == resource.group()
        };
        let namespace = if resource.is_namespaced() { object.namespace() } else { "" };
        let owners = object.meta()?.owner_references()?.filter(|owner| is_owner(&owner.api_version, &owner.kind));
        let key = |name: &str| ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
        Ok::<_, ItemError>(owners.map(|owner| key(&owner.name)).collect())
    };
    read().unwrap_or_else(|error| {
        let object = object.key();
        if let Some(left_out) = warnings.admit((&object, error.to_string())) {
            tracing::warn!(name: "listwatch.owners", %object, %error, left_out, "cannot read the owners of an object");
        }
        Vec::new()
    })
}
