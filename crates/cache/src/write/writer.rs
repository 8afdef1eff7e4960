//! The state that only writers access, and its parts.

use listwatch::StoreType;

use crate::compress::compression::CompressionMemory;
use crate::compress::decoder::Decoder;
use crate::error::StoreError;
use crate::log::change_log::ChangeLog;
use crate::state::entry::{Entry, StorageFormat};
use crate::state::memory::{Memory, Usage};
use crate::state::objects::Objects;
use crate::write::capacity::{BudgetState, MEASURE, SkippedObjects};
use crate::write::compressor::Compressor;
use crate::write::placement::Placement;
use crate::write::relist::Relists;

/// The state that only writers access. Each part owns its data, and a write goes through all of them
/// ([`transaction`](super::transaction)).
pub(crate) struct Writer<T: StoreType + ?Sized> {
    pub(crate) relists: Relists,
    pub(crate) compressor: Compressor,
    pub(crate) placement: Placement<T>,
    pub(crate) budget: BudgetState,
    pub(crate) skipped: SkippedObjects,
}

impl<T: StoreType + ?Sized> Writer<T> {
    pub(super) fn new(format: StorageFormat, decoder: Decoder) -> Self {
        Self {
            relists: Relists::default(),
            compressor: Compressor::new(format, decoder),
            placement: Placement::new(),
            budget: BudgetState::default(),
            skipped: SkippedObjects::default(),
        }
    }

    /// Removes an object. `last` is its last state.
    pub(super) fn remove(&mut self, objects: &Objects<T>, hash: u32, slot: u32, last: &Entry, is_unknown: bool) {
        self.placement.remove(objects, hash, slot, last, is_unknown);
        self.relists.forget_slot(slot);
    }

    pub(crate) fn compress_pending(&mut self, objects: &Objects<T>) {
        self.compressor.compress_pending(objects, &mut self.placement);
    }

    /// Checks whether the budget has room for a state in place of another one.
    pub(super) fn check_room(
        &mut self,
        objects: &Objects<T>,
        log: &ChangeLog<T>,
        old: Option<&Entry>,
        new: &Entry,
    ) -> Result<(), StoreError> {
        let Some(budget) = self.budget.limit else { return Ok(()) };
        self.measure_if_due(objects, log);
        let (old, new) = (old.map_or(0, Entry::allocated), new.allocated());
        if new <= old || self.used() + new - old <= budget {
            return Ok(());
        }
        self.budget.reject(new - old);
        Err(StoreError::OverBudget(budget))
    }

    /// Measures the memory that is not counted with each write immediately, because it has changed much.
    pub(crate) fn measure_rest(&mut self, objects: &Objects<T>, log: &ChangeLog<T>) {
        if self.budget.limit.is_some() {
            self.budget.until_measured = 0;
            self.measure_if_due(objects, log);
        }
    }

    fn measure_if_due(&mut self, objects: &Objects<T>, log: &ChangeLog<T>) {
        if self.budget.until_measured == 0 {
            self.budget.rest = self.measure(objects, log).total().saturating_sub(self.counted());
            self.budget.until_measured = (objects.state().len() / 8).max(MEASURE);
        }
        self.budget.until_measured -= 1;
    }

    /// Returns the memory of the store. Its [rest](BudgetState::rest) was measured some writes ago.
    pub(crate) fn used(&self) -> usize {
        self.counted() + self.budget.rest
    }

    /// Returns the bytes of the objects and their references, which are counted with each write.
    fn counted(&self) -> usize {
        self.placement.usage.total() + self.compressor.compression.reference_bytes()
    }

    pub(super) fn measure(&self, objects: &Objects<T>, log: &ChangeLog<T>) -> Memory {
        let Self { relists, compressor, placement, skipped, .. } = self;
        let state = objects.state();
        debug_assert_eq!(placement.usage, Usage::of_all(state.entries()), "a write was counted twice, or not at all");
        let Usage { encoded, compressed } = placement.usage;
        let CompressionMemory { buffers, zstd } = compressor.compression.measure();
        let table = state.bytes() + placement.slots.bytes() + compressor.namespaces.bytes() + skipped.bytes();
        Memory {
            encoded,
            compressed: compressed + compressor.compression.reference_bytes(),
            table: table + buffers,
            indexes: placement.indexes.bytes(),
            log: log.lock().bytes(),
            relist: relists.bytes(),
            zstd,
        }
    }
}
