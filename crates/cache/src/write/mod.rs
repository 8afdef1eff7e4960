//! Writers: the rules by which objects are written, relists, tombstones and the budget.

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod commit;
pub(crate) mod compression;
pub(crate) mod core;
pub(crate) mod logging;
pub(crate) mod origin;
pub(crate) mod outcome;
pub(crate) mod put;
pub(crate) mod relist;
pub(crate) mod rules;
pub(crate) mod skipped;
pub(crate) mod slot_allocator;
pub(crate) mod tombstones;
pub(crate) mod unconfirmed;
pub(crate) mod watched;
pub(crate) mod writer;
