//! The identity of an object, and of one of its states.

use std::borrow::Cow;
use std::fmt;

/// The namespace and the name of an object of a collection.
///
/// Methods accept a pair of borrowed texts in its place: `store.get(("kube-system", "dns"))`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl<'k> From<&'k ObjectKey> for (&'k str, &'k str) {
    fn from(key: &'k ObjectKey) -> Self {
        (&key.namespace, &key.name)
    }
}

/// `namespace/name`, or only the name.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Identifies one state of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity<'a> {
    pub(crate) namespace: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
    pub(crate) uid: Cow<'a, str>,
    pub(crate) resource_version: Cow<'a, str>,
}

impl Identity<'_> {
    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone().into_owned(), name: self.name.clone().into_owned() }
    }
}
