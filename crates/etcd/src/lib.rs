#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod data_file;
mod error;
mod key_value;
mod pages;
mod sorted_keys;
mod state;
mod storage_key;
mod stored_value;
mod tree;

pub use data_file::{Check, DataFile, is_data_file};
pub use error::{Error, ErrorKind, PageFault, RevisionFault};
pub use key_value::KeyValue;
pub use pages::MAX_VALUE;
pub use state::State;
pub use storage_key::{ROOTS, StorageKey, storage_prefix};
pub use stored_value::StoredValue;
