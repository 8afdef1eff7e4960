//! Locks without poisoning: a panic while one is held does not affect later callers.

use std::sync::PoisonError;
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
