//! Trained dictionaries, and what objects that are stored whole share.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use zstd_safe::DDict;

use crate::key::Namespaces;

/// zstd's default. Higher levels take several times as long and save a few percent.
pub(super) const LEVEL: i32 = 3;

/// A trained dictionary. The objects that were compressed with it keep it alive.
pub(crate) struct Dictionary {
    /// The bytes from which it was created, compressed, and their length.
    packed: Box<[u8]>,
    len: usize,
    pub(super) decompress: DDict<'static>,
}

impl Dictionary {
    /// Returns `None` if zstd refuses the bytes.
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let mut packed = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
        zstd_safe::compress(&mut packed, bytes, LEVEL).ok()?;
        Some(Self { packed: packed.into(), len: bytes.len(), decompress: DDict::try_create(bytes)? })
    }

    /// Returns the bytes from which it was created.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        // They were compressed by `new`.
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

/// By namespace, what objects share that are stored whole from now on.
#[derive(Default)]
pub(super) struct NamespaceDictionaries(HashMap<Arc<str>, Weak<NamespaceDictionary>>);

impl NamespaceDictionaries {
    /// Returns what objects of the namespace share until another dictionary is trained.
    pub(super) fn get(
        &mut self,
        namespaces: &mut Namespaces,
        namespace: &str,
        dictionary: Option<Arc<Dictionary>>,
    ) -> Arc<NamespaceDictionary> {
        let address = |dictionary: &Option<Arc<Dictionary>>| dictionary.as_ref().map(Arc::as_ptr);
        if let Some(shared) = self.0.get(namespace).and_then(Weak::upgrade)
            && address(&shared.dictionary) == address(&dictionary)
        {
            return shared;
        }
        let namespace = namespaces.intern(namespace);
        let shared = Arc::new(NamespaceDictionary { namespace: Arc::clone(&namespace), dictionary });
        self.0.insert(namespace, Arc::downgrade(&shared));
        shared
    }

    pub(super) fn forget_dropped(&mut self) {
        self.0.retain(|_, shared| shared.strong_count() > 0);
        self.0.shrink_to(2 * self.0.len());
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * 8 / 7 * (size_of::<(Arc<str>, Weak<NamespaceDictionary>)>() + 1)
            + self.0.len() * (2 * size_of::<usize>() + size_of::<NamespaceDictionary>())
    }
}
