//! The previous state of each object, kept compressed.

use listwatch::internal::chain;
use listwatch::path::meta;
use listwatch::{Encoding, ItemError, ItemRef, Projection, TypeMeta};
use listwatch_cache::{Relist, StorageFormat, Store, StoreError};
use serde_json::Value;

use super::compare::{FieldChange, find_changes};
use super::secret::mask_secrets;
use crate::failure::Failure;

/// The members of `metadata` that change with each write.
const BOOKKEEPING: [&str; 3] = ["resourceVersion", "generation", "managedFields"];

/// An object of an event.
pub struct EncodedObject {
    encoding: Encoding,
    type_meta: TypeMeta,
    namespace: String,
    name: String,
    /// Without `metadata.managedFields`.
    bytes: Box<[u8]>,
}

/// The previous state of each object.
pub struct PreviousObjects {
    store: Store<[u8]>,
    /// The initial objects, until all of them have arrived.
    initial: Option<Relist<[u8]>>,
    shows_secrets: bool,
}

impl EncodedObject {
    pub fn new(item: &ItemRef<'_>) -> Result<Self, ItemError> {
        let meta = item.meta()?;
        Ok(Self {
            encoding: item.encoding(),
            type_meta: item.type_meta().clone(),
            namespace: meta.namespace().into_owned(),
            name: meta.name().into_owned(),
            bytes: item.project(&Projection::new().drop(&meta::MANAGED_FIELDS))?,
        })
    }

    fn item(&self) -> ItemRef<'_> {
        ItemRef::new(self.encoding, &self.bytes).with_type_meta(&self.type_meta)
    }
}

impl PreviousObjects {
    /// Creates a store that is empty. `shows_secrets` is true if values of Secrets are not masked.
    pub fn new(shows_secrets: bool) -> Self {
        Self { store: Store::new(StorageFormat::Compressed), initial: None, shows_secrets }
    }

    /// Begins to receive the initial objects. They replace all others when they are complete.
    pub fn begin_initial(&mut self) {
        self.initial = Some(self.store.begin_relist().replace_all());
    }

    /// Returns true if the initial objects are not complete.
    pub fn is_initial(&self) -> bool {
        self.initial.is_some()
    }

    /// Completes the initial objects.
    pub fn end_initial(&mut self, version: &str) -> Result<(), Failure> {
        if let Some(initial) = self.initial.take() {
            initial.commit(version).map_err(|error| failure(&error))?;
        }
        Ok(())
    }

    /// Keeps a state, and returns the changes from the previous one, if there is one, and the number of unknown fields,
    /// which are not compared.
    pub fn replace(&mut self, object: &EncodedObject) -> Result<Option<(Vec<FieldChange>, u64)>, Failure> {
        let EncodedObject { encoding, type_meta, namespace, name, bytes } = object;
        if let Some(initial) = &mut self.initial {
            _ = initial.apply(*encoding, bytes).map_err(|error| failure(&error))?;
            return Ok(None);
        }
        let old = self.store.get((&**namespace, &**name));
        _ = self.store.apply(*encoding, bytes).map_err(|error| failure(&error))?;
        let Some(old) = old else { return Ok(None) };
        let compared = old.item().and_then(|old| self.compare(&old.with_type_meta(type_meta), &object.item()));
        compared.map(Some).map_err(|error| failure(&error.into()))
    }

    /// Forgets an object that was deleted.
    pub fn remove(&mut self, object: &EncodedObject) -> Result<(), Failure> {
        self.store.delete(object.encoding, &object.bytes).map_err(|error| failure(&error))?;
        Ok(())
    }

    /// Returns the number of objects, and the bytes of their memory.
    pub fn size(&self) -> (usize, usize) {
        (self.store.len(), self.store.memory().total())
    }

    fn compare(&self, old: &ItemRef<'_>, new: &ItemRef<'_>) -> Result<(Vec<FieldChange>, u64), ItemError> {
        let (mut old, _) = comparable_json(old)?;
        let (mut new, unknown_fields) = comparable_json(new)?;
        if !self.shows_secrets {
            mask_secrets(&mut old, &mut new);
        }
        Ok((find_changes(&old, &new), unknown_fields))
    }
}

/// Returns the JSON without bookkeeping, and the number of unknown fields.
pub fn comparable_json(item: &ItemRef<'_>) -> Result<(Value, u64), ItemError> {
    let mut json = Vec::new();
    let unknown_fields = item.to_json(&mut json)?;
    let mut object: Value = serde_json::from_slice(&json).map_err(ItemError::other)?;
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for member in BOOKKEEPING {
            metadata.remove(member);
        }
    }
    Ok((object, unknown_fields))
}

fn failure(error: &StoreError) -> Failure {
    Failure::Error(format!("cannot compare an object: {}", chain(error)))
}
