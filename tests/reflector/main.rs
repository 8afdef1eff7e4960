//! Reflectors: what is requested, and what the store has then.

mod model;
mod shards;
#[path = "../support/mod.rs"]
mod support;
mod sync;
