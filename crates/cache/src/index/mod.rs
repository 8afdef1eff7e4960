//! Indexes: objects by values that a function computes from them.

pub(crate) mod data;
pub(crate) mod groups;
pub(crate) mod lookup;
pub(crate) mod registry;
pub(crate) mod routes;
