//! Whole collections in memory: each object its own box, found by key and by index, never older than it was.
//!
//! [`Store`] is synchronous and knows neither HTTP nor async: what lists and watches bring is written to it.
//!
//! ```
//! use k8s_pb::api::core::v1::Pod;
//! use listwatch::cache::{StorageFormat, Store};
//! use listwatch::path::pod;
//! use listwatch::{Event, ItemError, ListDecoder};
//!
//! # let mut body = &include_bytes!("../../fixtures/pods-page-1.pb")[..];
//! let store = Store::<Pod>::new(StorageFormat::Encoded);
//! let by_node = store.index("node", |pod| {
//!     Ok::<_, ItemError>(pod::NODE_NAME.str(pod.item()?)?.map(String::from))
//! });
//! let mut relist = store.begin_replace();
//! let mut decoder = ListDecoder::new();
//! while let Some(event) = decoder.decode(&mut body)? {
//!     if let Event::Item(item) = event {
//!         relist.apply(item.encoding(), item.bytes())?;
//!     }
//! }
//! let end = decoder.finish()?;
//! relist.commit(&end.list_meta.resource_version)?;
//!
//! for node in by_node.values() {
//!     println!("{node}: {} Pods", by_node.count(&node));
//! }
//! # assert_eq!(store.len() as u64, end.items);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod budget;
#[cfg(feature = "zstd")]
mod compress;
mod entry;
mod index;
mod memory;
mod object;
mod replace;
#[cfg(feature = "client")]
mod resync;
mod save;
mod state;
mod store;
mod subscribe;

pub use self::entry::Identity;
pub use self::index::{Index, IndexError, OrderedIndex};
pub use self::memory::Memory;
pub use self::object::{Object, ObjectRef, Stored};
pub use self::replace::{Committed, Replace, Superseded};
#[cfg(feature = "client")]
pub(crate) use self::save::Saved;
pub use self::save::{LoadError, SaveError};
pub use self::state::Snapshot;
pub use self::store::{Effect, ObjectKey, StorageFormat, Store, StoreError, Tombstone, Written};
pub use self::subscribe::{Change, Subscribe, Subscriber};
