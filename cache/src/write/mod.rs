//! Writers: the rules by which objects are written, relists, tombstones and the budget.

pub(crate) mod budget;
pub(crate) mod relist;
pub(crate) mod rules;
pub(crate) mod watched;
pub(crate) mod writer;
