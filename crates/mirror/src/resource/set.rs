//! The mirrored resources of a mirror.

use std::sync::Arc;

use super::mirrored::Mirrored;
use crate::request::{Attributes, ReadRequest};

/// The mirrored resources of a mirror. Clones share them.
#[derive(Clone)]
pub(crate) struct MirroredSet(Arc<[Arc<Mirrored>]>);

impl MirroredSet {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Mirrored>> {
        self.0.iter()
    }

    /// Returns the mirrored resource that can answer a read: of the same group, version and plural, and of its
    /// namespace.
    pub(crate) fn find_resource(&self, read: &ReadRequest) -> Option<&Arc<Mirrored>> {
        self.iter().find(|mirrored| {
            let resource = &mirrored.resource;
            resource.group() == read.group
                && resource.version() == read.version
                && resource.plural() == read.plural
                && (mirrored.namespace.is_none() || mirrored.namespace == read.namespace)
        })
    }

    /// Returns true if Secrets with these attributes are mirrored, in any version.
    pub(crate) fn has_secrets(&self, attributes: &Attributes) -> bool {
        self.iter().any(|mirrored| {
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

impl From<Vec<Mirrored>> for MirroredSet {
    fn from(resources: Vec<Mirrored>) -> Self {
        Self(resources.into_iter().map(Arc::new).collect())
    }
}
