//! Whole collections in memory: each object allocated separately, found by key, namespace and index, and never replaced
//! by an older state.
//!
//! A [`Store`] is synchronous and independent of HTTP and async: the caller writes the objects of lists and watches to
//! it. A [`Reflector`] does this for you, and keeps the store synced with an API server.
//!
//! ```
//! use k8s_pb::api::core::v1::Pod;
//! use listwatch_cache::{StorageFormat, Store};
//! use listwatch::path::pod;
//! use listwatch::{Event, ItemError, ListDecoder};
//!
//! # let mut body = &include_bytes!("../../../fixtures/pods-page-1.pb")[..];
//! let store = Store::<Pod>::new(StorageFormat::Encoded);
//! let by_node = store.index("node", |pod| {
//!     Ok::<_, ItemError>(pod::NODE_NAME.str(pod.item()?)?.map(String::from))
//! });
//! let mut relist = store.begin_relist();
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

// `.ci/imports` checks that imports point downwards, and `.ci/imports --order` prints the modules, lowest first. Where
// a part needs a later one, it defines a trait: subscribers know their store as `SubscriberHost`, writers know indexes
// as `MaintainedIndex`, and compression looks up states as `StoredStates`.

/// Compiles the examples of README.md.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// Compiles the example of the README of this crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod own_readme {}

#[cfg(test)]
mod allocated;
mod compress;
mod contain;
mod error;
mod file;
#[cfg(doctest)]
mod guide;
mod handles;
mod hex;
mod index;
mod key;
mod log;
mod reflector;
mod state;
mod store;
mod subscribe;
mod sync;
mod write;

#[doc(inline)]
pub use listwatch::StoreType;

pub use self::compress::states::{PackedState, StateCodec, StateNames};
pub use self::error::{EndReason, ObjectError, StoreError};
pub use self::file::format::FileError;
pub use self::index::lookup::Index;
pub use self::key::ObjectKey;
pub use self::log::{
    change::LoggedChange, change_log::ChangeCursor, change_log::ChangePosition, contents::ChangeLogStatus,
    open_log::ChangeLogLimits,
};
pub use self::reflector::{Cache, CacheWriter, PreparedReflector, Reflector, ReflectorStatus, Strategy, SyncError};
pub use self::state::entry::StorageFormat;
pub use self::state::memory::Memory;
pub use self::state::object::{Encoded, Object};
pub use self::state::snapshot::Snapshot;
pub use self::store::reader::StoreReader;
pub use self::store::relist::Relist;
pub use self::store::writable::Store;
pub use self::subscribe::change::{Change, Written};
pub use self::subscribe::{builder::SubscriberBuilder, predicate::Predicate, subscriber::Subscriber};
pub use self::write::transaction::ApplyOutcome;
