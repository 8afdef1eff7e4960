#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | holds |
//! |---|---|
//! | [`decode`] | [`ListDecoder`]: bytes in, items out; no IO, no async |
//! | [`item`] | what the bytes of one item become: [`Item`], [`MetaView`] |
//! | [`adapt`] | iterator, stream and codec around the decoder |
//! | [`limits`] | [`Limits`]: the caps on what a body may claim |
//! | [`error`] | [`DecodeError`] and [`ItemError`] |
//!
//! Cargo features, each only adding API: `async` (default) for [`ListStream`] and
//! [`ListCodec`]. Without it the crate is the sans-IO core and the adapter over [`std::io::Read`].

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
