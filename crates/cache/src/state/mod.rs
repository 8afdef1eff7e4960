//! The objects of a store: their states, their keys and order, and the table that readers access.

pub(crate) mod decode_errors;
pub(crate) mod entry;
pub(crate) mod head;
pub(crate) mod key_order;
pub(crate) mod memory;
pub(crate) mod object;
pub(crate) mod objects;
pub(crate) mod slot_set;
pub(crate) mod snapshot;
pub(crate) mod table;
