//! The store of a reflector.

use std::ops::Deref;
use std::sync::Arc;

use listwatch::client::Error;

use crate::{Store, StoreType};

/// The store of a reflector. Its subscribers end with the reflector.
pub(super) struct AttachedStore<T: StoreType + ?Sized> {
    store: Store<T>,
    /// The error that ended the reflector.
    pub(super) cause: Option<Error>,
}

impl<T: StoreType + ?Sized> AttachedStore<T> {
    pub(super) fn new(store: Store<T>) -> Self {
        store.attach();
        Self { store, cause: None }
    }
}

impl<T: StoreType + ?Sized> Deref for AttachedStore<T> {
    type Target = Store<T>;

    fn deref(&self) -> &Store<T> {
        &self.store
    }
}

impl<T: StoreType + ?Sized> Drop for AttachedStore<T> {
    fn drop(&mut self) {
        self.store.detach(self.cause.take().map(|cause| Arc::new(cause) as _));
    }
}
