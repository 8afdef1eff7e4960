//! Reflectors: what is requested, and what the store has then.

mod model;
mod shards;
mod sync;
#[path = "../support/mod.rs"]
mod support;
