//! The state that only writers access, and its parts.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use crate::StoreType;
use crate::compress::{Common, Compressor};
use crate::family::Families;
use crate::form::Deferred;
use crate::index::registry::IndexRegistry;
use crate::log::change_log::ChangeLog;
use crate::state::memory::{Memory, Usage};
use crate::state::objects::Objects;
use crate::state::storage_format::StorageFormat;
use crate::subscribe::registry::SubscriberRegistry;
use crate::write::budget::BudgetState;
use crate::write::relist::Relists;
use crate::write::skipped::SkippedObjects;
use crate::write::slot_allocator::SlotAllocator;

/// The state that only writers access. Each part owns its data; the rules of a write are in [`rules`](super::rules).
pub(crate) struct Writer<T: StoreType + ?Sized> {
    pub(crate) format: StorageFormat,
    pub(crate) budget: BudgetState,
    pub(crate) skipped: SkippedObjects,
    pub(crate) slots: SlotAllocator,
    pub(crate) namespaces: HashSet<Arc<str>>,
    pub(crate) indexes: IndexRegistry<T>,
    pub(crate) subscribers: SubscriberRegistry<T>,
    pub(crate) relists: Relists<T::Decoded>,
    pub(crate) usage: Usage,
    pub(crate) compressor: Option<Compressor>,
    pub(crate) families: Families,
    pub(crate) deferred: Deferred,
    /// What compressed objects share, by namespace.
    pub(crate) common: HashMap<Arc<str>, Weak<Common>>,
}

impl<T: StoreType + ?Sized> Writer<T> {
    pub(super) fn new(format: StorageFormat) -> Self {
        Self {
            format,
            budget: BudgetState::default(),
            skipped: SkippedObjects::default(),
            slots: SlotAllocator::default(),
            namespaces: HashSet::new(),
            indexes: IndexRegistry::new(),
            subscribers: SubscriberRegistry::new(),
            relists: Relists::default(),
            usage: Usage::default(),
            compressor: None,
            families: Families::default(),
            deferred: Deferred::default(),
            common: HashMap::new(),
        }
    }

    /// Returns the memory of the store, of which the [rest](BudgetState::rest) was measured some writes ago.
    pub(crate) fn used(&self, objects: &Objects<T>) -> usize {
        self.counted(objects) + self.budget.rest
    }

    /// Returns the bytes of the objects and their bases, which are counted with each write.
    pub(super) fn counted(&self, objects: &Objects<T>) -> usize {
        self.usage.total() + objects.codec.decompressor.base_bytes()
    }

    pub(super) fn measure(&self, objects: &Objects<T>, log: &ChangeLog<T>) -> Memory {
        let state = objects.state();
        let codec = &objects.codec;
        let Usage { encoded, compressed, decoded } = self.usage;
        let namespaces = self.namespaces.capacity() * 8 / 7 * (size_of::<Arc<str>>() + 1)
            + self.namespaces.iter().map(|namespace| 2 * size_of::<usize>() + namespace.len()).sum::<usize>();
        let table = state.bytes() + self.slots.bytes() + namespaces + self.skipped.bytes() + codec.shared_bytes();
        let compressor = self.compressor.as_ref();
        Memory {
            encoded,
            compressed: compressed + codec.decompressor.base_bytes(),
            decoded,
            table: table
                + compressor.map_or(0, Compressor::buffer_bytes)
                + codec.decompressor.buffer_bytes()
                + self.families.bytes()
                + self.common.capacity() * 8 / 7 * (size_of::<(Arc<str>, Weak<Common>)>() + 1)
                + self.common.len() * (2 * size_of::<usize>() + size_of::<Common>()),
            indexes: self.indexes.bytes(),
            log: log.lock().bytes(),
            replace: self.relists.bytes(),
            zstd: compressor.map_or(0, Compressor::zstd_bytes) + codec.decompressor.zstd_bytes(),
        }
    }
}
