//! A reflector whose options are set and whose store exists.

use std::fmt;
use std::sync::{Arc, OnceLock};

use listwatch::Projection;
use listwatch::client::{Client, Resource, Selection};
use listwatch::internal::Outage;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::StoreType;
use crate::reflector::attached::AttachedStore;
use crate::reflector::cache::{Cache, Collection};
use crate::reflector::status::ReflectorStatus;
use crate::reflector::sync::SyncState;

/// A [`Reflector`](super::Reflector) whose options are set and whose cache exists, but which does not run yet.
///
/// ```no_run
/// use k8s_pb::api::core::v1::Pod;
/// use listwatch::client::Client;
/// use listwatch_cache::{Change, Reflector};
///
/// # async fn run(client: Client) {
/// let reflector = Reflector::<Pod>::of(&client).prepare();
/// // The subscriber gets all Pods as additions, because it is there first.
/// let mut changes = reflector.cache().subscribe().start();
/// let pods = reflector.spawn();
/// while let Some(Change::Applied { new, .. }) = changes.next().await {
///     println!("{} of {} Pods: {}", pods.len(), new.namespace(), new.name());
/// }
/// # }
/// ```
#[must_use = "nothing is sent until it is spawned, or run is polled"]
pub struct PreparedReflector<T: StoreType + ?Sized> {
    pub(super) client: Client,
    pub(super) resource: Resource,
    pub(super) selection: Selection,
    pub(super) namespace: Option<String>,
    pub(super) projection: Option<Projection>,
    pub(super) store: AttachedStore<T>,
    pub(super) sync: SyncState,
    /// The time at which the collection was complete in this attempt.
    pub(super) synced_at: Option<Instant>,
    pub(super) outage: Arc<Outage>,
    pub(super) status: Arc<watch::Sender<ReflectorStatus>>,
    /// Is notified when a cache stops the reflector.
    pub(super) stop: Arc<Notify>,
    /// The objects that it stores; set once it runs.
    pub(super) collection: Arc<OnceLock<Collection>>,
}

impl<T: StoreType + ?Sized> PreparedReflector<T> {
    /// Returns a handle for readers of the store.
    #[must_use]
    pub fn cache(&self) -> Cache<T> {
        Cache {
            store: self.store.clone(),
            status: self.status.subscribe(),
            stop: Arc::clone(&self.stop),
            collection: Arc::clone(&self.collection),
        }
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for PreparedReflector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedReflector")
            .field("resource", &self.resource)
            .field("status", &*self.status.borrow())
            .finish_non_exhaustive()
    }
}
