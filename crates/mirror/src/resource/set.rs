//! The mirrored resources of a mirror.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::mirrored::{Mirrored, ResourceStatus};
use crate::request::{Attributes, ReadRequest};

/// The resources of a mirror. Clones share them, and a program may add some while the mirror serves.
#[derive(Clone, Debug, Default)]
pub struct MirroredSet(watch::Sender<ResourceList>);

#[derive(Debug, Default)]
struct ResourceList {
    mirrored: Vec<Arc<Mirrored>>,
    /// The names of resources that the API server does not have yet.
    missing: BTreeMap<String, ResourceStatus>,
}

impl MirroredSet {
    /// Answers requests for this resource from its cache, from now on.
    pub fn add(&self, mirrored: Mirrored) {
        self.0.send_modify(|list| list.mirrored.push(Arc::new(mirrored)));
    }

    /// Shows a resource as not ready in `/readyz` and in the metrics, because nobody knows yet where it is served. Its
    /// requests are forwarded.
    pub fn set_missing(&self, name: &str) {
        let status = ResourceStatus::missing(name);
        self.0.send_modify(|list| _ = list.missing.insert(name.to_owned(), status));
    }

    /// Ends what [`set_missing`](Self::set_missing) began.
    pub fn set_found(&self, name: &str) {
        self.0.send_modify(|list| _ = list.missing.remove(name));
    }

    /// Returns the resources in the order in which they were added.
    pub(crate) fn all(&self) -> Vec<Arc<Mirrored>> {
        self.0.borrow().mirrored.clone()
    }

    /// Returns the resources that were added after the first ones, once there are any.
    pub(crate) async fn wait_for_more(&self, than: usize) -> Vec<Arc<Mirrored>> {
        let mut changes = self.0.subscribe();
        // There is a sender as long as this set is borrowed.
        _ = changes.wait_for(|list| list.mirrored.len() > than).await;
        self.0.borrow().mirrored.iter().skip(than).cloned().collect()
    }

    /// Returns the status of all resources.
    pub(crate) fn statuses(&self) -> Vec<ResourceStatus> {
        let list = self.0.borrow();
        let missing = list.missing.values().cloned();
        list.mirrored.iter().map(|mirrored| mirrored.status()).chain(missing).collect()
    }

    /// Returns the mirrored resource that can answer a read: of the same group, version and plural, and of its
    /// namespace.
    pub(crate) fn find_resource(&self, read: &ReadRequest) -> Option<Arc<Mirrored>> {
        let list = self.0.borrow();
        let found = list.mirrored.iter().find(|mirrored| {
            let resource = &mirrored.resource;
            resource.group() == read.group
                && resource.version() == read.version
                && resource.plural() == read.plural
                && (mirrored.namespace.is_none() || mirrored.namespace == read.namespace)
        });
        found.cloned()
    }

    /// Returns true if Secrets with these attributes are mirrored, in any version.
    pub(crate) fn has_secrets(&self, attributes: &Attributes) -> bool {
        self.0.borrow().mirrored.iter().any(|mirrored| {
            let resource = &mirrored.resource;
            resource.group().is_empty()
                && resource.plural() == "secrets"
                && match (&mirrored.namespace, attributes) {
                    (None, _) => true,
                    (Some(namespace), Attributes::Resource(of)) => of.namespace == *namespace,
                    (Some(_), Attributes::Path { .. }) => false,
                }
        })
    }
}
