//! Keeps a [`Store`](crate::Store) synced with a collection of an API server.

mod attempts;
mod cache;
mod cache_writer;
mod confirm;
mod feed;
mod follow;
mod lifetime;
mod options;
mod prepared;
mod status;
mod sync;
mod warm;

pub use self::cache::Cache;
pub use self::cache_writer::CacheWriter;
pub use self::options::Reflector;
pub use self::prepared::PreparedReflector;
pub use self::status::{ReflectorStatus, SyncError};
pub use self::sync::Strategy;
