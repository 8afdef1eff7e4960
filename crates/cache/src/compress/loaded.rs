//! The dictionaries and references of a file that is being loaded.

use std::sync::Arc;

use crate::compress::decoder::Decoder;
use crate::compress::dictionary::{Dictionary, NamespaceDictionaries, NamespaceDictionary, StoredWhole};
use crate::compress::pool::Reference;
use crate::key::Namespaces;

/// The dictionaries and references of a file, which number them in their order.
#[derive(Default)]
pub(crate) struct LoadedDictionaries {
    dictionaries: Vec<Arc<Dictionary>>,
    references: Vec<Arc<Reference>>,
    by_namespace: NamespaceDictionaries,
}

impl LoadedDictionaries {
    /// Returns the number of dictionaries.
    pub(crate) fn len(&self) -> usize {
        self.dictionaries.len()
    }

    /// Returns the dictionaries. The store compressed new objects with the first.
    pub(crate) fn dictionaries(&self) -> &[Arc<Dictionary>] {
        &self.dictionaries
    }

    /// Adds a dictionary; returns `None` if zstd refuses the bytes.
    pub(crate) fn add_dictionary(&mut self, bytes: &[u8]) -> Option<()> {
        self.dictionaries.push(Arc::new(Dictionary::new(bytes)?));
        Some(())
    }

    /// Adds a reference to which objects of this file are deltas.
    pub(crate) fn add_reference(
        &mut self,
        decoder: &Decoder,
        shared: &Arc<NamespaceDictionary>,
        body: &[u8],
        wire_len: u32,
    ) {
        self.references.push(decoder.new_reference(StoredWhole { shared, body, wire_len }));
    }

    /// Returns what objects of the namespace share that are compressed with this dictionary, or without one; `None` if
    /// the file does not have the dictionary.
    pub(crate) fn namespace_dictionary(
        &mut self,
        namespaces: &mut Namespaces,
        namespace: &str,
        dictionary: Option<u64>,
    ) -> Option<Arc<NamespaceDictionary>> {
        let dictionary = match dictionary {
            None => None,
            Some(at) => Some(Arc::clone(self.dictionaries.get(usize::try_from(at).ok()?)?)),
        };
        Some(self.by_namespace.get(namespaces, namespace, dictionary))
    }

    /// Returns the reference with this number.
    pub(crate) fn reference(&self, at: u64) -> Option<&Arc<Reference>> {
        self.references.get(usize::try_from(at).ok()?)
    }
}
