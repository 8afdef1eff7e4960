//! The indexes of a store, as writers see them.

use std::mem;
use std::sync::{Arc, Weak};

use listwatch::StoreType;

use crate::contain::drop_contained;
use crate::error::ObjectError;
use crate::state::object::Object;
use crate::subscribe::subscription::Subscription;

/// The steps of a write for an index: see [`IndexData`](super::data::IndexData).
pub(crate) trait MaintainedIndex<T: StoreType + ?Sized>: Send + Sync {
    /// Computes the values of the object that is written into the slot, or into a new slot; `None` if the object is
    /// removed. Readers see no change.
    fn stage(&self, slot: Option<u32>, object: Option<&Object<T>>);
    /// Makes the staged values visible to readers. It runs under the lock of the state, and calls no user code.
    /// `has_object` is false if the object is removed.
    fn commit(&self, slot: u32, has_object: bool) -> Option<ObjectError>;
    /// Appends the subscribers to the values that the object had or has.
    fn notify(&self, subscribers: &mut Vec<Arc<Subscription<T>>>);
    fn bytes(&self) -> usize;
}

/// The indexes of a store that have readers, and the errors of their functions.
pub(crate) struct IndexRegistry<T: StoreType + ?Sized> {
    indexes: Vec<Weak<dyn MaintainedIndex<T>>>,
    /// How often index functions failed since the reflector last asked, and the last error.
    errors: (u64, Option<ObjectError>),
}

impl<T: StoreType + ?Sized> IndexRegistry<T> {
    pub(crate) fn new() -> Self {
        Self { indexes: Vec::new(), errors: (0, None) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    pub(crate) fn add(&mut self, index: &Arc<dyn MaintainedIndex<T>>) {
        self.indexes.push(Arc::downgrade(index));
    }

    /// Stages the write of an object in all indexes. It runs user code.
    pub(crate) fn stage(&mut self, slot: Option<u32>, object: Option<&Object<T>>) -> StagedIndexes<T> {
        self.indexes.retain(|index| index.strong_count() > 0);
        let indexes: Vec<_> = self.indexes.iter().filter_map(Weak::upgrade).collect();
        for index in &indexes {
            index.stage(slot, object);
        }
        StagedIndexes(indexes)
    }

    pub(crate) fn add_errors(&mut self, (count, last): (u64, Option<ObjectError>)) {
        self.errors.0 += count;
        if last.is_some() {
            drop_contained(mem::replace(&mut self.errors.1, last));
        }
    }

    pub(crate) fn take_errors(&mut self) -> (u64, Option<ObjectError>) {
        mem::take(&mut self.errors)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.indexes.iter().filter_map(Weak::upgrade).map(|index| index.bytes()).sum()
    }
}

pub(crate) struct StagedIndexes<T: StoreType + ?Sized>(Vec<Arc<dyn MaintainedIndex<T>>>);

impl<T: StoreType + ?Sized> StagedIndexes<T> {
    /// Commits the write in all indexes, under the lock of the state. Returns the number of errors, and the last of
    /// them.
    pub(crate) fn commit(&self, slot: u32, has_object: bool) -> (u64, Option<ObjectError>) {
        let errors = self.0.iter().filter_map(|index| index.commit(slot, has_object));
        errors.fold((0, None), |(count, _), error| (count + 1, Some(error)))
    }

    /// Returns the subscribers to the values that the object had or has. It runs user code.
    pub(crate) fn notify(&self) -> Vec<Arc<Subscription<T>>> {
        let mut subscribers = Vec::new();
        for index in &self.0 {
            index.notify(&mut subscribers);
        }
        subscribers
    }
}
