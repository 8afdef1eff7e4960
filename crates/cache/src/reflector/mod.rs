//! Keeps a [`Store`](crate::Store) synced with a collection of an API server.

mod attached;
mod cache;
mod cache_writer;
mod feed;
mod handle;
mod one_task;
mod prepared;
mod requests;
mod run;
mod silence;
mod status;
mod sync;
mod warm;

pub use self::cache::Cache;
pub use self::cache_writer::CacheWriter;
pub use self::handle::Reflector;
pub use self::prepared::PreparedReflector;
pub use self::status::{ReflectorStatus, SyncError};
pub use self::sync::Strategy;
