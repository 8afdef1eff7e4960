//! Stores: objects, indexes, subscribers, files.

#[cfg(feature = "zstd")]
mod families;
mod model;
mod save;
mod store;
mod subscribe;
#[path = "../support/mod.rs"]
mod support;
mod trained;
mod user_code;
mod volumes;
