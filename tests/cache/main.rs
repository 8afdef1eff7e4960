//! Stores: objects, indexes, subscribers, files.

mod model;
mod save;
mod store;
mod subscribe;
mod volumes;
#[path = "../support/mod.rs"]
mod support;
