//! Reflectors: their requests, and the objects in their stores.

mod cache_writer;
mod change_log;
mod confirm;
mod ends;
mod errors;
mod expiry;
mod load;
mod model;
mod outage;
mod own_writes;
mod script;
mod shards;
mod spawn;
mod status;
mod steps;
mod strategies;
mod streams;
#[path = "../../../../tests/support/client.rs"]
mod support;
mod trace;
