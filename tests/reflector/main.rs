//! Reflectors: what they request, and what the store has then.

mod errors;
mod expiry;
mod load;
mod model;
mod own_writes;
mod script;
mod shards;
mod status;
mod strategies;
#[path = "../support/mod.rs"]
mod support;
mod trace;
