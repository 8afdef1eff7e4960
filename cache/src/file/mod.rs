//! The file of a store.

pub(crate) mod format;
pub(crate) mod load;
pub(crate) mod save;
