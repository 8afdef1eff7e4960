//! Locks without poisoning, so that a panic while one is held does not affect later callers. Under `cfg(shuttle)`, they
//! are shuttle's locks.

use std::sync::PoisonError;
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(shuttle)]
use shuttle::thread_local;

thread_local! {
    static THREAD: u8 = const { 0 };
}

/// Returns a number that differs between running threads, and is not 0.
pub(crate) fn thread() -> usize {
    THREAD.with(|byte| std::ptr::from_ref(byte) as usize)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
