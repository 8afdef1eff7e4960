//! The handles of a store: readers, writers and relists.

pub(crate) mod reader;
pub(crate) mod relist;
pub(crate) mod writable;
