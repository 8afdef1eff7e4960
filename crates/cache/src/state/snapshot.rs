//! The collection at one moment.

use std::fmt;
use std::sync::Arc;

use listwatch::StoreType;

use crate::state::key_order::KeyOrder;
use crate::state::object::{Codec, Object};
use crate::state::table::{Chunk, ObjectTable, bound_of, compare, get, of_bound, of_range};

/// The collection at one moment: see [`StoreReader::snapshot`](crate::StoreReader::snapshot).
pub struct Snapshot<T: StoreType + ?Sized> {
    chunks: Vec<Arc<Chunk>>,
    order: KeyOrder,
    len: usize,
    version: String,
    codec: Arc<Codec<T>>,
}

impl<T: StoreType + ?Sized> Snapshot<T> {
    /// Iterates over the objects in key order: by the bytes of `namespace/name`, as an API server lists them.
    pub fn iter(&self) -> impl Iterator<Item = Object<T>> {
        self.objects(self.order.iter())
    }

    /// Iterates in key order over the objects after a key, in one namespace or in all.
    ///
    /// The key need not exist. Finding the first object takes time that grows with the logarithm of the collection.
    ///
    /// ```
    /// # use listwatch::Encoding;
    /// use listwatch_cache::{StorageFormat, Store};
    /// let store = Store::<[u8]>::new(StorageFormat::Encoded);
    /// for (namespace, name) in [("a", "x"), ("a-b", "x"), ("a", "y")] {
    ///     let json = format!(r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}"}}}}"#);
    ///     _ = store.apply(Encoding::Json, json.as_bytes())?;
    /// }
    /// let snapshot = store.snapshot();
    /// let keys = |after| snapshot.range(None, after).map(|object| object.key().to_string()).collect::<Vec<_>>();
    /// assert_eq!(keys(None), ["a-b/x", "a/x", "a/y"]);
    /// assert_eq!(keys(Some(("a", "x"))), ["a/y"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<'s>(
        &'s self,
        namespace: Option<&'s str>,
        after: Option<(&'s str, &'s str)>,
    ) -> impl Iterator<Item = Object<T>> + use<'s, T> {
        self.objects(of_range(&self.order, &self.chunks, namespace, after))
    }

    /// Counts the objects that [`range`](Self::range) iterates over, without visiting them.
    ///
    /// It costs two binary searches, and an addition for each 100 objects or so after the key. Only for the namespace
    /// `""` does it visit the objects.
    #[must_use]
    pub fn range_len(&self, namespace: Option<&str>, after: Option<(&str, &str)>) -> usize {
        let Some(namespace) = namespace else {
            return self.order.count_from(|slot| of_bound(&self.chunks, slot, after));
        };
        if namespace.is_empty() {
            return self.range(Some(namespace), after).count();
        }
        // `0` follows `/`, which follows the namespace in all keys of the namespace.
        let end = format!("{namespace}0");
        let bound = bound_of(namespace, after);
        let from = self.order.count_from(|slot| of_bound(&self.chunks, slot, Some(bound)));
        let after_end = self.order.count_from(|slot| compare(&self.chunks, slot, ("", &end)));
        from.saturating_sub(after_end)
    }

    fn objects<'s, I: Iterator<Item = u32> + 's>(
        &'s self,
        slots: I,
    ) -> impl Iterator<Item = Object<T>> + use<'s, I, T> {
        slots.filter_map(|slot| Some(Object::new(get(&self.chunks, slot)?, &self.codec)))
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn of(table: &ObjectTable, codec: &Arc<Codec<T>>) -> Self {
        Self {
            chunks: table.chunks.clone(),
            order: table.order.clone(),
            len: table.len(),
            version: table.version.clone(),
            codec: Arc::clone(codec),
        }
    }

    pub(crate) fn at_version(self, version: String) -> Self {
        Self { version, ..self }
    }

    /// Returns the [resource version](crate::StoreReader::resource_version) of the collection at that moment.
    ///
    /// Objects may be newer.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.version
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("len", &self.len)
            .field("resource_version", &self.version)
            .finish_non_exhaustive()
    }
}
