//! The file of a store.

pub(crate) mod format;
pub(crate) mod load;
mod replace;
pub(crate) mod save;
