//! The requests of a reflector.

use std::sync::Arc;

use listwatch::FromRef;
use listwatch::client::{Client, Error, List, ListParams, ResourceVersion, Retry, WatchParams};
use listwatch::internal::{Connections, PAGE};

use crate::StoreType;
use crate::reflector::prepared::PreparedReflector;
use crate::reflector::status::record_error;

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
            if let Some(error) = &disconnect.error {
                record_error(&status, error.clone());
                status.send_modify(|status| status.is_up_to_date = false);
            }
        });
        let watch = if self.sync.fails_fast() { watch.fail_fast() } else { watch };
        watch.into_connections().reporting_to(&self.outage)
    }

    pub(super) fn list(&self, version: ResourceVersion, pages: bool) -> List<FromRef<T>> {
        let params = ListParams::new(self.selection.clone()).resource_version(version);
        // The list retries an interrupted page; `SyncState` handles the errors of a list in one response.
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
