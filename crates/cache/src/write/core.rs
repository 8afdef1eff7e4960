//! The data that all handles of a store share, and the writer's lock.
//!
//! Each part owns its data and its lock, and none knows a later one:
//!
//! | part | lock |
//! |---|---|
//! | [`Objects`] | readers and writers, for one look-up or one write into a slot |
//! | [`ChangeLog`] | readers without any other lock, and writers |
//! | [`Writer`] and its parts | writers only; acquired first, and held for a whole write |
//!
//! The order of all locks is in ARCHITECTURE.md. Three rules keep it:
//!
//! - A function of the caller (an index, a filter, decoding) may run under the writer's lock, and under no other.
//!   Readers never wait for it. Wakers and replaced states leave the lock with [`WriteGuard`], and are woken and
//!   dropped after it is released.
//! - Such a function may read the store. If it writes, it would wait for itself: `writing` has the thread that writes,
//!   and turns this deadlock into a panic.
//! - A method that needs the lock locks it itself, or takes `&mut Writer`, which proves that the caller holds it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::StoreType;
use crate::handles::HandleCount;
use crate::index::registry::MaintainedIndex;
use crate::log::change_log::ChangeLog;
use crate::log::contents::DueWork;
use crate::state::entry::StorageFormat;
use crate::state::memory::Memory;
use crate::state::objects::Objects;
use crate::subscribe::host::SubscriberHost;
use crate::subscribe::registry::{SubscriberRegistry, Wakers};
use crate::sync::{Mutex, MutexGuard, lock, thread};
use crate::write::writer::Writer;

/// The data that all handles of a store share.
pub(crate) struct StoreCore<T: StoreType + ?Sized> {
    pub(crate) objects: Objects<T>,
    /// Cursors hold the log, and not the store.
    pub(crate) log: Arc<ChangeLog<T>>,
    pub(crate) handles: HandleCount,
    /// Locked before all other locks, by each writer.
    writer: Mutex<Writer<T>>,
    /// The thread that holds the writer's lock; 0 if none does.
    writing: AtomicUsize,
}

/// The writer's lock. After it is released, subscribers and cursors are woken.
pub(crate) struct WriteGuard<'s, T: StoreType + ?Sized> {
    // Fields are dropped in this order: the lock first.
    writer: MutexGuard<'s, Writer<T>>,
    core: &'s StoreCore<T>,
    wakers: Wakers,
    due: Option<DueWork<T>>,
}

impl<T: StoreType + ?Sized> Deref for WriteGuard<'_, T> {
    type Target = Writer<T>;

    fn deref(&self) -> &Writer<T> {
        &self.writer
    }
}

impl<T: StoreType + ?Sized> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut Writer<T> {
        &mut self.writer
    }
}

impl<T: StoreType + ?Sized> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        self.wakers = self.writer.subscribers.take_wakers();
        if self.core.log.is_enabled() {
            self.due = Some(self.core.log.lock().take_due_work());
        }
        self.core.writing.store(0, Relaxed);
    }
}

impl<T: StoreType + ?Sized> StoreCore<T> {
    pub(crate) fn new(format: StorageFormat) -> Self {
        let objects = Objects::new();
        let decoder = objects.codec.decoder.clone();
        Self {
            objects,
            log: Arc::new(ChangeLog::new()),
            handles: HandleCount::new(),
            writer: Mutex::new(Writer::new(format, decoder)),
            writing: AtomicUsize::new(0),
        }
    }

    /// Waits for other writers.
    ///
    /// # Panics
    ///
    /// Panics if the caller is an index function or a filter that another write runs: it would wait for itself.
    pub(crate) fn writer(&self) -> WriteGuard<'_, T> {
        let thread = thread();
        // Another thread never stores the number of this one.
        let is_nested = self.writing.load(Relaxed) == thread;
        assert!(
            !is_nested,
            "an index function or a filter must not write to its store, or call a method that waits for writers"
        );
        let writer = lock(&self.writer);
        self.writing.store(thread, Relaxed);
        WriteGuard { writer, core: self, wakers: Wakers::default(), due: None }
    }

    /// As [`writer`](Self::writer), after it has compressed the objects that are waiting for it.
    pub(crate) fn settled_writer(&self) -> WriteGuard<'_, T> {
        let mut writer = self.writer();
        self.compress_deferred(&mut writer);
        writer
    }

    /// Measures the memory of the store.
    pub(crate) fn measure(&self) -> Memory {
        let writer = self.settled_writer();
        writer.measure(&self.objects, &self.log)
    }

    /// Keeps an index up to date from now on. It does not have the objects of the store yet.
    pub(crate) fn register_index(&self, index: &Arc<dyn MaintainedIndex<T>>) {
        self.writer().indexes.add(index);
    }
}

impl<T: StoreType + ?Sized> SubscriberHost<T> for StoreCore<T> {
    fn objects(&self) -> &Objects<T> {
        &self.objects
    }

    fn exclude_writers(&self, function: &mut dyn FnMut(&mut SubscriberRegistry<T>)) {
        function(&mut self.writer().subscribers);
    }
}

/// Lets rules use the objects of the store as their own.
impl<T: StoreType + ?Sized> Deref for StoreCore<T> {
    type Target = Objects<T>;

    fn deref(&self) -> &Objects<T> {
        &self.objects
    }
}
