//! Indexes: objects by values that a function computes from them.

pub(crate) mod handle;
