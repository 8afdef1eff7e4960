//! The data that all handles of a store share, and the writer's lock.
//!
//! Each part owns its data and its lock, and knows no later one:
//!
//! | part | lock |
//! |---|---|
//! | [`Objects`] | readers and writers, for one look-up or one write into a slot |
//! | [`ChangeLog`] | readers without any other lock, and writers |
//! | [`Writer`] and its parts | writers only; acquired first, and held for a whole write |
//!
//! The order of all locks is in ARCHITECTURE.md. Three rules keep it:
//!
//! - A function of the caller (an index, a filter, decoding) may run under the writer's lock and under no other, so
//!   readers never wait for it. Wakers and replaced states leave the lock with [`WriteGuard`], and are woken and
//!   dropped after it is released.
//! - Such a function may read the store. If it wrote, it would wait for itself: `writing` contains the thread that
//!   writes, and turns this deadlock into a panic.
//! - A method that needs the lock locks it itself, or takes `&mut Writer`, which proves that the caller holds it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use listwatch::StoreType;
use listwatch::internal::{is_comparable, is_older};

use crate::handles::HandleCount;
use crate::index::registry::MaintainedIndex;
use crate::log::change_log::ChangeLog;
use crate::log::contents::DueWork;
use crate::state::entry::StorageFormat;
use crate::state::memory::Memory;
use crate::state::objects::Objects;
use crate::state::snapshot::Snapshot;
use crate::subscribe::registry::{SubscriberHost, SubscriberRegistry, Wakers};
use crate::sync::{Mutex, MutexGuard, lock, thread};
use crate::write::writer::Writer;

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
        self.wakers = self.writer.placement.subscribers.take_wakers();
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
    /// Panics if the caller is an index function or a filter that another write runs, because it would wait for itself.
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

    pub(crate) fn measure(&self) -> Memory {
        let mut writer = self.writer();
        writer.compress_pending(&self.objects);
        writer.measure(&self.objects, &self.log)
    }

    /// Keeps an index up to date from now on. The stored objects are yet to be added.
    pub(crate) fn register_index(&self, index: &Arc<dyn MaintainedIndex<T>>) {
        self.writer().placement.indexes.add(index);
    }

    /// Notes that the store contains all changes up to this version.
    pub(crate) fn advance(&self, resource_version: &str) {
        let mut writer = self.writer();
        if is_older(resource_version, &self.objects.state().version) {
            return;
        }
        writer.relists.forget_deletions(resource_version);
        self.pass(&mut writer, resource_version);
        resource_version.clone_into(&mut self.objects.state_mut().version);
        if self.log.is_enabled() {
            self.open_log(&writer, resource_version);
        }
    }

    pub(super) fn pass(&self, writer: &mut Writer<T>, resource_version: &str) {
        writer.relists.unconfirmed.pass(resource_version);
        if writer.relists.unconfirmed.is_missed() && self.log.is_enabled() {
            self.log.lock().close();
        }
    }

    /// Opens a closed log if the store contains all objects, or advances the log.
    pub(crate) fn open_log(&self, writer: &Writer<T>, resource_version: &str) {
        let mut log = self.log.lock();
        if !log.is_closed() {
            return log.advance(resource_version);
        }
        if !is_comparable(resource_version)
            || writer.relists.is_open()
            || !writer.relists.is_consistent()
            || writer.skipped.len() > 0
        {
            return;
        }
        let state = self.objects.state();
        // A loaded store may contain a part of the changes up to its version.
        let mut newest = state.version.clone();
        let mut keep_newer = |version: &str| {
            if is_older(&newest, version) || !is_comparable(&newest) {
                version.clone_into(&mut newest);
            }
        };
        let mut number = None;
        for entry in state.entries() {
            // Making a text for each of a million objects would take ten times as long.
            match entry.version_number() {
                Some(version) => number = number.max(Some(version)),
                None => keep_newer(&entry.resource_version()),
            }
        }
        if let Some(number) = number {
            keep_newer(&number.to_string());
        }
        // At older versions, the deleted objects exist.
        let newest = writer.relists.newest_deletion(&newest).unwrap_or(&newest);
        log.open(resource_version, newest);
    }

    /// Returns the objects of exactly one version of the collection, if the log has such a version.
    pub(crate) fn exact_snapshot(&self) -> Option<Snapshot<T>> {
        let _writer = self.writer();
        let version = self.log.lock().exact_version()?.to_owned();
        Some(self.objects.snapshot().at_version(version))
    }
}

impl<T: StoreType + ?Sized> SubscriberHost<T> for StoreCore<T> {
    fn objects(&self) -> &Objects<T> {
        &self.objects
    }

    fn exclude_writers(&self, function: &mut dyn FnMut(&mut SubscriberRegistry<T>)) {
        function(&mut self.writer().placement.subscribers);
    }
}
