#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod data_file;
#[cfg(feature = "decrypt")]
mod encryption;
mod error;
mod key_value;
mod pages;
mod revisions;
mod sorted_keys;
mod state;
mod storage_key;
mod stored_value;
mod tree;
mod usage;
mod wal;

pub use data_file::{Check, DataFile, is_data_file};
#[cfg(feature = "decrypt")]
pub use encryption::{ConfigError, DecryptError, EncryptionConfig};
pub use error::{Error, ErrorKind, PageFault, RevisionFault};
pub use key_value::KeyValue;
pub use pages::MAX_VALUE;
pub use state::State;
pub use storage_key::{ROOTS, StorageKey, storage_prefix};
pub use stored_value::StoredValue;
pub use usage::{KeyUsage, Usage, UsedKey};
