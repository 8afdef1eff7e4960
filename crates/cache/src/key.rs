//! The identity of an object, and of one of its states.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// The namespace and the name of an object.
///
/// Methods also accept a pair of borrowed texts instead: `store.get(("kube-system", "dns"))`.
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
    pub(crate) fn into_owned(self) -> Identity<'static> {
        let Self { namespace, name, uid, resource_version } = self;
        let [namespace, name, uid, resource_version] =
            [namespace, name, uid, resource_version].map(|text| Cow::Owned(text.into_owned()));
        Identity { namespace, name, uid, resource_version }
    }

    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone().into_owned(), name: self.name.clone().into_owned() }
    }
}

/// The namespaces of a store, whose texts its entries share.
pub(crate) struct Namespaces {
    texts: HashSet<Arc<str>>,
    /// At this many namespaces, unused ones are removed: twice the number that was in use the last time.
    full: usize,
}

/// Among fewer namespaces, unused ones are not looked for.
pub(crate) const FEW_NAMESPACES: usize = 64;

impl Default for Namespaces {
    fn default() -> Self {
        Self { texts: HashSet::new(), full: FEW_NAMESPACES }
    }
}

impl Namespaces {
    /// Returns the shared text of a namespace. Adding one may remove those that no entry uses.
    pub(crate) fn intern(&mut self, namespace: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(namespace) {
            return Arc::clone(known);
        }
        if self.texts.len() >= self.full {
            self.forget_unused();
        }
        let namespace = Arc::<str>::from(namespace);
        self.texts.insert(Arc::clone(&namespace));
        namespace
    }

    pub(crate) fn get(&self, namespace: &str) -> Option<Arc<str>> {
        self.texts.get(namespace).cloned()
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.texts.extend(others.texts);
    }

    pub(crate) fn forget_unused(&mut self) {
        self.texts.retain(|namespace| Arc::strong_count(namespace) > 1);
        self.full = (2 * self.texts.len()).max(FEW_NAMESPACES);
        self.texts.shrink_to(2 * self.texts.len());
    }

    pub(crate) fn bytes(&self) -> usize {
        self.texts.capacity() * 8 / 7 * (size_of::<Arc<str>>() + 1)
            + self.texts.iter().map(|namespace| 2 * size_of::<usize>() + namespace.len()).sum::<usize>()
    }
}
