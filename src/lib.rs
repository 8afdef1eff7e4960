#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | holds |
//! |---|---|
//! | [`decode`] | [`ListDecoder`](decode::ListDecoder): bytes in, items out; no IO, no async |
//! | [`item`] | what the bytes of one item become: [`Item`](item::Item), [`MetaView`](item::MetaView) |
//! | [`adapt`] | iterator, stream and codec around the decoder |
//! | [`limits`] | [`Limits`](limits::Limits): the caps on what a body may claim |
//! | [`error`] | [`DecodeError`](error::DecodeError) and [`ItemError`](error::ItemError) |
//!
//! Cargo features, each only adding API: `async` (default) for [`ListStream`](adapt::ListStream) and
//! [`ListCodec`](adapt::ListCodec). Without it the crate is the sans-IO core and the adapter over [`std::io::Read`].

pub mod adapt;
pub mod decode;
pub mod error;
pub mod item;
pub mod limits;

#[cfg(feature = "async")]
pub use adapt::{ListCodec, ListStream};
pub use adapt::{ListError, ListReader};
pub use decode::{Event, ItemRef, ListDecoder, ListEnd};
pub use error::{DecodeError, DecodeErrorKind, ItemError};
pub use item::{Item, ListMeta, MetaView, Status, TypeMeta};
pub use limits::{Limits, OnItemError};
