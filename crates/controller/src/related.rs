//! Caches whose changes request reconciles of other objects.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use futures::future::BoxFuture;
use futures::future::ready;
use futures::stream::{self, BoxStream, poll_fn};
use futures::{FutureExt as _, Stream, StreamExt as _};
use listwatch::ItemError;
use listwatch::client::Resource;
use listwatch::internal::WarningLimit;
use listwatch_cache::{Cache, Change, EndReason, Object, ObjectKey, Predicate, StoreType, SyncError};

/// The number of keys of a whole cache that are read at a time.
const KEYS_STEP: usize = 256;

/// The error of a cache whose changes ended without a reason: it has no reflector, but the writer of a test.
pub(crate) const NO_WRITER: SyncError = SyncError::Ended(EndReason::Dropped);

/// The keys of the objects to reconcile, or the error of the cache.
pub(crate) type KeyStream = BoxStream<'static, Result<BTreeSet<ObjectKey>, SyncError>>;

/// Registers a subscriber, for the changes from then on.
pub(crate) type StartSubscription = Box<dyn FnOnce() -> KeyStream + Send>;

/// Returns a subscription to a cache, whose changes request the objects that `keys` returns for a state.
///
/// It is called for every state that the predicate does not drop: a subscriber coalesces changes, but a reconcile can
/// have seen a state that no change delivers.
pub(crate) fn subscribe_keys<O: StoreType + ?Sized>(
    cache: Cache<O>,
    predicate: Option<Predicate>,
    keys: impl Fn(&Object<O>) -> Vec<ObjectKey> + Send + Sync + 'static,
) -> StartSubscription {
    Box::new(move || {
        let requested = Arc::new(Mutex::new(BTreeSet::new()));
        let taken = Arc::clone(&requested);
        let take = move || mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
        let inspect = move |object: &Object<O>| {
            let keys = keys(object);
            requested.lock().unwrap_or_else(PoisonError::into_inner).extend(keys);
        };
        let mut changes = cache.subscribe().predicate_filter(predicate).inspect(inspect).start();
        let requests = poll_fn(move |cx| match changes.poll_next_unpin(cx) {
            Poll::Ready(Some(Change::Ended(reason))) => Poll::Ready(Some(Err(SyncError::Ended(reason)))),
            Poll::Ready(None) => Poll::Ready(Some(Err(NO_WRITER))),
            // The keys are taken after the change: the consumer is woken for it after they were added.
            Poll::Ready(Some(_)) => Poll::Ready(Some(Ok(take()))),
            Poll::Pending => {
                Some(take()).filter(|keys| !keys.is_empty()).map_or(Poll::Pending, |keys| Poll::Ready(Some(Ok(keys))))
            }
        });
        requests.boxed()
    })
}

/// Returns the keys of all objects of a cache, in key order.
///
/// Each step reads the cache as it is then, so a slow reader keeps no old states in memory. It misses no object of the
/// start, and new objects are reconciled anyway.
pub(crate) fn all_keys<T: StoreType + ?Sized>(cache: Cache<T>) -> impl Stream<Item = ObjectKey> {
    let steps = stream::unfold(None::<ObjectKey>, move |last| {
        let snapshot = cache.snapshot();
        let objects = snapshot.range(None, last.as_ref().map(Into::into));
        let keys: Vec<_> = objects.take(KEYS_STEP).map(|object| object.key()).collect();
        let last = keys.last().cloned();
        ready(last.map(|last| (stream::iter(keys), Some(last))))
    });
    steps.flatten()
}

/// Waits until the cache is synced.
pub(crate) fn wait_synced<O: StoreType + ?Sized>(cache: Cache<O>) -> BoxFuture<'static, Result<(), SyncError>> {
    async move { cache.synced().await.map(drop) }.boxed()
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
