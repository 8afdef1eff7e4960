//! Trained dictionaries, and the data that objects stored whole share.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use zstd_safe::DDict;

use crate::key::{FEW_NAMESPACES, Namespaces};

/// zstd's default. Higher levels take several times as long and save a few percent.
pub(super) const LEVEL: i32 = 3;

/// A trained dictionary. The objects that were compressed with it keep it alive.
pub(crate) struct Dictionary {
    /// The bytes from which the dictionary was created, compressed, and their length.
    packed: Box<[u8]>,
    len: usize,
    pub(super) decompress: DDict<'static>,
}

impl Dictionary {
    /// Returns `None` if zstd refuses the bytes.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let mut packed = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
        zstd_safe::compress(&mut packed, bytes, LEVEL).ok()?;
        Some(Self { packed: packed.into(), len: bytes.len(), decompress: DDict::try_create(bytes)? })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        // This cannot fail, because `new` compressed the bytes.
        _ = zstd_safe::decompress(&mut bytes, &self.packed);
        bytes
    }

    pub(super) fn packed_len(&self) -> usize {
        self.packed.len()
    }
}

/// The namespace and the dictionary of objects that are stored whole. They share it, so an entry has one pointer for
/// both.
pub(crate) struct NamespaceDictionary {
    pub(crate) namespace: Arc<str>,
    pub(crate) dictionary: Option<Arc<Dictionary>>,
}

/// An object that is compressed by itself.
#[derive(Clone, Copy)]
pub(crate) struct StoredWhole<'a> {
    pub(crate) shared: &'a Arc<NamespaceDictionary>,
    pub(crate) body: &'a [u8],
    pub(crate) wire_len: u32,
}

/// The dictionary and namespace that new objects share if they are stored whole, for each namespace.
pub(crate) struct NamespaceDictionaries {
    shared: HashMap<Arc<str>, Weak<NamespaceDictionary>>,
    /// The number of namespaces at which the ones without objects are removed.
    full: usize,
}

impl Default for NamespaceDictionaries {
    fn default() -> Self {
        Self { shared: HashMap::new(), full: FEW_NAMESPACES }
    }
}

impl NamespaceDictionaries {
    /// Returns the data that objects of the namespace share until another dictionary is trained. A new namespace may
    /// displace namespaces without objects.
    pub(crate) fn get(
        &mut self,
        namespaces: &mut Namespaces,
        namespace: &str,
        dictionary: Option<Arc<Dictionary>>,
    ) -> Arc<NamespaceDictionary> {
        let address = |dictionary: &Option<Arc<Dictionary>>| dictionary.as_ref().map(Arc::as_ptr);
        if let Some(shared) = self.shared.get(namespace).and_then(Weak::upgrade)
            && address(&shared.dictionary) == address(&dictionary)
        {
            return shared;
        }
        if self.shared.len() >= self.full {
            self.forget_dropped();
        }
        let namespace = namespaces.intern(namespace);
        let shared = Arc::new(NamespaceDictionary { namespace: Arc::clone(&namespace), dictionary });
        self.shared.insert(namespace, Arc::downgrade(&shared));
        shared
    }

    pub(super) fn forget_dropped(&mut self) {
        self.shared.retain(|_, shared| shared.strong_count() > 0);
        self.full = (2 * self.shared.len()).max(FEW_NAMESPACES);
        self.shared.shrink_to(2 * self.shared.len());
    }

    pub(super) fn bytes(&self) -> usize {
        self.shared.capacity() * 8 / 7 * (size_of::<(Arc<str>, Weak<NamespaceDictionary>)>() + 1)
            + self.shared.len() * (2 * size_of::<usize>() + size_of::<NamespaceDictionary>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocated::assert_reports_what_it_allocates;

    #[test]
    fn reports_its_map_and_what_namespaces_share() {
        let mut namespaces = Namespaces::default();
        let names: Vec<_> = (0..3000).map(|i| namespaces.intern(&format!("ns-{i}"))).collect();
        let mut shared = Vec::with_capacity(names.len());
        let create = || {
            let mut dictionaries = NamespaceDictionaries::default();
            shared.extend(names.iter().map(|name| dictionaries.get(&mut namespaces, name, None)));
            dictionaries
        };
        let mut dictionaries = assert_reports_what_it_allocates(create, NamespaceDictionaries::bytes);
        let known = dictionaries.get(&mut namespaces, "ns-7", None);
        assert!(Arc::ptr_eq(&known, &shared[7]));
        drop((known, shared));
        // A new namespace displaces those without objects.
        let kept = dictionaries.get(&mut namespaces, "kept", None);
        (0..10_000).for_each(|i| drop(dictionaries.get(&mut namespaces, &format!("more-{i}"), None)));
        assert!(dictionaries.bytes() < 10_000, "{}", dictionaries.bytes());
        assert!(Arc::ptr_eq(&kept, &dictionaries.get(&mut namespaces, "kept", None)));
    }

    #[test]
    fn a_dictionary_returns_its_bytes() {
        let bytes: Vec<_> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
        let dictionary = Dictionary::new(&bytes).unwrap();
        assert_eq!(dictionary.bytes(), bytes);
        assert!((100..bytes.len()).contains(&dictionary.packed_len()));
    }
}
