//! The state that only writers access, and its parts.

use crate::StoreType;
use crate::compress::{Compression, CompressionMemory, Decoder};
use crate::index::registry::IndexRegistry;
use crate::key::Namespaces;
use crate::log::change_log::ChangeLog;
use crate::state::entry::StorageFormat;
use crate::state::memory::{Memory, Usage};
use crate::state::objects::Objects;
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
    pub(crate) namespaces: Namespaces,
    pub(crate) indexes: IndexRegistry<T>,
    pub(crate) subscribers: SubscriberRegistry<T>,
    pub(crate) relists: Relists,
    pub(crate) usage: Usage,
    pub(crate) compression: Compression,
}

impl<T: StoreType + ?Sized> Writer<T> {
    pub(super) fn new(format: StorageFormat, decoder: Decoder) -> Self {
        Self {
            format,
            budget: BudgetState::default(),
            skipped: SkippedObjects::default(),
            slots: SlotAllocator::default(),
            namespaces: Namespaces::default(),
            indexes: IndexRegistry::new(),
            subscribers: SubscriberRegistry::new(),
            relists: Relists::default(),
            usage: Usage::default(),
            compression: Compression::new(decoder),
        }
    }

    /// Returns the memory of the store. Its [rest](BudgetState::rest) was measured some writes ago.
    pub(crate) fn used(&self) -> usize {
        self.counted() + self.budget.rest
    }

    /// Returns the bytes of the objects and their references, which are counted with each write.
    pub(super) fn counted(&self) -> usize {
        self.usage.total() + self.compression.reference_bytes()
    }

    pub(super) fn measure(&self, objects: &Objects<T>, log: &ChangeLog<T>) -> Memory {
        let state = objects.state();
        debug_assert_eq!(self.usage, Usage::of_all(state.entries()), "a write was counted twice, or not at all");
        let Usage { encoded, compressed } = self.usage;
        let CompressionMemory { buffers, zstd } = self.compression.measure();
        let namespaces = self.namespaces.bytes();
        let table = state.bytes() + self.slots.bytes() + namespaces + self.skipped.bytes();
        Memory {
            encoded,
            compressed: compressed + self.compression.reference_bytes(),
            table: table + buffers,
            indexes: self.indexes.bytes(),
            log: log.lock().bytes(),
            relist: self.relists.bytes(),
            zstd,
        }
    }
}
