//! Caches whose changes request reconciles of other objects.

use futures::future::BoxFuture;
use futures::stream::{BoxStream, once};
use futures::{FutureExt as _, StreamExt as _};
use listwatch::ItemError;
use listwatch::cache::{Change, Object, ObjectKey, Stored};
use listwatch::client::Resource;
use listwatch::reflector::{Cache, SyncError};

/// The keys of the objects to reconcile, or the error of the cache.
pub(super) type Keys = BoxStream<'static, Result<Vec<ObjectKey>, SyncError>>;

/// Registers a subscriber, for the changes from then on.
pub(super) type Subscribe = Box<dyn FnOnce() -> Keys + Send>;

/// `keys` returns the objects to reconcile for one state of a related object.
pub(super) fn subscribe<O: Stored + ?Sized>(
    cache: Cache<O>,
    keys: impl Fn(&Object<O>) -> Vec<ObjectKey> + Send + 'static,
) -> Subscribe {
    Box::new(move || {
        let changes = cache.subscribe().start().map(Some).chain(once(async { None }));
        let requests = changes.map(move |change| match change {
            Some(Change::Applied { old, new }) => Ok(old.iter().chain([&new]).flat_map(&keys).collect()),
            Some(Change::Deleted { old, last, .. }) => Ok([&old, &last].into_iter().flat_map(&keys).collect()),
            None | Some(Change::Ended(_)) => Err(ended(&cache)),
            Some(_) => Ok(Vec::new()),
        });
        requests.boxed()
    })
}

/// Waits until the cache is synced.
pub(super) fn synced<O: Stored + ?Sized>(cache: Cache<O>) -> BoxFuture<'static, Result<(), SyncError>> {
    async move { cache.synced().await.map(drop) }.boxed()
}

/// Returns the error of a cache whose changes have ended.
pub(super) fn ended<O: Stored + ?Sized>(cache: &Cache<O>) -> SyncError {
    SyncError::Ended { cause: cache.status().ended_by }
}

/// Returns the owners of an object that are of this resource.
pub(super) fn owners<O: Stored + ?Sized>(object: &Object<O>, resource: &Resource) -> Vec<ObjectKey> {
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
        tracing::warn!(name: "listwatch.owners", %object, %error, "cannot read the owners of an object");
        Vec::new()
    })
}
