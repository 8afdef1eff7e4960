#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "client"),
    allow(dead_code, reason = "the client uses parts of the core that nothing else does")
)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]
//! Lists and watches huge Kubernetes collections in constant memory.
//!
//! This crate decodes a list while it arrives, one item at a time, so a list may be of any size and memory holds only
//! what you keep. The decoders need neither IO nor async; on top of them, a client lists, pages, watches and retries.
//!
//! ```no_run
//! use listwatch::ListReader;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut names = ListReader::with(std::fs::File::open("pods.pb")?, |pod| pod.meta().map(|meta| meta.name().into_owned()));
//! for name in &mut names {
//!     println!("{}", name?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start
//!
//! | types and modules | purpose |
//! |---|---|
//! | [`ListDecoder`], [`WatchDecoder`], [`Limits`] | bytes in, items and events out; no IO, no async |
//! | [`ListReader`], `ListStream` | an iterator and a stream around the decoder |
//! | [`ItemRef`], [`Item`], `Json` | one item, borrowed, and the types that it can be decoded as |
//! | [`MetaView`], [`FieldPath`], [`path`], [`Projection`] | read and copy parts of an item without decoding it |
//! | [`value`] | reads the JSON form of an item, one member at a time |
//! | [`View`](view::View) | typed reads off the bytes of an object, by the types of the crate `listwatch-views` |
//! | [`LabelSelector`], [`FieldSelector`], [`Shard`] | select objects of a collection |
//! | `encode` | writes lists, objects and watch frames from stored items, byte for byte as an API server does |
//! | [`schema`] | names and types of the fields of every built-in kind |
//! | `client` | lists and watches of an API server: requests, pages, retries, and how a list ended |
//! | [`DecodeError`], [`ItemError`] | errors with the offset in the body and the number of items delivered before |
//!
//! The crate [`listwatch-cache`](https://docs.rs/listwatch-cache) keeps whole collections in memory, and [the
//! guide](https://docs.rs/crate/listwatch/latest/source/docs/guide/README.md) has a chapter for each task.
//!
//! The client over HTTP is in the default cargo feature `http`. Without features, the crate consists of the decoders
//! and the adapter over [`std::io::Read`]. A feature only adds API and never changes what existing calls do.

// `.ci/imports` checks that imports point downwards, and `.ci/imports --order` prints the modules, lowest first.
mod adapt;
#[cfg(feature = "client")]
pub mod client;
mod decode;
pub mod encode;
mod encoding;
mod error;
mod limits;
mod meta;
mod object;
pub mod schema;
#[cfg(feature = "client")]
mod sync;
mod wire;

/// The JSON form of an object, read off its bytes: one member at a time, without decoding the others.
pub mod value {
    pub use crate::object::value::{Array, Key, Object, Place, Value};
}

/// Typed views: what crates that generate them, such as `listwatch-views`, implement and call.
pub mod view {
    pub use crate::object::view::{Canonical, View, ViewKind};
}

/// Items for the other crates of this workspace. Programs should not use them, because any release may change them.
#[doc(hidden)]
pub mod internal {
    #[cfg(feature = "client")]
    pub use crate::client::{
        classify::{MAX_RETRY_AFTER, RetryAdvice},
        crypto::crypto_provider,
        list::Pages,
        outage::Outage,
        runtime::{Timer, on_own_runtime},
        transport::chain,
        warning_limit::WarningLimit,
        watch::{Connections, PAGE},
    };
    pub use crate::error::without_os_numbers;
    pub use crate::object::item_ref::json_of_body;
    pub use crate::object::version::{is_comparable, is_older};
    pub use crate::object::view::{Checked, check, number, trusted};
    pub use crate::schema::rust_type::check_kind;
}

/// Paths of fields that many programs read.
pub mod path {
    pub use crate::object::path::{meta, pod};
}

#[cfg(feature = "async")]
pub use adapt::ListStream;
pub use adapt::{FromRef, ListError, ListReader};
pub use decode::{Event, ListDecoder, ListEnd, WatchDecoder, WatchEventRef};
pub use error::{DecodeError, DecodeErrorKind, InvalidInput, ItemError, Limit};
pub use limits::Limits;
pub use meta::{EventType, ListMeta, ShardInfo, Status, StatusCause, StatusDetails, TypeMeta};
pub use object::{
    FieldPath, FieldSelector, Item, ItemRef, Json, LabelSelector, ManagedFieldsEntry, MetaView, OwnerReference,
    Projection, Shard, StoreType, Time, Tolerant, UndecodableObject, compare_resource_versions,
};
pub use wire::{BodyFormat, Encoding, Fault};
