//! Stores: objects, indexes, subscribers, files.

mod model;
mod save;
mod store;
mod subscribe;
#[path = "../support/mod.rs"]
mod support;
mod user_code;
mod volumes;
