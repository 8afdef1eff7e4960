//! The change log of a store, and its lock.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::StoreType;
use crate::log::contents::LogContents;
use crate::log::status::ChangeLogLimits;
use crate::sync::{Mutex, MutexGuard, lock};

/// The changes of a collection in the order of the watch.
pub(crate) struct ChangeLog<T: StoreType + ?Sized> {
    /// Changed and read under the writer's lock, so that a store without a log never locks the contents.
    is_enabled: AtomicBool,
    /// Readers lock it without any other lock, and writers under the writer's lock.
    contents: Mutex<LogContents<T>>,
}

impl<T: StoreType + ?Sized> ChangeLog<T> {
    pub(crate) fn new() -> Self {
        Self { is_enabled: AtomicBool::new(false), contents: Mutex::new(LogContents::new()) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LogContents<T>> {
        lock(&self.contents)
    }

    /// Keeps changes from now on. The caller holds the writer's lock.
    pub(crate) fn enable(&self, limits: ChangeLogLimits) {
        self.is_enabled.store(true, Ordering::Relaxed);
        self.lock().enable(limits);
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.lock().close();
    }
}
