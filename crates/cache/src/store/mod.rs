//! The handles of a store.

pub(crate) mod files;
pub(crate) mod handle;
pub(crate) mod reader;
