//! The writes of the user's own, which a cache takes before the watch tells of them.

use super::{Cache, Reflector};
use crate::cache::{StoreError, Stored, Written};
use crate::client::ListOptions;
use crate::error::ItemError;
use crate::meta::TypeMeta;
use crate::object::ItemRef;
use crate::object::path::meta;
use crate::object::{FieldPath, Item, Projection};
use crate::wire::Encoding;

/// Which objects a reflector stores, and in what form.
pub(super) struct Scope {
    /// The same in words, for files.
    pub(super) holds: String,
    type_meta: TypeMeta,
    namespace: Option<String>,
    options: ListOptions,
    projection: Option<Projection>,
}

impl Scope {
    pub(super) fn of<T: Item + Stored + ?Sized>(reflector: &Reflector<T>, holds: String) -> Self {
        let Reflector { resource, namespace, options, projection, .. } = reflector;
        Self {
            holds,
            type_meta: TypeMeta { api_version: resource.api_version(), kind: resource.kind().to_owned() },
            namespace: namespace.clone(),
            options: options.clone(),
            projection: projection.clone(),
        }
    }

    fn selects(&self, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        let is_of_namespace = match &self.namespace {
            Some(namespace) => item.meta()?.namespace() == *namespace,
            None => true,
        };
        Ok(is_of_namespace && self.options.selects(item)?)
    }

    /// What is stored of an object that the server sent whole.
    fn stored(&self, item: &ItemRef<'_>) -> Result<Box<[u8]>, ItemError> {
        let mut bytes = item.to_box();
        if self.options.is_metadata_only() {
            let metadata = Projection::new().keep(&FieldPath::new("metadata", &[1]));
            bytes = item.with_bytes(&bytes).project(&metadata)?;
        }
        if self.options.drops_managed_fields() {
            bytes = item.with_bytes(&bytes).project(&Projection::new().drop(&meta::MANAGED_FIELDS))?;
        }
        match &self.projection {
            Some(projection) => item.with_bytes(&bytes).project(projection),
            None => Ok(bytes),
        }
    }
}

impl<T: Stored + ?Sized> Cache<T> {
    /// Writes the server's answer to a write of one's own, so that the cache has it before the watch tells of it.
    ///
    /// It is stored as the reflector stores objects: what its projection drops is dropped. `None`: the cache does not store the
    /// object, because it is of another namespace or shard, because the selectors do not select it, or because the reflector
    /// does not run yet.
    ///
    /// An answer that comes late changes nothing: an object that was deleted meanwhile does not return, and a newer state stays.
    /// So the answer is dropped where the cache cannot tell, and the watch brings the object.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the object cannot be stored, or its selectors not be checked. The cache then has what it had.
    pub fn apply(&self, encoding: Encoding, bytes: &[u8]) -> Result<Option<Written<T>>, StoreError> {
        let Some(scope) = self.scope.get() else { return Ok(None) };
        let item = ItemRef::new(encoding, bytes).with_type_meta(&scope.type_meta);
        if !scope.selects(&item)? {
            return Ok(None);
        }
        self.store.apply_own(encoding, &scope.stored(&item)?).map(Some)
    }
}
