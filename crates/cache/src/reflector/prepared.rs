//! A reflector whose options are set and whose store exists.

use std::fmt;
use std::sync::{Arc, OnceLock};

use listwatch::client::{Client, Error, List, ListParams, Resource, ResourceVersion, Retry, Selection, WatchParams};
use listwatch::internal::{Connections, Outage, PAGE};
use listwatch::{FromRef, Projection, StoreType};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use crate::error::EndReason;
use crate::reflector::cache::{Cache, Collection};
use crate::reflector::status::{ReflectorStatus, record_error};
use crate::reflector::sync::{QuietSpan, SyncPolicy};
use crate::store::writable::Store;

/// The target of spans and events, which filters name, so it must not depend on the file.
pub(super) const TARGET: &str = "listwatch_cache::reflector";

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
    pub(super) attached: AttachedStore<T>,
    pub(super) sync: SyncPolicy,
    /// When the collection was complete in this attempt.
    pub(super) synced_at: Option<Instant>,
    pub(super) outage: Arc<Outage>,
    pub(super) status: Arc<watch::Sender<ReflectorStatus>>,
    /// Notified when a cache stops the reflector.
    pub(super) stop: Arc<Notify>,
    /// What its caches have confirmed.
    pub(super) quiet_spans: (mpsc::Sender<QuietSpan>, mpsc::Receiver<QuietSpan>),
    /// Which objects the reflector stores; set once it runs.
    pub(super) collection: Arc<OnceLock<Collection>>,
    /// True if a file is put into the store before the server has answered.
    pub(super) serves_unchecked: bool,
}

impl<T: StoreType + ?Sized> PreparedReflector<T> {
    /// Returns a handle for readers of the store.
    #[must_use]
    pub fn cache(&self) -> Cache<T> {
        Cache {
            resource: self.resource.clone(),
            store: self.attached.store.clone(),
            status: self.status.subscribe(),
            stop: Arc::clone(&self.stop),
            quiet_spans: self.quiet_spans.0.clone(),
            collection: Arc::clone(&self.collection),
        }
    }
}

/// The requests.
impl<T: StoreType + ?Sized> PreparedReflector<T> {
    pub(super) fn watch(&self) -> Connections {
        let params = WatchParams::with_initial_state().selection(self.selection.clone());
        let watch = self.client.watch::<T>(&self.resource, &params);
        let watch = match &self.namespace {
            Some(namespace) => watch.namespace(namespace),
            None => watch,
        };
        let status = Arc::clone(&self.status);
        let watch = watch.on_disconnect(move |disconnect| {
            // A list that replaces the initial events at once makes their refusal no error of the cache.
            let is_replaced = disconnect.lists && disconnect.wait.is_zero();
            if let Some(error) = disconnect.error.as_ref().filter(|_| !is_replaced) {
                record_error(&status, error.clone());
                status.send_modify(|status| status.is_up_to_date = false);
            }
        });
        let watch = if self.sync.fails_fast() { watch.fail_fast() } else { watch };
        watch.into_connections().reporting_to(&self.outage)
    }

    pub(super) fn list(&self, version: ResourceVersion, pages: bool) -> List<FromRef<T>> {
        let params = ListParams::new(self.selection.clone()).resource_version(version);
        // The list retries an interrupted page; `SyncPolicy` handles the errors of a list in one response.
        let (client, params) =
            if pages { (self.client.clone(), params.page_size(PAGE)) } else { (self.once(), params) };
        let list = client.list::<T>(&self.resource, &params).accept_versions();
        match &self.namespace {
            Some(namespace) => list.namespace(namespace),
            None => list,
        }
    }

    /// Requests the resource version of a list of one object.
    pub(super) fn recent_version(&self) -> impl Future<Output = Result<String, Error>> + Send + use<T> {
        self.once().current_version(&self.resource, &self.selection, self.namespace.as_deref())
    }

    pub(super) fn once(&self) -> Client {
        self.client.clone().retry(Retry::never())
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

/// The store of a reflector. Its drop ends the reflector, for whatever reason it happens, and the status and all
/// subscribers then learn the reason.
pub(super) struct AttachedStore<T: StoreType + ?Sized> {
    pub(super) store: Store<T>,
    resource: Resource,
    status: Arc<watch::Sender<ReflectorStatus>>,
    /// Why the reflector has ended, unless it was dropped.
    pub(super) end: Option<EndReason>,
}

impl<T: StoreType + ?Sized> AttachedStore<T> {
    pub(super) fn new(store: Store<T>, resource: Resource, status: Arc<watch::Sender<ReflectorStatus>>) -> Self {
        store.attach();
        Self { store, resource, status, end: None }
    }

    /// Returns when the last other handle of the store is dropped. From now on, this one does not count.
    pub(super) fn last_handle(&mut self) -> impl Future<Output = ()> + Send + use<T> {
        self.store.forget_handle();
        self.store.last_handle()
    }
}

impl<T: StoreType + ?Sized> Drop for AttachedStore<T> {
    fn drop(&mut self) {
        let reason = self.end.take().unwrap_or(EndReason::Dropped);
        let resource = &self.resource;
        match &reason {
            // `run` returns the error.
            EndReason::Failed(_) => {}
            EndReason::Panicked(_) => {
                tracing::error!(name: "listwatch.ended", target: TARGET, %resource, %reason, "the reflector ended");
            }
            EndReason::Stopped | EndReason::Dropped => {
                tracing::info!(name: "listwatch.ended", target: TARGET, %resource, %reason, "the reflector ended");
            }
        }
        self.status.send_modify(|status| {
            status.is_up_to_date = false;
            status.ended_by = Some(reason.clone());
        });
        self.store.detach(reason);
    }
}
