#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(all(feature = "cache", feature = "reqwest"), doc = include_str!("../README.md"))]
#![cfg_attr(
    not(all(feature = "cache", feature = "reqwest")),
    doc = "Streams huge Kubernetes collections over protobuf, in constant memory."
)]
//!
//! # Where things are
//!
//! | module | holds |
//! |---|---|
//! | [`decode`] | [`ListDecoder`] and [`WatchDecoder`]: bytes in, items and events out; no IO, no async |
//! | [`object`] | what the bytes of one item become: [`Item`], [`MetaView`], [`FieldPath`], [`Projection`], [`Prefilter`], `Json` |
//! | [`schema`] | names and types of the fields of every built-in kind, and the JSON form of protobuf objects |
//! | [`adapt`] | iterator, stream and codec around the decoder |
//! | `client` | lists and watches of an API server: requests, pages, retries, and exactly how a list ended |
//! | `cache` | whole collections in memory, by key and by index |
//! | `reflector` | keeps a cache synced with an API server |
//! | [`limits`] | [`Limits`]: the caps on what a body may claim |
//! | [`error`] | [`DecodeError`] and [`ItemError`] |
//!
//! The default cargo feature `reqwest` brings the client over HTTP. Without features the crate is the sans-IO core and the adapter
//! over [`std::io::Read`]. A feature only adds API: none changes what existing calls do.

pub mod adapt;
#[cfg(feature = "cache")]
pub mod cache;
#[cfg(feature = "client")]
pub mod client;
pub mod decode;
pub mod error;
pub mod limits;
mod meta;
pub mod object;
#[cfg(all(feature = "cache", feature = "client"))]
pub mod reflector;
pub mod schema;
#[cfg(any(feature = "cache", feature = "client"))]
mod sync;
mod wire;

#[cfg(feature = "async")]
pub use adapt::{ListCodec, ListStream};
pub use adapt::{ListError, ListReader};
pub use decode::{Changed, Event, ListDecoder, ListEnd, WatchDecoder, WatchEvent};
pub use error::{DecodeError, DecodeErrorKind, ItemError};
pub use limits::{Limits, OnItemError};
pub use meta::{ListMeta, ShardInfo, Status, StatusCause, StatusDetails, TypeMeta};
#[cfg(feature = "json")]
pub use object::Json;
pub use object::{FieldPath, Item, ItemRef, MetaView, Prefilter, Projection, compare_resource_versions};
pub use wire::Encoding;
