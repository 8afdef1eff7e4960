//! The store of a reflector, and the end of the reflector.

use std::ops::Deref;
use std::sync::Arc;

use listwatch::client::Resource;
use tokio::sync::watch;

use crate::reflector::status::ReflectorStatus;
use crate::{EndReason, Store, StoreType};

/// The target of spans and events. Filters name it, so it does not depend on the file.
pub(super) const TARGET: &str = "listwatch_cache::reflector";

/// The store of a reflector. Its drop ends the reflector, however that comes about: the status and all subscribers then
/// have the reason.
pub(super) struct AttachedStore<T: StoreType + ?Sized> {
    store: Store<T>,
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

    /// Returns when the last handle of the store is dropped. From now on this one does not count.
    pub(super) fn last_handle(&mut self) -> impl Future<Output = ()> + Send + use<T> {
        self.store.forget_handle();
        self.store.last_handle()
    }
}

impl<T: StoreType + ?Sized> Deref for AttachedStore<T> {
    type Target = Store<T>;

    fn deref(&self) -> &Store<T> {
        &self.store
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
